"""Base spaces: the domains of a skeleton's inputs.

Each has a normalised kernel k, a random feature ψ with E[ψ(x)·conj ψ(y)] = k(x, y), and
a bound on |ψ| (Daniely, Frostig, Gupta and Singer 2017, section 4). A product of base
features is encoded as integer *symbols* with exponents: on the circle e^{iωt}, ω = ±1,
is its column's symbol with exponent ω.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from randkern._validation import check_choice, check_count, check_positive
from randkern.backend.namespace import ops_of


class Symbol(NamedTuple):
    """A base feature as a linear form: size·Σ x_j, or size·x_j + i·imaginary·x_k.

    The j are `n_terms` coordinates of a point from `first` on, and k is `second`, −1 if
    the form is real. The form is the phase if the feature has modulus 1, otherwise the
    feature itself. `conjugate` is the number of the conjugate symbol, −1 if that is the
    same symbol with the opposite exponent.
    """

    conjugate: int = 0
    first: int = 0
    n_terms: int = 1
    size: float = 1.0
    second: int = -1
    imaginary: float = 0.0


class Base(ABC):
    """A base space: how one or more columns of a row form an input.

    Its methods accept arrays and tensors of points.

    Attributes
    ----------
    width : int
        Number of columns that an input reads.
    exponents : {"one", "sign", "cycle"}
        The random exponent of a symbol: 1, ±1, or 1, ..., `modulus`.
    merging : {"add", "cycle", "count", "separate"}
        How equal symbols of one draw merge: their exponents add as integers, modulo
        `modulus`, or as counts; or the symbols stay separate.
    symbols : tuple of Symbol
    unit : bool
        Whether |ψ| = 1, so that a product of features is a sum of phases.
    discrete : bool
        Whether there are finitely many ψ: if not, the terms of a symbol's form are
        multiplied by a random vector.
    is_real : bool
        Whether ψ is real.
    never_real : bool
        Whether no power of ψ except the constant is real.
    bound : float
        The smallest C with |ψ| ≤ C.
    """

    exponents: ClassVar[str] = "one"
    normalised: ClassVar[bool] = True
    unit: ClassVar[bool] = True
    # For some spaces these depend on the dimension.
    merging: Any
    symbols: Any = (Symbol(),)
    discrete: Any = True
    width: Any = 1
    modulus: Any = 0
    is_real: Any = False
    never_real: Any = False
    bound: Any = 1.0

    @abstractmethod
    def kernel(self, x: Any, y: Any) -> Any:
        """Return k of points that broadcast, with coordinates along the last axis."""

    @abstractmethod
    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return E[(ψ(x)·conj ψ(y))²] and E[|ψ(x)ψ(y)|²] of such points."""

    def embed(self, x: Any) -> Any | None:
        """Return vectors whose dot product is the kernel, or None if there are none."""
        return None

    def angles(self, x: Any) -> Any:
        """Return the angles that features of modulus 1 read: the points themselves."""
        return x

    def check(self, x: Any) -> None:
        """Raise unless every point is in the space."""
        return None

    def _refuse(self, x: Any, wrong: Any, expected: str) -> None:
        if bool(wrong.any()):  # the only transfer from a tensor's device
            points = x[wrong.reshape(x.shape[:-1])]
            point = ops_of(x).to_host(points[0]).tolist()
            raise ValueError(f"an input on {self!r} must be {expected}, got {point}.")


@dataclass(frozen=True)
class Circle(Base):
    """The unit circle, by angles t in radians: cos(t − t'), ψ = e^{±it}."""

    merging = "add"
    never_real = True
    exponents = "sign"

    def __repr__(self) -> str:
        return "circle"

    def kernel(self, x: Any, y: Any) -> Any:
        return ops_of(x).xp.cos(x - y)[..., 0]

    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        return ops_of(x).xp.cos(2 * (x - y))[..., 0], 1.0

    def embed(self, x: Any) -> Any:
        ops = ops_of(x)
        return ops.concatenate([ops.xp.cos(x), ops.xp.sin(x)], axis=-1)


class DotProductSpace(Base):
    """A space whose kernel is x·y."""

    def kernel(self, x: Any, y: Any) -> Any:
        return (x * y).sum(-1)

    def embed(self, x: Any) -> Any:
        return x


@dataclass(frozen=True)
class Binary(DotProductSpace):
    """The numbers ±1: x·y, ψ(x) = x."""

    merging = "cycle"
    modulus = 2
    is_real = True

    def __repr__(self) -> str:
        return "binary"

    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        return 1.0, 1.0

    def angles(self, x: Any) -> Any:
        return ops_of(x).asarray(x < 0, x) * np.pi

    def check(self, x: Any) -> None:
        self._refuse(x, abs(x) != 1, "1 or -1")


@dataclass(frozen=True)
class Categories(Base):
    """One of n categories: 1[x = y], ψ = e^{2πiωx/n} with ω uniform on 1, ..., n.

    Codes are 0, ..., n − 1 or 1, ..., n (n counts as 0).
    """

    n: int

    merging = "cycle"
    exponents = "cycle"

    def __post_init__(self) -> None:
        if check_count("n", self.n) < 2:
            raise ValueError(
                f"categorical(n) needs at least 2 categories, got {self.n}."
            )

    def __repr__(self) -> str:
        return f"categorical({self.n})"

    @property
    def modulus(self) -> int:
        return self.n

    @property
    def is_real(self) -> bool:
        return self.n == 2

    @property
    def never_real(self) -> bool:
        return self.n % 2 == 1

    def angles(self, x: Any) -> Any:
        return x * (2 * np.pi / self.n)

    def kernel(self, x: Any, y: Any) -> Any:
        return ops_of(x).asarray(((x - y) % self.n == 0)[..., 0], x)

    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        # E[e^{2πiω·2(x − y)/n}] is 1 where n divides 2(x − y), else 0.
        return ops_of(x).as_float64((2 * (x - y) % self.n == 0)[..., 0]), 1.0

    def check(self, x: Any) -> None:
        wrong = (x % 1 != 0) | (x < 0) | (x > self.n)
        self._refuse(x, wrong, f"a code from 0 to {self.n}")


@dataclass(frozen=True)
class GaussianSpace(Base):
    """R^n with exp(−a²‖x − y‖²/2): ψ = e^{ia w·x}, w standard normal."""

    scale: float = 1.0
    n: int = 1

    merging = "count"
    discrete = False
    never_real = True

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_count("n", self.n)

    def __repr__(self) -> str:
        return f"gaussian({self.scale}{'' if self.n == 1 else f', n={self.n}'})"

    @property
    def width(self) -> int:
        return self.n

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return (Symbol(-1, n_terms=self.n, size=self.scale),)

    def kernel(self, x: Any, y: Any) -> Any:
        return self._decay(x, y, 0.5)

    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        return self._decay(x, y, 2.0), 1.0

    def _decay(self, x: Any, y: Any, factor: float) -> Any:
        with np.errstate(over="ignore"):
            difference = self.scale * (x - y)
            exponent = -factor * (difference * difference).sum(-1)
            return ops_of(x).xp.exp(exponent)


@dataclass(frozen=True)
class Sphere(DotProductSpace):
    """Unit vectors of R^n, n ≥ 2: x·y, with one of three features.

    ``"pair"``: √(n/2)(x_j ± i x_{j+1}), j uniform and cyclic: bounded by √(n/2), which
    is optimal for n > 2. ``"coordinate"``: √n·x_j; ``"direction"``: √n·w·x, w uniform
    on the sphere; both are bounded by √n.
    """

    n: int
    scheme: str = "pair"

    unit = False

    def __post_init__(self) -> None:
        if check_count("n", self.n) < 2:
            raise ValueError(f"sphere(n) needs n of at least 2, got {self.n}.")
        check_choice("scheme", self.scheme, ("pair", "coordinate", "direction"))

    @property
    def discrete(self) -> bool:
        return self.scheme != "direction"

    @property
    def merging(self) -> str:
        return "count" if self.discrete else "separate"

    def __repr__(self) -> str:
        scheme = "" if self.scheme == "pair" else f", scheme={self.scheme!r}"
        return f"sphere({self.n}{scheme})"

    @property
    def width(self) -> int:
        return self.n

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        n, size = self.n, self.bound
        if self.scheme == "direction":
            return (Symbol(n_terms=n, size=size),)
        if self.scheme == "coordinate":
            return tuple(Symbol(j, j, size=size) for j in range(n))
        return tuple(
            Symbol(2 * j + other, j, 1, size, (j + 1) % n, sign * size)
            for j in range(n)
            for other, sign in ((1, 1), (0, -1))
        )

    @property
    def is_real(self) -> bool:
        return self.scheme != "pair"

    @property
    def bound(self) -> float:
        return math.sqrt(self.n / 2 if self.scheme == "pair" else self.n)

    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        if self.scheme == "direction":
            value = self.n / (self.n + 2) * (1 + 2 * self.kernel(x, y) ** 2)
            return value, value
        if self.scheme == "coordinate":
            value = self.n * ((x * y) ** 2).sum(-1)
            return value, value
        # The coordinates shifted by one, cyclically.
        x_next, y_next = (
            ops_of(x).concatenate([points[..., 1:], points[..., :1]], axis=-1)
            for points in (x, y)
        )
        p = x * y + x_next * y_next
        q = x_next * y - x * y_next
        mean = (p**2 - q**2).mean(-1)
        size = (p**2 + q**2).mean(-1)
        return self.n**2 / 4 * mean, self.n**2 / 4 * size

    def check(self, x: Any) -> None:
        tolerance = 1e-4 if ops_of(x).numpy_dtype(x) == np.float32 else 1e-6
        with np.errstate(over="ignore"):
            norms = (x * x).sum(-1)
        wrong = abs(norms - 1) > tolerance
        self._refuse(
            x, wrong, "a vector of norm 1 (see sklearn.preprocessing.Normalizer)"
        )


@dataclass(frozen=True)
class LinearSpace(DotProductSpace):
    """The interval [−1, 1] with x·y, ψ(x) = x: not normalised, k(x, x) = x²."""

    merging = "count"
    is_real = True
    normalised = False
    unit = False

    def __repr__(self) -> str:
        return "linear"

    def squared(self, x: Any, y: Any) -> tuple[Any, Any]:
        value = ((x * y) ** 2)[..., 0]
        return value, value

    def check(self, x: Any) -> None:
        # Duals are undefined beyond 1; allow for rounding errors of scaling.
        self._refuse(x, abs(x) > 1 + 1e-6, "a number from -1 to 1")


#: Values ±1: x·y.
binary = Binary()
#: Angles in radians: cos(t − t').
circle = Circle()
#: Numbers in [−1, 1]: x·y.
linear = LinearSpace()


def categorical(n: int) -> Categories:
    """Return the space of `n` categories, 1[x = y].

    Parameters
    ----------
    n : int
        At least 2. Codes are 0, ..., n − 1 or 1, ..., n (n counts as 0).

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.categorical(3)
    categorical(3)
    """
    return Categories(n)


def gaussian(scale: float = 1.0, n: int = 1) -> GaussianSpace:
    """Return R^n with the kernel exp(−scale²‖x − y‖²/2).

    Parameters
    ----------
    scale : float
        The inverse of a lengthscale.
    n : int
        Number of columns of an input.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.gaussian(0.5)
    gaussian(0.5)
    """
    return GaussianSpace(scale, n)


def sphere(n: int, scheme: str = "pair") -> Sphere:
    """Return the unit sphere of R^n with x·y, for inputs of n columns.

    Parameters
    ----------
    n : int
        At least 2.
    scheme : {"pair", "coordinate", "direction"}
        The random feature. ``"pair"``: √(n/2)(x_j ± i x_{j+1}); ``"coordinate"``:
        √n·x_j; ``"direction"``: √n·w·x. Their bounds are √(n/2), √n and √n: products of
        several have a large variance.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.sphere(8).bound
    2.0
    """
    return Sphere(n, scheme)


_BY_NAME: dict[str, Base] = {
    "binary": binary,
    "circle": circle,
    "gaussian": gaussian(),
    "linear": linear,
}


def base_of(value: Any) -> Base:
    """Return the base space with a name, or `value` itself if it is one."""
    if isinstance(value, Base):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    raise ValueError(
        f"a base space must be one of {sorted(_BY_NAME)}, gaussian(scale), "
        f"categorical(n) or sphere(n), got {value!r}."
    )
