"""Ridge classification on the first D columns of one draw of features, for many D.

The Gram matrix of the first D columns is the leading block of that of all D₀, so that
one pass over the rows serves every D. The columns have the scale 1/√D₀, those of a map
of D features 1/√D: the penalty α of the latter is here α·D/D₀.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randkern.data import row_blocks
from randkern.models.normal_equations import NormalEquations

from ..scoring import ended

#: A function that returns the features, (m, D₀) in float32, of a slice of rows.
FeaturesOf = Callable[[slice], NDArray[Any]]

_BLOCK_ROWS = 2048  # whose float32 products are summed before they become float64
_TIMES = 3  # that a block is timed
_PREDICTED_ROWS = 512  # whose features are copied to float64


@dataclass(frozen=True)
class Fit:
    """The weights, (D, k), of the first D columns, and how the solve ended."""

    n_components: int
    alpha: float
    weights: NDArray[Any]
    seconds: float
    ended: dict[str, Any]


def drawn(features: Any, *arrays: NDArray[Any]) -> list[FeaturesOf]:
    """Draw features; return for each array a function of a slice: those of its rows."""
    features.fit(arrays[0][:1].astype(np.float32))

    def features_of(X: NDArray[Any], rows: slice) -> NDArray[Any]:
        return np.asarray(features.transform(X[rows].astype(np.float32, copy=False)))

    return [partial(features_of, X) for X in arrays]


def shifted(features_of: FeaturesOf, first: int) -> FeaturesOf:
    """Return the function of the rows from a row on."""
    return lambda rows: features_of(slice(rows.start + first, rows.stop + first))


def normal_equations(
    features_of: FeaturesOf,
    Y: NDArray[Any],
    equations: NormalEquations | None = None,
) -> NormalEquations:
    """Return the normal equations of rows with targets (n, k), block by block.

    They are added to `equations`, if there are any.
    """
    for rows in row_blocks(len(Y), _BLOCK_ROWS):
        Z = features_of(rows)
        if equations is None:
            equations = NormalEquations.empty(Z.shape[1], Y.shape[1], 1.0)
        equations.add_features(Z, Y[rows])
    if equations is None:
        raise ValueError("there are no rows to fit; expected at least one")
    return equations


def solved(
    equations: NormalEquations, sizes: Iterable[int], alphas: Sequence[float]
) -> Iterator[Fit]:
    """Yield the fit to the first D columns with each penalty, without an intercept."""
    largest = len(equations.gram)
    for size in sizes:
        own = equations.leading(size)
        for alpha in alphas:
            start = time.perf_counter()
            solved = own.solve(
                alpha * size / largest, fit_intercept=False, overwrite=False
            )
            seconds = time.perf_counter() - start
            solution = solved.solution
            yield Fit(size, alpha, solution.value, seconds, ended(solution))


def class_errors(
    fits: Sequence[Fit], features_of: FeaturesOf, y: NDArray[Any], classes: NDArray[Any]
) -> list[float]:
    """Return the share of wrong labels of each fit."""
    wrong = np.zeros(len(fits), dtype=int)
    for rows in row_blocks(len(y), _PREDICTED_ROWS):
        # The predictions of ill-conditioned fits are small sums of large terms.
        Z = features_of(rows).astype(float)
        for i, fit in enumerate(fits):
            scores = Z[:, : fit.n_components] @ fit.weights
            wrong[i] += np.sum(classes[scores.argmax(axis=1)] != y[rows])
    return [int(n) / len(y) for n in wrong]


def gram_seconds(
    features_of: FeaturesOf, Y: NDArray[Any], sizes: Iterable[int]
) -> dict[int, float]:
    """Return the seconds that the normal equations of the first D columns take.

    They are those of one block of rows, the least of three times, times the number of
    rows over that of the block.
    """
    rows = slice(0, min(len(Y), _BLOCK_ROWS))
    Z, result = features_of(rows), {}
    for size in sizes:
        own = np.ascontiguousarray(Z[:, :size])
        equations = NormalEquations.empty(size, Y.shape[1], 1.0)
        seconds = []
        for _ in range(_TIMES):
            start = time.perf_counter()
            equations.add_features(own, Y[rows])
            seconds.append(time.perf_counter() - start)
        result[size] = min(seconds) * len(Y) / len(own)
    return result
