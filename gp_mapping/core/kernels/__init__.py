"""Covariance functions; `make_kernel` knows the stationary ones by name."""

from gp_mapping.core.kernels.stationary import make_kernel

__all__ = ["make_kernel"]
