"""Work in a process of its own, whose peak memory is that of the work alone.

In one process, memory freed by earlier work would be used again, and code is compiled
or loaded only once.
"""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from multiprocessing import get_context
from typing import Any, NamedTuple

from randkern.study.measure import Measurement


class SkippedCase(ValueError):  # noqa: N818 - no error: it is told in the results
    """Raised if a case cannot be measured; the message says why."""


class Lap(NamedTuple):
    """Wall-clock seconds, and CPU seconds over all processors."""

    seconds: float
    cpu_seconds: float


class Stopwatch:
    """Time since creation, or since the last lap."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def lap(self) -> Lap:
        """Return the time since the last lap, and start a new one."""
        now = time.perf_counter(), time.process_time()
        lap = Lap(now[0] - self._start[0], now[1] - self._start[1])
        self._start = now
        return lap


def in_fresh_process(
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    request: Mapping[str, Any],
    few: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Call a module's function in a new process, and measure its memory.

    The function must be at the top level of its module. If there are changes `few` of
    the request, such as a small number of rows, it is called with these first, which
    loads compiled code and takes ``warm_up_seconds``. The answer also gets
    ``peak_memory_bytes``, resident, including imports and data, and
    ``process_seconds``, including imports. Raises SkippedCase if the function raised
    ValueError, MemoryError or RuntimeError, or if the system ended the process, for
    instance for lack of memory.
    """
    watch = Stopwatch()
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            answer = pool.submit(_measured, function, dict(request), few).result()
    except BrokenProcessPool as error:
        raise SkippedCase(
            "its own process was ended; there may have been too little memory"
        ) from error
    except (ValueError, MemoryError, RuntimeError) as error:
        raise SkippedCase(str(error) or type(error).__name__) from error
    return answer | {"process_seconds": watch.lap().seconds}


def _measured(
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    request: dict[str, Any],
    few: Mapping[str, Any] | None,
) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # mostly of fits to a few rows
    with Measurement() as measured, redirect_stdout(sys.stderr):
        warm = {}
        if few is not None:
            watch = Stopwatch()
            function({**request, **few})
            warm["warm_up_seconds"] = watch.lap().seconds
        answer = {**warm, **function(request)}
    return {"peak_memory_bytes": measured.peak_bytes, **answer}
