"""Visual Studio, decided by pure code from captured facts: nothing here starts a program."""
