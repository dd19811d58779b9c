"""The operations as Triton kernels, for GPUs; on Hopper some of them in CUDA C++ (``hopper/``)."""
