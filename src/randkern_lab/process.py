"""Runs work in a separate process, to measure its own peak memory.

In one process, memory freed by earlier work would be reused, and code is compiled or
loaded only once. ``python -m randkern_lab.process MODULE:FUNCTION`` reads a request
from standard input and answers on standard output, both JSON. Meanwhile the parent
process samples its anonymous memory every 10 ms.
"""

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from randkern.study.measure import Measurement

_INTERVAL = 0.01  # seconds


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
) -> dict[str, Any]:
    """Call a module's function in a new process, and measure its memory.

    The function must be at the top level of its module; request and answer are
    JSON-compatible. The answer also gets ``peak_memory_bytes`` (resident, including
    imports and data) and ``peak_anonymous_bytes`` (without file pages; None if the
    system does not report it) of the whole process, and ``process_seconds``, including
    imports. Raises SkippedCase if the function raised ValueError or MemoryError, or if
    the system ended the process, for instance for lack of memory.
    """
    start = time.perf_counter()
    name = f"{function.__module__}:{function.__name__}"
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, complaints, peak = _watched(process, json.dumps(request))
    if process.returncode != 0:
        raise SkippedCase(_last_words(process.returncode, complaints))
    measured: dict[str, Any] = json.loads(said)
    if "error" in measured:
        raise SkippedCase(measured["error"])
    seconds = time.perf_counter() - start
    return measured | {"process_seconds": seconds, "peak_anonymous_bytes": peak}


def answer(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """Handle a request of :func:`in_fresh_process` in this process."""
    module, _, function = name.partition(":")
    work = getattr(importlib.import_module(module), function)
    try:
        with Measurement() as measured:
            result = dict(work(request))
    except (ValueError, MemoryError, RuntimeError) as error:
        return {"error": str(error) or type(error).__name__}
    return {"peak_memory_bytes": measured.peak_bytes} | result


def _watched(process: Any, request: str) -> tuple[str, str, int | None]:
    """Wait for a process; return its output, and its peak anonymous memory."""
    peak: int | None = None
    settings: str | None = request
    try:
        while True:
            try:
                return *process.communicate(settings, timeout=_INTERVAL), peak
            except subprocess.TimeoutExpired:
                settings = None
                now = _anonymous_bytes(process.pid)
                if now is not None:
                    peak = max(peak or 0, now)
    except BaseException:  # do not leave it running after an interrupt
        process.kill()
        process.wait()
        raise


def _last_words(status: int, complaints: str) -> str:
    if status < 0:
        return (
            f"its own process was ended by signal {-status}; there may have been too "
            "little memory"
        )
    lines = complaints.strip().splitlines() or ["no message"]
    return f"its own process ended with status {status}: {lines[-1]}"


def _anonymous_bytes(pid: int) -> int | None:
    """Return the resident memory of a process without file pages."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    result = re.search(r"^RssAnon:\s*(\d+)", text, re.MULTILINE)
    return result and int(result[1]) * 1024


if __name__ == "__main__":
    # Output printed by libraries is not part of the answer.
    with redirect_stdout(sys.stderr):
        response = answer(sys.argv[1], json.load(sys.stdin))
    sys.stdout.write(json.dumps(response))
