"""A self-contained HTML page about a fitted model of a table."""

from randkern.report.page import render
from randkern.report.scores import Evaluation, baselines, evaluate
from randkern.report.summary import Column, Summary, summarise

__all__ = ["Column", "Evaluation", "Summary", "baselines", "evaluate", "render"]
__all__ += ["summarise"]
