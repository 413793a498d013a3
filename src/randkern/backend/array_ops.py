"""Array primitives: those that follow the array API standard, and NumPy's.

:class:`ArrayOps` is the interface of an array library to the packages above. What the
array API standard covers is written here, over the library's namespace ``xp`` (from
the array-api-compat that scikit-learn vendors). Each backend adds the rest:
:class:`NumpyOps` here, and the tensors' in :mod:`randkern.backend.torch_ops`.
:func:`randkern.backend.namespace.ops_of` returns the primitives for an array;
``docs/architecture.md`` lists them.
"""

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
import scipy.special
from scipy.linalg.lapack import dpotri, dpstrf, dtpqrt

from randkern._sklearn import numpy_namespace
from randkern.backend import (
    counter,
    cpu,
    duals,
    hadamard,
    pairwise,
    skinny_gemm,
    sparse_phases,
    special,
)
from randkern.backend.blas import add_gram, factorise_upper, short_on_one_thread
from randkern.backend.compiled_loops import run_over_ranges
from randkern.backend.skinny_gemm import padded

# J_n is the first times sin θ plus the second times π − θ, as functions of cos θ.
_ARC_COSINES: dict[int, Any] = {
    0: (lambda c: 0.0, lambda c: 1.0),
    1: (lambda c: 1.0, lambda c: c),
    2: (lambda c: 3 * c, lambda c: 1 + 2 * c**2),
    4: (lambda c: 5 * c * (10 * c**2 + 11), lambda c: 24 * c**4 + 72 * c**2 + 9),
}


class ArrayOps:
    """Primitives of one array library.

    Results take their namespace, dtype and device from the array `like`, or from the
    first array. The names of those that are float64, whatever the dtype of that array,
    contain ``float64``.
    """

    xp: Any  # the library's array API namespace
    special: Any  # its special functions: expit, logsumexp, ndtr, softmax
    algebra: Any  # an ArrayAlgebra
    duals: Any  # dual activations
    hadamard: Any  # structured projections
    sparse: Any  # features of skeletons with sparse products
    skinny_gemm: Any  # products with few columns
    # What the primitives below need beyond the standard.
    placed: Any
    to_host: Any
    row_max_abs: Any

    def float64_like(self, values, like):
        """Return `values` in float64 on the device of `like`."""
        return self.placed(values, self.xp.float64, like)

    def asarray(self, values, like):
        """Return `values` in the dtype and on the device of `like`."""
        return self.placed(values, like.dtype, like)

    def as_float64(self, X):
        """Return X in float64, or X itself if it is float64."""
        return self.xp.astype(X, self.xp.float64, copy=False)

    def empty(self, shape, like):
        """Return an uninitialised array in the dtype and on the device of `like`."""
        return self.xp.empty(shape, dtype=like.dtype, device=_device(like))

    def float64_zeros(self, shape, like):
        """Return zeros in float64 on the device of `like`."""
        return self.xp.zeros(shape, dtype=self.xp.float64, device=_device(like))

    def float64_ones(self, shape, like):
        """Return ones in float64 on the device of `like`."""
        return self.xp.ones(shape, dtype=self.xp.float64, device=_device(like))

    def arange(self, n, like):
        """Return 0, ..., n − 1."""
        return self.xp.arange(n, device=_device(like))

    def flatnonzero(self, values):
        """Return the indices of the nonzero entries of a vector."""
        return self.xp.nonzero(values)[0]

    def largest_or_zero(self, values):
        """Return the largest value, or 0 if none is positive, as a float."""
        return max(float(self.xp.max(values)), 0.0) if 0 not in values.shape else 0.0

    def largest_code(self, codes):
        """Return the largest category code, or the largest known one."""
        return self.largest_or_zero(codes)

    def precision(self, dtype):
        """Return the distance from 1 to the next number of a dtype."""
        return float(self.xp.finfo(dtype).eps)

    def is_finite(self, values):
        """Return whether all values are finite."""
        return bool(self.xp.all(self.xp.isfinite(values)))

    def average(self, values, weights):
        """Return the weighted mean of a vector as a float."""
        if weights is None:
            return float(self.xp.mean(values))
        return float(values @ (weights / self.xp.sum(weights)))

    def fill_diagonal(self, values, number):
        """Set the diagonal of a matrix."""
        diagonal = self.xp.arange(min(values.shape), device=_device(values))
        values[diagonal, diagonal] = number

    def unique(self, values):
        """Return the sorted distinct values of a vector as a NumPy array."""
        return self.to_host(self.xp.unique_values(values))

    def hstack(self, parts):
        """Return matrices side by side."""
        return self.xp.concat(parts, axis=-1)

    def concatenate(self, parts, axis=0):
        """Concatenate arrays along an axis."""
        return self.xp.concat(parts, axis=axis)

    def float64_bincount(self, position, weights, n):
        """Return the sums of weights (None: 1) at n positions."""
        counts = self.xp.bincount(position, weights=weights, minlength=n)
        return self.xp.astype(counts, self.xp.float64)

    def numpy_dtype(self, array):
        """Return the dtype of an array as a NumPy dtype."""
        return np.dtype(str(array.dtype).removeprefix("torch."))

    def softplus(self, values):
        """Return log(1 + exp(v))."""
        return self.xp.logaddexp(self.xp.zeros_like(values), values)

    def codes(self, X, categories):
        """Return the positions of values in sorted categories, one array per column.

        The code of an unknown value is the number of categories.
        """
        xp = self.xp
        X = self.densified(X)
        positions = xp.empty(X.shape, dtype=xp.int64, device=_device(X))
        for j, values in enumerate(categories):
            # Compare in the narrower dtype: 0.1 in float32 is another number.
            single = values.dtype == np.float32 or X.dtype == xp.float32
            dtype = xp.float32 if single else xp.float64
            column = xp.astype(X[:, j], dtype, copy=True)
            known = self.placed(values, dtype, X)
            position = xp.searchsorted(known, column).clip(max=len(known) - 1)
            is_known = known[position] == column
            positions[:, j] = xp.where(is_known, position, len(known))
        return positions

    def unit_rows(self, X, bias):
        """Return rows divided by their norms, and the norms, with an extra entry √bias.

        Rows are first divided by their largest entry, so that no square leaves the
        range of float64; a zero row stays zero.
        """
        xp = self.xp
        root = math.sqrt(bias)
        sizes = self.as_float64(self.row_max_abs(X))
        sizes = xp.where(sizes > root, sizes, root or 1.0)
        X = self.divide_rows(self.as_float64(X), sizes)
        squares = self.squared_norms(X) + (root / sizes) ** 2
        # At 0 the root, which has no slope there, and its inverse are 0.
        positive = squares > 0
        norms = xp.sqrt(xp.where(positive, squares, 1.0))
        units = self.scale_rows(X, xp.where(positive, 1.0 / norms, 0.0))
        return units, xp.where(positive, sizes * norms, 0.0)

    matern_correlation = special.matern_correlation
    matern_slope = special.matern_slope
    binomial_squares = special.binomial_squares
    optical_angles = special.optical_angles

    # Defaults, which some libraries replace.

    def arc_cosine(self, cosine, angle, order):
        """Return J_n(θ) of Cho & Saul 2009, for the order n = 0, 1, 2 or 4.

        Tensors are differentiated in the cosine: the derivative is n² J_{n−1}(θ). The
        value is that of the angle, since rounding errors of the angle cancel only
        between sines and cosines that are its own.
        """
        c = self.xp.cos(angle)
        of_sine, of_rest = _ARC_COSINES[order]
        return of_sine(c) * self.xp.sin(angle) + of_rest(c) * (math.pi - angle)

    def constant(self, owner, name, like, make):
        """Return what `make` returns as an array like `like`.

        On a device it is cached under `name` for the lifetime of `owner`.
        """
        return np.asarray(make())

    def full_precision(self, like):
        """Return a context in which products keep the precision of `like`."""
        return nullcontext()

    def precise_product(self, X, Y):
        """Return XY with all digits of X."""
        return X @ Y

    def lasting(self, make):
        """Return what `make` returns, and whether later calls may reuse it."""
        return make(), True

    def densified(self, X):
        """Return rows as a dense array."""
        return X

    def exp_of(self, values):
        """Return exponentials, which may overwrite the values."""
        return self.xp.exp(values)

    def log1p_of(self, values):
        """Return log(1 + v), which may overwrite the values v."""
        return self.xp.log1p(values)

    def map_rows(self, function, values):
        """Return `function` of each row of values, which may be overwritten."""
        return function(values)

    def squared_norms(self, X):
        """Return the squared norms of rows in the dtype of X."""
        return (X * X).sum(axis=1)

    def float64_squared_norms(self, X):
        """Return the squared norms of rows in float64."""
        return self.squared_norms(self.as_float64(X))

    def scale_rows(self, X, factors):
        """Multiply each row by its factor."""
        return X * factors[:, None]

    def divide_rows(self, X, sizes):
        """Divide each row by its size."""
        return X / sizes[:, None]

    def row_hashes(self, X, multipliers):
        """Return Σ_j b_ij m_j modulo 2⁶⁴ for mixed bits b_ij of X, uint64 on the host.

        X may hold numbers of 4 or 8 bytes, and the multipliers are int64. −0 has the
        hash of 0.
        """
        integers = self.xp.int64 if X.dtype.itemsize == 8 else self.xp.int32
        bits = self.xp.astype((X + 0).view(integers), self.xp.int64)  # −0 is 0
        # Masks make shifts of negative numbers logical.
        bits = bits ^ ((bits >> 32) & 0xFFFFFFFF) ^ ((bits >> 52) & 0xFFF)
        hashes = (bits * self.placed(multipliers, self.xp.int64, X)).sum(1)
        return self.to_host(hashes).view(np.uint64)

    def memory_limit(self, like):
        """Return the memory limit on the device of `like`, None for the host."""
        return None

    def tile_rows(self, like):
        """Return the largest number of rows of a tile of phases.

        1024 rows by 4096 frequencies are 16 MB in float32, large enough for the matrix
        product to run at its full speed.
        """
        return 1024

    def tile_size(self, like):
        """Return the memory and largest number of rows of a tile of exact values."""
        return 32 * 2**20, 128


class ArrayAlgebra:
    """Dense linear algebra of one library, in float64 unless stated otherwise."""

    xp: Any

    def identity(self, n, like):
        """Return the identity matrix."""
        return self.xp.eye(n, dtype=self.xp.float64, device=_device(like))

    def add_to_diagonal(self, matrix, number):
        """Add a number, or one per entry, to the diagonal."""
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
    """Return the device of an array in its namespace, None for a sparse matrix."""
    return getattr(like, "device", None)


_ROWS = 1024
# Reflections per block in LAPACK.
_REFLECTIONS = 32


def _cubed(algebra, matrix, *args):
    """Count the operations of a decomposition, up to a factor near 1."""
    return max(matrix.shape) * min(matrix.shape) ** 2


def _eigen(algebra, matrix, *args):
    """Count the operations of eigenvalue and singular value problems, roughly."""
    return 4 * _cubed(algebra, matrix)


def _solved(algebra, factor, right, *args, **kwargs):
    """Count the operations of one triangular solve."""
    return len(factor) * right.size


class NumpyAlgebra(ArrayAlgebra):
    """LAPACK, on one thread where that takes little time."""

    xp = numpy_namespace

    def column_products(self, X, Y):
        """Return Σ_i x_ij y_ij for every column j."""
        if sp.issparse(X):
            return np.asarray(X.multiply(Y).sum(axis=0)).ravel()
        return np.einsum("ij,ij->j", X, Y)

    @short_on_one_thread(_cubed)
    def lower_factor(self, matrix):
        """Return the lower Cholesky factor of a matrix given by its upper triangle.

        The matrix is overwritten.
        """
        matrix = np.require(matrix, float, ["C", "W"])
        if not factorise_upper(matrix):
            raise np.linalg.LinAlgError(
                "the matrix is not positive definite in floating point; increase the "
                "penalty."
            )
        for start in range(0, len(matrix), _ROWS):
            block = matrix[start : start + _ROWS, : start + _ROWS]
            block[:] = np.triu(block, start)
        return matrix.T

    @short_on_one_thread(_solved)
    def factor_solve(self, factor, right):
        """Return the solution of LLᵀx = b, a vector or a matrix."""
        return scipy.linalg.cho_solve((factor, True), right, check_finite=False)

    @short_on_one_thread(_solved)
    def triangular_solve(self, factor, right, transposed=False):
        """Return L⁻¹b, or L⁻ᵀb."""
        return scipy.linalg.solve_triangular(
            factor,
            right,
            lower=True,
            trans="T" if transposed else "N",
            check_finite=False,
        )

    def extended_factor(self, factor, rows):
        """Return the lower factor of LLᵀ + RᵀR in O(n²) operations per row of R.

        Householder reflections of the rows of Lᵀ and of R keep Lᵀ triangular.
        """
        if not len(rows):
            return factor
        block = min(_REFLECTIONS, len(factor))
        upper, _, _, info = dtpqrt(0, block, factor.T, rows)
        if info:
            raise np.linalg.LinAlgError("the factor could not be extended.")
        lower = np.triu(upper).T
        return lower * np.where(lower.diagonal() < 0, -1.0, 1.0)

    @short_on_one_thread(_cubed)
    def inverse_by_factor(self, factor):
        """Return the inverse of LLᵀ."""
        inverse, info = dpotri(factor, lower=1)
        if info:
            raise np.linalg.LinAlgError(
                "the covariance is singular; increase noise, or drop duplicate rows."
            )
        # Fill the upper triangle in place: D x D matrices take most of the memory.
        for start in range(0, len(inverse), _ROWS):
            rows = slice(start, start + _ROWS)
            inverse[rows, rows.stop :] = inverse[rows.stop :, rows].T
            corner = np.tril(inverse[rows, rows])
            inverse[rows, rows] = corner + np.tril(corner, -1).T
        return inverse

    @short_on_one_thread(_eigen)
    def shortest_solution(self, matrix, right):
        """Return the minimum-norm minimiser x of ‖Ax − b‖ for a symmetric A."""
        return scipy.linalg.lstsq(matrix, right)[0]

    @short_on_one_thread(_cubed)
    def pivoted_factor(self, gram):
        """Return F with FFᵀ = K up to rounding, and its pivots, one per rank of K.

        F comes from a pivoted Cholesky factorisation: its rows at the pivots, in their
        order, are lower triangular, and columns beyond the rank are zero. The Gram
        matrix is overwritten.
        """
        # The transpose is Fortran-ordered, so that nothing is copied.
        factor, pivots, rank, info = dpstrf(gram.T, lower=1, overwrite_a=1)
        if info < 0:
            raise np.linalg.LinAlgError(
                "the Gram matrix contains NaN or infinity; scale the input down."
            )
        pivots = pivots - 1
        out = np.zeros((len(gram), padded(rank)))
        for start in range(0, len(gram), _ROWS):  # avoids a third matrix
            rows = slice(start, start + _ROWS)
            out[pivots[rows], :rank] = np.tril(factor[rows, :rank], start)
        return out, pivots[:rank]

    @short_on_one_thread(_eigen)
    def leading_eigenpairs(self, matrix, rank):
        """Return the leading eigenpairs, descending, of a matrix's upper triangle."""
        n = len(matrix)
        values, vectors = scipy.linalg.eigh(
            matrix.T, lower=True, subset_by_index=(max(0, n - rank), n - 1),
            overwrite_a=True, check_finite=False,
        )  # fmt: skip
        return values[::-1], vectors[:, ::-1]

    @short_on_one_thread(_cubed)
    def inverse_factor(self, gram):
        """Return R⁻¹ for RᵀR = gram, given by its upper triangle."""
        factor = scipy.linalg.cholesky(gram, lower=False, check_finite=False)
        return scipy.linalg.solve_triangular(factor, np.eye(len(factor)))

    @short_on_one_thread(_cubed)
    def qr(self, matrix):
        """Return Q and R of the QR decomposition."""
        return scipy.linalg.qr(matrix, mode="economic", check_finite=False)

    @short_on_one_thread(_eigen)
    def symmetric_eigenpairs(self, matrix):
        """Return eigenvalues, ascending, and eigenvectors of a C-contiguous matrix.

        The matrix is float64; only its upper triangle is read, and it is overwritten.
        """
        # The transpose of a C-ordered array is Fortran-ordered: LAPACK works in place
        # on its lower triangle, our upper one.
        return scipy.linalg.eigh(
            matrix.T, lower=True, overwrite_a=True, check_finite=False, driver="evd"
        )


# Rows per tile, so that a function's temporary arrays stay in the cache.
_MAPPED_ROWS = 32


class NumpyOps(ArrayOps):
    """NumPy's primitives, and loops compiled by Numba."""

    xp, special = numpy_namespace, scipy.special
    algebra = NumpyAlgebra()
    duals = duals
    hadamard = hadamard
    skinny_gemm = skinny_gemm
    sparse = sparse_phases

    add_gram = staticmethod(add_gram)
    cauchy_kernel = staticmethod(pairwise.cauchy_kernel)
    cos_sin_pairs = staticmethod(cpu.cos_sin_pairs)
    cosines = staticmethod(cpu.cosines)
    densified = staticmethod(pairwise.densified)
    manhattan_distances = staticmethod(pairwise.manhattan_distances)
    modulus_power = staticmethod(cpu.modulus_power)
    patch_products = staticmethod(pairwise.patch_products)
    row_hashes = staticmethod(pairwise.row_hashes)
    squared_norms = staticmethod(pairwise.squared_norms)
    run_over_ranges = staticmethod(run_over_ranges)
    scaled_squared_distances = staticmethod(pairwise.scaled_squared_distances)

    bessel_k0 = staticmethod(scipy.special.k0)

    def key(self, like):
        """Return a key that distinguishes arrays that are not interchangeable."""
        return like.dtype.char, "host"

    def placed(self, values, dtype, like):
        """Return values cast to a dtype."""
        return np.asarray(values, dtype=dtype)

    def to_host(self, array):
        """Return a NumPy array; this is the only transfer from a device to the host."""
        return np.asarray(array)

    def copy(self, array):
        """Return a copy."""
        return array.copy()

    def contiguous(self, array):
        """Return a C-contiguous array."""
        return np.ascontiguousarray(array)

    def take(self, X, rows):
        """Return the rows at the indices in a NumPy array."""
        return X[rows]

    def multiply(self, values, factor, out):
        """Write values·factor to `out`."""
        np.multiply(values, factor, out=out)

    def exp_of(self, values):
        return np.exp(values, out=values)

    def log1p_of(self, values):
        return np.log1p(values, out=values)

    def map_rows(self, function, values):
        def task(start, stop):
            for first in range(start, stop, _MAPPED_ROWS):
                part = values[first : min(first + _MAPPED_ROWS, stop)]
                part[:] = function(part)

        run_over_ranges(task, len(values), values.size)
        return values

    def concatenate(self, parts, axis=0):
        if any(map(sp.issparse, parts)):
            return (sp.hstack if axis else sp.vstack)(parts, format="csr")
        return super().concatenate(parts, axis)

    def float64_row_sums(self, X):
        """Return the sums of rows in float64."""
        return np.asarray(X.astype(np.float64).sum(axis=1)).ravel()

    def float64_squared_norms(self, X):
        if sp.issparse(X):
            return self.squared_norms(X.astype(np.float64))
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)

    def column_max_abs(self, values):
        """Return the largest absolute value of every column."""
        if sp.issparse(values):
            return abs(values).max(axis=0).toarray().ravel()
        return np.abs(values).max(axis=0, initial=0.0)

    def row_max_abs(self, X):
        """Return the largest absolute value of every row."""
        return self.column_max_abs(X.T)

    def scale_rows(self, X, factors):
        if sp.issparse(X):
            return sp.csr_array(sp.diags_array(factors) @ X)
        return super().scale_rows(X, factors)

    def divide_rows(self, X, sizes):
        if sp.issparse(X):
            X = sp.csr_array(X, copy=True)
            X.data /= np.repeat(sizes, np.diff(X.indptr))
            return X
        return super().divide_rows(X, sizes)

    def with_bias(self, X, scale, bias):
        """Return X·scale, with a last column `bias` unless that is 0."""
        dtype = X.dtype
        scale = np.asarray(scale, dtype=dtype)
        if sp.issparse(X):
            X = X.multiply(scale).tocsr() if np.any(scale != 1) else X
            if bias:
                entries = np.full((X.shape[0], 1), bias, dtype=dtype)
                X = sp.hstack([X, sp.csr_array(entries)], format="csr")
            return X
        if not bias:
            return X * scale if np.any(scale != 1) else X
        out = np.empty((X.shape[0], X.shape[1] + 1), dtype=dtype)
        np.multiply(X, scale, out=out[:, :-1])
        out[:, -1] = bias
        return out

    def random_matrix(
        self, key, distribution, row_start, row_stop, col_start, col_stop, like
    ):
        """Return entries of :func:`randkern.backend.counter.random_matrix`."""
        return counter.random_matrix(
            key, distribution, row_start, row_stop, col_start, col_stop
        )

    def modulus_in_place(self, real, imag, power):
        """Return (real² + imag²)^(power/2), which may overwrite `real`."""
        cpu.modulus_power(real, imag, power, 1.0, real)
        return real

    def searchsorted(self, sorted_values, values):
        """Return the positions of values in a sorted vector, and whether they match."""
        position = np.searchsorted(sorted_values, values)
        position = np.minimum(position, len(sorted_values) - 1)
        return position, sorted_values[position] == values

    def log_matern(self, z, nu):
        """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)); the value at z = 0 is arbitrary."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            bessel = scipy.special.kve(nu, z)
            log = nu * np.log(z) + np.log(bessel) - z
        log += (1 - nu) * math.log(2) - scipy.special.gammaln(nu)
        # K_ν overflows near 0; there only a few terms of its series matter.
        small = np.isposinf(bessel) & (z > 0)
        if small.any():
            log[small] = np.log(_small_argument_series(z[small], nu))
        return log

    def hypergeometric(self, cosine, m):
        """Return ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1]."""
        if m == 1:
            # The complete elliptic integral E of parameter k² = 4c/(1 + c)².
            parameter = np.minimum(4 * cosine / (1 + cosine) ** 2, 1)
            return (1 + cosine) * (2 / math.pi) * scipy.special.ellipe(parameter)
        values = scipy.special.hyp2f1(-m / 2, -m / 2, 1.0, cosine * cosine)
        return values.astype(cosine.dtype, copy=False)


def _small_argument_series(z, nu):
    """Return Σ_{k<ν} (−z²/4)^k/(k! (ν−1)···(ν−k)) (Abramowitz & Stegun 9.6.9-11).

    What it omits is of order z^{2ν}, which vanishes where K_ν overflows.
    """
    term = np.ones_like(z)
    total = np.ones_like(z)
    for k in range(1, min(40, math.ceil(nu))):
        term = term * (-(z**2) / 4) / (k * (nu - k))
        total += term
    return total
