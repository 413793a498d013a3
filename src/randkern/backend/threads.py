"""Compiled loops on several threads, without a threading layer of Numba.

The loops of this room release the interpreter's lock (``nogil=True``), so that
plain Python threads run them side by side. Compared with ``parallel=True`` they
compile one to two seconds faster, may be called from several threads at once
(which kills the process under Numba's workqueue layer) and survive a fork (which
does under GNU OpenMP). The number of threads is Numba's: ``NUMBA_NUM_THREADS``
and :func:`numba.set_num_threads`.
"""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba

# Waking a thread takes some 0.1 ms: worth it from about this much work.
_NANOSECONDS_A_THREAD = 500_000
# More ranges than threads, so that a thread that is held up does not hold up all.
_RANGES_A_THREAD = 4


def run_over_ranges(
    task: Callable[[int, int], object],
    n: int,
    nanoseconds: float,
    multiple: int = 1,
) -> None:
    """Call ``task(start, stop)`` over consecutive ranges that cover 0 to n.

    Parameters
    ----------
    task : callable
        Work on the items start to stop - 1, releasing the interpreter's lock. What
        it writes must not depend on where the ranges are cut.
    n : int
        Number of items; nothing is called when it is 0.
    nanoseconds : float
        Rough time of the whole on one thread; small work stays on the caller's.
    multiple : int
        Ranges start at multiples of this number.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.threads import run_over_ranges
    >>> squares = np.zeros(5, dtype=int)
    >>> def square(start, stop):
    ...     squares[start:stop] = np.arange(start, stop) ** 2
    >>> run_over_ranges(square, 5, nanoseconds=1e9)
    >>> squares.tolist()
    [0, 1, 4, 9, 16]
    """
    if n <= 0:
        return
    n_threads = 1
    if nanoseconds > 2 * _NANOSECONDS_A_THREAD:
        n_threads = min(
            numba.get_num_threads(), int(nanoseconds // _NANOSECONDS_A_THREAD)
        )
    n_items = -(-n // multiple)
    n_ranges = min(n_items, _RANGES_A_THREAD * n_threads)
    if n_threads == 1 or n_ranges == 1:
        task(0, n)
        return
    cuts = [n_items * i // n_ranges * multiple for i in range(n_ranges)] + [n]
    ranges = list(itertools.pairwise(cuts))
    helpers = min(n_threads, n_ranges) - 1
    # The caller takes ranges too: it need not wait for a thread to wake up.
    waiting = [_pool().submit(_work, task, ranges) for _ in range(helpers)]
    try:
        _work(task, ranges)
    finally:
        ranges.clear()  # after an error nothing more is begun
        # A helper that has not begun has nothing left to do; waiting for it could
        # last forever where a task of the pool runs ranges of its own.
        started = [future for future in waiting if not future.cancel()]
        done = [future.exception() for future in started]
    for error in done:
        if error is not None:
            raise error


def on_one_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function whose compiled loops run on the caller's thread only.

    For workers of a pool or a cluster, of which there is one per core.

    Examples
    --------
    >>> from randkern.backend.threads import on_one_thread
    >>> on_one_thread(max, 1, 2)
    2
    """
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        return function(*args)
    finally:
        numba.set_num_threads(before)


def _work(task: Callable[[int, int], object], ranges: list[tuple[int, int]]) -> None:
    """Take ranges until none is left."""
    while True:
        try:
            start, stop = ranges.pop(0)  # atomic under the interpreter's lock
        except IndexError:
            return
        task(start, stop)


@cache
def _pool_of(process: int, n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="randkern")


def _pool() -> ThreadPoolExecutor:
    """Return this process's threads: a fork does not inherit its parent's."""
    return _pool_of(os.getpid(), numba.config.NUMBA_NUM_THREADS)
