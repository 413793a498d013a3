"""A camera's counts of light, with noise, rounding and saturation, and back.

The noise of a count is a function of the key, the frame and the pixel, by the
counter-based generator of :mod:`randkern.backend.counter`: the counts are bit-identical
however frames and pixels are divided among calls and threads.
"""

import math

import numpy as np
from numba import njit

from randkern.backend.compiled_loops import input_rows, output_rows, run_over_blocks
from randkern.backend.counter import DISTRIBUTIONS, fill_entries

# Pixels per tile, which fits in the L1 cache.
_TILE = 4096
_NANOSECONDS_PER_COUNT = 2.5
_COUNTS = (np.uint8, np.uint16)


@njit(nogil=True, cache=True)
def _expose(
    key, distribution, frame, pixel, intensity, stride, camera, out, out_stride, shape
):
    gain, read_variance, shot_noise, full_scale = camera
    noisy = read_variance > 0 or shot_noise > 0
    zero = np.float32(0.0)
    noise = np.zeros(_TILE, dtype=np.float32)
    for i in range(shape[0]):
        for start in range(0, shape[1], _TILE):
            n = min(_TILE, shape[1] - start)
            if noisy:
                fill_entries(
                    key, distribution, frame + i, pixel + start, noise, n, 1, n
                )
            light = intensity[i * stride + start : i * stride + start + n]
            counts = out[i * out_stride + start : i * out_stride + start + n]
            for j in range(n):
                mean = gain * light[j]
                sd = math.sqrt(read_variance + shot_noise * mean)
                value = np.rint(mean + sd * noise[j])
                counts[j] = np.int32(min(max(value, zero), full_scale))


def expose(
    intensity: np.ndarray,
    *,
    gain: float,
    read_noise: float,
    shot_noise: float,
    full_scale: int,
    key: int,
    frame: int,
    pixel: int,
    out: np.ndarray,
) -> None:
    r"""Write a camera's counts for given intensities of light.

    .. math:: out_{ij} = \mathrm{clip}\bigl(\mathrm{round}(g I_{ij}
              + \sqrt{r^2 + s\,g I_{ij}}\; z_{ij}),\, 0,\, \text{full scale}\bigr)

    with standard normal z, of which `key` names an infinite matrix and `frame` and
    `pixel` are the position of ``out[0, 0]``. The gain g is in counts per unit of
    intensity I ≥ 0, the read noise r the standard deviation without light, in counts,
    and the shot noise s the variance of the light's own noise per count: one over the
    number of electrons per count.

    The number of electrons is a Poisson variable; from a few dozen electrons per count
    on, the error of its normal approximation is below the rounding of a count.
    """
    if out.dtype not in _COUNTS or out.shape != intensity.shape:
        raise ValueError(
            f"out must be uint8 or uint16 of shape {intensity.shape}, got {out.dtype} "
            f"of shape {out.shape}."
        )
    if not 0 < full_scale <= np.iinfo(out.dtype).max:
        raise ValueError(f"full_scale={full_scale} does not fit {out.dtype}.")
    if out.size == 0:
        return
    numbers = (gain, read_noise * read_noise, shot_noise, full_scale)
    camera = tuple(np.float32(number) for number in numbers)

    def task(rows: slice, columns: slice) -> None:
        part = out[rows, columns]
        light = input_rows(intensity[rows, columns], np.dtype(np.float32))
        origin = frame + rows.start, pixel + columns.start
        target = output_rows(part)
        _expose(
            np.uint64(key),
            DISTRIBUTIONS["normal"],
            *origin,
            *light,
            camera,
            *target,
            part.shape,
        )

    run_over_blocks(task, out.shape, _NANOSECONDS_PER_COUNT * out.size, _TILE)


@njit(nogil=True, cache=True)
def _look_up(counts, stride, table, out, out_stride, shape):
    last = np.int64(table.shape[0] - 1)
    for i in range(shape[0]):
        row = counts[i * stride : i * stride + shape[1]]
        target = out[i * out_stride : i * out_stride + shape[1]]
        for j in range(shape[1]):
            target[j] = table[min(np.int64(row[j]), last)]


def look_up(counts: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Write the table's value for every count; those beyond take its last value."""
    if counts.dtype not in _COUNTS or counts.shape != out.shape:
        raise ValueError(
            f"counts must be uint8 or uint16 of the shape of out, {out.shape}, got "
            f"{counts.dtype} of shape {counts.shape}."
        )
    if out.size == 0:
        return
    if table.size == 0:
        raise ValueError("the table is empty; pass at least one entry.")
    table = np.ascontiguousarray(table, dtype=np.float32)

    def task(rows: slice, columns: slice) -> None:
        part = out[rows, columns]
        source = input_rows(counts[rows, columns], counts.dtype)
        _look_up(*source, table, *output_rows(part), part.shape)

    run_over_blocks(task, out.shape, 0.7 * out.size, _TILE)
