"""CUDA: architectures, what compiles them, and the tree that clang compiles them with."""
