"""A Windows machine to run qbuild on, made of Wine and a real Windows CPython."""
