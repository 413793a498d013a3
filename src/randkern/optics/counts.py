"""A camera's counts: stored in files, and turned into features."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from randkern._files import atomic_write
from randkern._validation import Array, check_positive
from randkern.backend.camera import look_up
from randkern.data import RowBlock, RowBlocks, row_blocks, rows_within
from randkern.optics._scattering import exclusive

# Memory for counts, and for features, at a time.
_BLOCK_BYTES = 32 * 2**20
_LARGEST = float(np.finfo(np.float32).max)


def count_features(
    counts: Array, *, scale: float, degree: float = 2.0, out: np.ndarray | None = None
) -> np.ndarray:
    """Return the features (counts/scale)^(degree/2)/√D.

    Parameters
    ----------
    counts : array of shape (n, D)
        Intensities, proportional to |Ux|²; integers or floats, not negative.
    scale : float
        The mean of counts/‖x‖², from :func:`mean_count_per_bit`.
    degree : float, default=2
        m > 0.
    out : ndarray of float32, shape (n, D), optional
        Output array; by default a new one.

    Returns
    -------
    ndarray of float32, shape (n, D)

    Raises
    ------
    ValueError
        If a feature overflows float32, as for high degrees.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.optics import count_features
    >>> counts = np.array([[0, 10, 20, 40]], dtype=np.uint8)
    >>> count_features(counts, scale=10.0, degree=4)
    array([[0. , 0.5, 2. , 8. ]], dtype=float32)
    """
    counts = np.asarray(counts)
    if counts.ndim != 2:
        raise ValueError(
            f"counts must have two dimensions, got {counts.ndim}; pass "
            "counts.reshape(1, -1) for a single row."
        )
    check_positive("scale", scale)
    check_positive("degree", degree)
    if out is None:
        out = np.empty(counts.shape, dtype=np.float32)
    root = math.sqrt(counts.shape[1])
    if counts.dtype in (np.uint8, np.uint16):
        values = np.arange(np.iinfo(counts.dtype).max + 1, dtype=np.float64)
        with np.errstate(over="ignore"):
            table = (values / scale) ** (degree / 2) / root
            if table[-1] > _LARGEST:
                largest = int(counts.max(initial=0))
                _check_finite(float(table[largest]), degree)
            look_up(counts, table.astype(np.float32), out)
        return out
    with np.errstate(over="ignore"):
        brightest = np.float64(counts.max(initial=0)) / scale
        # The float32 power is computed before the division by √D.
        _check_finite(float(brightest ** (degree / 2)), degree)
    np.maximum(counts, 0, out=out, casting="unsafe")
    out *= np.float32(1 / scale)
    if degree != 2:
        np.power(out, np.float32(degree / 2), out=out)
    out *= np.float32(1 / root)
    return out


def _check_finite(largest: float, degree: float) -> None:
    if largest > _LARGEST:
        raise ValueError(
            f"features of degree {degree:g} are up to {largest:.3g}, which overflows "
            "float32; use a lower degree, or fewer bits that are 1 per row."
        )


def mean_count_per_bit(counts: Array, n_lit: Any) -> float:
    """Return the mean of |Ux|²/‖x‖² in counts, over rows and outputs.

    Parameters
    ----------
    counts : array of shape (n, D)
        A device's counts for n rows.
    n_lit : array of shape (n,)
        Lit bits of every row, ‖x‖². Rows without lit bits are ignored.

    Raises
    ------
    ValueError
        If no row has a lit bit, or the camera saw no light.

    Examples
    --------
    >>> from randkern.optics import mean_count_per_bit
    >>> mean_count_per_bit([[8, 12], [30, 10], [0, 0]], [5, 10, 0])
    2.0
    """
    counts = np.asarray(counts)
    n_lit = np.asarray(n_lit, dtype=np.float64)
    if n_lit.shape != counts.shape[:1]:
        raise ValueError(
            f"n_lit must have shape ({len(counts)},), one number per row, got "
            f"{n_lit.shape}."
        )
    lit = n_lit > 0
    if not lit.any():
        raise ValueError(
            "all bits of the rows are 0, but calibration needs light; pass rows with "
            "bits that are 1."
        )
    means = counts.mean(axis=1, dtype=np.float64)[lit]
    scale = float(np.mean(means / n_lit[lit]))
    if not 0 < scale < math.inf:
        raise ValueError(
            f"the mean count is {means.mean()}: the camera sees no light; use a longer "
            "exposure, or exposure='auto'."
        )
    return scale


def count_blocks(
    counts: Array,
    y: Any = None,
    sample_weight: Any = None,
    *,
    scale: float,
    degree: float = 2.0,
    block_rows: int | None = None,
) -> RowBlocks:
    """Return stored counts as row blocks of features, for out-of-core fits.

    Parameters
    ----------
    counts : array or memory map of shape (n, D)
        A device's counts, as written by :func:`acquire`. Blocks are read and turned
        into features when needed.
    y, sample_weight : arrays of n rows, optional
        Targets and weights of the rows.
    scale : float
        The mean of counts/‖x‖², from :func:`mean_count_per_bit`.
    degree : float, default=2
        m > 0 of the features (counts/scale)^(m/2)/√D.
    block_rows : int, optional
        Rows per block; by default as many as have 32 MB of features.

    Returns
    -------
    RowBlocks

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> from randkern.optics import SimulatedOPU, count_blocks, mean_count_per_bit
    >>> X = np.random.default_rng(0).random((200, 80)) < 0.4
    >>> counts = SimulatedOPU(50, random_state=0).transform(X)
    >>> scale = mean_count_per_bit(counts, X.sum(axis=1))
    >>> rows = count_blocks(counts, X[:, 0], scale=scale, degree=4)
    >>> model = rk.KernelRidgeClassifier(rk.Linear(), n_components=50).fit(rows)
    >>> model.n_features_in_
    50
    """
    n, width = counts.shape
    if block_rows is None:
        block_rows = rows_within(_BLOCK_BYTES, 4 * width)
    stored = RowBlocks.from_arrays(counts, y, sample_weight, block_rows=block_rows)
    check_positive("scale", scale)
    check_positive("degree", degree)
    return RowBlocks(_FeatureBlocks(stored, float(scale), float(degree)), n_rows=n)


@dataclass(frozen=True, eq=False)
class _FeatureBlocks:
    """Blocks of features from stored counts; can be iterated repeatedly."""

    stored: RowBlocks
    scale: float
    degree: float

    def __iter__(self) -> Iterator[RowBlock]:
        return map(self._features, self.stored)

    def _features(self, block: RowBlock) -> RowBlock:
        features = count_features(block.X, scale=self.scale, degree=self.degree)
        return replace(block, X=features)


def acquire(
    device: Any,
    X: Any,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int | None], Any] | None = None,
) -> np.ndarray:
    """Write a device's counts for rows of bits to a file, block by block.

    Parameters
    ----------
    device : OpticalDevice
        The device; its ``lock``, if any, is held throughout. A device that is not set
        up is calibrated on all rows of an array, but only on the first block of a
        stream: if that is not like the others, call ``device.calibrate`` on a sample
        of all rows first.
    X : array, CSR matrix, list of rows, RowBlocks, or iterable of arrays
        Rows of 0 and 1; only X of a :class:`randkern.RowBlocks` is read.
    path : path
        The file, in NumPy's format. An existing file is replaced once the new one is
        complete.
    progress : callable, optional
        Called after every block with the number of rows written and the total number
        (None if unknown).

    Returns
    -------
    ndarray of shape (n, n_components)
        The counts, as a read-only memory map.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from randkern.optics import SimulatedOPU, acquire
    >>> X = np.random.default_rng(0).random((6, 70)) < 0.5
    >>> device = SimulatedOPU(100, random_state=0).calibrate(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     counts = acquire(device, X, folder + "/counts.npy")
    ...     bool((counts == device.transform(X, frame=0)).all())
    True
    """
    if isinstance(X, (list, tuple)) and len(X) and np.ndim(X[0]) < 2:
        X = np.asarray(X)  # a list of rows, not of blocks
    with exclusive(device), atomic_write(Path(path)) as file:
        settings = getattr(device, "settings", device)
        is_set_up = getattr(settings, "n_features", 0) is not None
        if hasattr(X, "shape") and not is_set_up:
            device.calibrate(X)
        _write_counts(device, X, file, progress)
    return np.load(path, mmap_mode="r")


def _write_counts(
    device: Any, X: Any, file: Any, progress: Callable[[int, int | None], Any] | None
) -> None:
    shape = getattr(X, "shape", None)
    n_expected = int(shape[0]) if shape else getattr(X, "n_rows", None)
    n_rows = 0
    width = int(device.n_components)
    header: dict[str, Any] = {"fortran_order": False}
    for block in _bit_blocks(X, width):
        counts = np.ascontiguousarray(device.transform(block))
        if n_rows == 0:
            header |= {"descr": npy.dtype_to_descr(counts.dtype), "shape": (0, width)}
            npy.write_array_header_1_0(file, header)
        file.write(counts.data)
        n_rows += len(counts)
        if progress is not None:
            progress(n_rows, n_expected)
    if n_rows == 0:
        raise ValueError("X has no rows.")
    # The number of rows is known only now; NumPy's headers leave room for its digits.
    file.seek(0)
    npy.write_array_header_1_0(file, header | {"shape": (n_rows, width)})


def _bit_blocks(X: Any, n_components: int) -> Iterator[Any]:
    """Yield row blocks with a few megabytes of counts."""
    max_rows = rows_within(_BLOCK_BYTES, n_components)
    blocks: Iterable[Any] = [X] if hasattr(X, "shape") else X
    for block in blocks:
        rows: Any = block.X if isinstance(X, RowBlocks) else block
        rows = rows if hasattr(rows, "shape") else np.asarray(rows)
        rows = rows.tocsr() if sp.issparse(rows) else rows
        rows = rows.to_numpy() if hasattr(rows, "to_numpy") else rows
        for part in row_blocks(rows.shape[0], max_rows):
            yield rows[part]
