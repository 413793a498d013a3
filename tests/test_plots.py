"""Figures from records: what is drawn, and that it can be read."""

from itertools import pairwise

import numpy as np
import pytest

from randkern.plots.drawing import legible_ticks
from randkern.plots.records import plot_compare

pytest.importorskip("matplotlib")

SIZES = (30, 100, 300, 1000, 3000)
KERNELS = (
    *("gaussian", "laplacian", "cauchy", "matern:2.5"),
    *("rational-quadratic", "linear", "optical:4"),
)


def synthetic_records(kernels=KERNELS[:3], sizes=SIZES, exact=True, seeds=3):
    rng = np.random.default_rng(0)
    records = []
    for position, kernel in enumerate(kernels):
        limit = 0.02 + 0.01 * position
        if exact:
            records.append(
                {"kernel": kernel, "n_components": None, "test_error": limit}
            )
        for size in sizes:
            for _ in range(seeds):
                error = limit + rng.uniform(0.8, 1.2) / np.sqrt(size)
                records.append(
                    {"kernel": kernel, "n_components": size, "test_error": error}
                )
    return records


def test_points_are_means_and_bars_standard_errors():
    """Errors of a mean over seeds, and of test rows, add in squares."""
    record = {"kernel": "gaussian", "n_components": 10, "standard_error": 0.075}
    records = [record | {"test_error": error} for error in (0.1, 0.3)]
    line, _, (bars,) = plot_compare(records).axes[0].containers[0].lines
    assert line.get_ydata() == pytest.approx([0.2])
    error = np.hypot(0.1, 0.075)
    assert bars.get_segments()[0][:, 1] == pytest.approx([0.2 - error, 0.2 + error])


def test_numbers_along_axes_have_separated_thousands():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    axes.plot([50_000, 350_000], [-1.5e5, 1.5e5])
    legible_ticks(axes)
    labels = [axes.xaxis.get_major_formatter()(x) for x in axes.get_xticks()]
    assert "100,000" in labels and len(labels) <= 7
    assert axes.yaxis.get_major_formatter()(-1.5e5) == "−150,000"
    named = Figure().add_subplot()
    named.barh(["a", "b"], [1, 2])
    legible_ticks(named)
    assert [text.get_text() for text in named.get_yticklabels()] == ["a", "b"]


def test_axes_say_what_they_show():
    figure = plot_compare(
        synthetic_records(), dataset="digits", metric="misclassified", percent=True
    )
    axes = figure.axes[0]
    figure.draw_without_rendering()
    assert axes.get_title() == "digits"
    assert axes.get_ylabel() == "misclassified"
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        *("30", "100", "300", "1,000", "3,000")
    ]
    assert axes.get_yticklabels()[0].get_text().endswith("%")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [(10,), (100, 110, 120, 1000), tuple(2**k for k in range(3, 18))]
)
def test_tick_labels_and_legend_overlap_nothing(sizes):
    figure = plot_compare(synthetic_records(KERNELS, sizes))
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) >= 1
    for left, right in pairwise(boxes):
        assert left.x1 < right.x0
    legend = figure.legends[0].get_window_extent()
    assert not legend.overlaps(figure.axes[0].get_window_extent())
    assert legend.x1 <= figure.bbox.x1
    assert legend.y0 >= figure.bbox.y0
