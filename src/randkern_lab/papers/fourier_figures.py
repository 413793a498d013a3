"""Figures of Gaussian processes and support vector machines on Fourier features.

As in :mod:`randkern.plots`, figures are made directly, not through pyplot.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .optical_figures import logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_fourier_svm", "plot_kitchen_sinks"]

# Okabe and Ito's palette; dashes and markers tell the curves apart without it.
_BLUE, _RED, _GREEN = "#0072B2", "#D55E00", "#009E73"
_CONVENTIONS = {
    "2*pi": r"$e^{2\pi i\,w\cdot\tau}$,  $w\sim N(0,(2\pi\ell)^{-2})$",
    "1": r"$e^{i\,w\cdot\tau}$,  $w\sim N(0,\ell^{-2})$",
}
_ERRORS = {
    ("2*pi", "mean"): ("mean, 2π", _BLUE, "o", "-"),
    ("1", "mean"): ("mean, 1", _GREEN, "s", (0, (4, 2))),
    ("2*pi", "sd"): ("sd, 2π", _RED, "^", "-"),
    ("1", "sd"): ("sd, 1", "#CC79A7", "D", (0, (4, 2))),
}
_KERNELS = {
    "gaussian": ("Gaussian", _BLUE, "o"),
    "laplacian": ("Laplacian", _RED, "s"),
    "cauchy": ("Cauchy", _GREEN, "^"),
}


def plot_kitchen_sinks(results: Mapping[str, Any]) -> "Figure":
    """Plot mean and two standard errors in both conventions, and errors against D.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.kitchen_sinks_gp.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.0), dpi=150, layout="constrained")
    left, right, errors = figure.subplots(1, 3, width_ratios=(1.15, 1.15, 1.0))
    curves = results["curves"]
    for axes, (convention, title) in zip(
        (left, right), _CONVENTIONS.items(), strict=True
    ):
        _plot_posterior(axes, curves, convention, results["n_components"])
        axes.set_title(title, fontsize=11)
    right.sharey(left)
    left.set_ylabel("f(x): mean ± 2 standard errors")
    left.legend(frameon=False, fontsize=8, loc="lower left", ncols=2)
    _plot_errors(errors, results)
    return figure


def _plot_posterior(
    axes: "Axes", curves: Mapping[str, Any], convention: str, size: int
) -> None:
    x = np.array(curves["x"])
    mean, sd = (np.array(curves[convention][key]) for key in ("mean", "sd"))
    axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=_BLUE, alpha=0.22, lw=0)
    axes.plot(x, mean, color=_BLUE, lw=1.8, label=f"{size:,} features")
    mean, sd = (np.array(curves["exact"][key]) for key in ("mean", "sd"))
    axes.plot(x, mean, color=_RED, lw=1.4, linestyle="--", label="exact")
    for sign, label in ((-2, "exact ± 2 sd"), (2, None)):
        axes.plot(x, mean + sign * sd, color=_RED, lw=1.0, linestyle=":", label=label)
    rows = curves["rows"]
    axes.plot(rows["x"], rows["y"], ".", color="black", ms=4, label="rows")
    axes.set_xlabel("x")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.18 * (high - low), high)  # room for the legend
    axes.grid(alpha=0.25)


def _plot_errors(axes: "Axes", results: Mapping[str, Any]) -> None:
    records = results["records"]
    sizes = sorted({r["n_components"] for r in records})
    for (convention, key), (label, colour, marker, dashes) in _ERRORS.items():
        points = [
            np.sqrt(
                np.mean(
                    [
                        r[f"{key}_error"] ** 2
                        for r in records
                        if r["convention"] == convention and r["n_components"] == size
                    ]
                )
            )
            for size in sizes
        ]
        slope = results["exponents"][convention][key]
        named = label if slope is None else f"{label}: $D^{{{slope:.2f}}}$"
        axes.plot(
            *(sizes, points),
            color=colour,
            marker=marker,
            linestyle=dashes,
            ms=5,
            lw=1.5,
            label=named,
        )
        if (convention, key) == ("2*pi", "mean"):
            guide = 1.6 * points[-1] * np.sqrt(sizes[-1] / np.array(sizes))
    axes.plot(sizes, guide, color="0.5", lw=1.0, linestyle=":", label=r"$D^{-1/2}$")
    logarithmic(axes, "x", sizes)
    logarithmic(axes, "y")
    axes.set_xlabel("number of random features D")
    axes.set_ylabel("root mean square error")
    axes.set_title("against the exact process", fontsize=11)
    axes.legend(frameon=False, fontsize=8)


def plot_fourier_svm(results: Mapping[str, Any]) -> "Figure":
    """Plot seconds and accuracy against n, and accuracy of kernels and maps.

    Parameters
    ----------
    results : mapping
        From :func:`randkern_lab.papers.fourier_svm.run`.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    records = results["records"]
    names = list(dict.fromkeys(r["dataset"] for r in records if r["measure"] == "rows"))
    figure = Figure(figsize=(12.5, 3.9 * len(names)), dpi=150, layout="constrained")
    grid = figure.subplots(len(names), 3, squeeze=False)
    for axes, name in zip(grid, names, strict=True):
        own = [r for r in records if r["dataset"] == name]
        _plot_against_rows(axes[0], own, results["exponents"][name], "cpu_seconds")
        _plot_against_rows(axes[1], own, results["exponents"][name], "accuracy")
        _plot_against_components(axes[2], own)
        axes[0].set_title(f"{name}: processor seconds of fit", fontsize=11)
        axes[1].set_title(f"{name}: test accuracy", fontsize=11)
        size = next(r["n_train"] for r in own if r["measure"] == "soft")
        axes[2].set_title(f"{name}, {size:,} rows: features", fontsize=11)
    return figure


def _plot_against_rows(
    axes: "Axes", records: list[Any], exponents: Mapping[str, Any], key: str
) -> None:
    own = [r for r in records if r["measure"] == "rows"]
    for method in dict.fromkeys(r["method"] for r in own):
        points = sorted((r["n_train"], r[key]) for r in own if r["method"] == method)
        peer = method == "SVC"
        slope = exponents.get(method)
        label = "scikit-learn's SVC" if peer else f"{_KERNELS[method][0]}, features"
        if key == "cpu_seconds" and slope is not None:
            label += f": $n^{{{slope:.2f}}}$"
        axes.plot(
            *np.transpose(points),
            color="black" if peer else _KERNELS[method][1],
            marker="X" if peer else _KERNELS[method][2],
            linestyle="--" if peer else "-",
            lw=1.5,
            ms=5.5,
            label=label,
        )
    logarithmic(axes, "x", sorted({r["n_train"] for r in own}))
    if key == "cpu_seconds":
        logarithmic(axes, "y")
    else:
        axes.grid(alpha=0.25)
    axes.set_xlabel("training rows n")
    axes.set_ylabel("seconds" if key == "cpu_seconds" else key)
    axes.legend(frameon=False, fontsize=8)


def _plot_against_components(axes: "Axes", records: list[Any]) -> None:
    own = [r for r in records if r["measure"] == "soft"]
    sizes = sorted({r["n_components"] for r in own if r["n_components"]})
    for kernel, (label, colour, marker) in _KERNELS.items():
        of = [r for r in own if r["kernel"] == kernel]
        for fourier, dashes in (("pair", "-"), ("offset", (0, (4, 2)))):
            points = [
                np.mean(
                    [
                        r["accuracy"]
                        for r in of
                        if r["fourier"] == fourier and r["n_components"] == size
                    ]
                )
                for size in sizes
            ]
            axes.plot(
                *(sizes, points),
                color=colour,
                marker=marker,
                linestyle=dashes,
                markerfacecolor=colour if fourier == "pair" else "white",
                lw=1.5,
                ms=5,
                label=f"{label}, {fourier}",
            )
        for record in of:
            if record["n_components"] is None:
                axes.axhline(record["accuracy"], color=colour, lw=1.0, linestyle=":")
    axes.plot([], [], color="0.4", lw=1.0, linestyle=":", label="exact kernels")
    logarithmic(axes, "x", sizes)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.45 * (high - low), high)  # room for the legend
    axes.grid(alpha=0.25)
    axes.set_xlabel("number of random features D")
    axes.set_ylabel("test accuracy")
    axes.legend(frameon=False, fontsize=8, loc="lower center", ncols=2)
