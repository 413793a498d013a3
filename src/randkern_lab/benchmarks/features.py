"""Nanoseconds per feature: every projection, beside peers and the machine's bounds.

Rows are standard normal. The Gaussian kernel has lengthscale √d; its peers are
scikit-learn's ``RBFSampler`` on float64 rows (what it does by default) and on float32
rows (it then keeps float32 throughout). The peer of the optical kernel is two dense
float32 products in NumPy, squared and added in place. Contenders of a family take turns
in one process, each after a call of its own that is not timed; peak memory and first
calls are measured in a process of their own. Bounds of the machine are measured in the
same run (:func:`.timing.roofline`).

With ``--sweep`` also Gaussian features of 1,000 rows against d at fixed D, and against
D at fixed d, of the projections that do not multiply by a matrix that they keep, as
dense does.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.plan import evaluate
from randkern.study.measure import Measurement

from ..options import CommonOptions, option
from ..panels import BLACK, BLUE, GREEN, PINK, RED, SKY, Panel, Style, draw
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, Experiment
from ..tables import (
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
from .rows import known_names
from .timing import interleave, roofline

__all__ = ["FeatureCost", "Options", "first_call", "peak_memory"]

# These multiply by a matrix that they keep, exactly as "dense" does.
_TIMED_AS_DENSE = ("orthogonal", "qmc")
# Fast transforms: the bound of the matrix product is not theirs.
_WITHOUT_PRODUCT = ("structured",)
_WARM_UP_ROWS = 256
# A first call is made on a few rows and features: it is compilation, or the loading of
# compiled code, that it shows.
_FIRST_ROWS, _FIRST_COMPONENTS = 16, 64
_IN_PLACE = ", in place"
_SWEEP_ROWS, _SWEEP_REPEATS = 1000, 3
_STYLES = {
    "dense": Style("dense", BLACK),
    "streamed": Style("streamed", SKY, "X", (0, (3, 1))),
    "orthogonal": Style("orthogonal", GREEN, "^", "-."),
    "structured": Style("structured", BLUE, "s", "--"),
    "qmc": Style("qmc", PINK, "D", ":"),
    "RBFSampler float32": Style("RBFSampler float32", RED, "v", "--"),
}


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern bench features`` takes."""

    d: int = option(784, "Input columns.", quick=64)
    n_components: int = option(10240, "Features.", quick=256)
    n: int = option(6000, "Rows.", quick=200)
    repeats: int = option(5, "Rounds of the timing.", quick=2)
    degree: float = option(2.0, "Of the optical kernel.")
    projections: tuple[str, ...] | None = option(
        None, "Projections; default: all there are.", quick=("dense", "structured")
    )
    families: tuple[str, ...] = option(FAMILIES, "Of gaussian, optical.")
    memory: bool = option(
        True, "Measure peak memory, each method in its own process.", quick=False
    )
    cold: bool = option(True, "Measure first calls without cached code.", quick=False)
    sweep: bool = option(False, "Also time against d and against D.")
    sweep_d: tuple[int, ...] = option(
        (64, 256, 1024, 4096, 16384), "Values of d of the sweep."
    )
    sweep_n_components: tuple[int, ...] = option(
        (1024, 4096, 16384, 65536), "Values of D of the sweep."
    )
    memory_limit: str | None = option(
        None,
        'What one contender may use, such as "8GB"; more is skipped. Default: half of '
        "the free memory.",
    )


class FeatureCost(Experiment):
    """A family at a time, its contenders in turn, and the points of the sweep."""

    name = "features"
    title = "Nanoseconds per feature: every projection, scikit-learn and NumPy."
    command = "bench"
    Options = Options

    def prepare(self) -> None:
        """Check the names, and measure the bounds of the machine."""
        options = self.options
        self.names = known_projections(options.projections)
        self.families = known_names("family", options.families, FAMILIES)
        self.limit = _limit(options.memory_limit)
        self.say("bounds of the machine")
        self.bounds = roofline(options.n, options.d, options.n_components)

    def cases(self) -> Iterator[Case]:
        """Return families, and the points of the sweep."""
        options = self.options
        for family in self.families:
            yield {"family": family}
        if options.sweep:
            for d in sorted(set(options.sweep_d)):
                size = options.n_components
                yield {"family": "gaussian", "axis": "d", "d": d, "n_components": size}
            for size in sorted(set(options.sweep_n_components)):
                point = {"d": options.d, "n_components": size}
                yield {"family": "gaussian", "axis": "n_components", **point}

    def measure(self, case: Case) -> Iterator[dict[str, Any]]:
        """Time all contenders of a family, and yield their records."""
        options = self.options
        if "axis" in case:
            names = self.names
            if options.projections is None:
                names = [name for name in names if name not in _TIMED_AS_DENSE]
            members = [c for c in contenders("gaussian", names) if c.dtype == "float32"]
            problem = Problem(
                *(_SWEEP_ROWS, case["d"], case["n_components"]),
                *(options.seed, self.limit),
            )
            repeats = min(options.repeats, _SWEEP_REPEATS)
            kept = ("method", "seconds", "ns_per_feature", "reason")
            for found in timed(problem, members, repeats, in_place=False):
                yield {"n": _SWEEP_ROWS, **{k: found[k] for k in kept if k in found}}
            return
        members = contenders(case["family"], self.names, options.degree)
        problem = Problem(
            *(options.n, options.d, options.n_components),
            *(options.seed, self.limit),
        )
        by_label = {member.label: member for member in members}
        for found in timed(problem, members, options.repeats, in_place=True):
            if "reason" not in found:
                contender = by_label[found["method"]]
                found["bound_ns"] = _bound(contender, self.bounds)
                found |= self._in_processes(contender, problem)
            yield found

    def _in_processes(self, contender: Contender, problem: "Problem") -> dict[str, Any]:
        """Return what only a process of its own can measure."""
        sizes = {"n": problem.n, "d": problem.d, "n_components": problem.n_components}
        request = {"contender": asdict(contender), **sizes, "seed": problem.seed}
        itemsize = np.dtype(contender.dtype).itemsize
        record: dict[str, Any] = {
            "output_bytes": problem.n * problem.n_components * itemsize,
            "peak_memory_bytes": None,
            "first_call_seconds": None,
            "cold_call_seconds": None,
        }
        if self.options.memory:
            found = in_fresh_process(peak_memory, request)
            record["peak_memory_bytes"] = found["added_bytes"]
            record["first_call_seconds"] = found["first_call_seconds"]
        # The peers compile nothing.
        if self.options.cold and contender.package == "randkern":
            found = in_fresh_process(first_call, request, cold=True)
            record["cold_call_seconds"] = found["first_call_seconds"]
        return record

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the bounds, and the sweep apart."""
        split: dict[bool, dict[str, Any]] = {
            swept: {
                kind: [r for r in results[kind] if ("axis" in r) == swept]
                for kind in ("records", "skipped")
            }
            for swept in (False, True)
        }
        if not split[False]["records"]:
            reason = split[False]["skipped"][0]["reason"]
            raise ValueError(f"nothing could be run: {reason}")
        found = {"roofline": self.bounds, **split[False]}
        if self.options.sweep:
            records = split[True]["records"]
            fixed = {
                "d": self.options.d,
                "n_components": self.options.n_components,
                "n": _SWEEP_ROWS,
            }
            exponents = {
                axis: _exponents(records, axis) for axis in ("d", "n_components")
            }
            found["sweep"] = {
                "arguments": fixed,
                **split[True],
                "exponents": exponents,
            }
        return found

    # -- results ----------------------------------------------------------------------

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the machine's bounds, and what was skipped."""
        bounds = results["roofline"]
        yield (
            f"bounds: writing {bounds['write_ns']:.3f} ns an element, "
            f"{bounds['write_new_ns']:.3f} into new memory; float32 product "
            f"{bounds['product_gflops']:.0f} GFLOP/s"
        )
        for note in [*results["skipped"], *results.get("sweep", {}).get("skipped", ())]:
            where = [f"{note['family']}, {note['method']}"]
            where += [f"{k} = {note[k]:,}" for k in ("d", "n_components") if k in note]
            yield f"skipped {', '.join(where)}: {note['reason']}"

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return time, ratios to the peers and memory by family, and the sweep.

        "in place" writes into an array in use; "×" says how many times faster a method
        is than the peer of that type; "peak" is above the input, with the output.
        """
        sizes = results["arguments"]
        title = (
            f"d = {sizes['d']:,}, D = {sizes['n_components']:,}, {sizes['n']:,} rows"
        )
        found = [
            listing(
                f"{family}: {title}", of(results["records"], family=family), _COLUMNS
            )
            for family in dict.fromkeys(r["family"] for r in results["records"])
        ]
        sweep = results.get("sweep", {"records": [], "arguments": {}})
        for axis, fixed in (("d", "n_components"), ("n_components", "d")):
            own = of(sweep["records"], axis=axis)
            if own:
                short = {"d": "d", "n_components": "D"}
                what = f"{short[fixed]} = {sweep['arguments'][fixed]:,}"
                table = pivot(
                    f"ns per feature against {short[axis]}, {what}, "
                    f"{sweep['arguments']['n']:,} rows",
                    *(own, "method", axis),
                    lambda g: number(g.ns_per_feature.iloc[0]),
                )
                powers = sweep["exponents"][axis]
                rows = [(*row, number(powers.get(row[0]), 2)) for row in table.rows]
                found.append(TextTable(table.title, (*table.columns, "exponent"), rows))
        return found

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return bars of nanoseconds with their bounds, and the sweep."""
        sizes = results["arguments"]
        families = list(dict.fromkeys(r["family"] for r in results["records"]))
        panels = [
            Panel(
                title=f"{family} kernel",
                xlabel="nanoseconds per feature (row × output column)",
                ylabel=" ",
                extra=lambda axes, found, family=family: _bars(axes, found, family),
            )
            for family in families
        ]
        title = (
            f"d = {sizes['d']:,}, D = {sizes['n_components']:,}, {sizes['n']:,} rows, "
            f"{results['machine']['cpu_count']} cores"
        )
        size = (7.2, 1.2 + 0.36 * len(results["records"]) / len(families))
        figures = {
            "features.png": draw(results, panels, columns=1, size=size, title=title)
        }
        if results.get("sweep", {}).get("records"):
            figures["sweep.png"] = _sweep_figure(results["sweep"])
        return figures


@dataclass(frozen=True)
class Problem:
    """The sizes that a family's contenders share."""

    n: int
    d: int
    n_components: int
    seed: int
    memory_limit: int

    def why_not(self, contender: Contender) -> str | None:
        """Say why a contender cannot run within the memory limit."""
        size = np.dtype(contender.dtype).itemsize
        matrix = contender.matrix_bytes(self.d, self.n_components)
        # One array beside the output: NumPy's second product.
        outputs = 2 if contender.package == "numpy" else 1
        arrays = (self.n * self.d + outputs * self.n * self.n_components) * size
        if matrix + arrays <= self.memory_limit:
            return None
        return (
            f"its matrix takes {format_bytes(matrix)}, input and output "
            f"{format_bytes(arrays)}: more than the limit of "
            f"{format_bytes(self.memory_limit)}"
        )


def timed(
    problem: Problem, members: Sequence[Contender], repeats: int, *, in_place: bool
) -> list[dict[str, Any]]:
    """Fit every member that can run, then time their transforms in turn."""
    single = make_rows(problem.n, problem.d, "float32", problem.seed)
    rows: dict[str, Any] = {"float32": single}
    out = np.zeros((problem.n, problem.n_components if in_place else 0), np.float32)
    calls: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for contender in members:
        label, ours = contender.label, contender.package == "randkern"
        reason = problem.why_not(contender)
        if reason is None:
            if contender.dtype not in rows:
                rows[contender.dtype] = single.astype(contender.dtype)
            X = rows[contender.dtype]
            try:
                feature_map, took = _fitted(contender, problem, X)
            except ValueError as error:  # a law or a width that it cannot draw
                reason = str(error)
        if reason is not None:
            skipped.append({"method": label, "reason": reason})
            continue
        calls[label] = partial(feature_map.transform, X)
        if in_place and ours:
            calls[label + _IN_PLACE] = partial(evaluate, feature_map.plan_, X, out=out)
        named = {"library": contender.package, "dtype": contender.dtype}
        records.append({"method": label, **named, "fit_seconds": took})
    nanoseconds = 1e9 / (problem.n * problem.n_components)
    laps = interleave(calls, repeats)
    for record in records:
        times, in_use = laps[record["method"]], laps.get(record["method"] + _IN_PLACE)
        record["seconds"] = median(times)
        record["repeats_seconds"] = times
        record["ns_per_feature"] = median(times) * nanoseconds
        record["ns_per_feature_in_place"] = in_use and median(in_use) * nanoseconds
    peers = {r["dtype"]: r["seconds"] for r in records if r["library"] != "randkern"}
    for record in records:
        for dtype in ("float32", "float64"):
            peer = peers.get(dtype)
            record[f"speedup_over_{dtype}"] = peer and peer / record["seconds"]
    return [*records, *skipped]


def _fitted(contender: Contender, problem: Problem, X: Any) -> tuple[Any, float]:
    """Return a fitted and warmed-up map, and how long that took.

    A projection may draw its matrix when it is first used, so that the warm-up counts
    as fitting.
    """
    feature_map = contender.build(problem.d, problem.n_components, problem.seed)
    gc.collect()
    watch = Stopwatch()
    feature_map.fit(X).transform(X[:_WARM_UP_ROWS])
    return feature_map, watch.lap().seconds


def _bound(contender: Contender, bounds: Mapping[str, float]) -> float | None:
    """Return the nanoseconds per feature that this method cannot go below.

    The rates were measured in float32: there is none for the float64 peer.
    """
    if contender.dtype != "float32":
        return None
    if contender.method in _WITHOUT_PRODUCT:
        return bounds["write_new_ns"]
    products = 2.0 if contender.family == "optical" else 1.0
    if contender.package == "randkern" and contender.family == "gaussian":
        products = 0.5  # one frequency gives a cosine and a sine
    return max(bounds["write_new_ns"], products * bounds["product_ns"])


def first_call(request: Mapping[str, Any]) -> dict[str, Any]:
    """Time the first fit and transform in this process, of a few rows and features."""
    contender, d = Contender(**request["contender"]), request["d"]
    few = make_rows(_FIRST_ROWS, d, contender.dtype, request["seed"])
    size = min(request["n_components"], _FIRST_COMPONENTS)
    # Building imports what is needed; compiled code is loaded by the first use.
    feature_map = contender.build(d, size, request["seed"])
    watch = Stopwatch()
    feature_map.fit(few).transform(few)
    return {"first_call_seconds": watch.lap().seconds}


def peak_memory(request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure what fit and transform add to the memory of this process at their peak.

    The output is included and the input not.
    """
    found = first_call(request)
    contender, seed = Contender(**request["contender"]), request["seed"]
    X = make_rows(request["n"], request["d"], contender.dtype, seed)
    gc.collect()
    with Measurement() as measured:
        contender.build(request["d"], request["n_components"], seed).fit(X).transform(X)
    # The process's own peak could not be read: this block has reset the counter.
    added = measured.peak_bytes - measured.before_bytes
    return {**found, "added_bytes": added, "peak_memory_bytes": measured.peak_bytes}


def _exponents(records: Sequence[Mapping[str, Any]], axis: str) -> dict[str, float]:
    """Return the fitted power of what varies of each method's seconds."""
    found = {}
    for method in dict.fromkeys(r["method"] for r in records):
        own = of(records, axis=axis, method=method)
        power = fitted_power([r[axis] for r in own], [r["seconds"] for r in own])
        if power is not None:
            found[method] = power
    return found


def _limit(memory_limit: str | None) -> int:
    """Return the limit in bytes: what was given, or half of what is free."""
    free = available_memory()
    if memory_limit is None and free is not None:
        return free // 2
    return resolve_memory_limit(memory_limit)


_COLUMNS = {
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


def _bars(axes: Any, results: Mapping[str, Any], family: str) -> None:
    """Draw one family's bars from top to bottom, each with its bound."""
    records = of(results["records"], family=family)
    places = range(len(records))
    own = [r["library"] == "randkern" for r in records]
    axes.barh(
        places,
        [r["ns_per_feature"] for r in records],
        height=0.66,
        color=[BLUE if mine else "#C8C8C8" for mine in own],
    )
    for place, r in zip(places, records, strict=True):
        ratio = r["speedup_over_float32"] if r["library"] == "randkern" else None
        text = f" {r['ns_per_feature']:.3g}" + (f"  ({ratio:.2g}×)" if ratio else "")
        axes.annotate(text, (r["ns_per_feature"], place), va="center", fontsize=8)
        marks = {"bound_ns": ("|", RED), "ns_per_feature_in_place": ("D", BLACK)}
        for key, (marker, colour) in marks.items():
            if r[key]:
                axes.plot(
                    r[key], place, marker, color=colour, ms=8 if marker == "|" else 4
                )
    labels = {
        "randkern (× faster than the float32 peer)": ("s", BLUE),
        "peer": ("s", "#C8C8C8"),
        "the same into an array in use": ("D", BLACK),
        "measured bound": ("|", RED),
    }
    for label, (marker, colour) in labels.items():
        axes.plot([], [], marker, color=colour, label=label)
    axes.set_yticks(places, [r["method"] for r in records])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.25)


def _sweep_figure(sweep: Mapping[str, Any]) -> Any:
    """Return time per row against d and against D."""
    records = [{**r, "us": 1e6 * r["seconds"] / r["n"]} for r in sweep["records"]]
    fixed = sweep["arguments"]
    panels = [
        Panel(
            *("d", "us", "method", _STYLES, {"axis": "d"}),
            *(f"D = {fixed['n_components']:,}", "input columns d"),
            "microseconds per row",
        ),
        Panel(
            *("n_components", "us", "method", _STYLES, {"axis": "n_components"}),
            *(f"d = {fixed['d']:,}", "features D", "microseconds per row"),
        ),
    ]
    return draw({"records": records}, panels)
