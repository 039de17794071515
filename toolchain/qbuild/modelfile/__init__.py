"""What is in a GGUF model file, and how much memory it takes: read from its header alone.

Belongs here: headers, llama.cpp's own loader as a table, traps, memory, what fits a machine. Low in
the order of rooms, because start scripts (``bundle``) need the arithmetic.
"""
