"""The primitives on PyTorch tensors, of the CPU or of a GPU.

The functions of :mod:`randkern.backend.numpy_ops`, with the same meaning. Nothing is
copied to the host but by :func:`to_host` and by what returns a Python number; what is
constant is copied to the device once and kept there.
"""

import math

import numpy as np
import torch

from randkern.backend import (
    counter,
    torch_algebra,
    torch_duals,
    torch_elementwise,
    torch_hadamard,
    torch_kernels,
    torch_random,
    torch_sparse,
    torch_thin,
)
from randkern.backend.distances import CANCELLED
from randkern.backend.torch_constants import constant, full_precision, key, lasting
from randkern.backend.torch_devices import (
    empty_on,
    memory_limit,
    tile_rows,
    tile_size,
)
from randkern.backend.torch_special import matern_correlation, optical_angles
from randkern.backend.torch_trig import (
    cos_sin_pairs,
    cosines,
    modulus_in_place,
    modulus_power,
)

__all__ = [
    "add_gram",
    "as_float64",
    "asarray",
    "average",
    "bounded_amplitudes",
    "cauchy_kernel",
    "codes",
    "constant",
    "cos_sin_pairs",
    "cosines",
    "duals",
    "empty",
    "empty_on",
    "exp_of",
    "fill_diagonal",
    "flatnonzero",
    "float64_like",
    "full_precision",
    "hadamard",
    "is_finite",
    "key",
    "largest",
    "largest_value",
    "lasting",
    "log1p_of",
    "manhattan_distances",
    "map_rows",
    "matern_correlation",
    "memory_limit",
    "modulus_in_place",
    "modulus_power",
    "multiply",
    "ones",
    "optical_angles",
    "patch_products",
    "random_matrix",
    "row_sums",
    "run_over_ranges",
    "scaled_squared_distances",
    "sparse",
    "squared_norms",
    "take",
    "thin",
    "tile_rows",
    "tile_size",
    "to_host",
    "unique",
    "unit_rows",
    "with_bias",
    "zeros",
]

hadamard = torch_hadamard
algebra = torch_algebra
duals = torch_duals
elementwise = torch_elementwise
sparse = torch_sparse
thin = torch_thin

# In so few columns differences are taken, which cost no more than a product.
_FEW_COLUMNS = 16
# Entries of a temporary array of differences.
_DIFFERENCES = 2**24
_ROWS_F32 = 2048  # longer float32 sums lose digits


def _readable(values):
    """Return values that PyTorch may share: it has no arrays that are only read."""
    frozen = isinstance(values, np.ndarray) and not values.flags.writeable
    return values.copy() if frozen else values


def asarray(values, like):
    """Return `values` with the dtype and on the device of `like`."""
    return torch.as_tensor(_readable(values), dtype=like.dtype, device=like.device)


def float64_like(values, like):
    """Return `values` in float64 on the device of `like`."""
    return torch.as_tensor(_readable(values), dtype=torch.float64, device=like.device)


def to_host(array):
    """Return a NumPy array: the only way from a device to the host."""
    return array.detach().cpu().numpy()


def as_float64(X):
    """Return X in float64, itself if it is."""
    return X.to(torch.float64)


def empty(shape, like):
    """Return a tensor of unset values of the dtype and on the device of `like`."""
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def zeros(shape, like):
    """Return zeros in float64."""
    return torch.zeros(shape, dtype=torch.float64, device=like.device)


def ones(shape, like):
    """Return ones in float64."""
    return torch.ones(shape, dtype=torch.float64, device=like.device)


def take(X, rows):
    """Return rows by their numbers, which are a NumPy array or a tensor."""
    return X[torch.as_tensor(rows, device=X.device)]


def flatnonzero(values):
    """Return where a vector is not 0."""
    return torch.nonzero(values)[:, 0]


def multiply(values, factor, out):
    """Write values·factor to `out`."""
    out[...] = values * factor


def largest(values):
    """Return the largest value as a float, 0 if there is none above."""
    return max(float(values.max()), 0.0) if values.numel() else 0.0


def largest_value(dtype):
    """Return the largest finite number of a dtype."""
    return float(torch.finfo(dtype).max)


def is_finite(values):
    """Tell whether all values are finite."""
    return bool(torch.isfinite(values).all())


def average(values, weights):
    """Return the weighted mean of a vector as a float."""
    if weights is None:
        return float(values.mean())
    return float((values @ weights) / weights.sum())


def fill_diagonal(values, number):
    """Set the diagonal of a matrix."""
    values.fill_diagonal_(number)


def exp_of(values):
    """Return exponentials."""
    return torch.exp(values)


def log1p_of(values):
    """Return log(1 + v)."""
    return torch.log1p(values)


def unique(values):
    """Return the sorted different values of a vector, as a NumPy array."""
    return to_host(torch.unique(values))


def map_rows(function, values):
    """Return `function` of values."""
    return function(values)


def row_sums(X):
    """Return the sums of rows in float64."""
    return X.sum(dim=1, dtype=torch.float64)


def squared_norms(X):
    """Return the squared norms of rows in float64."""
    X = X.to(torch.float64)
    return (X * X).sum(dim=1)


def with_bias(X, scale, bias):
    """Return X·scale, with a last column `bias` if that is not 0."""
    if isinstance(scale, torch.Tensor):
        X = X * scale.to(X.dtype)
    elif scale != 1.0:
        X = X * scale
    return torch.cat([X, X.new_full((X.shape[0], 1), bias)], dim=1) if bias else X


def codes(X, categories):
    """Return the positions of values in sorted categories, one array a column.

    A value that is not there becomes the number of categories.
    """
    positions = torch.empty(X.shape, dtype=torch.int64, device=X.device)
    for j, values in enumerate(categories):
        # Compared in the narrower dtype: 0.1 in float32 is another number.
        single = np.float32 == values.dtype or X.dtype == torch.float32
        dtype = torch.float32 if single else torch.float64
        column = X[:, j].to(dtype).contiguous()
        known = torch.as_tensor(np.asarray(values, float), device=X.device).to(dtype)
        position = torch.searchsorted(known, column).clip(max=len(known) - 1)
        unseen = torch.full_like(position, len(known))
        positions[:, j] = torch.where(known[position] == column, position, unseen)
    return positions


def random_matrix(seed, law, row_start, row_stop, col_start, col_stop, like):
    """Return entries of the random matrix in float32, made on the device of `like`."""
    rectangle = row_start, row_stop, col_start, col_stop
    if like.device.type == "cpu":
        return torch.from_numpy(counter.random_matrix(seed, law, *rectangle))
    return torch_random.random_matrix(seed, law, *rectangle, like.device)


def bounded_amplitudes(X, apply, power):
    """Return rows whose squares stay in range, and what undoes it; None if all are.

    See :func:`randkern.backend.numpy_ops.bounded_amplitudes`.
    """
    squares = (X.detach() * X.detach()).sum(dim=1)
    bound = 2.0 ** (math.frexp(torch.finfo(X.dtype).max)[1] // 2)
    extreme = (squares > bound) | (squares < 1 / bound)
    if not bool(extreme.any()):
        return None
    block = apply(X)
    sizes = block.detach().abs().amax(dim=1).double()
    exponents = torch.where(extreme, torch.frexp(sizes)[1], 0)
    # In two steps: the power of two of a subnormal row is out of range.
    half = torch.div(-exponents, 2, rounding_mode="floor")
    for part in (half, -exponents - half):
        block = block * torch.exp2(part.double()).to(block.dtype)[:, None]
    return block, torch.exp2(exponents.double() * power)


def unit_rows(X, bias):
    """Return rows over their norms, and the norms, both with an entry √bias more.

    See :func:`randkern.backend.numpy_ops.unit_rows`.
    """
    sizes = X.abs().amax(dim=1) if X.shape[1] else X.new_zeros(len(X))
    sizes = torch.where(sizes == 0, 1.0, sizes).to(torch.float64)
    X = X / sizes[:, None]
    norms = torch.linalg.vector_norm(X, dim=1)
    full = torch.hypot(sizes * norms, torch.full_like(norms, math.sqrt(bias)))
    share = torch.where(full > 0, sizes / torch.where(full > 0, full, 1.0), 0.0)
    return X * share[:, None], full


def scaled_squared_distances(X, Y, scale, same):
    """Return ‖(x − y)·scale‖² of all pairs of rows.

    By ‖x‖² + ‖y‖² − 2x·y about the mean of Y; where that cancels, or in few columns,
    from differences.
    """
    X = X * scale
    Y = X if same else Y * scale
    if X.shape[1] <= _FEW_COLUMNS:
        return _differences(X, Y, _add_square)
    center = Y.mean(dim=0)
    x, y = X - center, Y - center
    x_norms, y_norms = (x * x).sum(dim=1), (y * y).sum(dim=1)
    norms = x_norms[:, None] + y_norms
    squared = torch.addmm(norms, x, y.T, alpha=-2.0)
    # Infinite norms make nan, which is not above the bound.
    near = torch.nonzero(~(squared > CANCELLED * norms))
    if len(near) > squared.numel() // 20:
        return _differences(X, Y, _add_square)
    step = max(1, _DIFFERENCES // X.shape[1])
    for part in near.split(step):
        difference = X[part[:, 0]] - Y[part[:, 1]]
        squared[part[:, 0], part[:, 1]] = (difference * difference).sum(dim=1)
    if same:
        squared.fill_diagonal_(0.0)
    return squared


def _add_square(total, difference):
    return total + difference * difference


def _differences(X, Y, add, total=0.0):
    """Return `add` of the differences in every column, one after the other."""
    total = torch.full((len(X), len(Y)), total, dtype=X.dtype, device=X.device)
    for x, y in zip(X.T, Y.T, strict=True):
        total = add(total, x[:, None] - y)
    return total


def manhattan_distances(X, Y, out):
    """Write the L1 distances of all pairs of rows."""
    X, Y = X.to(out.dtype), Y.to(out.dtype)
    out[...] = torch.cdist(X, Y, p=1.0)


def cauchy_kernel(X, Y, out):
    """Write Π_k 1/(1 + (x_k − y_k)²) of all pairs of rows."""
    X, Y = X.to(out.dtype), Y.to(out.dtype)
    product = _differences(X, Y, lambda total, d: total * (1.0 + d * d), 1.0)
    out[...] = 1.0 / product


def add_gram(Z, gram):
    """Add ZᵀZ of a block of rows to `gram`, float64, the whole of it.

    Products of float32 rows, at most 2048 of them, take 64 MiB, or 512 rows of `gram`.
    """
    if Z.dtype == gram.dtype:
        gram.addmm_(Z.T, Z)
        return
    step = max(512, 2**26 // (12 * max(len(gram), 1)))  # a product, and it in float64
    for part in Z.split(_ROWS_F32):
        for columns, rows in zip(
            part.split(step, dim=1), gram.split(step), strict=True
        ):
            rows += columns.T @ part


def hstack(parts):
    """Return matrices side by side."""
    return torch.hstack(parts)


def copy(array):
    """Return a copy."""
    return array.clone()


def triu(matrix, diagonal):
    """Return the upper triangle from a diagonal on, zeros below."""
    return torch.triu(matrix, diagonal)


def numbers(n, like):
    """Return 0, ..., n − 1."""
    return torch.arange(n, device=like.device)


def as_integers(values):
    """Return integers, for instance of booleans."""
    return values.to(torch.int64)


def to_integers(values, like):
    """Return integers on the device of `like`."""
    return torch.as_tensor(values, dtype=torch.int64, device=like.device)


def positions(sorted_values, values):
    """Return the positions of values among sorted ones, and whether they are there."""
    sorted_values = torch.as_tensor(sorted_values, device=values.device)
    dtype = torch.promote_types(sorted_values.dtype, values.dtype)
    if dtype == torch.bool:  # which searchsorted does not take
        dtype = torch.uint8
    sorted_values, values = sorted_values.to(dtype), values.to(dtype)
    position = torch.searchsorted(sorted_values, values.contiguous())
    position = position.clip(max=len(sorted_values) - 1)
    return position, sorted_values[position] == values


def totals(position, weights, n):
    """Return the sums of weights (None: 1) at n positions, in float64."""
    counts = torch.zeros(n, dtype=torch.float64, device=position.device)
    ones = torch.ones_like(position, dtype=torch.float64)
    return counts.index_add(0, position, ones if weights is None else weights)


def entries_at(values, position):
    """Return the entries of a vector at positions, on the device of those.

    Those of a NumPy array of texts are a NumPy array.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
        return values[to_host(position)]
    return torch.as_tensor(values, device=position.device)[position]


def largest_sizes(values):
    """Return the largest absolute value of every column."""
    return values.abs().amax(dim=0)


def numpy_dtype(array):
    """Return the dtype of a tensor as one of NumPy."""
    return np.dtype(str(array.dtype).removeprefix("torch."))


def generated_products(X, keys, start, stop, scale):
    """Return scale·XΩᵀ for the matrix of each key, by a kernel that makes the entries.

    None where there is no such kernel for X.
    """
    kernels = torch_kernels.kernels_for(X)
    if kernels is None:
        return None
    product = kernels.generated_product
    return tuple(product(X, key, start, stop, scale) for key in keys)


def stacked_numbers(numbers):
    """Return a vector of numbers that lie where their arrays did."""
    return torch.stack(numbers)


def precision(dtype):
    """Return the distance from 1 to the next number of a dtype."""
    return float(torch.finfo(dtype).eps)


def contiguous(array):
    """Return a tensor whose rows lie one after the other."""
    return array.contiguous()


def concatenate(parts, axis=0):
    """Return arrays one after the other along an axis."""
    return torch.cat(parts, dim=axis)


def patch_products(a, b, rows, columns):
    """Return Σ_k a[v, k, i]·b[v, k, j], in one batched product."""
    return a[:, :, rows].transpose(1, 2) @ b[:, :, columns]


def run_over_ranges(task, n, nanoseconds):
    """Call ``task(0, n)``: PyTorch divides each step of it among threads itself."""
    task(0, n)
