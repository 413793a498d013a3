"""Ridge classifiers of all compared libraries, and their fits.

Each fit runs in its own process (:func:`fit_classifier`, :func:`fit_stream`), and fits
64 rows before it is timed, to load compiled code.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import randkern

from ..process import Stopwatch
from .contenders import PEERS, Contender, missing_package
from .row_file import RowFile
from .rows import saved_rows, warm_up_rows

__all__ = [
    "LIBRARIES",
    "SOLVERS",
    "FalkonClassifier",
    "XGPRClassifier",
    "fit_classifier",
    "fit_stream",
    "label",
    "package",
    "peer_bytes",
    "why_not",
]

SOLVERS = ("pcg", "cholesky", "auto")
LIBRARIES = {"falkon": "falkon", "xgpr": "xGPR"}
_WARM_UP_ROWS = 64
# Falkon's default for conjugate gradients.
_FALKON_ITERATIONS = 20


def label(method: str) -> str:
    """Return the name of a method in figures and tables.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_models import label
    >>> label("pcg"), label("RBFSampler"), label("falkon")
    ('randkern, pcg', 'RBFSampler + RidgeClassifier', 'Falkon')
    """
    if method in (*SOLVERS, "landmarks"):
        return f"randkern, {method}"
    named = {"falkon": "Falkon", "xgpr": "xGPR, discriminant"}
    return named.get(method) or f"{method} + RidgeClassifier"


def package(method: str, family: str) -> str:
    """Return the library that computes a method's features."""
    return LIBRARIES.get(method) or PEERS[family].get(method, "randkern")


def why_not(method: str, n: int, size: int) -> str | None:
    """Return why a method cannot run, or None if it can."""
    if method in LIBRARIES:
        reason = missing_package(LIBRARIES[method])
        if reason is not None:
            return reason
    if method in ("Nystroem", "falkon", "landmarks") and size > n:
        return f"it has at most one component per training row: {n:,}"
    return None


def peer_bytes(size: int, n: int, d: int) -> int:
    """Estimate the peak memory of scikit-learn in float32, without data and imports.

    ``RidgeClassifier`` holds the features, a centred copy and another copy, and three
    matrices of the smaller system; ``RBFSampler`` first draws in float64.
    """
    return 3 * n * size * 4 + 3 * min(n, size) ** 2 * 4 + 12 * d * size


class FalkonClassifier:
    """Falkon on ±1 targets per class: landmarks and conjugate gradients.

    Its penalty is alpha divided by the number of rows.

    Parameters
    ----------
    lengthscale, alpha : float
    n_components : int
        Number of landmarks.
    seed : int
    """

    def __init__(self, lengthscale: float, alpha: float, n_components: int, seed: int):
        self.torch = importlib.import_module("torch")
        self.falkon = importlib.import_module("falkon")
        self.lengthscale, self.alpha = lengthscale, alpha
        self.n_components, self.seed = n_components, seed

    def fit(self, X: Any, y: Any) -> "FalkonClassifier":
        """Fit on the processor."""
        self.classes_ = np.unique(y)
        targets = np.where(y[:, None] == self.classes_, 1.0, -1.0).astype(X.dtype)
        self.model_ = self.falkon.Falkon(
            kernel=self.falkon.kernels.GaussianKernel(self.lengthscale),
            penalty=self.alpha / len(X),
            M=self.n_components,
            maxiter=_FALKON_ITERATIONS,
            seed=self.seed,
            error_every=None,
            options=self.falkon.FalkonOptions(use_cpu=True),
        )
        self.model_.fit(self.torch.from_numpy(X), self.torch.from_numpy(targets))
        return self

    def predict(self, X: Any) -> Any:
        """Return the classes of the largest scores."""
        scores = self.model_.predict(self.torch.from_numpy(X))
        return self.classes_[scores.numpy().argmax(axis=1)]


class XGPRClassifier:
    """xGPR's kernel discriminant on structured features, from class means.

    Its noise is √alpha; it is solved exactly up to 8,192 features (its own limit), and
    beyond by conjugate gradients to a tolerance of 1e-6.

    Parameters
    ----------
    lengthscale, alpha : float
    n_components, seed : int
    """

    def __init__(self, lengthscale: float, alpha: float, n_components: int, seed: int):
        self.package = importlib.import_module("xGPR")
        constants = importlib.import_module("xGPR.constants.constants")
        self.exact = n_components <= constants.MAX_CLOSED_FORM_RFFS
        self.hyperparameters = np.log([alpha**0.5, 1 / lengthscale])
        self.n_components, self.seed = n_components, seed

    def fit(self, X: Any, y: Any) -> "XGPRClassifier":
        """Fit on the processor."""
        self.classes_, numbers = np.unique(y, return_inverse=True)
        data = self.package.build_classification_dataset(X, numbers)
        self.model_ = self.package.xGPDiscriminant(
            self.n_components,
            kernel_settings={"intercept": False},
            verbose=False,
            random_seed=self.seed,
        )
        self.model_.set_hyperparams(self.hyperparameters, data)
        self.model_.fit(data, mode="exact" if self.exact else "cg")
        return self

    def predict(self, X: Any) -> Any:
        """Return the most probable classes."""
        return self.classes_[self.model_.predict(X).argmax(axis=1)]


def _estimators(request: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return an unfitted feature map (None if the model includes it), and a model."""
    method, size, seed = request["method"], request["n_components"], request["seed"]
    ell, alpha = request["lengthscale"], request["alpha"]
    if method in LIBRARIES:
        libraries = {"falkon": FalkonClassifier, "xgpr": XGPRClassifier}
        return None, libraries[method](ell, alpha, size, seed)
    named = package(method, request["family"])
    peer = Contender(
        request["family"], named, method, "float32", request["degree"], ell
    )
    d = request["d"]
    if named != "randkern":
        from sklearn.linear_model import RidgeClassifier

        model = RidgeClassifier(alpha, solver="cholesky")
        return peer.build(d, size, seed), model
    kind = (
        randkern.KernelRidgeRegressor
        if request.get("regression")
        else randkern.KernelRidgeClassifier
    )
    landmarks = method == "landmarks"
    return None, kind(
        peer.kernel(d),
        alpha,
        size,
        solver="cholesky" if landmarks else method,
        features="nystrom" if landmarks else "random",
        fit_intercept=True,
        memory_limit=request["memory_limit"],
        random_state=seed,
    )


def fit_classifier(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process.

    Returns
    -------
    measured : dict
        ``features_seconds``: drawing the features and computing them for the training
        rows, None if this alternates with solving; ``fit_seconds`` of the estimator;
        ``train_seconds``: both; ``predict_seconds`` (test rows, including features);
        ``total_seconds``: train and predict; ``warm_up_seconds``: the same on 64 rows
        before; ``test_error``; ``iterations``, ``residual`` (None for peers) and
        ``outcome`` of the solve.
    """
    X, y, X_test, y_test = saved_rows(request["folder"])
    request = {**request, "d": X.shape[1]}
    few, watch = warm_up_rows(y), Stopwatch()
    small = min(request["n_components"], len(few))
    _classify(
        {**request, "n_components": small, "memory_limit": None}, X[few], y[few], X
    )
    warmed = watch.lap().seconds
    seconds, predicted, model = _classify(request, X, y, X_test)
    return {
        **seconds,
        "warm_up_seconds": warmed,
        "test_error": float(np.mean(predicted != y_test)),
        **_solve_record(model),
    }


def _classify(
    request: Mapping[str, Any], X: Any, y: Any, X_test: Any
) -> tuple[dict[str, Any], Any, Any]:
    """Return times, predicted classes of the test rows, and the fitted classifier."""
    feature_map, model = _estimators(request)
    watch = Stopwatch()
    Z = X if feature_map is None else feature_map.fit(X).transform(X)
    made = watch.lap().seconds
    model.fit(Z, y)
    fit = watch.lap().seconds
    del Z
    Z_test = X_test if feature_map is None else feature_map.transform(X_test)
    predicted = model.predict(Z_test)
    seconds = _seconds(made, fit, watch.lap().seconds)
    if feature_map is None:
        seconds["features_seconds"] = None
    return seconds, predicted, model


def _seconds(made: float, fit: float, predict: float) -> dict[str, float | None]:
    return {
        "features_seconds": made,
        "fit_seconds": fit,
        "train_seconds": made + fit,
        "predict_seconds": predict,
        "total_seconds": made + fit + predict,
    }


def _solve_record(model: Any) -> dict[str, Any]:
    """Return the outcome of the linear solve."""
    solution = getattr(model, "solution_", None)
    if solution is not None:
        return {
            "iterations": int(solution.iterations),
            "residual": float(solution.residual),
            "outcome": solution.outcome.name.lower(),
        }
    told: tuple[int | None, str]
    if isinstance(model, FalkonClassifier):
        told = (_FALKON_ITERATIONS, "iterations of its default")
    elif isinstance(model, XGPRClassifier):
        told = (None, "exact" if model.exact else "tolerance of 1e-6")
    else:  # scikit-learn's estimator records its solver
        told = (None, str(model.solver_))
    return {"iterations": told[0], "residual": None, "outcome": told[1]}


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor in this process to rows that are read block by block.

    Returns
    -------
    measured : dict
        As in :func:`fit_classifier`; ``test_error`` is the unexplained share of the
        variance of the test targets.
    """
    n, d, first = request["n"], request["d"], request["test_from"]
    files = [str(Path(request["folder"]) / name) for name in ("X.float32", "y.float32")]
    rows = first + request["n_test"]
    X, y = RowFile(files[0], (n, d)), RowFile(files[1], (n,))
    X_test = RowFile(files[0], (rows, d))[first:rows]
    y_test = RowFile(files[1], (rows,))[first:rows]
    request = {**request, "regression": True}
    few, watch = min(_WARM_UP_ROWS, n), Stopwatch()
    small = {"n_components": min(request["n_components"], few), "memory_limit": None}
    warm = _estimators({**request, **small})[1]
    warm.fit(randkern.RowBlocks.from_arrays(X[:few], y[:few])).predict(X_test[:few])
    warmed = watch.lap().seconds
    model = _estimators(request)[1].fit(randkern.RowBlocks.from_arrays(X, y))
    fit = watch.lap().seconds
    residual = y_test - model.predict(X_test)
    return {
        **_seconds(0.0, fit, watch.lap().seconds),
        "features_seconds": None,
        "warm_up_seconds": warmed,
        "test_error": float(np.mean(residual**2) / np.var(y_test)),
        **_solve_record(model),
    }
