"""Energy consumption of processors and GPUs, if the system reports it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from randkern._extras import import_extra


@dataclass(frozen=True)
class EnergyMeter:
    """What is counted and by what, or why nothing is counted.

    `read` returns joules since some moment.
    """

    name: str
    read: Callable[[], float] | None = None


class Joules:
    """Energy of the block it encloses, or None if nothing is counted."""

    joules: float | None = None

    def __init__(self, meter: EnergyMeter) -> None:
        self.read = meter.read

    def __enter__(self) -> Self:
        self._before = self.read() if self.read else 0.0
        return self

    def __exit__(self, *raised: object) -> None:
        spent = self.read() - self._before if self.read else -1.0
        if spent >= 0:  # the counter has started again at 0 otherwise
            self.joules = spent


def cpu_meter() -> EnergyMeter:
    """Return the RAPL counters of all processor packages, if they can be read."""
    # "intel-rapl:0" is a package (AMD's too), "intel-rapl:0:1" a part of it.
    zones = sorted(Path("/sys/class/powercap").glob("intel-rapl:[0-9]"))
    if not zones:
        return EnergyMeter("none: /sys/class/powercap has no zone of RAPL")

    def read() -> float:
        return 1e-6 * sum(float((zone / "energy_uj").read_text()) for zone in zones)

    try:
        read()
    except OSError as error:
        return EnergyMeter(f"none: RAPL cannot be read ({error.strerror})")
    return EnergyMeter("RAPL, all packages", read)


def gpu_meter(index: int = 0) -> EnergyMeter:
    """Return NVML's energy counter of a GPU of PyTorch, if there is one."""
    missing = [name for name in ("torch", "pynvml") if find_spec(name) is None]
    if missing:
        return EnergyMeter(f"none: {missing[0]} is not installed")
    torch: Any = import_extra("torch", "the number of a GPU", "gpu")
    pynvml: Any = import_extra("pynvml", "the energy of a GPU", "gpu")
    if index >= torch.cuda.device_count():
        return EnergyMeter("none: PyTorch finds no GPU")
    # NVML numbers all GPUs; PyTorch those in CUDA_VISIBLE_DEVICES, in its order.
    uuid = str(torch.cuda.get_device_properties(index).uuid).removeprefix("GPU-")
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")

        def read() -> float:
            return 1e-3 * float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))

        read()
    except pynvml.NVMLError as error:
        return EnergyMeter(f"none: NVML says {error}")
    return EnergyMeter("NVML, the whole GPU", read)
