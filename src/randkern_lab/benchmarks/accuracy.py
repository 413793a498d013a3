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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern

from ..figures import add_legend, curves, name_axes, panels
from ..options import Names, Sizes, option
from ..process import Stopwatch
from ..runner import Case, SkippedCase, measure_all
from ..scoring import class_targets, misclassified
from ..tables import listing, percent
from .feature_maps import DRAWN, PEERS, STYLES, FeatureMap
from .rows import RowOptions, load_rows, resolved_lengthscale

# Memory limit: a benchmark checks its own needs.
_UNLIMITED = 10**15
_WARM_UP_ROWS = 64
# float32 products over so many columns are summed in float64.
_COLUMNS = 1024
_RANDOM = {n: s for n, s in STYLES.items() if n not in ("Nystroem", "landmarks")}


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench accuracy``."""

    n: int = option(2000, "Training rows at most.", quick=60, least=2)
    n_test: int = option(5000, "Test rows at most.", quick=300, least=2)
    lengthscale: str = option("5", "A number, scale or median.")
    n_components: Sizes = option(
        (196, 392, 784, 1568, 3136), "Numbers of features.", quick=(16, 48, 200)
    )
    alpha: tuple[float, ...] = option(
        (1e-3, 1e-2, 1e-1, 1.0, 10.0),
        "Ridge penalties; one is chosen for each method and number of features, by "
        "leave-one-out on training rows.",
    )
    seeds: int = option(10, "Draws of the features.", quick=2)
    projections: Names = option(DRAWN, "Projections.", among=DRAWN)
    optical: bool = option(True, "Also the optical kernel, plain and centred.")


SKIPPED_BY = ("family", "method", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Measure errors of the Gram matrix and of ridge against D."""
    rows, described = load_rows(options)
    X, classes = rows.X.astype(np.float64), np.unique(rows.y)
    lengthscale = resolved_lengthscale(options.lengthscale, X)
    Y = class_targets(rows.y, classes)

    def test_error(scores: NDArray[Any]) -> float:
        return misclassified(rows.y_test, classes[scores.argmax(axis=1)])

    @cache
    def exact_values(family: str) -> NDArray[Any]:
        named = FeatureMap(family, "dense", lengthscale=lengthscale)
        return np.asarray(named.kernel(X))

    def measure(case: Case) -> Iterator[Case]:
        """Yield the errors and seconds of every draw of a method."""
        family, size, alpha = case["family"], case["n_components"], None
        contender = FeatureMap(
            family,
            case["method"],
            lengthscale=lengthscale,
            centered=case["centered"],
        )
        contender.check(len(X), size)
        few = rows.X[:_WARM_UP_ROWS]
        try:  # compiles what is timed
            Z = contender.build(min(size, len(few)), 0).fit(few).transform(few)
            linear_ridge(Z, options.alpha[-1]).fit(Z, Y[: len(few)])
        except ValueError as error:  # an unsupported distribution or width
            raise SkippedCase(str(error)) from error
        for seed in range(options.seed, options.seed + options.seeds):
            features, watch = contender.build(size, seed), Stopwatch()
            with warnings.catch_warnings():
                # Ignore warnings about Nystroem's float32 and the rank of its sample.
                warnings.simplefilter("ignore", RuntimeWarning)
                features.fit(rows.X)
            fitted = watch.lap().seconds
            Z = features.transform(rows.X)
            transformed, wrong, solved = watch.lap().seconds, None, None
            if family == "gaussian":
                Z_test = features.transform(rows.X_test)
                alpha = alpha or best_alpha(Z, Y, options.alpha)
                watch = Stopwatch()
                wrong = test_error(linear_ridge(Z, alpha).fit(Z, Y).predict(Z_test))
                solved = watch.lap().seconds
            yield {
                "seed": seed,
                "gram_error": gram_error(gram_matrix(Z), exact_values(family)),
                "test_error": wrong,
                "alpha": alpha,
                "fit_seconds": fitted,
                "transform_seconds": transformed,
                "solve_seconds": solved,
            }

    model = randkern.KernelRidgeRegressorCV(
        randkern.Gaussian(lengthscale), options.alpha, None, memory_limit=_UNLIMITED
    ).fit(X, Y)
    exact = {
        "test_error": test_error(model.predict(rows.X_test.astype(np.float64))),
        "alpha": float(model.alpha_),
        "lengthscale": lengthscale,
    }
    drawn = options.projections
    methods = [  # the reference of ratios first
        *(("gaussian", m, False) for m in (*drawn, *PEERS["gaussian"], "landmarks")),
        *(("optical", m, c) for m in drawn * options.optical for c in (False, True)),
        *(("polynomial", m, False) for m in (*drawn, *PEERS["polynomial"])),
    ]
    cases = (
        {"family": f, "method": m, "centered": c, "n_components": size}
        for (f, m, c), size in product(methods, options.n_components)
    )
    records = measure_all(options, cases, measure)
    records.attrs = {"dataset": described, "exact": exact}
    return records


def best_alpha(Z: NDArray[Any], Y: NDArray[Any], alphas: tuple[float, ...]) -> float:
    """Return the penalty with the smallest leave-one-out squared error on Z."""
    model = randkern.KernelRidgeRegressorCV(
        randkern.Linear(), alphas, Z.shape[1], memory_limit=_UNLIMITED
    )
    return float(model.fit(Z, Y).alpha_)


def gram_matrix(Z: NDArray[Any]) -> NDArray[np.float64]:
    """Return ZZᵀ in float64, from products over at most 1,024 columns in Z's dtype."""
    total = np.zeros((len(Z), len(Z)))
    for start in range(0, Z.shape[1], _COLUMNS):
        block = Z[:, start : start + _COLUMNS]
        total += block @ block.T
    return total


def gram_error(G: NDArray[Any], K: NDArray[Any]) -> float:
    """Return the relative Frobenius error of an estimate G of K, off the diagonal.

    The diagonal is exact for some maps: a pair of cosine and sine has norm 1.
    """
    off = ~np.eye(len(K), dtype=bool)
    return float(np.linalg.norm((G - K)[off]) / np.linalg.norm(K[off]))


def linear_ridge(Z: NDArray[Any], alpha: float) -> randkern.KernelRidgeRegressor:
    """Return ridge regression on features, solved by the smaller of two systems."""
    size = Z.shape[1] if Z.shape[1] <= len(Z) else None
    return randkern.KernelRidgeRegressor(
        randkern.Linear(), alpha, size, solver="cholesky", memory_limit=_UNLIMITED
    )


# -- what is shown ---------------------------------------------------------------------


def _described(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the summary by number of features, with names, and errors as texts."""
    own = summary(frame).sort_values("n_components", kind="stable")
    gaussian = own.family == "gaussian"
    centred = np.where(own.centered, ", centred", "")
    lengthscale = f"ℓ = {frame.attrs['exact']['lengthscale']:.4g}"
    return own.assign(
        parameter=np.where(gaussian, lengthscale, "degree 2"),
        kernel=own.family + centred,
        named=own.method + centred,
        filled=gaussian | own.centered,
        error=list(map(percent, own.test_error, own.test_error_std)),
        with_solve=own.total_seconds.where(own.alpha.notna()),
        to_dense=list(map(_with_error, own.ratio_to_dense, own.ratio_se)),
        to_plain=list(map(_with_error, own.ratio_to_plain, own.ratio_to_plain_se)),
    )


def _with_error(value: float, error: float) -> str:
    texts = [f"{number:.3f}" for number in (value, error) if not pd.isna(number)]
    return " ± ".join(texts)


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
    title = (
        f"{data['name']}: {data['n_train']:,} rows of {data['n_features']:,}, "
        f"ℓ = {exact['lengthscale']:.4g}, {described.n_seeds.max()} seeds"
    )
    figure, axes = panels(2 + len(kernels), 3, title=title)
    gaussian = summary(frame).query("family == 'gaussian'")
    curves(axes[0], gaussian, "n_components", "gram_error", STYLES, scale=100.0)
    name_axes(axes[0], "gaussian", ylabel="relative error of the Gram matrix (%)")
    sizes = np.sort(gaussian.n_components.unique()).astype(float)
    first = gaussian[gaussian.n_components == sizes[0]]
    level = 135 * first.gram_error.max() * math.sqrt(sizes[0])
    inverse = level / np.sqrt(sizes)
    axes[0].plot(sizes, inverse, color="0.55", lw=1.0, ls=":", label="1/√D")
    curves(axes[1], gaussian, "n_components", "test_error", STYLES)
    name_axes(axes[1], "gaussian")
    level = 100 * exact["test_error"]
    axes[1].axhline(level, color="0.4", lw=1.0, label="exact kernel")
    styles = {
        (name, filled): replace(style, filled=filled)
        for name, style in _RANDOM.items()
        for filled in (True, False)
    }
    look: Mapping[str, Any] = {"log": "x", "bars": "ratio_se"}
    for place, kernel in zip(axes[2:], kernels, strict=True):
        own, by = described[described.kernel == kernel], ("method", "filled")
        curves(place, own, "n_components", "ratio_to_dense", styles, by, **look)
        label = "Gram error, ratio to plain dense"
        name_axes(place, f"{kernel}, paired", ylabel=label)
    add_legend(figure, "right")
    return figure


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
        test_error=("test_error", "mean"),
        test_error_std=("test_error", "std"),
        features_seconds=("features_seconds", "median"),
        total_seconds=("total_seconds", "median"),
    )
    draws = timed.set_index([*keys, "seed"]).gram_error.rename("a")
    plain = draws.xs(False, level="centered").rename("b")
    dense = plain.xs("dense", level="method")
    for name, error, others in (
        ("ratio_to_dense", "ratio_se", dense),
        ("ratio_to_plain", "ratio_to_plain_se", plain),
    ):
        pairs = draws.reset_index().join(others, on=list(others.index.names))
        if others is plain:
            pairs = pairs[pairs.centered]
        ratios = pairs.dropna(subset="b").groupby(keys)[["a", "b"]].apply(_paired_ratio)
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
