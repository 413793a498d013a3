"""The primitives for PyTorch tensors, on CPU or GPU.

The integral of the Bessel function K_ν is summed node by node: the quadrature converges
exponentially, in a fixed number of steps and in the memory of a few tensors.

:func:`randkern.backend.namespace.ops_of` returns :class:`TorchOps` for tensors. Only
`to_host` and functions that return Python numbers copy to the host; constants are
copied to the device once and cached there.
"""

import math
from functools import partial

import numpy as np
import torch
from scipy.special import gammaln
from sklearn.externals.array_api_compat import torch as array_namespace

from randkern.backend import (
    counter,
    torch_constants,
    torch_duals,
    torch_hadamard,
    torch_random,
    torch_skinny_gemm,
    torch_slopes,
    torch_sparse,
    torch_trig,
)
from randkern.backend.array_ops import ArrayAlgebra, ArrayOps
from randkern.backend.pairwise import CANCELLED

# Nodes of the integral of K_ν.
_NODES = 160
# Where the integrand's logarithm is this far below its largest value, the rest is
# negligible in float64.
_DECAY = 38.0
_MIN_ARGUMENT = 1e-15
_ANGLE_NODES = 128


def log_matern(z, nu):
    """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)).

    K_ν(z) = ∫ exp(−z cosh t) cosh(νt) dt over t > 0 is half the integral of exp(νt −
    z cosh t) over all t, whose integrand is largest at sinh t = ν/z. The trapezoidal
    rule converges exponentially on the whole line.
    """
    z = z.double().clip(min=_MIN_ARGUMENT)
    peak = torch.asinh(nu / z)
    top = nu * peak - z * torch.cosh(peak)
    first = peak - _reach(z, nu, peak, top, -1.0)
    step = (peak + _reach(z, nu, peak, top, 1.0) - first) / _NODES
    total = torch.zeros_like(z)
    for node in range(_NODES + 1):
        t = first + step * node
        total += torch.exp(nu * t - z * torch.cosh(t) - top)
    constant = -nu * math.log(2) - float(gammaln(nu))
    return constant + nu * torch.log(z) + top + torch.log(step * total)


def _reach(z, nu, peak, top, side):
    """Return how far from its peak the integrand matters, by doubling and bisection."""
    high = torch.full_like(z, 1e-4)
    for _ in range(22):
        t = peak + side * high
        small = top - (nu * t - z * torch.cosh(t)) > _DECAY
        high = torch.where(small, high, 2 * high)
    return high


def _angle_nodes():
    """Return nodes φ in (0, π) and weights of the tanh-sinh rule, divided by π."""
    t = np.linspace(-3.6, 3.6, _ANGLE_NODES)
    inner = 0.5 * np.pi * np.sinh(t)
    # (1 + tanh u)/2 without cancellation for u far below 0.
    share = 1.0 / (1.0 + np.exp(-2 * inner))
    weights = 0.25 * np.pi * np.cosh(t) / np.cosh(inner) ** 2
    return np.pi * share, weights * (t[1] - t[0])


def hypergeometric(cosine, m):
    """Return ₂F₁(−m/2, −m/2; 1; c²) = Σ_j C(m/2, j)² c^{2j} for c in [0, 1].

    By Parseval's identity, this is the mean of |1 + c e^{iθ}|^m over the circle, an
    integral over φ = π − θ of ((1 − c)² + 4c sin²(φ/2))^{m/2}, whose singularity at
    c = 1 lies at an endpoint.
    """
    total = torch.zeros_like(cosine)
    gap = (1 - cosine) ** 2
    for angle, weight in zip(*_angle_nodes(), strict=True):
        size = gap + 4 * math.sin(angle / 2) ** 2 * cosine
        total += float(weight) * size ** (m / 2)
    return total


_EPS = 2.0**-52
# Columns and rows per block of reflections.
_REFLECTIONS = 64


class TorchAlgebra(ArrayAlgebra):
    """PyTorch's linear algebra, described in ``array_ops.NumpyAlgebra``."""

    xp = array_namespace

    def column_products(self, X, Y):
        return (X * Y).sum(dim=0)

    def lower_factor(self, matrix):
        factor, info = torch.linalg.cholesky_ex(matrix.T)
        if int(info):
            raise np.linalg.LinAlgError(
                "the matrix is not positive definite in floating point; increase the "
                "penalty."
            )
        return factor

    def factor_solve(self, factor, right):
        # torch.cholesky_solve would copy the factor each time.
        half = self.triangular_solve(factor, right)
        return self.triangular_solve(factor, half, transposed=True)

    def triangular_solve(self, factor, right, transposed=False):
        matrix = factor.T if transposed else factor
        columns = right[:, None] if right.ndim == 1 else right
        solved = torch.linalg.solve_triangular(matrix, columns, upper=transposed)
        return solved[:, 0] if right.ndim == 1 else solved

    def extended_factor(self, factor, rows):
        """Return the lower factor of LLᵀ + RᵀR in O(n²) operations per row of R.

        Reflections of blocks of columns of Lᵀ and of blocks of R keep Lᵀ triangular.
        """
        upper = factor.T.clone()
        n = len(factor)
        for part in rows.split(_REFLECTIONS):
            part = part.clone()
            for start in range(0, n, _REFLECTIONS):
                block = slice(start, min(start + _REFLECTIONS, n))
                both = torch.cat([upper[block, start:], part[:, start:]])
                width = block.stop - start
                turned = torch.linalg.qr(both[:, :width], mode="complete").Q.T @ both
                upper[block, start:] = turned[:width].triu()
                part[:, start:] = turned[width:]
        return (upper * torch.where(upper.diagonal() < 0, -1.0, 1.0)[:, None]).T

    def inverse_by_factor(self, factor):
        return torch.cholesky_inverse(factor)

    def shortest_solution(self, matrix, right):
        if not len(matrix):
            return right
        values, vectors = torch.linalg.eigh(matrix)
        sizes = values.abs()
        large = sizes > len(values) * _EPS * sizes.max()
        inverse = torch.where(large, 1.0 / torch.where(large, values, 1.0), 0.0)
        return vectors @ (inverse * (vectors.T @ right))

    def pivoted_factor(self, gram):
        """Return F with FFᵀ = K up to rounding, and its pivots, one per rank of K.

        F comes from a pivoted Cholesky factorisation, column by column: its rows at the
        pivots, in their order, are lower triangular. It stops where LAPACK's does.
        """
        n = len(gram)
        factor = torch.zeros_like(gram)
        left = gram.diagonal().clone()
        pivots = torch.zeros(n, dtype=torch.int64, device=gram.device)
        if not bool(torch.isfinite(left).all()):
            raise np.linalg.LinAlgError(
                "the Gram matrix contains NaN or infinity; scale the input down."
            )
        threshold = n * _EPS * float(left.max())
        for rank in range(n):
            pivot = left.argmax()
            largest = left[pivot]
            if not float(largest) > threshold:
                return factor[:, :rank].clone(), pivots[:rank]
            row = factor.index_select(0, pivot[None])[0, :rank]
            column = gram.index_select(1, pivot[None])[:, 0] - factor[:, :rank] @ row
            # Rows that are already pivots, and what remains of them, are exactly 0.
            column = torch.where(torch.isinf(left), 0.0, column / largest.sqrt())
            factor[:, rank] = column
            pivots[rank] = pivot
            left = torch.where(torch.isinf(left), left, left - column * column)
            left[pivot] = -torch.inf
        return factor, pivots

    def cholesky(self, matrix):
        """Return the lower Cholesky factor, or None if there is none."""
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor if int(info) == 0 else None

    def inverse_factor(self, gram):
        gram = torch.triu(gram) + torch.triu(gram, 1).T
        factor = torch.linalg.cholesky(gram, upper=True)
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        return torch.linalg.solve_triangular(factor, identity, upper=True)

    def leading_eigenpairs(self, matrix, rank):
        values, vectors = torch.linalg.eigh(matrix, UPLO="U")
        return values.flip(0)[:rank], vectors.flip(1)[:, :rank]

    def smallest_eigenvalue(self, factor):
        """Estimate the smallest eigenvalue of LLᵀ by inverse iteration."""
        where = {"dtype": factor.dtype, "device": factor.device}
        generator = torch.Generator(device=factor.device).manual_seed(0)
        v = torch.randn(len(factor), 1, generator=generator, **where)
        size = 1.0
        for _ in range(8):
            v = self.factor_solve(factor, v / torch.linalg.vector_norm(v))
            size = float(torch.linalg.vector_norm(v))
        return 1.0 / size

    def symmetric_eigenpairs(self, matrix):
        return torch.linalg.eigh(matrix, UPLO="U")

    def qr(self, matrix):
        return torch.linalg.qr(matrix)


# With up to this many columns, differences cost no more than a product.
_FEW_COLUMNS = 16
# Entries of a temporary array of differences.
_DIFFERENCES = 2**24
_ROWS_F32 = 2048  # longer float32 sums lose digits


class TorchOps(ArrayOps):
    """PyTorch's primitives.

    Methods without a docstring do what those of ``array_ops.NumpyOps`` do.
    """

    xp, special = array_namespace, torch.special
    algebra = TorchAlgebra()
    duals, hadamard = torch_duals, torch_hadamard
    skinny_gemm, sparse = torch_skinny_gemm, torch_sparse

    constant = staticmethod(torch_constants.constant)
    full_precision = staticmethod(torch_constants.full_precision)
    precise_product = staticmethod(torch_constants.product)
    key = staticmethod(torch_constants.key)
    lasting = staticmethod(torch_constants.lasting)
    memory_limit = staticmethod(torch_constants.memory_limit)
    tile_rows = staticmethod(torch_constants.tile_rows)
    tile_size = staticmethod(torch_constants.tile_size)
    with_bias = staticmethod(torch_hadamard.with_bias)

    cos_sin_pairs = staticmethod(torch_trig.cos_sin_pairs)
    cosines = staticmethod(torch_trig.cosines)
    modulus_in_place = staticmethod(torch_trig.modulus_in_place)
    modulus_power = staticmethod(torch_trig.modulus_power)

    bessel_k0 = staticmethod(torch_slopes.bessel_k0)
    hypergeometric = staticmethod(hypergeometric)
    log_matern = staticmethod(log_matern)

    def placed(self, values, dtype, like):
        """Return values in a dtype on the device of `like`."""
        frozen = isinstance(values, np.ndarray) and not values.flags.writeable
        # PyTorch has no read-only tensors, and shares memory with other arrays.
        values = values.copy() if frozen else values
        return torch.as_tensor(values, dtype=dtype, device=like.device)

    def to_host(self, array):
        return array.detach().cpu().numpy()

    def copy(self, array):
        return array.clone()

    def contiguous(self, array):
        return array.contiguous()

    def take(self, X, rows):
        """Return the rows at the indices in a NumPy array or a tensor."""
        return X[torch.as_tensor(rows, device=X.device)]

    def multiply(self, values, factor, out):
        out[...] = values * factor

    def matern_correlation(self, squared, nu):
        return torch_slopes.with_slope(
            squared,
            lambda squared: super(TorchOps, self).matern_correlation(squared, nu),
            lambda squared: -0.5 * self.matern_slope(squared, nu),
        )

    def matern_slope(self, squared, nu):
        slope = partial(super().matern_slope, nu=nu)
        # For ν ≤ 1 there is a cusp at 0.
        return slope(squared) if nu > 1 else torch_slopes.where_positive(squared, slope)

    def arc_cosine(self, cosine, angle, order):
        def slope(cosine, angle):
            if order > 0:
                return order**2 * self.arc_cosine(cosine, angle, order - 1)
            sines = (1.0 - cosine) * (1.0 + cosine)
            return torch_slopes.where_positive(sines, torch.rsqrt)

        return torch_slopes.with_slope(
            cosine,
            lambda cosine, angle: super(TorchOps, self).arc_cosine(
                cosine, angle, order
            ),
            slope,
            angle,
        )

    def float64_row_sums(self, X):
        return X.sum(dim=1, dtype=torch.float64)

    def column_max_abs(self, values):
        return values.abs().amax(dim=0)

    def row_max_abs(self, X):
        return X.detach().abs().amax(dim=1) if X.shape[1] else X.new_zeros(len(X))

    def random_matrix(
        self, key, distribution, row_start, row_stop, col_start, col_stop, like
    ):
        """Return entries in float32, generated on the device of `like`."""
        rectangle = row_start, row_stop, col_start, col_stop
        if like.device.type == "cpu":
            return torch.from_numpy(
                counter.random_matrix(key, distribution, *rectangle)
            )
        return torch_random.random_matrix(key, distribution, *rectangle, like.device)

    def searchsorted(self, sorted_values, values):
        sorted_values = torch.as_tensor(sorted_values, device=values.device)
        dtype = torch.promote_types(sorted_values.dtype, values.dtype)
        if dtype == torch.bool:  # which searchsorted does not accept
            dtype = torch.uint8
        sorted_values = sorted_values.to(dtype)
        values = values.to(dtype)
        position = torch.searchsorted(sorted_values, values.contiguous())
        position = position.clip(max=len(sorted_values) - 1)
        return position, sorted_values[position] == values

    def entries_at(self, values, position):
        """Return the entries of a vector at positions, on the positions' device.

        The entries of a NumPy array of strings are a NumPy array.
        """
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
            return values[self.to_host(position)]
        return torch.as_tensor(values, device=position.device)[position]

    def scaled_squared_distances(self, X, Y, scale, same):
        """Return ‖(x − y)·scale‖² for all pairs of rows.

        It is ‖x‖² + ‖y‖² − 2x·y about the mean of Y, or computed from differences
        where that cancels or if there are few columns.
        """
        X = X * scale
        Y = X if same else Y * scale
        if X.shape[1] <= _FEW_COLUMNS:
            return _differences(X, Y, _add_square)
        center = Y.mean(dim=0)
        x, y = X - center, Y - center
        x_norms = (x * x).sum(dim=1)
        y_norms = (y * y).sum(dim=1)
        norms = x_norms[:, None] + y_norms
        squared = norms - 2.0 * torch_constants.product(x, y.T)
        # Infinite norms give nan, which is not above the bound.
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

    def manhattan_distances(self, X, Y, out):
        """Write the L1 distances between all pairs of rows."""
        X = X.to(out.dtype)
        Y = Y.to(out.dtype)
        if X.requires_grad or Y.requires_grad:  # cdist has no second derivatives
            out[...] = _differences(X, Y, _add_absolute)
        else:
            out[...] = torch.cdist(X, Y, p=1.0)

    def cauchy_kernel(self, X, Y, out):
        """Write Π_k 1/(1 + (x_k − y_k)²) for all pairs of rows."""
        X = X.to(out.dtype)
        Y = Y.to(out.dtype)
        product = _differences(X, Y, lambda total, d: total * (1.0 + d * d), 1.0)
        out[...] = 1.0 / product

    def add_gram(self, Z, gram):
        """Add ZᵀZ of a block of rows to all of `gram`, in float64.

        Products of at most 2048 float32 rows take 64 MiB, or 512 rows of `gram`.
        """
        if Z.dtype == gram.dtype:
            gram.addmm_(Z.T, Z)
            return
        # A product, and its float64 copy.
        step = max(512, 2**26 // (12 * max(len(gram), 1)))
        for part in Z.split(_ROWS_F32):
            for columns, rows in zip(
                part.split(step, dim=1), gram.split(step), strict=True
            ):
                rows += torch_constants.product(columns.T, part)

    def patch_products(self, a, b, rows, columns):
        """Return Σ_k a[v, k, i]·b[v, k, j], in one batched product."""
        return torch_constants.product(a[:, :, rows].transpose(1, 2), b[:, :, columns])

    def run_over_ranges(self, task, n, nanoseconds):
        """Call ``task(0, n)``: PyTorch parallelises each of its steps."""
        task(0, n)


def _add_square(total, difference):
    return total + difference * difference


def _add_absolute(total, difference):
    return total + abs(difference)


def _differences(X, Y, add, total=0.0):
    """Accumulate `add` over the differences in every column."""
    total = torch.full((len(X), len(Y)), total, dtype=X.dtype, device=X.device)
    for x, y in zip(X.T, Y.T, strict=True):
        total = add(total, x[:, None] - y)
    return total
