"""Kernels: exact values, and the plan of a draw of their random features."""

from randkern.kernels.arc_cosine import ArcCosine
from randkern.kernels.base import Kernel, Product, Scaled, Sum
from randkern.kernels.compositional import Compositional
from randkern.kernels.coregionalization import Coregionalization
from randkern.kernels.discrete import Categorical, Linear
from randkern.kernels.optical import Optical
from randkern.kernels.periodic import Periodic
from randkern.kernels.polynomial import Polynomial
from randkern.kernels.precomputed import Precomputed
from randkern.kernels.softmax import Softmax
from randkern.kernels.spectral import Spectral
from randkern.kernels.spectral_mixture import SpectralMixture
from randkern.kernels.stationary import (
    Cauchy,
    Gaussian,
    Laplacian,
    Matern,
    RationalQuadratic,
)

__all__ = [
    "ArcCosine",
    "Categorical",
    "Cauchy",
    "Compositional",
    "Coregionalization",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Optical",
    "Periodic",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Softmax",
    "Spectral",
    "SpectralMixture",
    "Sum",
]
