"""Energy consumption of processors, if the system reports it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from randkern._extras import import_extra

_POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class EnergyMeter:
    """Energy counters: what is counted and by what, or why nothing is counted.

    `read` returns the microjoules of each counter since some moment (None if nothing is
    counted); counters wrap around at `spans`.
    """

    name: str
    read: Callable[[], list[float]] | None
    spans: tuple[float, ...] = ()


class Joules:
    """Energy of the block it encloses, or None if nothing is counted."""

    joules: float | None = None

    def __init__(self, meter: EnergyMeter) -> None:
        self.meter = meter

    def __enter__(self) -> Self:
        self._before = self.meter.read() if self.meter.read else []
        return self

    def __exit__(self, *raised: object) -> None:
        if self.meter.read:
            spans = self.meter.spans
            counters = zip(self._before, self.meter.read(), spans, strict=True)
            spent = sum((after - before) % span for before, after, span in counters)
            self.joules = spent * 1e-6


def cpu_meter(powercap: Path = _POWERCAP) -> EnergyMeter:
    """Return the RAPL counters of all processor packages, if they can be read."""
    if not powercap.is_dir():
        return EnergyMeter(f"none: there is no {powercap}", None)
    # "intel-rapl:0" is a package (AMD's too), "intel-rapl:0:1" a part of it.
    zones = sorted(
        zone for zone in powercap.glob("intel-rapl:*") if zone.name.count(":") == 1
    )
    if not zones:
        return EnergyMeter(f"none: {powercap} has no zone of RAPL", None)

    def read() -> list[float]:
        return [float((zone / "energy_uj").read_text()) for zone in zones]

    try:
        read()
        spans = [
            float((zone / "max_energy_range_uj").read_text()) + 1 for zone in zones
        ]
    except OSError as error:
        return EnergyMeter(f"none: RAPL cannot be read ({error.strerror})", None)
    return EnergyMeter("RAPL, all packages", read, tuple(spans))


def gpu_meter(index: int = 0) -> EnergyMeter:
    """Return NVML's energy counter of a GPU, if there is one."""
    try:
        pynvml = import_extra("pynvml", "the energy of a GPU", "gpu")
    except ImportError:
        return EnergyMeter("none: pynvml is not installed", None)
    try:
        pynvml.nvmlInit()
        handle = _handle(pynvml, index)

        def read() -> list[float]:
            millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            return [1000.0 * millijoules]

        read()
    except pynvml.NVMLError as error:
        return EnergyMeter(f"none: NVML says {error}", None)
    return EnergyMeter("NVML, the whole GPU", read, (float("inf"),))


def _handle(pynvml: Any, index: int) -> Any:
    """Return the NVML handle of a PyTorch GPU.

    NVML numbers all GPUs; PyTorch numbers those in CUDA_VISIBLE_DEVICES, in its order.
    """
    with suppress(ImportError):
        torch = import_extra("torch", "the number of a GPU", "gpu")
        if index < torch.cuda.device_count():
            uuid = str(torch.cuda.get_device_properties(index).uuid)
            uuid = f"GPU-{uuid.removeprefix('GPU-')}"
            return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return pynvml.nvmlDeviceGetHandleByIndex(index)
