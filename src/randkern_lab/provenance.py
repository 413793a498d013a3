"""The provenance of a record: commit, command, date, threads, machine."""

import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numba
from threadpoolctl import threadpool_info

from randkern.study.records import describe_machine

SOURCES = Path(__file__).resolve().parents[1]


def provenance(command: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a record must state to be trusted and reproduced.

    These are ``commit`` (None outside a checkout), ``clean`` (whether the sources were
    those of the commit), ``command``, ``date``, ``seeds`` of the records and
    ``threads``.
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "clean": _git("status", "--porcelain", "--", str(SOURCES)) == "",
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": sorted({r["seed"] for r in records if r.get("seed") is not None}),
        "threads": thread_counts(),
    }


def code_version() -> str:
    """Return the commit of the code, with a mark if files differ from it."""
    return _git("describe", "--always", "--dirty") or "no checkout"


def peak_memory_bytes() -> int | None:
    """Return the largest resident memory of this process, or of one that it started.

    None where the system does not count it.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    peaks = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return max(peaks) * (1 if sys.platform == "darwin" else 1024)


def thread_counts() -> dict[str, int]:
    """Return the numbers of threads of Numba and of NumPy's BLAS."""
    pools = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    return {
        "numba": int(numba.get_num_threads()),
        "blas": max((int(pool["num_threads"]) for pool in pools), default=1),
    }


def machine() -> dict[str, Any]:
    """Describe the machine, with its processor's name and the numbers of threads."""
    own = {"processor_name": processor_name(), "threads": thread_counts()}
    return describe_machine() | own


def processor_name() -> str | None:
    """Return the name of the processor's model, None if the system does not tell it."""
    told = ""
    with suppress(OSError):  # of Linux
        told = Path("/proc/cpuinfo").read_text("utf-8")
    named = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    return named[1] if named else platform.processor() or None


def _git(*arguments: str) -> str | None:
    try:
        message = subprocess.run(
            ["git", "-C", str(SOURCES), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return message.stdout.strip()
