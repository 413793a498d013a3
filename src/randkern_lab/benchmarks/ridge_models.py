"""Ridge models of all compared libraries, from the request of a fit."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeClassifier, SGDClassifier

import randkern

from ..process import Stopwatch
from ..scoring import Trial, ended
from .feature_maps import FeatureMap, kernel_of


def own_ridge(
    request: Mapping[str, Any],
    model: Any = randkern.KernelRidgeClassifier,
    family: str = "",
    alpha: str = "alpha",
    **options: Any,
) -> Any:
    """Return a ridge model of randkern; `alpha` names the penalty in the request."""
    family = family or request.get("family", "gaussian")
    return model(
        kernel_of(family, request["lengthscale"], request.get("degree", 2.0)),
        request[alpha],
        request["n_components"],
        fit_intercept=True,
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
        **options,
    )


class RidgeOnFeatures:
    """scikit-learn's ``RidgeClassifier`` on all features of the rows.

    Fitting them and computing them took ``features_seconds_``.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        described = FeatureMap(
            request.get("family", "gaussian"),
            request["method"],
            degree=request.get("degree", 2.0),
            lengthscale=request["lengthscale"],
        )
        self.features = described.build(request["n_components"], request["seed"])
        self.model = RidgeClassifier(request["alpha"], solver="cholesky")

    def fit(self, X: Any, y: Any) -> "RidgeOnFeatures":
        watch = Stopwatch()
        Z = self.features.fit(X).transform(X)
        self.features_seconds_ = watch.lap().seconds
        self.model.fit(Z, y)
        self.outcome_ = str(self.model.solver_)
        return self

    def predict(self, X: Any) -> Any:
        return self.model.predict(self.features.transform(X))


class SGDOnFeatures:
    """scikit-learn's stochastic gradients of the squared loss, on features of the rows.

    Steps have the length of half the inverse mean of ‖z‖², and weights are averaged.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request
        family, degree = request.get("family", "gaussian"), request.get("degree", 2.0)
        self.features = randkern.RandomFeatures(
            kernel_of(family, request["lengthscale"], degree),
            request["n_components"],
            random_state=request["seed"],
        )

    def fit(self, X: Any, y: Any) -> "SGDOnFeatures":
        watch = Stopwatch()
        Z = self.features.fit(X).transform(X)
        self.features_seconds_ = watch.lap().seconds
        self.model = SGDClassifier(
            loss="squared_error",
            alpha=self.request["alpha"] / len(X),
            learning_rate="constant",
            eta0=0.5 * len(X) / float(np.vdot(Z, Z)),
            average=True,
            random_state=self.request["seed"],
        ).fit(Z, y)
        self.iterations_ = self.model.n_iter_
        self.outcome_ = "loss settled"
        return self

    def predict(self, X: Any) -> Any:
        return self.model.predict(self.features.transform(X))


def peer_bytes(n: int, d: int, n_components: int) -> int:
    """Estimate the peak memory of scikit-learn in float32, without data and imports.

    ``RidgeClassifier`` holds the features, a centred copy and another copy, and three
    matrices of the smaller system; ``RBFSampler`` first draws in float64.
    """
    least = min(n, n_components)
    return 3 * n * n_components * 4 + 3 * least**2 * 4 + 12 * d * n_components


class FalkonClassifier:
    """Falkon on ±1 targets per class: landmarks and conjugate gradients.

    Its penalty is alpha divided by the number of rows.
    """

    iterations_ = 20  # its default
    outcome_ = "iterations of its default"

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.torch = importlib.import_module("torch")
        self.falkon = importlib.import_module("falkon")
        self.request = request

    def fit(self, X: Any, y: Any) -> "FalkonClassifier":
        asked, falkon, torch = self.request, self.falkon, self.torch
        self.classes_ = np.unique(y)
        targets = np.where(y[:, None] == self.classes_, 1.0, -1.0).astype(X.dtype)
        self.model_ = falkon.Falkon(
            kernel=falkon.kernels.GaussianKernel(asked["lengthscale"]),
            penalty=asked["alpha"] / len(X),
            M=asked["n_components"],
            maxiter=self.iterations_,
            seed=asked["seed"],
            error_every=None,
            options=falkon.FalkonOptions(use_cpu=True),
        )
        self.model_.fit(torch.from_numpy(X), torch.from_numpy(targets))
        return self

    def predict(self, X: Any) -> Any:
        scores = self.model_.predict(self.torch.from_numpy(X))
        return self.classes_[scores.numpy().argmax(axis=1)]


def ridge_record(trial: Trial, warm_up: float, model: Any) -> dict[str, Any]:
    """Return the error of a fit, what it took, and the outcome of its linear solve.

    ``features_seconds`` (drawing features, and computing those of the training rows) is
    None if this alternates with solving; ``train_seconds`` is it and ``fit_seconds``,
    ``total_seconds`` that and ``predict_seconds``. Peers have no ``residual``.
    """
    features = getattr(model, "features_seconds_", None)
    train, predict = trial.fit.seconds, trial.predict.seconds
    solved: dict[str, Any] = {"iterations": getattr(model, "iterations_", None)}
    if hasattr(model, "solution_"):
        solved = ended(model.solution_)
        solved["iterations"] = solved.pop("solver_iterations")
    return {
        "features_seconds": features,
        "fit_seconds": train - (features or 0.0),
        "train_seconds": train,
        "predict_seconds": predict,
        "total_seconds": train + predict,
        "warm_up_seconds": warm_up,
        "test_error": trial.score,
        "residual": None,
        "outcome": getattr(model, "outcome_", None),
        **solved,
    }
