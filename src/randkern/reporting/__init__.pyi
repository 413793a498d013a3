"""The names of the package, for type checkers: they load on first use."""

from randkern.reporting.baseline_models import baselines
from randkern.reporting.learning_curve import logarithm_advice
from randkern.reporting.page import Panel, contents, panels, render
from randkern.reporting.public import report
from randkern.reporting.scores import EvaluatedModel, evaluate
from randkern.reporting.summary import summarise

__all__ = [
    "EvaluatedModel",
    "Panel",
    "baselines",
    "contents",
    "evaluate",
    "logarithm_advice",
    "panels",
    "render",
    "report",
    "summarise",
]
