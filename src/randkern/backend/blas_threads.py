"""One thread of BLAS for small decompositions, however many it has.

LAPACK's decompositions hand BLAS thousands of small products. On a busy machine each
waits for threads that are not scheduled: the eigenpairs of a 500 × 500 matrix take
0.1 s on one thread and more than a second on two. A decomposition that is short on one
thread gains little from more where the machine is idle, and so gets one.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

# Below the first, BLAS takes one thread of its own accord, and to set it (35 us) shows;
# the second takes some 50 ms on one thread.
_LEAST_OPERATIONS = 64**3 / 3
_MOST_OPERATIONS = 1e9

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@cache
def _controller() -> ThreadpoolController:
    # It takes milliseconds to find the libraries. They are loaded by then: NumPy's and
    # SciPy's come with the imports of whoever calls.
    return ThreadpoolController()


@contextmanager
def one_thread_if_short(operations: float) -> Iterator[None]:
    """Run what takes so many floating-point operations on one thread if they are few.

    Never on more threads than it would have had. The number of threads belongs to the
    process: while this lasts, BLAS has one in other threads of Python too. Outside the
    main thread nothing is changed. Threads that overlap would put back what they found
    of each other; and recent versions of threadpoolctl heed only the first thread that
    sets a limit, as long as it lives, which should stay the user's.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.blas_threads import one_thread_if_short
    >>> with one_thread_if_short(500**3):
    ...     float(np.linalg.det(np.eye(500)))
    1.0
    """
    short = _LEAST_OPERATIONS <= operations <= _MOST_OPERATIONS
    if not short or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


def short_on_one_thread(
    operations: Callable[..., float],
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a function of which `operations` counts the floating-point operations.

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
