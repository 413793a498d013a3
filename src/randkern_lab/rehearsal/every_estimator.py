"""Every public estimator at sizes of rows and features answers in full."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.linear_model import LinearRegression

import randkern as rk

from ..process import SkippedCase
from .answers import Asked, ask, estimators
from .steps import Steps, check

_COLUMNS = 5
_NOISE = 0.1
#: Rows of which a model must have learned something.
_LEARNABLE = 1_000
_TEST_ROWS = 1_000
#: Arguments that the cases of the rehearsal need.
_ARGUMENTS = {"random_state": 0, "probability": True}


def cases(
    sizes: list[int], widths: list[int], most_work: float
) -> list[dict[str, Any]]:
    """Return the estimators at all sizes whose work, n·D·min(n, D), is at most that."""
    result = []
    for name, cls in estimators().items():
        parameters = cls._get_param_names()  # type: ignore[attr-defined]
        has_components = "n_components" in parameters
        columns = widths if has_components else [None]
        for n in sizes:
            for width in columns:
                if (width or 1) * n * min(n, width or 1) <= most_work:
                    result.append({"data": name, "n_rows": n, "n_components": width})
    return result


def estimator(request: dict[str, Any]) -> dict[str, Any]:
    """Fit an estimator, compare with a linear model, and ask all that it documents."""
    steps, cls = Steps(), estimators()[request["data"]]
    n, width = request["n_rows"], request["n_components"]
    model = cls(**_arguments(cls, width or 16, request))
    X, y = _rows(cls, n, seed=0)
    X_test, y_test = _rows(cls, _TEST_ROWS, seed=1)
    size = f"{n:,} rows" + (f", {width:,} features" if width else "")

    def fitted() -> str:
        model.fit(X, y)
        if n < _LEARNABLE or not (is_classifier(model) or is_regressor(model)):
            return "fitted"
        ours = model.score(X_test, y_test)
        if is_classifier(model):
            theirs = float(np.mean(y_test == np.round(np.mean(y))))
            return check(
                ours > theirs + 0.1, f"accuracy {ours:.3f}, constant {theirs:.3f}"
            )
        if (width or n) < 100:
            return f"R2 {ours:.3f}"
        theirs = LinearRegression().fit(X, y).score(X_test, y_test)
        return check(ours > theirs, f"R2 {ours:.3f}, of a linear model {theirs:.3f}")

    def answered() -> str:
        if steps.records[0]["result"] != "ok":
            raise SkippedCase("the fit has failed")
        rows, targets = X[:_TEST_ROWS], y[:_TEST_ROWS]
        answers = list(ask(model, Asked((rows, targets), rows, targets)))
        failed = [f"{a.name}: {a.message}" for a in answers if a.result == "FAILED"]
        counted = f"{len(answers)} attributes and methods answer"
        return check(not failed, "; ".join(failed) or counted)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps.take(f"{size}: fit", fitted, may_refuse=True)
        steps.take(f"{size}: documented names", answered)
    return {"records": steps.records}


def _arguments(cls: Any, width: int, request: dict[str, Any]) -> dict[str, Any]:
    accepted = cls._get_param_names()
    settings = {
        **_ARGUMENTS,
        "n_components": width,
        "time_limit": request["time_limit"],
        "device": rk.optics.SimulatedOPU(width, random_state=0),
    }
    return {name: value for name, value in settings.items() if name in accepted}


def _rows(cls: Any, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with a signal, and targets for the class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, _COLUMNS))
    signal = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + _NOISE * rng.normal(size=n)
    if "device" in cls._get_param_names():
        return (X > 0).astype(float), signal
    if is_classifier(cls()):
        return X, (signal > 0.5).astype(int)
    return X, signal
