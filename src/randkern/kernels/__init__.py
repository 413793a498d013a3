"""Kernels: exact values, and the plan of a draw of their random features."""

from randkern.kernels.base import Kernel, Product, Scaled, Sum
from randkern.kernels.compositional import Compositional
from randkern.kernels.discrete import Categorical, Linear
from randkern.kernels.optical import Optical
from randkern.kernels.stationary import (
    Cauchy,
    Gaussian,
    Laplacian,
    Matern,
    RationalQuadratic,
)

__all__ = [
    "Categorical",
    "Cauchy",
    "Compositional",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Optical",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Sum",
]
