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
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern

from ..figures import add_legend, curves, panels
from ..options import option
from ..process import Stopwatch
from ..runner import Case, SkippedCase, measure_all
from ..scoring import misclassified
from ..tables import listing, percent
from .feature_maps import DRAWN, PEERS, STYLES, FeatureMap
from .rows import RowOptions, Rows, load_rows, resolved_lengthscale

# Memory limit: a benchmark checks its own needs.
_UNLIMITED = 10**15
_WARM_UP_ROWS = 64
# float32 products over so many columns are summed in float64.
_COLUMNS = 1024


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
    projections: tuple[str, ...] = option(DRAWN, "Projections.", among=DRAWN)
    optical: bool = option(True, "Also the optical kernel, plain and centred.")


_RANDOM = {n: s for n, s in STYLES.items() if n not in ("Nystroem", "landmarks")}


def _described(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the summary by number of features, with names, and errors as texts."""
    own = summary(frame).sort_values("n_components", kind="stable")
    gaussian, centred = (
        own.family == "gaussian",
        np.where(own.centered, ", centred", ""),
    )
    lengthscale = f"ℓ = {frame.attrs['exact']['lengthscale']:.4g}"
    ratios = {"to_dense": ("ratio_to_dense", "ratio_se")}
    ratios["to_plain"] = ("ratio_to_plain", "ratio_to_plain_se")
    own = own.astype({name: float for pair in ratios.values() for name in pair})
    return own.assign(
        parameter=np.where(gaussian, lengthscale, "degree 2"),
        kernel=own.family + centred,
        named=own.method + centred,
        filled=gaussian | own.centered,
        error=list(map(percent, own.test_error, own.test_error_std)),
        with_solve=own.total_seconds.where(own.alpha.notna()),
        **{
            name: list(map(_with_error, own[ratio], own[error]))
            for name, (ratio, error) in ratios.items()
        },
    )


def _with_error(value: float, error: float) -> str:
    if value != value:
        return ""
    return f"{value:.3f}" if error != error else f"{value:.3f} ± {error:.3f}"


SKIPPED_BY = ("family", "method", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Measure errors of the Gram matrix and of ridge against D."""
    if not options.alpha:
        raise ValueError("alpha must be positive numbers, got none")
    work, described = Work.loaded(options)
    exact = work.exact()
    optical = options.projections if options.optical else ()
    methods = [
        *(("gaussian", m, False) for m in (*options.projections, *PEERS["gaussian"])),
        ("gaussian", "landmarks", False),
        *(("optical", m, c) for m in optical for c in (False, True)),
        *(
            ("polynomial", m, False)
            for m in (*options.projections, *PEERS["polynomial"])
        ),
    ]  # the reference of ratios first
    sizes = options.n_components
    cases = (
        {"family": f, "method": m, "centered": c, "n_components": size}
        for (f, m, c), size in product(methods, sizes)
    )
    records = measure_all(options, cases, work.measure)
    records.attrs = {"dataset": described, "exact": exact}
    return records


@dataclass(frozen=True)
class Work:
    """Rows, labels as ±1, and the exact kernels' values of the rows."""

    options: Options
    rows: Rows
    lengthscale: float
    references: dict[str, NDArray[np.float64]]

    @classmethod
    def loaded(cls, options: Options) -> tuple["Work", dict[str, Any]]:
        """Load the rows; return also their description."""
        rows, described = load_rows(options)
        X = rows.X.astype(np.float64)
        lengthscale = resolved_lengthscale(options.lengthscale, X)
        return cls(options, rows, lengthscale, {}), described

    @cached_property
    def signs(self) -> NDArray[np.float64]:
        """A column per class: 1 for its rows, −1 for the others."""
        return np.where(self.rows.y[:, None] == np.unique(self.rows.y), 1.0, -1.0)

    def exact(self) -> dict[str, float]:
        """Fit ridge with the exact kernel."""
        model = randkern.KernelRidgeRegressorCV(
            randkern.Gaussian(self.lengthscale),
            self.options.alpha,
            None,
            memory_limit=_UNLIMITED,
        ).fit(self.rows.X.astype(np.float64), self.signs)
        scores = model.predict(self.rows.X_test.astype(np.float64))
        return {
            "test_error": self.error(scores),
            "alpha": float(model.alpha_),
            "lengthscale": self.lengthscale,
        }

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """Return the records of all draws of a method."""
        family, size, X = case["family"], case["n_components"], self.rows.X
        drawn = {"lengthscale": self.lengthscale, "centered": case["centered"]}
        contender = FeatureMap(family, case["method"], **drawn)
        contender.check(len(X), size)
        if family not in self.references:
            exact = contender.kernel(X.astype(np.float64))
            self.references[family] = np.asarray(exact)
        records: list[dict[str, Any]] = []
        alphas, first = self.options.alpha, self.options.seed
        try:
            self.warm_up(contender, size)
            for seed in range(first, first + self.options.seeds):
                records.append(self.draw(contender, size, seed, alphas))
                if records[0]["alpha"] is not None:
                    alphas = (records[0]["alpha"],)
        except ValueError as error:  # an unsupported distribution or width
            raise SkippedCase(str(error)) from error
        return records

    def warm_up(self, contender: FeatureMap, size: int) -> None:
        """Compile the code to be timed."""
        few = self.rows.X[:_WARM_UP_ROWS]
        feature_map = contender.build(min(size, len(few)), 0)
        Z = feature_map.fit(few).transform(few)
        linear_ridge(Z, self.options.alpha[-1]).fit(Z, self.signs[: len(few)])

    def draw(
        self, contender: FeatureMap, size: int, seed: int, alphas: tuple[float, ...]
    ) -> dict[str, Any]:
        """Return the record of one draw."""
        feature_map, watch = contender.build(size, seed), Stopwatch()
        with warnings.catch_warnings():
            # Ignore warnings about Nystroem's float32 and the rank of its sample.
            warnings.simplefilter("ignore", RuntimeWarning)
            feature_map.fit(self.rows.X)
        fitted = watch.lap().seconds
        Z = feature_map.transform(self.rows.X)
        transformed = watch.lap().seconds
        errors = gram_errors(gram_matrix(Z), self.references[contender.family])
        alpha = test_error = solved = None
        if contender.family == "gaussian":
            Z_test = feature_map.transform(self.rows.X_test)
            alpha = _best_alpha(Z, self.signs, alphas)
            watch = Stopwatch()
            scores = linear_ridge(Z, alpha).fit(Z, self.signs).predict(Z_test)
            solved = watch.lap().seconds
            test_error = self.error(scores)
        return {
            "seed": seed,
            "gram_error": errors[0],
            "gram_error_all": errors[1],
            "test_error": test_error,
            "alpha": alpha,
            "fit_seconds": fitted,
            "transform_seconds": transformed,
            "solve_seconds": solved,
        }

    def error(self, scores: NDArray[Any]) -> float:
        """Return the share of wrong labels."""
        predicted = np.unique(self.rows.y)[scores.argmax(axis=1)]
        return misclassified(self.rows.y_test, predicted)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        _described(frame),
        "{family}, {parameter}: {dataset[name]}, {dataset[n_train]:,} rows",
        "D | method | Gram error | ratio to dense | centred / plain | test error | "
        "alpha | features | with solve",
        "{n_components:,} | {named} | {gram_error:percent} | {to_dense} | "
        "{to_plain} | {error} | {alpha:g} | {features_seconds:seconds} | "
        "{with_solve:seconds}",
        "exact Gaussian kernel: test error {exact[test_error]:percent}, alpha "
        "{exact[alpha]:g}; ±: the standard error of a ratio, the standard "
        "deviation over seeds of an error",
        per="family",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors of the Gram matrix and of ridge, and ratios to dense rows."""
    described = _described(frame)
    kernels = list(described.kernel.unique())
    data, exact = frame.attrs["dataset"], frame.attrs["exact"]
    figure, axes = panels(
        2 + len(kernels),
        3,
        title=f"{data['name']}: {data['n_train']:,} rows of "
        f"{data['n_features']:,}, ℓ = {exact['lengthscale']:.4g}, "
        f"{described.n_seeds.max()} seeds",
    )
    gaussian = summary(frame).query("family == 'gaussian'")
    curves(
        axes[0],
        gaussian,
        "n_components",
        "gram_error",
        STYLES,
        title="gaussian",
        ylabel="relative error of the Gram matrix (%)",
        scale=100.0,
    )
    sizes = np.sort(gaussian.n_components.unique()).astype(float)
    first = gaussian[gaussian.n_components == sizes[0]]
    level = 135 * first.gram_error.max() * math.sqrt(sizes[0])
    inverse = level / np.sqrt(sizes)
    axes[0].plot(sizes, inverse, color="0.55", lw=1.0, ls=":", label="1/√D")
    curves(axes[1], gaussian, "n_components", "test_error", STYLES, title="gaussian")
    level = 100 * exact["test_error"]
    axes[1].axhline(level, color="0.4", lw=1.0, label="exact kernel")
    for place, kernel in zip(axes[2:], kernels, strict=True):
        curves(
            place,
            described[described.kernel == kernel],
            "n_components",
            "ratio_to_dense",
            {
                (name, filled): replace(style, filled=filled)
                for name, style in _RANDOM.items()
                for filled in (True, False)
            },
            ("method", "filled"),
            title=f"{kernel}, paired",
            ylabel="Gram error, ratio to plain dense",
            log="x",
            bars="ratio_se",
        )
    add_legend(figure, "right")
    return figure


def _best_alpha(Z: NDArray[Any], Y: NDArray[Any], alphas: tuple[float, ...]) -> float:
    """Return the penalty with the smallest leave-one-out squared error on Z."""
    if len(alphas) == 1:
        return float(alphas[0])
    model = randkern.KernelRidgeRegressorCV(
        randkern.Linear(), alphas, Z.shape[1], memory_limit=_UNLIMITED
    )
    return float(model.fit(Z, Y).alpha_)


# -- scores and summaries --------------------------------------------------------------


def gram_matrix(Z: NDArray[Any]) -> NDArray[np.float64]:
    """Return ZZᵀ in float64, from products over at most 1,024 columns in Z's dtype."""
    total = np.zeros((len(Z), len(Z)))
    for start in range(0, Z.shape[1], _COLUMNS):
        block = Z[:, start : start + _COLUMNS]
        total += block @ block.T
    return total


def gram_errors(G: NDArray[Any], K: NDArray[Any]) -> tuple[float, float]:
    """Return the relative Frobenius error of an estimate G of K.

    The first is of the entries off the diagonal, which is exact for some maps: a pair
    of cosine and sine has norm 1. The second is of all entries.
    """
    squares, reference = np.square(G - K), np.square(K)
    overall = squares.sum() / reference.sum()
    np.fill_diagonal(squares, 0.0)
    np.fill_diagonal(reference, 0.0)
    off_diagonal = squares.sum() / reference.sum()
    return float(np.sqrt(off_diagonal)), float(np.sqrt(overall))


def linear_ridge(Z: NDArray[Any], alpha: float) -> randkern.KernelRidgeRegressor:
    """Return ridge regression on features, solved by the smaller of two systems."""
    size = Z.shape[1] if Z.shape[1] <= len(Z) else None
    return randkern.KernelRidgeRegressor(
        randkern.Linear(), alpha, size, solver="cholesky", memory_limit=_UNLIMITED
    )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one entry per family, method and number of features.

    It has means over seeds of errors, and their standard deviations (``_std``); medians
    of ``features_seconds`` (fit and transform) and ``total_seconds`` (including solve);
    ``ratio_to_dense`` of the off-diagonal Gram errors, None if dense was not run; for
    centred features ``ratio_to_plain``, with the same projection.
    """
    keys = ["family", "method", "centered", "n_components"]
    numbers = ["alpha", "test_error", "solve_seconds"]
    timed = frame.astype(dict.fromkeys(numbers, float))
    timed["features_seconds"] = timed.fit_seconds + timed.transform_seconds
    timed["total_seconds"] = timed.features_seconds + timed.solve_seconds.fillna(0)
    means = timed.groupby(keys, sort=False).agg(
        n_seeds=("seed", "size"),
        alpha=("alpha", "first"),
        gram_error=("gram_error", "mean"),
        gram_error_all=("gram_error_all", "mean"),
        test_error=("test_error", "mean"),
        gram_error_std=("gram_error", "std"),
        test_error_std=("test_error", "std"),
        features_seconds=("features_seconds", "median"),
        total_seconds=("total_seconds", "median"),
    )
    draws = timed.set_index([*keys, "seed"]).gram_error
    dense = draws.xs("dense", level="method").xs(False, level="centered")
    plain = draws.xs(False, level="centered")
    for name, error, others, centred in (
        ("ratio_to_dense", "ratio_se", dense, (False, True)),
        ("ratio_to_plain", "ratio_to_plain_se", plain, (True,)),
    ):
        pairs = (
            draws.rename("a")
            .reset_index()
            .join(others.rename("b"), on=list(others.index.names))
        )
        pairs = pairs[pairs.centered.isin(centred)].dropna(subset="b")
        ratios = pairs.groupby(keys)[["a", "b"]].apply(_paired_ratio)
        means[[name, error]] = ratios.reindex(means.index)
    means.attrs = frame.attrs
    return means.reset_index()


def _paired_ratio(pairs: pd.DataFrame) -> pd.Series:
    """Return the ratio r = ā/b̄ of two means over seeds, and its standard error.

    This is that of the mean of (a_s − r b_s)/b̄ over the seeds s (delta method for
    pairs), missing for a single seed.
    """
    ratio = pairs.a.mean() / pairs.b.mean()
    residual = (pairs.a - ratio * pairs.b) / pairs.b.mean()
    return pd.Series({"ratio": ratio, "error": residual.sem()})
