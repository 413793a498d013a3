"""Error of the Gram matrix and of ridge against D: all projections and peers.

Every projection, scikit-learn's ``RBFSampler`` and its ``Nystroem`` have the same
number of columns, the same rows, and the same seeds. Gram errors are those of the
training rows; the classifier is ridge regression onto ±1 labels with no intercept,
solved in float64; its penalty is chosen for each method and number of features by the
leave-one-out error of the first seed (with one penalty for all, random features suffer
most where D is near n). The optical kernel, degree 2, is run plain and centred, for its
Gram error only. Then Nystroem beside what its time affords.
"""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern

from ..options import option
from ..panels import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, Panel, Style, draw
from ..runner import Case, Experiment, SkippedCase
from ..tables import TextTable, count, listing, of, percent, seconds, skip_notes
from .contenders import known_projections
from .rows import RowOptions, load_rows, parse_lengthscale
from .scores import gram_errors, gram_matrix, ridge_scores

__all__ = ["Accuracy", "Options", "equal_cost", "paired_ratio", "summarise"]

_STYLES = {
    "dense": Style("dense", BLACK),
    "streamed": Style("streamed", SKY, "X", (0, (3, 1))),
    "orthogonal": Style("orthogonal", GREEN, "^", "-."),
    "structured": Style("structured", BLUE, "s", "--"),
    "qmc": Style("qmc", PINK, "D", ":"),
    "RBFSampler": Style("RBFSampler", RED, "v", (0, (5, 1, 1, 1, 1, 1))),
    "Nystroem": Style("Nystroem", ORANGE, "P", (0, (8, 3))),
}
# What the others' Gram error is divided by.
_REFERENCE = {"method": "dense", "centered": False}
_PEERS = ("RBFSampler", "Nystroem")
_COST_METHODS = ("structured", "dense", "RBFSampler")
# Of memory: a benchmark says itself what it takes.
_UNLIMITED = 10**15
_WARM_UP_ROWS = 64


@dataclass(frozen=True)
class Options(RowOptions):
    """What ``randkern bench accuracy`` takes."""

    n: int | None = option(2000, "Training rows at most.", quick=300, least=2)
    n_test: int | None = option(5000, "Test rows at most.", quick=200, least=2)
    lengthscale: str = option("5", "Of the Gaussian kernel: a number, scale or median.")
    n_components: tuple[int, ...] = option(
        (196, 392, 784, 1568, 3136), "Numbers of features.", quick=(32, 128)
    )
    alpha: tuple[float, ...] = option(
        (1e-3, 1e-2, 1e-1, 1.0, 10.0),
        "Ridge penalties; one is chosen for each method and number of features, by "
        "leave-one-out on training rows.",
    )
    seeds: int = option(10, "Draws of the features.", quick=2)
    projections: tuple[str, ...] | None = option(
        None, "Projections; default: all there are.", quick=("dense", "structured")
    )
    optical: bool = option(True, "Also the optical kernel, plain and centred.")


class Accuracy(Experiment):
    """All seeds of a method and number of features at a time."""

    name = "accuracy"
    title = "Error of the Gram matrix and of ridge against D, beside peers."
    command = "bench"
    Options = Options

    def prepare(self) -> dict[str, Any]:
        """Load rows, and make the exact Gram matrices."""
        options = self.options
        self.names = known_projections(options.projections)
        self.rows = load_rows(options)
        X = self.rows.X_train.astype(np.float64)
        gaussian = randkern.Gaussian(parse_lengthscale(options.lengthscale))
        self.kernels = {"gaussian": gaussian.resolve(self.rows.X_train, random_state=0)}
        if options.optical:
            self.kernels["optical"] = randkern.Optical(degree=2)
        self.exact = {f: np.asarray(kernel(X)) for f, kernel in self.kernels.items()}
        self.classes = np.unique(self.rows.y_train)
        self.targets = np.where(self.rows.y_train[:, None] == self.classes, 1.0, -1.0)
        for family, method, centered in self._methods():
            self._warm_up(family, method, centered)
        return self.rows.description

    def _methods(self) -> Iterator[tuple[str, str, bool]]:
        """Yield the methods, the one that ratios refer to first in its family."""
        for method in (*self.names, *_PEERS):
            yield "gaussian", method, False
        for method in self.names if self.options.optical else ():
            yield from (("optical", method, centered) for centered in (False, True))

    def cases(self) -> Iterator[Case]:
        """Return methods by D; the seeds are one case, as they share a penalty."""
        for family, method, centered in self._methods():
            for size in sorted(set(self.options.n_components)):
                named = {"family": family, "method": method, "centered": centered}
                yield named | {"n_components": size}

    def measure(self, case: Case) -> Iterator[dict[str, Any]]:
        """Return the records of all seeds."""
        size, n = case["n_components"], len(self.rows.X_train)
        if case["method"] == "Nystroem" and size > n:
            raise SkippedCase(f"it has at most one component a training row: {n:,}")
        alphas: Sequence[float] = self.options.alpha
        first = self.options.seed
        for seed in range(first, first + self.options.seeds):
            try:
                record = self._measured(case, seed, alphas)
            except ValueError as error:  # a law or a width that it cannot draw
                raise SkippedCase(str(error)) from error
            if record["alpha"] is not None:
                alphas = [record["alpha"]]
            yield {"seed": seed, **record}

    def _build(
        self, family: str, method: str, centered: bool, size: int, seed: int
    ) -> Any:
        from sklearn import kernel_approximation

        if method in _PEERS:
            gamma = 1 / (2 * self.kernels["gaussian"].lengthscale ** 2)
            peer = getattr(kernel_approximation, method)
            return peer(gamma=gamma, n_components=size, random_state=seed)
        return randkern.RandomFeatures(
            self.kernels[family],
            size,
            projection=method,
            centered=centered,
            random_state=seed,
        )

    def _warm_up(self, family: str, method: str, centered: bool) -> None:
        """Compile what will be timed."""
        few = self.rows.X_train[:_WARM_UP_ROWS]
        size = min(*self.options.n_components, len(few))
        try:
            features = self._build(family, method, centered, size, 0)
            Z = features.fit(few).transform(few)
        except ValueError:
            return  # it will say so again when it is measured
        ridge_scores(Z, self.targets[: len(few)], Z, self.options.alpha[-1])

    def _measured(
        self, case: Case, seed: int, alphas: Sequence[float]
    ) -> dict[str, Any]:
        """Return the record of one draw."""
        X, family = self.rows.X_train, case["family"]
        named = family, case["method"], case["centered"], case["n_components"]
        start = time.perf_counter()
        with warnings.catch_warnings():
            # Nystroem's float32 and the rank of its sample are its own affair.
            warnings.simplefilter("ignore", RuntimeWarning)
            features = self._build(*named, seed).fit(X)
        fitted = time.perf_counter()
        Z = features.transform(X)
        transformed = time.perf_counter()
        off_diagonal, overall = gram_errors(gram_matrix(Z), self.exact[family])
        record: dict[str, Any] = {
            "gram_error": off_diagonal,
            "gram_error_all": overall,
            **dict.fromkeys(("test_error", "alpha", "solve_seconds")),
            "fit_seconds": fitted - start,
            "transform_seconds": transformed - fitted,
        }
        if family == "gaussian":
            Z_test = features.transform(self.rows.X_test)
            record["alpha"] = best_alpha(Z, self.targets, alphas)
            start = time.perf_counter()
            scores = ridge_scores(Z, self.targets, Z_test, record["alpha"])
            record["solve_seconds"] = time.perf_counter() - start
            record["test_error"] = self._error(scores)
        return record

    def _error(self, scores: NDArray[Any]) -> float:
        """Return the misclassified share of the test rows."""
        predicted = self.classes[scores.argmax(axis=1)]
        return float(np.mean(predicted != self.rows.y_test))

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the exact kernel's error, a summary, and Nystroem at equal cost."""
        kernel, rows = self.kernels["gaussian"], self.rows
        model = randkern.KernelRidgeRegressorCV(
            kernel, self.options.alpha, None, memory_limit=_UNLIMITED
        ).fit(rows.X_train.astype(np.float64), self.targets)
        error = self._error(model.predict(rows.X_test.astype(np.float64)))
        summary = summarise(results["records"])
        return {
            "exact": {
                "test_error": error,
                "alpha": float(model.alpha_),
                "lengthscale": float(kernel.lengthscale),
            },
            "summary": summary,
            "equal_cost": equal_cost(summary),
        }

    # -- results ----------------------------------------------------------------------

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return what was skipped."""
        return skip_notes(results, "family", "method", "n_components")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return errors, the ratio to dense and seconds by kernel, and equal cost."""
        data, exact = results["dataset"], results["exact"]
        where = f"{data['name']}, {data['n_train']:,} rows"
        summary = sorted(results["summary"], key=lambda e: e["n_components"])
        shared = {
            "method": lambda e: e["method"] + (", centred" if e["centered"] else ""),
            "D": lambda e: count(e["n_components"]),
            "Gram error": lambda e: percent(e["gram_error"]),
            "ratio to dense": lambda e: _ratio(e, "ratio_to_dense", "ratio_se"),
        }
        gaussian = {
            "test error": lambda e: percent(e["test_error"], e["test_error_std"]),
            "alpha": lambda e: f"{e['alpha']:g}",
            "features": lambda e: seconds(e["features_seconds"]),
            "with solve": lambda e: seconds(e["total_seconds"]),
        }
        optical = {
            "centred / plain": lambda e: _ratio(
                e, "ratio_to_plain", "ratio_to_plain_se"
            )
        }
        caption = (
            f"exact kernel: test error {percent(exact['test_error'])}, alpha "
            f"{exact['alpha']:g}; ± is the standard error of a ratio, the standard "
            "deviation over seeds of an error"
        )
        found = [
            listing(
                f"gaussian, ℓ = {exact['lengthscale']:.4g}: {where}",
                *(of(summary, family="gaussian"), shared | gaussian, caption),
            ),
            listing(
                f"optical, degree 2: {where}",
                *(of(summary, family="optical"), shared | optical),
            ),
            listing(
                "at equal cost: the most features measured within Nystroem's time",
                # The table of all would be long: results.json has it.
                [r for r in results["equal_cost"] if r["method"] in _COST_METHODS],
                _COST_COLUMNS,
            ),
        ]
        return [table for table in found if table.rows]

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return errors against D, and against the seconds of features and solve."""
        data, n_seeds = results["dataset"], results["summary"][0]["n_seeds"]
        title = (
            f"{data['name']}: {data['n_train']:,} rows, {data['n_features']:,} "
            f"columns, ℓ = {results['exact']['lengthscale']:.4g}, {n_seeds} seeds"
        )
        by_size, by_cost = [], []
        errors = {
            "gram_error": "relative error of the Gram matrix (%)",
            "test_error": "test error of ridge (%)",
        }
        for key, label in errors.items():
            shared: dict[str, Any] = {
                "scale": 100,
                "records": "summary",
                "ylabel": label,
            }
            if key == "test_error":
                shared["extra"] = _level
            named = key, "method", _STYLES, {"family": "gaussian"}
            by_size.append(Panel("n_components", *named, title="Gaussian", **shared))
            by_cost.append(
                Panel(
                    *("total_seconds", *named),
                    xlabel="seconds: features of the training rows, and solve",
                    ticks=(0.001, 0.01, 0.1, 1, 10, 100),
                    **shared,
                )
            )
        summary = [
            {**e, "kind": (e["method"], e["centered"])} for e in results["summary"]
        ]
        by_size += _ratio_panels(summary)
        shown = {**results, "summary": summary}
        return {
            "accuracy.png": draw(
                shown, by_size, columns=2, title=title, legend="right"
            ),
            "cost.png": draw(shown, by_cost, title=title, legend="right"),
        }


def _ratio_panels(summary: Sequence[Mapping[str, Any]]) -> Iterator[Panel]:
    """Yield ratios of Gram errors to dense: of the Gaussian and the optical kernel."""
    optical = {
        (method, centered): Style(
            f"{method}, {'centred' if centered else 'plain'}",
            *(style.colour, style.marker, style.dashes, centered),
        )
        for method, style in _STYLES.items()
        for centered in (False, True)
    }
    styles: Mapping[Any, Style]
    for family, styles, by in (
        ("gaussian", _STYLES, "method"),
        ("optical", optical, "kind"),
    ):
        if of(summary, family=family):
            yield Panel(
                *("n_components", "ratio_to_dense", by, styles),
                where={"family": family},
                title=f"{family}, paired",
                ylabel="Gram error, ratio to dense",
                log="x",
                bars="ratio_se",
                records="summary",
            )


def _level(axes: Any, results: Mapping[str, Any]) -> None:
    error = 100 * results["exact"]["test_error"]
    axes.axhline(error, color="0.4", lw=1.0, label="exact kernel")


def best_alpha(Z: NDArray[Any], Y: NDArray[Any], alphas: Sequence[float]) -> float:
    """Return the penalty with the least squared leave-one-out error of ridge on Z."""
    if len(alphas) == 1:
        return float(alphas[0])
    model = randkern.KernelRidgeRegressorCV(
        randkern.Linear(), alphas, Z.shape[1], memory_limit=_UNLIMITED
    )
    return float(model.fit(Z, Y).alpha_)


def paired_ratio(
    errors: Sequence[float], reference: Sequence[float]
) -> tuple[float, float | None]:
    """Return the ratio of two means over the same seeds, and its standard error.

    With r = ā/b̄ the standard error is that of the mean of (a_s − r b_s)/b̄ over the
    seeds s (the delta method; it counts what the pairs have in common); None for a
    single seed.

    Examples
    --------
    >>> from randkern_lab.benchmarks.accuracy import paired_ratio
    >>> paired_ratio([0.8, 1.0], [1.0, 1.0])
    (0.9, 0.1)
    >>> paired_ratio([0.9, 1.8], [1.0, 2.0])  # the same ratio in every pair
    (0.9, 0.0)
    """
    a, b = np.asarray(errors, dtype=float), np.asarray(reference, dtype=float)
    ratio = float(a.mean() / b.mean())
    if len(a) < 2:
        return ratio, None
    residual = (a - ratio * b) / b.mean()
    return ratio, float(residual.std(ddof=1) / math.sqrt(len(a)))


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per family, method and number of features.

    Parameters
    ----------
    records : sequence of mapping

    Returns
    -------
    summary : list of dict
        ``family``, ``method``, ``centered``, ``n_components``, ``n_seeds``, ``alpha``;
        ``gram_error``, ``gram_error_all``, ``test_error`` (means over seeds) and
        ``gram_error_std``, ``test_error_std``; ``ratio_to_dense`` of the off-diagonal
        Gram errors (:func:`paired_ratio`) and ``ratio_se``, null where dense was not
        run; for optical, ``ratio_to_plain`` and ``ratio_to_plain_se``: centred over
        plain of the same projection; ``features_seconds`` (fit and transform) and
        ``total_seconds`` (solve included): medians.
    """
    keys = ("family", "method", "centered", "n_components")
    summary = []
    for key in dict.fromkeys(tuple(r[k] for k in keys) for r in records):
        named = dict(zip(keys, key, strict=True))
        own = of(records, **named)
        plain = (
            of(records, **(named | {"centered": False})) if named["centered"] else []
        )
        features = [r["fit_seconds"] + r["transform_seconds"] for r in own]
        totals = [
            f + (r["solve_seconds"] or 0.0) for f, r in zip(features, own, strict=True)
        ]
        entry = {**named, "n_seeds": len(own), "alpha": own[0]["alpha"]}
        for name in ("gram_error", "gram_error_all", "test_error"):
            values = [r[name] for r in own if r[name] is not None]
            entry[name] = fmean(values) if values else None
            entry[f"{name}_std"] = stdev(values) if len(values) > 1 else None
        dense = of(records, **(named | _REFERENCE))
        entry |= _paired(own, dense, "ratio_to_dense", "ratio_se")
        entry |= _paired(own, plain, "ratio_to_plain", "ratio_to_plain_se")
        entry |= {"features_seconds": median(features), "total_seconds": median(totals)}
        summary.append(entry)
    return summary


def _paired(
    own: Sequence[Mapping[str, Any]],
    reference: Sequence[Mapping[str, Any]],
    name: str,
    error_name: str,
) -> dict[str, float | None]:
    """Return the ratio of Gram errors over the seeds that both have."""
    base = {r["seed"]: r["gram_error"] for r in reference}
    pairs = [(r["gram_error"], base[r["seed"]]) for r in own if r["seed"] in base]
    if not pairs:
        return {name: None, error_name: None}
    ratio, error = paired_ratio(*zip(*pairs, strict=True))
    return {name: ratio, error_name: error}


def equal_cost(summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Set each Nystroem point beside the random features that its time affords.

    Parameters
    ----------
    summary : sequence of dict
        From :func:`summarise`.

    Returns
    -------
    rows : list of dict
        For every number of components of Nystroem and every projection:
        ``n_components``, ``seconds`` (of features and solve), ``gram_error``,
        ``test_error`` of Nystroem, and as ``method``, ``method_n_components``,
        ``method_seconds``, ``method_gram_error``, ``method_test_error`` the
        projection's largest measured number of features that took no longer; null
        where even its smallest took longer. ``largest_measured`` says that more
        features might still have fitted.
    """
    gaussian = of(summary, family="gaussian")
    rows = []
    for peer in of(gaussian, method="Nystroem"):
        for method in dict.fromkeys(e["method"] for e in gaussian):
            if method == "Nystroem":
                continue
            own = of(gaussian, method=method)
            cheap = [e for e in own if e["total_seconds"] <= peer["total_seconds"]]
            best = max(cheap, key=lambda e: e["n_components"], default=None)
            largest = max(e["n_components"] for e in own)
            row = {
                "n_components": peer["n_components"],
                "seconds": peer["total_seconds"],
                "gram_error": peer["gram_error"],
                "test_error": peer["test_error"],
                "method": method,
                "method_seconds": best and best["total_seconds"],
            }
            for key in ("n_components", "gram_error", "test_error"):
                row[f"method_{key}"] = best and best[key]
            row["largest_measured"] = row["method_n_components"] == largest
            rows.append(row)
    return rows


def _ratio(entry: Mapping[str, Any], key: str, error_key: str) -> str:
    value, error = entry[key], entry[error_key]
    if value is None:
        return ""
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


_COST_COLUMNS = {
    "method": lambda r: r["method"],
    "Nystroem D": lambda r: count(r["n_components"]),
    "its time": lambda r: seconds(r["seconds"]),
    "its Gram error": lambda r: percent(r["gram_error"]),
    "its test error": lambda r: percent(r["test_error"]),
    "D": lambda r: (
        "none"
        if r["method_n_components"] is None
        else count(r["method_n_components"])
        + (" (all)" if r["largest_measured"] else "")
    ),
    "time": lambda r: seconds(r["method_seconds"]),
    "Gram error": lambda r: percent(r["method_gram_error"]),
    "test error": lambda r: percent(r["method_test_error"]),
}
