"""Labelled rows that every process of a benchmark reads."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from randkern.datasets import load_dataset
from randkern.study.preparation import prepare

from ..options import DataOptions, option
from ..panels import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, Style

__all__ = [
    "STYLES",
    "LabelledRows",
    "RowOptions",
    "known_names",
    "load_rows",
    "parse_lengthscale",
    "saved_arrays",
    "saved_rows",
    "temporary_folder",
    "warm_up_rows",
]

ARRAYS = ("X_train", "y_train", "X_test", "y_test")
_WARM_UP_ROWS = 64
# One style per feature method, the same in every figure.
STYLES = {
    "dense": Style("dense", BLACK, "o"),
    "streamed": Style("streamed", SKY, "X", (0, (3, 1))),
    "orthogonal": Style("orthogonal", GREEN, "^", "-."),
    "structured": Style("structured", BLUE, "s", "--"),
    "qmc": Style("qmc", PINK, "D", ":"),
    "landmarks": Style("landmarks", SKY, "h", "-"),
    "RBFSampler": Style("RBFSampler", RED, "v", (0, (5, 1, 1, 1, 1, 1))),
    "RBFSampler float32": Style("RBFSampler", RED, "v", (0, (5, 1, 1, 1, 1, 1))),
    "Nystroem": Style("Nystroem", ORANGE, "P", (0, (8, 3))),
}


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


@dataclass(frozen=True)
class LabelledRows:
    """Training and test rows in float32, and their classes."""

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    description: dict[str, Any]

    @contextmanager
    def saved(self) -> Iterator[str]:
        """Store the arrays in a folder for processes to read (:func:`saved_rows`)."""
        arrays = [getattr(self, name) for name in ARRAYS]
        with saved_arrays(*arrays) as folder:
            yield folder


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a context with a temporary folder in ``TMPDIR``."""
    return tempfile.TemporaryDirectory(prefix="randkern-bench-")


@contextmanager
def saved_arrays(*arrays: Any) -> Iterator[str]:
    """Store training and test arrays in a temporary folder."""
    with temporary_folder() as folder:
        for name, array in zip(ARRAYS, arrays, strict=True):
            np.save(Path(folder) / f"{name}.npy", array)
        yield folder


def saved_rows(folder: str, n_train: int | None = None) -> tuple[Any, Any, Any, Any]:
    """Return X, y, X_test and y_test from files, with the first training rows."""
    X, y, X_test, y_test = (
        np.load(Path(folder) / f"{name}.npy", mmap_mode="r")[
            : n_train if name.endswith("train") else None
        ]
        for name in ARRAYS
    )
    return np.array(X), np.array(y), np.array(X_test), np.array(y_test)


def load_rows(options: RowOptions) -> LabelledRows:
    """Prepare a data set, and draw at most ``n`` and ``n_test`` of its rows."""
    data_dir, target = options.data_dir, options.target
    dataset = load_dataset(options.data, data_dir=data_dir, target=target)
    if dataset.task != "classification":
        raise ValueError(
            f"this benchmark classifies, but {dataset.name} is a {dataset.task}; "
            "use randkern compare for it"
        )
    whole = prepare(dataset)
    rng = np.random.default_rng(0)
    train = np.sort(rng.permutation(len(whole.X_train))[: options.n])
    test = np.sort(rng.permutation(len(whole.X_test))[: options.n_test])
    description = {
        "name": dataset.name,
        "n_train": len(train),
        "n_test": len(test),
        "n_features": int(whole.X_train.shape[1]),
        "n_classes": len(np.unique(whole.y_train[train])),
        "preprocessing": whole.preprocessing,
    }
    # float32 is the dtype of loaded images, and all contenders preserve it.
    return LabelledRows(
        np.ascontiguousarray(whole.X_train[train], dtype=np.float32),
        whole.y_train[train],
        np.ascontiguousarray(whole.X_test[test], dtype=np.float32),
        whole.y_test[test],
        description,
    )


def warm_up_rows(y: Any) -> np.ndarray:
    """Return the indices of some of the first rows, with at least one per class."""
    _, firsts = np.unique(y, return_index=True)
    return np.union1d(firsts, np.arange(min(_WARM_UP_ROWS, len(y))))


def known_names(kind: str, names: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return distinct names, or raise for unknown ones.

    Examples
    --------
    >>> from randkern_lab.benchmarks.rows import known_names
    >>> known_names("method", ["a", "b", "a"], "abc")
    ['a', 'b']
    """
    listed = ", ".join(known)
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; expected some of {listed}")
    if not names:
        raise ValueError(f"nothing to run: name some of {listed}")
    return list(dict.fromkeys(names))


def parse_lengthscale(text: str) -> float | str:
    """Parse a positive number, ``scale`` or ``median``.

    Examples
    --------
    >>> from randkern_lab.benchmarks.rows import parse_lengthscale
    >>> parse_lengthscale("5"), parse_lengthscale("median")
    (5.0, 'median')
    """
    if text in ("scale", "median"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ValueError(
            f"lengthscale must be a positive number, scale or median, got {text!r}"
        )
    return value
