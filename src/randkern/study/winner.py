"""The best model of a comparison or tuning, for rows as the user has them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from sklearn.pipeline import make_pipeline

from .fits import Fits
from .kernel_choices import parse_kernel

__all__ = ["fit_winner", "winner"]


def winner(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the best setting, or None if nothing was measured.

    Of :func:`.compare.compare` it is the kernel and number of features with the
    smallest mean test error, of :func:`.tune.tune` the smallest validation error. Its
    keys are ``kernel``, ``features`` ("random" or "nystrom"), ``n_components`` and
    ``hyperparameters``.
    """
    if results["command"] == "tune":
        if not results["best"]:
            return None
        best = min(results["best"].values(), key=lambda b: b["validation_error"])
        size = results["arguments"]["n_components"]
        return _choice(best["kernel"], size, best["hyperparameters"])
    errors: dict[Any, list[float]] = {}
    found = {}
    for record in results["records"]:
        key = record["kernel"], record["n_components"]
        errors.setdefault(key, []).append(record["test_error"])
        found[key] = *key, record["hyperparameters"]
    if not errors:
        return None
    return _choice(*found[min(errors, key=lambda key: fmean(errors[key]))])


def _choice(label: str, size: int | None, named: Mapping[str, float]) -> dict[str, Any]:
    kernel, _, landmarks = label.partition(", ")
    return {
        "kernel": kernel,
        "features": "nystrom" if landmarks else "random",
        "n_components": size,
        "hyperparameters": dict(named),
    }


def fit_winner(dataset: Any, results: Mapping[str, Any]) -> Any:
    """Return the best model, fitted to the training rows.

    For a table it is a pipeline that starts with the encoder of columns. Raises a
    ValueError if nothing was measured.
    """
    best = winner(results)
    if best is None:
        raise ValueError("every model was skipped: there is none to save")
    named = best["hyperparameters"]
    choice = parse_kernel(best["kernel"])
    kernel = choice.build(named.get(choice.opens))
    given = results["arguments"]
    fits, seed = Fits(dataset, given["memory_limit"]), given.get("random_state", 0)
    model = fits.model(choice, kernel, best["n_components"], seed)
    # Features times s with penalty α are equivalent to penalty α/s².
    alpha = named["alpha"] / named.get("scale", 1.0) ** 2
    model.set_params(alpha=alpha, features=best["features"])
    model.fit(fits.data.X_train, fits.data.y_train)
    encoder = fits.data.encoder
    return model if encoder is None else make_pipeline(encoder, model)
