"""Figures of fitted models, on axes of Matplotlib.

Every function takes the axes to draw on and returns them; with ``ax=None`` it makes a
figure. scikit-learn's displays draw learning curves, errors and partial dependence.
Figures of what commands have recorded are in :mod:`randkern.plots.records`.
"""

from randkern.plots.models import plot_importances, plot_intervals

__all__ = ["plot_importances", "plot_intervals"]
