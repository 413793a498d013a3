"""The provenance of a record: commit, command, machine, and a hash of its code."""

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numba
from threadpoolctl import threadpool_info

from randkern.study.records import describe_machine

from .source_hash import SOURCES, code_hash


def provenance(
    module: str, command: str, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a record must state to be trusted and reproduced.

    These are ``commit`` (None outside a checkout), ``clean`` (whether the sources were
    those of the commit), ``command``, ``date``, ``seeds`` of the records, ``threads``,
    ``module`` of the experiment and ``code_hash`` (:func:`.source_hash.code_hash`).
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "clean": _git("status", "--porcelain", "--", str(SOURCES)) == "",
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": sorted({r["seed"] for r in records if r.get("seed") is not None}),
        "threads": thread_counts(),
        "module": module,
        "code_hash": code_hash(module),
    }


def thread_counts() -> dict[str, int]:
    """Return the numbers of threads of Numba and of NumPy's BLAS."""
    pools = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    return {
        "numba": int(numba.get_num_threads()),
        "blas": max((int(pool["num_threads"]) for pool in pools), default=1),
    }


def machine() -> dict[str, Any]:
    """Describe the machine, including threads, as far as it matters for costs."""
    return describe_machine() | {"threads": thread_counts()}


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
