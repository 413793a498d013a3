"""Time and energy of optical features against their number (Fig. 3).

Ohana et al. (2020), section 4.3.

The original. A matrix product (n, D) × (D, D) by ``torch.matmul`` on an NVIDIA P100,
for n = 1,000 and 3,000 rows and D up to 58,000, the limit of its memory; energy is
integrated from nvidia-smi. The device takes 500 µs per row and 30 W, independent of D:
1.5 s and 45 J for 3,000 rows. Generating and loading matrices is not counted. The GPU
needs more energy than the device from D = 18,000 on; time and energy are linear in n.

Here. Optical features of degree 2 are computed with the dense, streamed and structured
projections on the CPU, and on a GPU if PyTorch finds one; the device is represented by
its model. `growth` adds rows at fixed D and columns, so that linearity in n is measured
and not assumed.

Deviations.

- A complex product and its squared modulus, not a real product: twice the arithmetic.
- CPU energy is that of all packages (RAPL), GPU energy that of NVML's counter; it is
  null if there is no counter, and the notes say why.
- The time includes regenerating a streamed matrix.
- Cases that would take longer than ``--max-seconds``, estimated from a small batch, are
  skipped.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern
from randkern._extras import import_extra
from randkern._memory import resolve_memory_limit
from randkern.optics import SimulatedOPU
from randkern.plan import evaluate

from ..energy import EnergyMeter, Joules, cpu_meter, gpu_meter
from ..figures import LONG, Style, add_legend, curves, name_axes, panels
from ..options import CommonOptions, Names, Sizes, option
from ..process import SkippedCase, Stopwatch
from ..runner import Case, grid, measure_all
from ..tables import fitted_power, pivot
from .published import published_rows

METHODS = ("dense", "streamed", "structured", "gpu")
_GROWING = ("streamed", "structured")
_QUANTITIES = {"seconds": "time", "joules": "energy"}
_STYLES = {
    "dense": Style("dense", "black"),
    "streamed": Style("streamed", "sky", "X", (0, (4, 2))),
    "structured": Style("structured", "blue", "s"),
    "gpu": Style("GPU", "green", "^"),
    "P100": Style("P100, published", "pink", "", ":"),
    "device": Style("device, 500 µs a row and 30 W", "red", "", LONG),
}
_GROWTH = (1 / 8, 1 / 4, 1 / 2, 1)
# Shortest total time of a measurement, since energy counters are coarse.
_MIN_SECONDS, _QUICK_SECONDS = 0.3, 0.01
# From here on a first call says how many are needed.
_LONG_SECONDS = 10.0


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern reproduce projection-cost``."""

    n_components: Sizes = option(
        (1000, 2000, 5000, 10_000, 20_000, 30_000, 50_000, 100_000, 200_000),
        "Numbers of features.",
        quick=(100, 300, 1000),
    )
    methods: Names = option(METHODS, "", among=METHODS)
    batch: Sizes = option(
        (1000, 3000), "Rows; published are 20, 1,000 and 3,000.", quick=(20, 50)
    )
    growth_components: int = option(
        5000, "Features, and columns, while the rows vary.", quick=100
    )
    max_seconds: float = option(
        20.0, "What would take a method longer for one batch is skipped."
    )
    memory_limit: str = option(
        "4GB", "What rows and features, and the matrix of a dense projection, may take."
    )


SKIPPED_BY = ("method", "batch", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Measure one method at one D after the other, beside the device's model."""
    cpu, gpu = cpu_meter(), gpu_meter()
    least = _QUICK_SECONDS if options.quick else _MIN_SECONDS
    limit, most = resolve_memory_limit(options.memory_limit), options.max_seconds

    def measure(case: Case) -> Case:
        """Return mean time and energy of a batch, and the number of repeats."""
        method, size, batch = case["method"], case["n_components"], case["batch"]
        columns = case["columns"]
        if method == "device":
            device = SimulatedOPU(size)
            seconds, joules = device.time_seconds(batch), device.energy_joules(batch)
            return {"seconds": seconds, "joules": joules, "repeats": 0}
        # Rows, features, and what they are computed from, in float32; real and
        # imaginary parts of a dense matrix, and a buffer to generate one of them.
        needed = 4 * batch * (columns + 3 * size)
        needed += 4 * 3 * size * columns * (method == "dense")
        if needed > limit:
            raise SkippedCase(
                f"its matrix and rows take {needed / 1e9:.1f} GB, more than the "
                f"limit of {limit / 1e9:.1f} GB"
            )
        X = np.random.default_rng(options.seed).random((batch, columns), np.float32)
        if method == "gpu":
            return timed(_on_gpu(X, size), gpu, least)
        if method in ("dense", "streamed"):
            # All rows, as a streamed matrix is generated once for them.
            small, narrow = X[:, :1000].copy(), min(size, 1000)
            once = timed(_on_cpu(small, narrow, method, 0), cpu, 0.0)["seconds"]
            expected = once * size * columns / (narrow * small.shape[1])
            if expected > most:
                raise SkippedCase(
                    f"it would take about {expected:.0f} s, more than {most:g} s"
                )
        return timed(_on_cpu(X, size, method, options.seed), cpu, least)

    by_size = grid(
        batch=options.batch,
        method=(*options.methods, "device"),
        n_components=options.n_components,
    )
    growing = grid(
        method=[m for m in _GROWING if m in options.methods],
        n_components=[options.growth_components],
        columns=[options.growth_components],
        batch=[max(1, round(share * max(options.batch))) for share in _GROWTH],
        growth=[True],
    )
    square = [c | {"columns": c["n_components"], "growth": False} for c in by_size]
    records = measure_all(options, [*square, *growing], measure)
    records.attrs["energy"] = {"cpu": cpu.name, "gpu": gpu.name}
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    for quantity in _QUANTITIES:
        own = counted(frame, quantity)
        title = (
            f"{quantity} of optical features of {{batch:,}} rows (P100: a product, "
            "published)"
        )
        yield from pivot(
            own, title, "n_components", "method", f"{{{quantity}:number}}", per="batch"
        )


def figure(frame: pd.DataFrame) -> Any:
    """Return seconds and joules against D, for each batch."""
    shown = [
        (batch, quantity, own)
        for quantity in _QUANTITIES
        for batch, own in costs(frame, quantity).groupby("batch")
    ]
    figure, axes = panels(len(shown), 2, (4.8, 4.0))
    for place, (batch, quantity, own) in zip(axes, shown, strict=True):
        curves(place, own, "n_components", quantity, _STYLES)
        title = f"{batch:,} rows of D columns: {_QUANTITIES[quantity]}"
        name_axes(place, title, ylabel=quantity)
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for source, own in (
        ("", crossings(frame)),
        (", published", published_crossings(frame)),
    ):
        for found in own.itertuples():
            where = f"from D = {found.n_components:,.0f} on"
            if not found.n_components > 0:
                share = "every" if found.n_components == 0 else "no"
                where = f"at {share} D measured"
            yield (
                f"{found.method}{source}, {found.batch:,} rows: the device takes less "
                f"{_QUANTITIES[found.quantity]} {where}"
            )
    for method, own in frame[frame.growth].groupby("method", sort=False):
        power = fitted_power(own.batch, own.seconds)
        if power is not None:
            yield f"{method}: seconds grow with the rows as n^{power:.2f}"
    yield f"energy of the processor: {frame.attrs['energy']['cpu']}"
    yield f"energy of the GPU: {frame.attrs['energy']['gpu']}"


def costs(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return our records and the published ones of the nearest batch.

    Where nothing of ours was measured, those of the device's model remain.
    """
    ours = frame[~frame.growth]
    parts = []
    for batch, own in ours[ours[quantity].notna()].groupby("batch", sort=False):
        published = _published(batch).query("method == 'P100'")
        parts += [own, published.assign(batch=batch)]
    return pd.concat(parts)


def counted(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the costs at our D."""
    shown = costs(frame, quantity)
    return shown[shown.n_components.isin(frame[~frame.growth].n_components)]


def _on_cpu(X: NDArray[np.float32], size: int, method: str, seed: int) -> Any:
    """Return a function that computes the features of all rows into a used array."""
    features = randkern.RandomFeatures(
        randkern.Optical(2), size, projection=method, random_state=seed
    ).fit(X[:2])
    out = np.ones((len(X), size), dtype=np.float32)
    return partial(evaluate, features.plan_, X, out=out)


def _on_gpu(X: NDArray[np.float32], size: int) -> Callable[[], Any]:
    """Return a function that computes optical features on the GPU and waits."""
    if find_spec("torch") is None:
        raise SkippedCase("PyTorch is not installed")
    torch: Any = import_extra("torch", "a product on a GPU", "gpu")
    if not torch.cuda.is_available():
        raise SkippedCase("PyTorch finds no GPU")
    rows = torch.from_numpy(X).cuda()
    real, imag = (torch.randn(X.shape[1], size, device="cuda") for _ in range(2))

    def work() -> Any:
        out = torch.matmul(rows, real).square_() + torch.matmul(rows, imag).square_()
        torch.cuda.synchronize()
        return out

    return work


def timed(work: Callable[[], Any], meter: EnergyMeter, least_seconds: float) -> Case:
    """Return mean time and energy of one call, and the number of calls."""
    watch = Stopwatch()
    work()  # compiles, and draws a matrix that is stored
    once = watch.lap().seconds
    if once < _LONG_SECONDS:
        work()
        once = watch.lap().seconds
    repeats = max(1, min(10_000, math.ceil(least_seconds / max(once, 1e-6))))
    with Joules(meter) as spent:
        watch = Stopwatch()
        for _ in range(repeats):
            work()
        seconds = watch.lap().seconds / repeats
    joules = None if spent.joules is None else spent.joules / repeats
    return {"seconds": seconds, "joules": joules, "repeats": repeats}


def _published(batch: int) -> pd.DataFrame:
    """Return the P100's and the device's records for the batch nearest to ours."""
    rows = published_rows("projection-cost-p100")
    nearest = min(rows.batch.unique(), key=lambda n: abs(n - batch))
    own = rows[(rows.batch == nearest) & (rows.gpu_seconds > 0)]
    own = own.assign(method="P100", columns=own.n_components)
    own = own.rename(columns={"gpu_seconds": "seconds", "gpu_joules": "joules"})
    own = own[["method", "n_components", "columns", "batch", "seconds", "joules"]]
    device = {"seconds": 5e-4 * nearest, "joules": 1.5e-2 * nearest}
    both = pd.concat([own, own.assign(method="device", **device)])
    return both.sort_index(kind="stable", ignore_index=True)


def published(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the published costs, of the batches nearest to ours."""
    batches = frame[~frame.growth].batch.unique()
    return pd.concat([_published(batch).assign(batch=batch) for batch in batches])


def crossings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the D from which the device needs less, by log-log interpolation.

    It is missing if there is none, and 0 if it needs less at every D.
    """
    return _crossings(frame[~frame.growth])


def published_crossings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same of the published costs."""
    return _crossings(published(frame))


def _crossings(costs: pd.DataFrame) -> pd.DataFrame:
    devices = costs[costs.method == "device"]
    found = []
    keys = ["batch", "method"]
    for (batch, method), own in costs.groupby(keys, sort=False):
        own = own.merge(devices, on=["batch", "n_components"], suffixes=("", "_device"))
        for quantity in _QUANTITIES if method != "device" else ():
            ratios = own[quantity].astype(float) / own[f"{quantity}_device"]
            ratios = ratios.set_axis(own.n_components).dropna().sort_index()
            if len(ratios):
                size = crossing(ratios)
                found.append((batch, method, quantity, size))
    return pd.DataFrame(found, columns=[*keys, "quantity", "n_components"])


def crossing(ratios: pd.Series) -> float | None:
    """Return where a ratio, by D, last crosses 1, or 0 if it is never below."""
    x, y = np.log(ratios.index.to_numpy(float)), np.log(ratios.to_numpy())
    below = np.flatnonzero(y <= 0)
    if y[-1] <= 0:
        return None
    if not below.size:
        return 0.0
    around = slice(below[-1], below[-1] + 2)
    return float(np.exp(np.interp(0.0, y[around], x[around])))
