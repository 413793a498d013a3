"""Rows that every process of a benchmark reads from files, and where they come from."""

from collections.abc import Iterator
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

from ..options import DataOptions, option


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


# -- files ----------------------------------------------------------------------------


@contextmanager
def saved(rows: Rows) -> Iterator[str]:
    """Store rows in a temporary folder for processes to read (:func:`saved_rows`)."""
    with TemporaryDirectory() as folder:
        for name, array in rows._asdict().items():
            np.save(Path(folder) / f"{name}.npy", array)
        yield folder


def saved_rows(folder: str, n_train: int) -> Rows:
    """Return the stored rows, but only the first training rows."""
    files = [Path(folder) / f"{name}.npy" for name in Rows._fields]
    mapped = Rows(*(np.load(file, mmap_mode="r") for file in files))
    first = mapped._replace(X=mapped.X[:n_train], y=mapped.y[:n_train])
    return Rows(*map(np.array, first))


def few_rows(size: int | None, **others: Any) -> dict[str, Any]:
    """Return what makes a request one of few rows, and of few components if any."""
    return {"n_train": 64, "n_components": size and min(size, 16), **others}
