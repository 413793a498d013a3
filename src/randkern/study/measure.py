"""Measures the time and peak memory of a block of code.

The peak is that of the *resident set*: the pages of this process that were in
physical memory at once, interpreter, libraries and data included. Shared pages
count; swapped pages and the memory of child processes do not.
"""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Measurement", "peak_memory_method"]

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATM = Path("/proc/self/statm")


class Measurement:
    """Measures wall-clock time and peak resident memory of the block it encloses.

    Attributes
    ----------
    seconds : float
        Wall-clock time of the block, in seconds.
    before_bytes : int
        Resident memory on entry, after freed memory was returned to the system.
    peak_bytes : int
        Largest resident memory while the block ran, including `before_bytes`.
        The method depends on the system, see :func:`peak_memory_method`.

    Notes
    -----
    Blocks must not be nested: entering one resets the operating system's counter that
    the outer one reads.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.study.measure import Measurement
    >>> with Measurement() as measured:
    ...     _ = np.ones((2000, 2000)).sum()  # 32 MB
    >>> measured.peak_bytes >= measured.before_bytes > 0
    True
    >>> measured.seconds > 0
    True
    """

    seconds: float
    before_bytes: int
    peak_bytes: int

    def __enter__(self) -> Self:
        _return_freed_memory()
        self._method = peak_memory_method()
        self._sampler: _Sampler | None = None
        if self._method == "VmHWM":
            _CLEAR_REFS.write_text("5")  # proc(5): resets the peak resident set
            self.before_bytes = _status_bytes("VmRSS")
        elif self._method == "sampled":
            self._sampler = _Sampler()
            self.before_bytes = _resident_bytes()
            self._sampler.start()
        else:
            self.before_bytes = _lifetime_peak_bytes()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._start
        if self._method == "VmHWM":
            peak = _status_bytes("VmHWM")
        elif self._sampler is not None:
            peak = self._sampler.stop()
        else:
            peak = _lifetime_peak_bytes()
        self.peak_bytes = max(peak, self.before_bytes)


def peak_memory_method() -> str:
    """Return the method by which peak memory is measured on this system.

    Returns
    -------
    method : {"VmHWM", "sampled", "ru_maxrss", "unavailable"}
        ``"VmHWM"``: Linux's high-water mark, reset on entry: exact, except that its
        per-thread counters lag by a few hundred kilobytes. ``"sampled"``: a thread
        reads the resident set every 5 ms, so shorter peaks are missed (Linux if the
        counter cannot be reset; elsewhere with ``psutil``). ``"ru_maxrss"``: the
        maximum since the process started, an upper bound. ``"unavailable"``: recorded
        as 0.

    Examples
    --------
    >>> from randkern.study.measure import peak_memory_method
    >>> peak_memory_method() in {"VmHWM", "sampled", "ru_maxrss", "unavailable"}
    True
    """
    if os.access(_CLEAR_REFS, os.W_OK) and "VmHWM" in _STATUS.read_text():
        return "VmHWM"
    if _STATM.exists() or _has_psutil():
        return "sampled"
    # The resource module does not exist on Windows.
    return "unavailable" if sys.platform == "win32" else "ru_maxrss"


class _Sampler(threading.Thread):
    """Samples the resident set until stopped, and stores the maximum."""

    interval = 0.005  # seconds

    def __init__(self) -> None:
        super().__init__(daemon=True, name="randkern-peak-memory")
        self._finished = threading.Event()
        self._peak = 0

    def run(self) -> None:
        while not self._finished.wait(self.interval):
            self._peak = max(self._peak, _resident_bytes())

    def stop(self) -> int:
        self._finished.set()
        self.join()
        return max(self._peak, _resident_bytes())


def _return_freed_memory() -> None:
    """Return freed memory to the system, or it would count for the next block."""
    trim = (
        getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    )
    if trim is not None:  # only glibc has it, and needs it
        trim(0)


def _status_bytes(field: str) -> int:
    """Return a memory field of /proc/self/status, given there in kibibytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no field {field!r}")


def _resident_bytes() -> int:
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)


def _lifetime_peak_bytes() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage(2): kilobytes on Linux and the BSDs, bytes on macOS.
    return peak if sys.platform == "darwin" else peak * 1024


def _has_psutil() -> bool:
    try:
        import psutil  # noqa: F401
    except ImportError:
        return False
    return True
