"""Feature maps of all compared libraries, by names that can be sent to a process.

These are randkern's projections and landmarks; scikit-learn's ``RBFSampler``,
``Nystroem`` and ``PolynomialCountSketch``; and, for the optical kernel, two dense
products in NumPy and lightonml's simulated device.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import kernel_approximation as peers

import randkern
from randkern.projections import PROJECTIONS

from ..contenders import check_landmarks, check_package
from ..figures import Style

# The peers for each kernel and their packages; ratios refer to the first.
PEERS = {
    "gaussian": {"RBFSampler": "scikit-learn", "Nystroem": "scikit-learn"},
    "optical": {"two products": "numpy", "simulated device": "lightonml"},
    "polynomial": {"PolynomialCountSketch": "scikit-learn"},
}
FAMILIES = tuple(PEERS)
# Projections that are compared.
DRAWN = tuple(name for name in PROJECTIONS if name != "auto")
STYLES = {
    "dense": Style("dense", "black", "o"),
    "streamed": Style("streamed", "sky", "X", (0, (3, 1))),
    "orthogonal": Style("orthogonal", "green", "^", "-."),
    "structured": Style("structured", "blue", "s", "--"),
    "qmc": Style("qmc", "pink", "D", ":"),
    "RBFSampler": Style("RBFSampler", "red", "v", (0, (5, 1, 1, 1, 1, 1))),
    "Nystroem": Style("Nystroem", "orange", "P", (0, (8, 3))),
    "landmarks": Style("landmarks", "sky", "h", "-"),
    "PolynomialCountSketch": Style("PolynomialCountSketch"),
}


@dataclass(frozen=True)
class FeatureMap:
    """A kernel, a method of computing its features, and a floating-point type.

    `method` is a projection of randkern or ``"landmarks"``, otherwise one of `PEERS`;
    features have the `dtype` of the rows, except for ``PolynomialCountSketch``, which
    returns float64.
    """

    family: str
    method: str
    dtype: str = "float32"
    lengthscale: float = 1.0
    centered: bool = False

    @property
    def package(self) -> str:
        """The library that computes the features."""
        return PEERS[self.family].get(self.method, "randkern")

    @property
    def label(self) -> str:
        """Short name, unique within a family."""
        own = self.package == "randkern"
        return self.method if own else f"{self.method} {self.dtype}"

    @property
    def kernel(self) -> Any:
        """The exact kernel; the degree of the others is 2."""
        if self.family == "gaussian":
            return randkern.Gaussian(self.lengthscale)
        return {"optical": randkern.Optical, "polynomial": randkern.Polynomial}[
            self.family
        ](2)

    def build(self, n_components: int, seed: int) -> Any:
        """Return the unfitted feature map."""
        drawn: dict[str, Any] = {"n_components": n_components, "random_state": seed}
        if self.method == "two products":
            return TwoProducts(n_components, seed)
        if self.method == "simulated device":
            return SimulatedDevice(n_components)
        if self.method == "PolynomialCountSketch":
            return peers.PolynomialCountSketch(degree=2, **drawn)
        if self.method in PEERS["gaussian"]:
            gamma = 1 / (2 * self.lengthscale**2)
            return getattr(peers, self.method)(gamma=gamma, **drawn)
        if self.method == "landmarks":
            return randkern.NystromFeatures(self.kernel, **drawn)
        drawn |= {"projection": self.method, "centered": self.centered}
        return randkern.RandomFeatures(self.kernel, **drawn)

    def check(self, n: int, n_components: int) -> None:
        """Raise SkippedCase if it cannot be built for `n` rows."""
        if self.package == "lightonml":
            check_package("lightonml")
        if self.method in ("Nystroem", "landmarks"):
            check_landmarks(n, n_components)

    def most_bytes(self, n: int, d: int, n_components: int) -> int:
        """Return more than it takes: a matrix in float64, its draws, and features."""
        stored = self.method not in ("streamed", "structured", "PolynomialCountSketch")
        copies = 8 if self.method == "PolynomialCountSketch" else 3
        return 24 * d * n_components * stored + 8 * copies * n * n_components


@dataclass
class TwoProducts:
    """Optical features in NumPy: |Ux|² from two dense real products.

    Real and imaginary parts of U are drawn and scaled beforehand, in the dtype of the
    rows; squares are taken in place, so only one array besides the output is needed.
    """

    n_components: int
    seed: int

    def fit(self, X: NDArray[Any]) -> "TwoProducts":
        """Draw both matrices, with entries D^(−1/4) N(0, 1/2)."""
        rng = np.random.default_rng(self.seed)
        scale = X.dtype.type(math.sqrt(0.5) * self.n_components**-0.25)
        self.matrices_ = tuple(
            rng.standard_normal((X.shape[1], self.n_components), dtype=X.dtype) * scale
            for _ in range(2)
        )
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return |Ux|²/√D, shape (n, D)."""
        real, imaginary = (X @ matrix for matrix in self.matrices_)
        np.square(real, out=real)
        np.square(imaginary, out=imaginary)
        real += imaginary
        return real


class SimulatedDevice:
    """Intensities |Ux|² of lightonml's simulated device, for rows' signs as bits."""

    def __init__(self, n_components: int) -> None:
        import lightonml

        opu = lightonml.OPU(n_components, simulated=True)
        self.device = randkern.optics.LightOnDevice(opu)

    def fit(self, X: NDArray[Any]) -> "SimulatedDevice":
        """Set the device up for the bits of the rows."""
        self.device.calibrate((X > 0).astype(np.uint8))
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the intensities."""
        return self.device.transform((X > 0).astype(np.uint8))
