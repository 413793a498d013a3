"""Computation skeletons: the graphs of compositional kernels.

Base spaces define the domain of inputs, dual activations compose kernels, and a
:class:`Skeleton` combines them in a graph; ``randkern.Compositional(skeleton)`` is its
kernel, with random features.
"""

from randkern.skeletons.activations import (
    Activation,
    Cosine,
    DegreeDistribution,
    Erf,
    Exponential,
    Hermite2,
    Identity,
    Optical,
    PowerSeries,
    ReLU,
    Sine,
    Step,
    from_function,
)
from randkern.skeletons.bases import (
    Base,
    binary,
    categorical,
    circle,
    gaussian,
    linear,
    sphere,
)
from randkern.skeletons.builders import (
    Conv,
    Dense,
    FullyConnected,
    Pool,
    convolutional,
    fully_connected,
)
from randkern.skeletons.graph import Input
from randkern.skeletons.preprocessing import PixelsToAngles, TableToBases
from randkern.skeletons.skeleton import Skeleton

__all__ = [
    "Activation",
    "Base",
    "Conv",
    "Cosine",
    "DegreeDistribution",
    "Dense",
    "Erf",
    "Exponential",
    "FullyConnected",
    "Hermite2",
    "Identity",
    "Input",
    "Optical",
    "PixelsToAngles",
    "Pool",
    "PowerSeries",
    "ReLU",
    "Sine",
    "Skeleton",
    "Step",
    "TableToBases",
    "binary",
    "categorical",
    "circle",
    "convolutional",
    "from_function",
    "fully_connected",
    "gaussian",
    "linear",
    "sphere",
]
