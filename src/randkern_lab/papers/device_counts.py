"""A device's counts for training and test rows, on disk."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randkern.data import RowBlocks
from randkern.optics import (
    SimulatedOPU,
    count_blocks,
    count_features,
    mean_count_per_bit,
)

from ..tables import text
from .nested_ridge import FeaturesOf

# Rows that determine the mean count per lit bit.
_CALIBRATION_ROWS = 1000
# Disk space that must stay free, as a share of the counts.
_SPARE_SHARE = 0.1


@dataclass(frozen=True)
class DeviceCounts:
    """Counts for several sets of rows; any number of outputs can be used.

    `scale` is the mean count per lit bit; `described` holds what was shown, the seconds
    of the simulation, and the seconds and joules of the real device.
    """

    counts: list[NDArray[Any]]
    labels: list[NDArray[Any]]
    scale: float
    described: dict[str, Any]

    def blocks(self, part: int, n_components: int, degree: float) -> RowBlocks:
        """Return the features of the first outputs as row blocks."""
        return count_blocks(
            self.counts[part][:, :n_components],
            self.labels[part],
            scale=self.scale,
            degree=degree,
        )

    def features_of(self, part: int, outputs: slice, degree: float) -> FeaturesOf:
        """Return a function of a slice of rows: the features of some outputs."""
        counts = self.counts[part][:, outputs]
        return lambda rows: count_features(
            counts[rows], scale=self.scale, degree=degree
        )


@contextmanager
def acquired_counts(
    device: SimulatedOPU,
    rows: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    *,
    bias: int = 0,
) -> Iterator[DeviceCounts]:
    """Show rows of bits to a simulated device, and store its counts in the context.

    `bias` extra bits are lit in every row; the first rows calibrate the device. Counts
    are in a temporary folder.
    """
    n_frames = sum(len(X) for X, _ in rows)
    with TemporaryDirectory() as folder:
        n_bytes = n_frames * device.n_components * (1 if device.bits <= 8 else 2)
        free = shutil.disk_usage(folder).free
        if n_bytes * (1 + _SPARE_SHARE) > free:
            raise OSError(
                f"the device's counts take {n_bytes / 1e9:.1f} GB, and "
                f"{Path(folder).parent} has {free / 1e9:.1f} GB free; set TMPDIR to "
                "another disk, or take fewer outputs"
            )
        lit_rows = [
            np.hstack([X, np.ones((len(X), bias), dtype=X.dtype)]) for X, _ in rows
        ]
        device.calibrate(lit_rows[0])
        start = time.perf_counter()
        counts = [
            device.acquire(X, Path(folder) / f"{part}.npy")
            for part, X in enumerate(lit_rows)
        ]
        first = counts[0][:_CALIBRATION_ROWS]
        n_lit = lit_rows[0][:_CALIBRATION_ROWS].sum(axis=1, dtype=np.int64)
        described = {
            "bias": bias,
            "bits": device.bits,
            "n_components": device.n_components,
            "n_frames": n_frames,
            "mean_count": float(first.mean()),
            "simulation_seconds": time.perf_counter() - start,
            "device_seconds": device.time_seconds(n_frames),
            "device_joules": device.energy_joules(n_frames),
        }
        scale = mean_count_per_bit(first, n_lit)
        yield DeviceCounts(counts, [y for _, y in rows], scale, described)


def device_note(described: dict[str, Any]) -> str:
    """Return a sentence on frames, and the time and energy of the real device."""
    return text(
        "device: {n_frames:,} frames of {n_components:,} outputs, simulated in "
        "{simulation_seconds:.1f} s; the real one takes {device_seconds:.0f} s and "
        "{device_joules:,.0f} J",
        described,
    )
