"""Measures the time and peak memory of a block of code.

The peak is that of the *resident set*: the pages of this process that were in
physical memory at once, interpreter, libraries and data included. Shared pages
count; swapped pages and the memory of child processes do not.
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Self

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class Measurement:
    """Measures wall-clock time and peak resident memory of the block it encloses.

    `seconds` is the time, `before_bytes` the resident memory on entry, after freed
    memory was returned to the system, and `peak_bytes` the largest while the block ran,
    including `before_bytes`; see :func:`peak_memory_method`.

    Blocks must not be nested: entering one resets the operating system's counter that
    the outer one reads.
    """

    seconds: float
    before_bytes: int
    peak_bytes: int

    def __enter__(self) -> Self:
        _return_freed_memory()
        if peak_memory_method() == "VmHWM":
            _CLEAR_REFS.write_text("5")  # proc(5): resets the peak resident set
        self.before_bytes = _peak_bytes()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.peak_bytes = max(_peak_bytes(), self.before_bytes)


def peak_memory_method() -> str:
    """Return the method by which peak memory is measured on this system.

    ``"VmHWM"``: Linux's high-water mark, reset on entry: exact, except that its
    per-thread counters lag by a few hundred kilobytes. ``"ru_maxrss"``: the maximum
    since the process started, an upper bound. ``"unavailable"``: recorded as 0.
    """
    if os.access(_CLEAR_REFS, os.W_OK) and "VmHWM" in _STATUS.read_text():
        return "VmHWM"
    # The resource module does not exist on Windows.
    return "unavailable" if sys.platform == "win32" else "ru_maxrss"


def _return_freed_memory() -> None:
    """Return freed memory to the system, or it would count for the next block."""
    if os.name == "posix":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # only glibc has it, and needs it
            trim(0)


def _peak_bytes() -> int:
    """Return the largest resident memory since the peak was reset, or ever."""
    if peak_memory_method() == "VmHWM":
        # In kibibytes.
        return int(_STATUS.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage(2): kilobytes on Linux and the BSDs, bytes on macOS.
    return peak if sys.platform == "darwin" else peak * 1024
