"""``randkern bench features``: nanoseconds a feature, beside peers and the machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.plan import evaluate
from randkern.study.records import describe_machine, installed_versions

from .contenders import (
    FAMILIES,
    Contender,
    contenders,
    known_projections,
    make_rows,
)
from .fresh_process import measure_afresh
from .timing import Progress, interleave, roofline, thread_counts

__all__ = ["DEFAULT_DIMENSIONS", "DEFAULT_SIZES", "run", "sweep"]

DEFAULT_DIMENSIONS = (64, 256, 1024, 4096, 16384)
DEFAULT_SIZES = (1024, 4096, 16384, 65536)
# These multiply by a matrix that they keep, exactly as "dense" does.
_TIMED_AS_DENSE = ("orthogonal", "qmc")
# Fast transforms: the bound of the matrix product is not theirs.
_WITHOUT_PRODUCT = ("structured",)
_WARM_UP_ROWS = 256
_IN_PLACE = ", in place"
_SWEEP_ROWS = 1000


def run(
    d: int = 784,
    n_components: int = 10240,
    n: int = 6000,
    *,
    repeats: int = 5,
    degree: float = 2.0,
    projections: Sequence[str] | None = None,
    families: Sequence[str] = FAMILIES,
    memory: bool = True,
    cold: bool = True,
    memory_limit: int | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time every projection beside scikit-learn and NumPy, in one process.

    Rows are standard normal. The Gaussian kernel has lengthscale √d; its peers are
    scikit-learn's ``RBFSampler`` on float64 rows (what it does by default) and on
    float32 rows (it then keeps float32 throughout). The peer of the optical kernel
    is two dense float32 products in NumPy, squared and added in place. The
    contenders of a family take turns, `repeats` times, each after a call of its own
    that is not timed.

    Parameters
    ----------
    d, n_components, n : int
        Input columns, features (columns of the output), rows.
    repeats : int, default=5
    degree : float, default=2
        m of the optical kernel.
    projections : sequence of str, optional
        Default: all that the library has.
    families : sequence of {"gaussian", "optical"}
    memory : bool, default=True
        Measure peak memory and the first call with compiled code cached, each
        contender in a process of its own.
    cold : bool, default=True
        Measure the first call without cached code, in one more process each.
    memory_limit : int or str, optional
        Contenders whose matrix, input and output would exceed it are skipped, and
        say so. Default: half of the memory that is free.
    seed : int, default=0
    progress : callable, optional
        Called as ``progress(done, total, doing)``.

    Returns
    -------
    results : dict
        JSON-compatible: ``command``, ``arguments``, ``versions``, ``machine``,
        ``roofline`` (:func:`.timing.roofline`), ``records`` and ``skipped``
        (``family``, ``method``, ``reason``). A record has ``family``, ``method``,
        ``library``, ``dtype``, ``fit_seconds``, ``seconds`` (the median of
        ``repeats_seconds``, of transform), ``ns_per_feature`` (seconds over rows ×
        features), ``ns_per_feature_in_place`` (the same written into an array in use,
        by :func:`randkern.plan.evaluate`; null for the peers, which always return a
        new one), ``speedup_over_float32`` and ``speedup_over_float64`` (the peer's
        seconds over its own; null without that peer), ``bound_ns`` (the larger of
        the time to write the output and, where a matrix is multiplied, of the
        product), ``output_bytes``, ``peak_memory_bytes`` (above the input, output
        included), ``first_call_seconds`` and ``cold_call_seconds``.

    Raises
    ------
    ValueError
        If an argument is not as described above, or everything was skipped.

    Examples
    --------
    >>> from randkern_lab.benchmarks import features
    >>> results = features.run(16, 64, 100, repeats=1, projections=["dense"],
    ...                        families=["gaussian"], memory=False, cold=False)
    >>> [record["method"] for record in results["records"]]
    ['RBFSampler float64', 'RBFSampler float32', 'dense']
    """
    problem = _Problem(n, d, n_components, seed, _limit(memory_limit))
    _check_positive(d=d, n_components=n_components, n=n, repeats=repeats)
    if degree <= 0:
        raise ValueError(f"degree must be positive, got {degree}")
    names = known_projections(projections)
    members = {family: contenders(family, names, degree) for family in families}
    if not members:
        raise ValueError(f"no family was named; expected some of {FAMILIES}")
    steps = _Steps(
        progress,
        1
        + sum(map(len, members.values())) * (1 + repeats + memory + cold)
        + len(members) * len(names) * repeats,
    )
    steps.next("roofline")
    bounds = roofline(n, d, n_components)
    timed: list[tuple[Contender, dict[str, Any]]] = []
    skipped: list[dict[str, Any]] = []
    for family in members:
        timed += _run_family(problem, members[family], repeats, steps, skipped, True)
    if not timed:
        raise ValueError(f"nothing could be run: {skipped[0]['reason']}")
    for contender, record in timed:
        record["bound_ns"] = _bound(contender, bounds)
        _add_processes(record, contender, problem, memory, cold, steps)
    steps.finish()
    return {
        "command": "bench features",
        "arguments": {
            "d": d,
            "n_components": n_components,
            "n": n,
            "repeats": repeats,
            "degree": degree,
            "projections": names,
            "families": list(families),
            "memory_limit": problem.memory_limit,
            "seed": seed,
        },
        **_environment(),
        "roofline": bounds,
        "records": [record for _, record in timed],
        "skipped": skipped,
    }


def sweep(
    dimensions: Sequence[int] = DEFAULT_DIMENSIONS,
    sizes: Sequence[int] = DEFAULT_SIZES,
    *,
    d: int = 784,
    n_components: int = 10240,
    n: int = _SWEEP_ROWS,
    repeats: int = 3,
    projections: Sequence[str] | None = None,
    memory_limit: int | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time Gaussian features against d at fixed D, and against D at fixed d.

    Parameters
    ----------
    dimensions : sequence of int
        Values of d, at `n_components` features.
    sizes : sequence of int
        Values of D, on `d` columns.
    d, n_components, n : int
        What stays fixed; `n` rows in every point.
    repeats : int, default=3
    projections : sequence of str, optional
        Default: all but orthogonal and qmc, which multiply by a matrix that they
        keep, as dense does, and take as long.
    memory_limit, seed, progress
        As in :func:`run`.

    Returns
    -------
    results : dict
        ``arguments``; ``records``, each with ``axis`` (``"d"`` or
        ``"n_components"``: what varies), ``d``, ``n_components``, ``n``,
        ``method``, ``seconds`` (median), ``ns_per_feature``; ``exponents``: for
        each axis and method the least-squares slope of log seconds against the log
        of what varies (1 is linear); ``skipped``.

    Examples
    --------
    >>> from randkern_lab.benchmarks import features
    >>> results = features.sweep([8, 16], [64], d=8, n_components=32, n=50,
    ...                          repeats=1, projections=["dense"])
    >>> [(r["axis"], r["d"], r["n_components"]) for r in results["records"]][1::2]
    [('d', 8, 32), ('d', 16, 32), ('n_components', 8, 64)]
    """
    _check_positive(d=d, n_components=n_components, n=n, repeats=repeats)
    for value in (*dimensions, *sizes):
        _check_positive(**{"every point of a sweep": value})
    names = known_projections(projections)
    if projections is None:
        names = [name for name in names if name not in _TIMED_AS_DENSE]
    limit = _limit(memory_limit)
    members = [
        each for each in contenders("gaussian", names) if each.dtype == "float32"
    ]
    points = [("d", value, n_components) for value in sorted(set(dimensions))]
    points += [("n_components", d, value) for value in sorted(set(sizes))]
    steps = _Steps(progress, len(points) * len(members) * (1 + repeats))
    records: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for axis, width, size in points:
        problem = _Problem(n, width, size, seed, limit)
        place = {"axis": axis, "d": width, "n_components": size}
        own_skipped: list[dict[str, Any]] = []
        for _, record in _run_family(problem, members, repeats, steps, own_skipped):
            kept = ("method", "seconds", "ns_per_feature")
            records.append(place | {"n": n} | {key: record[key] for key in kept})
        skipped += [place | note for note in own_skipped]
    steps.finish()
    return {
        "arguments": {
            "dimensions": sorted(set(dimensions)),
            "sizes": sorted(set(sizes)),
            "d": d,
            "n_components": n_components,
            "n": n,
            "repeats": repeats,
            "projections": names,
        },
        "records": records,
        "exponents": _exponents(records),
        "skipped": skipped,
    }


@dataclass(frozen=True)
class _Problem:
    """The sizes that a family's contenders share."""

    n: int
    d: int
    n_components: int
    seed: int
    memory_limit: int

    def why_not(self, contender: Contender) -> str | None:
        """Say why a contender cannot run within the memory limit."""
        size = np.dtype(contender.dtype).itemsize
        matrix = contender.matrix_bytes(self.d, self.n_components)
        # One array beside the output: NumPy's second product.
        outputs = 2 if contender.package == "numpy" else 1
        arrays = (self.n * self.d + outputs * self.n * self.n_components) * size
        if matrix + arrays <= self.memory_limit:
            return None
        return (
            f"its matrix takes {format_bytes(matrix)}, input and output "
            f"{format_bytes(arrays)}: more than the limit of "
            f"{format_bytes(self.memory_limit)}"
        )


class _Steps:
    """Counts steps towards a total and reports them."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def next(self, doing: str, steps: int = 1) -> None:
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total, doing)
        self._done += steps

    def finish(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total, "done")


def _run_family(
    problem: _Problem,
    members: Sequence[Contender],
    repeats: int,
    steps: _Steps,
    skipped: list[dict[str, Any]],
    in_place: bool = False,
) -> list[tuple[Contender, dict[str, Any]]]:
    """Fit every member that can run, then time their transforms in turn."""
    single = make_rows(problem.n, problem.d, "float32", problem.seed)
    double = None
    calls: dict[str, Any] = {}
    out = None
    timed: dict[str, tuple[Contender, dict[str, Any]]] = {}
    for contender in members:
        label = contender.label
        steps.next(f"{contender.family}, {label}: fitting")
        reason = problem.why_not(contender)
        if reason is None and contender.dtype == "float64" and double is None:
            double = single.astype(np.float64)
        X: Any = double if contender.dtype == "float64" else single
        if reason is None:
            try:
                feature_map, seconds = _fitted(contender, problem, X)
            except ValueError as error:  # a law or a width that it cannot draw
                reason = str(error)
        if reason is not None:
            twice = in_place and contender.package == "randkern"
            rounds = repeats * (2 if twice else 1)
            steps.next(f"{contender.family}, {label}: skipped", rounds)
            note = {"family": contender.family, "method": label, "reason": reason}
            skipped.append(note)
            continue
        calls[label] = partial(feature_map.transform, X)
        if in_place and contender.package == "randkern":
            if out is None:
                out = np.zeros((problem.n, problem.n_components), dtype=np.float32)
            calls[label + _IN_PLACE] = partial(evaluate, feature_map.plan_, X, out=out)
        record: dict[str, Any] = {"family": contender.family, "method": label}
        record |= {"library": contender.package, "dtype": contender.dtype}
        timed[label] = (contender, record | {"fit_seconds": seconds})

    def report(label: str) -> None:
        steps.next(f"{members[0].family}, {label}: timing")

    nanoseconds = 1e9 / (problem.n * problem.n_components)
    seconds_of = interleave(calls, repeats, report)
    for label, (_, record) in timed.items():
        times, in_use = seconds_of[label], seconds_of.get(label + _IN_PLACE)
        record["seconds"] = median(times)
        record["repeats_seconds"] = times
        record["ns_per_feature"] = median(times) * nanoseconds
        record["ns_per_feature_in_place"] = (
            None if in_use is None else median(in_use) * nanoseconds
        )
    _add_speedups([record for _, record in timed.values()])
    return list(timed.values())


def _fitted(contender: Contender, problem: _Problem, X: Any) -> tuple[Any, float]:
    """Return a fitted and warmed-up map, and how long that took.

    A projection may draw its matrix when it is first used, so that the warm-up
    counts as fitting.
    """
    feature_map = contender.build(problem.d, problem.n_components, problem.seed)
    gc.collect()
    start = time.perf_counter()
    feature_map.fit(X).transform(X[:_WARM_UP_ROWS])
    return feature_map, time.perf_counter() - start


def _add_speedups(records: Sequence[dict[str, Any]]) -> None:
    """Add how many times faster than its family's peers each record is."""
    peers = {
        record["dtype"]: record["seconds"]
        for record in records
        if record["library"] != "randkern"
    }
    for record in records:
        for dtype in ("float32", "float64"):
            peer = peers.get(dtype)
            ratio = None if peer is None else peer / record["seconds"]
            record[f"speedup_over_{dtype}"] = ratio


def _bound(contender: Contender, bounds: dict[str, float]) -> float | None:
    """Return the nanoseconds a feature that this method cannot go below.

    The rates were measured in float32: there is none for the float64 peer.
    """
    if contender.dtype != "float32":
        return None
    if contender.method in _WITHOUT_PRODUCT:
        return bounds["write_new_ns"]
    products = 2.0 if contender.family == "optical" else 1.0
    if contender.package == "randkern" and contender.family == "gaussian":
        products = 0.5  # one frequency gives a cosine and a sine
    return max(bounds["write_new_ns"], products * bounds["product_ns"])


def _add_processes(
    record: dict[str, Any],
    contender: Contender,
    problem: _Problem,
    memory: bool,
    cold: bool,
    steps: _Steps,
) -> None:
    """Add what only a process of its own can measure."""
    sizes = (problem.n, problem.d, problem.n_components)
    what = f"{contender.family}, {contender.label}"
    itemsize = np.dtype(contender.dtype).itemsize
    record["output_bytes"] = problem.n * problem.n_components * itemsize
    record["peak_memory_bytes"] = record["first_call_seconds"] = None
    record["cold_call_seconds"] = None
    if memory:
        steps.next(f"{what}: peak memory")
        measured = measure_afresh(contender, *sizes, seed=problem.seed)
        record["peak_memory_bytes"] = measured.peak_memory_bytes
        record["first_call_seconds"] = measured.first_call_seconds
    if cold:
        steps.next(f"{what}: cold first call")
        if contender.package == "randkern":  # the peers compile nothing
            measured = measure_afresh(
                contender, *sizes, seed=problem.seed, first_call_only=True, cold=True
            )
            record["cold_call_seconds"] = measured.first_call_seconds


def _exponents(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the log-log slope of seconds for each axis and method."""
    slopes: dict[str, dict[str, float]] = {"d": {}, "n_components": {}}
    for axis, own in slopes.items():
        for method in dict.fromkeys(record["method"] for record in records):
            points = [
                (record[axis], record["seconds"])
                for record in records
                if (record["axis"], record["method"]) == (axis, method)
            ]
            if len(points) > 1:
                logs = np.log(np.array(points, dtype=float))
                own[method] = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return slopes


def _environment() -> dict[str, Any]:
    machine = describe_machine() | {"threads": thread_counts()}
    return {"versions": installed_versions(), "machine": machine}


def _limit(memory_limit: int | str | None) -> int:
    """Return the limit in bytes: what was given, or half of what is free."""
    if memory_limit is None:
        free = available_memory()
        return resolve_memory_limit(None) if free is None else free // 2
    return resolve_memory_limit(memory_limit)


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")
