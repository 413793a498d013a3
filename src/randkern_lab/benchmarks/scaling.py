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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score

import randkern

from ..figures import Style, curves, name_axes, panels
from ..options import CommonOptions, Sizes, option
from ..process import in_fresh_process
from ..runner import Case, grid, measure_all
from ..scoring import ended, fit_and_score
from ..tables import fitted_power, listing

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

    n_components: Sizes = option(
        (1000, 3000, 10_000, 30_000, 100_000), "Numbers of features.", quick=(16, 32)
    )
    n: Sizes = option(
        (1000, 10_000, 100_000, 1_000_000), "Numbers of rows.", quick=(60, 120)
    )
    fixed_n: int = option(10_000, "Rows, while the features vary.", quick=50)
    fixed_n_components: int = option(2048, "Features, while rows vary.", quick=16)
    d: int = option(64, "Columns.", quick=4)
    alpha: float = option(1e-3, "The ridge penalty.")
    memory_limit: str = option("200MB", "Of models while rows vary.")


SKIPPED_BY = ("axis", "n", "n_components")


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor in this process to rows that are read block by block."""
    folder, n, d = Path(request["folder"]), request["n"], request["d"]
    first = request["test_from"]

    model = randkern.KernelRidgeRegressor(
        randkern.Gaussian(math.sqrt(d)),
        request["alpha"],
        request["n_components"],
        fit_intercept=True,
        solver="pcg",
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
    )
    tested = read_rows(folder, d, first, first + TEST_ROWS)
    blocks = randkern.RowBlocks(partial(row_blocks, folder, n, d), n_rows=n)
    trial = fit_and_score(model, blocks, None, *tested, r2_score)
    solved = ended(model.solution_)
    return {
        "train_seconds": trial.fit.seconds,
        "predict_seconds": trial.predict.seconds,
        "test_error": 1 - trial.score,
        "iterations": solved.pop("solver_iterations"),
        **solved,
    }


def run(options: Options) -> pd.DataFrame:
    """Write rows, and fit them with several D and n, each in a process of its own."""
    d, first = options.d, max(*options.n, options.fixed_n)  # of the test rows
    with TemporaryDirectory() as folder:
        write_rows(Path(folder), first + TEST_ROWS, d, options.seed)

        def measure(case: Case) -> dict[str, Any]:
            limit = options.memory_limit if case["axis"] == "n" else None
            request = options.arguments() | case | {"memory_limit": limit}
            request |= {"folder": folder, "test_from": first}
            few = {"n": 64, "n_components": 16}
            result = in_fresh_process(fit_stream, request, few)
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
    records = frame.assign(curve="pcg", peak_gb=frame.peak_memory_bytes / 1e9)
    figure, axes = panels(4, 2, (4.4, 3.2))
    styles = {"pcg": Style("randkern, pcg", "blue", "s")}
    shown = {"train_seconds": "seconds of fit", "peak_gb": "peak memory (GB)"}
    for place, (y, axis) in zip(axes, product(shown, _AXES), strict=True):
        curves(place, records[records.axis == axis], axis, y, styles, "curve")
        name_axes(place, xlabel=_AXES[axis][0], ylabel=shown[y])
    return figure


# -- rows in files ---------------------------------------------------------------------


def read_rows(folder: Path, d: int, start: int, stop: int) -> tuple[Any, Any]:
    """Return rows of the files, and their targets.

    A memory map would serve a fit as well, but its pages count as memory of the process
    for as long as the system keeps them, whatever the fit needs.
    """
    n, offset = stop - start, 4 * start
    X = np.fromfile(folder / "X.float32", np.float32, n * d, offset=offset * d)
    y = np.fromfile(folder / "y.float32", np.float32, n, offset=offset)
    return X.reshape(n, d), y


def row_blocks(folder: Path, n: int, d: int) -> Iterator[tuple[Any, Any]]:
    """Yield the first rows of the files, block by block."""
    for start in range(0, n, _CHUNK_ROWS):
        yield read_rows(folder, d, start, min(start + _CHUNK_ROWS, n))


def write_rows(folder: Path, n: int, d: int, seed: int) -> None:
    """Write `n` normal rows and their targets, some rows at a time.

    As in real data, the columns' variances decrease: that of column j as 1/j², with
    mean 1. The target is a smooth function plus noise of variance 0.01:
    y = √2 sin(w·x + b) + 0.1 ε, where w has a random direction and w·x has variance 1.
    """
    rng = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, d + 1)
    sizes = (sizes / math.sqrt(np.mean(sizes**2))).astype(np.float32)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction * sizes)
    offset = rng.uniform(0, 2 * math.pi)
    files = (folder / "X.float32").open("wb"), (folder / "y.float32").open("wb")
    with files[0] as X_file, files[1] as y_file:
        for start in range(0, n, _CHUNK_ROWS):
            size = min(_CHUNK_ROWS, n - start)
            X: Any = rng.standard_normal((size, d), dtype=np.float32)
            X *= sizes
            y = math.sqrt(2) * np.sin(X @ direction + offset)
            y += _NOISE * rng.standard_normal(size)
            X.tofile(X_file)
            y.astype(np.float32).tofile(y_file)
