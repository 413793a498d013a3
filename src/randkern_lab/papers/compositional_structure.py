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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.linalg
from numpy.typing import NDArray

import randkern

from ..figures import DASHED, DOTTED, Style, curves, panels
from ..options import DataOptions, option
from ..process import Stopwatch
from ..runner import Case, measure_all
from ..scoring import fit_and_score, held_out_error, misclassified
from ..tables import at_edges, count, edge_notes, pivot
from .images import Images, build_skeleton, load_circle_images

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
# Ratio of D and n: its text, and the style of its curves.
_REGIMES: Mapping[str | None, tuple[str, str, str, Any]] = {
    "sqrt": ("D = √n", "grey", "v", DOTTED),
    "1/4": ("D = n·1/4", "sky", "^", DASHED),
    "1/2": ("D = n·1/2", "green", "o", "-."),
    "1": ("D = n", "red", "s", (0, (6, 1))),
    None: ("exact", "black", "X", "-"),
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
class Options(DataOptions):
    """Options of ``randkern reproduce compositional-structure``."""

    data: str = option(
        "auto", "cifar10, mnist or digits; auto takes the first that is in --data-dir."
    )
    n: int = option(
        4000,
        "Training rows of the features, and most of the kernels.",
        quick=240,
        least=_MIN_ROWS,
    )
    n_test: int = option(4000, "Test rows.", quick=200)
    n_components: tuple[int, ...] = option(
        (1000, 5000, 20_000), "Numbers of features.", quick=(50, 200)
    )
    growth: tuple[int, ...] = option(
        (500, 1000, 2000, 4000, 8000, 16_000, 50_000),
        "Training rows of the growth.",
        quick=(120, 240),
        least=_MIN_ROWS,
    )
    seeds: int = option(3, "Draws of the features of the growth.", quick=1)
    measures: tuple[str, ...] = option(MEASURES, "", among=MEASURES)
    grown: tuple[str, ...] = option(GROWING, "Skeletons of the growth.", among=GROWING)
    losses: tuple[str, ...] = option(LOSSES, "Losses of the growth.", among=LOSSES)
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
            error, alpha = held_out_error(
                linear, strongest_first, size, Z[:n], y, np.arange(held)
            )
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

    def risk(self, case: Case) -> Iterator[Case]:
        """Measure the excess hinge loss of features, beside bound (8) of Theorem 5."""
        curve, size, n = case["curve"], case["n_components"], case["n_train"]
        if curve not in self.machines:
            exact, y = self.factor(curve), self.images.y_train[: self.options.n]
            C, _ = self.choose("svc", exact.Z)
            machine = _model("svc", C, exact.Z).fit(exact.Z, y)
            loss = _hinge_loss(machine, exact.Z_test, self.images.y_test)
            self.machines[curve] = loss, 1 / float(machine.margin_.min())
        least, norm = self.machines[curve]
        C = norm / (8 * n) ** 0.5
        for seed in range(self.options.seed, self.options.seed + self.options.seeds):
            drawn = self.draw(curve, size, n, seed)
            model = _model("svc", C, drawn.Z).fit(drawn.Z, self.images.y_train[:n])
            loss = _hinge_loss(model, drawn.Z_test, self.images.y_test)
            yield {
                "seed": seed,
                **{"loss": "hinge", "alpha": 1 / C, "at_edge": [], "norm": norm},
                **{"risk": loss, "kernel_risk": least, "excess": loss - least},
                "bound": norm * ((8 / n) ** 0.5 + (2 / size) ** 0.5),
            }

    def measure(self, case: Case) -> Iterator[Case]:
        """Choose penalties with the first draw, then fit and score every draw."""
        size, n = case["n_components"], case["n_train"]
        grows, first = case["measure"] == "growth", self.options.seed
        several = self.options.seeds if grows and size is not None else 1
        y, y_test = self.images.y_train[:n], self.images.y_test
        chosen: dict[str, tuple[float, float]] = {}
        for seed in range(first, first + several):
            drawn = self.draw(case["curve"], size, n, seed)
            for loss in self.options.losses if grows else LOSSES[:1]:
                if loss not in chosen:
                    chosen[loss] = self.choose(loss, drawn.Z)
                model = _model(loss, chosen[loss][0], drawn.Z)
                trial = fit_and_score(model, drawn.Z, y, drawn.Z_test, y_test)
                outcome = getattr(model, "solution_", None)
                yield {
                    "seed": seed,
                    **_chosen(loss, *chosen[loss]),
                    "test_error": trial.score,
                    "fit_seconds": drawn.fit_seconds + trial.fit.seconds,
                    "predict_seconds": drawn.predict_seconds + trial.predict.seconds,
                    "outcome": outcome.outcome.name.lower() if outcome else "converged",
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
    cases = _cases(options, images.name, len(images.X_train))
    risks = _risk_cases(options, images)
    records = pd.concat(
        [
            measure_all(options, cases, work.measure),
            measure_all(options, risks, work.risk),
        ]
    )
    described = images.describe() | {"n_train": min(options.n, len(images.X_train))}
    sets = {images.name: described}
    records.attrs["dataset"] = {"name": images.name, "sets": sets}
    records.attrs["lengthscales"] = {images.name: lengthscale}
    return records


def _cases(options: Options, data: str, rows: int) -> Iterator[Case]:
    """Yield features by D, the kernels, and the growth with n."""
    n, sizes = min(options.n, rows), options.n_components

    def case(measure: str, curve: str, size: int | None, n: int) -> Case:
        named = {"measure": measure, "data": data, "curve": curve}
        return {**named, "n_components": size, "n_train": n}

    for curve in CURVES if "features" in options.measures else ():
        for size in (*sizes, None) if curve in EXACT else sizes:
            yield case("features", curve, size, n)
    grown = sorted({min(n, rows) for n in options.growth})
    if "growth" not in options.measures:
        return
    for n, curve in product(grown, options.grown):
        for ratio, of_rows in RATIOS.items():
            size = max(2, round(of_rows(n)))
            if n * size <= options.entries:
                yield case("growth", curve, size, n) | {"ratio": ratio}
        if n <= options.n:
            yield case("growth", curve, None, n) | {"ratio": None}


def _risk_cases(options: Options, images: Images) -> Iterator[Case]:
    """Yield features of at most ``--n`` rows."""
    grown = sorted({min(n, options.n, len(images.X_train)) for n in options.growth})
    for n, curve in product(grown if "risk" in options.measures else (), options.grown):
        for ratio, of_rows in RATIOS.items():
            named = {"measure": "risk", "data": images.name, "curve": curve}
            size = max(2, 2 * round(of_rows(n) / 2))  # two columns a draw
            if n * size <= options.entries:
                yield {**named, "n_components": size, "n_train": n, "ratio": ratio}


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
    yield from pivot(
        growth,
        "{data}, {loss}: D as a function of n, and exact kernels: test error in %",
        "n_train",
        "{curve}, {regime}",
        "{test_error:.2p}",
        per="loss",
    )
    yield from pivot(
        gaps[gaps.n_train == gaps.n_train.max()],
        "{data}: error of features minus that of the exact kernel at n = "
        "{n_train:,}, in points (standard error of the test rows)",
        ("loss", "curve"),
        "ratio",
        "{difference:+.1p} ({standard_error:.1p})",
        headings={ratio: regime for ratio, (regime, *_) in _REGIMES.items() if ratio},
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
        title, place = f"{features.data.iloc[0]}: ridge", next(places)
        curves(
            place,
            features,
            "n_components",
            "test_error",
            CURVES,
            "curve",
            title=title,
            log="x",
        )
        low, high = place.get_ylim()
        place.set_ylim(top=high + 0.4 * (high - low))
        place.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)
    for skeleton, loss in product(skeletons, losses):
        curves(
            next(places),
            growth[(growth.curve == skeleton) & (growth.loss == loss)],
            "n_train",
            "test_error",
            {regime: Style(regime, *look) for regime, *look in _REGIMES.values()},
            "regime",
            title=f"{skeleton}, {loss}: D grows with n",
            bars="spread",
        )
    if len(growth):
        last = axes[n - len(bounded) - 1].get_legend_handles_labels()
        figure.legend(*last, loc="outside lower center", ncols=5, frameon=False)
    for place, skeleton in zip(axes[n - len(bounded) :], bounded, strict=True):
        _draw_risk(place, risk[risk.curve == skeleton])
    return figure


def _draw_risk(axes: Any, risk: pd.DataFrame) -> None:
    """Draw the excess risk and its bound, dashed, against n."""
    styles = {}
    for regime, colour, marker, _ in _REGIMES.values():
        styles[regime, "excess"] = Style(regime, colour, marker)
        styles[regime, "bound"] = Style("", colour, "", DASHED)
    curves(
        axes,
        risk.melt(["n_train", "regime"], ["excess", "bound"], "kind"),
        "n_train",
        "value",
        styles,
        ("regime", "kind"),
        title=f"{risk.curve.iloc[0]}, hinge loss (dashed: bound (8))",
        ylabel="excess risk",
        bars="spread",
    )
    axes.legend(frameon=False, fontsize=8)


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
    return records.assign(regime=[_REGIMES[_key(r)][0] for r in records.ratio])


def _key(ratio: Any) -> str | None:
    return None if ratio != ratio else ratio


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
        who, sizes = f"{data}, {curve}, {loss}, D", own.n_components
        if measure == "growth":
            regime = _REGIMES[_key(ratio)][0]
            who, sizes = f"{data}, {curve}, {loss}, {regime}, n", own.n_train
        listed = ", ".join(dict.fromkeys(map(count, sizes)))
        yield from edge_notes(f"{who} = {listed}", own.at_edge.iloc[0])


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
