"""Tensors on a GPU: seconds, joules, and shares of the device's bounds.

``features`` compares features with the bound of writing them and with RBFSampler's
steps in PyTorch; ``product`` compares the projection that is never stored with
``torch.matmul``; ``ridge`` times a fit to generated rows of ten classes. For seconds
and joules against the number of features, see ``randkern reproduce projection-cost``.
Without a GPU nothing is measured, and the results say why (``ran``, ``reason``).
"""

import importlib.util
import math
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

from ..contenders import known_names, versions_of
from ..energy import EnergyMeter, Joules, gpu_meter
from ..figures import BLUE, RED, name_axes, panels
from ..options import CommonOptions, option
from ..process import Stopwatch
from ..runner import Recorder, grid
from ..tables import listing, of, text
from .timing import interleave

MEASUREMENTS = ("features", "product", "ridge")
# Rows and columns of the largest product, whose matrix would take 4 TB.
_HUGE = {"n": 128, "d": 10**6, "n_components": 10**6}
_HUGE_ON_CPU = {"n": 2, "d": 1000, "n_components": 1000}
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
    measurements: tuple[str, ...] = option(MEASUREMENTS, "Of features, product, ridge.")
    n: int = option(8192, "Rows of the features.", quick=20)
    d: int = option(784, "Input columns.", quick=70)
    n_components: int = option(16384, "Features.", quick=90)
    side: int = option(16384, "Sides of the product.", quick=64)
    ridge_rows: int = option(60_000, "Training rows.", quick=300)
    ridge_components: int = option(100_000, "Of ridge.", quick=128)
    repeats: int = option(5, "Rounds of the timing.", quick=1)
    cpu: bool = option(False, "Also fit ridge on the processor.", quick=True)


def _with_milliseconds(results: Mapping[str, Any]) -> list[Any]:
    return [{**r, "ms": 1000 * r["seconds"]} for r in results["records"]]


def run(options: Options, recorder: Recorder) -> dict[str, Any]:
    """Measure what was asked for on one device, if it is there."""
    names = known_names("measurement", options.measurements, MEASUREMENTS)
    reason = why_not(options.device)
    if reason is not None:
        return {
            "ran": False,
            "reason": reason,
            "device": None,
            "energy": gpu_meter().name,
        }
    torch = import_extra("torch", "bench gpu", "gpu")
    work = Device(options, torch, torch.device(options.device))
    measures = dict(
        zip(MEASUREMENTS, (work.features, work.products, work.ridge), strict=True)
    )
    recorder.measure(
        grid(measurement=names), lambda case: measures[case["measurement"]]()
    )
    versions = versions_of(("torch", "nvidia-ml-py"))
    return {
        "ran": True,
        "reason": None,
        "device": work.described(),
        "energy": work.meter.name,
        "versions": {name: result for name, result in versions.items() if result},
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

    def features(self) -> list[dict[str, Any]]:
        """Measure structured features, the bound of writing them, and plain PyTorch."""
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
        kernels = {"gaussian": Gaussian(d**0.5), "optical": Optical(2)}
        for name, kernel in kernels.items():
            for projection in ("structured", "streamed", "dense"):
                plan = self.plan(kernel, d, D, projection)
                calls[f"{name}, {projection}"] = partial(evaluate, plan, X, out=out)
        return self.timed(
            "features",
            calls,
            {"n": n, "d": d, "n_components": D},
            lambda value, seconds: {
                "picoseconds_a_feature": 1e12 * value / (n * D),
                "share_of_write_bound": seconds["write"] / value,
                "speedup_over_plain": seconds["plain torch, RBFSampler"] / value,
            },
        )

    def products(self) -> list[dict[str, Any]]:
        """Measure the projection that is never stored, and a product with a matrix."""
        n, side = self.options.n, self.options.side
        X, matrix = self.normal(n, side), self.normal(side, side)
        calls = {
            "torch.matmul": lambda: X @ matrix,
            "streamed": self.streamed(X, side),
        }
        sizes = {"n": n, "d": side, "n_components": side}
        beside = self.timed("product", calls, sizes, partial(_rates, sizes))
        huge = _HUGE if self.on_gpu else _HUGE_ON_CPU
        alone = self.streamed(self.normal(huge["n"], huge["d"]), huge["n_components"])
        calls = {"streamed, no matrix would fit": alone}
        return beside + self.timed("product", calls, huge, partial(_rates, huge))

    def streamed(self, X: Any, D: int) -> Call:
        """Return the projection of rows that is never stored."""
        plan = self.plan(Gaussian(1.0), X.shape[1], 2 * D, "streamed")
        projection: Any = plan.groups[0].factors[0].projection
        return lambda: projection.project(X, 0, D)

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
        sizes = {"measurement": "ridge", "n": n, "d": d, "n_components": D}
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

    def timed(
        self,
        measurement: str,
        calls: Mapping[str, Call],
        sizes: Mapping[str, int],
        rates: Callable[..., dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Return a record per call, with what `rates` computes from the seconds."""
        result = interleave(calls, self.options.repeats, self.wait)
        seconds = {name: median(own) for name, own in result.items()}
        return [
            {"measurement": measurement, "method": name, **sizes, "seconds": value}
            | rates(value, seconds)
            | {"joules": self.joules(calls[name], value)}
            for name, value in seconds.items()
        ]

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

    def plan(self, kernel: Kernel, d: int, D: int, projection: str) -> Any:
        """Return the plan of a draw of features."""
        rows, stream = np.zeros((2, d), np.float32), Stream(self.options.seed)
        return fit_plan(kernel, rows, None, D, stream, projection=projection)

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
        _with_milliseconds(results),
        "{measurement}",
        "method | rows | d | D | ms | joules | of the write bound | of torch.matmul"
        " | test accuracy",
        "{method} | {n:,} | {d:,} | {n_components:,} | {ms:.3g} | {joules:.3g} | "
        "{share_of_write_bound:.3g} | {share_of_matmul:.3g} | {test_accuracy:.3g}",
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
    """Return the device, or why the benchmark did not run."""
    versions = sorted(results["versions"].items())
    named = ", ".join(f"{name} {version}" for name, version in versions)
    message = f"{{device[name]}}; {named}"
    missed = "The GPU benchmark did not run: {reason}."
    yield text(message if results["ran"] else missed, results)
    yield text("energy: {energy}", results)


def _rates(
    sizes: Mapping[str, int], value: float, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the rate of a product, and how it compares to torch.matmul."""
    peer = seconds.get("torch.matmul")
    gflops = 2e-9 * math.prod(sizes.values()) / value
    return {"gflops": gflops, "share_of_matmul": peer and peer / value}


def why_not(device: str) -> str | None:
    """Return why nothing can be measured on a device, or None if it can."""
    if importlib.util.find_spec("torch") is None:
        return 'PyTorch is not installed; pip install "randkern[gpu]"'
    torch = import_extra("torch", "bench gpu", "gpu")
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"no device {device!r}; use cuda, cuda:1 or cpu.") from error
    if wanted.type not in ("cuda", "cpu"):
        raise ValueError(f"device must be cuda or cpu, got {device!r}.")
    result = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted.type == "cpu" or (wanted.index or 0) < result:
        return None
    return f"PyTorch finds {result or 'no'} CUDA device(s), not {device}"
