"""What a notebook shows of a fitted model of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from randkern._notebook import summary_table

_MAX_COLUMNS = 10


def fitted_rows(model: Any) -> str | None:
    """Say how many rows a model is fitted to, and why not all; None if it is all."""
    report = model.fit_report_
    fitted, held, n = report["rows_used"], report["rows_held_out"], report["rows"]
    if fitted == n:
        return None
    text = f"fitted to {fitted:,} of {n:,} rows"
    if fitted + held < n:
        text += ", as many as the time limit allows"
    if not held:
        return text
    purpose = "its probabilities" if is_classifier(model) else "its intervals"
    return f"{text}: {held:,} are held out to evaluate it and to set {purpose}"


def html_summary(model: Any) -> str:
    """Return kernels, rows, errors and importances of a fitted model, as HTML."""
    members = model.model_.members
    name = "kernel" if len(members) == 1 else "kernel, weight {:.2f}"
    facts = [(name.format(each.weight), each.kernel._formula()) for each in members]
    n = model.fit_report_["rows"]
    facts.append(("rows", fitted_rows(model) or f"fitted to all {n:,} rows"))
    trials = model.leaderboard_
    trials = trials.to_dict("records") if hasattr(trials, "to_dict") else trials
    most = trials[0]["rows"]
    facts.append(("kernels tried", f"{len(trials)}, on up to {most:,} rows"))
    if not is_classifier(model):
        # Errors are relative to the mean; those of classes, coded ±1, tell a reader
        # little.
        error = min(trial["error"] for trial in trials if trial["rows"] == most)
        facts.append(("R² of rows left out", f"{1 - error**2:.3f}"))
    shares = model.feature_importances_
    names = getattr(model, "feature_names_in_", np.arange(len(shares)))
    largest = np.argsort(-shares, kind="stable")[:_MAX_COLUMNS]
    return summary_table(facts, [(str(names[j]), float(shares[j])) for j in largest])
