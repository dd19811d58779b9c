"""Kernels in CUDA C++, where Triton cannot say what is needed: compiling, loading, launching."""
