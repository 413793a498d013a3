"""Tensors on a GPU: seconds, joules, and shares of the device's bounds.

``features`` compares features with the bound of writing them and with RBFSampler's
steps in PyTorch; ``ridge`` times a fit to generated rows of ten classes. For seconds
and joules against the number of features, see ``randkern reproduce projection-cost``.
Without a GPU nothing is measured, and ``skipped`` says why.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any

import numpy as np
import sklearn

from randkern._extras import import_extra
from randkern._random import Stream
from randkern.kernels import Gaussian, Kernel, Optical
from randkern.kernels.draw import fit_plan
from randkern.models import KernelRidgeClassifier
from randkern.plan import evaluate
from randkern.solvers import PCG

from ..contenders import versions_of
from ..energy import EnergyMeter, Joules, gpu_meter
from ..figures import BLUE, RED, name_axes, panels
from ..options import CommonOptions, option
from ..process import SkippedCase, Stopwatch
from ..runner import Case, Recorder, grid
from ..tables import listing, of, text
from .timing import interleave

MEASUREMENTS = ("features", "ridge")
_CLASSES = 10
# Rows and features of the warm-up fit.
_COMPILED = 300
# Shortest measurement of energy: NVML updates its counter about every 20 ms.
_ENERGY_SECONDS = 1.0
NO_METER = EnergyMeter("none: not a GPU", None)

Call = Callable[[], Any]


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench gpu``."""

    device: str = option("cuda", "cuda, cuda:1, or cpu.", quick="cpu")
    measurements: tuple[str, ...] = option(MEASUREMENTS, "", among=MEASUREMENTS)
    n: int = option(8192, "Rows of the features.", quick=20)
    d: int = option(784, "Input columns.", quick=70)
    n_components: int = option(16384, "Features.", quick=90)
    ridge_rows: int = option(60_000, "Training rows.", quick=300)
    ridge_components: int = option(100_000, "Of ridge.", quick=128)
    repeats: int = option(5, "Rounds of the timing.", quick=1)
    cpu: bool = option(False, "Also fit ridge on the processor.", quick=True)


SKIPPED_BY = ("measurement",)


def run(options: Options, recorder: Recorder) -> dict[str, Any]:
    """Measure what was asked for on one device, if it is there."""
    torch = import_extra("torch", "bench gpu", "gpu")
    try:
        work = Device(options, torch, torch.device(options.device))
    except RuntimeError as error:
        raise ValueError(
            f"no device {options.device!r}; use cuda, cuda:1 or cpu"
        ) from error
    recorder.measure(grid(measurement=options.measurements), work.measure)
    return {
        "device": work.described() if recorder.records else None,
        "energy": work.meter.name,
        "versions": versions_of(("torch", "nvidia-ml-py")),
    }


@dataclass(frozen=True)
class Device:
    """A device of PyTorch, and what is measured there."""

    options: Options
    torch: Any
    device: Any

    @property
    def on_gpu(self) -> bool:
        """Whether it is a GPU."""
        return bool(self.device.type == "cuda")

    @cached_property
    def meter(self) -> EnergyMeter:
        """Its energy counter."""
        return gpu_meter(self.device.index or 0) if self.on_gpu else NO_METER

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """Return the records of one measurement."""
        found = self.torch.cuda.device_count() if self.torch.cuda.is_available() else 0
        if self.on_gpu and (self.device.index or 0) >= found:
            raise SkippedCase(
                f"PyTorch finds {found or 'no'} CUDA device(s), not {self.device}"
            )
        if case["measurement"] == "features":
            return self.features()
        return self.ridge()

    def features(self) -> list[dict[str, Any]]:
        """Measure features, the bound of writing them, and plain PyTorch."""
        torch, options = self.torch, self.options
        n, d, D = options.n, options.d, options.n_components
        X, out = self.normal(n, d), torch.empty(n, D, device=self.device)
        weights, offsets = self.normal(d, D) / d**0.5, self.normal(D)

        def plain() -> Any:
            """Compute the features of RBFSampler in PyTorch."""
            Z = X @ weights
            Z += offsets
            torch.cos(Z, out=Z)
            Z *= (2 / D) ** 0.5
            return Z

        calls: dict[str, Call] = {
            "write": lambda: out.fill_(1.0),
            "plain torch, RBFSampler": plain,
        }
        rows, stream = np.zeros((2, d), np.float32), Stream(options.seed)
        kernels: dict[str, Kernel] = {
            "gaussian": Gaussian(d**0.5),
            "optical": Optical(2),
        }
        for name, kernel in kernels.items():
            for projection in ("structured", "streamed", "dense"):
                plan = fit_plan(kernel, rows, None, D, stream, projection=projection)
                calls[f"{name}, {projection}"] = partial(evaluate, plan, X, out=out)
        times = interleave(calls, options.repeats, self.wait)
        seconds = {name: median(own) for name, own in times.items()}
        return [
            {
                "method": name,
                **{"n": n, "d": d, "n_components": D, "seconds": value},
                "picoseconds_a_feature": 1e12 * value / (n * D),
                "share_of_write_bound": seconds["write"] / value,
                "speedup_over_plain": seconds["plain torch, RBFSampler"] / value,
                "joules": self.joules(calls[name], value),
            }
            for name, value in seconds.items()
        ]

    def ridge(self) -> list[dict[str, Any]]:
        """Measure a ridge classifier on the device, and on the processor if asked."""
        options, rng = self.options, np.random.default_rng(self.options.seed)
        n, d, D = options.ridge_rows, options.d, options.ridge_components
        centers = rng.normal(size=(_CLASSES, d)).astype(np.float32)
        labels = rng.integers(0, _CLASSES, n + n // 6)
        X = centers[labels] + 4 * rng.standard_normal((len(labels), d), np.float32)
        # scikit-learn requires this variable; nothing here calls SciPy on tensors.
        os.environ.setdefault("SCIPY_ARRAY_API", "1")
        tensors = [
            self.torch.as_tensor(item, device=self.device) for item in (X, labels)
        ]
        with sklearn.config_context(array_api_dispatch=True):
            records = [self.fitted(str(self.device), self.meter, *tensors)]
        if options.cpu:
            records.append(self.fitted("cpu, NumPy", NO_METER, X, labels))
        sizes = {"n": n, "d": d, "n_components": D}
        return [sizes | record for record in records]

    def fitted(self, place: str, meter: EnergyMeter, X: Any, y: Any) -> dict[str, Any]:
        """Return the record of a fit; one of few rows and features compiles."""
        n, D = self.options.ridge_rows, self.options.ridge_components
        model, small = (
            KernelRidgeClassifier(
                Gaussian((2.0 * 17 * X.shape[1]) ** 0.5),
                1e-3,
                size,
                solver=PCG(),
                random_state=0,
            )
            for size in (D, min(D, _COMPILED))
        )
        small.fit(X[:_COMPILED], y[:_COMPILED]).predict(X[:9])
        self.wait()
        watch = Stopwatch()
        with Joules(meter) as spent:
            model.fit(X[:n], y[:n])
            self.wait()
        fit = watch.lap().seconds
        accuracy = float((model.predict(X[n:]) == y[n:]).sum()) / len(y[n:])
        return {
            "method": place,
            "seconds": fit,
            "predict_seconds": watch.lap().seconds,
            "iterations": int(model.solution_.iterations),
            "test_accuracy": accuracy,
            "joules": spent.joules,
        }

    def joules(self, call: Call, seconds: float) -> float | None:
        """Return the energy of a call, from enough calls to be measurable."""
        times = max(1, round(_ENERGY_SECONDS / seconds)) if self.meter.read else 0
        with Joules(self.meter) as spent:
            for _ in range(times):
                call()
            self.wait()
        return None if spent.joules is None else spent.joules / times

    def wait(self) -> None:
        """Return when all work is done."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def normal(self, *shape: int) -> Any:
        """Return a tensor of normal numbers."""
        generator = self.torch.Generator(self.device).manual_seed(self.options.seed)
        return self.torch.randn(*shape, device=self.device, generator=generator)

    def described(self) -> dict[str, Any]:
        """Return the description of the device."""
        if not self.on_gpu:
            return {"name": "cpu"}
        properties = self.torch.cuda.get_device_properties(self.device)
        return {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": self.torch.version.cuda,
            "matmul_precision": self.torch.get_float32_matmul_precision(),
        }


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    yield from listing(
        results,
        [{**r, "ms": 1000 * r["seconds"]} for r in results["records"]],
        "{measurement}",
        "method | rows | d | D | ms | joules | of the write bound | test accuracy",
        "{method} | {n:,} | {d:,} | {n_components:,} | {ms:.3g} | {joules:.3g} | "
        "{share_of_write_bound:.3g} | {test_accuracy:.3g}",
        per="measurement",
    )


def figure(results: Mapping[str, Any]) -> Any:
    """Return picoseconds per feature, beside those of writing it, if measured."""
    shown = of(results["records"], measurement="features")
    if not shown:
        return {}
    figure, (axes,) = panels(1, title=results["device"]["name"])
    for record in shown:
        cost = record["picoseconds_a_feature"]
        if record["method"] == "write":
            axes.axvline(cost, color=RED, linestyle="--")
        else:
            axes.plot(cost, record["method"], "o", color=BLUE)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1)
    sizes = text("{n:,} rows, d = {d:,}, D = {n_components:,}", shown[0])
    name_axes(axes, sizes, "picoseconds per feature (dashed: of writing it)")
    return figure


def notes(results: Mapping[str, Any]) -> Iterator[str]:
    """Return the device, and what counts its energy."""
    if results["device"]:
        yield text("{device[name]}, PyTorch {versions[torch]}", results)
    yield text("energy: {energy}", results)
