"""The figure of the benchmark of support vector machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from randkern_lab.papers.optical_figures import logarithmic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_svm"]

_STYLES = {
    "features": ("#0072B2", "o-"),
    "linear-svc": ("#D55E00", "v--"),
    "exact": ("#0072B2", "D"),
    "svc": ("black", "X"),
}


def plot_svm(results: Mapping[str, Any]) -> Figure:
    """Plot test error against seconds of training; points are labelled with D.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.benchmarks.svm.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(7.2, 4.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    data = results["dataset"]
    # An error of zero has no logarithm: half a test row stands for it.
    least = 0.5 / data["n_test"]
    for method, (colour, style) in _STYLES.items():
        own = [r for r in results["records"] if r["method"] == method]
        if not own:
            continue
        seconds = [record["train_seconds"] for record in own]
        errors = [max(record["test_error"], least) for record in own]
        label = f"{own[0]['label']}, {own[0]['n_train']:,} rows"
        axes.plot(seconds, errors, style, color=colour, label=label)
        for record, x, y in zip(own, seconds, errors, strict=True):
            if record["n_components"] is not None:
                axes.annotate(
                    f"{record['n_components']:,}",
                    (x, y),
                    xytext=(6, 5),
                    textcoords="offset points",
                    fontsize=8,
                    color=colour,
                )
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.margins(x=0.15, y=0.15)
    axes.set_xlabel("seconds: features of the training rows, and fit")
    axes.set_ylabel("test error")
    arguments = results["arguments"]
    axes.set_title(
        f"{data['name']}: Gaussian, ℓ = {arguments['lengthscale']:.4g}, "
        f"C = {arguments['C']:g}; labels: D",
        fontsize=10,
    )
    axes.legend(frameon=False, fontsize=8)
    return figure
