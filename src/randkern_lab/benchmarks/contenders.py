"""Who takes part in the feature benchmark: named, so that any process can build it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.projections import PROJECTIONS

__all__ = [
    "FAMILIES",
    "Contender",
    "TwoProducts",
    "contenders",
    "falkon_classifier",
    "known_projections",
    "make_rows",
]

FAMILIES = ("gaussian", "optical")


class FeatureMap(Protocol):
    """What is timed: fitted on rows, then applied to them."""

    def fit(self, X: NDArray[Any]) -> Any: ...

    def transform(self, X: NDArray[Any]) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Contender:
    """A kernel, a method of computing its features, and a floating-point type.

    Attributes
    ----------
    family : {"gaussian", "optical"}
        The Gaussian kernel of lengthscale √d, or the optical kernel.
    package : {"randkern", "scikit-learn", "numpy"}
    method : str
        A projection's name for randkern, otherwise ``"RBFSampler"`` or
        ``"two products"``.
    dtype : {"float32", "float64"}
        Type of the rows, and of the features.
    degree : float
        m of the optical kernel.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import Contender, make_rows
    >>> contender = Contender("gaussian", "randkern", "dense", "float32")
    >>> X = make_rows(5, 3, "float32", seed=0)
    >>> contender.build(3, 8, seed=0).fit(X).transform(X).shape
    (5, 8)
    """

    family: str
    package: str
    method: str
    dtype: str
    degree: float = 2.0

    @property
    def label(self) -> str:
        """Short name, unique within a family."""
        if self.package == "randkern":
            return self.method
        return f"{self.method} {self.dtype}"

    def build(self, d: int, n_components: int, seed: int) -> FeatureMap:
        """Return the unfitted feature map, `n_components` columns from `d`."""
        if self.package == "scikit-learn":
            from sklearn.kernel_approximation import RBFSampler

            return RBFSampler(
                gamma=1 / (2 * d), n_components=n_components, random_state=seed
            )
        if self.package == "numpy":
            return TwoProducts(n_components, self.degree, seed)
        kernel: Any = (
            randkern.Gaussian(lengthscale=math.sqrt(d))
            if self.family == "gaussian"
            else randkern.Optical(degree=self.degree)
        )
        return randkern.RandomFeatures(
            kernel, n_components, projection=self.method, random_state=seed
        )

    def matrix_bytes(self, d: int, n_components: int) -> int:
        """Estimate the memory of the random matrix at its peak, while it is drawn.

        Zero for the projections that keep none.
        """
        # Pairs take half as many rows as columns; complex rows count twice.
        pairs = self.package == "randkern" and self.family == "gaussian"
        rows = -(-n_components // 2) if pairs else n_components
        entries = rows * d * (2 if self.family == "optical" else 1)
        single = 4 if self.dtype == "float32" else 8
        if self.package == "scikit-learn":  # drawn in float64, then converted
            return entries * (12 if self.dtype == "float32" else 8)
        if self.package == "numpy" or self.method == "dense":
            return entries * single
        if self.method == "orthogonal":  # float64, and the blocks' QR beside it
            return entries * (8 + single) + 3 * 8 * d * min(d, rows)
        if self.method == "qmc":  # float64 points and their normal quantiles
            return entries * (16 + single)
        return 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


class TwoProducts:
    """Optical features as NumPy computes them: |Ux|^m of two dense real products.

    Real and imaginary parts of U are drawn and scaled beforehand, in the type of
    the rows; the squares are taken in place, so that one array beside the output
    is all that is needed.

    Parameters
    ----------
    n_components : int
    degree : float
        m > 0.
    seed : int

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

    def fit(self, X: NDArray[Any]) -> TwoProducts:
        """Draw both matrices, D^(−1/(2m)) N(0, 1/2) an entry."""
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


def falkon_classifier(ell: float, penalty: float, size: int, seed: int) -> Any:
    """Return Falkon (Rudi et al. 2017) as a classifier, with `size` landmarks.

    It is not on the registry: see https://falkonml.github.io/falkon/install.html. Its
    penalty is divided by the number of rows. It has no intercept.

    Raises
    ------
    ValueError
        If it is not installed.
    """
    try:
        torch, falkon = (importlib.import_module(m) for m in ("torch", "falkon"))
    except ImportError as error:
        raise ValueError(
            "falkon is not installed; https://falkonml.github.io/falkon/install.html "
            "says how"
        ) from error

    class Classifier:
        def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Any:
            self.classes = np.unique(y)
            torch.manual_seed(seed)
            self.model = falkon.Falkon(
                kernel=falkon.kernels.GaussianKernel(sigma=ell),
                penalty=penalty,
                M=size,
                options=falkon.FalkonOptions(use_cpu=not torch.cuda.is_available()),
            )
            targets = np.where(y[:, None] == self.classes, 1.0, -1.0)
            rows = torch.from_numpy(np.ascontiguousarray(X))
            self.model.fit(rows, torch.from_numpy(targets.astype(X.dtype)))
            return self

        def predict(self, X: NDArray[Any]) -> NDArray[Any]:
            scores = self.model.predict(torch.from_numpy(np.ascontiguousarray(X)))
            return np.asarray(self.classes[scores.numpy().argmax(axis=1)])

    return Classifier()


def known_projections(names: Sequence[str] | None = None) -> list[str]:
    """Return the projections to run: those asked for, or all but ``"auto"``.

    Raises
    ------
    ValueError
        If a name is not one of them, or none is given.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import known_projections
    >>> "dense" in known_projections()
    True
    >>> known_projections(["streamed"])
    ['streamed']
    """
    every = [name for name in PROJECTIONS if name != "auto"]
    if names is None:
        return every
    if not names:
        raise ValueError(f"no projection was named; expected some of {_listed(every)}")
    for name in names:
        if name not in every:
            raise ValueError(
                f"unknown projection {name!r}; expected some of {_listed(every)}"
            )
    return list(dict.fromkeys(names))


def contenders(
    family: str, projections: Sequence[str], degree: float = 2.0
) -> list[Contender]:
    """Return a family's contenders: its peers first, then the projections."""
    if family not in FAMILIES:
        raise ValueError(
            f"unknown family {family!r}; expected one of {_listed(FAMILIES)}"
        )
    if family == "gaussian":
        peers = [
            Contender(family, "scikit-learn", "RBFSampler", dtype, degree)
            for dtype in ("float64", "float32")
        ]
    else:
        peers = [Contender(family, "numpy", "two products", "float32", degree)]
    return peers + [
        Contender(family, "randkern", name, "float32", degree) for name in projections
    ]


def make_rows(n: int, d: int, dtype: str, seed: int) -> NDArray[Any]:
    """Return `n` standard normal rows, drawn in float32 and the same in any dtype."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d), dtype=np.float32).astype(dtype, copy=False)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
