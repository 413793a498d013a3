"""Rows that every process of a benchmark reads from files, and where they come from."""

import math
import shutil
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
from randkern._memory import format_bytes
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
_CHUNK_ROWS = 65_536
_NOISE = 0.1


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


@dataclass(frozen=True)
class RowFile:
    """The first rows of a file of float32 numbers, an array that is read in slices.

    Every slice is read with `numpy.fromfile`. A memory map would serve a fit as well,
    but its pages count as memory of the process for as long as the system keeps them,
    whatever the fit needs.
    """

    path: Path
    shape: tuple[int, ...]
    dtype = np.dtype(np.float32)

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"rows are read in a row, got a step of {step}")
        width = math.prod(self.shape[1:])
        n = max(0, stop - start)
        offset = start * width * self.dtype.itemsize
        flat = np.fromfile(self.path, self.dtype, n * width, offset=offset)
        return flat.reshape((n, *self.shape[1:]))


def write_rows(folder: str | Path, n: int, d: int, seed: int = 0) -> tuple[Path, Path]:
    """Write `n` normal rows and their targets, some rows at a time.

    As in real data, the columns' variances decrease: that of column j as 1/j², with
    mean 1. The target is a smooth function plus noise of variance 0.01:
    y = √2 sin(w·x + b) + 0.1 ε, where w has a random direction and w·x has variance 1.

    Returns the paths of the files of n × d and of n float32 numbers.
    """
    needed, free = 4 * n * (d + 1), shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{n:,} rows of {d:,} columns take {format_bytes(needed)}; {folder} has "
            f"{format_bytes(free)} left; set TMPDIR to another disk, or ask for fewer"
        )
    rng = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, d + 1)
    sizes = (sizes / math.sqrt(np.mean(sizes**2))).astype(np.float32)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction * sizes)
    offset = rng.uniform(0, 2 * math.pi)
    paths = Path(folder) / "X.float32", Path(folder) / "y.float32"
    with paths[0].open("wb") as X_file, paths[1].open("wb") as y_file:
        for start in range(0, n, _CHUNK_ROWS):
            size = min(_CHUNK_ROWS, n - start)
            X: Any = rng.standard_normal((size, d), dtype=np.float32)
            X *= sizes
            y = math.sqrt(2) * np.sin(X @ direction + offset)
            y += _NOISE * rng.standard_normal(size)
            X.tofile(X_file)
            y.astype(np.float32).tofile(y_file)
    return paths
