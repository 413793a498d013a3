"""The figure of the Gaussian process benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from randkern_lab.papers.optical_figures import logarithmic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_gaussian_processes"]

_STYLES = {
    "features": ("#0072B2", "o"),
    "exact": ("#0072B2", "D"),
    "scikit-learn": ("black", "X"),
    "rff": ("#D55E00", "s"),
    "svgp": ("#009E73", "^"),
}
_SCORES = {"rmse": "test RMSE (standard deviations)", "nlpd": "negative log density"}


def plot_gaussian_processes(results: Mapping[str, Any]) -> Figure:
    """Plot RMSE and negative log predictive density against seconds, a row a data set.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.gaussian_process.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    datasets = results["datasets"]
    figure = Figure(figsize=(9.5, 3.4 * len(datasets)), dpi=150, layout="constrained")
    grid = figure.subplots(len(datasets), 2, squeeze=False)
    for row, described in zip(grid, datasets, strict=True):
        own = [r for r in results["records"] if r["dataset"] == described["name"]]
        for axes, (score, label) in zip(row, _SCORES.items(), strict=True):
            for record in own:
                colour, marker = _STYLES[record["method"]]
                rows = f"{record['label']} ({record['n_train']:,} rows)"
                point = record["seconds"], record[score]
                axes.plot(*point, marker, color=colour, ms=8, label=rows)
            if score == "rmse" and described["noise_rmse"] is not None:
                noise = described["noise_rmse"]
                axes.axhline(noise, color="0.4", lw=1.0, ls=":", label="noise alone")
            logarithmic(axes, "x")
            axes.margins(x=0.15, y=0.12)
            axes.set_xlabel("seconds to learn and predict")
            axes.set_ylabel(label)
        row[0].set_title(f"{described['name']}, {described['n_train']:,} rows")
        row[0].legend(frameon=False, fontsize=8)
    return figure
