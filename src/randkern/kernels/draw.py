"""Drawing the plan of a kernel's random features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Kernel, Term, mean_diagonals
from randkern.kernels.factor_draws import FactorDraws, Fourier, allot
from randkern.plan import Factor, Group, Plan


def fit_plan(
    kernel: Kernel,
    X: Rows,
    sample_weight: np.ndarray | None,
    n_components: int | Sequence[int],
    stream: Stream,
    **options: Any,
) -> Plan:
    """Return the plan of a resolved kernel's features for rows like X.

    `options` are those of :func:`draw_plan`.
    """
    terms = kernel.terms()
    if sample_weight is not None and (sample_weight == 0).any():
        weighted = ops_of(X).flatnonzero(sample_weight)
        X, sample_weight = X[weighted], sample_weight[weighted]
    diagonals = mean_diagonals(terms, X, sample_weight)
    return draw_plan(kernel, n_components, X.shape[1], diagonals, stream, **options)


def draw_plan(
    kernel: Kernel,
    n_components: int | Sequence[int],
    n_features: int,
    diagonals: np.ndarray,
    stream: Stream,
    *,
    projection: str = "auto",
    fourier: Fourier = "pair",
    centered: bool = False,
) -> Plan:
    """Return the plan of `n_components` features (or one number per term) of a kernel.

    The kernel must be resolved; `diagonals` holds the mean diagonal of every term.
    """
    terms = kernel.terms()
    if centered and not any(term.can_center for term in terms):
        raise ValueError(
            f"centered=True needs features of known mean, such as optical ones, which "
            f"no term of {kernel} has; use centered=False."
        )
    widths = allot(
        n_components, diagonals, [term.exact_width(n_features) for term in terms]
    )
    groups: list[Group] = []
    start = 0
    for index, (term, width) in enumerate(zip(terms, widths, strict=True)):
        draws = FactorDraws(stream.child("term", index), projection, fourier)
        stop = start + width
        groups += _term_groups(term, n_features, start, stop, draws, centered)
        start = stop
    return Plan(tuple(groups), n_features)


def _term_groups(
    term: Term,
    n_features: int,
    start: int,
    stop: int,
    draws: FactorDraws,
    centered: bool,
) -> list[Group]:
    """Return the groups of columns of one term."""
    width, fourier = stop - start, draws.fourier
    (leaf, *others) = term.leaves
    inputs = leaf.inputs(n_features)
    own = None if others else leaf.own_projection(draws, width, inputs.width)
    if own is not None:
        factor = Factor(own, leaf.nonlinearity, inputs)
        if own.writes_columns:
            return [Group((factor,), start, stop, math.sqrt(term.weight), "columns")]
        weight = math.sqrt(term.weight / width)
        return [Group((factor,), start, stop, weight, "amplitude")]

    def factors(n_draws: int) -> tuple[Factor, ...]:
        drawn = []
        for leaf in term.leaves:
            inputs = leaf.inputs(n_features)
            for _ in range(leaf.n_factors):
                projection = leaf.projection(draws, n_draws, inputs.width)
                drawn.append(Factor(projection, leaf.nonlinearity, inputs))
        return tuple(drawn)

    if term.has_phase:
        n_draws = (width + 1) // 2 if fourier == "pair" else width
        weight = math.sqrt(2 * term.weight / width)
        return [Group(factors(n_draws), start, stop, weight, fourier, draws.offsets)]
    if centered and term.can_center and width > 1:
        drawn = factors(width - 1)
        weight = math.sqrt(term.weight / (width - 1))
        mean = Group(drawn, start, start + 1, math.sqrt(term.weight), "mean")
        return [mean, Group(drawn, start + 1, stop, weight, "centered")]
    weight = math.sqrt(term.weight / width)
    return [Group(factors(width), start, stop, weight, "amplitude")]
