"""Kernels in CUDA C++ for operations that Triton cannot express: compiling, loading, launching."""
