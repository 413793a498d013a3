"""Learning with features of skeletons: whether structure helps, and how many features.

Daniely, Frostig, Gupta and Singer (2017), Theorem 5.

The original. For a Lipschitz loss and a regularised linear predictor on q
norm-efficient features, the risk exceeds that of the kernel by at most a constant
factor of its own O(√(M²/n)) if q is proportional to n. This is a theorem; nothing is
measured.

Here. ``features`` is the test error of ridge on linear, shallow and deep skeletons (a
linear node; one ReLU node over all pixels; two convolutions of 5 × 5 and stride 2 and a
full connection, ReLU) and on Gaussian features, against D, and of the kernels
themselves. ``growth`` is the error of the shallow and deep skeletons against n with
D = √n, n/4, n/2 and n, three draws each, for a support vector machine (hinge loss) and
logistic regression, both Lipschitz, compared to the kernels on the same rows: D
proportional to n is the theorem's regime, √n is less. A feature matrix has at most
``--entries``, by default 16 million, so that n ends at 4,000 for D = n and at 50,000
for D = √n; 100 million entries allow n = 10,000. These are shares of wrong labels, at
penalties chosen by validation.

``risk`` is what the theorem bounds. For a loss of Lipschitz constant 1, q draws of a
norm-efficient scheme, any f* of norm at most M and the penalty λ = √2/(M√n), bound (8)
is E L(f) ≤ L(f*) + M(√(8/n) + √(1/q)), over rows and draws. Here f* is the hinge
machine with the kernel on all ``--n`` rows, at the C chosen by validation, and M its
norm; f are machines on features of n rows at that λ, which is C = M/√(8n). Losses are
means over the test rows and the classes, which have a machine each, and M is the
largest of their norms. Two columns are one draw: q = D/2.

Deviations.

- f* has seen the rows that f is fitted to, and more; losses are those of test rows.
- Square loss is not Lipschitz: ridge is included for comparison. Its fits are the
  library's default, direct below 3,000 columns (for ten classes) and for more columns
  than rows. Otherwise, as for D = n and the exact kernel at n = 4,000, conjugate
  gradients stop when the loss is within 2 % of the labels' variance of its minimum;
  n/4 and n/2 are direct there.
- Penalties are chosen with the first draw for every n, D and loss, on a fifth of at
  most 3,000 rows, not by the theorem; all classes share one. Above 3,000 rows the
  penalty is that of 3,000 rows, 2,400 of them fitted, and the same D: more rows may
  need another one.
- Ridge tries all penalties. For the other losses C ascends from 0.1 until the
  validation error rises for the first time. It is that of 100 (n = 500) to 600 rows, so
  that chance can end the search, and larger values that are better are not seen.
- Kernels are fitted as linear models on the rows of the Cholesky factor of their Gram
  matrix, which have the same inner products, so that all n and losses share one matrix
  of ``--n`` rows; its full time is counted for each.
- Standard errors of the gaps are those of the test rows, as if features and kernel
  erred independently. They err on the same rows: the true standard errors are smaller,
  except for the variation between draws.
- CIFAR-10 is cropped to 24 × 24; pixels are angles; test rows are a sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.linalg
from numpy.typing import NDArray

import randkern

from ..figures import DASHED, DOTTED, Style, curves, name_axes, panels
from ..options import Names, Sizes, option
from ..process import Stopwatch
from ..runner import Case, measure_all
from ..scoring import fit_and_score, held_out_error, misclassified
from ..tables import at_edges, count, edge_notes, pivot
from .images import CircleImageOptions, Images, build_skeleton, load_circle_images

CURVES = {
    "gaussian": Style("gaussian", "black"),
    "linear": Style("linear", "grey", "v", DOTTED),
    "shallow": Style("shallow", "red", "^", DASHED),
    "deep": Style("deep", "blue", "s"),
}
EXACT, GROWING = ("gaussian", "shallow", "deep"), ("shallow", "deep")
RATIOS = {
    "sqrt": lambda n: n**0.5,
    "1/4": lambda n: n / 4,
    "1/2": lambda n: n / 2,
    "1": lambda n: n,
}
# Of each ratio of D and n, and of kernels.
_REGIMES = {
    "sqrt": Style("D = √n", "grey", "v", DOTTED),
    "1/4": Style("D = n·1/4", "sky", "^", DASHED),
    "1/2": Style("D = n·1/2", "green", "o", "-."),
    "1": Style("D = n", "red", "s", (0, (6, 1))),
    "exact": Style("exact", "black", "X"),
}
LOSSES = ("ridge", "svc", "logistic")
MEASURES = ("features", "growth", "risk")
_ALPHAS = np.logspace(-5, 2, 15)
_CS = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)  # ascending, until the error rises
_LENGTHSCALES = (0.5, 1.0, 2.0)  # of the Gaussian kernel, in units of the data's scale
_SEARCH_ROWS, _VALIDATION, _SEARCH_COMPONENTS = 3000, 0.2, 1000
_COMPILED = 20  # features drawn before any are timed
_MIN_ROWS = 30  # a fifth of them choose the penalty

Matrix = NDArray[Any]


@dataclass(frozen=True)
class Options(CircleImageOptions):
    """Options of ``randkern reproduce compositional-structure``."""

    n: int = option(
        4000,
        "Training rows of the features, and most of the kernels.",
        quick=240,
        least=_MIN_ROWS,
    )
    n_test: int = option(4000, "Test rows.", quick=200)
    n_components: Sizes = option(
        (1000, 5000, 20_000), "Numbers of features.", quick=(50, 200)
    )
    growth: Sizes = option(
        (500, 1000, 2000, 4000, 8000, 16_000, 50_000),
        "Training rows of the growth.",
        quick=(120, 240),
        least=_MIN_ROWS,
    )
    seeds: int = option(3, "Draws of the features of the growth.", quick=1)
    measures: Names = option(MEASURES, "", among=MEASURES)
    grown: Names = option(GROWING, "Skeletons of the growth.", among=GROWING)
    losses: Names = option(LOSSES, "Losses of the growth.", among=LOSSES)
    entries: int = option(16_000_000, "Most entries of a feature matrix of the growth.")


class _Drawn(NamedTuple):
    """Features of training and test rows, and the seconds that each took."""

    Z: Matrix
    Z_test: Matrix
    fit_seconds: float
    predict_seconds: float


@dataclass(frozen=True)
class Work:
    """Images and kernels; factors of these, and machines, are made on first use."""

    options: Options
    images: Images
    kernels: dict[str, Any]
    factors: dict[str, _Drawn]
    machines: dict[str, tuple[float, float]]  # hinge losses of kernels, and norms

    def draw(self, curve: str, size: int | None, n: int, seed: int) -> _Drawn:
        """Return features of training and test rows, or the kernel's own for None."""
        if size is None:
            factor = self.factor(curve)
            return factor._replace(Z=factor.Z[:n, :n], Z_test=factor.Z_test[:, :n])
        watch = Stopwatch()
        features = randkern.RandomFeatures(
            self.kernels[curve], size, random_state=seed
        ).fit(self.images.X_train[:2])
        Z = features.transform(self.images.X_train[:n])
        fit = watch.lap().seconds
        Z_test = features.transform(self.images.X_test)
        return _Drawn(Z, Z_test, fit, watch.lap().seconds)

    def factor(self, curve: str) -> _Drawn:
        """Return rows whose inner products are the kernel's values, factored once."""
        if curve not in self.factors:
            X, kernel = self.images.X_train[: self.options.n], self.kernels[curve]
            watch = Stopwatch()
            K = np.asarray(kernel(X), dtype=np.float64)
            jitter = 1e-9 * K.diagonal().max()
            K[np.diag_indices_from(K)] += jitter
            L = np.linalg.cholesky(K)
            fit = watch.lap().seconds
            K_test = np.asarray(kernel(self.images.X_test, X), dtype=np.float64)
            Z_test = scipy.linalg.solve_triangular(L, K_test.T, lower=True).T
            Z_test = np.ascontiguousarray(Z_test)
            self.factors[curve] = _Drawn(L, Z_test, fit, watch.lap().seconds)
        return self.factors[curve]

    def machine(self, curve: str) -> tuple[float, float]:
        """Return the hinge loss of the kernel's machine on all rows, and its norm."""
        if curve not in self.machines:
            exact, y = self.factor(curve), self.images.y_train[: self.options.n]
            C, _ = self.choose("svc", exact.Z)
            machine = _model("svc", C, exact.Z).fit(exact.Z, y)
            loss = _hinge_loss(machine, exact.Z_test, self.images.y_test)
            self.machines[curve] = loss, 1 / float(machine.margin_.min())
        return self.machines[curve]

    def choose(self, loss: str, Z: Matrix) -> tuple[float, float]:
        """Return the penalty with the smallest validation error, and this.

        Ties are resolved in favour of the strongest regularisation.
        """
        n = min(len(Z), _SEARCH_ROWS)
        held, y = int(n * _VALIDATION), self.images.y_train[:n]
        fitted = Z[held:n]
        if loss == "ridge":
            size = Z.shape[1] if Z.shape[1] <= len(fitted) else None
            linear, strongest_first = randkern.Linear(), _ALPHAS[::-1].tolist()
            error, alpha = held_out_error(linear, strongest_first, size, Z[:n], y, held)
            return alpha, error
        chosen, least = _CS[0], float("inf")
        for C in _CS:
            model = _model(loss, C, fitted).fit(fitted, y[held:])
            error = misclassified(y[:held], model.predict(Z[:held]))
            if error > least:
                break
            if error < least:
                chosen, least = C, error
        return chosen, least

    def measure(self, case: Case) -> Iterator[Case]:
        """Choose penalties with the first draw, then fit and score every draw."""
        size, n, first = case["n_components"], case["n_train"], self.options.seed
        grows = case["measure"] != "features"
        several = self.options.seeds if grows and size is not None else 1
        y, chosen = self.images.y_train[:n], dict[str, tuple[float, float]]()
        for seed in range(first, first + several):
            drawn = self.draw(case["curve"], size, n, seed)
            if case["measure"] == "risk":
                yield {"seed": seed, **self.risk(case["curve"], drawn, y)}
                continue
            for loss in self.options.losses if grows else LOSSES[:1]:
                if loss not in chosen:
                    chosen[loss] = self.choose(loss, drawn.Z)
                model = _model(loss, chosen[loss][0], drawn.Z)
                rows = drawn.Z, y, drawn.Z_test, self.images.y_test
                trial = fit_and_score(model, *rows)
                outcome = getattr(model, "solution_", None)
                yield {
                    "seed": seed,
                    **_chosen(loss, *chosen[loss]),
                    "test_error": trial.score,
                    "fit_seconds": drawn.fit_seconds + trial.fit.seconds,
                    "predict_seconds": drawn.predict_seconds + trial.predict.seconds,
                    "outcome": outcome.outcome.name.lower() if outcome else "converged",
                }

    def risk(self, curve: str, drawn: _Drawn, y: NDArray[Any]) -> Case:
        """Return the excess hinge loss of features, beside bound (8) of Theorem 5."""
        (least, norm), (n, size) = self.machine(curve), drawn.Z.shape
        C = norm / (8 * n) ** 0.5
        model = _model("svc", C, drawn.Z).fit(drawn.Z, y)
        loss = _hinge_loss(model, drawn.Z_test, self.images.y_test)
        return {
            **{"loss": "hinge", "alpha": 1 / C, "at_edge": [], "norm": norm},
            **{"risk": loss, "kernel_risk": least, "excess": loss - least},
            "bound": norm * ((8 / n) ** 0.5 + (2 / size) ** 0.5),
        }


SKIPPED_BY = ("data", "curve", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Measure features against D, and growth with n, on one set of images."""
    images = load_circle_images(
        options.data,
        options.data_dir,
        n_train=max(options.n, *options.growth),
        n_test=options.n_test,
        seed=options.seed,
    )
    kernels: dict[str, Any] = {
        curve: randkern.Compositional(build_skeleton(curve, images.shape))
        for curve in ("linear", "shallow", "deep")
    }
    work = Work(options, images, kernels, {}, {})
    own = randkern.Gaussian("scale").resolve(images.X_train).lengthscale
    errors = {}
    for value in (float(own * multiple) for multiple in _LENGTHSCALES):
        kernels["gaussian"] = randkern.Gaussian(value)
        drawn = work.draw("gaussian", _SEARCH_COMPONENTS, options.n, options.seed)
        _, errors[value] = work.choose("ridge", drawn.Z)
    lengthscale = min(errors, key=lambda value: errors[value])
    kernels["gaussian"] = randkern.Gaussian(lengthscale)
    for curve in CURVES:  # compiles
        work.draw(curve, _COMPILED, options.n, options.seed)
    rows = len(images.X_train)
    records = measure_all(options, _cases(options, images.name, rows), work.measure)
    described = images.describe() | {"n_train": min(options.n, rows)}
    sets = {images.name: described}
    records.attrs["dataset"] = {"name": images.name, "sets": sets}
    records.attrs["lengthscales"] = {images.name: lengthscale}
    return records


def _cases(options: Options, data: str, rows: int) -> Iterator[Case]:
    """Yield features by D, the kernels, and what grows with n."""
    most, sizes = min(options.n, rows), options.n_components

    def case(measure: str, curve: str, size: int | None, n: int) -> Case:
        named = {"measure": measure, "data": data, "curve": curve}
        return {**named, "n_components": size, "n_train": n}

    for curve in CURVES if "features" in options.measures else ():
        for size in (*sizes, None) if curve in EXACT else sizes:
            yield case("features", curve, size, most)
    for measure in options.measures:
        if measure == "features":
            continue
        # A draw has two columns, and kernels have at most ``--n`` rows.
        even, limit = (1, rows) if measure == "growth" else (2, most)
        grown = sorted({min(n, limit) for n in options.growth})
        for n, curve in product(grown, options.grown):
            for ratio, of_rows in RATIOS.items():
                size = max(2, even * round(of_rows(n) / even))
                if n * size <= options.entries:
                    yield case(measure, curve, size, n) | {"ratio": ratio}
            if measure == "growth" and n <= options.n:
                yield case(measure, curve, None, n) | {"ratio": None}


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    growth = of_measure(frame, "growth")
    gaps = growth_gaps(frame) if len(growth) else growth
    yield from pivot(
        frame.query("measure == 'features'"),
        "{data}, {n_train:,} training rows: test error in % (s of fit)",
        ("n_components", "n_train"),
        "curve",
        "{test_error:.2p} ({fit_seconds:.1f})",
    )
    title = "{data}, {loss}: D as a function of n, and exact kernels: test error in %"
    yield from pivot(
        growth, title, "n_train", "{curve}, {regime}", "{test_error:.2p}", per="loss"
    )
    yield from pivot(
        gaps[gaps.n_train == gaps.n_train.max()],
        "{data}: error of features minus that of the exact kernel at n = "
        "{n_train:,}, in points (standard error of the test rows)",
        ("loss", "curve"),
        "ratio",
        "{difference:+.1p} ({standard_error:.1p})",
        headings={ratio: _REGIMES[ratio].label for ratio in RATIOS},
        corner="loss, skeleton",
        label=lambda loss, curve: f"{loss}, {curve}",
    )
    yield from pivot(
        of_measure(frame, "risk"),
        "{data}: excess hinge loss of features over the kernel's machine / bound (8)",
        "n_train",
        "{curve}, {regime}",
        "{excess:.3f} / {bound:.2f}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return ridge against D, and errors against n for each loss and skeleton."""
    growth, risk = of_measure(frame, "growth"), of_measure(frame, "risk")
    features = frame.query("measure == 'features'")
    losses = list(growth.loss.unique())
    skeletons = [c for c in GROWING if (growth.curve == c).any()]
    bounded = [c for c in GROWING if (risk.curve == c).any()]
    n = (len(features) > 0) + len(losses) * len(skeletons) + len(bounded)
    columns = (len(features) > 0) + len(losses) or 1
    figure, axes = panels(n, columns, (3.8, 3.6))
    places = iter(axes)
    if len(features):
        place = next(places)
        curves(place, features, "n_components", "test_error", CURVES, "curve", log="x")
        name_axes(place, f"{features.data.iloc[0]}: ridge")
        low, high = place.get_ylim()
        place.set_ylim(top=high + 0.4 * (high - low))
        place.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)
    styles = {style.label: style for style in _REGIMES.values()}
    for skeleton, loss in product(skeletons, losses):
        place = next(places)
        own = growth[(growth.curve == skeleton) & (growth.loss == loss)]
        curves(place, own, "n_train", "test_error", styles, "regime", bars="spread")
        name_axes(place, f"{skeleton}, {loss}: D grows with n")
    if len(growth):
        last = axes[n - len(bounded) - 1].get_legend_handles_labels()
        figure.legend(*last, loc="outside lower center", ncols=5, frameon=False)
    both = {}
    for name, style in styles.items():
        both[name, "excess"] = replace(style, dashes="-")
        both[name, "bound"] = replace(style, label="", marker="", dashes=DASHED)
    by = ("regime", "kind")
    for place, skeleton in zip(places, bounded, strict=True):
        own = risk[risk.curve == skeleton]
        own = own.melt(["n_train", "regime"], ["excess", "bound"], "kind")
        curves(place, own, "n_train", "value", both, by, bars="spread")
        title = f"{skeleton}, hinge loss (dashed: bound (8))"
        name_axes(place, title, ylabel="excess risk")
        place.legend(frameon=False, fontsize=8)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for data, lengthscale in frame.attrs["lengthscales"].items():
        yield (
            f"{data}: lengthscale {lengthscale:.3g} of the Gaussian kernel; penalties "
            "of features and growth by validation"
        )
    yield from _edge_notes(frame)


def _chosen(loss: str, penalty: float, error: float) -> Case:
    """Return a penalty, α for ridge and C for the others, as keys of a record."""
    name, tried = ("alpha", _ALPHAS) if loss == "ridge" else ("C", _CS)
    return {
        "loss": loss,
        "alpha": penalty if loss == "ridge" else 1 / penalty,
        "at_edge": at_edges({name: penalty}, {name: tried}),
        "validation_error": error,
    }


def of_measure(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the records of growth or risk, with their regime."""
    # Also of no records.
    columns = ["measure", "curve", "n_train", "loss", "ratio"]
    records = frame.reindex(columns=[*dict.fromkeys([*columns, *frame])])
    records = records[records.measure == measure]
    return records.assign(regime=[_regime(ratio) for ratio in records.ratio])


def _regime(ratio: Any) -> str:
    return _REGIMES["exact" if pd.isna(ratio) else ratio].label


def _hinge_loss(machine: Any, Z: Matrix, y: Any) -> float:
    """Return the mean hinge loss over rows and classes."""
    signs = 2.0 * (y[:, None] == machine.classes_) - 1
    margins = signs * machine.decision_function(Z)
    return float(np.maximum(0, 1 - margins).mean())


def _model(loss: str, penalty: float, Z: Matrix) -> Any:
    """Return a linear model, fitted to the rows' products if columns exceed rows."""
    size = Z.shape[1] if Z.shape[1] <= len(Z) else None
    if loss == "ridge":
        return randkern.KernelRidgeClassifier(
            randkern.Linear(), alpha=penalty, n_components=size, fit_intercept=True
        )
    model = {"svc": randkern.KernelSVC, "logistic": randkern.KernelLogistic}[loss]
    return model(randkern.Linear(), penalty, size, fit_intercept=False, random_state=0)


def _edge_notes(records: pd.DataFrame) -> Iterator[str]:
    """Yield a warning for every curve and regime, with its sizes at the edge."""
    keys = ["data", "measure", "curve", "loss", "ratio"]
    at_edge = records[records.at_edge.map(len) > 0].reindex(columns=list(records))
    at_edge = at_edge.assign(ratio=at_edge.get("ratio"))
    for named, own in at_edge.groupby(keys, sort=False, dropna=False):
        data, measure, curve, loss, ratio = named
        size, sizes = "D", own.n_components
        if measure == "growth":
            size, sizes = f"{_regime(ratio)}, n", own.n_train
        listed = ", ".join(dict.fromkeys(map(count, sizes)))
        who = f"{data}, {curve}, {loss}, {size} = {listed}"
        yield from edge_notes(who, own.at_edge.iloc[0])


def growth_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the error of features minus that of the exact kernel on the same rows.

    All draws are scored on the same test rows, and so contain no more information about
    these than one draw: the variance of their mean is not divided by their number.
    """
    growth, sets = of_measure(frame, "growth"), frame.attrs["dataset"]["sets"]
    n_test = {name: described["n_test"] for name, described in sets.items()}
    keys = ["data", "curve", "n_train", "loss"]
    exact = growth[growth.ratio.isna()].set_index(keys).test_error.rename("exact")
    means = growth.groupby([*keys, "ratio"], sort=False).test_error.mean().reset_index()
    gaps = means.join(exact, on=keys).dropna(subset="exact")
    variance = gaps.test_error * (1 - gaps.test_error) + gaps.exact * (1 - gaps.exact)
    gaps["difference"] = gaps.test_error - gaps.exact
    gaps["standard_error"] = np.sqrt(variance / gaps.data.map(n_test))
    return gaps.drop(columns=["test_error", "exact"])
