"""Figures of fitted models and of kernels, on axes of Matplotlib.

Every function takes the axes to draw on and returns them; with ``ax=None`` it makes a
figure. Figures of what commands have recorded are in :mod:`randkern.plots.records`.
"""

from randkern.plots.models import (
    plot_importances,
    plot_intervals,
    plot_leaderboard,
    plot_learning_curve,
    plot_posterior,
    plot_spectrum,
)

__all__ = [
    "plot_importances",
    "plot_intervals",
    "plot_leaderboard",
    "plot_learning_curve",
    "plot_posterior",
    "plot_spectrum",
]
