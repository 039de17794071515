"""qbuild turns a declarative recipe into a verified, reproducible llama.cpp bundle."""

__version__ = "0.1.0"
