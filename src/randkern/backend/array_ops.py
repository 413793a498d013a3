"""The primitives that NumPy arrays and tensors share, written once by the array API.

:class:`ArrayOps` is what the rooms above see of a library of arrays. What the array API
standard says is written here, over the namespace ``xp`` of the library (of
array-api-compat, as scikit-learn carries it); the rest each backend brings:
:mod:`randkern.backend.numpy_ops` and :mod:`randkern.backend.torch_ops`. Their lists are
in ``docs/architecture.md``.
"""

import math
from typing import Any

import numpy as np

from randkern.backend import special

# Changes of a value of order one below this are lost in rounding errors.
LEAST_CHANGE = 64 * 2.0**-52


class ArrayOps:
    """Primitives of one library of arrays.

    `like` is always an array whose namespace, dtype and device the result takes.

    Attributes
    ----------
    xp : module
        The library's namespace, by the array API standard.
    special : module
        Its special functions: expit, logsumexp, ndtr, softmax.
    algebra, duals, hadamard, sparse, skinny_gemm
        Linear algebra, dual activations, structured projections, features of skeletons
        with sparse products, and products with few columns.
    """

    xp: Any
    special: Any
    algebra: Any
    duals: Any
    hadamard: Any
    sparse: Any
    skinny_gemm: Any
    # What the primitives below need of a library beyond the standard.
    placed: Any
    to_host: Any
    densified: Any
    row_squares: Any
    largest_of_rows: Any
    scale_rows: Any
    divide_rows: Any

    def float64_like(self, values, like):
        """Return `values` in float64 where `like` lies."""
        return self.placed(values, self.xp.float64, like)

    def to_integers(self, values, like):
        """Return integers where `like` lies."""
        return self.placed(values, self.xp.int64, like)

    def asarray(self, values, like):
        """Return `values` in the dtype of `like`, where it lies."""
        return self.placed(values, like.dtype, like)

    def as_float64(self, X):
        """Return X in float64, itself if it is."""
        return self.xp.astype(X, self.xp.float64, copy=False)

    def as_integers(self, values):
        """Return integers, for instance of booleans."""
        return self.xp.astype(values, self.xp.int64)

    def empty(self, shape, like):
        """Return an array of unset values in the dtype of `like`."""
        return self.xp.empty(shape, dtype=like.dtype, device=_device(like))

    def zeros(self, shape, like):
        """Return zeros in float64."""
        return self.xp.zeros(shape, dtype=self.xp.float64, device=_device(like))

    def ones(self, shape, like):
        """Return ones in float64."""
        return self.xp.ones(shape, dtype=self.xp.float64, device=_device(like))

    def arange(self, n, like):
        """Return 0, ..., n − 1."""
        return self.xp.arange(n, device=_device(like))

    def flatnonzero(self, values):
        """Return where a vector is not 0."""
        return self.xp.nonzero(values)[0]

    def largest(self, values):
        """Return the largest value as a float, 0 if there is none above."""
        return max(float(self.xp.max(values)), 0.0) if 0 not in values.shape else 0.0

    def largest_value(self, dtype):
        """Return the largest finite number of a dtype."""
        return float(self.xp.finfo(dtype).max)

    def precision(self, dtype):
        """Return the distance from 1 to the next number of a dtype."""
        return float(self.xp.finfo(dtype).eps)

    def is_finite(self, values):
        """Tell whether all values are finite."""
        return bool(self.xp.all(self.xp.isfinite(values)))

    def average(self, values, weights):
        """Return the weighted mean of a vector as a float."""
        if weights is None:
            return float(self.xp.mean(values))
        return float((values @ weights) / self.xp.sum(weights))

    def fill_diagonal(self, values, number):
        """Set the diagonal of a matrix."""
        diagonal = self.xp.arange(min(values.shape), device=_device(values))
        values[diagonal, diagonal] = number

    def unique(self, values):
        """Return the sorted different values of a vector, as a NumPy array."""
        return self.to_host(self.xp.unique_values(values))

    def hstack(self, parts):
        """Return matrices side by side."""
        return self.xp.concat(parts, axis=-1)

    def concatenate(self, parts, axis=0):
        """Return arrays one after the other along an axis."""
        return self.xp.concat(parts, axis=axis)

    def stacked_numbers(self, numbers):
        """Return a vector of numbers that lie where their arrays did."""
        return self.xp.stack(numbers)

    def triu(self, matrix, diagonal):
        """Return the upper triangle from a diagonal on, zeros below."""
        return self.xp.triu(matrix, k=diagonal)

    def bincount(self, position, weights, n):
        """Return the sums of weights (None: 1) at n positions, in float64."""
        counts = self.xp.bincount(position, weights=weights, minlength=n)
        return self.xp.astype(counts, self.xp.float64)

    def numpy_dtype(self, array):
        """Return the dtype of an array as one of NumPy."""
        return np.dtype(str(array.dtype).removeprefix("torch."))

    def softplus(self, values):
        """Return log(1 + exp(v))."""
        return self.xp.logaddexp(self.xp.zeros_like(values), values)

    def codes(self, X, categories):
        """Return the positions of values in sorted categories, one array a column.

        A value that is not there becomes the number of categories.
        """
        xp, X = self.xp, self.densified(X)
        positions = xp.empty(X.shape, dtype=xp.int64, device=_device(X))
        for j, values in enumerate(categories):
            # Compared in the narrower dtype: 0.1 in float32 is another number.
            single = values.dtype == np.float32 or X.dtype == xp.float32
            dtype = xp.float32 if single else xp.float64
            column = xp.astype(X[:, j], dtype, copy=True)
            known = self.placed(values, dtype, X)
            position = xp.searchsorted(known, column).clip(max=len(known) - 1)
            found = known[position] == column
            positions[:, j] = xp.where(found, position, len(known))
        return positions

    def bounded_amplitudes(self, X, apply, power):
        """Return rows whose squares stay in range, and what undoes it.

        Rows of extreme size are divided by powers of two, which loses no bit;
        |u·x|^power is to be multiplied by the second value. None where there is no such
        row; otherwise ``apply(X)`` takes the place of X.
        """
        xp = self.xp
        with np.errstate(over="ignore"):
            squares = self.row_squares(X)
        bound = 2.0 ** (math.frexp(xp.finfo(X.dtype).max)[1] // 2)
        extreme = (squares > bound) | (squares < 1 / bound)
        if not bool(xp.any(extreme)):
            return None
        block = apply(X)
        sizes = xp.frexp(self.as_float64(self.largest_of_rows(block)))[1]
        exponents = xp.where(extreme, sizes, 0)
        # In two steps: the power of two of a subnormal row is out of range.
        half = -exponents // 2
        for part in (half, -exponents - half):
            factors = xp.exp2(xp.astype(part, xp.float64))
            block = self.scale_rows(block, xp.astype(factors, block.dtype))
        with np.errstate(over="ignore"):
            return block, xp.exp2(xp.astype(exponents, xp.float64) * power)

    def unit_rows(self, X, bias):
        """Return rows over their norms, and the norms, both with an entry √bias more.

        Rows are first divided by their largest entry, so that no square leaves the
        range of float64; a zero row stays zero.
        """
        xp = self.xp
        sizes = self.as_float64(self.largest_of_rows(X))
        sizes = xp.where(sizes == 0, 1.0, sizes)
        X = self.divide_rows(self.as_float64(X), sizes)
        norms = xp.sqrt(self.row_squares(X))
        full = xp.hypot(sizes * norms, xp.full_like(norms, math.sqrt(bias)))
        share = xp.where(full > 0, sizes / xp.where(full > 0, full, 1.0), 0.0)
        return self.scale_rows(X, share), full

    matern_correlation = special.matern_correlation
    matern_slope = special.matern_slope
    binomial_squares = special.binomial_squares
    optical_angles = special.optical_angles

    # What NumPy's arrays and most tensors need no more for.

    def generated_products(self, X, keys, start, stop, scale):
        """Return scale·XΩᵀ for the matrix of each key, made on the way, or None."""
        return None

    def memory_limit(self, like):
        """Return what a fit may take on the device of `like`; None: what is here."""
        return None

    def tile_rows(self, like):
        """Return the most rows of a tile of phases.

        1024 rows by 4096 frequencies are 16 MB in float32, large enough for the matrix
        product to run at its full speed.
        """
        return 1024

    def tile_size(self, like):
        """Return the memory and the most rows of a tile of exact values."""
        return 32 * 2**20, 128


class ArrayAlgebra:
    """Dense linear algebra of one library, in float64 unless said otherwise."""

    xp: Any

    def identity(self, n, like):
        """Return the identity matrix."""
        return self.xp.eye(n, dtype=self.xp.float64, device=_device(like))

    def add_to_diagonal(self, matrix, number):
        """Add a number to the diagonal."""
        diagonal = self.xp.arange(len(matrix), device=_device(matrix))
        matrix[diagonal, diagonal] += number

    def log_determinant(self, factor):
        """Return log det LLᵀ as a float."""
        return 2 * float(self.xp.sum(self.xp.log(self.xp.linalg.diagonal(factor))))

    def norm(self, values):
        """Return the root of the sum of squares as a float."""
        with np.errstate(over="ignore"):
            size = float(self.xp.linalg.vector_norm(values))
        if size == math.inf:
            largest = float(self.xp.max(abs(values)))
            if largest < math.inf:
                return largest * float(self.xp.linalg.vector_norm(values / largest))
        return size


def _device(like):
    """Return where an array lies, as its namespace names it; None: a sparse matrix."""
    return getattr(like, "device", None)
