"""Laws of the rows of random matrices, in the forms that projections draw them in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import ndtri
from scipy.stats import gamma

from randkern.backend.namespace import ops_of


@dataclass(frozen=True)
class Mixing:
    """A random positive factor shared by the coordinates of one row.

    ``student``: √(ν/g), g ~ Gamma(ν, 1), which turns a normal row into a
    multivariate t with 2ν degrees of freedom (Matérn); ``gamma``: √(g/a), g ~
    Gamma(a, 1) (rational quadratic).
    """

    name: Literal["student", "gamma"]
    parameter: float

    def draw(self, stream: Any, n_rows: int) -> np.ndarray:
        """Return the factors of rows 0, ..., n_rows - 1."""
        variables = stream.generator().standard_gamma(self.parameter, size=n_rows)
        return self.factors(variables)

    def factors(self, variables: np.ndarray) -> np.ndarray:
        """Return the factors that standard Gamma variables give."""
        # A Gamma variable of tiny shape underflows to 0; keep its rows finite.
        scaled = np.maximum(variables, np.finfo(float).tiny) / self.parameter
        return np.sqrt(scaled) if self.name == "gamma" else 1.0 / np.sqrt(scaled)


@dataclass(frozen=True)
class Law:
    """The distribution of the rows of a random matrix.

    A law says how rows follow from independent standard entries
    (`transform`, for dense and streamed projections), from points of the unit cube
    (`quantile`, for quasi-Monte Carlo), and, if it is invariant under rotations,
    which norms go with uniform directions (`norms`, for orthogonal and structured
    ones). This base class is the law of projections that draw in a way of their own.
    """

    #: The name of the law in messages.
    name: ClassVar[str] = "own"
    #: Independent entries that the counter-based generator makes.
    entries: ClassVar[Literal["normal", "cauchy", "laplace", "uniform", "sign"]] = (
        "normal"
    )
    #: Whether a row is part_scale·(real + i·imaginary) of two rows of such entries.
    is_complex: ClassVar[bool] = False
    part_scale: ClassVar[float] = 1.0
    rotation_invariant: ClassVar[bool] = False
    #: Whether rows are the entries themselves, which products may generate on the way.
    multiplies_generated: ClassVar[bool] = False

    mixing: Mixing | None = None

    @property
    def heavy_tailed(self) -> bool:
        """Whether some rows are very much longer than most."""
        student = self.mixing is not None and self.mixing.name == "student"
        return self.entries == "cauchy" or student

    def transform(self, rows: Any) -> Any:
        """Return rows of this law, but for mixing, from rows of standard entries."""
        return rows

    def quantile(self, points: np.ndarray) -> np.ndarray:
        """Return what `transform` returns, from points of the open unit cube."""
        raise NotImplementedError(f"{type(self).__name__} has no quantile.")

    def norms(self, generator: Any, dimension: int, n_rows: int) -> np.ndarray:
        """Return the norms of rows of a dimension, but for mixing."""
        raise NotImplementedError(f"{type(self).__name__} has no norms.")

    def dimensions(self, width: int) -> int:
        """Return how many dimensions of a low-discrepancy sequence a row takes."""
        return width * (2 if self.is_complex else 1) + (self.mixing is not None)

    def rows_at(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return rows, or their two parts, from points of the open unit cube."""
        if self.is_complex:
            parts = self.quantile(points)
            parts *= self.part_scale
            width = points.shape[1] // 2
            return parts[:, :width], parts[:, width:]
        if self.mixing is None:
            return (self.quantile(points),)
        rows = self.quantile(points[:, :-1])
        variables = gamma.ppf(points[:, -1], self.mixing.parameter)
        return (rows * self.mixing.factors(variables)[:, None],)


@dataclass(frozen=True)
class NormalLaw(Law):
    """Independent N(0, 1) entries."""

    name = "normal"
    rotation_invariant = True
    multiplies_generated = True

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return ndtri(points)

    def norms(self, generator: Any, dimension: int, n_rows: int) -> np.ndarray:
        return np.sqrt(generator.chisquare(dimension, size=n_rows))


@dataclass(frozen=True)
class ComplexNormalLaw(NormalLaw):
    """Independent CN(0, 1) entries: real and imaginary parts N(0, 1/2)."""

    name = "complex normal"
    is_complex = True
    part_scale = math.sqrt(0.5)

    def norms(self, generator: Any, dimension: int, n_rows: int) -> np.ndarray:
        return np.sqrt(generator.standard_gamma(dimension, size=n_rows))


@dataclass(frozen=True)
class SphereLaw(NormalLaw):
    """Uniform on the sphere of radius √d."""

    name = "sphere"
    multiplies_generated = False

    def transform(self, rows: Any) -> Any:
        norms = ops_of(rows).squared_norms(rows)[:, None] ** 0.5
        return math.sqrt(rows.shape[1]) * (rows / norms)

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return self.transform(ndtri(points))

    def norms(self, generator: Any, dimension: int, n_rows: int) -> np.ndarray:
        return np.full(n_rows, math.sqrt(dimension))


@dataclass(frozen=True)
class CauchyLaw(Law):
    """Independent standard Cauchy entries."""

    name = "cauchy"
    entries = "cauchy"

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return np.tan(np.pi * (points - 0.5))


@dataclass(frozen=True)
class LaplaceLaw(Law):
    """Independent standard Laplace entries."""

    name = "laplace"
    entries = "laplace"

    def quantile(self, points: np.ndarray) -> np.ndarray:
        sign = np.where(points < 0.5, 1.0, -1.0)
        return sign * np.log(2 * np.minimum(points, 1 - points))
