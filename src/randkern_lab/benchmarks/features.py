"""Nanoseconds per feature: every projection, beside peers and the machine's bounds.

Rows are standard normal. The Gaussian kernel has lengthscale √d; its peers are
scikit-learn's ``RBFSampler`` on float64 rows (what it does by default) and on float32
rows (it then keeps float32 throughout), and ``Nystroem``. Those of the optical kernel
are two dense float32 products in NumPy, squared and added in place, and lightonml's
simulated device on bits; that of the polynomial kernel is ``PolynomialCountSketch``.

The contenders of a kernel take turns in one process, each call after one of its own
that is not timed. Peak memory and first calls have a process of their own.
"""

import gc
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.plan import evaluate
from randkern.study.measure import Measurement

from ..options import CommonOptions, option
from ..panels import Panel, Style, draw
from ..process import in_fresh_process
from ..runner import Case, Experiment
from ..tables import (
    Fitted,
    TextTable,
    fitted_power,
    listing,
    megabytes,
    number,
    of,
    pivot,
    seconds,
)
from .contenders import FAMILIES, Contender, contenders, known_projections, make_rows
from .rows import STYLES, known_names
from .timing import interleave, roofline

__all__ = ["FeatureCost", "Options"]

# These multiply by a matrix that they keep, exactly as "dense" does.
_TIMED_AS_DENSE = ("orthogonal", "qmc")
# The bound of the matrix product is not theirs.
_WITHOUT_PRODUCT = ("structured", "PolynomialCountSketch")
_WARM_UP_ROWS = 256
_SWEEP_ROWS = 1000
_AXES = ("d", "n_components")
# The first call shows compilation, or the loading of compiled code.
_FIRST_ROWS, _FIRST_COMPONENTS = 16, 64


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern bench features`` takes."""

    d: int = option(784, "Input columns.", quick=70)
    n_components: int = option(10240, "Features.", quick=66)
    n: int = option(6000, "Rows.", quick=80)
    repeats: int = option(5, "Rounds of the timing.", quick=1)
    degree: float = option(2.0, "Of the optical and the polynomial kernel.")
    projections: tuple[str, ...] | None = option(
        None, "Comma-separated projections; default: all there are."
    )
    families: tuple[str, ...] = option(FAMILIES, "Of gaussian, optical, polynomial.")
    memory: bool = option(
        True, "Measure peak memory, each method in its own process.", quick=False
    )
    cold: bool = option(True, "Measure first calls without cached code.", quick=False)
    sweep: bool = option(False, "Also time against d and against D.", quick=True)
    sweep_d: tuple[int, ...] = option(
        (64, 256, 1024, 4096, 16384), "Values of d of the sweep.", quick=(8, 64)
    )
    sweep_n_components: tuple[int, ...] = option(
        (1024, 4096, 16384, 65536), "Values of D of the sweep.", quick=(16, 64)
    )
    memory_limit: str | None = option(
        None,
        'What one contender may use, such as "8GB"; more is skipped. Default: half of '
        "the free memory.",
    )


class FeatureCost(Experiment):
    """Feature maps in turn, and their growth with d and with D."""

    name = "features"
    title = "Nanoseconds per feature: every projection, scikit-learn and NumPy."
    command = "bench"
    Options = Options

    def prepare(self) -> None:
        """Measure what no feature map on this machine can beat."""
        options = self.options
        self.projections = known_projections(options.projections)
        self.families = known_names("family", options.families, FAMILIES)
        self.limit = _limit(options.memory_limit)
        self.say("bounds of the machine")
        self.bounds = roofline(options.n, options.d, options.n_components)

    def cases(self) -> Iterator[Case]:
        """Return kernels, whose contenders take turns, and points of the sweep."""
        options = self.options
        for family in self.families:
            yield {"family": family}
        if options.sweep:
            rows = min(_SWEEP_ROWS, options.n)
            for axis, values in zip(
                _AXES, (options.sweep_d, options.sweep_n_components), strict=True
            ):
                for value in sorted(set(values)):
                    fixed = {"d": options.d, "n_components": options.n_components}
                    yield {"axis": axis} | fixed | {axis: value, "n": rows}

    def measure(self, case: Case) -> Iterator[dict[str, Any]]:
        """Time the contenders of a kernel, or of a point of the sweep."""
        options = self.options
        if "axis" in case:
            names = self.projections
            if options.projections is None:
                names = [name for name in names if name not in _TIMED_AS_DENSE]
            members = [
                each
                for each in contenders("gaussian", names)
                if each.label != "RBFSampler float64" and each.method != "Nystroem"
            ]
            sizes = case["n"], case["d"], case["n_components"]
            for _, record in self._timed(sizes, members):
                kept = ("method", "seconds", "ns_per_feature")
                if "reason" in record:
                    kept = ("family", "method", "reason")
                yield {key: record[key] for key in kept}
            return
        members = contenders(case["family"], self.projections, options.degree)
        sizes = options.n, options.d, options.n_components
        for contender, record in self._timed(sizes, members, in_place=True):
            if "reason" not in record:
                record["bound_ns"] = self._bound(contender)
                record |= self._in_processes(contender, sizes)
            yield record

    def _timed(
        self,
        sizes: tuple[int, int, int],
        members: Sequence[Contender],
        in_place: bool = False,
    ) -> list[tuple[Contender, dict[str, Any]]]:
        """Fit every member that can run, then time their transforms in turn."""
        n, d, size = sizes
        rows = {"float32": make_rows(n, d, "float32", self.options.seed)}
        rows["float64"] = rows["float32"].astype("float64")
        out = np.zeros((n, size if in_place else 0), dtype=np.float32)
        calls: dict[Any, Any] = {}
        found: list[tuple[Contender, dict[str, Any]]] = []
        for contender in members:
            X, label = rows[contender.dtype], contender.label
            record: dict[str, Any] = {"family": contender.family, "method": label}
            found.append((contender, record))
            reason = contender.why_not(n, size) or self._beyond(contender, sizes)
            if reason is None:
                self.say(f"{contender.family}, {label}: fitting")
                try:
                    feature_map, measured = _fitted(
                        contender, d, size, X, self.options.seed
                    )
                except ValueError as error:  # a law or a width that it cannot draw
                    reason = str(error)
            if reason is not None:
                record["reason"] = reason
                continue
            record |= {"library": contender.package, "dtype": contender.dtype}
            record |= measured
            calls[label] = partial(feature_map.transform, X)
            if in_place and contender.package == "randkern":
                plan = feature_map.plan_
                calls[label, "in place"] = partial(evaluate, plan, X, out=out)
        times = interleave(calls, self.options.repeats)
        per_feature = 1e9 / (n * size)
        for contender, record in found:
            if "reason" not in record:
                own, in_use = (
                    times[contender.label],
                    times.get((contender.label, "in place")),
                )
                record["seconds"] = median(own)
                record["repeats_seconds"] = own
                record["ns_per_feature"] = median(own) * per_feature
                record["ns_per_feature_in_place"] = (
                    None if in_use is None else median(in_use) * per_feature
                )
        _add_speedups([record for _, record in found if "reason" not in record])
        return found

    def _beyond(self, contender: Contender, sizes: tuple[int, int, int]) -> str | None:
        """Say why a contender cannot run within the memory limit."""
        n, d, size = sizes
        itemsize = np.dtype(contender.dtype).itemsize
        matrix = contender.matrix_bytes(d, size)
        arrays = (n * d + n * size) * itemsize
        arrays += n * size * contender.working_bytes()
        if matrix + arrays <= self.limit:
            return None
        return (
            f"its matrix takes {format_bytes(matrix)}, input and output "
            f"{format_bytes(arrays)}: more than the limit of {format_bytes(self.limit)}"
        )

    def _bound(self, contender: Contender) -> float | None:
        """Return the nanoseconds per feature that this method cannot go below.

        The rates were measured in float32: there is none for the float64 peer.
        """
        bounds = self.bounds
        if contender.dtype != "float32":
            return None
        if contender.method in _WITHOUT_PRODUCT:
            return bounds["write_new_ns"]
        products = 2.0 if contender.family == "optical" else 1.0
        if contender.package == "randkern" and contender.family == "gaussian":
            products = 0.5  # one frequency gives a cosine and a sine
        return max(bounds["write_new_ns"], products * bounds["product_ns"])

    def _in_processes(
        self, contender: Contender, sizes: tuple[int, int, int]
    ) -> dict[str, Any]:
        """Return what only a process of its own can measure."""
        request: dict[str, Any] = {"contender": contender.to_dict(), "sizes": sizes}
        request |= {"seed": self.options.seed, "first_only": False}
        found: dict[str, Any] = {
            "peak_memory_bytes": None,
            "first_call_seconds": None,
            "cold_call_seconds": None,
        }
        what = f"{contender.family}, {contender.label}"
        if self.options.memory:
            self.say(f"{what}: peak memory")
            told = in_fresh_process(fresh_call, request)
            found |= {key: told[key] for key in found if key in told}
        if self.options.cold and contender.package == "randkern":
            self.say(f"{what}: cold first call")
            told = in_fresh_process(
                fresh_call, request | {"first_only": True}, cold=True
            )
            found["cold_call_seconds"] = told["first_call_seconds"]
        return found

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the bounds, and the sweep apart from the comparison."""
        parts = {}
        for key in ("records", "skipped"):
            swept = [each for each in results[key] if "axis" in each]
            parts[key] = [each for each in results[key] if "axis" not in each], swept
        if not parts["records"][0]:
            reason = parts["skipped"][0][0]["reason"]
            raise ValueError(f"nothing could be run: {reason}")
        named = {"projections": self.projections, "memory_limit": self.limit}
        found = {
            "arguments": results["arguments"] | named,
            "roofline": self.bounds,
            "records": parts["records"][0],
            "skipped": parts["skipped"][0],
        }
        if self.options.sweep:
            records, fixed = parts["records"][1], results["arguments"]
            keys = ("d", "n_components", "repeats")
            sizes = {
                "dimensions": fixed["sweep_d"],
                "sizes": fixed["sweep_n_components"],
            }
            found["sweep"] = {
                "arguments": {key: fixed[key] for key in keys}
                | sizes
                | {"n": min(_SWEEP_ROWS, fixed["n"]), "projections": self.projections},
                "records": records,
                "exponents": exponents(records),
                "skipped": parts["skipped"][1],
            }
        return found

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the bounds, and who was skipped."""
        bounds = results["roofline"]
        yield (
            f"bounds: writing {bounds['write_ns']:.3f} ns per element, "
            f"{bounds['write_new_ns']:.3f} into new memory; float32 product "
            f"{bounds['product_gflops']:.0f} GFLOP/s"
        )
        for note in [*results["skipped"], *results.get("sweep", {}).get("skipped", ())]:
            where = [f"{note['family']}, {note['method']}"]
            where += [f"{key} = {note[key]:,}" for key in _AXES if key in note]
            yield f"skipped {', '.join(where)}: {note['reason']}"

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return a table for each kernel, every projection in it, and the sweep."""
        sizes = results["arguments"]
        columns = {
            "method": lambda r: r["method"],
            "ns/feature": lambda r: number(r["ns_per_feature"]),
            "in place": lambda r: number(r["ns_per_feature_in_place"]),
            "bound": lambda r: number(r["bound_ns"]),
            "× float32": lambda r: number(r["speedup_over_float32"]),
            "× float64": lambda r: number(r["speedup_over_float64"]),
            "peak": lambda r: megabytes(r["peak_memory_bytes"]),
            "output": lambda r: megabytes(r["output_bytes"]),
            "first call": lambda r: seconds(r["first_call_seconds"]),
            "cold": lambda r: seconds(r["cold_call_seconds"]),
        }
        tables = [
            listing(
                f"{family}: d = {sizes['d']:,}, D = {sizes['n_components']:,}, "
                f"{sizes['n']:,} rows",
                of(results["records"], family=family),
                columns,
                "in place: into an array in use; ×: how many times faster than the "
                "first peer of that type; peak: above the input, with the output",
            )
            for family in dict.fromkeys(r["family"] for r in results["records"])
        ]
        for axis in _AXES if "sweep" in results else ():
            slopes = results["sweep"]["exponents"][axis]
            told = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
            table = pivot(
                f"ns/feature against {axis}",
                of(results["sweep"]["records"], axis=axis),
                *("method", axis, lambda g: number(g.ns_per_feature.mean())),
            )
            tables.append(
                replace(table, caption=Fitted(f"exponents of seconds: {told}"))
            )
        return tables

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return bars of nanoseconds per feature, and the sweep."""
        sizes = results["arguments"]
        families = dict.fromkeys(r["family"] for r in results["records"])
        panels = [
            Panel(
                title=f"{family} kernel",
                xlabel="nanoseconds per feature (row × output column)",
                ylabel=" ",
                extra=partial(_bars, family=family),
            )
            for family in families
        ]
        title = (
            f"d = {sizes['d']:,}, D = {sizes['n_components']:,}, {sizes['n']:,} rows, "
            f"{results['machine']['cpu_count']} cores"
        )
        figures = {
            "features.png": draw(
                results, panels, columns=1, size=(7.2, 3.0), title=title
            )
        }
        if "sweep" in results:
            figures["sweep.png"] = _sweep_figure(results["sweep"])
        return figures


def exponents(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the log-log slope of seconds for each axis and method.

    Examples
    --------
    >>> from randkern_lab.benchmarks.features import exponents
    >>> exponents([{"axis": "d", "d": d, "method": "dense", "seconds": 3e-6 * d**1.5}
    ...            for d in (10, 100, 1000)])
    {'d': {'dense': 1.5}, 'n_components': {}}
    """
    slopes: dict[str, dict[str, float]] = {axis: {} for axis in _AXES}
    for axis, own in slopes.items():
        for method in dict.fromkeys(r["method"] for r in of(records, axis=axis)):
            points = of(records, axis=axis, method=method)
            slope = fitted_power(
                [r[axis] for r in points], [r["seconds"] for r in points]
            )
            if slope is not None:
                own[method] = slope
    return slopes


def fresh_call(request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the first call in this process, and the memory that the whole adds."""
    contender = Contender(**request["contender"])
    (n, d, size), seed = request["sizes"], request["seed"]
    few = make_rows(_FIRST_ROWS, d, contender.dtype, seed)
    first = min(size, _FIRST_COMPONENTS)
    if contender.why_not(_FIRST_ROWS, first):
        first = _FIRST_ROWS
    # Building imports what is needed; compiled code is loaded by the first use.
    feature_map = contender.build(d, first, seed)
    start = time.perf_counter()
    feature_map.fit(few).transform(few)
    found: dict[str, Any] = {"first_call_seconds": time.perf_counter() - start}
    if request["first_only"]:
        return found
    X = make_rows(n, d, contender.dtype, seed)
    del few, feature_map
    gc.collect()
    with Measurement() as measured:
        Z = contender.build(d, size, seed).fit(X).transform(X)
    added = measured.peak_bytes - measured.before_bytes
    return found | {"peak_memory_bytes": added, "output_bytes": int(Z.nbytes)}


def _fitted(
    contender: Contender, d: int, size: int, X: Any, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Return a fitted and warmed-up map, how long that took, and its output's bytes.

    A projection may draw its matrix when it is first used, so that the warm-up
    counts as fitting.
    """
    feature_map = contender.build(d, size, seed)
    start = time.perf_counter()
    Z = feature_map.fit(X).transform(X[:_WARM_UP_ROWS])
    seconds = time.perf_counter() - start
    output = len(X) * size * Z.dtype.itemsize
    return feature_map, {"fit_seconds": seconds, "output_bytes": output}


def _add_speedups(records: Sequence[dict[str, Any]]) -> None:
    """Add how many times faster than the kernel's first peers each record is."""
    peers: dict[str, float] = {}
    for record in records:
        if record["library"] != "randkern" and "Nystroem" not in record["method"]:
            peers.setdefault(record["dtype"], record["seconds"])
    for record in records:
        for dtype in ("float32", "float64"):
            peer = peers.get(dtype)
            ratio = None if peer is None else peer / record["seconds"]
            record[f"speedup_over_{dtype}"] = ratio


def _limit(memory_limit: str | None) -> int:
    """Return the limit in bytes: what was given, or half of what is free."""
    if memory_limit is None:
        free = available_memory()
        return resolve_memory_limit(None) if free is None else free // 2
    return resolve_memory_limit(memory_limit)


def _bars(axes: Any, results: Mapping[str, Any], family: str) -> None:
    """Draw one kernel's bars from top to bottom, each with its bound."""
    records = of(results["records"], family=family)
    for place, record in enumerate(records):
        own, in_use = record["library"] == "randkern", record["ns_per_feature_in_place"]
        axes.barh(
            place,
            record["ns_per_feature"],
            height=0.66,
            color="#0072B2" if own else "#C8C8C8",
            edgecolor="0.25",
            linewidth=0.6,
            label="randkern (× faster than the float32 peer)" if own else "peer",
        )
        text = f"{record['ns_per_feature']:.3g}"
        if own and record["speedup_over_float32"]:
            text += f"  ({record['speedup_over_float32']:.2g}×)"
        marks = (record["ns_per_feature"], in_use, record["bound_ns"])
        right = max(mark or 0.0 for mark in marks)
        offset = {"xytext": (7, 0), "textcoords": "offset points"}
        axes.annotate(text, (right, place), va="center", fontsize=8, **offset)
        if in_use:
            white = {"color": "white", "markeredgecolor": "black", "linestyle": ""}
            label = "the same into an array in use"
            axes.plot(in_use, place, marker="D", ms=5.0, label=label, **white)
        if record["bound_ns"]:
            ends = [place - 0.42, place + 0.42]
            bound = [record["bound_ns"]] * 2
            axes.plot(bound, ends, color="#D55E00", lw=2.2, label="measured bound")
    axes.set_yticks(range(len(records)), [record["method"] for record in records])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.2)


def _sweep_figure(sweep: Mapping[str, Any]) -> Any:
    """Return seconds against d and against D, with guides of their growth."""
    fixed = sweep["arguments"]
    others = {
        "d": f"D = {fixed['n_components']:,}",
        "n_components": f"d = {fixed['d']:,}",
    }
    methods = dict.fromkeys(record["method"] for record in sweep["records"])
    panels = [
        Panel(
            *(axis, "seconds", "method"),
            {name: STYLES.get(name, Style(name)) for name in methods},
            {"axis": axis},
            title=others[axis],
            xlabel="input columns d" if axis == "d" else "",
            ylabel="microseconds per row",
            scale=1e6 / fixed["n"],
            extra=partial(_guides, axis=axis),
        )
        for axis in _AXES
    ]
    return draw(sweep, panels, legend="right")


def _guides(axes: Any, sweep: Mapping[str, Any], axis: str) -> None:
    """Draw linear growth, and d log d / d, which is that of D/d fast transforms."""
    own = of(sweep["records"], axis=axis)
    values = np.array(sorted({record[axis] for record in own}), dtype=float)
    first = [record["seconds"] for record in own if record[axis] == values[0]]
    low, high = (1e6 / sweep["arguments"]["n"] * edge(first) for edge in (min, max))
    axes.plot(
        values,
        1.6 * high * values / values[0],
        color="0.55",
        lw=1.0,
        ls="--",
        label="linear",
    )
    if axis == "d":
        growth = np.log2(values) / math.log2(values[0])
        axes.plot(
            values,
            low * growth / 2.2,
            color="0.55",
            lw=1.0,
            ls=":",
            label="d log d / d",
        )
