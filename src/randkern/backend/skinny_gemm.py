"""Products of many features with few columns, as in iterative solvers.

Each feature is read once for all columns of P, whose entries of ROWS_ADDED rows stay in
registers. Plain loops give the same bits, and take longer in float32 and int16.
Features may be 16-bit integers, which are converted to floating point in registers.

BLAS packs its factors first, which costs more than a product with ten columns. These
loops read the features in place, in 32, 64 or 16 bits.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import literal_unroll, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from randkern.backend.compiled_loops import input_rows, output_rows, run_over_ranges
from randkern.backend.hadamard_vectors import count, memories, splat

# Rows may be read past the last feature, up to a multiple of this number.
COLUMNS = 64
# Rows whose features are in registers at a time.
ROWS_ADDED = 8
_FUSED = ("contract",)


def _load_features(features, offset, like):
    """Load one vector of features, converted to the dtype of `like`."""
    kind = ir.VectorType(features.element, like.lanes)
    pointer = features.builder.bitcast(features.pointer(offset), kind.as_pointer())
    value = features.builder.load(pointer, align=features.item_bytes)
    if isinstance(features.element, ir.IntType):
        return features.builder.sitofp(value, like.vector)
    return value


@intrinsic
def add_rows(
    typing_context, targets, Z, pitch, first, last, begin, end, P, k, column, sums
):
    """Add some columns of Zᵀ P over ROWS_ADDED rows, from `first` on.

    sums[t·_SUMS + j - begin] += Σ_r Z[r·pitch + j]·P[r·k + t] for as many t, from
    `column` on, as `targets` has entries, and for j from `begin` to `end`, a multiple
    of the lanes of a vector apart. Row `last` is read in place of those after it, for
    which P is zero.
    """
    n_targets = targets.count

    def generate(context, builder, signature, args):
        pitch, first, last, begin, end = args[2:7]
        features, other, sums = memories(context, builder, signature, args)
        starts, weights = [], []
        for i in range(ROWS_ADDED):
            row = builder.add(first, count(i))
            at = builder.add(args[9], builder.mul(row, args[8]))
            for t in range(n_targets):
                pointer = other.pointer(builder.add(at, count(t)))
                weights.append(splat(builder, other.vector, builder.load(pointer)))
            beyond = builder.icmp_signed(">", row, last)
            starts.append(builder.mul(builder.select(beyond, last, row), pitch))
        step = count(other.lanes)
        origin = builder.mul(args[9], count(_SUMS))
        with cgutils.for_range_slice(builder, begin, end, step) as (j, _):
            at = [builder.add(start, j) for start in starts]
            z = [_load_features(features, entry, other) for entry in at]
            row_origin = builder.add(origin, builder.sub(j, begin))
            for t in range(n_targets):
                at = builder.add(row_origin, count(_SUMS * t))
                total = sums.load(at)
                for i in range(ROWS_ADDED):
                    weight = weights[i * n_targets + t]
                    product = builder.fmul(weight, z[i], flags=_FUSED)
                    total = builder.fadd(total, product, flags=_FUSED)
                sums.store(total, at)
        return context.get_dummy_value()

    numbers = [types.int64] * 5
    return types.none(targets, Z, *numbers, P, *numbers[:2], sums), generate


# A block of features stays in the last-level cache between its two products.
BLOCK_BYTES = 16 * 2**20

# Columns of V of which eight rows stay in the L2 cache.
_TILE = 2048
# Tiles, over all rows of V, that stay in the L2 cache.
_MAX_TILES = 16
# Columns of sums over rows: in the L1 cache with ten targets.
_SUMS = 512
# Rows whose products are accumulated in the dtype of the factors.
_ROWS = 128
# Features that are read twice while in the cache.
_CHUNK_BYTES = 2 * 2**20
# Rows from which reading the sums pays.
_MIN_CHUNK = 64
# Smallest number of rows per thread.
_MIN_PART = 32
_LARGEST = 32767.0
# Columns of the other factor per step: the lengths of these tuples, which are known
# when code is compiled.
_TARGETS = tuple((0,) * size for size in (10, 4, 2, 1))
# Sums of products may be reordered.
_SUMMED = {"reassoc", "contract", "nsz"}
# Rough nanoseconds per multiplication.
_COST = 0.04


def padded(n_columns: int) -> int:
    """Return the width of rows of `n_columns` features, padded with zeros."""
    return -(-n_columns // COLUMNS) * COLUMNS


def empty_padded(n_rows: int, n_columns: int, like: np.ndarray) -> np.ndarray:
    """Return zeros in the dtype of `like`, of the padded width."""
    return np.zeros((n_rows, padded(n_columns)), like.dtype)


def pack(values: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return values in the dtype and memory order of a factor of Z."""
    wide = Z.dtype == np.float64
    return np.ascontiguousarray(values, np.float64 if wide else np.float32)


# One tile of four rows of features, or of V, as separate arrays.
@njit(forceinline=True, error_model="numpy")
def _four_rows(values, pitch, first, last, begin, n):
    a = min(first, last) * pitch + begin
    b = min(first + 1, last) * pitch + begin
    c = min(first + 2, last) * pitch + begin
    d = min(first + 3, last) * pitch + begin
    return values[a : a + n], values[b : b + n], values[c : c + n], values[d : d + n]


@njit(nogil=True, cache=True, fastmath=_SUMMED, error_model="numpy")
def _four_by_four(z, v, kind):
    """Return the products of four rows with four others, one tuple per row."""
    z0, z1, z2, z3 = z
    v0, v1, v2, v3 = v
    zero = kind(0)
    a0, a1, a2, a3 = zero, zero, zero, zero
    b0, b1, b2, b3 = zero, zero, zero, zero
    c0, c1, c2, c3 = zero, zero, zero, zero
    d0, d1, d2, d3 = zero, zero, zero, zero
    for j in range(len(v0)):
        x, y, u, w = kind(z0[j]), kind(z1[j]), kind(z2[j]), kind(z3[j])
        a0, a1, a2, a3 = a0 + x * v0[j], a1 + x * v1[j], a2 + x * v2[j], a3 + x * v3[j]
        b0, b1, b2, b3 = b0 + y * v0[j], b1 + y * v1[j], b2 + y * v2[j], b3 + y * v3[j]
        c0, c1, c2, c3 = c0 + u * v0[j], c1 + u * v1[j], c2 + u * v2[j], c3 + u * v3[j]
        d0, d1, d2, d3 = d0 + w * v0[j], d1 + w * v1[j], d2 + w * v2[j], d3 + w * v3[j]
    return (a0, a1, a2, a3), (b0, b1, b2, b3), (c0, c1, c2, c3), (d0, d1, d2, d3)


@njit(nogil=True, cache=True, fastmath=_SUMMED, error_model="numpy")
def _eight_by_one(z, v, kind):
    """Return the products of two groups of four rows with one other row."""
    (z0, z1, z2, z3), (y0, y1, y2, y3) = z
    a, b, c, d = kind(0), kind(0), kind(0), kind(0)
    e, f, g, h = kind(0), kind(0), kind(0), kind(0)
    for j in range(len(v)):
        x = v[j]
        a += kind(z0[j]) * x
        b += kind(z1[j]) * x
        c += kind(z2[j]) * x
        d += kind(z3[j]) * x
        e += kind(y0[j]) * x
        f += kind(y1[j]) * x
        g += kind(y2[j]) * x
        h += kind(y3[j]) * x
    return (a, b, c, d), (e, f, g, h)


@njit(nogil=True, cache=True, error_model="numpy")
def _multiply_tile(Z, pitch, first, last, begin, n, V, width, k, sums):
    """Write the products of eight rows with k others, over some columns, to `sums`.

    Row `last` is read in place of those after it.
    """
    kind = V.dtype.type
    z = (
        _four_rows(Z, pitch, first, last, begin, n),
        _four_rows(Z, pitch, min(first + 4, last), last, begin, n),
    )
    # One row left over is done alone; two or three as four, some of them twice.
    paired = k - 1 if k % 4 == 1 else k
    for t in range(0, paired, 4):
        v = _four_rows(V, width, t, k - 1, begin, n)
        for half in range(2):
            products = _four_by_four(z[half], v, kind)
            for i in range(4):
                for s in range(min(4, k - t)):
                    sums[4 * half + i, t + s] = products[i][s]
    if paired < k:
        at = paired * width + begin
        ends = _eight_by_one(z, V[at : at + n], kind)
        for half in range(2):
            for i in range(4):
                sums[4 * half + i, paired] = ends[half][i]


@njit(nogil=True, cache=True, error_model="numpy")
def _multiply(Z, pitch, start, stop, V, width, k, out, n_rows):
    """Add the products of rows `start` to `stop` with the k rows of V to `out`, flat.

    Rows are read tile by tile, over as many columns as leave V in the cache.
    """
    sums = np.empty((8, k), V.dtype)
    panel = _TILE * max(1, _MAX_TILES // k)
    for left in range(0, width, panel):
        right = min(left + panel, width)
        for first in range(start, stop, 8):
            for begin in range(left, right, _TILE):
                n = min(_TILE, right - begin)
                _multiply_tile(Z, pitch, first, n_rows - 1, begin, n, V, width, k, sums)
                for i in range(min(8, n_rows - first)):
                    for t in range(k):
                        out[(first + i) * k + t] += sums[i, t]


@njit(nogil=True, cache=True)
def _add_transposed(Z, pitch, n_rows, P, k, start, stop, sums, out, width):
    """Add Zᵀ P over a few rows; `sums` is a buffer for one tile.

    The rows of P are padded with zeros to a multiple of ROWS_ADDED.
    """
    last = n_rows - 1
    for begin in range(start, stop, _SUMS):
        end = min(begin + _SUMS, stop)
        sums[:] = 0.0
        for r in range(0, n_rows, ROWS_ADDED):
            t = 0
            for targets in literal_unroll(_TARGETS):
                while k - t >= len(targets):
                    add_rows(targets, Z, pitch, r, last, begin, end, P, k, t, sums)
                    t += len(targets)
        for t in range(k):
            target = out[t * width + begin : t * width + end]
            part = sums[t * _SUMS : t * _SUMS + end - begin]
            for j in range(end - begin):
                target[j] += part[j]


@njit(nogil=True, cache=True)
def _gram_product(
    Z, pitch, start, stop, factors, V, width, k, chunk, inner, products, sums, out
):
    """Add Σ f_r z_r (z_r V) over some rows, in chunks that stay in the cache.

    `inner` and `products` are buffers for the products of a chunk, in the dtype of V
    and in float64, and `sums` for sums over rows, in the dtype of V.
    """
    for first in range(start, stop, chunk):
        n = min(chunk, stop - first)
        rows = Z[first * pitch :]
        products[:] = 0.0
        _multiply(rows, pitch, 0, n, V, width, k, products, n)
        inner[:] = 0.0
        for r in range(n):
            for t in range(k):
                inner[r * k + t] = products[r * k + t] * factors[first + r]
        _add_transposed(rows, pitch, n, inner, k, 0, width, sums, out, width)


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"}, error_model="numpy")
def _quantize(Z, bits, mask, pitch, start, stop, n_columns, out, out_pitch, scales):
    # Conversions that keep the width of the entries, as here, vectorise.
    kind, integer = Z.dtype.type, bits.dtype.type
    half = kind(0.5)
    peak = np.empty(1, bits.dtype)
    for r in range(start, stop):
        row = Z[r * pitch : r * pitch + n_columns]
        # Without signs, floats have the order of their bits, and the maximum of
        # integers vectorises.
        magnitudes = bits[r * pitch : r * pitch + n_columns]
        largest = integer(0)
        for j in range(n_columns):
            largest = max(largest, integer(magnitudes[j] & mask))
        peak[0] = largest
        unit = peak.view(Z.dtype)[0] / kind(_LARGEST)
        scales[r] = unit
        inverse = kind(0)
        if unit > 0:
            inverse = kind(1) / unit
        target = out[r * out_pitch : r * out_pitch + n_columns]
        for j in range(n_columns):
            value = row[j] * inverse
            target[j] = np.int16(np.int32(value + (half if value >= 0 else -half)))


def multiply(Z: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return Z V, (n, k) in float64, for V transposed, (k, width), with zero padding.

    Z, (n, width), is float32, float64 or int16, and its width a multiple of 64
    (:func:`padded`). V is float64 if Z is, else float32. Sums over 2,048 columns are
    accumulated in the dtype of V, then in float64.
    """
    n, width = _check(Z, V)
    k = V.shape[0]
    if V.shape[1] != width:
        raise ValueError(f"V must have {width} columns, got {V.shape[1]}.")
    out = np.zeros((n, k))
    if n == 0 or k == 0:
        return out
    flat, pitch = input_rows(Z, Z.dtype)

    def task(start: int, stop: int) -> None:
        _multiply(flat, pitch, start, stop, V.ravel(), width, k, out.ravel(), n)

    run_over_ranges(task, n, n * width * k * _COST, 8)
    return out


def add_transposed(Z: np.ndarray, P: np.ndarray, out: np.ndarray) -> None:
    """Add Zᵀ P, transposed, to `out`, (k, width) in float64, for P of shape (n, k).

    Z and P are as the factors of :func:`multiply`. Sums over 128 rows are accumulated
    in the dtype of P.
    """
    k = P.shape[1]
    n, width = _check(Z, P, out, k)
    if P.shape[0] != n:
        raise ValueError(f"P must have {n} rows, got {P.shape[0]}.")
    if n == 0 or k == 0:
        return
    flat, pitch = input_rows(Z, Z.dtype)
    sums = out.ravel()
    padding = -n % ROWS_ADDED
    right = np.vstack([P, np.zeros((padding, k), P.dtype)]).ravel()

    def task(start: int, stop: int) -> None:
        room = np.empty(k * _SUMS, P.dtype)
        for begin in range(0, n, _ROWS):
            rows, part = flat[begin * pitch :], right[begin * k :]
            length = min(_ROWS, n - begin)
            _add_transposed(
                rows, pitch, length, part, k, start, stop, room, sums, width
            )

    run_over_ranges(task, width, n * width * k * _COST, COLUMNS)


def add_gram_product(
    Z: np.ndarray, factors: np.ndarray, V: np.ndarray, out: np.ndarray
) -> None:
    """Add Zᵀ diag(factors) Z V, transposed, to `out`, reading Z from memory once.

    Z and V are those of :func:`multiply`, `out` that of :func:`add_transposed`. Its
    last bits depend on the number of threads.
    """
    k = V.shape[0]
    n, width = _check(Z, V, out, k)
    if V.shape[1] != width or factors.shape != (n,):
        raise ValueError(
            f"Z of shape {Z.shape} needs V of {width} columns and {n} factors, got "
            f"{V.shape} and {factors.shape}."
        )
    if n == 0 or k == 0:
        return
    flat, pitch = input_rows(Z, Z.dtype)
    chunk = _CHUNK_BYTES // (width * Z.itemsize) // ROWS_ADDED * ROWS_ADDED
    chunk = min(_ROWS, max(_MIN_CHUNK, chunk))
    n_parts = min(numba.get_num_threads(), max(1, n // _MIN_PART))
    sums = [out] + [np.zeros_like(out) for _ in range(n_parts - 1)]

    def task(start: int, stop: int) -> None:
        for part in range(start, stop):
            inner = np.empty((chunk + ROWS_ADDED) * k, V.dtype)
            products = np.empty(chunk * k)
            room = np.empty(k * _SUMS, V.dtype)
            _gram_product(
                flat, pitch, n * part // n_parts, n * (part + 1) // n_parts, factors,
                V.ravel(), width, k, chunk, inner, products, room,
                sums[part].ravel(),
            )  # fmt: skip

    run_over_ranges(task, n_parts, 2 * n * width * k * _COST)
    for part in sums[1:]:
        out += part


def quantize(Z: np.ndarray, out: np.ndarray, scales: np.ndarray) -> None:
    """Round features to 16 bits, Z ≈ scales[:, None]·out, to 1.6e-5 of a row's largest.

    Z, (n, D), is finite; `out` has at least D columns.
    """
    n, D = Z.shape
    fits = out.shape[0] == n and out.shape[1] >= D and scales.shape == (n,)
    if not fits or out.dtype != np.int16 or scales.dtype != Z.dtype:
        raise ValueError(
            f"quantize needs out of int16 and shape {Z.shape} or wider, and {n} "
            f"scales of {Z.dtype}; got {out.dtype} of shape {out.shape}, and "
            f"{scales.dtype} of shape {scales.shape}."
        )
    if n == 0 or D == 0:
        return
    flat, pitch = input_rows(Z, Z.dtype)
    target, out_pitch = output_rows(out)
    integer = np.int32 if Z.dtype == np.float32 else np.int64
    bits, mask = flat.view(integer), integer(np.iinfo(integer).max)

    def task(start: int, stop: int) -> None:
        _quantize(flat, bits, mask, pitch, start, stop, D, target, out_pitch, scales)

    run_over_ranges(task, n, n * D)


def _check(
    Z: np.ndarray, other: np.ndarray, out: np.ndarray | None = None, k: int = 0
) -> tuple[int, int]:
    """Raise unless Z, its factor and the sums of k columns have the layout of loops."""
    expected = np.float64 if Z.dtype == np.float64 else np.float32
    if Z.dtype not in (np.float32, np.float64, np.int16) or other.dtype != expected:
        raise TypeError(
            "Z must be float64 with a factor of float64, or float32 or int16 with one "
            f"of float32, got {Z.dtype} and {other.dtype}; convert the factor."
        )
    if Z.shape[1] % COLUMNS or not other.flags.c_contiguous:
        raise ValueError(
            f"the width must be a multiple of {COLUMNS}, got {Z.shape[1]}, and the "
            "other factor C-ordered."
        )
    if out is None:
        return Z.shape
    shape = k, Z.shape[1]
    if out.shape != shape or out.dtype != np.float64 or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be C-ordered float64 of shape {shape}, got {out.dtype} of "
            f"shape {out.shape}."
        )
    return Z.shape
