"""The primitives on NumPy arrays and SciPy's CSR matrices.

:class:`NumpyOps` is what :func:`randkern.backend.namespace.ops_of` returns for them.
"""

import math
from contextlib import nullcontext

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from scipy import special
from sklearn.externals.array_api_compat import numpy as array_namespace

from randkern.backend import counter, cpu, duals, hadamard, skinny_gemm, sparse_phases
from randkern.backend.array_ops import LEAST_CHANGE, ArrayOps
from randkern.backend.distances import scaled_squared_distances
from randkern.backend.numpy_algebra import NumpyAlgebra
from randkern.backend.patches import patch_products
from randkern.backend.threads import run_over_ranges

# Rows of a tile of which the temporary arrays of a function stay in the cache.
_MAPPED_ROWS = 32


class NumpyOps(ArrayOps):
    """NumPy's primitives, and loops that Numba compiles."""

    xp, special = array_namespace, special
    algebra = NumpyAlgebra()
    duals, hadamard, skinny_gemm = duals, hadamard, skinny_gemm
    sparse = sparse_phases

    add_gram = staticmethod(cpu.add_gram)
    cauchy_kernel = staticmethod(cpu.cauchy_kernel)
    cos_sin_pairs = staticmethod(cpu.cos_sin_pairs)
    cosines = staticmethod(cpu.cosines)
    manhattan_distances = staticmethod(cpu.manhattan_distances)
    modulus_power = staticmethod(cpu.modulus_power)
    patch_products = staticmethod(patch_products)
    run_over_ranges = staticmethod(run_over_ranges)
    scaled_squared_distances = staticmethod(scaled_squared_distances)

    bessel_k0 = staticmethod(special.k0)

    def key(self, like):
        """Return what tells arrays apart that cannot stand for each other."""
        return like.dtype.char, "host"

    def placed(self, values, dtype, like):
        """Return values in a dtype."""
        return np.asarray(values, dtype=dtype)

    def constant(self, owner, name, like, make):
        """Return what `make` returns as an array like `like`.

        On a device it is cached as long as `owner` lives, under `name`.
        """
        return np.asarray(make())

    def full_precision(self, like):
        """Return a context in which products keep the precision of `like`."""
        return nullcontext()

    def lasting(self, make):
        """Return what `make` returns, and whether later calls may use it too."""
        return make(), True

    def to_host(self, array):
        """Return a NumPy array: the only way from a device to the host."""
        return np.asarray(array)

    def copy(self, array):
        """Return a copy."""
        return array.copy()

    def contiguous(self, array):
        """Return an array whose rows lie one after the other."""
        return np.ascontiguousarray(array)

    def densified(self, X):
        """Return rows as a dense array."""
        return X.toarray() if sp.issparse(X) else X

    def take(self, X, rows):
        """Return rows by their numbers, which are a NumPy array."""
        return X[rows]

    def multiply(self, values, factor, out):
        """Write values·factor to `out`."""
        np.multiply(values, factor, out=out)

    def exp_of(self, values):
        """Overwrite values by their exponentials."""
        return np.exp(values, out=values)

    def log1p_of(self, values):
        """Overwrite values v by log(1 + v)."""
        return np.log1p(values, out=values)

    def map_rows(self, function, values):
        """Overwrite values by `function` of them, some rows at a time per thread."""

        def task(start, stop):
            for first in range(start, stop, _MAPPED_ROWS):
                part = values[first : min(first + _MAPPED_ROWS, stop)]
                part[:] = function(part)

        run_over_ranges(task, len(values), values.size)
        return values

    def row_sums(self, X):
        """Return the sums of rows in float64."""
        return np.asarray(X.astype(np.float64).sum(axis=1)).ravel()

    def row_squares(self, X):
        """Return the squared norms of rows in the dtype of X."""
        if sp.issparse(X):
            return np.asarray(X.multiply(X).sum(axis=1)).ravel()
        return np.einsum("ij,ij->i", X, X)

    def squared_norms(self, X):
        """Return the squared norms of rows in float64."""
        if sp.issparse(X):
            return self.row_squares(X.astype(np.float64))
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)

    def largest_sizes(self, values):
        """Return the largest absolute value of every column."""
        if sp.issparse(values):
            return abs(values).max(axis=0).toarray().ravel()
        return np.abs(values).max(axis=0, initial=0.0)

    def largest_of_rows(self, X):
        """Return the largest absolute value of every row."""
        return self.largest_sizes(X.T)

    def scale_rows(self, X, factors):
        """Return rows times a factor each."""
        if sp.issparse(X):
            return sp.csr_array(sp.diags_array(factors) @ X)
        return X * factors[:, None]

    def divide_rows(self, X, sizes):
        """Return rows over a number each."""
        if sp.issparse(X):
            X = sp.csr_array(X, copy=True)
            X.data /= np.repeat(sizes, np.diff(X.indptr))
            return X
        return X / sizes[:, None]

    def with_bias(self, X, scale, bias):
        """Return X·scale, with a last column `bias` if that is not 0."""
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

    def random_matrix(self, key, law, row_start, row_stop, col_start, col_stop, like):
        """Return entries of :func:`randkern.backend.counter.random_matrix`."""
        return counter.random_matrix(key, law, row_start, row_stop, col_start, col_stop)

    def modulus_in_place(self, real, imag, power):
        """Return (real² + imag²)^(power/2), which may overwrite `real`."""
        cpu.modulus_power(real, imag, power, 1.0, real)
        return real

    def searchsorted(self, sorted_values, values):
        """Return where values are among sorted ones, and whether they are there."""
        position = np.searchsorted(sorted_values, values)
        position = np.minimum(position, len(sorted_values) - 1)
        return position, sorted_values[position] == values

    def minimise(self, function, start, tolerance, max_iter, n_pairs):
        """Return where a smooth function is least, by L-BFGS, and the iterations.

        It returns the value at a vector, a float, and the gradient there, of which no
        entry is above `tolerance` at the end.
        """
        options = {"gtol": tolerance, "ftol": LEAST_CHANGE, "maxcor": n_pairs}
        options |= {"maxiter": max_iter, "maxfun": 2 * max_iter}
        result = scipy.optimize.minimize(
            function, start, jac=True, method="L-BFGS-B", options=options
        )
        return result.x, int(result.nit)

    def log_matern(self, z, nu):
        """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)); at z = 0 anything."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            bessel = special.kve(nu, z)
            log = nu * np.log(z) + np.log(bessel) - z
        log += (1 - nu) * math.log(2) - special.gammaln(nu)
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
            return (1 + cosine) * (2 / math.pi) * special.ellipe(parameter)
        values = special.hyp2f1(-m / 2, -m / 2, 1.0, cosine * cosine)
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
