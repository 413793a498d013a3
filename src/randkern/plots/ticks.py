"""Numbers along the axes of figures."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def legible_ticks(axes: "Axes", most: int = 5) -> None:
    """Label linear axes with at most so many numbers, such as 100,000.

    Axes whose places or labels are set stay as they are.
    """
    from matplotlib.ticker import MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        # Names along an axis are units.
        if axis.get_scale() != "linear" or axis.have_units():
            continue
        if not axis.isDefault_majloc:
            continue
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
        if axis.isDefault_majfmt:
            axis.set_major_formatter(lambda value, _: number(value))


def number(value: float) -> str:
    """Return a number with separated thousands, and exponents from 10¹⁰ on.

    Examples
    --------
    >>> from randkern.plots.ticks import number
    >>> number(100000.0), number(-0.30000000000000004)
    ('100,000', '−0.3')
    """
    return f"{value:,.10g}".replace("-", "−")
