"""Ridge classification beside scikit-learn's: accuracy against seconds.

randkern's `KernelRidgeClassifier` by its solvers, beside random features of
scikit-learn followed by ``RidgeClassifier(solver="cholesky")``: ``RBFSampler`` and
``Nystroem`` for the Gaussian kernel, two dense float32 products in NumPy for the
optical one, ``PolynomialCountSketch`` for the polynomial one; and Falkon where it is
installed. The same float32 rows, kernel, penalty and intercept; a process for each fit,
which fits 64 rows before it is timed; contenders take turns, seed after seed.

``pcg`` stops when labels of held-out rows no longer improve; ``cholesky`` solves the
same system exactly, as ``RidgeClassifier`` does: both are run unless ``--solvers`` says
otherwise.

With ``--scaling`` also conjugate gradients on generated rows that are streamed from
disk, against D and against n (:mod:`.row_file`), with a memory limit that makes them
stream.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import randkern
from randkern._memory import available_memory, format_bytes, resolve_memory_limit

from ..options import option
from ..panels import (
    BLUE,
    DASHED,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    Panel,
    Style,
    draw,
    new_figure,
    scatter_costs,
)
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, Experiment, SkippedCase
from ..tables import (
    TextTable,
    count,
    fitted_power,
    listing,
    megabytes,
    number,
    of,
    percent,
    seconds,
    skip_notes,
)
from .contenders import TwoProducts, falkon_classifier
from .row_file import RowFile, row_files
from .rows import RowOptions, known_names, load_rows, parse_lengthscale, saved_rows

__all__ = ["METHODS", "Options", "Ridge", "exponents", "summarise"]

METHODS: Mapping[str, Style] = {
    "pcg": Style("randkern, pcg", BLUE, "s"),
    "cholesky": Style("randkern, cholesky", GREEN, "^", "--"),
    "auto": Style("randkern, auto", PINK, "D", ":"),
    "RBFSampler": Style("RBFSampler + RidgeClassifier", RED, "v", DASHED),
    "two products": Style("two products + RidgeClassifier", RED, "v", DASHED),
    "PolynomialCountSketch": Style(
        "PolynomialCountSketch + RidgeClassifier", RED, "v", DASHED
    ),
    "Nystroem": Style("Nystroem + RidgeClassifier", ORANGE, "P", (0, (8, 3))),
    "Falkon": Style("Falkon", SKY, "X", ":"),
}
SOLVERS = ("pcg", "cholesky", "auto")
# The first of a family is the peer that ratios refer to.
PEERS = {
    "gaussian": ("RBFSampler", "Nystroem", "Falkon"),
    "optical": ("two products",),
    "polynomial": ("PolynomialCountSketch",),
}
_COSTS = ("train_seconds", "seconds_per_iteration", "peak_memory_bytes")
_AXES = {"n_components": "D", "n": "n"}
_WARM_UP_ROWS, _TEST_ROWS = 64, 2000


@dataclass(frozen=True)
class Options(RowOptions):
    """What ``randkern bench ridge`` takes."""

    kernel: str = option("gaussian", "gaussian, optical or polynomial.")
    lengthscale: str = option("5", "Of the Gaussian kernel: a number, scale or median.")
    degree: float = option(2.0, "Of the optical or polynomial kernel.")
    alpha: float = option(1e-3, "The ridge penalty.")
    intercept: bool = option(True, "Fit an intercept, in both libraries.")
    n_components: tuple[int, ...] = option(
        (1000, 3000, 10240), "Numbers of features.", quick=(50, 100)
    )
    solvers: tuple[str, ...] = option(
        ("pcg", "cholesky"), "Of randkern: pcg, cholesky, auto."
    )
    peers: bool = option(True, "Beside the features of scikit-learn, or NumPy's.")
    nystroem: bool = option(False, "Also Nystroem and RidgeClassifier.")
    falkon: bool = option(False, "Also Falkon, which must be installed.")
    repeats: int = option(1, "Seeds; medians are shown.")
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "3GB".')
    no_peer_above: int | None = option(
        None, "Largest D of the peers; those that do not fit in memory are skipped."
    )
    no_cholesky_above: int | None = option(None, "Largest D of the solver cholesky.")
    comparison: bool = option(True, "Measure all of the above.")
    scaling: bool = option(False, "Also measure cost against D and n.")
    scaling_n_components: tuple[int, ...] = option(
        (1000, 3000, 10_000, 30_000, 100_000), "Values of D of the scaling."
    )
    scaling_n: tuple[int, ...] = option(
        (1000, 10_000, 100_000, 1_000_000), "Values of n of the scaling."
    )
    scaling_fixed_n: int = option(10_000, "Rows while D varies.")
    scaling_fixed_n_components: int = option(2048, "Features while n varies.")
    scaling_d: int = option(64, "Columns of the scaling.")
    scaling_memory_limit: str = option("200MB", "Memory limit while n varies.")


class Ridge(Experiment):
    """A process for each fit, on rows in files."""

    name = "ridge"
    title = "Accuracy of ridge against seconds, beside scikit-learn."
    command = "bench"
    Options = Options

    def prepare(self) -> dict[str, Any] | None:
        """Write rows to files for the processes, and settle the lengthscale."""
        options = self.options
        if not (options.comparison or options.scaling):
            raise ValueError("--no-comparison leaves nothing to do without --scaling")
        known_names("kernel", (options.kernel,), PEERS)
        self.solvers = known_names("solver", options.solvers, SOLVERS)
        limit = options.memory_limit
        self.limit = None if limit is None else resolve_memory_limit(limit)
        self.common = {
            "family": options.kernel,
            "alpha": options.alpha,
            "degree": options.degree,
            "intercept": options.intercept,
            "memory_limit": self.limit,
        }
        self.lengthscale: float | None = None
        if options.scaling:
            self.most = max(*options.scaling_n, options.scaling_fixed_n)
            self.say(f"writing {self.most:,} rows")
            self.files = self.resources.enter_context(
                row_files(self.most + _TEST_ROWS, options.scaling_d, options.seed)
            )
        if not options.comparison:
            return None
        rows = load_rows(options)
        self.shape = rows.X_train.shape
        if options.kernel == "gaussian":
            kernel = randkern.Gaussian(parse_lengthscale(options.lengthscale))
            resolved = kernel.resolve(rows.X_train, random_state=0)
            self.lengthscale = float(resolved.lengthscale)
        self.folder = self.resources.enter_context(rows.saved())
        return rows.description

    def cases(self) -> Iterator[Case]:
        """Return contenders by D, seed after seed, then the points of the scaling."""
        options = self.options
        first, *others = PEERS[options.kernel]
        methods = [first] if options.peers else []
        wanted = {"Nystroem": options.nystroem, "Falkon": options.falkon}
        methods += [other for other in others if wanted[other]]
        seeds = range(options.seed, options.seed + options.repeats)
        for seed in seeds if options.comparison else ():
            for size in sorted(set(options.n_components)):
                for method in [*methods, *self.solvers]:
                    named = {"family": options.kernel, "method": method}
                    yield named | {"n_components": size, "seed": seed}
        if options.scaling:
            fixed = options.scaling_fixed_n_components
            for size in sorted(set(options.scaling_n_components)):
                yield _point("n_components", size, options.scaling_fixed_n)
            for n in sorted(set(options.scaling_n)):
                yield _point("n", fixed, n)

    def measure(self, case: Case) -> dict[str, Any]:
        """Ask a process of its own."""
        if "axis" in case:
            return self._measure_stream(case)
        self._check(case)
        method = case["method"]
        request = {**self.common, **case, "lengthscale": self.lengthscale}
        try:
            found = in_fresh_process(fit_arrays, request | {"folder": self.folder})
        except ValueError as error:  # too little memory, or a size that it cannot do
            raise SkippedCase(str(error)) from error
        library = "randkern" if method in SOLVERS else _library(method)
        named = {"label": METHODS[method].label, "library": library}
        return {**named, "test_accuracy": 1.0 - found["test_error"], **found}

    def _check(self, case: Case) -> None:
        """Raise where a contender was not asked for, or has too little memory."""
        options, method, D = self.options, case["method"], case["n_components"]
        largest = options.no_peer_above
        if method in SOLVERS:
            largest = options.no_cholesky_above if method == "cholesky" else None
        if largest is not None and D > largest:
            raise SkippedCase(f"it was asked for up to {largest:,} features only")
        n, d = self.shape
        if method in SOLVERS:
            return  # the models know their memory limit
        if method in ("Nystroem", "Falkon") and D > n:
            raise SkippedCase(f"it has at most one component a training row: {n:,}")
        needed, free = peer_bytes(n, d, D), available_memory()
        if free is not None and needed > free and method != "Falkon":
            raise SkippedCase(
                "its features, their copies and the Gram matrix take about "
                f"{format_bytes(needed)}; {format_bytes(free)} are free"
            )

    def _measure_stream(self, case: Case) -> dict[str, Any]:
        options = self.options
        limit = options.scaling_memory_limit if case["axis"] == "n" else self.limit
        X, y = self.files
        request = {
            **{"X": X, "y": y, "n": case["n"], "test_from": self.most},
            **{"method": "pcg", "family": "gaussian", "alpha": options.alpha},
            "d": options.scaling_d,
            "lengthscale": math.sqrt(options.scaling_d),
            "n_components": case["n_components"],
            "memory_limit": limit and resolve_memory_limit(limit),
            **{"intercept": True, "degree": 2.0, "seed": options.seed},
        }
        try:
            found = in_fresh_process(fit_stream, request)
        except ValueError as error:
            raise SkippedCase(str(error)) from error
        each = found["train_seconds"] / max(found["iterations"], 1)
        return {"d": options.scaling_d, "seconds_per_iteration": each, **found}

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return a summary by method and D, and the scaling apart."""
        found: dict[str, Any] = {"summary": []}
        for kind in ("records", "skipped"):
            found[kind] = [r for r in results[kind] if "axis" not in r]
        if self.options.comparison:
            if not found["records"]:
                reason = (found["skipped"] or [{"reason": "no contender"}])[0]["reason"]
                raise ValueError(f"nothing could be run: {reason}")
            found["summary"] = summarise(found["records"])
        if self.options.scaling:
            scaling: dict[str, Any] = {
                kind: [r for r in results[kind] if "axis" in r]
                for kind in ("records", "skipped")
            }
            scaling["exponents"] = exponents(scaling["records"])
            found["scaling"] = scaling
        named = {"lengthscale": self.lengthscale}
        return found | {"arguments": results["arguments"] | named}

    # -- results ----------------------------------------------------------------------

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return what stops early, and what was skipped."""
        found = []
        if any(r["method"] in ("pcg", "auto") for r in results["records"]):
            found.append(
                "pcg stops when labels of held-out rows no longer improve; cholesky "
                "solves exactly, as RidgeClassifier does"
            )
        scaling = results.get("scaling", {"skipped": []})
        return [
            *found,
            *skip_notes(results, "family", "method", "n_components"),
            *skip_notes(scaling, "method", "n", "n_components"),
        ]

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return contenders by number of features, and costs against D and n."""
        found = []
        if results["records"]:
            summary = sorted(results["summary"], key=lambda e: e["n_components"])
            caption = (
                "peers: features, then RidgeClassifier; medians over seeds; train is "
                "features and fit; × faster: the first peer's over its own; peak is of "
                "the whole process, with imports and data"
            )
            found.append(listing(_title(results), summary, _COLUMNS, caption))
        scaling = results.get("scaling", {"records": []})
        for axis, heading in _AXES.items():
            own = of(scaling["records"], axis=axis)
            if own:
                found.append(_scaling_table(own, axis, heading, scaling["exponents"]))
        return found

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return error against seconds, and the scaling."""
        figures = {}
        if results["records"]:
            figure = new_figure(7.6, 5.2)
            least = 0.5 / results["dataset"]["n_test"]
            scatter_costs(figure.subplots(), results["summary"], METHODS, least)
            figure.axes[0].set_title(f"{_title(results)}; labels: D", fontsize=9)
            figures["ridge.png"] = figure
        scaling = results.get("scaling", {"records": []})
        if scaling["records"]:
            figures["scaling.png"] = _scaling_figure(scaling)
        return figures


def _library(method: str) -> str:
    return {"two products": "numpy", "Falkon": "falkon"}.get(method, "scikit-learn")


def _point(axis: str, size: int, n: int) -> Case:
    named = {"axis": axis, "family": "gaussian", "method": "randkern, pcg"}
    return {**named, "n_components": size, "n": n}


def peer_bytes(n: int, d: int, D: int) -> int:
    """Estimate the peak memory of a peer in float32, data and imports left out.

    ``RidgeClassifier`` holds the features, their centred copy and one more, and three
    matrices of the smaller system; ``RBFSampler`` draws in float64 first.
    """
    return 12 * n * D + 12 * min(n, D) ** 2 + 12 * d * D


# -- processes ----------------------------------------------------------------------


def fit_arrays(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process, after 64 rows that warm it up."""
    X, y, X_test, y_test = saved_rows(request["folder"])
    few = slice(0, min(_WARM_UP_ROWS, len(X)))
    watch = Stopwatch()
    _classify(_small(request, len(X[few])), X[few], y[few], X_test[few])
    warm_up = watch.lap().seconds
    laps, predicted, classifier = _classify(request, X, y, X_test)
    return {
        **laps,
        "warm_up_seconds": warm_up,
        "test_error": float(np.mean(predicted != y_test)),
        **_solve_record(classifier),
    }


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor to rows that are read block by block, in this process."""
    d, n, end = request["d"], request["n"], request["test_from"] + _TEST_ROWS
    held_out = slice(request["test_from"], end)
    X_test = RowFile(request["X"], (end, d))[held_out]
    y_test = RowFile(request["y"], (end,))[held_out]
    X, y = RowFile(request["X"], (n, d)), RowFile(request["y"], (n,))
    few = slice(0, min(_WARM_UP_ROWS, n))
    watch = Stopwatch()
    warm = randkern.RowBlocks.from_arrays(X[few], y[few])
    small = _model(_small(request, few.stop), randkern.KernelRidgeRegressor)
    small.fit(warm).predict(X_test[few])
    warm_up = watch.lap().seconds
    model = _model(request, randkern.KernelRidgeRegressor)
    model.fit(randkern.RowBlocks.from_arrays(X, y))
    fit = watch.lap().seconds
    residual = y_test - model.predict(X_test)
    predict = watch.lap().seconds
    return {
        **_laps(0.0, fit, predict),
        "features_seconds": None,
        "warm_up_seconds": warm_up,
        "test_error": float(np.mean(residual**2) / np.var(y_test)),
        **_solve_record(model),
    }


def _small(request: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return the same with few features and no limit of memory."""
    size = min(request["n_components"], n)
    return {**request, "n_components": size, "memory_limit": None}


def _classify(
    request: Mapping[str, Any], X: Any, y: Any, X_test: Any
) -> tuple[dict[str, Any], Any, Any]:
    """Return seconds, predicted classes of the test rows, and the fitted classifier."""
    features, classifier = _feature_map(request), _classifier(request, len(X))
    watch = Stopwatch()
    Z = X if features is None else features.fit(X).transform(X)
    transform = watch.lap().seconds
    classifier.fit(Z, y)
    fit = watch.lap().seconds
    del Z
    Z_test = X_test if features is None else features.transform(X_test)
    predicted = classifier.predict(Z_test)
    laps = _laps(transform, fit, watch.lap().seconds)
    if features is None:
        laps["features_seconds"] = None
    return laps, predicted, classifier


def _laps(transform: float, fit: float, predict: float) -> dict[str, float | None]:
    return {
        "features_seconds": transform,
        "fit_seconds": fit,
        "train_seconds": transform + fit,
        "predict_seconds": predict,
        "total_seconds": transform + fit + predict,
    }


def _feature_map(request: Mapping[str, Any]) -> Any:
    """Return the unfitted feature map of a peer; None for models on inputs."""
    from sklearn import kernel_approximation as peers

    method, seed = request["method"], request["seed"]
    named = {"n_components": request["n_components"], "random_state": seed}
    if method in ("RBFSampler", "Nystroem"):
        return getattr(peers, method)(
            gamma=1 / (2 * request["lengthscale"] ** 2), **named
        )
    if method == "PolynomialCountSketch":
        return peers.PolynomialCountSketch(degree=int(request["degree"]), **named)
    if method == "two products":
        return TwoProducts(request["n_components"], request["degree"], seed)
    return None


def _classifier(request: Mapping[str, Any], n: int) -> Any:
    """Return the unfitted classifier: on inputs, or on the peer's features."""
    if request["method"] in SOLVERS:
        return _model(request, randkern.KernelRidgeClassifier)
    if request["method"] == "Falkon":
        size, ell = request["n_components"], request["lengthscale"]
        return falkon_classifier(ell, request["alpha"] / n, size, request["seed"])
    from sklearn.linear_model import RidgeClassifier

    return RidgeClassifier(
        request["alpha"], fit_intercept=request["intercept"], solver="cholesky"
    )


def _model(request: Mapping[str, Any], model: Any) -> Any:
    degree = request["degree"]
    kernels = {
        "gaussian": lambda: randkern.Gaussian(request["lengthscale"]),
        "optical": lambda: randkern.Optical(degree),
        "polynomial": lambda: randkern.Polynomial(int(degree)),
    }
    return model(
        kernels[request["family"]](),
        request["alpha"],
        request["n_components"],
        solver=request["method"],
        fit_intercept=request["intercept"],
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
    )


def _solve_record(model: Any) -> dict[str, Any]:
    """Return how the linear solve went."""
    solution = getattr(model, "solution_", None)
    if solution is None:  # scikit-learn's tells which solver it took
        outcome = str(getattr(model, "solver_", "conjugate gradients"))
        return {"iterations": None, "residual": None, "outcome": outcome}
    return {
        "iterations": int(solution.iterations),
        "residual": float(solution.residual),
        "outcome": solution.outcome.name.lower(),
    }


# -- what records come to -------------------------------------------------------------


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per method and number of features.

    Parameters
    ----------
    records : sequence of mapping

    Returns
    -------
    summary : list of dict
        ``family``, ``method``, ``label``, ``library``, ``n_components``, ``n_seeds``;
        medians of the seconds of a record and of ``iterations``; the means
        ``test_accuracy`` and ``test_error``, ``test_error_std`` (null for one seed);
        the largest ``residual`` and ``peak_memory_bytes``; ``outcome`` (distinct
        ones, separated by commas); beside the family's first peer at the same D
        ``speedup_over_peer`` (its median ``train_seconds`` over its own) and
        ``memory_of_peer`` (its own peak over the peer's), null without that peer.
    """
    import pandas as pd

    keys = ["family", "method", "label", "library", "n_components"]
    groups = pd.DataFrame(records).groupby(keys, sort=False)
    times = [f"{k}_seconds" for k in ("features", "fit", "train", "predict")]
    times += ["total_seconds", "process_seconds", "iterations"]
    table = groups[times].agg("median")
    for name in ("test_accuracy", "test_error"):
        table[name] = groups[name].mean()
    table["test_error_std"] = groups["test_error"].std()
    for name in ("residual", "peak_memory_bytes"):
        table[name] = groups[name].max()
    table["outcome"] = groups["outcome"].agg(lambda o: ", ".join(sorted(set(o))))
    table["n_seeds"] = groups.size()
    entries: list[dict[str, Any]] = [
        {str(k): None if v is None or v != v else v for k, v in row.items()}
        for row in table.reset_index().to_dict("records")
    ]
    for entry in entries:
        first = PEERS[entry["family"]][0]
        beside = of(entries, method=first, n_components=entry["n_components"])
        peer = beside[0] if beside else None
        entry["speedup_over_peer"] = peer and (
            peer["train_seconds"] / entry["train_seconds"]
        )
        entry["memory_of_peer"] = peer and (
            entry["peak_memory_bytes"] / peer["peak_memory_bytes"]
        )
    return entries


def exponents(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how costs grow along each axis, as powers of what varies.

    For each axis and cost ``all``, fitted to all points, and ``last``, to the two
    largest, where what does not grow weighs least; null with fewer than two points.
    """
    slopes: dict[str, Any] = {}
    for axis in _AXES:
        own = sorted(of(records, axis=axis), key=lambda r: r[axis])
        x = [r[axis] for r in own]
        slopes[axis] = {}
        for cost in _COSTS:
            y = [r[cost] for r in own]
            last = fitted_power(x[-2:], y[-2:])
            slopes[axis][cost] = {"all": fitted_power(x, y), "last": last}
    return slopes


_COLUMNS = {
    "method": lambda e: e["method"],
    "D": lambda e: count(e["n_components"]),
    "features": lambda e: seconds(e["features_seconds"]),
    "fit": lambda e: seconds(e["fit_seconds"]),
    "train": lambda e: seconds(e["train_seconds"]),
    "× faster": lambda e: number(e["speedup_over_peer"]),
    "predict": lambda e: seconds(e["predict_seconds"]),
    "accuracy": lambda e: percent(e["test_accuracy"], e["test_error_std"]),
    "peak": lambda e: megabytes(e["peak_memory_bytes"]),
    "iter.": lambda e: number(e["iterations"]),
    "outcome": lambda e: e["outcome"].replace("_", " "),
}


def _title(results: Mapping[str, Any]) -> str:
    arguments, data = results["arguments"], results["dataset"]
    kernel = f"{arguments['kernel']}, degree {arguments['degree'] or 2:g}"
    if arguments["kernel"] == "gaussian":
        kernel = f"gaussian, ℓ = {arguments['lengthscale']:.4g}"
    return (
        f"{kernel}, alpha = {arguments['alpha']:g}: {data['name']}, "
        f"{data['n_train']:,} rows, {data['n_test']:,} test rows"
    )


def _scaling_table(
    own: Sequence[Any], axis: str, heading: str, slopes: Mapping[str, Any]
) -> TextTable:
    fixed = {"n_components": f"n = {own[0]['n']:,}"}
    fixed["n"] = f"D = {own[0]['n_components']:,}"
    columns = {
        heading: lambda r: count(r[axis]),
        "fit": lambda r: seconds(r["train_seconds"]),
        "iterations": lambda r: number(r["iterations"]),
        "per iteration": lambda r: seconds(r["seconds_per_iteration"]),
        "peak": lambda r: megabytes(r["peak_memory_bytes"]),
        "anonymous": lambda r: megabytes(r["peak_anonymous_bytes"]),
        "test error": lambda r: percent(r["test_error"]),
        "outcome": lambda r: r["outcome"].replace("_", " "),
    }
    caption = "exponents (all points, last two): " + ", ".join(
        f"{name} {_powers(slopes[axis][cost])}"
        for name, cost in zip(("fit", "per iteration", "peak"), _COSTS, strict=True)
    )
    title = f"pcg on streamed rows, d = {own[0]['d']:,}, {fixed[axis]}"
    return listing(title, own, columns, caption)


def _powers(slopes: Mapping[str, float | None]) -> str:
    if slopes["all"] is None or slopes["last"] is None:
        return "-"
    return f"{slopes['all']:.2f}, {slopes['last']:.2f}"


def _scaling_figure(scaling: Mapping[str, Any]) -> Any:
    """Return seconds and peak memory against D and against n."""
    kinds = {
        ("train_seconds", 1.0): Style("fit", BLUE, "s"),
        ("seconds_per_iteration", 1.0): Style("fit, per iteration", SKY, "o", "--"),
        ("peak_memory_bytes", 1e-6): Style("peak memory, all resident", RED, "^"),
        ("peak_anonymous_bytes", 1e-6): Style("without file pages", ORANGE, "v", "--"),
    }
    records = [
        {"axis": r["axis"], axis: r[axis], "what": style.label, "y": unit * r[cost]}
        for r in scaling["records"]
        for axis in (r["axis"],)
        for (cost, unit), style in kinds.items()
        if r[cost] is not None
    ]
    labels = {"n_components": "features D", "n": "training rows n"}
    panels = []
    for chosen, unit in ((list(kinds)[:2], "seconds"), (list(kinds)[2:], "megabytes")):
        styles = {kinds[kind].label: kinds[kind] for kind in chosen}
        for axis, text in labels.items():
            where = {"axis": axis}
            panels.append(Panel(axis, "y", "what", styles, where, "", text, unit))
    title = "conjugate gradients on streamed rows"
    return draw({"records": records}, panels, columns=2, size=(4.5, 3.4), title=title)
