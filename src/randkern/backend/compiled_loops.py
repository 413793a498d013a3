"""Helpers for compiled loops: flat views of arrays, threads, a clock.

Through flat views, compiled code sees contiguous memory, which vectorises, and a single
type, whether or not the array is read-only or a slice of a wider one, so that it is
compiled once.

The compiled loops of this package release the GIL (``nogil=True``), so plain Python
threads run them in parallel. Compared with ``parallel=True`` they compile one to two
seconds faster, may be called from several threads at once (which kills the process
under Numba's workqueue layer) and survive a fork (which kills it under GNU OpenMP). The
number of threads is Numba's: ``NUMBA_NUM_THREADS`` and :func:`numba.set_num_threads`.
"""

import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any

import numba
import numpy as np
from numba.core import event
from numpy.lib.stride_tricks import as_strided

# Waking a thread takes some 0.1 ms, which pays from about this much work.
_NANOSECONDS_PER_THREAD = 500_000
# More ranges than threads, so that one delayed thread does not delay all.
_RANGES_PER_THREAD = 4
# Fewer rows than this are not divided among threads: their columns are.
_MIN_DIVIDED_ROWS = 16


def check_out(out: np.ndarray, shape: tuple[int, ...]) -> np.dtype:
    """Return the dtype of `out`, or raise if its dtype or shape is wrong."""
    if out.dtype not in (np.float32, np.float64):
        raise TypeError(f"out must be float32 or float64, got {out.dtype}.")
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}.")
    return out.dtype


def has_flat_rows(array: np.ndarray) -> bool:
    """Return whether :func:`input_rows` need not copy an array of two dimensions."""
    (n_rows, n_cols), (apart, column) = array.shape, array.strides
    in_order = n_rows <= 1 or (apart >= 0 and apart % array.itemsize == 0)
    contiguous = n_cols <= 1 or column == array.itemsize
    return array.flags.aligned and in_order and contiguous


def input_rows(array: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Return a flat read-only view of a matrix and the distance between its rows.

    Element (i, j) is ``flat[i * stride + j]``. The array, which is not empty, is copied
    first if its dtype differs or its rows are not contiguous.
    """
    array = np.asarray(array, dtype=dtype)
    return _flat_rows(array if has_flat_rows(array) else array.copy(), False)


def output_rows(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Return what :func:`input_rows` does for a matrix to write, without a copy."""
    (n_rows, n_cols), itemsize = array.shape, array.itemsize
    stride, rest = divmod(array.strides[0], itemsize) if n_rows > 1 else (n_cols, 0)
    if rest or stride < n_cols or (n_cols > 1 and array.strides[1] != itemsize):
        raise ValueError(
            "The columns of out must be contiguous and its rows in order; got strides "
            f"{array.strides} for {array.dtype}."
        )
    if not array.flags.aligned:
        raise ValueError("out must be aligned in memory; pass a new array.")
    if not array.flags.writeable:
        raise ValueError("out is read-only; pass a writable array.")
    return _flat_rows(array, True)


def _flat_rows(array: np.ndarray, writeable: bool) -> tuple[np.ndarray, int]:
    n_rows, n_cols = array.shape
    if array.flags.c_contiguous:  # as_strided takes 10 us
        flat = array.reshape(-1)
        flat.flags.writeable = writeable
        return flat, n_cols
    stride = array.strides[0] // array.itemsize
    size = (n_rows - 1) * stride + n_cols
    return as_strided(array, (size,), (array.itemsize,), writeable=writeable), stride


def run_over_ranges(
    task: Callable[[int, int], object],
    n: int,
    nanoseconds: float,
    multiple: int = 1,
) -> None:
    """Call ``task(start, stop)`` over consecutive ranges that cover 0 to n.

    What a task writes must not depend on where the ranges are cut. They start at
    multiples of a number. `nanoseconds` is the rough total time on one thread: small
    work stays on the caller's thread.
    """
    if n <= 0:
        return
    n_threads = 1
    if nanoseconds > 2 * _NANOSECONDS_PER_THREAD:
        n_threads = min(
            numba.get_num_threads(), int(nanoseconds // _NANOSECONDS_PER_THREAD)
        )
    n_items = -(-n // multiple)
    n_ranges = min(n_items, _RANGES_PER_THREAD * n_threads)
    if n_threads == 1 or n_ranges == 1:
        task(0, n)
        return
    cuts = [n_items * i // n_ranges * multiple for i in range(n_ranges)] + [n]
    ranges = list(itertools.pairwise(cuts))
    helpers = min(n_threads, n_ranges) - 1
    # The caller takes ranges too, rather than wait for a thread to wake up.
    pool = _pool(os.getpid())
    waiting = [pool.submit(_work, task, ranges) for _ in range(helpers)]
    try:
        _work(task, ranges)
    finally:
        ranges.clear()  # after an error, start no more ranges
        # A helper that has not started has nothing left to do; waiting for it could
        # deadlock if a task in the pool runs ranges of its own.
        started = [future for future in waiting if not future.cancel()]
        done = [future.exception() for future in started]
    for error in done:
        if error is not None:
            raise error


def run_over_blocks(
    task: Callable[[slice, slice], object],
    shape: tuple[int, int],
    nanoseconds: float,
    multiple: int,
) -> None:
    """Call ``task(rows, columns)`` over ranges of rows, or of columns if rows are few.

    Ranges of columns start at multiples of a number; otherwise like
    :func:`run_over_ranges`.
    """
    n, m = shape
    by_rows = n >= _MIN_DIVIDED_ROWS

    @wraps(task)  # tests name shared work by its module
    def part(start: int, stop: int) -> None:
        if by_rows:
            task(slice(start, stop), slice(0, m))
        else:
            task(slice(0, n), slice(start, stop))

    run_over_ranges(part, n if by_rows else m, nanoseconds, 1 if by_rows else multiple)


def on_one_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with its compiled loops on the calling thread only.

    Use it in workers of a pool or cluster that has one worker per core.
    """
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        return function(*args)
    finally:
        numba.set_num_threads(before)


def _work(task: Callable[[int, int], object], ranges: list[tuple[int, int]]) -> None:
    """Process ranges until none is left."""
    while True:
        try:
            start, stop = ranges.pop(0)  # atomic under the GIL
        except IndexError:
            return
        task(start, stop)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process: a fork does not inherit its parent's."""
    n_threads = numba.config.NUMBA_NUM_THREADS
    return ThreadPoolExecutor(n_threads, thread_name_prefix="randkern")


_COMPILING = event.TimingListener()
event.register("numba:compiler_lock", _COMPILING)


def working_seconds() -> float:
    """Return the time in seconds on a clock that stops while Numba compiles.

    It stops while compiled code is loaded, too: without this, the first fit after an
    installation, and the first one of a process, would get less done in the same time
    than later ones.
    """
    return time.perf_counter() - (_COMPILING.duration if _COMPILING.done else 0.0)
