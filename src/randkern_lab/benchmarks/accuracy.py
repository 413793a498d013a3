"""The approximation error of features, and its effect on a classifier.

Every projection, our landmarks, and scikit-learn's ``RBFSampler`` and ``Nystroem`` use
the same number of columns, the same rows and the same seeds. Gram errors are those of
the training rows. The classifier is ridge regression onto ±1 labels without an
intercept, solved in float64; its penalty is chosen per method and number of features by
the leave-one-out error of the first seed (with one penalty for all, random features
suffer most where D is near n). For the optical kernel of degree 2, plain and centred,
and the polynomial kernel of degree 2 against ``PolynomialCountSketch``, only Gram
errors are measured.
"""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern

from ..options import option
from ..panels import Panel, Style, draw
from ..runner import Case, Experiment, SkippedCase
from ..tables import Column, TextTable, listing, percent, seconds, skip_notes
from .contenders import PEERS, Contender, known_projections
from .rows import STYLES, RowOptions, load_rows, parse_lengthscale
from .scores import gram_errors, gram_matrix, ridge_scores
from .summaries import summarise

__all__ = ["Accuracy", "Options"]

# Memory limit: a benchmark checks its own needs.
_UNLIMITED = 10**15
_WARM_UP_ROWS = 64


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench accuracy``."""

    n: int = option(2000, "Training rows at most.", quick=60, least=2)
    n_test: int = option(5000, "Test rows at most.", quick=300, least=2)
    lengthscale: str = option("5", "A number, scale or median.")
    n_components: tuple[int, ...] = option(
        (196, 392, 784, 1568, 3136), "Numbers of features.", quick=(16, 48, 200)
    )
    alpha: tuple[float, ...] = option(
        (1e-3, 1e-2, 1e-1, 1.0, 10.0),
        "Ridge penalties; one is chosen for each method and number of features, by "
        "leave-one-out on training rows.",
    )
    seeds: int = option(10, "Draws of the features.", quick=2)
    projections: tuple[str, ...] | None = option(
        None, "Comma-separated projections; default: all there are."
    )
    optical: bool = option(True, "Also the optical kernel, plain and centred.")


class Accuracy(Experiment):
    """Errors of the Gram matrix and of ridge against D."""

    name = "accuracy"
    title = "Error of the Gram matrix and of ridge against D: all projections, peers."
    command = "bench"
    Options = Options

    def prepare(self) -> dict[str, Any]:
        """Load the rows and fit ridge with the exact kernel."""
        options = self.options
        self.projections = known_projections(options.projections)
        if not options.alpha:
            raise ValueError("alpha must be positive numbers, got none")
        self.rows = load_rows(options)
        kernel = randkern.Gaussian(parse_lengthscale(options.lengthscale))
        X = self.rows.X_train.astype(np.float64)
        self.lengthscale = float(kernel.resolve(X, random_state=0).lengthscale)
        self.classes = np.unique(self.rows.y_train)
        self.Y = np.where(self.rows.y_train[:, None] == self.classes, 1.0, -1.0)
        self.references: dict[str, NDArray[np.float64]] = {}
        kernel = Contender("gaussian", "", "", lengthscale=self.lengthscale).kernel(0)
        model = randkern.KernelRidgeRegressorCV(
            kernel, options.alpha, None, memory_limit=_UNLIMITED
        )
        scores = model.fit(X, self.Y).predict(self.rows.X_test.astype(np.float64))
        self.exact = {
            "test_error": self._error(scores),
            "alpha": float(model.alpha_),
            "lengthscale": self.lengthscale,
        }
        return self.rows.description

    def cases(self) -> Iterator[Case]:
        """Return methods, the reference of ratios first, and their sizes."""
        methods = [("gaussian", name, False) for name in self.projections]
        methods += [
            ("gaussian", name, False) for name in (*PEERS["gaussian"], "landmarks")
        ]
        if self.options.optical:
            methods += [
                ("optical", name, centered)
                for name in self.projections
                for centered in (False, True)
            ]
        names = (*self.projections, *PEERS["polynomial"])
        methods += [("polynomial", name, False) for name in names]
        for family, method, centered in methods:
            named = {"family": family, "method": method, "centered": centered}
            for size in sorted(set(self.options.n_components)):
                yield {**named, "n_components": size}

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """Return the records of all seeds."""
        family, method, size = case["family"], case["method"], case["n_components"]
        package = PEERS[family].get(method, "randkern")
        contender = Contender(
            *(family, package, method),
            lengthscale=self.lengthscale,
            centered=case["centered"],
        )
        X = self.rows.X_train
        reason = contender.why_not(len(X), size)
        if reason is not None:
            raise SkippedCase(reason)
        if family not in self.references:
            exact = contender.kernel(X.shape[1])(X.astype(np.float64))
            self.references[family] = np.asarray(exact)
        records: list[dict[str, Any]] = []
        alphas = self.options.alpha
        try:
            self._warm_up(contender, size)
            for repeat in range(self.options.seeds):
                seed = self.options.seed + repeat
                records.append(self._draw(contender, size, seed, alphas))
                if records[0]["alpha"] is not None:
                    alphas = (records[0]["alpha"],)
        except ValueError as error:  # an unsupported law or width
            raise SkippedCase(str(error)) from error
        return records

    def _warm_up(self, contender: Contender, size: int) -> None:
        """Compile the code to be timed."""
        few = self.rows.X_train[:_WARM_UP_ROWS]
        feature_map = contender.build(few.shape[1], min(size, len(few)), 0)
        Z = feature_map.fit(few).transform(few)
        ridge_scores(Z, self.Y[: len(few)], Z, self.options.alpha[-1])

    def _draw(
        self, contender: Contender, size: int, seed: int, alphas: tuple[float, ...]
    ) -> dict[str, Any]:
        """Return the record of one draw."""
        X = self.rows.X_train
        feature_map = contender.build(X.shape[1], size, seed)
        start = time.perf_counter()
        with warnings.catch_warnings():
            # Ignore warnings about Nystroem's float32 and the rank of its sample.
            warnings.simplefilter("ignore", RuntimeWarning)
            feature_map.fit(X)
        fitted = time.perf_counter()
        Z = feature_map.transform(X)
        transformed = time.perf_counter()
        G = gram_matrix(Z)
        off_diagonal, overall = gram_errors(G, self.references[contender.family])
        record: dict[str, Any] = {
            "seed": seed,
            "gram_error": off_diagonal,
            "gram_error_all": overall,
            **{"test_error": None, "alpha": None},
            "fit_seconds": fitted - start,
            "transform_seconds": transformed - fitted,
            "solve_seconds": None,
        }
        if contender.family == "gaussian":
            Z_test = feature_map.transform(self.rows.X_test)
            record["alpha"] = alpha = _best_alpha(Z, self.Y, alphas)
            start = time.perf_counter()
            scores = ridge_scores(Z, self.Y, Z_test, alpha)
            record["solve_seconds"] = time.perf_counter() - start
            record["test_error"] = self._error(scores)
        return record

    def _error(self, scores: NDArray[Any]) -> float:
        """Return the share of misclassified test rows."""
        predicted = self.classes[scores.argmax(axis=1)]
        return float(np.mean(predicted != self.rows.y_test))

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return means over seeds."""
        named = results["arguments"]
        summary = summarise(results["records"])
        return {
            "arguments": named
            | {"alphas": named["alpha"], "n_seeds": named["seeds"]}
            | {"projections": self.projections},
            "exact": self.exact,
            "summary": summary,
        }

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return the skipped methods."""
        return skip_notes(results, "family", "method", "n_components")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return a table per kernel: errors, ratio to dense, seconds."""
        data, exact = results["dataset"], results["exact"]
        columns: dict[str, Column] = {
            "D": ("n_components", ","),
            "method": lambda e: e["method"] + (", centred" if e["centered"] else ""),
            "Gram error": ("gram_error", percent),
            "ratio to dense": lambda e: _with_error(e["ratio_to_dense"], e["ratio_se"]),
            "centred / plain": lambda e: _with_error(
                e["ratio_to_plain"], e["ratio_to_plain_se"]
            ),
            "test error": lambda e: percent(e["test_error"], e["test_error_std"]),
            "alpha": ("alpha", "g"),
            "features": ("features_seconds", seconds),
            "with solve": lambda e: seconds(e["total_seconds"] if e["alpha"] else None),
        }
        titles = {
            "gaussian": f"gaussian, ℓ = {exact['lengthscale']:.4g}",
            "optical": "optical, degree 2",
            "polynomial": "polynomial, degree 2",
        }
        caption = (
            f"exact Gaussian kernel: test error {percent(exact['test_error'])}, alpha "
            f"{exact['alpha']:g}; ±: the standard error of a ratio, the standard "
            "deviation over seeds of an error"
        )
        summary = sorted(results["summary"], key=lambda entry: entry["n_components"])
        tables = []
        for family, title in titles.items():
            own = [entry for entry in summary if entry["family"] == family]
            title += f": {data['name']}, {data['n_train']:,} rows"
            if own:
                tables.append(listing(title, own, columns, caption))
        return tables

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return errors against D."""
        methods = dict.fromkeys(entry["method"] for entry in results["summary"])
        styles = {name: STYLES.get(name, Style(name)) for name in methods}
        random = {n: s for n, s in styles.items() if n not in ("Nystroem", "landmarks")}
        gaussian = {"family": "gaussian"}
        shared: dict[str, Any] = {"records": "summary", "scale": 100.0}
        curve: dict[str, Any] = {"x": "n_components", "records": "summary"}
        panels = [
            Panel(
                **curve | shared, y="gram_error", styles=styles, where=gaussian,
                title="Gaussian", ylabel="relative error of the Gram matrix (%)",
                extra=_inverse_root,
            ),
            Panel(
                **curve, y="ratio_to_dense", styles=random, where=gaussian, log="x",
                bars="ratio_se", title="Gaussian, paired",
                ylabel="Gram error, ratio to dense",
            ),
            Panel(
                **curve | shared, y="test_error", styles=styles, where=gaussian,
                title="Gaussian", extra=_exact_level,
            ),
        ]  # fmt: skip
        panels += _other_kernels(results["summary"], random)
        data = results["dataset"]
        title = (
            f"{data['name']}: {data['n_train']:,} rows of {data['n_features']:,}, "
            f"ℓ = {results['exact']['lengthscale']:.4g}, "
            f"{results['arguments']['n_seeds']} seeds"
        )
        return draw(results, panels, columns=3, title=title, legend="right")


def _other_kernels(
    summary: Sequence[Mapping[str, Any]], styles: Mapping[str, Style]
) -> Iterator[Panel]:
    """Yield ratios of Gram errors to plain dense features for other kernels."""
    named = [(e["family"], e["centered"]) for e in summary]
    for family, centered in dict.fromkeys(named):
        if family != "gaussian":
            yield Panel(
                *("n_components", "ratio_to_dense", "method"),
                {name: replace(s, filled=centered) for name, s in styles.items()},
                {"family": family, "centered": centered},
                title=f"{family}{', centred' if centered else ''}, paired",
                ylabel="Gram error, ratio to plain dense",
                log="x",
                bars="ratio_se",
                records="summary",
            )


def _best_alpha(Z: NDArray[Any], Y: NDArray[Any], alphas: tuple[float, ...]) -> float:
    """Return the penalty with the smallest leave-one-out squared error on Z."""
    if len(alphas) == 1:
        return float(alphas[0])
    model = randkern.KernelRidgeRegressorCV(
        randkern.Linear(), alphas, Z.shape[1], memory_limit=_UNLIMITED
    )
    return float(model.fit(Z, Y).alpha_)


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def _inverse_root(axes: Any, results: Mapping[str, Any]) -> None:
    """Draw 1/√D above the curves."""
    own = [e for e in results["summary"] if e["family"] == "gaussian"]
    sizes = np.array(sorted({e["n_components"] for e in own}), dtype=float)
    first = [e["gram_error"] for e in own if e["n_components"] == sizes[0]]
    level = 135 * max(first) * math.sqrt(sizes[0])
    axes.plot(sizes, level / np.sqrt(sizes), color="0.55", lw=1.0, ls=":", label="1/√D")


def _exact_level(axes: Any, results: Mapping[str, Any]) -> None:
    level = 100 * results["exact"]["test_error"]
    axes.axhline(level, color="0.4", lw=1.0, label="exact kernel")
