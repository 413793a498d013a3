"""Classifiers on images or tables: error against time and memory, beside peers.

They are ours on random features, landmarks and exact kernels, with least squares
(``pcg``, ``cholesky``, ``auto``, ``dense``, ``landmarks``, ``exact``) and the hinge
loss (``svm``, ``svm-exact``); scikit-learn's ``RBFSampler``, ``Nystroem`` and
``PolynomialCountSketch`` before ``RidgeClassifier`` or ``LinearSVC``, and two dense
products in NumPy, the peer of the optical kernel; Falkon, if installed;
``SGDClassifier`` on our features; and logistic regression, boosted trees and ``SVC``.
All use the same float32 rows, and those with a kernel the same kernel and penalty.
(``optical`` has one of its own, beside the Gaussian kernel of the others.) Exact
kernels are fitted to the first rows only.

scikit-learn's systems are solved exactly, while conjugate gradients stop early: columns
of the table say where, and ``cholesky`` solves ours exactly, too. Each fit runs in its
own process, so that its peak memory is its own, and fits 64 rows before it is timed, to
load compiled code; contenders take turns, seed after seed. A peer is skipped if memory
does not suffice.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

import randkern
from randkern._memory import resolve_memory_limit

from ..contenders import Contender, check_any, known_names
from ..figures import add_legend, curves, panels
from ..options import option
from ..process import SkippedCase, Stopwatch, in_fresh_process
from ..runner import Case, measure_all
from ..scoring import ended, misclassified
from ..tables import listing, percent, text
from .feature_maps import FAMILIES, PEERS, FeatureMap, kernel_of
from .rows import (
    RowOptions,
    load_rows,
    resolved_lengthscale,
    saved,
    saved_rows,
    warm_trial,
    warm_up_rows,
)

Request = Mapping[str, Any]
_MOST_LANDMARKS = 3000  # of scikit-learn: more take minutes


# -- models, from the request of a fit -------------------------------------------------


def ridge(
    request: Request,
    model: Any = randkern.KernelRidgeClassifier,
    kernel: str = "",
    alpha: str = "alpha",
    **options: Any,
) -> Any:
    """Return a ridge model of randkern; `alpha` names the penalty in the request."""
    return model(
        kernel_of(
            kernel or request["kernel"], request["lengthscale"], request["degree"]
        ),
        request[alpha],
        request["n_components"],
        fit_intercept=True,
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
        **options,
    )


def _kernel(request: Request, family: str = "") -> Any:
    family = family or request["kernel"]
    return kernel_of(family, request["lengthscale"], request["degree"])


def _svm(request: Request) -> Any:
    return randkern.KernelSVC(
        _kernel(request),
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


def _on_peer(request: Request) -> OnFeatures:
    features = FeatureMap(
        request["kernel"],
        request["method"],
        degree=request["degree"],
        lengthscale=request["lengthscale"],
    ).build(request["n_components"], request["seed"])
    return OnFeatures(features, RidgeClassifier(request["alpha"], solver="cholesky"))


def _sgd(request: Request) -> OnFeatures:
    features = randkern.RandomFeatures(
        _kernel(request),
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


def _linear_svc(request: Request) -> Any:
    size, seed = request["n_components"], request["seed"]
    features = RBFSampler(gamma=_gamma(request), n_components=size, random_state=seed)
    model = LinearSVC(
        C=request["penalty"], loss="hinge", fit_intercept=False, random_state=seed
    )
    return make_pipeline(features, model)


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


def falkon_of(request: Request, penalty: float) -> Any:
    """Return Falkon with a Gaussian kernel on the CPU, with a penalty per row."""
    falkon = importlib.import_module("falkon")
    return falkon.Falkon(
        kernel=falkon.kernels.GaussianKernel(request["lengthscale"]),
        penalty=penalty,
        M=request["n_components"],
        seed=request["seed"],
        error_every=None,
        options=falkon.FalkonOptions(use_cpu=True),
    )


class Falkon:
    """Falkon on ±1 targets per class: landmarks and conjugate gradients.

    Its penalty is alpha divided by the number of rows.
    """

    def __init__(self, request: Request) -> None:
        self.torch = importlib.import_module("torch")
        self.request = request

    def fit(self, X: Any, y: Any) -> "Falkon":
        torch = self.torch
        self.classes_ = np.unique(y)
        targets = np.where(y[:, None] == self.classes_, 1.0, -1.0).astype(X.dtype)
        self.model_ = falkon_of(self.request, self.request["alpha"] / len(X))
        self.model_.fit(torch.from_numpy(X), torch.from_numpy(targets))
        return self

    def predict(self, X: Any) -> Any:
        scores = self.model_.predict(self.torch.from_numpy(X))
        return self.classes_[scores.numpy().argmax(axis=1)]


def peer_bytes(n: int, d: int, n_components: int) -> int:
    """Estimate the peak memory of scikit-learn in float32, without data and imports.

    ``RidgeClassifier`` holds the features, a centred copy and another copy, and three
    matrices of the smaller system; ``RBFSampler`` first draws in float64.
    """
    least = min(n, n_components)
    return 3 * n * n_components * 4 + 3 * least**2 * 4 + 12 * d * n_components


_pcg, _cholesky = partial(ridge, solver="pcg"), partial(ridge, solver="cholesky")
_landmarks = partial(ridge, features="nystrom")
_dense = partial(ridge, projection="dense")
_optical = partial(ridge, kernel="optical", alpha="optical_alpha")
_DOTS, _LONG = (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3))
METHODS: Mapping[str, Contender] = {
    name: Contender(
        label or f"{name} + ridge",
        colour,
        marker,
        dashes,
        make=make,
        needs=("falkon",) if name == "falkon" else (),
        landmarks=name in ("landmarks", "Nystroem", "falkon"),
        memory=peer_bytes if make in (_on_peer, _linear_svc) else None,
    )
    for name, label, colour, marker, dashes, make in (
        ("structured", "randkern, structured", "blue", "s", "-", ridge),
        ("pcg", "randkern, pcg", "blue", "s", "-", _pcg),
        ("cholesky", "randkern, cholesky", "green", "^", "--", _cholesky),
        ("dense", "randkern, dense", "sky", "o", (0, (3, 1)), _dense),
        ("optical", "randkern, optical", "pink", "D", ":", _optical),
        ("landmarks", "randkern, landmarks", "green", "^", "-.", _landmarks),
        ("exact", "randkern, exact", "black", "h", "-", ridge),
        ("sgd", "features + SGDClassifier", "black", "o", "-.", _sgd),
        ("RBFSampler", "", "red", "v", "--", _on_peer),
        ("Nystroem", "", "orange", "P", _LONG, _on_peer),
        ("two products", "", "red", "v", _DOTS, _on_peer),
        ("PolynomialCountSketch", "", "red", "v", _DOTS, _on_peer),
        ("falkon", "Falkon", "black", "X", _LONG, Falkon),
        ("features", "randkern, SVM", "sky", "o", "-", _svm),
        ("svm-exact", "randkern, exact SVM", "sky", "D", "", _svm),
        ("linear-svc", "RBFSampler + LinearSVC", "pink", "v", "--", _linear_svc),
        ("svc", "scikit-learn, SVC", "black", "X", "", _svc),
        ("logistic", "logistic regression", "grey", "X", "", _logistic),
        ("trees", "boosted trees", "grey", "*", (0, (5, 1, 1, 1)), _trees),
    )
}
_EXACT = ("exact", "svm-exact", "svc")
_COMMON = ("structured", "cholesky", "exact")
#: The methods of a run that names none.
DEFAULTS = {
    "gaussian": (
        *("RBFSampler", *_COMMON, "dense", "landmarks", "Nystroem"),
        *("features", "svc", "logistic", "trees"),
    ),
    "optical": ("two products", *_COMMON),
    "polynomial": ("PolynomialCountSketch", *_COMMON),
}


# -- the benchmark ---------------------------------------------------------------------


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench classifiers``."""

    kernel: str = option("gaussian", "", among=FAMILIES)
    degree: float = option(2.0, "Of the optical or the polynomial kernel.")
    alpha: float = option(1e-3, "The ridge penalty.")
    optical_alpha: float = option(1000.0, "The ridge penalty of the method optical.")
    penalty: float = option(10.0, "C: what a unit of the hinge loss costs.")
    n_components: tuple[int, ...] = option(
        (1000, 3000), "Numbers of features or landmarks.", quick=(50,)
    )
    exact_rows: tuple[int, ...] = option(
        (5000,), "Training rows of exact kernels.", quick=(200,)
    )
    rounds: tuple[int, ...] = option((10, 30), "Of boosting.", quick=(2,))
    methods: tuple[str, ...] | None = option(
        None, f"Of {', '.join(METHODS)}; default: those of the kernel."
    )
    repeats: int = option(1, "Seeds; medians of times are shown.")
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "3GB".')


SKIPPED_BY = ("method", "n_train", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Fit classifiers, each in a process of its own."""
    chosen = options.methods or DEFAULTS[options.kernel]
    peers = {name for kernel in PEERS for name in PEERS[kernel]}
    peers -= set(PEERS[options.kernel])
    names = known_names("method", chosen, [m for m in METHODS if m not in peers])
    limit = options.memory_limit and resolve_memory_limit(options.memory_limit)
    rows, described = load_rows(options)
    lengthscale = resolved_lengthscale(options.lengthscale, rows.X)
    n, d = rows.X.shape

    def cases() -> Iterator[Case]:
        for seed in range(options.seed, options.seed + options.repeats):
            for method in names:
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
            return {"label": contender.label, **in_fresh_process(fit, request)}

        records = measure_all(options, cases(), measure)
    check_any(records)
    asked = {"lengthscale": lengthscale, "methods": names, "memory_limit": limit}
    records.attrs = {"dataset": described, "arguments": asked}
    return records


def fit(request: dict[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process.

    Of peers ``residual`` and ``duality_gap`` are None, and ``features_seconds`` of
    models that alternate between features and solving.
    """
    rows = saved_rows(request["folder"], request["n_train"])
    contender, few = METHODS[request["method"]], warm_up_rows(rows.y)
    trial, warm_up, model = warm_trial(contender, request, rows, misclassified, few)
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
        "warm_up_seconds": warm_up,
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

    ``faster`` is the ratio of the training times of the peer of the same kernel and
    number of features and of a method.
    """
    kinds = ["method", "label", "n_train", "n_components", "max_iter"]
    seconds = ["train_seconds", "train_cpu_seconds"]
    numbers = [*seconds, "predict_seconds", "iterations"]
    worst = ["peak_memory_bytes", "residual", "n_support", "duality_gap"]
    columns = [*kinds, "family", "test_error", "outcome", *numbers, *worst]
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
    first = next(iter(PEERS[frame.attrs["arguments"].get("kernel", "gaussian")]))
    peer = found[found.method == first].set_index("n_components").train_seconds
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
    look: Mapping[str, Any] = {"xlabel": "seconds of training"}
    memory: Mapping[str, Any] = {"xlabel": "peak memory of the process (GB)"}
    both, (left, right) = panels(2, size=(4.8, 4.4), title=title)
    curves(left, shown, "train_seconds", "test_error", METHODS, **look)
    curves(right, shown, "peak_gb", "test_error", METHODS, **memory)
    add_legend(both)
    few = {name: METHODS[name] for name in _FEW if name in set(shown.method)}
    if not few:
        return {"classifiers.png": both}
    alone, (axes,) = panels(1, size=(4.8, 4.4), title=title)
    curves(axes, shown, "train_seconds", "test_error", few, **look)
    _name_few(axes, [_FEW[name] for name in few])
    return {"classifiers.png": both, "classifiers-seconds.png": alone}


def _name_few(axes: Any, sides: list[str]) -> None:
    """Write the names of curves at their ends, and an arrow to where it is better."""
    for line, side in zip(axes.containers, sides, strict=True):
        x, y = line.lines[0].get_data()
        axes.annotate(
            line.get_label(),
            (x[-1], y[-1]),
            xytext=(-8 * (side == "right"), -6),
            textcoords="offset points",
            color=line.lines[0].get_color(),
            fontsize=10,
            ha=side,
            va="top",
        )
        line.set_label("_nolegend_")
    axes.annotate(
        "better",
        xy=(0.03, 0.05),
        xytext=(0.16, 0.22),
        xycoords="axes fraction",
        color="0.2",
        arrowprops={"arrowstyle": "-|>", "color": "0.2", "lw": 2},
    )
    axes.margins(x=0.17, y=0.1)
