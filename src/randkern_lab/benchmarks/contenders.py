"""Feature maps of all compared libraries, by names that can be sent to a process.

These are randkern's projections and landmarks; scikit-learn's ``RBFSampler``,
``Nystroem`` and ``PolynomialCountSketch``; and, for the optical kernel, two dense
products in NumPy and lightonml's simulated device.
"""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.projections import PROJECTIONS

from .rows import known_names

__all__ = [
    "FAMILIES",
    "INSTALLATION",
    "PEERS",
    "Contender",
    "SimulatedDevice",
    "TwoProducts",
    "contenders",
    "known_projections",
    "make_rows",
    "missing_package",
]

# The peers for each kernel and their packages; ratios refer to the first.
PEERS = {
    "gaussian": {"RBFSampler": "scikit-learn", "Nystroem": "scikit-learn"},
    "optical": {"two products": "numpy", "simulated device": "lightonml"},
    "polynomial": {"PolynomialCountSketch": "scikit-learn"},
}
FAMILIES = tuple(PEERS)
INSTALLATION = {
    "gpytorch": "pip install gpytorch",
    "lightonml": "pip install --no-deps lightonml==1.4.3",
    "xGPR": "pip install xgpr",
    "falkon": (
        "install PyTorch and a C++ compiler, then pip install --no-build-isolation "
        "git+https://github.com/FalkonML/falkon.git"
    ),
}


def missing_package(name: str) -> str | None:
    """Return how to install an optional package, or None if it is installed.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import missing_package
    >>> missing_package("sklearn") is None
    True
    """
    if importlib.util.find_spec(name) is not None:
        return None
    return f"{name} is not installed; {INSTALLATION[name]}"


@dataclass(frozen=True)
class Contender:
    """A kernel, a method of computing its features, and a floating-point type.

    `method` is a projection of randkern or ``"landmarks"``, otherwise one of `PEERS`;
    features have the `dtype` of the rows, except for ``PolynomialCountSketch``, which
    returns float64; the Gaussian kernel's lengthscale defaults to √d.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import Contender, make_rows
    >>> contender = Contender("gaussian", "randkern", "dense")
    >>> X = make_rows(5, 3, "float32", seed=0)
    >>> contender.build(3, 8, seed=0).fit(X).transform(X).shape
    (5, 8)
    """

    family: str
    package: str
    method: str
    dtype: str = "float32"
    degree: float = 2.0
    lengthscale: float | None = None
    centered: bool = False

    @property
    def label(self) -> str:
        """Short name, unique within a family."""
        if self.package == "randkern":
            return self.method
        return f"{self.method} {self.dtype}"

    def kernel(self, d: int) -> Any:
        """Return the exact kernel."""
        if self.family == "gaussian":
            return randkern.Gaussian(self.lengthscale or math.sqrt(d))
        if self.family == "optical":
            return randkern.Optical(degree=self.degree)
        if self.degree != int(self.degree):
            raise ValueError(
                f"the polynomial kernel has a whole degree, got {self.degree:g}"
            )
        return randkern.Polynomial(degree=int(self.degree))

    def build(self, d: int, n_components: int, seed: int) -> Any:
        """Return the unfitted feature map from `d` to `n_components` columns."""
        kernel = self.kernel(d)
        if self.package != "randkern":
            return self._peer(kernel, n_components, seed)
        if self.method == "landmarks":
            return randkern.NystromFeatures(kernel, n_components, random_state=seed)
        return randkern.RandomFeatures(
            kernel,
            n_components,
            projection=self.method,
            centered=self.centered,
            random_state=seed,
        )

    def _peer(self, kernel: Any, n_components: int, seed: int) -> Any:
        from sklearn import kernel_approximation as peers

        if self.method == "two products":
            return TwoProducts(n_components, self.degree, seed)
        if self.method == "simulated device":
            return SimulatedDevice(n_components, self.degree)
        if self.method == "PolynomialCountSketch":
            return peers.PolynomialCountSketch(
                degree=kernel.degree, n_components=n_components, random_state=seed
            )
        sampler = getattr(peers, self.method)
        gamma = 1 / (2 * kernel.lengthscale**2)
        return sampler(gamma=gamma, n_components=n_components, random_state=seed)

    def why_not(self, n: int, n_components: int) -> str | None:
        """Return why it cannot be built for `n` rows, or None if it can."""
        if self.package == "lightonml":
            return missing_package("lightonml")
        if self.method in ("Nystroem", "landmarks") and n_components > n:
            return f"it has at most one component per training row: {n:,}"
        return None

    def matrix_bytes(self, d: int, n_components: int) -> int:
        """Estimate the peak memory of the random matrix, while it is drawn.

        It is zero for projections that store none.
        """
        # Pairs need half as many rows as columns; complex rows count twice.
        pairs = self.package == "randkern" and self.family == "gaussian"
        rows = -(-n_components // 2) if pairs else n_components
        entries = rows * d * (2 if self.family == "optical" else 1)
        single = 4 if self.dtype == "float32" else 8
        if self.method in ("Nystroem", "landmarks"):  # a decomposition, and factors
            return n_components * d * single + 4 * 8 * n_components**2
        if self.method == "PolynomialCountSketch":  # hashes, and a complex sketch
            return 16 * d * int(self.degree)
        if self.package == "scikit-learn":  # drawn in float64, then converted
            return entries * (12 if self.dtype == "float32" else 8)
        if self.package != "randkern" or self.method == "dense":
            return entries * single
        if self.method == "orthogonal":  # float64, and the QR of its blocks
            return entries * (8 + single) + 3 * 8 * d * min(d, rows)
        if self.method == "qmc":  # float64 points and their normal quantiles
            return entries * (16 + single)
        return 0

    def working_bytes(self) -> int:
        """Estimate the memory besides input and output, per element of the output."""
        if self.method == "two products":
            return np.dtype(self.dtype).itemsize  # the second product
        if self.method == "PolynomialCountSketch":  # sketches, transforms, a product
            return 24 * int(self.degree) + 16
        return 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


class TwoProducts:
    """Optical features in NumPy: |Ux|^m from two dense real products.

    Real and imaginary parts of U are drawn and scaled beforehand, in the dtype of the
    rows; squares are taken in place, so only one array besides the output is needed.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern_lab.benchmarks.contenders import TwoProducts
    >>> X = np.ones((2, 3), dtype=np.float32)
    >>> Z = TwoProducts(4000, 2.0, seed=0).fit(X).transform(X)
    >>> bool(abs((Z[0] @ Z[1]) / (2 * 3.0**2) - 1) < 0.2)
    True
    """

    def __init__(self, n_components: int, degree: float, seed: int) -> None:
        self.n_components = n_components
        self.degree = degree
        self.seed = seed

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


def known_projections(names: Sequence[str] | None = None) -> list[str]:
    """Return the projections to run: those requested, or all except ``"auto"``.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import known_projections
    >>> "dense" in known_projections()
    True
    >>> known_projections(["streamed"])
    ['streamed']
    """
    every = [name for name in PROJECTIONS if name != "auto"]
    return known_names("projection", every if names is None else names, every)


def contenders(
    family: str, projections: Sequence[str], degree: float = 2.0
) -> list[Contender]:
    """Return a family's contenders in float32, peers before projections.

    For the Gaussian kernel the first is scikit-learn's ``RBFSampler`` in float64, its
    default.
    """
    peers = [
        Contender(family, package, method, "float32", degree)
        for method, package in PEERS[family].items()
    ]
    if family == "gaussian":
        peers.insert(0, Contender(family, "scikit-learn", "RBFSampler", "float64"))
    return peers + [
        Contender(family, "randkern", name, "float32", degree) for name in projections
    ]


def make_rows(n: int, d: int, dtype: str, seed: int) -> NDArray[Any]:
    """Return `n` standard normal rows, drawn in float32 for every dtype."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d), dtype=np.float32).astype(dtype, copy=False)
