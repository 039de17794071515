"""CUDA: architectures, what compiles them, and the tree that clang compiles them with.

Belongs here: what is true of CUDA whoever asks: architectures and GPUs, toolkits, flags of kernels,
what device code in a file means. Not: how a compiler is called (``toolchains``).
"""
