"""Files of synthetic rows, read in slices."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randkern._memory import format_bytes

__all__ = ["RowFile", "write_rows"]

_CHUNK_ROWS = 65_536
_NOISE = 0.1


@dataclass(frozen=True)
class RowFile:
    """The first rows of a file of float32 numbers, an array that is read in slices.

    Every slice is read with `numpy.fromfile`. A memory map would serve a fit as well,
    but its pages count as memory of the process for as long as the system keeps them,
    whatever the fit needs.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from randkern_lab.benchmarks.row_file import RowFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.arange(12, dtype=np.float32).tofile(folder + "/X")
    ...     RowFile(folder + "/X", (4, 3))[1:3]
    array([[3., 4., 5.],
           [6., 7., 8.]], dtype=float32)
    """

    path: str
    shape: tuple[int, ...]
    dtype = np.dtype(np.float32)

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"rows are read in a row, got a step of {step}")
        width = math.prod(self.shape[1:])
        n = max(0, stop - start)
        offset = start * width * self.dtype.itemsize
        flat = np.fromfile(self.path, self.dtype, n * width, offset=offset)
        return flat.reshape((n, *self.shape[1:]))


def write_rows(folder: str | Path, n: int, d: int, seed: int = 0) -> tuple[str, str]:
    """Write `n` normal rows and their targets, some rows at a time.

    As in real data, the columns' variances decrease: that of column j as 1/j², with
    mean 1. The target is a smooth function plus noise of variance 0.01:
    y = √2 sin(w·x + b) + 0.1 ε, where w has a random direction and w·x has variance 1.

    Returns the paths of the files of n × d and of n float32 numbers.

    Examples
    --------
    >>> import tempfile
    >>> from randkern_lab.benchmarks.row_file import RowFile, write_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     X, y = write_rows(folder, 100, 3)
    ...     RowFile(X, (100, 3))[:].shape, RowFile(y, (100,))[90:].shape
    ((100, 3), (10,))
    """
    needed, free = 4 * n * (d + 1), shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{n:,} rows of {d:,} columns take {format_bytes(needed)}; {folder} has "
            f"{format_bytes(free)} left; set TMPDIR to another disk, or ask for fewer"
        )
    rng = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, d + 1)
    sizes = (sizes / math.sqrt(np.mean(sizes**2))).astype(np.float32)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction * sizes)
    offset = rng.uniform(0, 2 * math.pi)
    paths = (str(Path(folder) / "X.float32"), str(Path(folder) / "y.float32"))
    with open(paths[0], "wb") as X_file, open(paths[1], "wb") as y_file:
        for start in range(0, n, _CHUNK_ROWS):
            size = min(_CHUNK_ROWS, n - start)
            X: Any = rng.standard_normal((size, d), dtype=np.float32)
            X *= sizes
            y = math.sqrt(2) * np.sin(X @ direction + offset)
            y += _NOISE * rng.standard_normal(size)
            X.tofile(X_file)
            y.astype(np.float32).tofile(y_file)
    return paths
