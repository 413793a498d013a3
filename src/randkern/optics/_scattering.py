"""Parts of an optical device: bits, mirrors, scattered light, exposure, locking."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from randkern._random import Stream
from randkern._validation import Rows, canonical, readable_rows
from randkern._warnings import warn
from randkern.backend.hadamard import block_size
from randkern.data import row_blocks
from randkern.nonlinearities import Modulus
from randkern.plan import Factor, Group, Plan, evaluate
from randkern.projections import (
    STRUCTURED_WIDTH,
    ComplexNormalDistribution,
    InputMap,
    Projection,
    make_projection,
)

_ENCODERS = (
    "encode it first, for instance with randkern.optics.ThresholdBinarizer, "
    "ThermometerEncoder or BitPlaneEncoder"
)
# Entries compared at a time.
_CHECKED_ENTRIES = 2**22


def check_bits(X: Any, n_features: int | None = None) -> Rows:
    """Check rows of zeros and ones and return them, an array or CSR of any dtype."""
    X = check_array(
        readable_rows(X),
        accept_sparse="csr",
        dtype=None,
        ensure_all_finite=False,
        input_name="X",
    )
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} columns, but the device is calibrated for rows of "
            f"{n_features} bits; call calibrate(X) to calibrate it again."
        )
    if X.dtype.kind not in "biuf":
        raise ValueError(
            "an optical device expects rows of bits (0 or 1), got values of type "
            f"{X.dtype}; {_ENCODERS}."
        )
    X = canonical(X)
    values = X.data if sp.issparse(X) else X
    if values.dtype.kind == "b":
        return X
    width = values.shape[1] if values.ndim == 2 else 1
    for rows in row_blocks(len(values), max(1, _CHECKED_ENTRIES // width)):
        part = values[rows]
        wrong = (part != 0) & (part != 1)
        if wrong.any():
            raise ValueError(
                "an optical device expects rows of bits (0 or 1), got the value "
                f"{part[wrong][0]}; {_ENCODERS}."
            )
    return X


def count_lit(X: Rows) -> np.ndarray:
    """Return the number of ones of every row, which is its squared norm."""
    dtype = np.float64 if X.dtype.kind == "f" else np.int64
    return np.asarray(X.sum(axis=1, dtype=dtype)).ravel().astype(np.int64)


def with_lit_bits(X: Rows, n_lit: int) -> Rows:
    """Return rows with `n_lit` extra bits, all one."""
    if n_lit == 0:
        return X
    ones = np.ones((X.shape[0], n_lit), dtype=X.dtype)
    if sp.issparse(X):
        return sp.hstack([X, sp.csr_array(ones)], format="csr")
    return np.hstack([X, ones])


_MAX_SATURATED = 0.02
_MIN_MEAN = 1.0


class LightMeter:
    """Accumulates the counts of a camera, and warns if they are too dark or bright.

    A `full_scale` of None is the largest value of the counts' dtype; float counts have
    no unit, and are then ignored.
    """

    def __init__(self, full_scale: int | None):
        self.full_scale = full_scale
        self._n = self._n_saturated = 0
        self._sum = 0.0

    def add(self, counts: np.ndarray) -> None:
        """Add counts of any shape."""
        full_scale = self.full_scale
        if full_scale is None:
            if counts.dtype.kind not in "iu":
                return
            full_scale = int(np.iinfo(counts.dtype).max)
        self._n += counts.size
        self._n_saturated += int(np.count_nonzero(counts >= full_scale))
        self._sum += float(counts.sum(dtype=np.float64))

    def warn(self, what: str) -> None:
        """Warn if more than 2 % saturate, or the mean is below a count."""
        if not self._n:
            return
        share, mean = self._n_saturated / self._n, self._sum / self._n
        if share > _MAX_SATURATED:
            problem = f"{100 * share:.3g} % of the counts of {what} are saturated"
            advice = "shorten the exposure, lower the level"
        elif mean < _MIN_MEAN:
            problem = f"the mean count of {what} is {mean:.2g}, lost in rounding"
            advice = "lengthen the exposure, raise the level"
        else:
            return
        warn(
            f"{problem}: {advice} (exposure='auto' chooses), or use a camera of more "
            "bits, since the features are biased.",
            UserWarning,
        )


class SharedDevice:
    """A device with the attribute ``lock``, a re-entrant lock.

    `clone` returns it unchanged, as it stands for hardware. Copies and pickles are
    different devices, with their own locks.
    """

    lock: Any

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {k: v for k, v in self.__dict__.items() if k != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.RLock()

    def __sklearn_clone__(self) -> Self:
        return self


def exclusive(device: Any) -> AbstractContextManager[Any]:
    """Return the device's lock, or a null context if it has none.

    Settings and the frames shown with them belong together: hold the lock from
    changing the settings until the device is read.
    """
    return getattr(device, "lock", None) or nullcontext()


# A tile of intensities takes 16 MB: larger ones do not fit in the last-level cache,
# smaller ones are dominated by overhead. Columns are whole blocks of a structured
# projection.
_TILE_ENTRIES = 2**22
_TILE_COLUMNS = 8192
_STRUCTURED_ROWS = 512
# Other projections multiply by a matrix that they may have to generate first.
_OTHER_ROWS = 4096


@dataclass(eq=False)
class ScatteringMedium:
    """A transmission matrix U of independent CN(0, 1) entries, for rows of any width.

    The last projection is cached, with its matrix if that is dense.
    """

    n_components: int
    projection: str
    stream: Stream
    _cached: Projection | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": None}

    def _projection(self, n_features: int) -> Projection:
        """Return the projection of rows with `n_features` bits."""
        cached = self._cached  # other threads may replace it
        if cached is None or cached.width != n_features:
            name = self.projection
            if name == "auto":
                name = "structured" if n_features >= STRUCTURED_WIDTH else "streamed"
            size = self.n_components, n_features
            distribution = ComplexNormalDistribution()
            self._cached = cached = make_projection(
                name, self.stream, *size, distribution, self
            )
        return cached

    def _tile_shape(self, n_rows: int, n_features: int) -> tuple[int, int]:
        """Return the numbers of rows and columns of a tile."""
        structured = self._projection(n_features).name == "structured"
        block = block_size(n_features) if structured else 1
        max_rows = _STRUCTURED_ROWS if structured else _OTHER_ROWS
        n_rows = min(n_rows, max_rows)
        columns = max(_TILE_COLUMNS, block, _TILE_ENTRIES // n_rows)
        n_tiles = -(-self.n_components // columns)
        columns = -(-self.n_components // (n_tiles * block)) * block
        if structured:
            n_rows = min(n_rows, max(16, _TILE_ENTRIES // columns))
        return n_rows, min(columns, self.n_components)

    def _tiles(self, X: Rows) -> Iterator[tuple[slice, slice, Rows]]:
        """Yield rows, columns and the rows of X in float32."""
        n_rows, n_columns = self._tile_shape(*X.shape)
        for rows in row_blocks(X.shape[0], n_rows):
            block = X[rows].astype(np.float32)
            if not sp.issparse(block):
                block = np.ascontiguousarray(block)
            for columns in row_blocks(self.n_components, n_columns):
                yield rows, columns, block

    def intensities(self, X: Rows) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Yield rows, columns and |Ux|² of each tile, in an array that is reused."""
        factor = Factor(
            self._projection(X.shape[1]), Modulus(2.0), InputMap(X.shape[1])
        )
        group = Group((factor,), 0, self.n_components, 1.0, "amplitude")
        plan = Plan((group,), X.shape[1])
        scratch = np.empty(self._tile_shape(*X.shape), dtype=np.float32)
        for rows, columns, block in self._tiles(X):
            tile = scratch[: block.shape[0], : columns.stop - columns.start]
            evaluate(plan, block, columns, out=tile)
            yield rows, columns, tile

    def fields(self, X: Rows) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray]]:
        """Yield rows, columns, and the real and imaginary parts of Ux of each tile."""
        projection = self._projection(X.shape[1])
        for rows, columns, block in self._tiles(X):
            real, imag = projection.project(block, columns.start, columns.stop)
            yield rows, columns, real, imag

    def matrix(self, n_features: int, start: int, stop: int) -> np.ndarray:
        """Return rows of U, (stop - start, n_features), in complex128."""
        projection = self._projection(n_features)
        real, imag = projection.project(np.eye(n_features), start, stop)
        return (real + 1j * imag).T


# Smallest share of the mirrors lit by the largest macro-pixels, for a better shape.
_MIN_SHARE = 0.95


@dataclass(frozen=True)
class MirrorLayout:
    """The layout of bits on a digital micromirror device.

    A bit is shown by a macro-pixel, a rectangle of neighbouring mirrors that are all on
    or all off; macro-pixels have the same size and fill the rows of a grid. Of the
    sizes for which all bits fit, and which light at least 95 % of the mirrors lit by
    the largest size, the one closest to a square is used. Mirrors that belong to no bit
    stay dark.

    The light of a macro-pixel is the sum of the light of its mirrors, so the
    transmission coefficient of a bit is a sum of independent complex Gaussians: again
    complex Gaussian, with the variance multiplied by the number of mirrors. This is a
    gain common to all bits, and does not change the distribution of the transmission
    matrix.

    Parameters
    ----------
    n_bits : int
        Bits per row, each shown by a macro-pixel.
    height, width : int, default=912, 1140
        Numbers of mirrors of the device.

    Attributes
    ----------
    macro_pixel : tuple of int
        Height and width of a macro-pixel in mirrors.
    grid : tuple of int
        Rows and columns of macro-pixels.

    Raises
    ------
    ValueError
        If there are more bits than mirrors.

    Examples
    --------
    >>> from randkern.optics import MirrorLayout
    >>> layout = MirrorLayout(784)
    >>> layout.macro_pixel, layout.mirrors_per_bit, layout.n_dark
    ((35, 36), 1260, 51840)
    """

    n_bits: int
    height: int = 912
    width: int = 1140

    def __post_init__(self) -> None:
        if self.n_bits < 1:
            raise ValueError(f"n_bits must be positive, got {self.n_bits}.")
        if self.n_bits > self.height * self.width:
            raise ValueError(
                f"rows of {self.n_bits:,} bits do not fit on {self.height} x "
                f"{self.width} = {self.height * self.width:,} mirrors; use fewer "
                "columns, or fewer bits per column."
            )

    @property
    def macro_pixel(self) -> tuple[int, int]:
        """Height and width of a macro-pixel in mirrors."""
        heights = np.arange(1, self.height + 1)
        columns = -(-self.n_bits // (self.height // heights))
        widths = self.width // columns  # 0 where the bits do not fit
        areas = heights * widths
        # A size that does not fit has area 0 and is never among the large ones.
        elongation = np.maximum(heights, widths) / np.maximum(
            np.minimum(heights, widths), 1
        )
        large = areas >= _MIN_SHARE * areas.max()
        best = int(np.argmin(np.where(large, elongation, np.inf)))
        return int(heights[best]), int(widths[best])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of macro-pixels."""
        height, width = self.macro_pixel
        return self.height // height, self.width // width

    @property
    def mirrors_per_bit(self) -> int:
        """Number of mirrors that show one bit."""
        height, width = self.macro_pixel
        return height * width

    @property
    def n_dark(self) -> int:
        """Number of mirrors that belong to no bit."""
        return self.height * self.width - self.n_bits * self.mirrors_per_bit

    def frame(self, bits: Any) -> np.ndarray:
        """Return the mirrors that are on for one row of bits.

        Parameters
        ----------
        bits : array of shape (n_bits,)

        Returns
        -------
        ndarray of bool, shape (height, width)
        """
        bits = bits.toarray() if sp.issparse(bits) else np.asarray(bits)
        bits = bits.astype(bool).ravel()
        if len(bits) != self.n_bits:
            raise ValueError(f"the layout expects {self.n_bits} bits, got {len(bits)}.")
        cells = np.zeros(self.grid, dtype=bool)
        cells.reshape(-1)[: self.n_bits] = bits
        lit = np.kron(cells, np.ones(self.macro_pixel, dtype=bool))
        out = np.zeros((self.height, self.width), dtype=bool)
        out[: lit.shape[0], : lit.shape[1]] = lit
        return out
