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
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from ..figures import LONG, Style, add_legend, curves, panels
from ..options import CommonOptions, option
from ..runner import Case, SkippedCase, grid, measure_all
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
# Seconds, joules if they are known, and repeats.
Cost = tuple[float, float | None, int]


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern reproduce projection-cost``."""

    n_components: tuple[int, ...] = option(
        (1000, 2000, 5000, 10_000, 20_000, 30_000, 50_000, 100_000, 200_000),
        "Numbers of features.",
        quick=(100, 300, 1000),
    )
    methods: tuple[str, ...] = option(METHODS, "", among=METHODS)
    batch: tuple[int, ...] = option(
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
    torch, no_gpu = _torch_with_gpu()
    limit, batches = resolve_memory_limit(options.memory_limit), options.batch

    def check(case: Case) -> None:
        """Raise if a method needs too much memory or, by a small product, time."""
        method, size, columns = case["method"], case["n_components"], case["columns"]
        if method == "gpu" and no_gpu is not None:
            raise SkippedCase(no_gpu)
        # Rows, features, and what they are computed from, in float32.
        needed = 4 * case["batch"] * (columns + 3 * size)
        if method == "dense":
            # Real and imaginary parts, and a buffer to generate one of them.
            needed += 4 * 3 * size * columns
        if needed > limit:
            raise SkippedCase(
                f"its matrix and rows take {needed / 1e9:.1f} GB, more than the "
                f"limit of {limit / 1e9:.1f} GB"
            )
        if method in ("dense", "streamed"):
            # All rows, as a streamed matrix is generated once for them.
            small = np.ones((case["batch"], min(columns, 1000)), np.float32)
            narrow = min(size, 1000)
            once = timed(_on_cpu(small, narrow, method, 0), cpu, 0.0)[0]
            growth = size * columns / (narrow * small.shape[1])
            if once * growth > options.max_seconds:
                raise SkippedCase(
                    f"it would take about {once * growth:.0f} s, more than "
                    f"{options.max_seconds:g} s"
                )

    def measure(case: Case) -> Case:
        """Return mean time and energy of a batch, and the number of repeats."""
        method, size, batch = case["method"], case["n_components"], case["batch"]
        if method == "device":
            device = SimulatedOPU(size)
            cost: Cost = device.time_seconds(batch), device.energy_joules(batch), 0
        else:
            check(case)
            rng = np.random.default_rng(options.seed)
            X = rng.random((batch, case["columns"]), dtype=np.float32)
            least = _QUICK_SECONDS if options.quick else _MIN_SECONDS
            if method == "gpu":
                cost = timed(_on_gpu(torch, X, size), gpu, least)
            else:
                cost = timed(_on_cpu(X, size, method, options.seed), cpu, least)
        return dict(zip(("seconds", "joules", "repeats"), cost, strict=True))

    by_size = grid(
        batch=batches,
        method=(*options.methods, "device"),
        n_components=options.n_components,
    )
    growing = grid(
        method=[m for m in _GROWING if m in options.methods],
        n_components=[options.growth_components],
        columns=[options.growth_components],
        batch=[max(1, round(share * max(batches))) for share in _GROWTH],
        growth=[True],
    )
    square = [c | {"columns": c["n_components"], "growth": False} for c in by_size]
    records = measure_all(options, [*square, *growing], measure)
    records.attrs["energy"] = {"cpu": cpu.name, "gpu": gpu.name}
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    for quantity in _QUANTITIES:
        yield from pivot(
            counted(frame, quantity),
            f"{quantity} of optical features of {{batch:,}} rows (P100: a product, "
            "published)",
            "n_components",
            "method",
            f"{{{quantity}:number}}",
            per="batch",
        )


def figure(frame: pd.DataFrame) -> Any:
    """Return seconds and joules against D, for each batch."""
    shown = [
        (batch, quantity, own)
        for quantity in _QUANTITIES
        for batch, own in costs(frame, quantity).groupby("batch")
    ]
    figure, axes = panels(len(shown), 2, (4.8, 4.0))
    for place, (batch, quantity, records) in zip(axes, shown, strict=True):
        curves(
            place,
            records,
            "n_components",
            quantity,
            _STYLES,
            title=f"{batch:,} rows of D columns: {_QUANTITIES[quantity]}",
            ylabel=quantity,
        )
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for source, own in (
        ("", crossings(frame)),
        (", published", published_crossings(frame)),
    ):
        for crossing in own:
            size, quantity = crossing["n_components"], crossing["quantity"]
            where = f"from D = {size or 0:,.0f} on"
            if not size:
                where = f"at {'no' if size is None else 'every'} D measured"
            yield (
                f"{crossing['method']}{source}, {crossing['batch']:,} rows: the "
                f"device takes less {_QUANTITIES[quantity]} {where}"
            )
    for method, own in frame[frame.growth].groupby("method", sort=False):
        power = fitted_power(own.batch, own.seconds)
        if power is not None:
            yield (f"{method}: seconds grow with the rows as n^{power:.2f}")
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


def _torch_with_gpu() -> tuple[Any, str | None]:
    """Return PyTorch if it has a GPU, or the reason why not."""
    try:
        torch = import_extra("torch", "a product on a GPU", "gpu")
    except ImportError:
        return None, "PyTorch is not installed"
    return torch, None if torch.cuda.is_available() else "PyTorch finds no GPU"


def _on_gpu(torch: Any, X: NDArray[np.float32], size: int) -> Callable[[], Any]:
    """Return a function that computes optical features on the GPU and waits."""
    rows = torch.from_numpy(X).cuda()
    real, imag = (torch.randn(X.shape[1], size, device="cuda") for _ in range(2))

    def work() -> Any:
        out = torch.matmul(rows, real).square_() + torch.matmul(rows, imag).square_()
        torch.cuda.synchronize()
        return out

    return work


def timed(work: Callable[[], Any], meter: EnergyMeter, least_seconds: float) -> Cost:
    """Return mean time and energy of one call, and the number of calls."""
    start = time.perf_counter()
    work()  # compiles, and draws a matrix that is stored
    once = time.perf_counter() - start
    if once < _LONG_SECONDS:
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


def crossings(frame: pd.DataFrame) -> list[Case]:
    """Return the D from which the device needs less, by log-log interpolation."""
    return _crossings(frame[~frame.growth])


def published_crossings(frame: pd.DataFrame) -> list[Case]:
    """Return the same of the published costs."""
    return _crossings(published(frame))


def _crossings(costs: pd.DataFrame) -> list[Case]:
    crossings = []
    for batch, own in costs.groupby("batch", sort=False):
        device = own[own.method == "device"].set_index("n_components")
        for method, ours in own[own.method != "device"].groupby("method", sort=False):
            ours = ours.set_index("n_components")
            for quantity in _QUANTITIES:
                ratios = (ours[quantity] / device[quantity]).dropna().astype(float)
                if len(ratios):
                    named = {"batch": int(batch), "method": method}
                    size = crossing(list(ratios.sort_index().items()))
                    crossings.append(
                        {**named, "quantity": quantity, "n_components": size}
                    )
    return crossings


def crossing(ratios: Sequence[tuple[int, float]]) -> float | None:
    """Return where a ratio last crosses 1, or 0 if it is never below."""
    x, y = np.log(np.transpose(ratios))
    below = np.flatnonzero(y <= 0)
    if y[-1] <= 0:
        return None
    if not below.size:
        return 0.0
    around = slice(below[-1], below[-1] + 2)
    return float(np.exp(np.interp(0.0, y[around], x[around])))
