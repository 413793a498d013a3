"""A self-contained HTML report on a fitted tabular model."""

from randkern.report.page import render
from randkern.report.scores import Evaluation, Judged, baselines, evaluate
from randkern.report.summary import Column, Summary, summarise

__all__ = ["Column", "Evaluation", "Judged", "Summary", "baselines", "evaluate"]
__all__ += ["render", "summarise"]
