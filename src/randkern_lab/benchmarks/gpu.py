"""Tensors on a GPU: seconds, joules, and shares of the device's bounds.

``features`` compares fused structured features with the bound of writing them and with
plain PyTorch; ``product`` compares the projection that is never stored with
``torch.matmul``; ``ridge`` times a fit. For seconds and joules against the number of
features, see ``randkern reproduce projection-cost``. Without a GPU nothing is measured,
and the results say why (``ran``, ``reason``).
"""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

from randkern._extras import import_extra

from ..contenders import known_names
from ..energy import gpu_meter
from ..options import CommonOptions, option
from ..panels import Panel, draw
from ..runner import Case, Experiment
from ..tables import Column, TextTable, count, listing, of
from .gpu_device import Device

__all__ = ["MEASUREMENTS", "OnGPU", "Options"]

# Key and heading of a column, besides seconds and joules.
MEASUREMENTS = {
    "features": ("share_of_write_bound", "of the write bound"),
    "product": ("share_of_matmul", "of torch.matmul"),
    "ridge": ("test_accuracy", "test accuracy"),
}


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench gpu``."""

    device: str = option("cuda", "cuda, cuda:1, or cpu.", quick="cpu")
    measurements: tuple[str, ...] = option(
        tuple(MEASUREMENTS), "Of features, product, ridge."
    )
    n: int = option(8192, "Rows of the features.", quick=20)
    d: int = option(784, "Input columns.", quick=70)
    n_components: int = option(16384, "Features.", quick=90)
    side: int = option(16384, "Sides of the product.", quick=64)
    ridge_rows: int = option(60_000, "Training rows.", quick=300)
    ridge_components: int = option(100_000, "Of ridge.", quick=128)
    repeats: int = option(5, "Rounds of the timing.", quick=1)
    cpu: bool = option(False, "Also fit ridge on the processor.", quick=True)


class OnGPU(Experiment):
    """Measurements on one device, if it is there."""

    name = "gpu"
    title = "Features, products and ridge on a GPU, beside its bounds."
    command = "bench"
    Options = Options

    def prepare(self) -> None:
        """Look for the device."""
        options = self.options
        self.measurements = known_names(
            "measurement", options.measurements, MEASUREMENTS
        )
        self.reason = why_not(options.device)
        self.device = None
        if self.reason is None:
            self.device = Device(options.device, options.repeats, options.seed)

    def cases(self) -> Iterator[Case]:
        """Return the measurements."""
        for name in self.measurements if self.device is not None else ():
            yield {"measurement": name}

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """Return the records of a measurement."""
        o, device = self.options, self.device
        assert device is not None  # otherwise there are no cases
        calls = {
            "features": partial(device.features, o.n, o.d, o.n_components),
            "product": partial(device.products, o.n, o.side),
            "ridge": partial(
                device.ridge, o.ridge_rows, o.d, o.ridge_components, o.cpu
            ),
        }
        found: list[dict[str, Any]] = calls[case["measurement"]]()
        return found

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return a description of the device and of its energy counter."""
        device = self.device
        return {
            "ran": self.reason is None,
            "reason": self.reason,
            "device": None if device is None else device.describe(),
            "energy": (gpu_meter() if device is None else device.meter).name,
            "versions": results["versions"] | _versions(),
        }

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the device, or why the benchmark did not run."""
        if results["ran"]:
            versions = sorted(results["versions"].items())
            named = ", ".join(f"{name} {version}" for name, version in versions)
            yield f"{results['device']['name']}; {named}"
        else:
            yield f"The GPU benchmark did not run: {results['reason']}."
        yield f"energy: {results['energy']}"

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return a table per measurement."""
        tables = []
        for name, (key, heading) in MEASUREMENTS.items():
            columns: dict[str, Column] = {
                "method": "method",
                "rows": ("n", count),
                "d": ("d", count),
                "D": ("n_components", count),
                "ms": lambda r: f"{1000 * r['seconds']:.3g}",
                "joules": ("joules", ".3g"),
                heading: (key, ".3g"),
            }
            records = of(results["records"], measurement=name)
            if records:
                tables.append(listing(name, records, columns))
        return tables

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figure of the cost per feature."""
        features = of(results["records"], measurement="features")
        if not features:
            return {}
        first = features[0]
        panel = Panel(
            title=f"{first['n']:,} rows, d = {first['d']:,}, "
            f"D = {first['n_components']:,}",
            xlabel="picoseconds per feature (dashed: of writing it)",
            ylabel=" ",
            extra=_draw_features,
        )
        return {"gpu.png": draw(results, [panel], title=results["device"]["name"])}


def why_not(device: str) -> str | None:
    """Return why nothing can be measured, or None if it can.

    Raises
    ------
    ValueError
        If there is no such kind of device.
    """
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
    """Return the versions of the tensor libraries that are installed."""
    found = {}
    for name in ("torch", "triton", "nvidia-ml-py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _draw_features(axes: Any, results: Mapping[str, Any]) -> None:
    """Draw picoseconds per feature, and those of writing it."""
    for record in of(results["records"], measurement="features"):
        cost = record["picoseconds_a_feature"]
        if record["method"] == "write":
            axes.axvline(cost, color="#D55E00", linestyle="--")
        else:
            axes.plot(cost, record["method"], "o", color="#0072B2")
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1)
