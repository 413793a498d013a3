"""Records by their settings, and metrics by their names on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A score of predictions for rows that a model has not seen.

    `score` is its name in records, `title` that above tables, and `heading` that of a
    column, by default the same; `scale` and `digits` say how values are shown.
    """

    score: str
    title: str
    task: str
    larger_is_better: bool = False
    scale: float = 1.0
    digits: int = 4
    heading: str = ""

    def __post_init__(self) -> None:
        if not self.heading:
            object.__setattr__(self, "heading", self.title)

    def text(self, value: float | None) -> str:
        """Return a value as text, empty if it is undefined."""
        if value is None:
            return ""
        # In units of the target, large numbers have few decimals.
        size = abs(value) if self.score in ("rmse", "mae") else 0
        digits = self.digits - len(f"{size:.0f}") + 1
        return f"{self.scale * value:,.{max(digits, 0)}f}"

    def loss(self, value: float | None) -> float:
        """Return a number that is smaller for better values, infinite for undefined."""
        if value is None:
            return float("inf")
        return -value if self.larger_is_better else value


METRICS = {
    "error": Metric(
        "test_error",
        "misclassified (%)",
        "classification",
        scale=100,
        digits=2,
        heading="error (%)",
    ),
    "logloss": Metric("log_loss", "log loss", "classification"),
    "auc": Metric(
        "auc",
        "AUC",
        "classification",
        larger_is_better=True,
    ),
    "nrmse": Metric("test_error", "RMSE / std", "regression"),
    "rmse": Metric("rmse", "RMSE", "regression"),
    "mae": Metric("mae", "MAE", "regression"),
    "r2": Metric("r2", "R²", "regression", larger_is_better=True),
}


def metric_of(name: str | None, task: str) -> Metric:
    """Return the metric with a name, or by default the first of the task.

    Raises a ValueError for names that are unknown or of another task.
    """
    known = [key for key, metric in METRICS.items() if metric.task == task]
    name = known[0] if name is None else name.lower().replace("_", "").replace("-", "")
    if name not in known:
        raise ValueError(
            f"metric must be one of {', '.join(known)} for a {task}, got {name!r}"
        )
    return METRICS[name]


def by_setting(
    records: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, int | None], list[Mapping[str, Any]]]:
    """Return the records of each kernel and number of features, one per seed."""
    settings: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    for record in records:
        setting = record["kernel"], record["n_components"]
        settings.setdefault(setting, []).append(record)
    return settings
