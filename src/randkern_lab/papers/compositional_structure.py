"""Ridge on features of skeletons: does structure help, and what does it cost?

Test errors on images for a linear, a shallow and a deep skeleton, beside Gaussian
features and, on a subset of the rows, the exact kernels; and the error against n with D
proportional to n, the regime in which learning with the features of Daniely, Frostig,
Gupta and Singer (2017, Theorem 5) is as good as with the kernel.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import LabelBinarizer

import randkern
from randkern._memory import resolve_memory_limit
from randkern._validation import check_count
from randkern.exceptions import MemoryLimitError
from randkern.models.normal_equations import NormalEquations
from randkern.models.ridge_path import DualPath, PrimalPath

from .circle_images import (
    CircleImages,
    available_images,
    build_skeleton,
    load_circle_images,
)
from .compositional_accuracy import fitted_power
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["CURVES", "Options", "figure", "run", "tables"]

CURVES = ("gaussian", "linear", "shallow", "deep")
EXACT = ("gaussian", "shallow", "deep")
_SIZES = (300, 1000, 3000, 10_000, 30_000, 50_000)
_QUICK_SIZES = (50, 200)
_QUICK_TRAIN, _QUICK_TEST, _QUICK_EXACT = 400, 200, 150
# Gaussian lengthscales, in units of the data's own, and penalties.
_LENGTHSCALES = (0.5, 1.0, 2.0)
_ALPHAS = np.logspace(-5, 2, 15)
# Rows of the search for a penalty, a fifth of them for validation: with more features
# than _PRIMAL by the Gram matrix of fewer rows, at a cost that D does not raise.
_SEARCH_ROWS, _DUAL_ROWS, _PRIMAL, _VALIDATION = 10_000, 3_000, 2_000, 0.2
_TIMED_ROWS = 2_000
_FRACTIONS = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce compositional-structure`` takes."""

    data: Annotated[
        str,
        "cifar10, mnist, digits, or several with commas; auto takes those of cifar10 "
        "and mnist that are in --data-dir.",
    ] = "auto"
    n: Annotated[int, "Training rows of each set."] = 10_000
    n_test: Annotated[int, "Test rows of each set."] = 10_000
    max_components: Annotated[
        int, "Largest number of features of 300, 1,000, ..., 50,000."
    ] = 10_000
    n_components: Annotated[
        tuple[int, ...] | None, "Numbers of features, in place of --max-components."
    ] = None
    exact_rows: Annotated[
        int, "Training rows of the exact kernels, at most; 0 leaves them out."
    ] = 2_000
    features_per_row: Annotated[
        float, "D/n where D grows with n; 0 leaves this part out."
    ] = 0.5
    memory_limit: Annotated[str | None, 'What a model may use, such as "4GB".'] = None


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Measure test errors and costs on every data set.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`; ``dataset`` has ``name`` and by name
        ``sets``. A record has ``measure`` (``"features"``: error against D;
        ``"subset"``: exact kernels and features on the same few rows; ``"growth"``:
        D proportional to n, beside exact kernels), ``data``, ``curve`` (of
        :data:`CURVES`), ``n_components`` (None: exact), ``n_train``, ``seed``,
        ``alpha``, ``test_error``, ``fit_seconds`` (features included),
        ``predict_seconds``, and of features ``draw_seconds`` and ``evaluate_seconds``
        (of ``evaluated_rows`` rows). ``lengthscales`` has those of the Gaussian kernel
        by data set; ``skipped`` has ``data``, ``curve``, ``n_components``, ``n_train``
        and ``reason``; ``order`` by data set the curves by error at the largest D;
        ``growth_slopes`` the fitted power of n by ``data``, ``curve`` and ``exact``;
        ``growth_gaps`` by ``data``, ``curve`` and ``n_train`` how much the error of the
        features exceeds that of the exact kernel (``difference``) and the
        ``standard_error`` of it if the two erred independently.

    Examples
    --------
    >>> from randkern_lab.papers.compositional_structure import Options, run
    >>> results = run(Options(quick=True, n_components=(50,), features_per_row=0))
    >>> results["records"][0]["curve"], sorted(results["order"])
    ('gaussian', ['digits'])
    """
    start = time.perf_counter()
    sizes = _sizes(options)
    resolve_memory_limit(options.memory_limit)  # complains before the work
    results = begin_results("compositional-structure", options)
    named: Sequence[str] = options.data.split(",")
    if options.data == "auto":
        named = available_images(options.data_dir)
    n_train, n_test = options.n, options.n_test
    if options.quick:
        n_train, n_test = min(n_train, _QUICK_TRAIN), min(n_test, _QUICK_TEST)
    sets = [
        load_circle_images(
            name,
            options.data_dir,
            n_train=n_train,
            n_test=n_test,
            seed=options.seed,
        )
        for name in named
    ]
    runs = [_Runs(images, options, sizes) for images in sets]
    total, done = sum(len(r.todo) for r in runs), 0
    for each in runs:
        each.prepare()
        for job in each.todo:
            if progress is not None:
                progress(done, total, f"{each.images.name}, {job.describe()}")
            each.fit(job)
            done += 1
    if progress is not None:
        progress(total, total, "done")
    records = [record for each in runs for record in each.records]
    results |= {
        "dataset": {
            "name": ", ".join(images.name for images in sets),
            "sets": {images.name: images.describe() for images in sets},
        },
        "records": records,
        "skipped": [note for each in runs for note in each.skipped],
        "lengthscales": {each.images.name: each.lengthscale for each in runs},
        "order": {each.images.name: _order(each.records) for each in runs},
        "growth_slopes": _growth_slopes(records),
        "growth_gaps": _growth_gaps(
            records, {images.name: len(images.y_test) for images in sets}
        ),
        "seconds": time.perf_counter() - start,
    }
    results["notes"] = list(_notes(results))
    return results


def _sizes(options: Options) -> list[int]:
    """Return the numbers of features, rising."""
    check_count("n", options.n)
    check_count("n_test", options.n_test)
    check_count("max_components", options.max_components)
    if options.exact_rows < 0 or not 0 <= options.features_per_row < np.inf:
        raise ValueError(
            "exact_rows and features_per_row must be finite and 0 or more, got "
            f"{options.exact_rows} and {options.features_per_row}; 0 leaves these "
            "parts out"
        )
    if options.n_components is not None:
        return sorted({check_count("n_components", d) for d in options.n_components})
    of = _QUICK_SIZES if options.quick else _SIZES
    sizes = [size for size in of if size <= options.max_components]
    return sizes or [options.max_components]


@dataclass(frozen=True)
class _Job:
    """One model to fit."""

    measure: str
    curve: str
    size: int | None
    n_train: int

    def describe(self) -> str:
        size = "exact" if self.size is None else f"{self.size:,} features"
        return f"{self.curve}: {size}, {self.n_train:,} rows"


class _Runs:
    """Fits and scores the models of one data set, and keeps the records."""

    def __init__(self, images: CircleImages, options: Options, sizes: list[int]):
        self.images = images
        self.options = options
        self.records: list[dict[str, Any]] = []
        self.skipped: list[dict[str, Any]] = []
        self.lengthscale = 1.0
        self.skeletons = {
            curve: build_skeleton(curve, images.shape)
            for curve in CURVES
            if curve != "gaussian"
        }
        n = len(images.X_train)
        self.todo = [
            _Job("features", curve, size, n) for curve in CURVES for size in sizes
        ]
        wanted = min(options.exact_rows, _QUICK_EXACT if options.quick else n, n)
        if wanted:
            self.todo += [
                _Job("subset", curve, size, wanted)
                for curve in EXACT
                for size in (max(sizes), None)
            ]
        if options.features_per_row:
            # With the kernel on the same rows, for the features to be compared with.
            self.todo += [
                _Job("growth", curve, size, n // part)
                for curve in ("shallow", "deep")
                for part in _FRACTIONS
                for size in (_grown(n // part, options), None)
                if n // part >= 30 and (size or n // part <= wanted)
            ]

    def kernel(self, curve: str) -> Any:
        if curve == "gaussian":
            return randkern.Gaussian(self.lengthscale)
        return randkern.Compositional(self.skeletons[curve])

    def prepare(self) -> None:
        """Choose the lengthscale, and compile what will be timed."""
        own = randkern.Gaussian("scale").resolve(self.images.X_train).lengthscale
        size, n = min(_PRIMAL, 1000), len(self.images.X_train)
        scores = {}
        for multiple in _LENGTHSCALES:
            self.lengthscale = float(own * multiple)
            scores[self.lengthscale] = self._search("gaussian", size, n)[1]
        self.lengthscale = min(scores, key=lambda value: scores[value])
        few = self.images.take(100, 2)
        for curve in CURVES:
            for solver in ("cholesky", "pcg"):
                model = self._model(curve, 20, 1.0).set_params(solver=solver)
                # Whoever exceeds the limit on a few rows will be skipped on all.
                with suppress(MemoryLimitError):
                    model.fit(few.X_train, few.y_train).predict(few.X_test)

    def _model(self, curve: str, size: int | None, alpha: float) -> Any:
        return randkern.KernelRidgeClassifier(
            self.kernel(curve),
            alpha=alpha,
            n_components=size,
            fit_intercept=True,
            memory_limit=self.options.memory_limit,
            random_state=self.options.seed,
        )

    def _search(self, curve: str, size: int | None, n: int) -> tuple[float, float]:
        """Return the best penalty, and its error, on rows held out of the first n.

        The largest of equal ones.
        """
        dual = size is None or size > _PRIMAL
        n = min(n, _DUAL_ROWS if dual else _SEARCH_ROWS)
        X, held = self.images.X_train[:n], int(n * _VALIDATION)
        Y = _signs(self.images.y_train[:n])
        if size is None:
            K = np.asarray(self.kernel(curve)(X[held:]))
            K_new = np.asarray(self.kernel(curve)(X[:held], X[held:]))
        else:
            Z = self._features(curve, size).fit_transform(X)
            K, K_new = Z[held:], Z[:held]
            if dual:
                K, K_new = Z[held:] @ Z[held:].T, Z[:held] @ Z[held:].T
        K = K.astype(np.float64, order="C")
        if dual:
            path: Any = DualPath.of(K, Y[held:], None, _ALPHAS, True)
        else:
            statistics = NormalEquations.of_features(K, Y[held:])
            path = PrimalPath.of(statistics, _ALPHAS, True)
        predicted = path.predict(K_new).argmax(axis=2)
        errors = np.mean(predicted != Y[:held].argmax(axis=1), axis=1)
        best = int(np.flatnonzero(errors == errors.min())[-1])
        return float(_ALPHAS[best]), float(errors[best])

    def _features(self, curve: str, size: int) -> Any:
        return randkern.RandomFeatures(
            self.kernel(curve), size, random_state=self.options.seed
        )

    def fit(self, job: _Job) -> None:
        """Add one record, or say why there is none."""
        images = self.images.take(job.n_train, len(self.images.X_test))
        named = {
            "data": self.images.name,
            "curve": job.curve,
            "n_components": job.size,
            "n_train": job.n_train,
        }
        for known in self.records:
            if job.size is None and named.items() <= known.items():  # of the subset
                self.records.append(known | {"measure": job.measure})
                return
        alpha, validation_error = self._search(job.curve, job.size, job.n_train)
        model = self._model(job.curve, job.size, alpha)
        start = time.perf_counter()
        try:
            model.fit(images.X_train, images.y_train)
            fitted = time.perf_counter()
            predicted = model.predict(images.X_test)
        except MemoryLimitError as error:
            self.skipped.append({**named, "reason": str(error)})
            return
        record = {
            "measure": job.measure,
            **named,
            "seed": self.options.seed,
            "alpha": alpha,
            "validation_error": validation_error,
            "test_error": 1 - float(accuracy_score(images.y_test, predicted)),
            "fit_seconds": fitted - start,
            "predict_seconds": time.perf_counter() - fitted,
            "outcome": model.solution_.outcome.name.lower(),
        }
        self.records.append(record | self._costs(job))

    def _costs(self, job: _Job) -> dict[str, Any]:
        """Return the seconds of drawing and of evaluating features."""
        if job.size is None:
            return {}
        X = self.images.X_train[: min(job.n_train, _TIMED_ROWS)]
        features = self._features(job.curve, job.size)
        start = time.perf_counter()
        features.fit(X[:1]).transform(X[:1])  # what is drawn is drawn on first use
        drawn = time.perf_counter()
        features.transform(X)
        return {
            "draw_seconds": drawn - start,
            "evaluate_seconds": time.perf_counter() - drawn,
            "evaluated_rows": len(X),
        }


def _grown(n: int, options: Options) -> int:
    return max(2, round(n * options.features_per_row))


def _signs(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return one column of ±1 a class."""
    coded = LabelBinarizer(neg_label=-1).fit_transform(y).astype(np.float64)
    return coded if coded.shape[1] > 1 else np.hstack([-coded, coded])


# -- results ------------------------------------------------------------------------


def _order(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the curves by test error at the largest D that all have."""
    errors = {
        (r["curve"], r["n_components"]): r["test_error"]
        for r in records
        if r["measure"] == "features"
    }
    sizes = [{size for curve, size in errors if curve == wanted} for wanted in CURVES]
    common = set.intersection(*sizes)
    if not common:
        return []
    return sorted(CURVES, key=lambda curve: errors[curve, max(common)])


def _growth_slopes(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    points: dict[tuple[str, str, bool], list[tuple[int, float]]] = {}
    for r in records:
        if r["measure"] == "growth" and r["test_error"] > 0:
            point = (r["n_train"], r["test_error"])
            key = (r["data"], r["curve"], r["n_components"] is None)
            points.setdefault(key, []).append(point)
    return [
        {"data": data, "curve": curve, "exact": exact, "slope": fitted_power(found)}
        for (data, curve, exact), found in points.items()
        if len(found) > 1
    ]


def _growth_gaps(
    records: Sequence[Mapping[str, Any]], n_test: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return how much more features err than the exact kernel on the same rows."""
    growth = [r for r in records if r["measure"] == "growth"]
    exact = {
        (r["data"], r["curve"], r["n_train"]): r["test_error"]
        for r in growth
        if r["n_components"] is None
    }
    gaps = []
    for r in growth:
        key, error = (r["data"], r["curve"], r["n_train"]), r["test_error"]
        if r["n_components"] is not None and key in exact:
            other = exact[key]
            variance = error * (1 - error) + other * (1 - other)
            gap = dict(zip(("data", "curve", "n_train"), key, strict=True))
            gap["difference"] = error - other
            gap["standard_error"] = float(np.sqrt(variance / n_test[r["data"]]))
            gaps.append(gap)
    return gaps


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for data, order in results["order"].items():
        if order:
            yield f"{data}: least error first: {', '.join(order)}"
            ranks = [order.index(curve) for curve in ("deep", "shallow", "linear")]
            holds = ranks == sorted(ranks)
            yield (
                f"{data}: deep beats shallow beats linear "
                + ("at the largest D" if holds else "does NOT hold at the largest D")
            )
        yield (
            f"{data}: lengthscale {results['lengthscales'][data]:.3g} of the Gaussian "
            "kernel; penalties by validation, at every D and n"
        )
    for found in results["growth_slopes"]:
        of = "of the exact kernel" if found["exact"] else "with D proportional to n"
        yield (
            f"{found['data']}, {found['curve']}: the error {of} falls as "
            f"n^{found['slope']:.3f}"
        )
    largest = {(gap["data"], gap["curve"]): gap for gap in results["growth_gaps"]}
    for (data, curve), gap in largest.items():
        yield (
            f"{data}, {curve}: at n = {gap['n_train']:,} features with D proportional "
            f"to n err {100 * gap['difference']:+.1f} points against the exact kernel "
            f"(standard error {100 * gap['standard_error']:.1f})"
        )
    for note in results["skipped"]:
        size = note["n_components"]
        which = "exact" if size is None else f"D = {size:,}"
        yield f"skipped {note['data']}, {note['curve']}, {which}: {note['reason']}"
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return, for every data set, errors and costs by D, the subset, and the growth."""
    found = []
    for data, described in results["dataset"]["sets"].items():
        own = [r for r in results["records"] if r["data"] == data]
        found += [
            _table(
                f"{data}, {described['n_train']:,} training rows: test error in % "
                "(s of fit)",
                [r for r in own if r["measure"] == "features"],
                lambda r: f"{100 * r['test_error']:.2f} ({r['fit_seconds']:.1f})",
            ),
            _table(
                f"{data}: ms to draw + ns an entry of the feature matrix to evaluate",
                [r for r in own if r["measure"] == "features"],
                _cost_cell,
            ),
            _table(
                f"{data}: exact kernels and features on the same few rows, test error "
                "in % (s of fit)",
                [r for r in own if r["measure"] == "subset"],
                lambda r: f"{100 * r['test_error']:.2f} ({r['fit_seconds']:.1f})",
            ),
            _table(
                f"{data}: D proportional to n, and exact kernels, test error in %",
                [r for r in own if r["measure"] == "growth"],
                lambda r: f"{100 * r['test_error']:.2f}",
            ),
        ]
    return [table for table in found if table.rows]


def _cost_cell(record: Mapping[str, Any]) -> str:
    entries = record["evaluated_rows"] * record["n_components"]
    nanoseconds = 1e9 * record["evaluate_seconds"] / entries
    return f"{1000 * record['draw_seconds']:.1f} + {nanoseconds:.2f}"


def _table(title: str, records: Sequence[Mapping[str, Any]], cell: Any) -> TextTable:
    """Return a table of curves by number of features and training rows."""
    curves = [curve for curve in CURVES if any(r["curve"] == curve for r in records)]
    table = TextTable(title, ("D, n", *curves))
    keys = dict.fromkeys((r["n_components"], r["n_train"]) for r in records)
    for size, n in keys:
        by_curve = {
            r["curve"]: cell(r)
            for r in records
            if (r["n_components"], r["n_train"]) == (size, n)
        }
        label = f"{'exact' if size is None else f'{size:,}'}, {n:,}"
        table.rows.append((label, *(by_curve.get(curve, "") for curve in curves)))
    return table


def figure(results: Mapping[str, Any]) -> Any:
    """Return error against D and against n, and the cost, for every data set."""
    from .compositional_figures import plot_structure

    return plot_structure(results)
