"""Structured random projections by fast Walsh-Hadamard transforms.

A block of p rows of the projection is

    R · H S₃ H S₂ H S₁,

with H the orthonormal Walsh-Hadamard matrix of order p in natural (Sylvester)
order, S₁, S₂, S₃ diagonal with random signs, and R diagonal with the norms that the
caller gives; p is :func:`block_size`, and x is padded with zeros to p entries. In a
unitary block S₂ and S₃ hold (±1 ± i)/√2. m rows are ⌈m/p⌉ independent blocks, the
last one truncated. Each costs O(p log p) instead of O(p d), and no matrix is
stored: the signs of block b are bits of SplitMix64 at a counter given by b.

With norms χ_p the rows look like N(0, I) (F. X. Yu et al., *Orthogonal Random
Features*, 2016, section 4, "SORF", with their √d replaced by exact norms); with
squared norms Gamma(p, 1) the unitary rows look like CN(0, I). The fourth moments
are those of Haar blocks up to terms of order 1/p.

Results are bit-identical for any number of threads and however the rows of X or of
the projection are divided among calls. The nonlinearity is fused with the store. X
may be strided or read-only, of another dtype (`out` decides the precision; X is
converted in blocks) or a SciPy CSR matrix (densified in blocks).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from randkern.backend.compiled_loops import run_over_ranges
from randkern.backend.cpu import FAST_LIMIT_F32, FAST_LIMIT_F64
from randkern.backend.hadamard_kernels import (
    CHUNK,
    COSINES,
    MIN_BLOCK,
    MODULUS,
    PAIRS,
    PROJECT,
    compute_features,
    schedule,
)
from randkern.backend.hadamard_vectors import CACHE_LINE, ROWS, entries

# Memory for rows of X that are converted or densified at a time.
_BLOCK_BYTES = 1 << 23
# Scratch memory of all threads together; a tile of p = 2^20 takes 64 MB.
_SCRATCH_BYTES = 1 << 28
# Rows times blocks from which an item of work has several tiles.
_MANY_ROWS = 256
# Rough time of one stage of a transform per entry, to choose the number of threads.
_NANOSECONDS_A_STAGE = 0.03

_FAST_LIMITS = {"float32": FAST_LIMIT_F32, "float64": FAST_LIMIT_F64}


def block_size(n_features: int, bias: float | None = None) -> int:
    """Return p, the number of rows of a block and the padded length of x.

    It is the smallest power of two that holds `n_features` entries and, unless `bias`
    is None or 0, one more; at least 64, below which structured rows are visibly not
    Gaussian.
    """
    width = max(MIN_BLOCK, n_features + bool(bias))
    return 1 << (width - 1).bit_length()


@dataclass(frozen=True, eq=False)
class StructuredRows:
    """Rows `row_start` to `row_stop` - 1 of a structured projection Ω.

    Parameters
    ----------
    key : int
        Names the random signs, 0 ≤ key < 2⁶⁴.
    norms : ndarray, shape (row_stop - row_start,)
        Norms of these rows.
    row_start, row_stop : int
        Range of rows; it need not be aligned with the blocks.
    inverse_scale : float or ndarray of shape (d,)
        Factor of the columns of X, applied first.
    bias : float, optional
        An extra, unscaled entry of every row of X.

    Notes
    -----
    X, an array or a CSR matrix of shape (n, d), has finite values; nan and inf spread
    over the whole row. The dtype of an output, float32 or float64, is that of the
    computation; its columns must be contiguous, its rows may be any distance apart.
    Anything else raises a ValueError.
    """

    key: int
    norms: Any
    row_start: int
    row_stop: int
    inverse_scale: Any = 1.0
    bias: float | None = None

    def project(self, X: Any, *, out: Any) -> None:
        """Write X Ωᵀ, shape (n, row_stop - row_start)."""
        self._write(X, PROJECT, 1.0, (out,))

    def project_complex(self, X: Any, *, out_real: Any, out_imag: Any) -> None:
        """Write the real and imaginary parts of X Ωᵀ, with unitary blocks."""
        self._write(X, PROJECT, 1.0, (out_real, out_imag))

    def pairs(self, X: Any, *, weight: float, out: Any) -> None:
        """Write weight·[cos ω·x, sin ω·x] for these rows, interleaved."""
        self._write(X, PAIRS, weight, (out,))

    def cosines(self, X: Any, *, offsets: Any, weight: float, out: Any) -> None:
        """Write weight·cos(ω·x + b) for the offsets b of these rows, in radians."""
        self._write(X, COSINES, weight, (out,), offsets=offsets)

    def modulus(self, X: Any, *, power: float, weight: float, out: Any) -> None:
        """Write weight·|u·x|^power, with unitary blocks; powers 1 to 4 are fast."""
        self._write(X, MODULUS, weight, (out,), power=power)

    def _write(
        self,
        X: Any,
        kind: int,
        weight: float,
        outs: tuple[Any, ...],
        offsets: Any = None,
        power: float = 2.0,
    ) -> None:
        """Check and normalise the arguments, and run the items of every row block."""
        unitary = kind == MODULUS or len(outs) == 2
        fast = power in (1, 2, 3, 4)
        if kind == MODULUS:
            kind = MODULUS + (int(power) if fast else 2)
        X = X if _is_csr(X) else np.asarray(X)
        m, dtype = self.row_stop - self.row_start, outs[0].dtype
        for out in outs:
            _check_out(out, (X.shape[0], m * (2 if kind == PAIRS else 1)), dtype)
        norms = np.asarray(self.norms, np.float64)
        phases = np.asarray(np.zeros(m) if offsets is None else offsets, np.float64)
        if not norms.shape == phases.shape == (m,) or self.row_start < 0:
            raise ValueError(
                f"norms must hold one number for each of the rows {self.row_start} to "
                f"{self.row_stop}, got shape {norms.shape}."
            )
        if X.shape[0] == 0 or m == 0:
            return
        draw = _draw(
            self,
            X.shape[1],
            norms,
            phases,
            kind,
            unitary,
            weight if fast else 1.0,
            dtype,
        )
        for start, block in _flat_blocks(X, dtype):
            stop = start + block.shape[0]
            draw.run(block, tuple(out[start:stop] for out in outs))
        if not fast:
            np.power(outs[0], 0.5 * power, out=outs[0])
            np.multiply(outs[0], weight, out=outs[0])


@dataclass(frozen=True)
class _Draw:
    """Rows of a projection and their nonlinearity, in the dtype of the output."""

    key: np.uint64
    rows: tuple[int, int]
    has_bias: bool
    scale: np.ndarray
    norms: np.ndarray
    phases: np.ndarray
    kind: int
    weight: np.floating
    limit: np.floating
    p: int
    unitary: bool

    def run(self, X: np.ndarray, outs: tuple[np.ndarray, ...]) -> None:
        """Write the features of a block of rows that :func:`_flatten` accepts."""
        n, d = X.shape
        group = entries(X.dtype)
        program = schedule((self.p // group).bit_length() - 1)
        parts = (0, program.n_vectors) if self.unitary else (0,)
        n_blocks = (self.rows[1] - 1) // self.p - self.rows[0] // self.p + 1
        rows_an_item = ROWS if n * n_blocks < _MANY_ROWS else 4 * ROWS
        n_items = -(-n // rows_an_item) * n_blocks
        flat_X, pitch = _flatten(X)
        flat_X.flags.writeable = False
        flat_outs, out_pitches = zip(*map(_flatten, outs), strict=True)
        results = (
            *(self.norms, self.phases, self.weight, self.limit),
            (flat_outs[0], flat_outs[-1]),
            (out_pitches[0], out_pitches[-1]),
        )

        def task(first: int, start: int, stop: int) -> None:
            compute_features(
                parts,
                (first + start, first + stop, rows_an_item),
                self.kind,
                (flat_X, n, pitch, d, self.scale),
                (self.key, *self.rows, self.p),
                results,
                tuple(program),
                self._scratch(program.n_vectors, d),
            )

        stages = 3 * self.p * self.p.bit_length() * rows_an_item * len(parts)
        tile_bytes = program.n_vectors * CACHE_LINE * len(parts)
        step = max(1, _SCRATCH_BYTES // tile_bytes)
        for first in range(0, n_items, step):
            count = min(step, n_items - first)
            run_over_ranges(
                partial(task, first), count, count * stages * _NANOSECONDS_A_STAGE
            )

    def _scratch(self, n_vectors: int, d: int) -> tuple[np.ndarray, ...]:
        """Return the workspace of one task; every array is aligned to a cache line."""
        dtype = self.scale.dtype
        n_parts = 1 + self.unitary
        width = ROWS * entries(dtype)
        tile = _aligned_zeros(n_parts * n_vectors * width, dtype)
        masks = np.zeros(3 * n_parts * n_vectors, dtype=np.uint16)
        tail = _aligned_zeros(ROWS * width, dtype)
        if self.has_bias:
            tail[d % width :: width] = 1
        return tile, masks, tail, _aligned_zeros((2 * ROWS + 2) * CHUNK, dtype)


def _draw(
    named: StructuredRows,
    d: int,
    norms: np.ndarray,
    phases: np.ndarray,
    kind: int,
    unitary: bool,
    weight: float,
    dtype: np.dtype,
) -> _Draw:
    """Return the arguments of compiled code for rows with d columns."""
    bias = named.bias
    p = block_size(d, bias)
    # H is computed with entries ±1. A third of its scale, a power of two, is applied
    # to the input to keep intermediate values in range, the rest to the norms.
    width = ROWS * entries(dtype)
    scale = np.zeros(-(-(d + bool(bias)) // width) * width)
    scale[:d] = np.divide(named.inverse_scale, p)
    if bias:
        scale[d] = bias / p  # the entry itself is 1
    norms = norms / math.sqrt(4 * p if unitary else p)
    return _Draw(
        key=np.uint64(named.key),
        rows=(named.row_start, named.row_stop),
        has_bias=bool(bias),
        scale=scale.astype(dtype),
        norms=_margined(norms, dtype),
        phases=_margined(phases, dtype),
        kind=kind,
        weight=dtype.type(weight),
        limit=dtype.type(_FAST_LIMITS[dtype.name]),
        p=p,
        unitary=unitary,
    )


def _margined(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the values with CHUNK zeros before and after them."""
    margined = np.zeros(len(values) + 2 * CHUNK, dtype=dtype)
    margined[CHUNK:-CHUNK] = values
    return margined


def _aligned_zeros(n: int, dtype: np.dtype) -> np.ndarray:
    padded = np.zeros(n + CACHE_LINE // dtype.itemsize, dtype=dtype)
    skip = -padded.ctypes.data % CACHE_LINE // dtype.itemsize
    return padded[skip : skip + n]


def _flatten(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a flat view from the first to the last element, and the row pitch."""
    n, width = array.shape
    pitch = array.strides[0] // array.itemsize if n > 1 else width
    length = (n - 1) * pitch + width
    return as_strided(array, (length,), (array.itemsize,)), pitch


def _has_flat_rows(array: np.ndarray) -> bool:
    """Return whether :func:`_flatten` can represent the array."""
    rows, columns = array.strides
    return (array.shape[1] <= 1 or columns == array.itemsize) and (
        array.shape[0] <= 1 or (rows >= 0 and rows % array.itemsize == 0)
    )


def _check_out(out: np.ndarray, shape: tuple[int, int], dtype: np.dtype) -> None:
    if out.shape != shape or out.dtype != dtype or dtype.name not in _FAST_LIMITS:
        raise ValueError(
            f"out must be of float32 or float64 and of shape {shape}, got {out.dtype} "
            f"and {out.shape}."
        )
    usable = _has_flat_rows(out) and out.flags.writeable and out.flags.aligned
    if out.size and not usable:
        raise ValueError(
            "out must be writeable and aligned, with contiguous columns and rows in "
            f"ascending order, got strides {out.strides}; write to a copy."
        )


def _is_csr(X: Any) -> bool:
    return getattr(X, "format", None) == "csr"


def _flat_blocks(X: Any, dtype: np.dtype) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, rows of `dtype` that :func:`_flatten` accepts).

    If a copy is needed, it is made a few rows at a time.
    """
    n, d = X.shape
    if not _is_csr(X) and X.dtype == dtype and X.flags.aligned and _has_flat_rows(X):
        yield 0, X
        return
    rows = 4 * ROWS * max(1, _BLOCK_BYTES // (4 * ROWS * max(1, d) * dtype.itemsize))
    for start in range(0, n, rows):
        block = X[start : start + rows]
        block = block.toarray() if _is_csr(X) else block
        yield start, np.ascontiguousarray(block, dtype=dtype)
