"""``randkern bench ridge --scaling``: cost against D and against n."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from randkern._memory import resolve_memory_limit

from .labelled_rows import checked_counts
from .ridge_contenders import RidgeContender
from .ridge_process import StreamedTask, fit_stream
from .row_file import write_rows
from .timing import Progress

__all__ = ["DEFAULT_N_COMPONENTS", "DEFAULT_ROWS", "exponents", "run"]

DEFAULT_N_COMPONENTS = (1000, 3000, 10_000, 30_000, 100_000)
DEFAULT_ROWS = (1000, 10_000, 100_000, 1_000_000)
_TEST_ROWS = 2000
_AXES = ("n_components", "n")
_COSTS = ("train_seconds", "seconds_per_iteration", "peak_memory_bytes")


def run(
    n_components: Sequence[int] = DEFAULT_N_COMPONENTS,
    rows: Sequence[int] = DEFAULT_ROWS,
    *,
    fixed_n_components: int = 2048,
    fixed_n: int = 10_000,
    d: int = 64,
    alpha: float = 1e-3,
    memory_limit: int | str | None = None,
    streaming_memory_limit: int | str | None = "200MB",
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time conjugate gradients on streamed rows against D and against n.

    Rows are normal with falling variances, float32, with one target each
    (:func:`.row_file.write_rows`), written once into a temporary folder, whose place
    the environment variable ``TMPDIR`` sets, and read block by block with
    `randkern.RowBlocks` in every pass. The kernel is Gaussian with lengthscale √d.
    Every fit has a process of its own and fits 64 rows before it is timed.

    Parameters
    ----------
    n_components : sequence of int
        Values of D, at `fixed_n` rows.
    rows : sequence of int
        Values of n, at `fixed_n_components` features.
    fixed_n_components, fixed_n : int
    d : int, default=64
    alpha : float, default=1e-3
    memory_limit : int or str, optional
        Of the fits against D.
    streaming_memory_limit : int or str, optional
        Of the fits against n: features are kept as long as they fit, so that memory
        grows with n up to this limit.
    seed : int, default=0
    progress : callable, optional
        Called as ``progress(done, total, doing)``.

    Returns
    -------
    results : dict
        ``arguments``; ``records``, each with ``axis`` (``"n_components"`` or ``"n"``:
        what varies), ``n_components``, ``n``, ``d``, ``seconds_per_iteration`` and
        what :func:`.ridge_process.fit_stream` returns; ``exponents``
        (:func:`exponents`); ``skipped`` (``family``, ``method``, ``n``,
        ``n_components``, ``reason``).

    Raises
    ------
    ValueError
        If an argument is not as described above, or the disk has no room.
    """
    sizes = checked_counts("n_components", n_components)
    counts = checked_counts("rows", rows)
    checked_counts("fixed_n_components", [fixed_n_components])
    checked_counts("fixed_n", [fixed_n])
    checked_counts("d", [d])
    limits = dict(zip(_AXES, (memory_limit, streaming_memory_limit), strict=True))
    limits = {axis: v and resolve_memory_limit(v) for axis, v in limits.items()}
    points = [("n_components", size, fixed_n) for size in sizes]
    points += [("n", fixed_n_components, count) for count in counts]
    most = max(count for _, _, count in points)
    records, skipped = [], []
    with tempfile.TemporaryDirectory(prefix="randkern-bench-") as folder:
        _report(progress, 0, len(points), f"writing {most:,} rows")
        X, y = write_rows(folder, most + _TEST_ROWS, d, seed)
        for done, (axis, size, count) in enumerate(points):
            _report(progress, done, len(points), f"{size:,} features, {count:,} rows")
            task = StreamedTask(X, y, d, count, _TEST_ROWS, most)
            contender = RidgeContender(
                *("pcg", "gaussian", size, alpha, math.sqrt(d)),
                memory_limit=limits[axis],
                seed=seed,
            )
            record, note = _measure(contender, task)
            records += [{"axis": axis} | each for each in record]
            skipped += note
    _report(progress, len(points), len(points), "done")
    return {
        "arguments": {
            "n_components": sizes,
            "rows": counts,
            "fixed_n_components": fixed_n_components,
            "fixed_n": fixed_n,
            "d": d,
            "lengthscale": math.sqrt(d),
            "alpha": alpha,
            "memory_limit": limits["n_components"],
            "streaming_memory_limit": limits["n"],
            "seed": seed,
        },
        "records": records,
        "exponents": exponents(records),
        "skipped": skipped,
    }


def exponents(
    records: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return how costs grow along each axis, as powers of what varies.

    Parameters
    ----------
    records : sequence of mapping
        As :func:`run` makes them.

    Returns
    -------
    exponents : dict
        For each axis, and for ``train_seconds``, ``seconds_per_iteration`` and
        ``peak_memory_bytes``: ``all``, the least-squares slope of the logarithms, and
        ``last``, that between the two largest points, where what does not grow weighs
        least. Null with fewer than two points. 1 is linear.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_scaling import exponents
    >>> costs = {"seconds_per_iteration": 1.0, "peak_memory_bytes": 10**8}
    >>> records = [costs | {"axis": "n", "n": n, "train_seconds": 1.0 + n / 1000}
    ...            for n in (1000, 10_000, 100_000)]
    >>> slopes = exponents(records)["n"]["train_seconds"]
    >>> round(slopes["all"], 2), round(slopes["last"], 2)
    (0.85, 0.96)
    """
    slopes: dict[str, dict[str, dict[str, float | None]]] = {}
    for axis in _AXES:
        own = sorted(
            (record for record in records if record["axis"] == axis),
            key=lambda record: record[axis],
        )
        slopes[axis] = {}
        for cost in _COSTS:
            points = [(record[axis], record[cost]) for record in own]
            slopes[axis][cost] = {"all": _slope(points), "last": _slope(points[-2:])}
    return slopes


def _measure(
    contender: RidgeContender, task: StreamedTask
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return one record, or one note of what was skipped."""
    place = {"n_components": contender.n_components, "n": task.n}
    try:
        measured = fit_stream(contender, task)
    except ValueError as error:  # too little memory
        who = {"family": contender.family, "method": contender.label}
        return [], [{**who, **place, "reason": str(error)}]
    each = measured["train_seconds"] / max(measured["iterations"], 1)
    return [{**place, "d": task.d, "seconds_per_iteration": each, **measured}], []


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the least-squares slope of log y against log x."""
    if len(points) < 2:
        return None
    logs = np.log(np.array(points, dtype=float))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def _report(progress: Progress | None, done: int, total: int, doing: str) -> None:
    if progress is not None:
        progress(done, total, doing)
