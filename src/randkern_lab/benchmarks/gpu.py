"""Tensors on a GPU: seconds, joules, and shares of its bounds.

``features``: structured, streamed and dense features beside the bound of writing them
and beside plain PyTorch; ``product``: the projection that is never stored beside
``torch.matmul``, and one whose matrix would take 4 TB; ``ridge``: a classifier of
generated rows of ten classes; ``sweep``: seconds and joules of optical features against
batch and number of features. Calls take turns, the first of which compiles; energy is
NVML's counter. Where there is no GPU nothing is measured, and the results say why;
``--device cpu`` shows that everything runs.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from statistics import median
from typing import Any

import numpy as np
import sklearn

from randkern._extras import import_extra
from randkern._random import Stream
from randkern.features import fit_plan
from randkern.kernels import Gaussian, Kernel, Optical
from randkern.models import KernelRidgeClassifier
from randkern.plan import evaluate
from randkern.solvers import PCG

from ..energy import EnergyMeter, Joules, gpu_meter
from ..options import CommonOptions, option
from ..panels import BLUE, RED, Panel, draw, styled
from ..runner import Case, Experiment
from ..tables import TextTable, count, listing, number, of
from .rows import known_names

__all__ = ["MEASUREMENTS", "OnGPU", "Options"]

# The key and the heading of a column, beside seconds and joules.
MEASUREMENTS: Mapping[str, tuple[str, str] | None] = {
    "features": ("share_of_write_bound", "of the write bound"),
    "product": ("share_of_matmul", "of torch.matmul"),
    "ridge": ("test_accuracy", "test accuracy"),
    "sweep": None,
}
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


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern bench gpu`` takes."""

    device: str = option("cuda", "cuda, cuda:1, or cpu.", quick="cpu")
    measurements: tuple[str, ...] = option(
        tuple(MEASUREMENTS), "Of features, product, ridge, sweep."
    )
    n: int = option(8192, "Rows of the features.", quick=64)
    d: int = option(784, "Input columns.", quick=32)
    n_components: int = option(16384, "Features.", quick=128)
    side: int = option(16384, "Sides of the product.", quick=64)
    ridge_rows: int = option(60_000, "Training rows.", quick=400)
    ridge_components: int = option(100_000, "Of ridge.", quick=100)
    batches: tuple[int, ...] = option(
        (1, 64, 1024, 8192), "Rows at a time, of the sweep.", quick=(1, 16)
    )
    sizes: tuple[int, ...] = option(
        (1000, 10_000, 100_000), "Features, of the sweep.", quick=(64, 128)
    )
    repeats: int = option(5, "Rounds of the timing.", quick=1)
    cpu: bool = option(False, "Also fit ridge on the processor.")


class OnGPU(Experiment):
    """Measurements on one device."""

    name = "gpu"
    title = "Features, products and ridge on a GPU, beside its bounds."
    command = "bench"
    Options = Options

    def prepare(self) -> None:
        """Find the device and its meter."""
        options = self.options
        self.repeats, self.seed = options.repeats, options.seed
        self.names = known_names("measurement", options.measurements, MEASUREMENTS)
        self.reason = _why_not(options.device)
        self.meter = gpu_meter()
        if self.reason is None:
            self.torch = import_extra("torch", "bench gpu", "gpu")
            self.device = self.torch.device(options.device)
            self.on_gpu = self.device.type == "cuda"
            here = self.device.index or 0
            self.meter = gpu_meter(here) if self.on_gpu else _NO_METER

    def cases(self) -> Iterator[Case]:
        """Return the measurements, none where there is no device."""
        for name in self.names if self.reason is None else ():
            yield {"measurement": name}

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """Return the records of one measurement."""
        options = self.options
        calls: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "features": partial(
                self.features, options.n, options.d, options.n_components
            ),
            "product": partial(self.products, options.n, options.side),
            "ridge": partial(
                self.ridge, options.ridge_rows, options.d, options.ridge_components
            ),
            "sweep": partial(self.sweep, options.d),
        }
        return calls[case["measurement"]]()

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return whether it ran, on what, and what counts energy."""
        return {
            "ran": self.reason is None,
            "reason": self.reason,
            "device": None if self.reason else self.describe(),
            "energy": self.meter.name,
            "versions": results["versions"] | _versions(),
        }

    # -- results ----------------------------------------------------------------------

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return where it ran, or why not, and what counts energy."""
        if results["ran"]:
            versions = results["versions"]
            named = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
            yield f"{results['device']['name']}; {named}"
        else:
            yield f"The GPU benchmark did not run: {results['reason']}."
        yield f"energy: {results['energy']}"

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return a table of every measurement that was made."""
        found = []
        for name, column in MEASUREMENTS.items():
            records = of(results["records"], measurement=name)
            columns = {
                "method": lambda r: r["method"],
                "rows": lambda r: count(r["n"]),
                "d": lambda r: count(r["d"]),
                "D": lambda r: count(r["n_components"]),
                "ms": lambda r: number(1000 * r["seconds"]),
                "joules": lambda r: number(r["joules"]),
            }
            if column is not None:
                columns[column[1]] = partial(_share, column[0])
            if records:
                found.append(listing(name, records, columns))
        return found

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a feature costs, and batches against the number of features."""
        features = of(results["records"], measurement="features")
        sweep = of(results["records"], measurement="sweep")
        panels = []
        if features:
            first = features[0]
            panels.append(
                Panel(
                    title=f"{first['n']:,} rows, d = {first['d']:,}, "
                    f"D = {first['n_components']:,}",
                    xlabel="picoseconds per feature (dashed: of writing it)",
                    ylabel=" ",
                    extra=_feature_costs,
                )
            )
        lines = {
            (r["method"], r["n"]): f"{r['method']}, {count(r['n'])} rows" for r in sweep
        }
        records = [
            {**r, "line": (r["method"], r["n"])} if r in sweep else r
            for r in results["records"]
        ]
        for quantity in ("seconds", "joules"):
            if any(r[quantity] is not None for r in sweep):
                named = "n_components", quantity, "line", styled(lines)
                where = {"measurement": "sweep"}
                label = f"{quantity} per batch"
                panels.append(Panel(*named, where, ylabel=label))
        if not panels:
            return {}
        title = results["device"]["name"]
        shown = {**results, "records": records}
        return {"gpu.png": draw(shown, panels, size=(4.8, 4.2), title=title)}

    # -- the device -------------------------------------------------------------------

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
            "method": "streamed, no matrix would fit",
            **huge,
            "seconds": value["streamed"],
            "gflops": 2e-9 * huge["n"] * huge["d"] * D / value["streamed"],
            "share_of_matmul": None,
            "joules": self._joules(streamed, value["streamed"]),
        }
        return [*records, record]

    # -- ridge --------------------------------------------------------------------

    def ridge(self, n: int, d: int, D: int) -> list[dict[str, Any]]:
        """A ridge classifier of `n` generated rows of ten classes."""
        rng = np.random.default_rng(self.seed)
        centers = rng.normal(size=(_CLASSES, d)).astype(np.float32)
        labels = rng.integers(0, _CLASSES, n + n // 6)
        X = centers[labels] + 4 * rng.standard_normal((len(labels), d), np.float32)
        where = ["cpu"] if self.options.cpu else []
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

    def sweep(self, d: int) -> list[dict[str, Any]]:
        """Seconds and joules of a batch of optical features."""
        records = []
        for D in self.options.sizes:
            for projection in ("structured", "streamed"):
                plan = self._plan(Optical(2), d, D, projection)
                for batch in self.options.batches:
                    X = self._normal(batch, d)
                    out = self.torch.empty(batch, D, device=self.device)

                    def call(plan: Any = plan, X: Any = X, out: Any = out) -> Any:
                        return evaluate(plan, X, out=out)

                    seconds = self._seconds({"batch": call})["batch"]
                    records.append(
                        {
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


def _feature_costs(axes: Any, results: Mapping[str, Any]) -> None:
    """Draw picoseconds per feature, beside those of writing it."""
    records = of(results["records"], measurement="features")
    shown = [r for r in records if r["method"] != "write"]
    costs = [r["picoseconds_a_feature"] for r in shown]
    axes.plot(costs, [r["method"] for r in shown], "o", color=BLUE)
    (write,) = of(records, method="write")
    axes.axvline(write["picoseconds_a_feature"], color=RED, linestyle="--")
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1)


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


def _share(key: str, record: Mapping[str, Any]) -> str:
    return number(record[key])
