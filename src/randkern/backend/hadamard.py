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

from randkern.backend.compiled_loops import (
    check_out,
    has_flat_rows,
    input_rows,
    output_rows,
    run_over_ranges,
)
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
_NANOSECONDS_PER_STAGE = 0.03

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

    X, an array or a CSR matrix of shape (n, d), has finite values; nan and inf spread
    over the whole row. The dtype of an output, float32 or float64, is that of the
    computation; its columns must be contiguous, its rows may be any distance apart.
    Anything else raises a TypeError or a ValueError.
    """

    key: int  # names the random signs, 0 ≤ key < 2⁶⁴
    norms: Any  # one per row
    row_start: int  # need not be aligned with the blocks
    row_stop: int
    inverse_scale: Any = 1.0  # factor of the columns of X, or one per column
    bias: float | None = None  # an extra, unscaled entry of every row of X

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

    def _write(self, X, kind, weight, outs, offsets=None, power=2.0):
        """Check and normalise the arguments, and run the items of every row block."""
        unitary = kind == MODULUS or len(outs) == 2
        fast = power in (1, 2, 3, 4)
        if kind == MODULUS:
            kind = MODULUS + (int(power) if fast else 2)
        X = X if _is_csr(X) else np.asarray(X)
        m = self.row_stop - self.row_start
        shape = X.shape[0], m * (2 if kind == PAIRS else 1)
        (dtype,) = {check_out(out, shape) for out in outs}  # both parts have one dtype
        norms = np.asarray(self.norms, np.float64)
        phases = np.asarray(np.zeros(m) if offsets is None else offsets, np.float64)
        if not norms.shape == phases.shape == (m,) or self.row_start < 0:
            raise ValueError(
                f"norms must hold one number for each of the rows {self.row_start} to "
                f"{self.row_stop}, got shape {norms.shape}."
            )
        if X.shape[0] == 0 or m == 0:
            return
        p = block_size(X.shape[1], self.bias)
        results = (
            _margined(norms / math.sqrt(4 * p if unitary else p), dtype),
            _margined(phases, dtype),
            dtype.type(weight if fast else 1.0),
            dtype.type(_FAST_LIMITS[dtype.name]),
        )
        scale = self._column_factors(X.shape[1], p, dtype)
        for start, block in _flat_blocks(X, dtype):
            views = [output_rows(out[start : start + len(block)]) for out in outs]
            targets = zip(views[0], views[-1], strict=True)
            self._run(block, scale, p, kind, unitary, (*results, *targets))
        if not fast:
            np.power(outs[0], 0.5 * power, out=outs[0])
            np.multiply(outs[0], weight, out=outs[0])

    def _column_factors(self, d: int, p: int, dtype: np.dtype) -> np.ndarray:
        """Return the factors of d columns and of the bias's one, padded with zeros.

        H is computed with entries ±1. A third of its scale, a power of two, is applied
        to the input to keep intermediate values in range, the rest to the norms.
        """
        width = ROWS * entries(dtype)
        scale = np.zeros(-(-(d + bool(self.bias)) // width) * width)
        scale[:d] = np.divide(self.inverse_scale, p)
        if self.bias:
            scale[d] = self.bias / p  # the entry itself is 1
        return scale.astype(dtype)

    def _run(self, X, scale, p, kind, unitary, results):
        """Write the features of rows that need no copy; see `compute_features`."""
        n, d = X.shape
        program = schedule((p // entries(X.dtype)).bit_length() - 1)
        parts = (0, program.n_vectors) if unitary else (0,)
        n_blocks = (self.row_stop - 1) // p - self.row_start // p + 1
        rows_per_item = ROWS if n * n_blocks < _MANY_ROWS else 4 * ROWS
        n_items = -(-n // rows_per_item) * n_blocks
        flat_X, pitch = input_rows(X, X.dtype)
        rows = flat_X, n, pitch, d, scale
        draws = np.uint64(self.key), self.row_start, self.row_stop, p

        def task(first: int, start: int, stop: int) -> None:
            items = first + start, first + stop, rows_per_item
            bias_column = d if self.bias else None
            scratch = _scratch(parts, program.n_vectors, bias_column, X.dtype)
            settings = parts, items, kind, rows, draws, results
            compute_features(*settings, tuple(program), scratch)

        stages = 3 * p * p.bit_length() * rows_per_item * len(parts)
        tile_bytes = program.n_vectors * CACHE_LINE * len(parts)
        step = max(1, _SCRATCH_BYTES // tile_bytes)
        for first in range(0, n_items, step):
            count = min(step, n_items - first)
            run_over_ranges(
                partial(task, first), count, count * stages * _NANOSECONDS_PER_STAGE
            )


def _scratch(
    parts: tuple[int, ...], n_vectors: int, bias_column: int | None, dtype: np.dtype
) -> tuple[np.ndarray, ...]:
    """Return the workspace of one task; vectors are aligned to a cache line."""
    width = ROWS * entries(dtype)
    tile = _aligned_zeros(len(parts) * n_vectors * width, dtype)
    masks = np.zeros(3 * len(parts) * n_vectors, dtype=np.uint16)
    tail = _aligned_zeros(ROWS * width, dtype)
    if bias_column is not None:
        tail[bias_column % width :: width] = 1
    return tile, masks, tail, _aligned_zeros((2 * ROWS + 2) * CHUNK, dtype)


def _margined(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the values with CHUNK zeros before and after them."""
    margined = np.zeros(len(values) + 2 * CHUNK, dtype=dtype)
    margined[CHUNK:-CHUNK] = values
    return margined


def _aligned_zeros(n: int, dtype: np.dtype) -> np.ndarray:
    padded = np.zeros(n + CACHE_LINE // dtype.itemsize, dtype=dtype)
    skip = -padded.ctypes.data % CACHE_LINE // dtype.itemsize
    return padded[skip : skip + n]


def _is_csr(X: Any) -> bool:
    return getattr(X, "format", None) == "csr"


def _flat_blocks(X: Any, dtype: np.dtype) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, rows of `dtype` with a flat view).

    If a copy is needed, it is made a few rows at a time.
    """
    n, d = X.shape
    if not _is_csr(X) and X.dtype == dtype and has_flat_rows(X):
        yield 0, X
        return
    rows = 4 * ROWS * max(1, _BLOCK_BYTES // (4 * ROWS * max(1, d) * dtype.itemsize))
    for start in range(0, n, rows):
        block = X[start : start + rows]
        block = block.toarray() if _is_csr(X) else block
        yield start, np.ascontiguousarray(block, dtype=dtype)
