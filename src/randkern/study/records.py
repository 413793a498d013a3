"""Files of results, and what they say of the machine and the software."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from randkern._files import atomic_write
from randkern.study.measure import peak_memory_method

_RECORDED_PACKAGES = ("randkern", "numpy", "scipy", "scikit-learn", "numba")


def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that determine the numbers."""
    versions = {name: metadata.version(name) for name in _RECORDED_PACKAGES}
    return {"python": platform.python_version(), **versions}


def describe_machine() -> dict[str, Any]:
    """Describe the machine, as far as it matters for time and memory."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux reports which cores a process may use
        cores = os.cpu_count() or 1
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpu_count": cores,
        "peak_memory_method": peak_memory_method(),
    }


def write_results(
    results: Mapping[str, Any], path: str | Path, outdated: Iterable[Path] = ()
) -> Path:
    """Write results atomically as JSON, and return the path.

    `outdated` are files about earlier results, which are removed first. Raises a
    ValueError for NaN and infinity, which JSON has not.
    """
    path = Path(path)
    text = json.dumps(results, indent=1, allow_nan=False) + "\n"
    with atomic_write(path, outdated) as file:
        file.write(text.encode())
    return path
