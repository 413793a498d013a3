"""Records of experiments, and of the machine they ran on."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from randkern._files import atomic_write

from .measure import peak_memory_method

__all__ = ["Record", "describe_machine", "installed_versions", "write_results"]

_RECORDED_PACKAGES = ("randkern", "numpy", "scipy", "scikit-learn", "numba")


@dataclass(frozen=True, slots=True)
class Record:
    """One fitted and scored model of ``randkern compare``.

    Attributes
    ----------
    kernel : str
        The kernel as requested, such as ``"optical:4"``.
    n_components : int or None
        Number D of random features; None for the exact kernel.
    seed : int
        ``random_state`` of the model. The exact kernel has no randomness and is run
        once, with the first seed.
    test_error : float
        Error on the test rows, in the metric named in the results.
    standard_error : float
        Standard error of `test_error`, from the number of test rows.
    log_loss, auc : float or None
        For classifiers with probabilities: the mean of −log p of the true class, and
        the area under the ROC curve (one-vs-rest, weighted).
    fit_seconds, predict_seconds : float
        Wall-clock seconds of ``fit`` on the training rows, including drawing the
        features, and of ``predict`` on the test rows, without compilation.
    peak_memory_bytes : int
        Peak resident memory of the process during fit and predict, including the
        interpreter, the libraries and the data.
    memory_before_bytes : int
        Resident memory just before fit: the difference is what the model used.
    hyperparameters : dict of str to float
        The kernel's parameters (``lengthscale``, ``bias``, ``degree``, ``nu``, or
        ``kernel_alpha`` for the rational quadratic) and ``alpha``, the ridge penalty.
    """

    kernel: str
    n_components: int | None
    seed: int
    test_error: float
    standard_error: float
    log_loss: float | None
    auc: float | None
    fit_seconds: float
    predict_seconds: float
    peak_memory_bytes: int
    memory_before_bytes: int
    hyperparameters: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return asdict(self)


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


def write_results(results: Mapping[str, Any], path: str | Path) -> Path:
    """Write results atomically as JSON, and return the path.

    Raises a ValueError for NaN and infinity, which JSON has not.
    """
    path = Path(path)
    text = json.dumps(results, indent=1, allow_nan=False) + "\n"
    with atomic_write(path) as file:
        file.write(text.encode())
    return path
