"""The compiled kernels of both services: one C library, its loader and what Python fills for it."""
