"""Independent tasks on threads, each with BLAS and compiled loops on one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from randkern.backend.blas import blas_threads, one_blas_thread
from randkern.backend.compiled_loops import on_one_thread

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_on_threads(
    function: Callable[[_Item], _Result], items: Iterable[_Item], max_threads: int
) -> Iterator[_Result]:
    """Yield the results of a function that spends its time in BLAS and NumPy, in order.

    At most `max_threads` items are processed at a time, on as many threads as BLAS has.
    Each thread uses one thread of BLAS, even if there is only one, so that results do
    not depend on the number of threads. Outside the main thread, where the threads of
    BLAS are the user's (see :mod:`randkern.backend.blas`), items are processed one by
    one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield from map(function, items)
        return
    n_threads = min(blas_threads(), max_threads)
    with one_blas_thread():
        if n_threads == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(n_threads, thread_name_prefix="randkern") as pool:
            # With the context of the caller: ignored warnings, and whether it is late.
            futures = [
                pool.submit(copy_context().run, on_one_thread, function, item)
                for item in items
            ]
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()
