"""Seconds and joules of optical features against their number (Fig. 3).

Ohana et al. (2020), section 4.3, compare a GPU's matrix product (n, D) × (D, D) with
their device, which takes 500 µs a row and 30 W whatever D. Here optical features of
degree 2 are computed by three projections on the processor, and on a GPU if there is
one.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern._memory import resolve_memory_limit
from randkern._validation import check_count, check_positive
from randkern.optics import SimulatedOPU
from randkern.plan import evaluate

from .energy import EnergyMeter, Joules, cpu_meter, gpu_meter
from .published import published_rows
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["METHODS", "Options", "figure", "run", "tables"]

METHODS = ("dense", "streamed", "structured", "gpu")
_SIZES = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_QUICK_SIZES, _QUICK_BATCH = (100, 300, 1000), 50
# A measurement is repeated until it has taken so long: energy counters are coarse.
_LEAST_SECONDS, _QUICK_SECONDS = 0.3, 0.01
_GIGABYTE = 1e9


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce projection-cost`` takes."""

    n_components: Annotated[
        tuple[int, ...] | None, "Numbers of features; by default 1,000 to 100,000."
    ] = None
    batch: Annotated[int, "Rows; published are 20, 1,000 and 3,000."] = 1000
    columns: Annotated[
        int, "Columns of the rows; 0 takes as many as features, as published."
    ] = 0
    max_seconds: Annotated[
        float, "What would take a method longer for one batch is skipped."
    ] = 20.0
    memory_limit: Annotated[
        str, "What the matrix of a dense projection and its rows may take."
    ] = "4GB"


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Measure every method at every D.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. A record has ``method`` (one of
        ``dense``, ``streamed``, ``structured``, ``gpu``, ``device``),
        ``n_components``, ``columns``, ``batch``, ``seconds`` and ``joules`` of a batch
        (None where energy is not counted) and ``repeats``; the device's are its
        model. ``energy`` says what counts on ``cpu`` and ``gpu``; ``crossings`` has
        ``method``, ``quantity`` (``seconds`` or ``joules``) and ``n_components``, the
        D from which the device takes less (None: at no D measured; 0: at all);
        ``skipped`` has ``method``, ``n_components`` and ``reason``. ``published`` has
        the P100's records at the nearest batch.

    Notes
    -----
    Neither the drawing of a dense matrix nor copies to and from the GPU are timed,
    as published; a streamed matrix is made anew in the time.

    Examples
    --------
    >>> from randkern_lab.papers.projection_cost import Options, run
    >>> results = run(Options(quick=True, n_components=(100, 200)))
    >>> [r["seconds"] for r in results["records"] if r["method"] == "device"]
    [0.025, 0.025]
    """
    start = time.perf_counter()
    batch = check_count("batch", options.batch)
    sizes = sorted(options.n_components or _SIZES)
    if options.quick:
        batch = min(batch, _QUICK_BATCH)
        sizes = sorted(options.n_components or _QUICK_SIZES)
    for size in sizes:
        check_count("n_components", size)
    check_positive("max_seconds", options.max_seconds)
    costs = _Costs(options, batch, progress)
    costs.run(sizes)
    results = begin_results("projection-cost", options)
    results |= {
        "records": costs.records,
        "energy": {"cpu": costs.cpu.name, "gpu": costs.gpu.name},
        "skipped": costs.skipped,
        "crossings": _crossings(costs.records),
        "published": _published(batch),
        "seconds": time.perf_counter() - start,
    }
    results["published_crossings"] = _crossings(results["published"])
    results["notes"] = list(_notes(results))
    return results


class _Costs:
    """Measures one method at one D after the other, and keeps the records."""

    def __init__(self, options: Options, batch: int, progress: Progress | None) -> None:
        self.options = options
        self.batch = batch
        self.progress = progress
        self.records: list[dict[str, Any]] = []
        self.skipped: list[dict[str, Any]] = []
        self.cpu, self.gpu = cpu_meter(), gpu_meter()
        self.torch, self.no_gpu = _torch_with_gpu()
        self.memory_limit = resolve_memory_limit(options.memory_limit)

    def run(self, sizes: Sequence[int]) -> None:
        """Measure everything, and add the device's model."""
        total = len(METHODS) * len(sizes)
        for position, method in enumerate(METHODS):
            reason = self.no_gpu if method == "gpu" else None
            for index, size in enumerate(sizes):
                if self.progress is not None:
                    done = position * len(sizes) + index
                    self.progress(done, total, f"{method}: {size:,} features")
                reason = reason or self._too_much(method, size)
                if reason is not None:
                    self._skip(method, size, reason)
                    continue
                self._measure(method, size)
        device = SimulatedOPU(max(sizes))
        for size in sizes:
            seconds, joules = (
                device.time_seconds(self.batch),
                device.energy_joules(self.batch),
            )
            self._record("device", size, seconds, joules, 0)
        if self.progress is not None:
            self.progress(total, total, "done")

    def _skip(self, method: str, size: int, reason: str) -> None:
        note = {"method": method, "n_components": size, "reason": reason}
        self.skipped.append(note)

    def _columns(self, size: int) -> int:
        return self.options.columns or size

    def _too_much(self, method: str, size: int) -> str | None:
        """Return why a method is not measured, if it is not."""
        columns = self._columns(size)
        if method == "dense":
            # Real and imaginary part in float32, and what one of them is made from.
            needed = 4 * (3 * size * columns + self.batch * (columns + 3 * size))
            if needed > self.memory_limit:
                return (
                    f"its matrix and rows take {needed / _GIGABYTE:.1f} GB, more than "
                    f"the limit of {self.memory_limit / _GIGABYTE:.1f} GB"
                )
        own = [r for r in self.records if r["method"] == method]
        if own and method != "structured":
            last = own[-1]
            growth = size * columns / (last["n_components"] * last["columns"])
            expected = last["seconds"] * growth
            if expected > self.options.max_seconds:
                return (
                    f"it would take about {expected:.0f} s, more than "
                    f"{self.options.max_seconds:g} s"
                )
        return None

    def _measure(self, method: str, size: int) -> None:
        columns = self._columns(size)
        rng = np.random.default_rng(self.options.seed)
        X = rng.random((self.batch, columns), dtype=np.float32)
        if method == "gpu":
            work, meter = _on_gpu(self.torch, X, size), self.gpu
        else:
            work, meter = _on_cpu(X, size, method, self.options.seed), self.cpu
        seconds, joules, repeats = _timed(
            work, meter, _QUICK_SECONDS if self.options.quick else _LEAST_SECONDS
        )
        self._record(method, size, seconds, joules, repeats)

    def _record(
        self, method: str, size: int, seconds: float, joules: float | None, repeats: int
    ) -> None:
        self.records.append(
            {
                "method": method,
                "n_components": size,
                "columns": self._columns(size),
                "batch": self.batch,
                "seconds": seconds,
                "joules": joules,
                "repeats": repeats,
            }
        )


def _on_cpu(
    X: NDArray[np.float32], size: int, method: str, seed: int
) -> Callable[[], Any]:
    """Return what computes the features of all rows into an array in use."""
    features = randkern.RandomFeatures(
        randkern.Optical(2), size, projection=method, random_state=seed
    ).fit(X[:2])
    out = np.ones((len(X), size), dtype=np.float32)
    return lambda: evaluate(features.plan_, X, out=out)


def _torch_with_gpu() -> tuple[Any, str | None]:
    """Return PyTorch if it has a GPU, or the reason why not."""
    try:
        import torch
    except ImportError:
        return None, "PyTorch is not installed"
    if not torch.cuda.is_available():
        return None, "PyTorch finds no GPU"
    return torch, None


def _on_gpu(torch: Any, X: NDArray[np.float32], size: int) -> Callable[[], Any]:
    """Return what computes optical features there, and waits for them."""
    rows = torch.from_numpy(X).cuda()
    real, imag = (torch.randn(X.shape[1], size, device="cuda") for _ in range(2))

    def work() -> Any:
        out = torch.matmul(rows, real).square_() + torch.matmul(rows, imag).square_()
        torch.cuda.synchronize()
        return out

    return work


def _timed(
    work: Callable[[], Any], meter: EnergyMeter, least_seconds: float
) -> tuple[float, float | None, int]:
    """Return seconds and joules of one call, and of how many it is the mean."""
    work()  # compiles, and draws a matrix that is kept
    start = time.perf_counter()
    work()
    once = time.perf_counter() - start
    repeats = max(1, min(10_000, math.ceil(least_seconds / max(once, 1e-6))))
    with Joules(meter) as spent:
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        seconds = (time.perf_counter() - start) / repeats
    joules = None if spent.joules is None else spent.joules / repeats
    return seconds, joules, repeats


# -- results ------------------------------------------------------------------------


def _published(batch: int) -> list[dict[str, Any]]:
    """Return the P100's records, and the device's, of the batch nearest to ours."""
    rows = published_rows("projection-cost-p100")
    nearest = min({row["batch"] for row in rows}, key=lambda n: abs(n - batch))
    found = []
    for row in rows:
        if row["batch"] == nearest and row["gpu_seconds"]:
            size = row["n_components"]
            place = {"n_components": size, "columns": size, "batch": nearest}
            cost = {"seconds": row["gpu_seconds"], "joules": row["gpu_joules"]}
            found.append({"method": "P100", **place, **cost})
            model = {"seconds": 5e-4 * nearest, "joules": 1.5e-2 * nearest}
            found.append({"method": "device", **place, **model})
    return found


def _crossings(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the D from which the device takes less, on straight lines in log-log."""
    crossings = []
    for method in dict.fromkeys(r["method"] for r in records):
        for quantity in ("seconds", "joules"):
            ratios = [
                (r["n_components"], r[quantity] / device[quantity])
                for r in records
                for device in records
                if r["method"] == method != "device" == device["method"]
                and r["n_components"] == device["n_components"]
                and r[quantity]
            ]
            if ratios:
                crossing = _crossing(sorted(ratios))
                note = {"method": method, "quantity": quantity}
                crossings.append(note | {"n_components": crossing})
    return crossings


def _crossing(ratios: Sequence[tuple[int, float]]) -> float | None:
    """Return where a ratio passes 1 for the last time; 0 if it is never below."""
    if ratios[-1][1] <= 1:
        return None
    position = len(ratios) - 1
    while position and ratios[position - 1][1] > 1:
        position -= 1
    if position == 0:
        return 0.0
    (x0, y0), (x1, y1) = ratios[position - 1], ratios[position]
    share = math.log(y0) / (math.log(y0) - math.log(y1)) if y0 != y1 else 0.0
    return float(math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0))))


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    units = {"seconds": "time", "joules": "energy"}
    for key, source in (("crossings", ""), ("published_crossings", ", published")):
        for crossing in results[key]:
            size = crossing["n_components"]
            if size is None:
                where = "at no D measured"
            elif size == 0:
                where = "at every D measured"
            else:
                where = f"from D = {size:,.0f} on"
            yield (
                f"{crossing['method']}{source}: the device takes less "
                f"{units[crossing['quantity']]} {where}"
            )
    yield f"energy of the processor: {results['energy']['cpu']}"
    yield f"energy of the GPU: {results['energy']['gpu']}"
    reasons: dict[tuple[str, str], list[int]] = {}
    for note in results["skipped"]:
        same = (note["method"], note["reason"])
        reasons.setdefault(same, []).append(note["n_components"])
    for (method, reason), sizes in reasons.items():
        listed = ", ".join(f"{size:,}" for size in sizes)
        yield f"skipped {method}, D = {listed}: {reason}"
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return seconds by D and method, and joules where something counts them."""
    records = results["records"]
    batch = records[0]["batch"]
    methods = list(dict.fromkeys(r["method"] for r in records))
    published = {
        r["n_components"]: r for r in results["published"] if r["method"] == "P100"
    }
    n_published = results["published"][0]["batch"]
    found = []
    for quantity in ("seconds", "joules"):
        table = TextTable(
            f"{quantity} of optical features of {batch:,} rows "
            f"(P100: a product, {n_published:,} rows, published)",
            ("D", *methods, "P100"),
        )
        for size in sorted({r["n_components"] for r in records}):
            at = {r["method"]: r for r in records if r["n_components"] == size}
            cells = [_number(at.get(m, {}).get(quantity)) for m in methods]
            cells.append(_number(published.get(size, {}).get(quantity)))
            table.rows.append((f"{size:,}", *cells))
        measured = [r[quantity] for r in records if r["method"] != "device"]
        if any(value is not None for value in measured):
            found.append(table)
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def figure(results: Mapping[str, Any]) -> Any:
    """Return seconds, and joules where they are counted, against D."""
    from .optical_figures import plot_projection_cost

    return plot_projection_cost(results)
