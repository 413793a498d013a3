"""The provenance of a record: commit, command, machine, and the code that it ran.

A record is older than the code once a file that it ran has changed. These are the
modules of this library and of the lab that its processes had imported when it ended,
without those that only print and draw (:data:`PRESENTATION`), each with a hash of its
code: comments and docstrings may change.
"""

import ast
import hashlib
import io
import subprocess
import sys
import tokenize
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numba
from threadpoolctl import threadpool_info

from randkern.study.records import describe_machine

SOURCES = Path(__file__).resolve().parents[1]
#: What only reads options, prints and draws: no number depends on it.
PRESENTATION = (
    "randkern.cli",
    "randkern.plots",
    "randkern_lab.catalogue",
    "randkern_lab.cli",
    "randkern_lab.panels",
    "randkern_lab.records",
    "randkern_lab.render",
)


def provenance(command: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a record must state to be trusted and reproduced.

    These are ``commit`` (None outside a checkout), ``clean`` (whether the sources were
    those of the commit), ``command``, ``date``, ``seeds`` of the records, ``threads``
    and ``sources`` (:func:`imported_sources`).
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "clean": _git("status", "--porcelain", "--", str(SOURCES)) == "",
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": sorted({r["seed"] for r in records if r.get("seed") is not None}),
        "threads": thread_counts(),
        "sources": imported_sources(),
    }


def imported_modules() -> list[str]:
    """Return the modules of the library and of the lab that this process runs."""
    return sorted(
        name
        for name in tuple(sys.modules)
        if name.partition(".")[0] in ("randkern", "randkern_lab")
        and not name.startswith(PRESENTATION)
    )


def imported_sources() -> dict[str, str]:
    """Return the files of :func:`imported_modules`, and a hash of each."""
    files = (
        getattr(sys.modules[name], "__file__", None) for name in imported_modules()
    )
    paths = (Path(file).resolve() for file in files if file)
    names = sorted(p.relative_to(SOURCES).as_posix() for p in paths)
    return {name: source_hash(name) for name in names}


@cache
def source_hash(name: str) -> str:
    """Return a hash of the code of a file of the sources, "" if there is no such file.

    The code is what remains without comments, docstrings and blank lines.
    """
    path = SOURCES / name
    if not path.is_file():
        return ""
    code = code_lines(path.read_text("utf-8"))
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:12]


def code_lines(source: str) -> list[str]:
    """Return the lines of a module without comments, docstrings and blank lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            stop = first.end_lineno or first.lineno
            lines[first.lineno - 1 : stop] = [""] * (stop - first.lineno + 1)
    return [line.rstrip() for line in lines if line.strip()]


def code_hash() -> str:
    """Return a hash of all Python files of the library and of the lab."""
    paths = (p for p in SOURCES.glob("randkern*/**/*.py"))
    names = sorted(p.relative_to(SOURCES).as_posix() for p in paths)
    lines = (f"{name} {source_hash(name)}\n" for name in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


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
