"""Learning with features of skeletons: does structure help, and how many features?

Daniely, Frostig, Gupta and Singer (2017), Theorem 5.

The original. For a Lipschitz loss and a regularised linear predictor on q
norm-efficient features, the risk exceeds that of the kernel by no more than a constant
factor of its own O(√(M²/n)) if q is proportional to n. A theorem; nothing is measured.

Here. ``features``: test error of ridge on linear, shallow and deep skeletons (the
linear node, one ReLU node over all pixels; two convolutions of 5 × 5 and stride 2 and a
full connection, ReLU) and on Gaussian features, against D. ``subset``: beside the exact
kernels on the same few rows. ``growth``: the error against n with D = √n, n/4, n/2 and
n, of ridge, of a support vector machine (hinge loss) and of logistic regression, both
Lipschitz, five seeds, beside the exact kernels: D in proportion to n is the theorem's
regime, √n is less.

Deviations.

- Square loss is not Lipschitz: ridge is there for comparison.
- Penalties are chosen at every D and n on a fifth of at most 10,000 rows, not by the
  theorem; all classes share one.
- CIFAR-10 is cropped to 24 × 24; pixels are angles; a sample of rows of each set.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import LabelBinarizer

import randkern
from randkern._memory import resolve_memory_limit
from randkern.exceptions import MemoryLimitError
from randkern.models.normal_equations import NormalEquations
from randkern.models.ridge_path import DualPath, PrimalPath

from ..options import DataOptions, option
from ..panels import BLACK, BLUE, DASHED, DOTTED, GREY, RED, Panel, Style, draw
from ..process import Stopwatch
from ..runner import Case, Experiment
from ..tables import Fitted, TextTable, fitted_power, of, pivot, skip_notes
from .images import Images, available_images, build_skeleton, load_circle_images

__all__ = ["CURVES", "CompositionalStructure", "Options"]

CURVES = {
    "gaussian": Style("gaussian", BLACK),
    "linear": Style("linear", GREY, "v", DOTTED),
    "shallow": Style("shallow", RED, "^", DASHED),
    "deep": Style("deep", BLUE, "s"),
}
EXACT = ("gaussian", "shallow", "deep")
_GROWING = ("shallow", "deep")
_RATIOS = {
    "sqrt": lambda n: n**0.5,
    "1/4": lambda n: n / 4,
    "1/2": lambda n: n / 2,
    "1": lambda n: n,
}
LOSSES = ("ridge", "svc", "logistic")
_SIZES, _QUICK_SIZES = (300, 1000, 3000, 10_000, 30_000, 50_000), (50, 200)
# Gaussian lengthscales, in units of the data's own, and penalties.
_LENGTHSCALES = (0.5, 1.0, 2.0)
_ALPHAS = np.logspace(-5, 2, 15)
_CS = (0.1, 1.0, 10.0, 100.0)
# Rows of the search for a penalty, a fifth of them for validation: with more features
# than _PRIMAL by the Gram matrix of fewer rows, at a cost that D does not raise.
_SEARCH_ROWS, _DUAL_ROWS, _PRIMAL, _VALIDATION = 10_000, 3_000, 2_000, 0.2
_TIMED_ROWS = 2_000
_FRACTIONS = (16, 8, 4, 2, 1)
_FEWEST_ROWS = 30


@dataclass(frozen=True)
class Options(DataOptions):
    """What ``randkern reproduce compositional-structure`` takes."""

    data: str = option(
        "auto",
        "cifar10, mnist, digits, or several with commas; auto takes those of cifar10 "
        "and mnist that are in --data-dir.",
    )
    n: int = option(10_000, "Training rows of each set.", quick=240)
    n_test: int = option(10_000, "Test rows of each set.", quick=200)
    max_components: int = option(
        10_000, "Largest number of features of 300, 1,000, ..., 50,000."
    )
    n_components: tuple[int, ...] | None = option(
        None, "Numbers of features, in place of --max-components."
    )
    exact_rows: int = option(
        2000,
        "Training rows of the exact kernels, at most; 0 leaves them out.",
        quick=100,
        least=0,
    )
    growth: tuple[str, ...] = option(
        tuple(_RATIOS), "D as a function of n, of sqrt, 1/4, 1/2, 1.", quick=("1/2",)
    )
    losses: tuple[str, ...] = option(
        ("ridge", "svc"), "Of the growth: ridge, svc, logistic.", quick=LOSSES
    )
    growth_seeds: int = option(5, "Draws of the features of the growth.", quick=1)
    memory_limit: str | None = option(None, 'What a model may use, such as "4GB".')


class CompositionalStructure(Experiment):
    """Features, a subset of the rows, and growth, on every data set."""

    name = "compositional-structure"
    title = "Linear, shallow and deep skeletons (Daniely et al., Theorem 5)."
    Options = Options

    def prepare(self) -> dict[str, Any]:
        """Load the sets, choose lengthscales, and compile what will be timed."""
        options = self.options
        for name, given, known in (
            ("growth", options.growth, _RATIOS),
            ("losses", options.losses, LOSSES),
        ):
            if not set(given) <= set(known):
                raise ValueError(f"{name} must be of {', '.join(known)}, got {given}")
        resolve_memory_limit(options.memory_limit)  # complains before the work
        named: Sequence[str] = options.data.split(",")
        if options.data == "auto":
            named = available_images(options.data_dir, ("cifar10", "mnist"))
        rows = {"n_train": options.n, "n_test": options.n_test, "seed": options.seed}
        loaded = [load_circle_images(name, options.data_dir, **rows) for name in named]
        self.sets = {images.name: images for images in loaded}
        self.skeletons = {
            (name, curve): build_skeleton(curve, images.shape)
            for name, images in self.sets.items()
            for curve in CURVES
            if curve != "gaussian"
        }
        self.sizes = _sizes(options)
        self.lengthscales: dict[str, float] = {}
        for name in self.sets:
            self.say(f"{name}: choosing the lengthscale")
            self._choose_lengthscale(name)
            self._compile(name)
        return {
            "name": ", ".join(self.sets),
            "sets": {name: images.describe() for name, images in self.sets.items()},
        }

    def cases(self) -> Iterator[Case]:
        """Return features by D, the exact kernels' rows, and the growth with n."""
        seed = self.options.seed
        for data, images in self.sets.items():
            n = len(images.X_train)
            wanted = min(self.options.exact_rows, n)
            for curve in CURVES:
                for size in self.sizes:
                    yield _case("features", data, curve, size, n, seed)
            for curve in EXACT if wanted else ():
                yield _case("subset", data, curve, max(self.sizes), wanted, seed)
                yield _case("subset", data, curve, None, wanted, seed)
            for part in _FRACTIONS:
                if n // part >= _FEWEST_ROWS:
                    yield from self._growth(data, n // part, wanted)

    def _growth(self, data: str, n: int, wanted: int) -> Iterator[Case]:
        seed = self.options.seed
        for curve in _GROWING:
            for loss in self.options.losses:
                for ratio in self.options.growth:
                    size = max(2, round(_RATIOS[ratio](n)))
                    for i in range(self.options.growth_seeds):
                        case = _case("growth", data, curve, size, n, seed + i)
                        yield case | {"loss": loss, "ratio": ratio}
                if n <= wanted:
                    case = _case("growth", data, curve, None, n, seed)
                    yield case | {"loss": loss, "ratio": None}

    def measure(self, case: Case) -> dict[str, Any]:
        """Choose the penalty, fit, score, and time the features."""
        images = self.sets[case["data"]].take(case["n_train"], self.options.n_test)
        loss = case.get("loss", "ridge")
        search = self._search if loss == "ridge" else self._search_C
        penalty, validation_error = search(case)
        model = self._model(case, loss, penalty)
        watch = Stopwatch()
        model.fit(images.X_train, images.y_train)
        fit = watch.lap()
        predicted = model.predict(images.X_test)
        outcome = getattr(model, "solution_", None)
        return {
            "alpha": penalty if loss == "ridge" else 1 / penalty,
            "validation_error": validation_error,
            "test_error": float(np.mean(predicted != images.y_test)),
            "fit_seconds": fit.seconds,
            "predict_seconds": watch.lap().seconds,
            "outcome": outcome.outcome.name.lower() if outcome else "converged",
            **self._costs(case, images),
        }

    def kernel(self, data: str, curve: str) -> Any:
        """Return the kernel of a curve on a data set."""
        if curve == "gaussian":
            return randkern.Gaussian(self.lengthscales[data])
        return randkern.Compositional(self.skeletons[data, curve])

    def _model(self, case: Case, loss: str, penalty: float) -> Any:
        kernel, size = self.kernel(case["data"], case["curve"]), case["n_components"]
        limit = self.options.memory_limit
        if loss == "ridge":
            return randkern.KernelRidgeClassifier(
                kernel,
                alpha=penalty,
                n_components=size,
                fit_intercept=True,
                memory_limit=limit,
                random_state=case["seed"],
            )
        made = {"svc": randkern.KernelSVC, "logistic": randkern.KernelLogistic}[loss]
        seed = case["seed"]
        return made(kernel, penalty, size, memory_limit=limit, random_state=seed)

    def _features(self, case: Case) -> Any:
        kernel, size = self.kernel(case["data"], case["curve"]), case["n_components"]
        return randkern.RandomFeatures(kernel, size, random_state=case["seed"])

    def _choose_lengthscale(self, data: str) -> None:
        X = self.sets[data].X_train
        own = randkern.Gaussian("scale").resolve(X).lengthscale
        size, n = min(_PRIMAL, 1000), len(X)
        case = _case("", data, "gaussian", size, n, self.options.seed)
        errors = {}
        for multiple in _LENGTHSCALES:
            self.lengthscales[data] = float(own * multiple)
            errors[self.lengthscales[data]] = self._search(case)[1]
        self.lengthscales[data] = min(errors, key=lambda value: errors[value])

    def _compile(self, data: str) -> None:
        few = self.sets[data].take(100, 2)
        for curve in CURVES:
            for solver in ("cholesky", "pcg"):
                case = _case("", data, curve, 20, 100, self.options.seed)
                model = self._model(case, "ridge", 1.0).set_params(solver=solver)
                # Whoever exceeds the limit on a few rows will be skipped on all.
                with suppress(MemoryLimitError):
                    model.fit(few.X_train, few.y_train).predict(few.X_test)

    def _search(self, case: Case) -> tuple[float, float]:
        """Return the best ridge penalty, the largest of equal ones, and its error."""
        size, images = case["n_components"], self.sets[case["data"]]
        dual = size is None or size > _PRIMAL
        n = min(case["n_train"], _DUAL_ROWS if dual else _SEARCH_ROWS)
        X, held = images.X_train[:n], int(n * _VALIDATION)
        Y = signs(images.y_train[:n])
        if size is None:
            kernel = self.kernel(case["data"], case["curve"])
            K, K_new = (
                np.asarray(kernel(part, X[held:])) for part in (X[held:], X[:held])
            )
        else:
            Z = self._features(case).fit_transform(X)
            K, K_new = Z[held:], Z[:held]
            if dual:
                K, K_new = Z[held:] @ Z[held:].T, Z[:held] @ Z[held:].T
        K = K.astype(np.float64, order="C")
        path: Any
        if dual:
            path = DualPath.of(K, Y[held:], None, _ALPHAS, True)
        else:
            statistics = NormalEquations.of_features(K, Y[held:])
            path = PrimalPath.of(statistics, _ALPHAS, True)
        predicted = path.predict(K_new).argmax(axis=2)
        errors = np.mean(predicted != Y[:held].argmax(axis=1), axis=1)
        best = int(np.flatnonzero(errors == errors.min())[-1])
        return float(_ALPHAS[best]), float(errors[best])

    def _search_C(self, case: Case) -> tuple[float, float]:  # noqa: N802
        """Return the best C of a machine, the least of equal ones, and its error."""
        images = self.sets[case["data"]]
        n = min(case["n_train"], _DUAL_ROWS)
        X, y, held = images.X_train[:n], images.y_train[:n], int(n * _VALIDATION)
        errors = {}
        for C in _CS:
            model = self._model(case, case["loss"], C).fit(X[held:], y[held:])
            errors[C] = float(np.mean(model.predict(X[:held]) != y[:held]))
        best = min(errors, key=lambda C: errors[C])
        return best, errors[best]

    def _costs(self, case: Case, images: Images) -> dict[str, Any]:
        """Return the seconds of drawing and of evaluating features."""
        if case["n_components"] is None or case["measure"] != "features":
            return {}
        X, features = images.X_train[:_TIMED_ROWS], self._features(case)
        watch = Stopwatch()
        features.fit(X[:1]).transform(X[:1])  # what is drawn is drawn on first use
        drawn = watch.lap().seconds
        features.transform(X)
        evaluated = watch.lap().seconds
        took = {"draw_seconds": drawn, "evaluate_seconds": evaluated}
        return took | {"evaluated_rows": len(X)}

    # -- results ----------------------------------------------------------------------

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the order of the curves, and slopes and gaps of the growth."""
        records = results["records"]
        n_test = {name: len(images.y_test) for name, images in self.sets.items()}
        return {
            "lengthscales": self.lengthscales,
            "order": {name: order(of(records, data=name)) for name in self.sets},
            "growth_slopes": list(_growth_slopes(records)),
            "growth_gaps": growth_gaps(records, n_test),
        }

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the order, slopes of the growth, and gaps at the largest n."""
        for data, curves in results["order"].items():
            if curves:
                yield f"{data}: least error first: {', '.join(curves)}"
                ranks = [curves.index(curve) for curve in ("deep", "shallow", "linear")]
                holds = "" if ranks == sorted(ranks) else "does NOT hold "
                yield f"{data}: deep beats shallow beats linear {holds}at the largest D"
            yield (
                f"{data}: lengthscale {results['lengthscales'][data]:.3g} of the "
                "Gaussian kernel; penalties by validation, at every D and n"
            )
        for found in results["growth_slopes"]:
            yield Fitted(
                f"{found['data']}, {found['curve']}, {_regime(found)}: the error falls "
                f"as n^{found['slope']:.3f}"
            )
        keys = ("data", "curve", "loss", "ratio")
        largest = {tuple(g.get(k) for k in keys): g for g in results["growth_gaps"]}
        for gap in largest.values():
            yield (
                f"{gap['data']}, {gap['curve']}, {_regime(gap)}: at n = "
                f"{gap['n_train']:,} features err {100 * gap['difference']:+.1f} "
                "points against the exact kernel (standard error "
                f"{100 * gap['standard_error']:.1f})"
            )
        yield from skip_notes(results, "data", "curve", "n_components")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return, for every data set, errors and costs by D, the subset, the growth."""
        found = []
        for data, described in results["dataset"]["sets"].items():
            own = of(results["records"], data=data)
            rows, keys = described["n_train"], ("n_components", "n_train")
            growth = [
                {**r, "what": f"{r['curve']}, {_regime(r)}"}
                for r in of(own, measure="growth")
            ]
            found += [
                pivot(
                    f"{data}, {rows:,} training rows: test error in % (s of fit)",
                    *(of(own, measure="features"), keys, "curve", _error_cell),
                ),
                pivot(
                    f"{data}: ms to draw + ns per entry of the feature matrix to "
                    "evaluate",
                    *(of(own, measure="features"), keys, "curve", _cost_cell),
                ),
                pivot(
                    f"{data}: exact kernels and features on the same few rows, test "
                    "error in % (s of fit)",
                    *(of(own, measure="subset"), keys, "curve", _error_cell),
                ),
                *(
                    pivot(
                        f"{data}: D as a function of n, and exact kernels, {loss}: "
                        "test error in %",
                        [r for r in growth if r.get("loss", "ridge") == loss],
                        *("n_train", "what"),
                        lambda g: f"{100 * g.test_error.mean():.2f}",
                    )
                    for loss in dict.fromkeys(r.get("loss", "ridge") for r in growth)
                ),
            ]
        return [table for table in found if table.rows]

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return error against D and against n, and the cost, for every data set."""
        records = [
            {**r, "nanoseconds": _nanoseconds(r)} if "evaluated_rows" in r else r
            for r in results["records"]
        ]
        first = next((r for r in records if r["measure"] == "growth"), {})
        styles: dict[Any, Style] = {}
        for curve in _GROWING:
            style = CURVES[curve]
            for key in dict.fromkeys(_ratio(r) for r in records):
                hollow = Style(f"{curve}, {key}", style.colour, style.marker)
                styles[curve, key] = hollow
        records = [{**r, "what": (r["curve"], _ratio(r))} for r in records]
        panels = []
        for data, described in results["dataset"]["sets"].items():
            where = {"data": data, "measure": "features"}
            growth = {"data": data, "measure": "growth"}
            if "loss" in first:
                growth["loss"] = first["loss"]
            title = f"{data}, n = {described['n_train']:,}"
            panels += [
                Panel(
                    *("n_components", "test_error", "curve", CURVES, where, title),
                    log="x",
                    scale=100,
                ),
                Panel(
                    *("n_train", "test_error", "what", styles, growth),
                    f"{data}, {first.get('loss', 'ridge')}: D as a function of n",
                    log="x",
                    scale=100,
                ),
                Panel(
                    *("n_components", "nanoseconds", "curve", CURVES, where),
                    *(f"{data}, drawing and evaluating", ""),
                    "ns per entry of the feature matrix",
                ),
            ]
        shown = {**results, "records": records}
        return draw(shown, panels, columns=3, size=(4.2, 3.8), legend="inside")


def _case(
    measure: str, data: str, curve: str, size: int | None, n: int, seed: int
) -> Case:
    named = {"measure": measure, "data": data, "curve": curve}
    return {**named, "n_components": size, "n_train": n, "seed": seed}


def _sizes(options: Options) -> list[int]:
    """Return the numbers of features, rising."""
    if options.n_components is not None:
        return sorted(set(options.n_components))
    known = _QUICK_SIZES if options.quick else _SIZES
    sizes = [size for size in known if size <= options.max_components]
    return sizes or [options.max_components]


def signs(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return one column of ±1 per class."""
    coded = LabelBinarizer(neg_label=-1).fit_transform(y).astype(np.float64)
    return coded if coded.shape[1] > 1 else np.hstack([-coded, coded])


def order(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the curves by test error at the largest D that all have."""
    errors = {
        (r["curve"], r["n_components"]): r["test_error"]
        for r in of(records, measure="features")
    }
    sizes = [{size for curve, size in errors if curve == wanted} for wanted in CURVES]
    common = set.intersection(*sizes)
    if not common:
        return []
    return sorted(CURVES, key=lambda curve: errors[curve, max(common)])


def _ratio(record: Mapping[str, Any]) -> str:
    if record["n_components"] is None:
        return "exact"
    ratio = record.get("ratio") or "1/2"
    return {"sqrt": "D = √n", "1": "D = n"}.get(ratio, f"D = n·{ratio}")


def _regime(record: Mapping[str, Any]) -> str:
    exact = record.get("exact", "n_components" in record and not record["n_components"])
    ratio = "exact" if exact else _ratio({**record, "n_components": 1})
    return f"{record.get('loss', 'ridge')}, {ratio}"


def _growth_slopes(records: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the powers of n that fit the errors best."""
    growth = [r for r in of(records, measure="growth") if r["test_error"] > 0]
    keys = ("data", "curve", "loss", "ratio")
    for key in dict.fromkeys(tuple(r[k] for k in keys) for r in growth):
        named = dict(zip(keys, key, strict=True))
        own = of(growth, **named)
        errors = [r["test_error"] for r in own]
        slope = fitted_power([r["n_train"] for r in own], errors)
        if slope is not None:
            yield named | {"exact": named["ratio"] is None, "slope": slope}


def growth_gaps(
    records: Sequence[Mapping[str, Any]], n_test: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return how much more features err than the exact kernel on the same rows."""
    growth, gaps = of(records, measure="growth"), []
    keys = ("data", "curve", "n_train", "loss", "ratio")
    for key in dict.fromkeys(tuple(r.get(k) for k in keys) for r in growth):
        named = dict(zip(keys, key, strict=True))
        same = {k: named[k] for k in ("data", "curve", "n_train")}
        beside = [r for r in of(growth, **same) if r.get("loss") == named["loss"]]
        exact = [r["test_error"] for r in beside if r["n_components"] is None]
        own = [
            r["test_error"]
            for r in beside
            if r["n_components"] is not None and r.get("ratio") == named["ratio"]
        ]
        if exact and own:
            error, other = float(np.mean(own)), exact[0]
            variance = error * (1 - error) / len(own) + other * (1 - other)
            deviation = float(np.sqrt(variance / n_test[named["data"]]))
            gaps.append(
                named | {"difference": error - other, "standard_error": deviation}
            )
    return gaps


def _error_cell(group: Any) -> str:
    return f"{100 * group.test_error.mean():.2f} ({group.fit_seconds.mean():.1f})"


def _cost_cell(group: Any) -> str:
    (record,) = group.to_dict("records")
    entries = record["evaluated_rows"] * record["n_components"]
    nanoseconds = 1e9 * record["evaluate_seconds"] / entries
    return f"{1000 * record['draw_seconds']:.1f} + {nanoseconds:.2f}"


def _nanoseconds(record: Mapping[str, Any]) -> float:
    seconds = record["draw_seconds"] + record["evaluate_seconds"]
    entries = record["evaluated_rows"] * record["n_components"]
    return float(1e9 * seconds / entries)
