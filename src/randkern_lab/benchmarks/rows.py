"""Rows that every process of a benchmark reads from files, and where they come from."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

import randkern
from randkern.datasets import load_dataset
from randkern.study.preparation import prepare

from ..contenders import Contender
from ..options import DataOptions, option
from ..process import Stopwatch
from ..scoring import Trial, fit_and_score

# Rows, components and iterations of the fits that load compiled code.
_WARM_UP_ROWS, _WARM_UP_SIZE = 64, 16
#: Of temporary folders, in ``TMPDIR``.
PREFIX = "randkern-bench-"


@dataclass(frozen=True)
class RowOptions(DataOptions):
    """Options of classification benchmarks."""

    data: str = option(
        "digits",
        "digits, breast-cancer, mnist, fashion-mnist, cifar10, or another name that "
        "randkern.datasets knows, or a .csv or .parquet file.",
    )
    target: str | None = option(None, "Column to predict, for a file.")
    n: int | None = option(None, "Training rows at most; default: all.", quick=400)
    n_test: int | None = option(None, "Test rows at most; default: all.", quick=300)
    unit_rows: bool = option(False, "Divide every row by its norm.")
    lengthscale: str = option("scale", "A number, scale or median.")


class Rows(NamedTuple):
    """Training and test rows, and their targets."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def load_rows(options: RowOptions) -> tuple[Rows, dict[str, Any]]:
    """Prepare a data set of classes, and draw at most ``n`` and ``n_test`` of its rows.

    They are float32, the dtype of loaded images, which all contenders preserve.
    """
    data_dir, target = options.data_dir, options.target
    dataset = load_dataset(options.data, data_dir=data_dir, target=target)
    if dataset.task != "classification":
        raise ValueError(
            f"this benchmark classifies, but {dataset.name} is a {dataset.task}; "
            "use randkern compare for it"
        )
    complete = prepare(dataset)
    rng = np.random.default_rng(0)
    train = np.sort(rng.permutation(len(complete.X_train))[: options.n])
    test = np.sort(rng.permutation(len(complete.X_test))[: options.n_test])
    X, X_test = (
        np.ascontiguousarray(part, dtype=np.float32)
        for part in (complete.X_train[train], complete.X_test[test])
    )
    preprocessing = complete.preprocessing
    if options.unit_rows:
        X, X_test = normalize(X), normalize(X_test)
        preprocessing += ", rows divided by their norms"
    rows = Rows(X, complete.y_train[train], X_test, complete.y_test[test])
    return rows, {
        "name": dataset.name,
        "n_train": len(X),
        "n_test": len(X_test),
        "n_features": X.shape[1],
        "n_classes": len(np.unique(rows.y)),
        "preprocessing": preprocessing,
    }


def resolved_lengthscale(text: str, X: NDArray[Any]) -> float:
    """Return a number, or the lengthscale that ``scale`` or ``median`` is for rows."""
    settings: float | str = text
    with suppress(ValueError):  # of a name, or of what the kernel refuses
        settings = float(text)
    return float(randkern.Gaussian(settings).resolve(X, random_state=0).lengthscale)


def warm_up_rows(y: NDArray[Any]) -> NDArray[Any]:
    """Return the indices of some of the first rows, with at least one per class."""
    _, firsts = np.unique(y, return_index=True)
    return np.union1d(firsts, np.arange(min(_WARM_UP_ROWS, len(y))))


def warm_trial(
    contender: Contender,
    request: Mapping[str, Any],
    rows: Rows,
    score: Callable[[Any, Any], Any],
    few: Any = slice(_WARM_UP_ROWS),
) -> tuple[Trial, float, Any]:
    """Fit and score a contender, after a small one on a few rows.

    That one loads compiled code. Returns also the seconds that it took, and the model.
    """
    small = {**request, "memory_limit": None, "budget": 0.0}
    for size in ("n_components", "max_iter"):
        small[size] = request.get(size) and min(request[size], _WARM_UP_SIZE)
    X, y, X_test, y_test = rows
    watch, first = Stopwatch(), slice(_WARM_UP_ROWS)
    warm = contender.make(small)
    fit_and_score(warm, X[few], y[few], X_test[first], y_test[first], score)
    seconds, model = watch.lap().seconds, contender.make(request)
    return fit_and_score(model, X, y, X_test, y_test, score), seconds, model


# -- files ----------------------------------------------------------------------------


@contextmanager
def saved(rows: Rows) -> Iterator[str]:
    """Store rows in a temporary folder for processes to read (:func:`saved_rows`)."""
    with TemporaryDirectory(prefix=PREFIX) as folder:
        for name, array in rows._asdict().items():
            np.save(Path(folder) / f"{name}.npy", array)
        yield folder


def saved_rows(folder: str, n_train: int | None = None) -> Rows:
    """Return the stored rows, but only the first training rows."""
    files = [Path(folder) / f"{name}.npy" for name in Rows._fields]
    mapped = Rows(*(np.load(file, mmap_mode="r") for file in files))
    first = mapped._replace(X=mapped.X[:n_train], y=mapped.y[:n_train])
    return Rows(*map(np.array, first))
