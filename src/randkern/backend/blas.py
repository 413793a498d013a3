"""BLAS and LAPACK, in place on large matrices and on one thread for small ones.

LAPACK's decompositions call BLAS for thousands of small products. On a busy machine
each waits for threads that are not scheduled: the eigenpairs of a 500 × 500 matrix take
0.1 s on one thread and more than a second on two. A decomposition that is short on one
thread gains little from more even on an idle machine, so it gets one.

OpenBLAS on two threads reads beyond its buffers when it factorises more than about
15,000 rows (version 0.3.30: ``numpy.linalg.cholesky`` of 16,000 rows ends the process
with a segmentation fault). Larger matrices are therefore factorised here by panels,
whose products OpenBLAS computes correctly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpotrf
from threadpoolctl import ThreadpoolController

# Below the first, BLAS uses one thread anyway, and setting it (35 us) would show in the
# time; the second takes some 50 ms on one thread.
_MIN_OPERATIONS = 64**3 / 3
_MAX_OPERATIONS = 1e9

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds. They are loaded by now: callers have
    # imported NumPy and SciPy.
    return ThreadpoolController()


@contextmanager
def one_thread_if_short(operations: float) -> Iterator[None]:
    """Limit BLAS to one thread if the number of floating-point operations is small.

    The number of threads never increases. It is a property of the process: inside this
    context BLAS has one thread in other Python threads too. Outside the main thread
    nothing changes: overlapping threads would restore each other's limits, and recent
    versions of threadpoolctl heed only the first thread that sets a limit, as long as
    it lives, and that should stay the user's.
    """
    short = _MIN_OPERATIONS <= operations <= _MAX_OPERATIONS
    if not short or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


def blas_threads() -> int:
    """Return the number of threads that BLAS uses."""
    controllers = _controller().select(user_api="blas").lib_controllers
    return max((library.num_threads for library in controllers), default=1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread. Only for the main thread: see the function above."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


def short_on_one_thread(
    operations: Callable[..., float],
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a function whose floating-point operations `operations` counts.

    `operations` takes the same arguments.
    """

    def decorate(
        function: Callable[_Arguments, _Result],
    ) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with one_thread_if_short(operations(*args, **kwargs)):
                return function(*args, **kwargs)

        return call

    return decorate


# Rows that LAPACK factorises at once, and rows per panel of larger matrices.
_MAX_ROWS = 12_000
_PANEL = 1024


def panel_bytes(n: int) -> int:
    """Return the memory that the factorisation needs besides an n × n matrix."""
    return 0 if n <= _MAX_ROWS else 24 * _PANEL * n


def factorise_upper(matrix: np.ndarray) -> bool:
    """Overwrite the upper triangle of A by R, A = RᵀR; return whether R exists.

    `matrix` is C-ordered float64. Its strict lower triangle is unchanged.
    """
    n = len(matrix)
    if n <= _MAX_ROWS:
        # The upper triangle of a C-ordered array is LAPACK's lower one.
        return dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)[1] == 0
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        own = matrix[start:stop, start:stop]
        lower, info = dpotrf(np.asfortranarray(own.T), lower=1, clean=1, overwrite_a=1)
        if info:
            return False
        _replace_upper(own, lower.T)
        if stop < n:
            rest = matrix[start:stop, stop:]
            rest[:] = scipy.linalg.solve_triangular(
                lower, rest, lower=True, check_finite=False
            )
            _subtract_products(matrix[stop:, stop:], rest)
    return True


def _replace_upper(block: np.ndarray, values: np.ndarray) -> None:
    np.copyto(block, values, where=np.tri(len(block), dtype=bool).T)


def _subtract_products(trailing: np.ndarray, rows: np.ndarray) -> None:
    """Subtract RᵀR from the upper triangle, a block of rows at a time."""
    for start in range(0, len(trailing), _PANEL):
        stop = min(start + _PANEL, len(trailing))
        product = rows[:, start:stop].T @ rows[:, start:]
        own = trailing[start:stop, start:stop]
        _replace_upper(own, own - product[:, : stop - start])
        trailing[start:stop, stop:] -= product[:, stop - start :]


GRAM_COLUMNS = 1024  # of a tile: 8 MB in float64
_ROWS_F32 = 2048  # longer float32 sums lose digits


def add_gram(Z: np.ndarray, gram: np.ndarray) -> None:
    """Add ZᵀZ of a block of rows to the upper triangle of `gram`, in float64.

    Products are computed in the dtype of Z, in float32 over at most 2048 rows at a
    time, so that only short sums are rounded to float32. Temporary memory: two tiles of
    1024 × 1024 in the dtype of Z.
    """
    n, n_columns = Z.shape
    if gram.dtype != np.float64 or gram.shape != (n_columns, n_columns):
        raise ValueError(
            f"gram must be float64 of shape {n_columns, n_columns}, got {gram.dtype} "
            f"of shape {gram.shape}."
        )
    step = _ROWS_F32 if Z.dtype == np.float32 else max(n, 1)
    starts = range(0, n_columns, GRAM_COLUMNS)
    columns = [slice(j, min(j + GRAM_COLUMNS, n_columns)) for j in starts]
    for first in range(0, n, step):
        rows = Z[first : first + step]
        for at, left in enumerate(columns):
            block = rows[:, left]
            # On the diagonal both factors are the same array, and NumPy calls BLAS's
            # symmetric product, at half the cost.
            gram[left, left] += np.triu(block.T @ block)
            for right in columns[at + 1 :]:
                gram[left, right] += block.T @ rows[:, right]
