"""Classifiers on images or tables: error against time and memory, beside peers.

They are ours on random features, landmarks and exact kernels, with least squares
(``pcg``, ``cholesky``, ``structured``, ``dense``, ``landmarks``, ``exact``) and the
hinge loss (``features``, ``svm-exact``); scikit-learn's ``RBFSampler`` and ``Nystroem``
before ``RidgeClassifier``, ``RBFSampler`` before ``LinearSVC``, and ``SGDClassifier``
on our features; and logistic regression, boosted trees and ``SVC``. All use the same
float32 rows, and those with a kernel the same Gaussian kernel and penalty, but for
``optical``, which has a kernel and a penalty of its own. Exact kernels are fitted to
the first rows only.

scikit-learn's systems are solved exactly, while conjugate gradients stop early: columns
of the table say where, and ``cholesky`` solves ours exactly, too. Each fit runs in its
own process, so that its peak memory is its own, and fits 64 rows before it is timed, to
load compiled code; contenders take turns, seed after seed. A peer is skipped if memory
does not suffice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn import kernel_approximation
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.svm import SVC, LinearSVC

import randkern
from randkern._memory import resolve_memory_limit

from ..contenders import Contender, check_any
from ..figures import add_legend, curves, name_axes, panels
from ..options import Names, Sizes, option
from ..process import SkippedCase, Stopwatch, in_fresh_process
from ..runner import Case, measure_all
from ..scoring import ended, fit_and_score
from ..tables import listing, percent, text
from .rows import (
    RowOptions,
    few_rows,
    load_rows,
    resolved_lengthscale,
    saved,
    saved_rows,
)

Request = Mapping[str, Any]
_MOST_LANDMARKS = 3000  # of scikit-learn: more take minutes


# -- models, from the request of a fit -------------------------------------------------


def _ridge(
    request: Request, kernel: Any = None, alpha: str = "alpha", **options: Any
) -> Any:
    """Return our ridge classifier; `alpha` names the penalty in the request."""
    return randkern.KernelRidgeClassifier(
        kernel or randkern.Gaussian(request["lengthscale"]),
        request[alpha],
        request["n_components"],
        fit_intercept=True,
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
        **options,
    )


def _svm(request: Request) -> Any:
    return randkern.KernelSVC(
        randkern.Gaussian(request["lengthscale"]),
        request["penalty"],
        request["n_components"],
        fit_intercept=False,
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
    )


class OnFeatures:
    """A linear classifier of scikit-learn on all features of the rows.

    Fitting them and computing them took ``features_seconds_``.
    """

    def __init__(self, features: Any, model: Any) -> None:
        self.features, self.model = features, model

    def fit(self, X: Any, y: Any) -> "OnFeatures":
        watch = Stopwatch()
        Z = self.features.fit(X).transform(X)
        self.features_seconds_ = watch.lap().seconds
        if isinstance(self.model, SGDClassifier):  # half the inverse mean of ‖z‖²
            self.model.set_params(eta0=0.5 * len(X) / float(np.vdot(Z, Z)))
            self.model.set_params(alpha=self.model.alpha / len(X))
        self.model.fit(Z, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model.predict(self.features.transform(X))


def _sampled(request: Request, name: str) -> Any:
    """Return features of scikit-learn."""
    return getattr(kernel_approximation, name)(
        gamma=_gamma(request),
        n_components=request["n_components"],
        random_state=request["seed"],
    )


def _on_peer(request: Request) -> OnFeatures:
    model = RidgeClassifier(request["alpha"], solver="cholesky")
    return OnFeatures(_sampled(request, request["method"]), model)


def _linear_svc(request: Request) -> OnFeatures:
    model = LinearSVC(
        C=request["penalty"],
        loss="hinge",
        fit_intercept=False,
        random_state=request["seed"],
    )
    return OnFeatures(_sampled(request, "RBFSampler"), model)


def _sgd(request: Request) -> OnFeatures:
    features = randkern.RandomFeatures(
        randkern.Gaussian(request["lengthscale"]),
        request["n_components"],
        random_state=request["seed"],
    )
    model = SGDClassifier(
        loss="squared_error",
        alpha=request["alpha"],
        learning_rate="constant",
        eta0=1.0,
        average=True,
        random_state=request["seed"],
    )
    return OnFeatures(features, model)


def _svc(request: Request) -> Any:
    return SVC(C=request["penalty"], gamma=_gamma(request))


def _gamma(request: Request) -> float:
    return 1.0 / (2 * request["lengthscale"] ** 2)


def _logistic(request: Request) -> Any:
    return LogisticRegression(max_iter=request["max_iter"])


def _trees(request: Request) -> Any:
    return HistGradientBoostingClassifier(
        max_iter=request["max_iter"], random_state=request["seed"]
    )


def peer_bytes(n: int, d: int, n_components: int) -> int:
    """Estimate the peak memory of scikit-learn in float32, without data and imports.

    ``RidgeClassifier`` holds the features, a centred copy and another copy, and three
    matrices of the smaller system; ``RBFSampler`` first draws in float64.
    """
    least = min(n, n_components)
    return 3 * n * n_components * 4 + 3 * least**2 * 4 + 12 * d * n_components


_pcg, _cholesky = partial(_ridge, solver="pcg"), partial(_ridge, solver="cholesky")
_landmarks = partial(_ridge, features="nystrom")
_dense = partial(_ridge, projection="dense")
_optical = partial(_ridge, kernel=randkern.Optical(2), alpha="optical_alpha")
METHODS: Mapping[str, Contender] = {
    name: Contender(
        label,
        colour,
        marker,
        dashes,
        make=make,
        landmarks=name in ("landmarks", "Nystroem"),
        memory=peer_bytes if make in (_on_peer, _linear_svc) else None,
    )
    for name, label, colour, marker, dashes, make in (
        ("structured", "randkern, structured", "blue", "s", "-", _ridge),
        ("pcg", "randkern, pcg", "blue", "s", "-", _pcg),
        ("cholesky", "randkern, cholesky", "green", "^", "--", _cholesky),
        ("dense", "randkern, dense", "sky", "o", (0, (3, 1)), _dense),
        ("optical", "randkern, optical", "pink", "D", ":", _optical),
        ("landmarks", "randkern, landmarks", "green", "^", "-.", _landmarks),
        ("exact", "randkern, exact", "black", "h", "-", _ridge),
        ("sgd", "features + SGDClassifier", "black", "o", "-.", _sgd),
        ("RBFSampler", "RBFSampler + ridge", "red", "v", "--", _on_peer),
        ("Nystroem", "Nystroem + ridge", "orange", "P", (0, (8, 3)), _on_peer),
        ("features", "randkern, SVM", "sky", "o", "-", _svm),
        ("svm-exact", "randkern, exact SVM", "sky", "D", "", _svm),
        ("linear-svc", "RBFSampler + LinearSVC", "pink", "v", "--", _linear_svc),
        ("svc", "scikit-learn, SVC", "black", "X", "", _svc),
        ("logistic", "logistic regression", "grey", "X", "", _logistic),
        ("trees", "boosted trees", "grey", "*", (0, (5, 1, 1, 1)), _trees),
    )
}
_EXACT = ("exact", "svm-exact", "svc")
#: The methods of a run that names none.
DEFAULTS = (
    *("RBFSampler", "structured", "cholesky", "exact", "dense", "landmarks"),
    *("Nystroem", "features", "svc", "logistic", "trees"),
)


# -- the benchmark ---------------------------------------------------------------------


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench classifiers``."""

    alpha: float = option(1e-3, "The ridge penalty.")
    optical_alpha: float = option(1000.0, "The ridge penalty of the method optical.")
    penalty: float = option(10.0, "C: what a unit of the hinge loss costs.")
    n_components: Sizes = option(
        (1000, 3000), "Numbers of features or landmarks.", quick=(50,)
    )
    exact_rows: Sizes = option((5000,), "Training rows of exact kernels.", quick=(200,))
    rounds: Sizes = option((10, 30), "Of boosting.", quick=(2,))
    methods: Names = option(DEFAULTS, "", among=METHODS)
    repeats: int = option(1, "Seeds; medians of times are shown.")
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "3GB".')


SKIPPED_BY = ("method", "n_train", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Fit classifiers, each in a process of its own."""
    limit = options.memory_limit and resolve_memory_limit(options.memory_limit)
    rows, described = load_rows(options)
    lengthscale = resolved_lengthscale(options.lengthscale, rows.X)
    n, d = rows.X.shape

    def cases() -> Iterator[Case]:
        for seed in range(options.seed, options.seed + options.repeats):
            for method in options.methods:
                key, sizes = "n_components", options.n_components
                if method in _EXACT:
                    key, sizes = "n_train", options.exact_rows
                elif method in ("logistic", "trees"):
                    key = "max_iter"
                    sizes = (100,) if method == "logistic" else options.rounds
                for size in sizes:
                    case = {"method": method, "n_train": n, "n_components": None}
                    yield {**case, "max_iter": None, "seed": seed, key: size}

    with saved(rows) as folder:

        def measure(case: Case) -> dict[str, Any]:
            """Fit in another process, which reads the rows that it uses."""
            method, size = case["method"], case["n_components"] or 0
            contender = METHODS[method]
            contender.check(case["n_train"], d, size)
            if case["n_train"] > n:
                raise SkippedCase(f"there are {n:,} training rows")
            if method == "Nystroem" and size > _MOST_LANDMARKS:
                raise SkippedCase(f"more than {_MOST_LANDMARKS:,} take minutes")
            request = {**options.arguments(), **case, "folder": folder}
            request |= {"lengthscale": lengthscale, "memory_limit": limit}
            few = few_rows(case["n_components"], memory_limit=None)
            few["max_iter"] = case["max_iter"] and min(case["max_iter"], 16)
            return {"label": contender.label, **in_fresh_process(fit, request, few)}

        records = measure_all(options, cases(), measure)
    check_any(records)
    asked = {"lengthscale": lengthscale, "memory_limit": limit}
    records.attrs = {"dataset": described, "arguments": asked}
    return records


def fit(request: dict[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process.

    Of peers ``residual`` and ``duality_gap`` are None, and ``features_seconds`` of
    models that alternate between features and solving.
    """
    model = METHODS[request["method"]].make(request)
    rows = saved_rows(request["folder"], request["n_train"])
    trial = fit_and_score(model, *rows)
    solved: dict[str, Any] = dict.fromkeys(("solver_iterations", "residual", "outcome"))
    if hasattr(model, "solution_"):
        solved = ended(model.solution_)
    gap, support = (
        getattr(model, f"{key}_", None) for key in ("duality_gap", "support")
    )
    return {
        "test_error": trial.score,
        "features_seconds": getattr(model, "features_seconds_", None),
        "train_seconds": trial.fit.seconds,
        "train_cpu_seconds": trial.fit.cpu_seconds,
        "predict_seconds": trial.predict.seconds,
        "iterations": solved.pop("solver_iterations"),
        **solved,
        "n_support": None if support is None else len(support),
        "duality_gap": None if gap is None else float(np.max(gap)),
    }


# -- what is shown ---------------------------------------------------------------------

_TITLE = (
    "{dataset[name]:upper}: {dataset[n_train]:,} training rows, {dataset[n_test]:,} "
    "test rows, {machine[cpu_count]} cores"
)
# The curves of the figure with few, and on which side of its end the name of each is.
_FEW = {"structured": "right", "landmarks": "right", "RBFSampler": "center"}
_FEW |= {"trees": "right"}


def summary(frame: pd.DataFrame) -> Any:
    """Return medians and largest values over seeds, by method and size.

    ``faster`` is the ratio of the training times of ``RBFSampler`` with as many
    features and of a method.
    """
    kinds = ["method", "label", "n_train", "n_components", "max_iter"]
    seconds = ["train_seconds", "train_cpu_seconds"]
    numbers = [*seconds, "predict_seconds", "iterations"]
    worst = ["peak_memory_bytes", "residual", "n_support", "duality_gap"]
    columns = [*kinds, "test_error", "outcome", *numbers, *worst]
    records = frame.reindex(columns=columns)
    records[[*numbers, *worst]] = records[[*numbers, *worst]].astype(float)
    records["n_train"] = records.n_train.fillna(frame.attrs["dataset"]["n_train"])
    found = records.groupby(kinds, sort=False, dropna=False).agg(
        **{name: (name, "median") for name in numbers},
        **{name: (name, "max") for name in worst},
        test_error=("test_error", "mean"),
        deviation=("test_error", "std"),
        outcome=("outcome", lambda ends: ", ".join(sorted(set(ends.dropna())))),
    )
    found.attrs = frame.attrs
    found = found.reset_index()
    peer = found[found.method == "RBFSampler"].set_index("n_components").train_seconds
    found["faster"] = found.n_components.map(peer) / found.train_seconds
    found["error"] = list(map(percent, found.test_error, found.deviation))
    return found.assign(peak_gb=found.peak_memory_bytes / 1e9)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    shown = summary(frame)
    yield from listing(
        shown,
        _TITLE,
        "method | rows | D | iter. | test error | train | CPU s | × faster | predict | "
        "peak",
        "{label} | {n_train:,} | {n_components:,} | {max_iter:,} | {error} | "
        "{train_seconds:seconds} | {train_cpu_seconds:seconds} | {faster:number} | "
        "{predict_seconds:seconds} | {peak_memory_bytes:megabytes}",
        "medians over seeds; train: features and fit, in seconds of the clock, and of "
        "all processors; × faster than the peer with as many features; peak of the "
        "whole process, with imports and data",
    )
    yield from listing(
        shown[
            shown.outcome.ne("") | shown.duality_gap.notna() | shown.n_support.notna()
        ],
        "How solvers ended",
        "method | rows | D | steps | residual | outcome | support | gap",
        "{label} | {n_train:,} | {n_components:,} | {iterations:number} | "
        "{residual:.0e} | {outcome:words} | {n_support:,} | {duality_gap:.0e}",
        "support: rows with weight; gap: the relative duality gap",
    )


def figure(frame: pd.DataFrame) -> dict[str, Any]:
    """Return error against time and memory, and few curves against time."""
    title, shown = text(_TITLE, frame.attrs), summary(frame)
    seconds = "seconds of training"
    both, (left, right) = panels(2, size=(4.8, 4.4), title=title)
    curves(left, shown, "train_seconds", "test_error", METHODS)
    curves(right, shown, "peak_gb", "test_error", METHODS)
    name_axes(left, xlabel=seconds)
    name_axes(right, xlabel="peak memory of the process (GB)")
    add_legend(both)
    few = {name: METHODS[name] for name in _FEW if name in set(shown.method)}
    if not few:
        return {"classifiers.png": both}
    alone, (axes,) = panels(1, size=(4.8, 4.4), title=title)
    curves(axes, shown, "train_seconds", "test_error", few)
    name_axes(axes, xlabel=seconds)
    _name_few(axes, [_FEW[name] for name in few])
    return {"classifiers.png": both, "classifiers-seconds.png": alone}


def _name_few(axes: Any, sides: list[str]) -> None:
    """Write the names of curves at their ends, and an arrow to where it is better."""
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 10, "va": "top"}
    for curve, side in zip(axes.containers, sides, strict=True):
        line = curve.lines[0]
        look |= {"color": line.get_color(), "ha": side}
        place = -8 * (side == "right"), -6
        axes.annotate(curve.get_label(), line.get_xydata()[-1], xytext=place, **look)
        curve.set_label("_nolegend_")
    arrow = {"arrowstyle": "-|>", "color": "0.2", "lw": 2}
    look = {"xycoords": "axes fraction", "color": "0.2", "arrowprops": arrow}
    axes.annotate("better", xy=(0.03, 0.05), xytext=(0.16, 0.22), **look)
    axes.margins(x=0.17, y=0.1)
