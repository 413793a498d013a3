"""A self-contained HTML report on a fitted tabular model."""

from randkern.reporting.page import Panel, contents, panels, render
from randkern.reporting.public import report
from randkern.reporting.scores import EvaluatedModel, baselines, evaluate
from randkern.reporting.summary import fitted_rows, summarise

__all__ = [
    "EvaluatedModel",
    "Panel",
    "baselines",
    "contents",
    "evaluate",
    "fitted_rows",
]
__all__ += ["panels", "render", "report", "summarise"]
