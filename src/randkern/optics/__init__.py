"""Optical processing units: a simulator, binary encoders, and features."""

from randkern.optics._scattering import MirrorLayout
from randkern.optics.counts import (
    acquire,
    count_blocks,
    count_features,
    mean_count_per_bit,
)
from randkern.optics.device import OpticalDevice, Settings, SimulatedOPU
from randkern.optics.encoders import (
    BitPlaneEncoder,
    ThermometerEncoder,
    ThresholdBinarizer,
)
from randkern.optics.features import OpticalFeatures
from randkern.optics.lighton import LightOnDevice

__all__ = [
    "BitPlaneEncoder",
    "LightOnDevice",
    "MirrorLayout",
    "OpticalDevice",
    "OpticalFeatures",
    "Settings",
    "SimulatedOPU",
    "ThermometerEncoder",
    "ThresholdBinarizer",
    "acquire",
    "count_blocks",
    "count_features",
    "mean_count_per_bit",
]
