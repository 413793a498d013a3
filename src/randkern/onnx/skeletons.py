"""Kernels of computation skeletons as ONNX operators: features and exact values.

Sums and products over the factors of a feature are computed for groups of features
with similar numbers of factors. Whether rows lie on their base spaces is not checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern.onnx.traced import ComplexPair, Traced, TracedOps
from randkern.skeletons import Skeleton
from randkern.skeletons.paths import SkeletonColumns, SkeletonPaths

_XP = TracedOps.xp


# -- features ------------------------------------------------------------------------


def skeleton_columns(projection: SkeletonColumns, X: Traced) -> Any:
    """Return weighted columns of features."""
    entries, _ = projection.drawn(np.zeros(1))
    values = skeleton_draws(projection, X)
    both = _XP.concat([values.real, values.imaginary], axis=1)
    widths = np.diff(entries.columns)
    n = len(entries.weights)
    first = np.repeat(np.arange(n), widths)
    second = np.arange(len(first)) - np.repeat(entries.columns[:-1], widths)
    return both[:, first + n * second] * entries.weights[first]


def skeleton_draws(projection: SkeletonPaths, X: Traced) -> ComplexPair:
    """Return Πₖ (aₖ·x + i bₖ·x)^{eₖ} · exp(i p·x) of every draw."""
    entries, used = projection.drawn(np.zeros(1))
    rows = _slots(projection.skeleton, X, used)
    phase = _sums(rows, entries.starts, entries.slots, entries.coefs) + entries.shifts
    out = ComplexPair(_XP.cos(phase), _XP.sin(phase))
    if not len(entries.powers):
        return out
    real = _sums(rows, entries.real_starts, entries.real_slots, entries.real_coefs)
    imaginary = rows[:, entries.imag_slots.clip(0)] * entries.imag_coefs
    owners = np.repeat(np.arange(len(entries.weights)), np.diff(entries.factor_starts))
    counts = np.bincount(owners, entries.powers, minlength=len(entries.weights))
    factors = np.repeat(np.arange(len(entries.powers)), entries.powers)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return _products(ComplexPair(real, imaginary), starts, factors) * out


def _slots(skeleton: Skeleton, X: Traced, used: np.ndarray) -> Traced:
    """Return the columns that features read, as angles if they read angles."""
    alphabet = skeleton.alphabet
    # The skeleton's own function writes to parts of an array, which is not traced.
    rows = X[:, alphabet.slot_columns[used]]
    kinds = alphabet.slot_bases[used]
    for kind, base in enumerate(skeleton.graph.bases):
        angles = base.angles(rows)
        if angles is not rows:
            rows = _XP.where((kinds == kind)[None, :], angles, rows)
    return rows


def _by_segments(function: Any, starts: np.ndarray) -> list[Any]:
    """Return the arrays of columns, one per segment, that a function returns.

    It is called with the positions in segments that are padded to the same power of
    two, −1 past their ends.
    """
    counts = np.diff(starts)
    widths = 2 ** np.ceil(np.log2(counts.clip(1))).astype(np.int64)
    parts, order = [], []
    for width in np.unique(widths):
        chosen = np.flatnonzero(widths == width)
        offset = np.arange(width)
        inside = offset < counts[chosen][:, None]
        parts.append(function(np.where(inside, starts[chosen][:, None] + offset, -1)))
        order.append(chosen)
    places = np.argsort(np.concatenate(order))
    return [
        _XP.concat(same_kind, axis=1)[:, places]
        for same_kind in zip(*parts, strict=True)
    ]


def _sums(X: Traced, starts: np.ndarray, slots: np.ndarray, coefs: np.ndarray) -> Any:
    """Return Σ_p coefs[p]·x[slots[p]] over every segment p."""
    if not X.shape[1]:
        return np.zeros((1, len(starts) - 1)) + 0.0 * X.sum(axis=1, keepdims=True)
    slots = np.append(slots, 0)
    coefs = np.append(coefs, 0.0)

    def sums(at: np.ndarray) -> list[Any]:
        return [(X[:, slots[at]] * coefs[at]).sum(axis=2)]

    return _by_segments(sums, starts)[0]


def _products(
    values: ComplexPair, starts: np.ndarray, which: np.ndarray
) -> ComplexPair:
    """Return the products of values[which[p]] over every segment p."""
    one = 0.0 * values.real[:, :1] + 1.0
    padded = ComplexPair(
        _XP.concat([values.real, one], axis=1),
        _XP.concat([values.imaginary, one - 1.0], axis=1),
    )
    which = np.append(which, values.real.shape[1])

    def product(at: np.ndarray) -> list[Any]:
        factors = padded[:, which[at]]
        while half := factors.real.shape[2] // 2:
            factors = factors[:, :, :half] * factors[:, :, half:]
        return [factors.real[:, :, 0], factors.imaginary[:, :, 0]]

    return ComplexPair(*_by_segments(product, starts))


# -- exact values ----------------------------------------------------------------------


def skeleton_gram(skeleton: Skeleton, X: Traced, rows: np.ndarray) -> Any:
    """Return the kernel of all pairs of rows, by recursion over the nodes."""
    recursion, graph = skeleton.recursion, skeleton.graph
    parts, order = [], []
    for kind, base in enumerate(graph.bases):
        x = recursion.points(X, kind)[:, None]
        parts.append(base.kernel(x, recursion.points(rows, kind)[None]))
        order.append(np.flatnonzero(graph.base == kind))
    inputs = _XP.concat(parts, axis=2)[:, :, np.argsort(np.concatenate(order))]
    known: Any = inputs
    nodes = np.zeros(0, dtype=np.int64)
    for level in recursion._plain_levels:
        means: Any = None
        for matrix, values in (
            (level.from_inputs, inputs),
            (level.from_nodes, known),
        ):
            if matrix is None:
                continue
            dense = matrix.toarray() if values is inputs else matrix[:, nodes].toarray()
            means = values @ dense.T if means is None else means + values @ dense.T
        duals = graph.activations[level.activation].dual(means)
        known = _XP.concat([known, duals], axis=2) if len(nodes) else duals
        nodes = np.concatenate([nodes, level.nodes])
    return known[:, :, -1]
