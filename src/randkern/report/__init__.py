"""A self-contained HTML report on a fitted tabular model."""

from randkern.report.page import Panel, panels, render
from randkern.report.scores import Judged, baselines, evaluate
from randkern.report.summary import fitted_rows, summarise

__all__ = [
    "Judged",
    "Panel",
    "baselines",
    "evaluate",
    "fitted_rows",
    "panels",
    "render",
]
__all__ += ["summarise"]
