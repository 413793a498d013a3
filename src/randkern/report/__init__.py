"""A self-contained HTML report on a fitted tabular model."""

from randkern.report.page import Panel, contents, panels, render
from randkern.report.scores import Judged, baselines, evaluate
from randkern.report.summary import fitted_rows, summarise

__all__ = ["Judged", "Panel", "baselines", "contents", "evaluate", "fitted_rows"]
__all__ += ["panels", "render", "summarise"]
