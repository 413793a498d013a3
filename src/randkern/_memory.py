"""How much memory a fit may take."""

from __future__ import annotations

import math
import numbers
import os
import re
from pathlib import Path
from typing import Any

from randkern._warnings import warn
from randkern.exceptions import MemoryLimitError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_DEFAULT_LIMIT = 2 * 10**9
# Smaller requests are granted without asking the system.
_ALWAYS_FREE = 64 * 10**6
_CGROUP = Path("/sys/fs/cgroup")
# Share of a cluster's memory that checked partitions may take.
_WORKERS_SHARE = 0.25


def resolve_memory_limit(limit: Any) -> int:
    """Return a memory limit in bytes.

    `limit` is a number of bytes, or a string like ``"4GB"`` or ``"500 MB"`` (powers of
    ten). None: 2 GB, whatever is free, as limits determine the solver and the precision
    of cached features: a busy machine would give another answer.
    """
    if limit is None:
        return _DEFAULT_LIMIT
    n_bytes = math.nan
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)b?\s*", limit.lower())
        if match:
            n_bytes = float(match[1]) * _UNITS[match[2]]
    elif isinstance(limit, numbers.Real) and not isinstance(limit, bool):
        n_bytes = float(limit)
    if 1 <= n_bytes < math.inf:
        return int(n_bytes)
    raise ValueError(
        "memory_limit must be None, a positive number of bytes, or a string such as "
        f"'4GB' or '500MB', got {limit!r}."
    )


def check_memory(needed: int, limit: int, subject: str, advice: str = "") -> None:
    """Raise before anything is allocated if `needed` bytes exceed `limit`.

    Warn if they are within the limit, but not free.
    """
    if needed > limit:
        raise MemoryLimitError(
            f"{subject} needs about {format_bytes(needed)}, over memory_limit = "
            f"{format_bytes(limit)}. {f'{advice}, or set' if advice else 'Set'} "
            f"memory_limit='{format_bytes(1.1 * needed)}' if the machine has it."
        )
    warn_if_not_free(needed, subject)


def warn_if_not_free(needed: int, subject: str) -> None:
    """Warn if `needed` bytes of the machine's memory are not free.

    Free memory never changes what is computed.
    """
    free = None if needed < _ALWAYS_FREE else available_memory()
    if free is not None and needed > free:
        warn(
            f"{subject} takes about {format_bytes(needed)}, but only "
            f"{format_bytes(free)} are free; the machine may swap, or the system may "
            "end the process. Free some memory, or set a smaller memory_limit.",
            UserWarning,
        )


def check_free(needed: int, subject: str, advice: str, *, share: bool = False) -> None:
    """Raise if `needed` bytes are not free, for computations without a memory_limit.

    With `share`, raise if they exceed the default limit of a fit.
    """
    if needed < _ALWAYS_FREE:
        return
    limit = resolve_memory_limit(None) if share else available_memory()
    if limit is not None and needed > limit:
        raise MemoryLimitError(
            f"{subject} takes about {format_bytes(needed)}, but "
            f"{'at most' if share else 'only'} {format_bytes(limit)} "
            f"{'may be taken' if share else 'are free'}; {advice}."
        )


def available_memory() -> int | None:
    """Return the number of free bytes of memory, None if unknown.

    In a container these are at most the free ones of its own.
    """
    known = (_of_machine(), _of_container())
    return min((free for free in known if free is not None), default=None)


def _of_container() -> int | None:
    """Return the free bytes of a container with a limit (cgroup v2), else None."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max": no limit
        used = int((_CGROUP / "memory.current").read_text())
        statistics = (_CGROUP / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return None
    # Of what is used, the system gives up files that were not read lately.
    files = dict(zip(statistics[::2], statistics[1::2], strict=False))
    return max(limit - used + int(files.get("inactive_file", 0)), 0)


def _of_machine() -> int | None:
    """Return the number of free bytes of memory of the machine, None if unknown."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def format_bytes(n_bytes: float) -> str:
    """Format a size in B, kB, MB, GB or TB, as in 28.8 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def may_stay_with_workers(n_bytes: int, memory: float) -> bool:
    """Return whether checked partitions may be cached in the memory of a cluster."""
    return n_bytes <= _WORKERS_SHARE * memory
