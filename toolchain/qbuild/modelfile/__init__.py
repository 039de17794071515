"""What is in a GGUF model file, and how much memory it takes: read from its header alone."""
