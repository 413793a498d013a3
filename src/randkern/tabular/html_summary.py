"""What a notebook shows of a fitted model of a table."""

from __future__ import annotations

import html
from typing import Any

import numpy as np

_MAX_COLUMNS = 10
_STYLE = """<style>
.randkern-summary td { padding: 0 0.6em; text-align: left; }
.randkern-summary .bar { background: #0072B2; height: 0.8em; display: inline-block; }
</style>"""


def _rows(report: dict[str, Any]) -> str:
    """Return how many rows the model is fitted to, as text."""
    used, every = report["rows_used"], report["rows"]
    return f"{used:,}" if used == every else f"{used:,} of {every:,}"


def html_summary(model: Any) -> str:
    """Return kernels, rows, errors and importances of a fitted model, as HTML."""
    with np.printoptions(precision=4, threshold=6):
        kernels = [repr(member.kernel) for member in model.model_.members]
    trials = model.leaderboard_
    trials = trials.to_dict("records") if hasattr(trials, "to_dict") else trials
    best = min(trials, key=lambda trial: (-trial["rows"], trial["error"]))
    facts = [
        *(("kernel", kernel) for kernel in kernels),
        ("rows", _rows(model.fit_report_)),
        (
            "error in the search",
            f"{best['error']:.4f} of that of the mean, on {best['rows']:,} rows "
            f"({len(trials)} kernels tried)",
        ),
    ]
    lines = [
        f"<tr><td>{name}</td><td><code>{html.escape(text)}</code></td></tr>"
        for name, text in facts
    ]
    shares = model.feature_importances_
    names = getattr(model, "feature_names_in_", np.arange(len(shares)))
    for j in np.argsort(-shares, kind="stable")[:_MAX_COLUMNS]:
        bar = f'<span class="bar" style="width: {12 * shares[j]:.2f}em"></span>'
        lines.append(
            f"<tr><td>{html.escape(str(names[j]))}</td>"
            f"<td>{bar} {shares[j]:.1%}</td></tr>"
        )
    table = f'<table class="randkern-summary">{"".join(lines)}</table>'
    return _STYLE + table
