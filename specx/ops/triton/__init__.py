"""The operations as Triton kernels, for GPUs; on Hopper some are in CUDA C++ (``hopper/``)."""
