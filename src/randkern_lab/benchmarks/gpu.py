"""``randkern bench gpu``: features, products and ridge on a GPU, beside its bounds."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import metadata
from statistics import median
from typing import Any

import numpy as np
import sklearn

from randkern._extras import import_extra
from randkern._random import Stream
from randkern._validation import check_count
from randkern.features import fit_plan
from randkern.kernels import Gaussian, Kernel, Optical
from randkern.models import KernelRidgeClassifier
from randkern.plan import evaluate
from randkern.solvers import PCG
from randkern.study.records import describe_machine, installed_versions
from randkern_lab.papers.energy import EnergyMeter, Joules, gpu_meter

from .timing import Progress

__all__ = ["MEASUREMENTS", "run"]

MEASUREMENTS = ("features", "product", "ridge", "sweep")

# Rows and columns of the largest product, whose matrix would take 4 TB.
_HUGE = {"n": 128, "d": 10**6, "n_components": 10**6}
_HUGE_ON_CPU = {"n": 2, "d": 1000, "n_components": 1000}
_CLASSES = 10
# Rows and features of the fit that compiles.
_COMPILED = 300
# A measurement of energy lasts at least so long: NVML counts every 20 ms or so.
_ENERGY_SECONDS = 1.0
_NO_METER = EnergyMeter("none: not a GPU", None)

Call = Callable[[], Any]


def run(
    *,
    device: str = "cuda",
    measurements: Sequence[str] = MEASUREMENTS,
    n: int = 8192,
    d: int = 784,
    n_components: int = 16384,
    side: int = 16384,
    ridge_rows: int = 60_000,
    ridge_components: int = 100_000,
    batches: Sequence[int] = (1, 64, 1024, 8192),
    sizes: Sequence[int] = (1000, 10_000, 100_000),
    repeats: int = 5,
    cpu: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time tensors on a GPU; say so, and why, where nothing is measured.

    Parameters
    ----------
    device : str
        ``"cuda"``, or ``"cpu"`` to see that everything runs.
    measurements : sequence of str
        Of ``features`` (fused structured features beside the bound of writing them and
        beside plain PyTorch), ``product`` (the projection that is never stored beside
        ``torch.matmul``), ``ridge`` and ``sweep`` (seconds and joules against batch
        and number of features).
    n, d, n_components : int
        Of the features.
    side : int
        Columns and draws of the product.
    ridge_rows, ridge_components : int
    batches, sizes : sequences of int
        Of the sweep.
    repeats : int
        Rounds; medians are reported.
    cpu : bool
        Also fit the ridge model on the processor.
    seed : int
    progress : callable, optional

    Returns
    -------
    results : dict
        ``ran``, and ``reason`` where that is false; ``device``, ``versions``,
        ``machine``, ``energy`` (what counts joules, or why nothing does), ``arguments``
        and ``records``, whose ``joules`` are of one call, None where none are counted.
    """
    unknown = sorted(set(measurements) - set(MEASUREMENTS))
    if unknown:
        raise ValueError(f"no measurement {unknown[0]!r}; use {list(MEASUREMENTS)}.")
    counts = {"n": n, "d": d, "n_components": n_components, "side": side}
    counts |= {"ridge_rows": ridge_rows, "ridge_components": ridge_components}
    for name, value in (counts | {"repeats": repeats}).items():
        check_count(name, value)
    for value in (*batches, *sizes):
        check_count("batches and sizes", value)
    results: dict[str, Any] = {
        "command": "bench gpu",
        "machine": describe_machine(),
        "versions": installed_versions() | _versions(),
        "arguments": counts
        | {"device": device, "measurements": list(measurements), "cpu": cpu}
        | {"batches": list(batches), "sizes": list(sizes)}
        | {"repeats": repeats, "seed": seed},
        "records": [],
    }
    reason = _why_not(device)
    results |= {"ran": reason is None, "reason": reason, "device": None}
    if reason is not None:
        return results | {"energy": gpu_meter().name}
    bench = _Bench(device, repeats, seed)
    results |= {"device": bench.describe(), "energy": bench.meter.name}
    calls: dict[str, Call] = {
        "features": lambda: bench.features(n, d, n_components),
        "product": lambda: bench.products(n, side),
        "ridge": lambda: bench.ridge(ridge_rows, d, ridge_components, cpu),
        "sweep": lambda: bench.sweep(d, batches, sizes),
    }
    for number, name in enumerate(measurements):
        if progress is not None:
            progress(number, len(measurements), name)
        results["records"] += calls[name]()
    return results


def _why_not(device: str) -> str | None:
    """Return why nothing can be measured, None if it can."""
    if importlib.util.find_spec("torch") is None:
        return 'PyTorch is not installed; pip install "randkern[gpu]"'
    torch = import_extra("torch", "bench gpu", "gpu")
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"no device {device!r}; use cuda, cuda:1 or cpu.") from error
    if wanted.type not in ("cuda", "cpu"):
        raise ValueError(f"device must be cuda or cpu, got {device!r}.")
    if wanted.type == "cpu":
        return None
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (wanted.index or 0) < found:
        return None
    return (
        f"PyTorch finds {found} CUDA device{'' if found == 1 else 's'}, not {device}"
        if found
        else "PyTorch finds no CUDA device"
    )


def _versions() -> dict[str, str]:
    """Return the versions of what tensors are computed with, where installed."""
    found = {}
    for name in ("torch", "triton", "nvidia-ml-py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class _Bench:
    """Measurements on one device."""

    def __init__(self, device: str, repeats: int, seed: int):
        self.torch = import_extra("torch", "bench gpu", "gpu")
        self.device = self.torch.device(device)
        self.repeats, self.seed = repeats, seed
        self.on_gpu = self.device.type == "cuda"
        here = self.device.index or 0
        self.meter = gpu_meter(here) if self.on_gpu else _NO_METER

    def describe(self) -> dict[str, Any]:
        """Return what is to be known of the device."""
        if not self.on_gpu:
            return {"name": "cpu"}
        from randkern.backend.torch_kernels import fused_kernels

        kernels = fused_kernels()
        streamed = None if kernels is None else kernels.product_precision(self.device)
        properties = self.torch.cuda.get_device_properties(self.device)
        return {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": self.torch.version.cuda,
            "matmul_precision": self.torch.get_float32_matmul_precision(),
            "streamed_precision": streamed,
        }

    def _wait(self) -> None:
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def _seconds(self, calls: Mapping[str, Call]) -> dict[str, float]:
        """Return the median seconds of calls that take turns."""
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(self.repeats + 1):
            for name, call in calls.items():
                self._wait()
                start = time.perf_counter()
                result = call()
                self._wait()
                if turn:  # the first turn compiles
                    seconds[name].append(time.perf_counter() - start)
                del result
        return {name: median(values) for name, values in seconds.items()}

    def _normal(self, *shape: int) -> Any:
        generator = self.torch.Generator(self.device).manual_seed(self.seed)
        return self.torch.randn(*shape, device=self.device, generator=generator)

    def _plan(self, kernel: Kernel, d: int, D: int, projection: str) -> Any:
        rows = np.zeros((2, d), np.float32)
        stream = Stream(self.seed)
        return fit_plan(kernel, rows, None, D, stream, projection=projection)

    # -- features -----------------------------------------------------------------

    def features(self, n: int, d: int, D: int) -> list[dict[str, Any]]:
        """Structured features, beside the bound of writing them and plain PyTorch."""
        torch, X = self.torch, self._normal(n, d)
        out = torch.empty(n, D, device=self.device)
        weights, offsets = self._normal(d, D) / d**0.5, self._normal(D)

        def plain() -> Any:
            """What RBFSampler does, in PyTorch."""
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
                plan = self._plan(kernel, d, D, projection)
                calls[f"{name}, {projection}"] = partial(evaluate, plan, X, out=out)
        seconds = self._seconds(calls)
        return [
            {
                "measurement": "features",
                "method": name,
                "n": n,
                "d": d,
                "n_components": D,
                "seconds": value,
                "picoseconds_a_feature": 1e12 * value / (n * D),
                "share_of_write_bound": seconds["write"] / value,
                "speedup_over_plain": seconds["plain torch, RBFSampler"] / value,
                "joules": self._joules(calls[name], value),
            }
            for name, value in seconds.items()
        ]

    # -- products -----------------------------------------------------------------

    def products(self, n: int, side: int) -> list[dict[str, Any]]:
        """The projection that is never stored, beside the product with a matrix."""
        X, matrix = self._normal(n, side), self._normal(side, side)
        plan = self._plan(Gaussian(1.0), side, 2 * side, "streamed")
        projection: Any = plan.groups[0].factors[0].projection
        calls: dict[str, Call] = {
            "torch.matmul": lambda: X @ matrix,
            "streamed": lambda: projection.project(X, 0, side),
        }
        seconds = self._seconds(calls)
        records = [
            {
                "measurement": "product",
                "method": name,
                **{"n": n, "d": side, "n_components": side},
                "seconds": value,
                "gflops": 2e-9 * n * side**2 / value,
                "share_of_matmul": seconds["torch.matmul"] / value,
                "joules": self._joules(calls[name], value),
            }
            for name, value in seconds.items()
        ]
        huge = _HUGE if self.on_gpu else _HUGE_ON_CPU
        X = self._normal(huge["n"], huge["d"])
        plan = self._plan(
            Gaussian(1.0), huge["d"], 2 * huge["n_components"], "streamed"
        )
        projection = plan.groups[0].factors[0].projection
        D = huge["n_components"]

        def streamed(X: Any = X, projection: Any = projection) -> Any:
            return projection.project(X, 0, D)

        value = self._seconds({"streamed": streamed})
        record = {
            "measurement": "product",
            "method": "streamed, no matrix would fit",
            **huge,
            "seconds": value["streamed"],
            "gflops": 2e-9 * huge["n"] * huge["d"] * D / value["streamed"],
            "share_of_matmul": None,
            "joules": self._joules(streamed, value["streamed"]),
        }
        return [*records, record]

    # -- ridge --------------------------------------------------------------------

    def ridge(self, n: int, d: int, D: int, cpu: bool) -> list[dict[str, Any]]:
        """A ridge classifier of `n` generated rows of ten classes."""
        rng = np.random.default_rng(self.seed)
        centers = rng.normal(size=(_CLASSES, d)).astype(np.float32)
        labels = rng.integers(0, _CLASSES, n + n // 6)
        X = centers[labels] + 4 * rng.standard_normal((len(labels), d), np.float32)
        where = ["cpu"] if cpu else []
        records = []
        # scikit-learn asks for this variable; nothing here calls SciPy on tensors.
        os.environ.setdefault("SCIPY_ARRAY_API", "1")
        for place in [str(self.device), *(f"{name}, NumPy" for name in where)]:
            on_device = place == str(self.device)
            rows: Any = X
            targets: Any = labels
            if on_device:
                rows = self.torch.as_tensor(X, device=self.device)
                targets = self.torch.as_tensor(labels, device=self.device)
            model, small = (
                KernelRidgeClassifier(
                    *(Gaussian((2.0 * 17 * d) ** 0.5), 1e-3, size),
                    solver=PCG(),
                    random_state=0,
                )
                for size in (D, min(D, _COMPILED))
            )
            context = sklearn.config_context(array_api_dispatch=True)
            with context if on_device else nullcontext():
                # What is compiled on first use is not timed.
                small.fit(rows[:_COMPILED], targets[:_COMPILED]).predict(rows[:9])
                self._wait()
                start = time.perf_counter()
                with Joules(self.meter if on_device else _NO_METER) as spent:
                    model.fit(rows[:n], targets[:n])
                    self._wait()
                fitted = time.perf_counter()
                accuracy = float((model.predict(rows[n:]) == targets[n:]).sum())
                end = time.perf_counter()
            records.append(
                {
                    "measurement": "ridge",
                    "method": place,
                    **{"n": n, "d": d, "n_components": D},
                    "seconds": fitted - start,
                    "predict_seconds": end - fitted,
                    "iterations": int(model.solution_.iterations),
                    "test_accuracy": accuracy / len(labels[n:]),
                    "joules": spent.joules,
                }
            )
        return records

    # -- sweep --------------------------------------------------------------------

    def sweep(
        self, d: int, batches: Sequence[int], sizes: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Seconds and joules of a batch of optical features."""
        records = []
        for D in sizes:
            for projection in ("structured", "streamed"):
                plan = self._plan(Optical(2), d, D, projection)
                for batch in batches:
                    X = self._normal(batch, d)
                    out = self.torch.empty(batch, D, device=self.device)

                    def call(plan: Any = plan, X: Any = X, out: Any = out) -> Any:
                        return evaluate(plan, X, out=out)

                    seconds = self._seconds({"batch": call})["batch"]
                    records.append(
                        {
                            "measurement": "sweep",
                            "method": projection,
                            **{"n": batch, "d": d, "n_components": D},
                            "seconds": seconds,
                            "joules": self._joules(call, seconds),
                        }
                    )
        return records

    def _joules(self, call: Call, seconds: float) -> float | None:
        """Return the energy of a call, from enough of them to be counted."""
        if self.meter.read is None:
            return None
        times = max(1, round(_ENERGY_SECONDS / seconds))
        with Joules(self.meter) as spent:
            for _ in range(times):
                call()
            self._wait()
        return None if spent.joules is None else spent.joules / times
