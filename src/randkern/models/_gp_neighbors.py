"""Gaussian processes of which every row depends on its nearest rows only.

With rows in a random order, the exact density of targets is a product of conditional
ones, p(y_i | y_1, ..., y_{i−1}). Vecchia's approximation conditions each on k of these
rows, nearby ones, and predicts a new row from the k nearest rows of the fit: with their
covariance C = K + σ²W⁻¹ and their kernel values c with x,

    mean cᵀC⁻¹y,   Var f(x) = k(x, x) − cᵀC⁻¹c,

which takes O(k³) operations. Distances are those of columns over their lengthscales.

Rows at one place are one row with the mean of their targets and the sum of their
weights: k neighbours are k places, and nothing is lost. With k rows of a cluster much
nearer than all others, a prediction knows nothing beyond the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from randkern._memory import check_memory
from randkern._random import Stream
from randkern._validation import Rows, is_tensor
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.reading import are_in_memory
from randkern.data.sample import stacked
from randkern.data.training_data import ArrayRows, FitData
from randkern.kernels import Kernel
from randkern.kernels.hyperparameters import Hyperparameters, add_gram_gradient
from randkern.models._gp_evidence import Normal, NormalEvidence
from randkern.models._gp_likelihood import Evidence
from randkern.models._gp_rows import FIRST_ROWS
from randkern.models.cells import scaled_rows
from randkern.plan import Plan

# Rows whose conditional densities estimate the likelihood while it is maximised.
_LEARNED_ROWS = 2000
# Rows of a block, whose kernel values are computed together with those of all their
# neighbours: rows of a sample share few neighbours, nearby rows most of them.
_SAMPLED_BLOCK = 4
_NEARBY_BLOCK = 32
# The smallest noise, relative to the largest k(x, x) and per neighbour: rounding errors
# of covariances are smaller.
_ROUNDING = 4 * np.finfo(float).eps


def check_neighbors(model: Any, X: Any) -> None:
    """Raise if the `n_neighbors` of a regressor does not support these rows."""
    if model.n_neighbors is None:
        return
    if model.n_components is not None:
        raise ValueError(
            "n_neighbors takes exact kernel values of the nearest rows: set "
            f"n_components=None, got {model.n_components}; or n_neighbors=None."
        )
    if model.likelihood != "gaussian":
        raise ValueError(
            f"n_neighbors requires likelihood='gaussian', got {model.likelihood!r}; "
            "use n_neighbors=None."
        )
    if not are_in_memory(X) or is_tensor(X):
        raise ValueError(
            "n_neighbors needs all rows of the fit in memory, as arrays or dataframes, "
            f"got {type(X).__name__}; n_components with n_neighbors=None takes others."
        )


@dataclass(frozen=True)
class Conditionals:
    """The distributions of f at the rows of a block, given their neighbours.

    `rows` are the distinct neighbours, then the rows of the block; `places` (b, k) and
    `own` (b,) are the positions of both in it.
    """

    rows: Rows
    places: np.ndarray
    own: np.ndarray
    # C⁻¹c, (b, k), C⁻¹y, (b, k, n_targets), and the noise of neighbours, (b, k).
    weights: np.ndarray
    solved: np.ndarray
    noise: np.ndarray
    # (b, n_targets) and (b,).
    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        X: Rows,
        known: ArrayRows,
        neighbors: np.ndarray,
        noise: float,
    ) -> Conditionals:
        """Condition rows X on known rows with the numbers `neighbors`, (b, k)."""
        distinct, places = np.unique(neighbors, return_inverse=True)
        places = places.reshape(neighbors.shape)
        b = len(neighbors)
        k = neighbors.shape[1]
        own = len(distinct) + np.arange(b)
        rows = stacked([known.X[distinct], X])
        gram = kernel._gram(rows, None)
        C = gram[places[:, :, None], places[:, None, :]]
        Y, weight = known.targets()
        noises = noise / weight[neighbors]
        noises = noises.clip(k * _ROUNDING * gram.diagonal().max())
        C[:, range(k), range(k)] += noises
        c = gram[places, own[:, None]]
        right = np.concatenate([c[:, :, None], Y[neighbors]], axis=2)
        solved = np.linalg.solve(C, right)
        weights, solved = solved[:, :, 0], solved[:, :, 1:]
        mean = np.einsum("bk,bkt->bt", c, solved)
        variance = gram[own, own] - np.einsum("bk,bk->b", c, weights)
        return cls(rows, places, own, weights, solved, noises, mean, variance.clip(0.0))

    def gradient(
        self,
        hyper: Hyperparameters,
        by_variance: np.ndarray,
        by_mean: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """Add to `out` the slopes in θ, with log σ² last, from those in the moments.

        With β = C⁻¹c and α = C⁻¹y, ∂Var = ∂k(x, x) − 2βᵀ∂c + βᵀ∂Cβ and
        ∂mean = αᵀ∂c − βᵀ∂Cα.
        """
        by_gram = np.zeros((self.rows.shape[0],) * 2)
        alpha = np.einsum("bkt,bt->bk", self.solved, by_mean)
        for row, (places, own) in enumerate(zip(self.places, self.own, strict=True)):
            beta, v = self.weights[row], by_variance[row]
            residual = v * beta - alpha[row]
            by_gram[np.ix_(places, places)] += np.outer(beta, residual)
            by_gram[places, own] += alpha[row] - 2 * v * beta
            by_gram[own, own] += v
            out[-1] += float((beta * residual * self.noise[row]).sum())
        add_gram_gradient(hyper, self.rows, self.rows, by_gram, out[:-1])


@dataclass(frozen=True)
class Deviations:
    """The log density of targets at one place, given their mean.

    It is −½(squares/σ² + count·log 2πσ² + constant), summed over places and targets.
    """

    squares: float = 0.0
    count: float = 0.0
    constant: float = 0.0

    def __add__(self, other: Deviations) -> Deviations:
        return Deviations(
            self.squares + other.squares,
            self.count + other.count,
            self.constant + other.constant,
        )

    def at(self, noise: float) -> tuple[float, float]:
        """Return the log density, and its derivative in log σ²."""
        squares = self.squares / noise
        value = squares + self.count * math.log(2 * math.pi * noise) + self.constant
        return -0.5 * value, 0.5 * (squares - self.count)


def merged(rows: ArrayRows, precisions: bool) -> tuple[ArrayRows, Deviations]:
    """Return one row for each place, in the order of the first ones, and the rest.

    As counts, the weights say how many targets a row stands for; the density of as many
    targets without deviations is that of the row.
    """
    X = ops_of(rows.X).densified(rows.X)
    _, first, place = np.unique(X, axis=0, return_index=True, return_inverse=True)
    if len(first) == rows.n_rows:
        return rows, Deviations()
    rank = np.empty_like(first)
    rank[first.argsort()] = np.arange(len(first))
    place = rank[place.ravel()]
    Y, weight = rows.targets()
    total = np.bincount(place, weight)
    sums = [np.bincount(place, weight * y) for y in Y.T]
    means = np.stack(sums, axis=1) / total[:, None]
    squares = float((weight[:, None] * (Y - means[place]) ** 2).sum())
    out = ArrayRows(rows.X[np.sort(first)], means, total)
    if not precisions:
        return out, Deviations(squares)
    k = rows.n_targets
    logarithms = float(np.log(total).sum() - np.log(weight).sum())
    return out, Deviations(squares, k * (rows.n_rows - len(first)), k * logarithms)


@dataclass(frozen=True)
class NearestPosterior:
    """The posterior of f at single rows, from the nearest ones of the fit."""

    kernel: Kernel
    likelihood: Nearest
    # Of places, from rows of positive weight.
    X: Rows
    Y: np.ndarray
    weight: np.ndarray | None
    deviations: Deviations

    @classmethod
    def of(
        cls, kernel: Kernel, likelihood: Nearest, rows: ArrayRows, before: Deviations
    ) -> NearestPosterior:
        """Return the posterior given rows of positive weight."""
        places, deviations = merged(rows, likelihood.precisions)
        X, Y, weight = places.X, places.Y, places.weight
        return cls(kernel, likelihood, X, Y, weight, before + deviations)

    @property
    def rows(self) -> ArrayRows:
        """The places of the fit."""
        return ArrayRows(self.X, self.Y, self.weight)

    @property
    def evidence(self) -> float:
        """Vecchia's approximation of the log marginal likelihood of all rows."""
        noise = self.likelihood.noise
        rows = self.rows
        evidence = NearestEvidence(rows, self.kernel, self.likelihood, rows.n_rows)
        theta = np.append(evidence.hyper.theta, math.log(noise))
        return evidence(theta, gradient=False)[0] + self.deviations.at(noise)[0]

    def moments(self, X: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return means (n, n_targets) and variances (n, 1) of f at rows."""
        rows = self.rows
        X = ops_of(X).as_float64(X)
        likelihood = self.likelihood
        k = min(likelihood.n_neighbors, rows.n_rows)
        new = _scaled(self.kernel, X, likelihood.stream)
        tree = cKDTree(_scaled(self.kernel, rows.X, likelihood.stream))
        _, neighbors = tree.query(new, range(1, k + 1))
        means = np.empty((len(new), rows.n_targets))
        variances = np.empty(len(new))
        for block in _nearby(new, _NEARBY_BLOCK):
            part = Conditionals.of(
                self.kernel, X[block], rows, neighbors[block], likelihood.noise
            )
            means[block], variances[block] = part.mean, part.variance
        return means, variances[:, None]


class NearestEvidence(Evidence):
    """Vecchia's approximation of the log marginal likelihood, and its gradient.

    The density of the first k + 1 rows is exact. Of the others at most `most` are
    drawn, whose conditional densities count for all. Row i has the nearest k of the
    first k·2^j < i rows, for the largest j, by the initial hyperparameters.
    """

    def __init__(
        self,
        rows: ArrayRows,
        kernel: Kernel,
        likelihood: Nearest,
        most: int = _LEARNED_ROWS,
    ):
        precisions, stream = likelihood.precisions, likelihood.stream
        n_neighbors = likelihood.n_neighbors
        rows, self._deviations = merged(rows, precisions)
        super().__init__(rows, kernel, None)
        self.precisions = precisions
        self.n_neighbors = n_neighbors
        n = rows.n_rows
        first = min(rows.n_rows, n_neighbors + 1)
        order = stream.child("order").generator().permutation(n)
        sample = rows.take(order[:first])
        self._first = NormalEvidence(sample, kernel, None, precisions)
        numbers = np.arange(first, n)
        size = _NEARBY_BLOCK
        if len(numbers) > most:
            generator = stream.child("conditionals").generator()
            numbers = np.sort(generator.choice(numbers, most, replace=False))
            size = _SAMPLED_BLOCK
        self.n_evaluated = first + len(numbers)
        self._share = (n - first) / max(len(numbers), 1)
        scaled = _scaled(kernel, rows.X[order], stream)
        self._blocks = [
            (order[block], order[neighbors])
            for block, neighbors in _preceding(scaled, numbers, n_neighbors, size)
        ]

    @property
    def operations(self) -> float:
        # Kernel values and their slopes, (k + 1)² per row, take about as many
        # operations as systems of 32 rows.
        k = self.n_neighbors
        return self.n_evaluated * (4.0 * k**3 + 100.0 * k**2)

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        hyper = self.hyper.at(theta[:-1])
        noise = math.exp(theta[-1])
        first, out = self._first(theta, gradient)
        value = 0.0
        slopes = np.zeros_like(out)
        rows = self.rows
        for block, neighbors in self._blocks:
            part = Conditionals.of(hyper.kernel, rows.X[block], rows, neighbors, noise)
            weight = self._weight[block]
            variance = (part.variance + noise / weight)[:, None]
            errors = rows.Y[block] - part.mean
            squares = errors**2 / variance
            value -= 0.5 * float((np.log(2 * math.pi * variance) + squares).sum())
            # As counts, weights repeat rows: the density of their mean is above, that
            # of their deviations from it, which are 0, is added.
            repeats = 0.0
            if not self.precisions:
                repeats = rows.n_targets * float((weight - 1).sum())
                logs = rows.n_targets * float(np.log(weight).sum())
                value -= 0.5 * (repeats * math.log(2 * math.pi * noise) + logs)
            if gradient:
                by_variance = -0.5 * ((1 - squares) / variance).sum(axis=1)
                part.gradient(hyper, by_variance, errors / variance, slopes)
                slopes[-1] += (
                    float((by_variance * noise / weight).sum()) - 0.5 * repeats
                )
        rest, slope = self._deviations.at(noise)
        out += self._share * slopes
        out[-1] += slope if gradient else 0.0
        return first + self._share * value + rest, out


@dataclass(frozen=True)
class Nearest(Normal):
    """Normal noise; every row depends on its nearest rows only."""

    n_neighbors: int
    stream: Stream

    def check_memory(self, data: FitData, n_learned: int) -> None:
        # Copies of the rows in random order and over their lengthscales, a tree of
        # them, and the neighbours of all rows with their distances.
        n, d = data.rows.n_rows, data.rows.like.shape[1]
        needed = 8 * n * (4 * d + 2 * self.n_neighbors)
        subject = f"the process of {n} rows with n_neighbors={self.n_neighbors}"
        check_memory(needed, data.limit, subject, "Use fewer neighbors")

    def evidence(self, rows: ArrayRows, kernel: Kernel, plan: Plan | None) -> Evidence:
        if rows.n_rows <= FIRST_ROWS:
            return super().evidence(rows, kernel, plan)
        return NearestEvidence(rows, kernel, self)

    def posterior(self, data: FitData, sample: ArrayRows) -> NearestPosterior:
        return NearestPosterior.of(data.kernel, self, sample, Deviations())

    def conditioned(self, posterior: Any, rows: ArrayRows) -> NearestPosterior:
        """Return the posterior given more rows, of positive weight or 0."""
        Y, weight = rows.targets()
        is_used = weight > 0
        places = posterior.rows
        _, before = places.targets()
        both = ArrayRows(
            stacked([places.X, rows.X[is_used]]),
            np.concatenate([places.Y, Y[is_used]]),
            np.concatenate([before, weight[is_used]]),
        )
        return NearestPosterior.of(posterior.kernel, self, both, posterior.deviations)


def _scaled(kernel: Kernel, X: Rows, stream: Stream) -> np.ndarray:
    """Return rows whose distances decide which are near; few columns are not sparse."""
    return scaled_rows(kernel, ops_of(X).densified(X), stream)


def _nearby(scaled: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield the numbers of rows in blocks of nearby ones."""
    numbers = cKDTree(scaled, leafsize=size).indices
    for block in row_blocks(len(numbers), size):
        yield numbers[block]


def _preceding(
    scaled: np.ndarray, numbers: np.ndarray, k: int, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of the numbers of rows, and of k nearby ones that precede each."""
    levels = np.floor(np.log2(numbers / k)).astype(int)
    for level in np.unique(levels):
        of_level = numbers[levels == level]
        tree = cKDTree(scaled[: k << level])
        _, neighbors = tree.query(scaled[of_level], range(1, k + 1))
        for block in _nearby(scaled[of_level], size):
            yield of_level[block], neighbors[block]
