"""Tensors on a GPU: seconds, joules, and shares of the device's bounds.

``features`` compares features with the bound of writing them and with RBFSampler's
steps in PyTorch; ``ridge`` times a fit to generated rows of ten classes. For seconds
and joules against the number of features, see ``randkern reproduce projection-cost``.
Without a GPU nothing is measured, and ``skipped`` says why.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import sklearn

from randkern._extras import import_extra
from randkern._random import Stream
from randkern.kernels import Gaussian, Optical
from randkern.kernels.draw import fit_plan
from randkern.models import KernelRidgeClassifier
from randkern.plan import evaluate

from ..contenders import versions_of
from ..energy import EnergyMeter, Joules, gpu_meter
from ..figures import BLUE, RED, name_axes, panels
from ..options import CommonOptions, option
from ..process import SkippedCase, Stopwatch
from ..runner import Case, grid, measure_all
from ..tables import listing, text
from .features import interleave

_CLASSES = 10
# Rows and features of the warm-up fit.
_COMPILED = 300
# Shortest measurement of energy: NVML updates its counter about every 20 ms.
_ENERGY_SECONDS = 1.0


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench gpu``."""

    device: str = option("cuda", "cuda, cuda:1, or cpu.", quick="cpu")
    n: int = option(8192, "Rows of the features.", quick=20)
    d: int = option(784, "Input columns.", quick=70)
    n_components: int = option(16384, "Features.", quick=90)
    ridge_rows: int = option(60_000, "Training rows.", quick=300)
    ridge_components: int = option(100_000, "Of ridge.", quick=128)
    repeats: int = option(5, "Rounds of the timing.", quick=1)


SKIPPED_BY = ("measurement",)


def run(options: Options) -> pd.DataFrame:
    """Measure features and ridge on one device, if it is there."""
    torch = import_extra("torch", "bench gpu", "gpu")
    device = torch.device(options.device)
    place, name, meter = device.index or 0, "cpu", EnergyMeter("none: not a GPU")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda":
        meter = gpu_meter(place)
        name = torch.cuda.get_device_name(place) if place < found else ""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def measure(case: Case) -> Iterator[dict[str, Any]]:
        if device.type == "cuda" and place >= found:
            raise SkippedCase(
                f"PyTorch finds {found or 'no'} CUDA device(s), not {device}"
            )
        measured = {"features": features, "ridge": ridge}[case["measurement"]]
        return measured(options, torch, device, meter, wait)

    records = measure_all(options, grid(measurement=["features", "ridge"]), measure)
    records.attrs = {
        "device": {"name": name},
        "energy": meter.name,
        "versions": versions_of(("torch", "nvidia-ml-py")),
    }
    return records


def features(
    options: Options, torch: Any, device: Any, meter: EnergyMeter, wait: Any
) -> Iterator[dict[str, Any]]:
    """Measure features, the bound of writing them, and RBFSampler's in PyTorch."""
    n, d, D = options.n, options.d, options.n_components
    generator = torch.Generator(device).manual_seed(options.seed)
    normal = partial(torch.randn, device=device, generator=generator)
    X, out = normal(n, d), torch.empty(n, D, device=device)
    weights, offsets = normal(d, D) / d**0.5, normal(D)

    def plain() -> Any:
        Z = X @ weights
        Z += offsets
        torch.cos(Z, out=Z)
        Z *= (2 / D) ** 0.5
        return Z

    calls: dict[str, Callable[[], Any]] = {
        "write": lambda: out.fill_(1.0),
        "plain torch, RBFSampler": plain,
    }
    rows, stream = np.zeros((2, d), np.float32), Stream(options.seed)
    kernels = {"gaussian": Gaussian(d**0.5), "optical": Optical(2)}
    for name, kernel in kernels.items():
        for projection in ("structured", "streamed", "dense"):
            plan = fit_plan(kernel, rows, None, D, stream, projection=projection)
            calls[f"{name}, {projection}"] = partial(evaluate, plan, X, out=out)
    times = interleave(calls, options.repeats, wait)
    seconds = {name: median(own) for name, own in times.items()}
    for name, value in seconds.items():
        repeats = max(1, round(_ENERGY_SECONDS / value)) if meter.read else 0
        with Joules(meter) as spent:
            for _ in range(repeats):
                calls[name]()
            wait()
        yield {
            "method": name,
            **{"n": n, "d": d, "n_components": D, "seconds": value},
            "picoseconds_a_feature": 1e12 * value / (n * D),
            "share_of_write_bound": seconds["write"] / value,
            "speedup_over_plain": seconds["plain torch, RBFSampler"] / value,
            "joules": None if spent.joules is None else spent.joules / repeats,
        }


def ridge(
    options: Options, torch: Any, device: Any, meter: EnergyMeter, wait: Any
) -> Iterator[dict[str, Any]]:
    """Measure a ridge classifier on the device."""
    rng = np.random.default_rng(options.seed)
    n, d, D = options.ridge_rows, options.d, options.ridge_components
    centers = rng.normal(size=(_CLASSES, d)).astype(np.float32)
    labels = rng.integers(0, _CLASSES, n + n // 6)
    rows = centers[labels] + 4 * rng.standard_normal((len(labels), d), np.float32)
    # scikit-learn requires this variable; nothing here calls SciPy on tensors.
    os.environ.setdefault("SCIPY_ARRAY_API", "1")
    X, y = (torch.as_tensor(item, device=device) for item in (rows, labels))
    kernel = Gaussian((2.0 * 17 * d) ** 0.5)
    model, small = (
        KernelRidgeClassifier(kernel, 1e-3, size, solver="pcg", random_state=0)
        for size in (D, min(D, _COMPILED))
    )
    with sklearn.config_context(array_api_dispatch=True):
        small.fit(X[:_COMPILED], y[:_COMPILED]).predict(X[:9])  # compiles
        wait()
        watch = Stopwatch()
        with Joules(meter) as spent:
            model.fit(X[:n], y[:n])
            wait()
        fit = watch.lap().seconds
        accuracy = float((model.predict(X[n:]) == y[n:]).sum()) / len(y[n:])
    yield {
        "method": str(device),
        **{"n": n, "d": d, "n_components": D, "seconds": fit},
        "predict_seconds": watch.lap().seconds,
        "iterations": int(model.solution_.iterations),
        "test_accuracy": accuracy,
        "joules": spent.joules,
    }


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        frame,
        "{measurement}",
        "method | rows | d | D | seconds | joules | of the write bound | test accuracy",
        "{method} | {n:,} | {d:,} | {n_components:,} | {seconds:.3g} | {joules:.3g} | "
        "{share_of_write_bound:.3g} | {test_accuracy:.3g}",
        per="measurement",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return picoseconds per feature, beside those of writing it, if measured."""
    shown = frame[frame.measurement == "features"]
    if shown.empty:
        return {}
    figure, (axes,) = panels(1, size=(6.0, 4.2), title=frame.attrs["device"]["name"])
    for method, cost in zip(shown.method, shown.picoseconds_a_feature, strict=True):
        if method == "write":
            axes.axvline(cost, color=RED, linestyle="--")
        else:
            axes.plot(cost, method, "o", color=BLUE)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1)
    sizes = text("{n:,} rows, d = {d:,}, D = {n_components:,}", shown.iloc[0])
    name_axes(axes, sizes, "picoseconds per feature (dashed: of writing it)")
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    """Return the device, and what counts its energy."""
    if len(frame):
        yield text("{device[name]}, PyTorch {versions[torch]}", frame.attrs)
    yield text("energy: {energy}", frame.attrs)
