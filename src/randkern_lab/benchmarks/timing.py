"""Interleaved repeats, and the machine's bounds."""

import math
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np

_REPEATS = 5
# Elements of the filled array, far larger than any cache.
_FILLED = 2**26
# Largest sides of the matrix product: about a quarter of a second at full speed.
_PRODUCT_SIDES = (2048, 4096, 4096)


def interleave(
    calls: Mapping[Any, Callable[[], Any]],
    repeats: int,
    wait: Callable[[], Any] = lambda: None,
) -> dict[Any, list[float]]:
    """Time calls in turn, round after round, so that a slow minute slows all of them.

    Every timed call follows an untimed one: mapping memory that a process gets from the
    system for the first time can cost more than computing features. Results are freed
    outside the timed interval. `wait` returns when a device has done its work.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            call()
            wait()
            start = time.perf_counter()
            result = call()
            wait()
            seconds[name].append(time.perf_counter() - start)
            del result
    return seconds


def roofline(n: int, d: int, n_components: int) -> dict[str, float]:
    """Measure the machine's bounds on feature maps, in float32.

    ``write_new_ns``, of filling a newly allocated array, whose pages the system still
    has to map, in nanoseconds per element, is the bound of a ``transform``;
    ``product_gflops`` of a matrix product counts 10⁹ additions and multiplications per
    second; ``product_ns`` is one inner product of length `d` at that rate: a Gaussian
    pair of features takes one, an optical feature two.
    """
    size = max(1, min(n * n_components, _FILLED))
    shape = [
        min(*sides) for sides in zip((n, d, n_components), _PRODUCT_SIDES, strict=True)
    ]
    rng = np.random.default_rng(0)
    left = rng.standard_normal(shape[:2], dtype=np.float32)
    right = rng.standard_normal(shape[1:], dtype=np.float32)
    product = np.empty((shape[0], shape[2]), dtype=np.float32)
    left[:16] @ right  # the library starts its threads at the first call
    seconds = interleave(
        {
            "write_new": lambda: np.full(size, 1.0, dtype=np.float32),
            "product": lambda: np.matmul(left, right, out=product),
        },
        _REPEATS,
    )
    gflops = 2e-9 * math.prod(shape) / median(seconds["product"])
    return {
        "write_new_ns": 1e9 * median(seconds["write_new"]) / size,
        "product_gflops": gflops,
        "product_ns": 2 * d / gflops,
    }
