"""Accuracy of ridge against time, compared to other libraries.

``KernelRidgeClassifier`` is compared to scikit-learn's
``RidgeClassifier(solver="cholesky")`` on ``RBFSampler`` and ``Nystroem`` (the optical
kernel: two dense products in NumPy; the polynomial kernel: ``PolynomialCountSketch``),
and to Falkon, if installed. All use the same float32 rows, kernel, penalty and
intercept (Falkon has none). Each fit runs in its own
process, so that its peak memory is its own, and fits 64 rows before it is timed;
contenders take turns, seed after seed.

scikit-learn factorises exactly, while conjugate gradients stop early: by default our
own factorisation (``cholesky``) therefore runs, too. A peer is skipped if memory does
not suffice.

With ``--scaling``, the cost of conjugate gradients is measured against D and against n,
on streamed rows: float32 normals with descending variances, 64 columns and one target
(:func:`.rows.write_rows`), written once to a temporary folder, set by the environment
variable ``TMPDIR``, and read block by block in every pass. The kernel is Gaussian with
lengthscale √d. Fits against D (10,000 rows) use the models' memory limit, those against
n (2,048 features) 200 MB: features are cached as long as they fit, so memory grows with
n up to that limit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern._memory import resolve_memory_limit

from ..contenders import Contender, known_names, nonempty_records
from ..options import option
from ..process import in_fresh_process
from ..runner import Case, Recorder, grid
from ..tables import (
    aggregated,
    fitted_power,
    listing,
    of,
    percent,
    sentences,
    text,
)
from .classifiers import SavedRows, cost_figure, fit_classifier, rows_in_files
from .feature_maps import FAMILIES, PEERS
from .ridge_models import (
    FalkonClassifier,
    RidgeOnFeatures,
    SGDOnFeatures,
    own_ridge,
    peer_bytes,
    ridge_record,
)
from .rows import PREFIX, RowFile, RowOptions, Rows, warm_trial, write_rows

_pcg = partial(own_ridge, solver="pcg")
_cholesky = partial(own_ridge, solver="cholesky")
_landmarks = partial(_cholesky, features="nystrom")
_LONG, _DOTS = (0, (8, 3)), (0, (5, 1, 1, 1, 1, 1))
METHODS: Mapping[str, Contender] = {
    name: Contender(
        label or f"{name} + RidgeClassifier",
        colour,
        marker,
        dashes,
        make=make,
        needs=tuple(needs),
        landmarks=name in ("landmarks", "Nystroem", "falkon"),
        memory=peer_bytes if make is RidgeOnFeatures else None,
    )
    for name, label, colour, marker, dashes, make, *needs in (
        ("pcg", "randkern, pcg", "blue", "s", "-", _pcg),
        ("cholesky", "randkern, cholesky", "green", "^", "--", _cholesky),
        ("sgd", "features + SGDClassifier", "black", "o", "-.", SGDOnFeatures),
        ("auto", "randkern, auto", "pink", "D", ":", own_ridge),
        ("landmarks", "randkern, landmarks", "sky", "h", "-", _landmarks),
        ("RBFSampler", "", "red", "v", _DOTS, RidgeOnFeatures),
        ("two products", "", "red", "v", _DOTS, RidgeOnFeatures),
        ("PolynomialCountSketch", "", "red", "v", _DOTS, RidgeOnFeatures),
        ("Nystroem", "", "orange", "P", _LONG, RidgeOnFeatures),
        ("falkon", "Falkon", "black", "X", _LONG, FalkonClassifier, "falkon"),
    )
}


class _Streamed(randkern.KernelRidgeRegressor):
    """Ridge regression that reads its rows block by block."""

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(randkern.RowBlocks.from_arrays(X, y))


_STREAMED = partial(own_ridge, model=_Streamed, solver="pcg")
PCG = Contender("randkern, pcg", make=_STREAMED)


# The sizes that vary, and the fixed ones.
FULL: Mapping[str, Any] = {
    "n_components": [1000, 3000, 10_000, 30_000, 100_000],
    "n": [1000, 10_000, 100_000, 1_000_000],
    **{"fixed_n": 10_000, "fixed_n_components": 2048, "d": 64},
    "memory_limit": "200MB",
}
QUICK: Mapping[str, Any] = {
    **{"n_components": [16, 32], "n": [60, 120], "fixed_n": 50},
    **{"fixed_n_components": 16, "d": 4, "memory_limit": "200MB"},
}
TEST_ROWS = 2000
# What varies, and what does not.
_AXES = {
    "n_components": ("features D", "n = {n:,}"),
    "n": ("training rows n", "D = {n_components:,}"),
}
_COSTS = {
    "train_seconds": "fit",
    "seconds_per_iteration": "an iteration",
    "peak_memory_bytes": "peak",
}


def _scaled(results: Mapping[str, Any]) -> list[Any]:
    result: list[Any] = results.get("scaling", {}).get("records", [])
    return result


_TITLE = (
    "{kernel}, alpha = {arguments[alpha]:g}: {dataset[name]}, {dataset[n_train]:,} "
    "rows, {dataset[n_test]:,} test rows"
)


def described(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the summary by number of features, with the kernel and the accuracy."""
    named = results["arguments"]
    parameter = "degree {degree:g}" if named["degree"] else "ℓ = {lengthscale:.4g}"
    kernel = text(f"{{kernel}}, {parameter}", named)
    for entry in sorted(results["summary"], key=lambda entry: entry["n_components"]):
        accuracy = percent(entry["test_accuracy"], entry["test_error_std"])
        yield {**entry, "kernel": kernel, "accuracy": accuracy}


def unexplained(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Return the unexplained share of the variance of targets."""
    return float(np.mean((y - predicted) ** 2) / np.var(y))


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor in this process to rows that are read block by block."""
    n, d, first = request["n"], request["d"], request["test_from"]
    X, y = (Path(request["folder"]) / f"{name}.float32" for name in "Xy")
    last = first + TEST_ROWS
    X_test, y_test = RowFile(X, (last, d))[first:], RowFile(y, (last,))[first:]
    rows = Rows(RowFile(X, (n, d)), RowFile(y, (n,)), X_test, y_test)
    return ridge_record(*warm_trial(PCG, request, rows, unexplained))


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench ridge``."""

    lengthscale: str = option("5", "Of the Gaussian kernel: a number, scale or median.")
    kernel: str = option("gaussian", "", among=FAMILIES)
    degree: float = option(2.0, "Of the optical or the polynomial kernel.")
    alpha: float = option(1e-3, "The ridge penalty.")
    n_components: tuple[int, ...] = option(
        (1000, 3000, 10240), "Numbers of features.", quick=(50,)
    )
    methods: tuple[str, ...] | None = option(
        None,
        "Of pcg, cholesky, sgd, auto, and for the Gaussian kernel landmarks, "
        "RBFSampler, Nystroem, falkon; default: all but sgd and auto.",
    )
    repeats: int = option(1, "Seeds; medians are shown.")
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "3GB".')
    comparison: bool = option(True, "Measure all of the above.")
    scaling: bool = option(False, "Also measure cost against D and n.", quick=True)


SKIPPED_BY = ("family", "method", "n_components")


def fit(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process."""
    return fit_classifier(request, METHODS, ridge_record)


def run(options: Options, recorder: Recorder) -> dict[str, Any]:
    """Fit ridge classifiers, each in a process of its own; measure how cost grows."""
    if not (options.comparison or options.scaling):
        raise ValueError("--no-comparison leaves nothing to do without --scaling")
    methods, limit = methods_of(options), options.memory_limit
    gaussian, described, lengthscale = options.kernel == "gaussian", None, None
    records: list[Case] = []
    if options.comparison:
        with rows_in_files(options, METHODS, fit) as rows:
            records = recorder.measure(
                grid(
                    family=[options.kernel],
                    seed=range(options.seed, options.seed + options.repeats),
                    n_components=options.n_components,
                    method=methods,
                ),
                partial(compared, rows),
            )
        nonempty_records(recorder)
        described, lengthscale = rows.described, rows.lengthscale
    # Once, whatever the seeds.
    once = {(s["method"], s["n_components"]): s for s in reversed(recorder.skipped)}
    skipped = [
        {key: value for key, value in note.items() if key != "seed"}
        | {"method": METHODS[note["method"]].label}
        for note in reversed(once.values())
    ]
    scaling = {"scaling": scaled(options, recorder)} if options.scaling else {}
    return {
        "dataset": described,
        "arguments": {
            "lengthscale": lengthscale if gaussian else None,
            "degree": None if gaussian else options.degree,
            "methods": methods,
            "memory_limit": None if limit is None else resolve_memory_limit(limit),
        },
        "records": records,
        "skipped": skipped,
        "summary": summarise(records),
        **scaling,
    }


def methods_of(options: Options) -> list[str]:
    """Return the methods to run: of a kernel its peers, the reference of ratios first.

    Landmarks and Falkon are compared with the Gaussian kernel.
    """
    suiting = [*PEERS[options.kernel], "pcg", "cholesky"]
    if options.kernel == "gaussian":
        suiting += ["landmarks", "falkon"]
    suiting = [method for method in METHODS if method in suiting]
    chosen = suiting if options.methods is None else options.methods
    names = known_names("method", chosen, [*suiting, "sgd", "auto"])
    peers = [name for name in PEERS[options.kernel] if name in names]
    return [*peers, *(name for name in METHODS if name in {*names} - {*peers})]


def compared(rows: SavedRows, case: Case) -> dict[str, Any]:
    """Fit a classifier in its own process; name its library."""
    result, method = rows.measure(case), case["method"]
    library = PEERS[case["family"]].get(method, "randkern")
    return {
        "library": "".join(METHODS[method].needs) or library,
        "test_accuracy": 1.0 - result["test_error"],
        **result,
    }


def scaled(options: Options, recorder: Recorder) -> dict[str, Any]:
    """Measure the cost of conjugate gradients against D and n, on streamed rows."""
    sizes, before = QUICK if options.quick else FULL, len(recorder.skipped)
    first = max(*sizes["n"], sizes["fixed_n"])  # of the test rows
    limits = {"n_components": options.memory_limit, "n": sizes["memory_limit"]}
    d, n, size = sizes["d"], sizes["fixed_n"], sizes["fixed_n_components"]
    recorder.say(f"writing {first + TEST_ROWS:,} rows")
    with TemporaryDirectory(prefix=PREFIX) as folder:
        write_rows(folder, first + TEST_ROWS, d, options.seed)

        def measure(case: Case) -> dict[str, Any]:
            request = {
                **{**case, "d": d, "lengthscale": math.sqrt(d), "alpha": options.alpha},
                **{"seed": options.seed, "folder": folder, "test_from": first},
                "memory_limit": limits[case["axis"]],
            }
            result = in_fresh_process(fit_stream, request)
            item = result["train_seconds"] / max(result["iterations"], 1)
            return {"d": d, "seconds_per_iteration": item, **result}

        records = recorder.measure(
            [
                *grid(axis=["n_components"], n_components=sizes["n_components"], n=[n]),
                *grid(axis=["n"], n_components=[size], n=sizes["n"]),
            ],
            measure,
        )
    pcg = {"family": "gaussian", "method": METHODS["pcg"].label}
    return {
        "arguments": {**sizes, "alpha": options.alpha, "seed": options.seed},
        "records": records,
        "exponents": exponents(records),
        "skipped": [pcg | note for note in recorder.skipped[before:]],
    }


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    yield from listing(
        results,
        described(results),
        _TITLE,
        "D | method | features | fit | train | × faster | predict | accuracy | "
        "peak | iter. | residual | outcome",
        "{n_components:,} | {method} | {features_seconds:seconds} | "
        "{fit_seconds:seconds} | {train_seconds:seconds} | "
        "{speedup_over_peer:number} | {predict_seconds:seconds} | {accuracy} | "
        "{peak_memory_bytes:megabytes} | {iterations:number} | {residual:.0e} | "
        "{outcome:words}",
        "peers: features, then RidgeClassifier; medians over seeds; train is "
        "features and fit; peak is of the whole process, with imports and data",
    )
    for axis, (name, fixed) in _AXES.items():
        yield from listing(
            results,
            of(_scaled(results), axis=axis),
            f"pcg on streamed rows, d = {{d:,}}, {fixed}",
            f"{name} | fit | iterations | an iteration | peak | anonymous | "
            "test error | outcome",
            f"{{{axis}:,}} | {{train_seconds:seconds}} | {{iterations:number}} | "
            "{seconds_per_iteration:seconds} | {peak_memory_bytes:megabytes} | "
            "{peak_anonymous_bytes:megabytes} | {test_error:percent} | "
            "{outcome:words}",
            (
                "exponents (all points, last two): "
                + ", ".join(
                    f"{cost} {{scaling[exponents][{axis}][{key}][all]:.2f}}, "
                    f"{{scaling[exponents][{axis}][{key}][last]:.2f}}"
                    for key, cost in _COSTS.items()
                )
            ),
        )


def figure(results: Mapping[str, Any]) -> Any:
    """Return error against seconds."""
    shown = list(described(results))
    title = text(_TITLE, {**results, **(shown[0] if shown else {})})
    return cost_figure(shown, METHODS, title, (7.6, 5.2))


def notes(results: Mapping[str, Any]) -> Iterator[str]:
    """Return the fits that stopped early, the skipped cases, and exponents."""
    for entry in results["summary"]:
        if entry["method"] in ("pcg", "auto") and entry["outcome"] != "converged":
            beside = of(results["summary"], n_components=entry["n_components"])
            methods = {item["method"] for item in beside}
            message = "{label}, D = {n_components:,}: {outcome:words} "
            message += "at a residual of {residual:.1e}"
            if any(METHODS[m].memory for m in methods):
                message += "; the peers' systems are solved exactly, as is ours by "
                message += "cholesky"
                message += ", which was skipped" * ("cholesky" not in methods)
            yield text(message, entry)
    if "scaling" in results:
        message = "skipped {method}, D = {n_components:,}, n = {n:,}: {reason}"
        yield from sentences(results["scaling"]["skipped"], message)


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per method and number of features.

    It has medians of times and ``iterations``, mean errors with ``test_error_std``
    (None for one seed), the largest ``residual`` and ``peak_memory_bytes``, distinct
    outcomes, and, relative to the family's peer at the same D, ``speedup_over_peer``
    (the peer's ``train_seconds`` over its own) and ``memory_of_peer`` (its own peak
    over the peer's), None without that peer.
    """
    keys = ("family", "method", "label", "library", "n_components")
    timed = ("features", "fit", "train", "predict", "total", "process")
    summary = aggregated(
        records,
        keys,
        median=[*(f"{item}_seconds" for item in timed), "iterations"],
        mean=["test_accuracy", "test_error"],
        std=["test_error"],
        max=["residual", "peak_memory_bytes"],
    )
    for entry in summary:
        own = of(records, **{key: entry[key] for key in keys})
        entry["outcome"] = ", ".join(sorted({record["outcome"] for record in own}))
        first, size = next(iter(PEERS[entry["family"]])), entry["n_components"]
        for peer in of(summary, method=first, n_components=size) or [{}]:
            train, peak = peer.get("train_seconds"), peer.get("peak_memory_bytes")
            entry["speedup_over_peer"] = train and train / entry["train_seconds"]
            entry["memory_of_peer"] = peak and entry["peak_memory_bytes"] / peak
    return summary


def exponents(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how costs grow along each axis, as powers of the size.

    For each axis and cost, ``all`` is the least-squares slope of the logarithms, and
    ``last`` is the slope between the two largest points, where constant costs matter
    least. None with fewer than two points; 1 is linear.
    """
    slopes: dict[str, dict[str, Any]] = {}
    for axis in _AXES:
        own = sorted(of(records, axis=axis), key=lambda record: record[axis])
        slopes[axis] = {
            cost: {
                name: fitted_power([r[axis] for r in subset], [r[cost] for r in subset])
                for name, subset in (("all", own), ("last", own[-2:]))
            }
            for cost in _COSTS
        }
    return slopes
