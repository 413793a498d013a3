"""Checks of graphs and their activations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from graphlib import CycleError, TopologicalSorter

import numpy as np

from randkern.skeletons.activations import Activation

_TERMS = 2_001
# Points where series and closed form are compared; the series converges fast there.
_POINTS = np.array([0.0, 0.3, 0.6, 0.99, -0.5])
_TOLERANCE = 1e-6
_NOTHING = 1e-12


def check_activation(activation: Activation) -> None:
    """Raise unless a series is a distribution and matches the activation's closed form.

    Comparisons are written so that NaN fails.
    """
    series = np.asarray(activation.coefficients(_TERMS), dtype=float)
    label = repr(activation)
    if series.shape != (_TERMS,) or not np.all(np.isfinite(series)):
        raise ValueError(
            f"coefficients(n) of {label} must return n finite numbers, got an array of "
            f"shape {series.shape} for n = {_TERMS}."
        )
    if series.min() < 0:
        raise ValueError(
            f"the coefficients of {label} must be at least 0, got {series.min():g} for "
            f"degree {int(series.argmin())}."
        )
    at_one = float(np.asarray(activation.dual(np.ones(1)))[0])
    if not (abs(at_one - 1) <= _TOLERANCE and series.sum() <= 1 + _TOLERANCE):
        raise ValueError(
            f"{label} is not normalised: its value at 1 is {at_one:.6g} and its "
            f"coefficients sum to {series.sum():.6g}, but both must be 1; divide both "
            "by the value at 1."
        )
    sums = np.polynomial.polynomial.polyval(_POINTS, series)
    closed = np.asarray(activation.dual(_POINTS), dtype=float)
    gaps = np.abs(sums - closed)
    if not gaps.max() <= _TOLERANCE:
        worst = int(gaps.argmax())
        raise ValueError(
            f"the coefficients of {label} do not match its closed form: at "
            f"{_POINTS[worst]} the series is {sums[worst]:.6g} and dual() returns "
            f"{closed[worst]:.6g}; correct one of them."
        )
    _check_slope(float(activation.derivative_at_one()), series, label)


def _check_slope(slope: float, series: np.ndarray, label: str) -> None:
    """Raise unless a slope at 1 can be the mean degree of a distribution.

    It is at least the sum over the listed coefficients, and equal to it if they sum to
    1; it is also at least their number times the missing probability (Markov's
    inequality).
    """
    listed = float(np.arange(len(series)) @ series)
    missing = max(0.0, 1.0 - float(series.sum()))
    min_slope = listed + len(series) * missing
    if not slope >= min_slope * (1 - _TOLERANCE) - len(series) * _TOLERANCE:
        raise ValueError(
            f"derivative_at_one() of {label} is {slope:.6g}, but its first "
            f"{len(series):,} coefficients, which sum to {1 - missing:.6g}, imply at "
            f"least {min_slope:.6g}; return the mean degree, or correct the "
            "coefficients."
        )
    # If only rounding errors are missing, there are no further degrees.
    if missing <= _NOTHING and not slope <= listed * (1 + _TOLERANCE) + _TOLERANCE:
        raise ValueError(
            f"derivative_at_one() of {label} is {slope:.6g}, but the mean degree of "
            f"its coefficients, which sum to 1, is {listed:.6g}; return this value."
        )


def ordered(
    inputs: list[Hashable],
    internal: list[Hashable],
    edges: Iterable[tuple[Hashable, Hashable]],
) -> tuple[list[Hashable], dict[Hashable, list[Hashable]]]:
    """Return the internal nodes in topological order, and the sources of each.

    Raise if the graph is not a skeleton; the message names the nodes.
    """
    sources = _entering(inputs, internal, edges)
    if not inputs:
        raise ValueError(
            "a skeleton needs at least one input node, such as Input('circle', 0)."
        )
    for name in internal:
        if not sources[name]:
            raise ValueError(
                f"the internal node {name!r} has no incoming edges; add an edge to it, "
                "or remove the node."
            )
    sorter: TopologicalSorter[Hashable] = TopologicalSorter(dict.fromkeys(inputs, ()))
    for name, entering in sources.items():
        sorter.add(name, *entering)
    try:
        order = [name for name in sorter.static_order() if name in sources]
    except CycleError as error:
        raise ValueError(
            f"the edges form a cycle through the nodes {error.args[1]}; remove one of "
            "its edges."
        ) from None
    read = {name for entering in sources.values() for name in entering}
    outputs = [name for name in [*inputs, *internal] if name not in read]
    if len(outputs) > 1:
        unused = [name for name in outputs if name not in sources]
        if len(outputs) - len(unused) == 1:
            raise ValueError(
                f"the input {unused[0]!r} has no outgoing edges; add one, or remove "
                "the input."
            )
        raise ValueError(
            f"a skeleton must have a single output, but the nodes {outputs} have no "
            "outgoing edges; connect them to one node, for instance with the "
            "activation 'identity'."
        )
    return order, sources


def _entering(
    inputs: list[Hashable],
    internal: list[Hashable],
    edges: Iterable[tuple[Hashable, Hashable]],
) -> dict[Hashable, list[Hashable]]:
    """Return the sources of every internal node."""
    sources: dict[Hashable, list[Hashable]] = {name: [] for name in internal}
    known = {*inputs, *internal}
    seen = set()
    for edge in edges:
        try:
            start, end = edge
        except (TypeError, ValueError):
            raise ValueError(
                f"an edge must be a pair (from, to), got {edge!r}."
            ) from None
        for name in (start, end):
            if name not in known:
                raise ValueError(
                    f"the edge {edge!r} refers to {name!r}, which is not a node; "
                    f"expected one of {sorted(known, key=str)}."
                )
        if end not in sources:
            raise ValueError(
                f"the edge {edge!r} ends at an input, which cannot have incoming edges."
            )
        if (start, end) in seen:
            raise ValueError(
                f"duplicate edge {edge!r}; to give a node more weight, repeat the node."
            )
        seen.add((start, end))
        sources[end].append(start)
    return sources
