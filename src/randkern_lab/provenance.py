"""Where a record comes from: commit, command, machine, and a hash of its code."""

import ast
import hashlib
import importlib
import importlib.util
import io
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numba
from threadpoolctl import threadpool_info

import randkern
from randkern.study.records import describe_machine

__all__ = ["code_hash", "modules_of", "provenance", "thread_counts"]

_PACKAGES = ("randkern", "randkern_lab")
_SOURCES = Path(__file__).resolve().parents[1]


def provenance(
    module: str, command: str, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a record must say of itself to be trusted, and to be made again.

    Parameters
    ----------
    module : str
        Of the experiment.
    command : str
    records : sequence of mapping

    Returns
    -------
    provenance : dict
        ``commit`` (None outside a checkout), ``clean`` (whether the sources were those
        of the commit), ``command``, ``date``, ``seeds`` of the records, ``threads``,
        ``module`` and ``code_hash`` (:func:`code_hash`).
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "clean": _git("status", "--porcelain", "--", str(_SOURCES)) == "",
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": sorted({r["seed"] for r in records if r.get("seed") is not None}),
        "threads": thread_counts(),
        "module": module,
        "code_hash": code_hash(module),
    }


def thread_counts() -> dict[str, int]:
    """Return the threads of compiled code (``numba``) and of NumPy's BLAS (``blas``).

    Examples
    --------
    >>> from randkern_lab.provenance import thread_counts
    >>> sorted(thread_counts())
    ['blas', 'numba']
    """
    pools = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    return {
        "numba": int(numba.get_num_threads()),
        "blas": max((int(pool["num_threads"]) for pool in pools), default=1),
    }


def machine() -> dict[str, Any]:
    """Return what about the machine matters to seconds and bytes, threads included."""
    return describe_machine() | {"threads": thread_counts()}


def _git(*arguments: str) -> str | None:
    try:
        told = subprocess.run(
            ["git", "-C", str(_SOURCES), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return told.stdout.strip()


def code_hash(module: str) -> str:
    """Return a hash of a module and of all of ours that it imports.

    Comments, docstrings and empty lines do not count: they change no number.

    Examples
    --------
    >>> from randkern_lab.provenance import code_hash
    >>> len(code_hash("randkern_lab.options"))
    16
    """
    total = hashlib.sha256()
    for name in sorted(modules_of(module)):
        total.update(f"{name}\n{_code(_path(name))}\n".encode())
    return total.hexdigest()[:16]


def modules_of(module: str) -> set[str]:
    """Return the names of a module and of all modules of ours that it imports.

    Imports inside functions count, and names that `randkern` resolves on first use.

    Examples
    --------
    >>> from randkern_lab.provenance import modules_of
    >>> {"randkern.plan", "randkern_lab.tables"} <= modules_of("randkern_lab.runner")
    False
    """
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(name)
    return found


@cache
def _path(module: str) -> Path:
    if module.partition(".")[0] not in _PACKAGES:  # an experiment of somebody else's
        spec = importlib.util.find_spec(module)
        return Path((spec and spec.origin) or __file__)
    place = _SOURCES.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Return the modules of ours that a file names."""
    path = _path(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = set(_imported_names(_tree(path), package))
    for node in ast.walk(_tree(path)):
        # The front of the library says where its names are.
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "randkern" and hasattr(randkern, node.attr):
                names.add(_home(node.attr))
    return tuple(_modules(names))


def _home(name: str) -> str:
    """Return the module of a name of the library's front, which loads it on use."""
    public = getattr(randkern, name, None)
    return str(getattr(public, "__module__", getattr(public, "__name__", "randkern")))


def _imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name(
                "." * node.level + (node.module or ""), package
            )
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _modules(names: Iterable[str]) -> Iterator[str]:
    """Return the names that are modules of ours, or the modules that hold them."""
    for name in names:
        if name.partition(".")[0] not in _PACKAGES or name in _PACKAGES:
            continue
        if _path(name).is_file():
            yield name
            continue
        holder = name.rpartition(".")[0]
        if holder == "randkern":
            holder = _home(name.rpartition(".")[2])
        if holder not in _PACKAGES and _path(holder).is_file():
            yield holder


@cache
def _code(path: Path) -> str:
    """Return a file without comments, docstrings and empty lines."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(_tree(path)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            if ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                for row in range(first.lineno, (first.end_lineno or 0) + 1):
                    lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())
