"""Measurements on a GPU: features, products and ridge."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
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
from randkern_lab.energy import EnergyMeter, Joules, gpu_meter

__all__ = ["NO_METER", "Device"]

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


class Device:
    """Measurements on one device.

    Parameters
    ----------
    device : str
    repeats, seed : int
    """

    def __init__(self, device: str, repeats: int, seed: int):
        self.torch = import_extra("torch", "bench gpu", "gpu")
        self.device = self.torch.device(device)
        self.repeats, self.seed = repeats, seed
        self.on_gpu = self.device.type == "cuda"
        here = self.device.index or 0
        self.meter = gpu_meter(here) if self.on_gpu else NO_METER

    def describe(self) -> dict[str, Any]:
        """Return a description of the device."""
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
        """Return the median times in seconds of calls that take turns."""
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
        """Measure structured features, the bound of writing them, and plain PyTorch."""
        torch, X = self.torch, self._normal(n, d)
        out = torch.empty(n, D, device=self.device)
        weights, offsets = self._normal(d, D) / d**0.5, self._normal(D)

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
        """Measure the projection that is never stored, and a product with a matrix."""
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
        """Measure a ridge classifier on `n` generated rows of ten classes."""
        rng = np.random.default_rng(self.seed)
        centers = rng.normal(size=(_CLASSES, d)).astype(np.float32)
        labels = rng.integers(0, _CLASSES, n + n // 6)
        X = centers[labels] + 4 * rng.standard_normal((len(labels), d), np.float32)
        where = ["cpu"] if cpu else []
        records = []
        # scikit-learn requires this variable; nothing here calls SciPy on tensors.
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
                # Compilation on first use is not timed.
                small.fit(rows[:_COMPILED], targets[:_COMPILED]).predict(rows[:9])
                self._wait()
                start = time.perf_counter()
                with Joules(self.meter if on_device else NO_METER) as spent:
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

    def _joules(self, call: Call, seconds: float) -> float | None:
        """Return the energy of a call, from enough calls to be measurable."""
        if self.meter.read is None:
            return None
        times = max(1, round(_ENERGY_SECONDS / seconds))
        with Joules(self.meter) as spent:
            for _ in range(times):
                call()
            self._wait()
        return None if spent.joules is None else spent.joules / times
