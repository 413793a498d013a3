"""A self-contained HTML report on a fitted tabular model."""

from randkern.report.page import render
from randkern.report.scores import Judged, baselines, evaluate
from randkern.report.summary import summarise

__all__ = ["Judged", "baselines", "evaluate", "render", "summarise"]
