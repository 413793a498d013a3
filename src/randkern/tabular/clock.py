"""The seconds that a search may take."""

from __future__ import annotations

import time

__all__ = ["Clock"]

# On a busy machine a fit takes so many times its seconds at most.
_SLOWEST = 1.5


class Clock:
    """Seconds since its making for which this thread has had a processor.

    Where nothing else runs they are those that pass; where other processes take turns
    with this one, a search ends with about the same result, up to half as late again.
    """

    def __init__(self) -> None:
        self._thread, self._began = time.thread_time(), time.perf_counter()

    def __call__(self) -> float:
        passed = time.perf_counter() - self._began
        return max(time.thread_time() - self._thread, passed / _SLOWEST)
