"""Nanoseconds per feature of every projection, of peers, and the machine's bounds.

Rows are standard normal. The Gaussian kernel has lengthscale √d; its peers are
scikit-learn's ``RBFSampler`` on float64 rows (its default) and on float32 rows (it then
uses float32 throughout), and ``Nystroem``. Those of the optical kernel are two dense
float32 products in NumPy, squared and added in place, and lightonml's simulated device
on bits; that of the polynomial kernel is ``PolynomialCountSketch``.

The contenders of a kernel take turns in one process; every timed call follows an
untimed call of the same contender. Peak memory is measured in a separate process.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.study.measure import Measurement

from ..contenders import check_any
from ..figures import BLUE, RED, add_legend, logarithmic, name_axes, panels
from ..options import CommonOptions, Names, option
from ..process import SkippedCase, Stopwatch, in_fresh_process
from ..runner import Case, grid, measure_all
from ..tables import listing, text
from .feature_maps import DRAWN, FAMILIES, PEERS, FeatureMap

# Methods without a matrix product, to which its bound does not apply.
_WITHOUT_PRODUCT = ("structured", "PolynomialCountSketch")
_WARM_UP_ROWS = 256
_FIRST_ROWS, _FIRST_COMPONENTS = 16, 64
_REPEATS = 5  # of the bounds
# Elements of the filled array, far larger than any cache.
_FILLED = 2**26
# Largest sides of the matrix product: about a quarter of a second at full speed.
_PRODUCT_SIDES = (2048, 4096, 4096)


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench features``."""

    d: int = option(784, "Input columns.", quick=70)
    n_components: int = option(10240, "Features.", quick=66)
    n: int = option(6000, "Rows.", quick=80)
    repeats: int = option(5, "Rounds of the timing.", quick=1)
    projections: Names = option(DRAWN, "Projections.", among=DRAWN)
    families: Names = option(FAMILIES, "Kernels.", among=FAMILIES)
    memory: bool = option(
        True, "Measure peak memory, each method in its own process.", quick=False
    )
    memory_limit: str | None = option(
        None,
        'What one contender may use, such as "8GB"; more is skipped. Default: half of '
        "the free memory.",
    )


def _bars(axes: Any, records: pd.DataFrame) -> None:
    """Draw one kernel's bars from top to bottom, each with its bound."""
    named = records.assign(is_own=records["library"] == "randkern")
    for place, record in enumerate(named.itertuples()):
        own, bound = record.is_own, record.bound_ns
        axes.barh(
            place,
            record.ns_per_feature,
            height=0.66,
            color=BLUE if own else "#C8C8C8",
            edgecolor="0.25",
            label="randkern (× faster than the float32 peer)" if own else "peer",
        )
        speedup = record.speedup_over_float32
        faster = f"  ({speedup:.2g}×)" if own and speedup == speedup else ""
        axes.annotate(
            f"{record.ns_per_feature:.3g}{faster}",
            (np.fmax(record.ns_per_feature, bound), place),
            va="center",
            fontsize=8,
            xytext=(7, 0),
            textcoords="offset points",
        )
        if bound == bound:
            ends = [place - 0.42, place + 0.42]
            axes.plot([bound] * 2, ends, color=RED, lw=2.2, label="bound")
    axes.set_yticks(range(len(records)), records.method)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    logarithmic(axes, "x")


SKIPPED_BY = ("family", "method")
_SIZES = "d = {arguments[d]:,}, D = {arguments[n_components]:,}, {arguments[n]:,} rows"


def run(options: Options) -> pd.DataFrame:
    """Time the feature maps of each kernel in turn, beside the machine's bounds."""
    n, d, size = options.n, options.d, options.n_components
    limit, bounds = _limit(options.memory_limit), roofline(n, d, size)
    X = make_rows(n, d, "float32", options.seed)
    rows = {"float32": X, "float64": X.astype("float64")}

    def fitted(contender: FeatureMap) -> tuple[Any, Case]:
        """Return a fitted map and what is known of it; raise if it cannot run."""
        contender.check(n, size)
        needed = contender.most_bytes(n, d, size)
        if needed > limit:
            raise SkippedCase(
                f"it may take {format_bytes(needed)}, more than the limit of "
                f"{format_bytes(limit)}"
            )
        X, watch = rows[contender.dtype], Stopwatch()
        features = contender.build(size, options.seed).fit(X)
        # A projection may draw its matrix on first use, which is fitting, too.
        Z = features.transform(X[:_WARM_UP_ROWS])
        return features, {
            "library": contender.package,
            "dtype": contender.dtype,
            "fit_seconds": watch.lap().seconds,
            "output_bytes": n * size * Z.dtype.itemsize,
        }

    def measure(case: Case) -> Iterator[Case]:
        """Fit every contender that can run, then time their transforms in turn."""
        known, calls = list[tuple[FeatureMap, Case]](), {}
        for contender in contenders(case["family"], d, options.projections):
            label = contender.label
            try:
                features, named = fitted(contender)
            except ValueError as error:  # also an unsupported distribution or width
                yield {"method": label, "reason": str(error)}
                continue
            known.append((contender, {"method": label, **named}))
            calls[label] = partial(features.transform, rows[contender.dtype])
        times = interleave(calls, options.repeats)
        peers: dict[str, float] = {}
        for contender, _ in known:
            if contender.package != "randkern" and contender.method != "Nystroem":
                peers.setdefault(contender.dtype, median(times[contender.label]))
        for contender, named in known:
            own = times[contender.label]
            took = median(own)
            for dtype in ("float32", "float64"):
                peer = peers.get(dtype)
                named[f"speedup_over_{dtype}"] = peer and peer / took
            peak = None
            if options.memory:
                request = options.arguments() | {"contender": asdict(contender)}
                peak = in_fresh_process(peak_of_map, request)["peak_memory_bytes"]
            yield named | {
                "seconds": took,
                "repeats_seconds": own,
                "ns_per_feature": 1e9 * took / (n * size),
                "bound_ns": bound(contender, bounds),
                "peak_memory_bytes": peak,
            }

    records = measure_all(options, grid(family=options.families), measure)
    check_any(records)
    records.attrs = {"arguments": {"memory_limit": limit}, "roofline": bounds}
    return records


def contenders(family: str, d: int, projections: Sequence[str]) -> Iterator[FeatureMap]:
    """Yield peers, then projections, in float32.

    For the Gaussian kernel the first is ``RBFSampler`` in float64, its default.
    """
    if family == "gaussian":
        yield FeatureMap(family, "RBFSampler", "float64", lengthscale=math.sqrt(d))
    for method in (*PEERS[family], *projections):
        yield FeatureMap(family, method, lengthscale=math.sqrt(d))


def bound(contender: FeatureMap, bounds: Mapping[str, float]) -> float | None:
    """Return the lower bound on a method's nanoseconds per feature.

    The rates were measured in float32, so there is none for the float64 peer.
    """
    if contender.dtype != "float32":
        return None
    if contender.method in _WITHOUT_PRODUCT:
        return bounds["write_new_ns"]
    products = 2.0 if contender.family == "optical" else 1.0
    if contender.package == "randkern" and contender.family == "gaussian":
        products = 0.5  # one frequency gives a cosine and a sine
    return max(bounds["write_new_ns"], products * bounds["product_ns"])


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        frame,
        f"{{family}}: {_SIZES}",
        "method | ns/feature | bound | × float32 | × float64 | peak | output",
        "{method} | {ns_per_feature:number} | {bound_ns:number} | "
        "{speedup_over_float32:number} | {speedup_over_float64:number} | "
        "{peak_memory_bytes:megabytes} | {output_bytes:megabytes}",
        "×: how many times faster than the first peer of that type; peak: above "
        "the input, with the output",
        per="family",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return the bars of each kernel, with the bounds of the machine."""
    records = frame.astype({"bound_ns": float, "speedup_over_float32": float})
    families = records.groupby("family", sort=False)
    title = text(_SIZES + ", {machine[cpu_count]} cores", frame.attrs)
    figure, axes = panels(len(families), 1, (7.2, 3.0), title)
    for place, (family, own) in zip(axes, families, strict=True):
        _bars(place, own)
        xlabel = "nanoseconds per feature (row × output column)"
        name_axes(place, f"{family} kernel", xlabel)
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    yield text(
        "bounds: writing new memory {write_new_ns:.3f} ns per element, float32 "
        "product {product_gflops:.0f} GFLOP/s",
        frame.attrs["roofline"],
    )


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


def make_rows(n: int, d: int, dtype: str, seed: int) -> NDArray[Any]:
    """Return `n` standard normal rows, drawn in float32 for every dtype."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d), dtype=np.float32).astype(dtype, copy=False)


def peak_of_map(request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the memory that fitting and transforming add in this process."""
    contender = FeatureMap(**request["contender"])
    n, d, size, seed = (request[k] for k in ("n", "d", "n_components", "seed"))
    few = make_rows(_FIRST_ROWS, d, contender.dtype, seed)
    landmarks = contender.method in ("Nystroem", "landmarks")
    first = min(size, _FIRST_ROWS if landmarks else _FIRST_COMPONENTS)
    contender.build(first, seed).fit(few).transform(few)  # loads compiled code
    X = make_rows(n, d, contender.dtype, seed)
    gc.collect()
    with Measurement() as measured:
        Z = contender.build(size, seed).fit(X).transform(X)
    added = measured.peak_bytes - measured.before_bytes
    return {"peak_memory_bytes": added, "output_bytes": int(Z.nbytes)}


def _limit(memory_limit: str | None) -> int:
    """Return the limit in bytes: as given, or half of the free memory."""
    if memory_limit is None:
        free = available_memory()
        return resolve_memory_limit(None) if free is None else free // 2
    return resolve_memory_limit(memory_limit)
