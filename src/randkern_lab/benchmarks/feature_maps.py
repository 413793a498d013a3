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


def kernel_of(family: str, lengthscale: float, degree: float) -> Any:
    """Return a kernel of a family, with the parameter that it has."""
    if family == "gaussian":
        return randkern.Gaussian(lengthscale)
    if family == "optical":
        return randkern.Optical(degree=degree)
    if degree != int(degree):
        raise ValueError(f"the polynomial kernel has a whole degree, got {degree:g}")
    return randkern.Polynomial(degree=int(degree))


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
    degree: float = 2.0
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
        """The exact kernel."""
        return kernel_of(self.family, self.lengthscale, self.degree)

    def build(self, n_components: int, seed: int) -> Any:
        """Return the unfitted feature map."""
        drawn: dict[str, Any] = {"n_components": n_components, "random_state": seed}
        if self.method == "two products":
            return TwoProducts(n_components, self.degree, seed)
        if self.method == "simulated device":
            return SimulatedDevice(n_components, self.degree)
        if self.method == "PolynomialCountSketch":
            return peers.PolynomialCountSketch(degree=self.kernel.degree, **drawn)
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
    """Optical features in NumPy: |Ux|^m from two dense real products.

    Real and imaginary parts of U are drawn and scaled beforehand, in the dtype of the
    rows; squares are taken in place, so only one array besides the output is needed.
    """

    n_components: int
    degree: float
    seed: int

    def fit(self, X: NDArray[Any]) -> "TwoProducts":
        """Draw both matrices, with entries D^(−1/(2m)) N(0, 1/2)."""
        rng = np.random.default_rng(self.seed)
        scale = math.sqrt(0.5) * self.n_components ** (-0.5 / self.degree)
        self.matrices_ = tuple(
            rng.standard_normal((X.shape[1], self.n_components), dtype=X.dtype)
            for _ in range(2)
        )
        for matrix in self.matrices_:
            matrix *= X.dtype.type(scale)
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return |Ux|^m/√D, shape (n, D)."""
        real, imaginary = (X @ matrix for matrix in self.matrices_)
        np.square(real, out=real)
        np.square(imaginary, out=imaginary)
        real += imaginary
        if self.degree != 2:
            np.power(real, X.dtype.type(self.degree / 2), out=real)
        return real


class SimulatedDevice:
    """Intensities |Ux|² of lightonml's simulated device, for rows' signs as bits."""

    def __init__(self, n_components: int, degree: float) -> None:
        if degree != 2:
            raise ValueError(f"its camera sees degree 2, got {degree:g}")
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
