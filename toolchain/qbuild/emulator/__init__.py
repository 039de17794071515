"""A GPU made of software: a bundle's CUDA kernels, retargeted to the CPU, and what runs them.

What belongs here: rewriting device IR, compiling it, our CUDA runtime, and reading what a run says.
It never proves ptxas' machine code, the driver or speed: results are called *emulated*.
"""
