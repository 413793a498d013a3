"""The primitives on PyTorch tensors, of the CPU or of a GPU.

:class:`TorchOps` is what :func:`randkern.backend.namespace.ops_of` returns for them.
Nothing is copied to the host but by its `to_host` and by what returns a Python number;
what is constant is copied to the device once and kept there.
"""

import numpy as np
import torch
from sklearn.externals.array_api_compat import torch as array_namespace

from randkern.backend import (
    counter,
    torch_constants,
    torch_devices,
    torch_duals,
    torch_hadamard,
    torch_kernels,
    torch_random,
    torch_skinny_gemm,
    torch_sparse,
    torch_special,
    torch_trig,
)
from randkern.backend.array_ops import LEAST_CHANGE, ArrayOps
from randkern.backend.distances import CANCELLED
from randkern.backend.torch_algebra import TorchAlgebra

# In so few columns differences are taken, which cost no more than a product.
_FEW_COLUMNS = 16
# Entries of a temporary array of differences.
_DIFFERENCES = 2**24
_ROWS_F32 = 2048  # longer float32 sums lose digits

# PyTorch's L-BFGS learns nothing from steps s that change the gradient by y with
# s·y < 1e-10, as those near the minimum of a function of order one do: it gets one that
# is so many times larger.
_UNIT = 1e10


class TorchOps(ArrayOps):
    """PyTorch's primitives, and fused kernels where there are some for the device."""

    xp, special = array_namespace, torch.special
    algebra = TorchAlgebra()
    duals, hadamard = torch_duals, torch_hadamard
    skinny_gemm, sparse = torch_skinny_gemm, torch_sparse

    constant = staticmethod(torch_constants.constant)
    full_precision = staticmethod(torch_constants.full_precision)
    key = staticmethod(torch_constants.key)
    lasting = staticmethod(torch_constants.lasting)
    memory_limit = staticmethod(torch_devices.memory_limit)
    tile_rows = staticmethod(torch_devices.tile_rows)
    tile_size = staticmethod(torch_devices.tile_size)

    cos_sin_pairs = staticmethod(torch_trig.cos_sin_pairs)
    cosines = staticmethod(torch_trig.cosines)
    modulus_in_place = staticmethod(torch_trig.modulus_in_place)
    modulus_power = staticmethod(torch_trig.modulus_power)

    bessel_k0 = staticmethod(torch.special.modified_bessel_k0)
    hypergeometric = staticmethod(torch_special.hypergeometric)
    log_matern = staticmethod(torch_special.log_matern)

    def placed(self, values, dtype, like):
        """Return values in a dtype on the device of `like`."""
        frozen = isinstance(values, np.ndarray) and not values.flags.writeable
        # PyTorch has no arrays that are only read, and shares the others.
        values = values.copy() if frozen else values
        return torch.as_tensor(values, dtype=dtype, device=like.device)

    def densified(self, X):
        """Return rows, which are a dense tensor."""
        return X

    def to_host(self, array):
        """Return a NumPy array: the only way from a device to the host."""
        return array.detach().cpu().numpy()

    def copy(self, array):
        """Return a copy."""
        return array.clone()

    def contiguous(self, array):
        """Return a tensor whose rows lie one after the other."""
        return array.contiguous()

    def take(self, X, rows):
        """Return rows by their numbers, which are a NumPy array or a tensor."""
        return X[torch.as_tensor(rows, device=X.device)]

    def multiply(self, values, factor, out):
        """Write values·factor to `out`."""
        out[...] = values * factor

    def exp_of(self, values):
        """Return exponentials."""
        return torch.exp(values)

    def log1p_of(self, values):
        """Return log(1 + v)."""
        return torch.log1p(values)

    def map_rows(self, function, values):
        """Return `function` of values."""
        return function(values)

    def matern_correlation(self, squared, nu):
        """Return the Matérn correlation at squared distances r²."""
        if squared.requires_grad:
            # The root has no slope at 0, where the correlation is flat or has a cusp.
            squared = squared.clip(min=torch.finfo(squared.dtype).tiny)
        return super().matern_correlation(squared, nu)

    def row_sums(self, X):
        """Return the sums of rows in float64."""
        return X.sum(dim=1, dtype=torch.float64)

    def row_squares(self, X):
        """Return the squared norms of rows in the dtype of X."""
        return (X * X).sum(dim=1)

    def squared_norms(self, X):
        """Return the squared norms of rows in float64."""
        return self.row_squares(X.to(torch.float64))

    def largest_sizes(self, values):
        """Return the largest absolute value of every column."""
        return values.abs().amax(dim=0)

    def largest_of_rows(self, X):
        """Return the largest absolute value of every row."""
        return X.detach().abs().amax(dim=1) if X.shape[1] else X.new_zeros(len(X))

    def scale_rows(self, X, factors):
        """Return rows times a factor each."""
        return X * factors[:, None]

    def divide_rows(self, X, sizes):
        """Return rows over a number each."""
        return X / sizes[:, None]

    def with_bias(self, X, scale, bias):
        """Return X·scale, with a last column `bias` if that is not 0."""
        if isinstance(scale, torch.Tensor):
            X = X * scale.to(X.dtype)
        elif scale != 1.0:
            X = X * scale
        return torch.cat([X, X.new_full((X.shape[0], 1), bias)], dim=1) if bias else X

    def random_matrix(self, key, law, row_start, row_stop, col_start, col_stop, like):
        """Return entries in float32, made on the device of `like`."""
        rectangle = row_start, row_stop, col_start, col_stop
        if like.device.type == "cpu":
            return torch.from_numpy(counter.random_matrix(key, law, *rectangle))
        return torch_random.random_matrix(key, law, *rectangle, like.device)

    def searchsorted(self, sorted_values, values):
        """Return where values are among sorted ones, and whether they are there."""
        sorted_values = torch.as_tensor(sorted_values, device=values.device)
        dtype = torch.promote_types(sorted_values.dtype, values.dtype)
        if dtype == torch.bool:  # which searchsorted does not take
            dtype = torch.uint8
        sorted_values, values = sorted_values.to(dtype), values.to(dtype)
        position = torch.searchsorted(sorted_values, values.contiguous())
        position = position.clip(max=len(sorted_values) - 1)
        return position, sorted_values[position] == values

    def entries_at(self, values, position):
        """Return the entries of a vector at positions, on the device of those.

        Those of a NumPy array of texts are a NumPy array.
        """
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
            return values[self.to_host(position)]
        return torch.as_tensor(values, device=position.device)[position]

    def minimise(self, function, start, tolerance, max_iter, n_pairs):
        """Return where a smooth function is least, by L-BFGS, and the iterations."""
        at = start.clone().requires_grad_()
        optimiser = torch.optim.LBFGS(
            [at],
            max_iter=max_iter,
            max_eval=2 * max_iter,
            tolerance_grad=_UNIT * tolerance,
            tolerance_change=LEAST_CHANGE,
            history_size=n_pairs,
            line_search_fn="strong_wolfe",
        )

        def value_and_gradient():
            value, gradient = function(at.detach().clone())
            at.grad = _UNIT * gradient
            return _UNIT * value

        optimiser.step(value_and_gradient)
        return at.detach(), optimiser.state[at]["n_iter"]

    def generated_products(self, X, keys, start, stop, scale):
        """Return scale·XΩᵀ for the matrix of each key, made in a kernel, or None."""
        kernels = torch_kernels.kernels_for(X)
        if kernels is None:
            return None
        product = kernels.generated_product
        return tuple(product(X, key, start, stop, scale) for key in keys)

    def scaled_squared_distances(self, X, Y, scale, same):
        """Return ‖(x − y)·scale‖² of all pairs of rows.

        By ‖x‖² + ‖y‖² − 2x·y about the mean of Y; where that cancels, or in few
        columns, from differences.
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

    def manhattan_distances(self, X, Y, out):
        """Write the L1 distances of all pairs of rows."""
        X, Y = X.to(out.dtype), Y.to(out.dtype)
        out[...] = torch.cdist(X, Y, p=1.0)

    def cauchy_kernel(self, X, Y, out):
        """Write Π_k 1/(1 + (x_k − y_k)²) of all pairs of rows."""
        X, Y = X.to(out.dtype), Y.to(out.dtype)
        product = _differences(X, Y, lambda total, d: total * (1.0 + d * d), 1.0)
        out[...] = 1.0 / product

    def add_gram(self, Z, gram):
        """Add ZᵀZ of a block of rows to `gram`, float64, the whole of it.

        Products of float32 rows, at most 2048 of them, take 64 MiB, or 512 rows of
        `gram`.
        """
        if Z.dtype == gram.dtype:
            gram.addmm_(Z.T, Z)
            return
        step = max(
            512, 2**26 // (12 * max(len(gram), 1))
        )  # a product, and it in float64
        for part in Z.split(_ROWS_F32):
            for columns, rows in zip(
                part.split(step, dim=1), gram.split(step), strict=True
            ):
                rows += columns.T @ part

    def patch_products(self, a, b, rows, columns):
        """Return Σ_k a[v, k, i]·b[v, k, j], in one batched product."""
        return a[:, :, rows].transpose(1, 2) @ b[:, :, columns]

    def run_over_ranges(self, task, n, nanoseconds):
        """Call ``task(0, n)``: PyTorch divides each step of it among threads itself."""
        task(0, n)


def _add_square(total, difference):
    return total + difference * difference


def _differences(X, Y, add, total=0.0):
    """Return `add` of the differences in every column, one after the other."""
    total = torch.full((len(X), len(Y)), total, dtype=X.dtype, device=X.device)
    for x, y in zip(X.T, Y.T, strict=True):
        total = add(total, x[:, None] - y)
    return total
