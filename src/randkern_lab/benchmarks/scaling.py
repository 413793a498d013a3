"""How the cost of conjugate gradients grows with D and with n, on streamed rows.

Rows are float32 normals with descending variances, 64 columns and one target
(:func:`write_rows`), written once to a temporary folder, set by the environment
variable ``TMPDIR``, and read block by block in every pass. The kernel is Gaussian with
lengthscale √d. Fits against D (10,000 rows) use the models' memory limit, those against
n (2,048 features) 200 MB: features are cached as long as they fit, so memory grows with
n up to that limit. Each fit runs in its own process, and fits 64 rows before it is
timed.
"""

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern
from randkern._memory import format_bytes

from ..contenders import Contender
from ..figures import Style, curves, panels
from ..options import CommonOptions, option
from ..process import in_fresh_process
from ..runner import Case, grid, measure_all
from ..scoring import ended
from ..tables import fitted_power, listing
from .classifiers import ridge
from .rows import PREFIX, Rows, warm_trial

TEST_ROWS = 2000
_CHUNK_ROWS = 65_536
_NOISE = 0.1
# What varies, and what does not.
_AXES = {
    "n_components": ("features D", "n = {n:,}"),
    "n": ("training rows n", "D = {n_components:,}"),
}
_COSTS = {
    "train_seconds": "fit",
    "seconds_per_iteration": "an iteration",
    "peak_memory_bytes": "peak",
}


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench scaling``."""

    n_components: tuple[int, ...] = option(
        (1000, 3000, 10_000, 30_000, 100_000), "Numbers of features.", quick=(16, 32)
    )
    n: tuple[int, ...] = option(
        (1000, 10_000, 100_000, 1_000_000), "Numbers of rows.", quick=(60, 120)
    )
    fixed_n: int = option(10_000, "Rows, while the features vary.", quick=50)
    fixed_n_components: int = option(2048, "Features, while rows vary.", quick=16)
    d: int = option(64, "Columns.", quick=4)
    alpha: float = option(1e-3, "The ridge penalty.")
    memory_limit: str = option("200MB", "Of models while rows vary.")


SKIPPED_BY = ("axis", "n", "n_components")


class _Streamed(randkern.KernelRidgeRegressor):
    """Ridge regression that reads its rows block by block."""

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(randkern.RowBlocks.from_arrays(X, y))


def _pcg(request: Mapping[str, Any]) -> Any:
    return ridge(request, _Streamed, solver="pcg")


def unexplained(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Return the unexplained share of the variance of targets."""
    return float(np.mean((y - predicted) ** 2) / np.var(y))


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor in this process to rows that are read block by block."""
    n, d, first = request["n"], request["d"], request["test_from"]
    X, y = (Path(request["folder"]) / f"{name}.float32" for name in "Xy")
    last = first + TEST_ROWS
    X_test, y_test = RowFile(X, (last, d))[first:], RowFile(y, (last,))[first:]
    rows = Rows(RowFile(X, (n, d)), RowFile(y, (n,)), X_test, y_test)
    pcg = Contender("randkern, pcg", make=_pcg)
    trial, warm_up, model = warm_trial(pcg, request, rows, unexplained)
    solved = ended(model.solution_)
    return {
        "train_seconds": trial.fit.seconds,
        "predict_seconds": trial.predict.seconds,
        "warm_up_seconds": warm_up,
        "test_error": trial.score,
        "iterations": solved.pop("solver_iterations"),
        **solved,
    }


def run(options: Options) -> pd.DataFrame:
    """Write rows, and fit them with several D and n, each in a process of its own."""
    d, first = options.d, max(*options.n, options.fixed_n)  # of the test rows
    with TemporaryDirectory(prefix=PREFIX) as folder:
        write_rows(folder, first + TEST_ROWS, d, options.seed)

        def measure(case: Case) -> dict[str, Any]:
            limit = options.memory_limit if case["axis"] == "n" else None
            request = {
                **{**options.arguments(), **case, "kernel": "gaussian", "degree": 2.0},
                **{"lengthscale": math.sqrt(d), "memory_limit": limit},
                **{"folder": folder, "test_from": first},
            }
            result = in_fresh_process(fit_stream, request)
            item = result["train_seconds"] / max(result["iterations"], 1)
            return {"d": d, "seconds_per_iteration": item, **result}

        sizes, fixed = options.n_components, [options.fixed_n_components]
        by_size = grid(axis=["n_components"], n_components=sizes, n=[options.fixed_n])
        by_rows = grid(axis=["n"], n_components=fixed, n=options.n)
        return measure_all(options, [*by_size, *by_rows], measure)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    for axis, (name, fixed) in _AXES.items():
        own = frame.query(f"axis == '{axis}'").sort_values(axis)
        # 1 is linear; constant costs matter least between the two largest sizes.
        powers = [
            f"{text} {_power(own, axis, key)}, {_power(own.tail(2), axis, key)}"
            for key, text in _COSTS.items()
        ]
        yield from listing(
            own,
            f"pcg on streamed rows, d = {{d:,}}, {fixed}",
            f"{name} | fit | iterations | an iteration | peak | anonymous | "
            "test error | outcome",
            f"{{{axis}:,}} | {{train_seconds:seconds}} | {{iterations:number}} | "
            "{seconds_per_iteration:seconds} | {peak_memory_bytes:megabytes} | "
            "{peak_anonymous_bytes:megabytes} | {test_error:percent} | "
            "{outcome:words}",
            f"exponents (all points, last two): {'; '.join(powers)}",
        )


def _power(own: Any, axis: str, key: str) -> str:
    power = fitted_power(own[axis], own[key])
    return "" if power is None else f"{power:.2f}"


def figure(frame: pd.DataFrame) -> Any:
    """Return seconds and memory against D and against n."""
    records = frame.assign(curve="pcg")
    records["peak_gb"] = records.peak_memory_bytes / 1e9
    figure, axes = panels(4, 2, (4.4, 3.2))
    styles = {"pcg": Style("randkern, pcg", "blue", "s")}
    for row, (key, label) in enumerate(
        {"train_seconds": "seconds of fit", "peak_gb": "peak memory (GB)"}.items()
    ):
        for column, (axis, (name, _)) in enumerate(_AXES.items()):
            own = records[records.axis == axis]
            curves(
                axes[2 * row + column],
                own,
                axis,
                key,
                styles,
                "curve",
                xlabel=name,
                ylabel=label,
            )
    return figure


# -- rows in files ---------------------------------------------------------------------


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
