"""The base class of projections, distributions of their rows, maps of their inputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import stats
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtri

from randkern._random import Stream
from randkern._validation import Array, Rows, check_choice, densify
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks

# Step of a logarithm for a difference quotient, with errors of about 1e-9.
_STEP = 1e-4


@dataclass(frozen=True)
class Mixing:
    """A random positive factor shared by the coordinates of one row.

    ``student``: √(ν/g), g ~ Gamma(ν, 1), which turns a normal row into a
    multivariate t with 2ν degrees of freedom (Matérn); ``gamma``: √(g/a), g ~
    Gamma(a, 1) (rational quadratic).

    Variables are drawn for the shape `drawn`, if it is not None, and moved to the same
    quantiles for the shape `parameter`, in which factors are then smooth.
    """

    name: Literal["student", "gamma"]
    parameter: float
    drawn: float | None = None

    def __post_init__(self) -> None:
        check_choice("name", self.name, ("student", "gamma"))

    def draw(self, stream: Stream, n_rows: int) -> np.ndarray:
        """Return the factors of rows 0, ..., n_rows - 1."""
        drawn = self.parameter if self.drawn is None else self.drawn
        variables = stream.generator().standard_gamma(drawn, size=n_rows)
        return self.factors(self._moved(variables, drawn, self.parameter))

    @staticmethod
    def _moved(variables: np.ndarray, before: float, after: float) -> np.ndarray:
        """Return the Gamma variables of another shape at the same quantiles."""
        if before == after:
            return variables
        lower = gammainc(before, variables)
        upper = gammaincc(before, variables)
        # The smaller of both probabilities has more correct digits.
        return np.where(
            lower < 0.5, gammaincinv(after, lower), gammainccinv(after, upper)
        )

    def log_slopes(self, factors: np.ndarray) -> np.ndarray:
        """Return ∂ log factor/∂ log shape at fixed quantiles, for "gamma"."""
        shape = self.parameter
        variables = shape * factors**2
        ends = []
        for moved in (math.exp(-_STEP) * shape, math.exp(_STEP) * shape):
            other = replace(self, parameter=moved)
            ends.append(np.log(other.factors(self._moved(variables, shape, moved))))
        return (ends[1] - ends[0]) / (2 * _STEP)

    def factors(self, variables: np.ndarray) -> np.ndarray:
        """Return the factors for standard Gamma variables."""
        # A Gamma variable with a tiny shape may underflow to 0; keep its rows finite.
        scaled = np.maximum(variables, np.finfo(float).tiny) / self.parameter
        return np.sqrt(scaled) if self.name == "gamma" else 1.0 / np.sqrt(scaled)


@dataclass(frozen=True)
class Distribution:
    """The distribution of the rows of a random matrix.

    It defines rows by independent standard entries (`transform`, for dense and streamed
    projections), by points of the unit cube (`quantile`, for quasi-Monte Carlo) and, if
    it is invariant under rotations, by the norms that go with uniform directions
    (`norms`, for orthogonal and structured ones). This base class is for projections
    that do not use a distribution.
    """

    #: The name of the distribution in messages.
    name: ClassVar[str] = "own"
    #: Distribution of the entries from the counter-based generator.
    entries: ClassVar[Literal["normal", "cauchy", "laplace", "uniform", "sign"]] = (
        "normal"
    )
    #: Whether a row is part_scale·(real + i·imaginary), of two rows of such entries.
    is_complex: ClassVar[bool] = False
    part_scale: ClassVar[float] = 1.0
    rotation_invariant: ClassVar[bool] = False

    mixing: Mixing | None = None

    @property
    def heavy_tailed(self) -> bool:
        """Whether some rows are very much longer than most."""
        student = self.mixing is not None and self.mixing.name == "student"
        return self.entries == "cauchy" or student

    def transform(self, rows: Any) -> Any:
        """Return rows, without mixing, from rows of standard entries."""
        return rows

    def quantile(self, points: np.ndarray) -> np.ndarray:
        """Return rows, without mixing, from points of the unit cube."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `quantile`, which projection='qmc' "
            "needs; use projection='dense' or 'auto'."
        )

    def norms(
        self, generator: np.random.Generator, dimension: int, n_rows: int
    ) -> np.ndarray:
        """Return the norms of `n_rows` rows of a dimension, without mixing."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `norms`, which "
            "projection='orthogonal' and 'structured' need; use projection='dense'."
        )

    def dimensions(self, width: int) -> int:
        """Return the number of dimensions of a low-discrepancy sequence per row."""
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
        return (self.quantile(points[:, :-1]) * self.mixing_at(points)[:, None],)

    def mixing_at(self, points: np.ndarray) -> np.ndarray:
        """Return the mixing factors of rows from points of the open unit cube."""
        if self.mixing is None:
            return np.ones(len(points))
        variables = stats.gamma.ppf(points[:, -1], self.mixing.parameter)
        return self.mixing.factors(variables)


@dataclass(frozen=True)
class NormalDistribution(Distribution):
    """Independent N(0, 1) entries."""

    name = "normal"
    rotation_invariant = True

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return ndtri(points)

    def norms(
        self, generator: np.random.Generator, dimension: int, n_rows: int
    ) -> np.ndarray:
        return np.sqrt(generator.chisquare(dimension, size=n_rows))


@dataclass(frozen=True)
class ComplexNormalDistribution(NormalDistribution):
    """Independent CN(0, 1) entries: real and imaginary parts N(0, 1/2)."""

    name = "complex normal"
    is_complex = True
    part_scale = math.sqrt(0.5)

    def norms(
        self, generator: np.random.Generator, dimension: int, n_rows: int
    ) -> np.ndarray:
        return np.sqrt(generator.standard_gamma(dimension, size=n_rows))


@dataclass(frozen=True)
class SphereDistribution(NormalDistribution):
    """Uniform on the sphere of radius √d."""

    name = "sphere"

    def transform(self, rows: Any) -> Any:
        norms = ops_of(rows).float64_squared_norms(rows)[:, None] ** 0.5
        return math.sqrt(rows.shape[1]) * (rows / norms)

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return self.transform(ndtri(points))

    def norms(
        self, generator: np.random.Generator, dimension: int, n_rows: int
    ) -> np.ndarray:
        return np.full(n_rows, math.sqrt(dimension))


@dataclass(frozen=True)
class CauchyDistribution(Distribution):
    """Independent standard Cauchy entries."""

    name = "cauchy"
    entries = "cauchy"

    def quantile(self, points: np.ndarray) -> np.ndarray:
        return np.tan(np.pi * (points - 0.5))


@dataclass(frozen=True)
class LaplaceDistribution(Distribution):
    """Independent standard Laplace entries."""

    name = "laplace"
    entries = "laplace"

    def quantile(self, points: np.ndarray) -> np.ndarray:
        sign = np.where(points < 0.5, 1.0, -1.0)
        return sign * np.log(2 * np.minimum(points, 1 - points))


# Frequencies per tile of phases.
TILE_DRAWS = 4096
# Above this size, phases in single precision have too large an error (about 2⁻²⁴ of
# their size).
_LARGE_PHASE = 32.0
_SINGLE = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class InputMap:
    """How a block of rows reaches a projection.

    The columns `columns` (None: all), minus `center` (one number per column), are
    multiplied by `inverse_scale` (a number, or one per column), and a constant entry
    `bias` is appended if it is not 0. With `categories`, one sorted array of values per
    column, values are replaced by their positions instead; unknown values become the
    number of categories.
    """

    n_columns: int
    columns: tuple[int, ...] | None = None
    inverse_scale: float | np.ndarray = 1.0
    bias: float = 0.0
    categories: tuple[np.ndarray, ...] | None = None
    center: np.ndarray | None = None

    @property
    def width(self) -> int:
        """Number of columns that the projection sees."""
        return self.n_columns + (self.bias != 0.0)

    def select(self, X: Rows) -> Rows:
        """Return the columns of `X` that this map reads, minus the centre."""
        X = X if self.columns is None else X[:, list(self.columns)]
        if self.center is None:
            return X
        return densify(X) - ops_of(X).asarray(self.center, X)

    def apply(self, X: Rows) -> Rows:
        """Return a block of rows with selected, scaled columns and the bias entry."""
        X = self.select(X)
        if self.categories is not None:
            return ops_of(X).codes(X, self.categories)
        return ops_of(X).with_bias(X, self.inverse_scale_like(X), self.bias)

    def float64_squared_norms(self, X: Rows) -> np.ndarray:
        """Return the squared norms of the rows of ``apply(X)`` in float64."""
        return ops_of(X).float64_squared_norms(self.apply(X))

    def inverse_scale_like(self, X: Rows) -> Any:
        """Return `inverse_scale` as a number, or a vector on the device of X."""
        if not isinstance(self.inverse_scale, np.ndarray):
            return self.inverse_scale
        return ops_of(X).constant(self, "scale", X, lambda: self.inverse_scale)


@dataclass(frozen=True, eq=False)
class Projection(ABC):
    """A random matrix of `n_draws` rows and `width` columns, determined by a stream.

    Entries are not attributes: stored entries are in a cache, which is not pickled.
    """

    name: ClassVar[str]
    #: Whether it writes columns of features by itself (:meth:`write_columns`).
    writes_columns: ClassVar[bool] = False
    #: Whether it can only draw rows whose distribution is invariant under rotations.
    needs_rotation_invariance: ClassVar[bool] = False
    #: Whether the factors of a product share one low-discrepancy sequence.
    shares_sequence: ClassVar[bool] = False

    stream: Stream
    n_draws: int
    width: int
    distribution: Distribution
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def create(
        cls,
        stream: Stream,
        n_draws: int,
        width: int,
        distribution: Distribution,
        owner: object,
        first_dimension: int = 0,
    ) -> Projection:
        """Return a projection with rows of this distribution.

        `first_dimension` is the number of dimensions of a shared sequence that other
        factors of the same product use. A distribution that cannot be drawn is an
        error, whose message names `owner`, the kernel.
        """
        if cls.needs_rotation_invariance and not distribution.rotation_invariant:
            raise ValueError(
                f"projection={cls.name!r} needs rows whose distribution is invariant "
                f"under rotations, but those of {owner} have independent "
                f"{distribution.name} entries; use projection='dense', 'streamed', "
                "'qmc' or 'auto'."
            )
        return cls(stream, n_draws, width, distribution)

    @abstractmethod
    def project(self, X: Rows, start: int, stop: int) -> Array:
        """Return X Ωᵀ for rows `start` to `stop` of Ω.

        `X` is a block from :meth:`InputMap.apply`. A complex distribution returns the
        pair (real part, imaginary part).
        """

    def phases(self, X: Rows, start: int, stop: int) -> Array:
        """Return X Ωᵀ for features.

        Heavy-tailed distributions, which only phases use, are reduced modulo 2π.
        """
        return self.project(X, start, stop)

    def stored_bytes(self, itemsize: int) -> int:
        """Return the memory of the entries that are stored."""
        return 0

    @cached_property
    def mixing_factors(self) -> np.ndarray:
        """The mixing factor of every row (ones where the distribution has none)."""
        if self.distribution.mixing is None:
            return np.ones(self.n_draws)
        return self.distribution.mixing.draw(self.stream.child("mixing"), self.n_draws)

    def __getstate__(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return state | {"_cache": {}}

    def cached(self, like: Array, make: Callable[[], Any]) -> Any:
        """Return the cached value of `make` for arrays like this one.

        The cache holds one dtype per device, as maps are rarely used with several.
        """
        dtype, device = ops_of(like).key(like)
        cached_dtype, cached = self._cache.get(device, (None, None))
        if cached_dtype != dtype:
            cached, lasts = ops_of(like).lasting(make)
            if lasts:
                self._cache[device] = dtype, cached
        return cached

    # Projections that fuse transform, scaling and nonlinearity into one pass override
    # the next three methods.

    def write_pairs(
        self, X: Rows, inputs: InputMap, draws: slice, weight: float, out: np.ndarray
    ) -> None:
        """Write weight·[cos ωᵢ·x, sin ωᵢ·x] of draws to `out`, interleaved."""
        ops = ops_of(out)
        for rows, part, tile in self._tiles(X, inputs, draws.start, draws.stop):
            target = out[rows, 2 * part.start : 2 * part.stop]
            ops.cos_sin_pairs(ops.asarray(tile, out), weight, target)

    def write_cosines(
        self,
        X: Rows,
        inputs: InputMap,
        draws: slice,
        weight: float,
        out: np.ndarray,
        offsets: Array,
    ) -> None:
        """Write weight·cos(ωᵢ·x + bᵢ) of draws to `out`, `offsets` being the bᵢ."""
        ops = ops_of(out)
        for rows, part, tile in self._tiles(X, inputs, draws.start, draws.stop):
            phase = ops.asarray(tile, out)
            ops.cosines(phase, offsets[part], weight, out[rows, part])

    def write_modulus(
        self,
        X: Rows,
        inputs: InputMap,
        draws: slice,
        weight: float,
        out: np.ndarray,
        power: float,
    ) -> None:
        """Write weight·|uᵢ·x|^power of draws of a complex distribution to `out`."""
        ops = ops_of(out)
        for rows, part, tile in self._tiles(X, inputs, draws.start, draws.stop):
            real, imaginary = tile
            ops.modulus_power(real, imaginary, power, weight, out[rows, part])

    def _tiles(self, X: Rows, inputs: InputMap, start: int, stop: int) -> Any:
        """Yield (rows, draws relative to `start`, projected tile)."""
        for rows in row_blocks(X.shape[0], ops_of(X).tile_rows(X)):
            block = inputs.apply(X[rows])
            for draws in row_blocks(stop - start, TILE_DRAWS):
                first, last = start + draws.start, start + draws.stop
                yield rows, draws, self.phases(block, first, last)


class Stored(Projection):
    """A projection whose matrix is drawn once and stored."""

    @abstractmethod
    def draw(self) -> tuple[np.ndarray, ...]:
        """Return the matrix, (n_draws, width), or its real and imaginary part."""

    #: Bytes per entry while it is drawn: float64, with about three intermediate arrays.
    drawing_bytes: ClassVar[int] = 32

    def stored_bytes(self, itemsize: int) -> int:
        parts = 2 if self.distribution.is_complex else 1
        return parts * self.n_draws * self.width * (self.drawing_bytes + itemsize)

    def matrices(self, like: Array) -> tuple[np.ndarray, ...]:
        """Return the result of :meth:`draw` in the dtype and on the device of `like`.

        It is cached.
        """
        asarray = ops_of(like).asarray
        return self.cached(
            like, lambda: tuple(asarray(part, like) for part in self.draw())
        )

    def project(self, X: Rows, start: int, stop: int) -> Array:
        product = ops_of(X).precise_product
        tiles = [product(X, part[start:stop].T) for part in self.matrices(X)]
        return tuple(tiles) if self.distribution.is_complex else tiles[0]

    def phases(self, X: Rows, start: int, stop: int) -> Array:
        if not self.distribution.heavy_tailed:
            return self.project(X, start, stop)
        return phase_product(X, self.matrices(X)[0][start:stop])


def phase_product(X: Rows, matrix: Array) -> Any:
    """Return X Ωᵀ, with large phases in single precision reduced modulo 2π.

    A frequency of a heavy-tailed distribution may be a million times larger than the
    others. In float32 its phases lose all significant digits, and the result depends on
    the order of summation in BLAS, and hence on the number of rows. Columns for which
    the square root of Σ_j (ω_j max_i |x_ij|)² is above 32 are therefore multiplied in
    float64, and reduced modulo 2π.
    """
    ops = ops_of(X)
    phases = ops.precise_product(X, matrix.T)
    if ops.precision(X.dtype) < _SINGLE:
        return phases
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (matrix * matrix) @ ops.column_max_abs(X) ** 2
    large = ops.flatnonzero(~(squares <= _LARGE_PHASE**2))  # includes NaN
    if len(large):
        wide = ops.as_float64(X) @ ops.as_float64(matrix[large]).T
        wide -= 2 * np.pi * (wide / (2 * np.pi)).round()
        phases[:, large] = ops.asarray(wide, phases)
    return phases
