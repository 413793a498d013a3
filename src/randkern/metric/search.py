"""The search for a metric: a recursive feature machine validated on held-out rows.

It fits f with the kernel k(Ax, Ay), sets AᵀA to a power of the average outer product of
gradients, and repeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._validation import Array
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels.draw import fit_plan
from randkern.metric.ridge import (
    GradientRidge,
    StandardisedMap,
    mean_products,
)
from randkern.models.grid_descent import descended

ALPHAS = 10.0 ** np.arange(-8, 4)
# Lengthscales, in units of that of the rule "scale".
_SPREADS = 2.0 ** np.arange(-4, 7)
# Where the search starts: at 10⁻³, and at four times that lengthscale.
_FIRST_ALPHA, _FIRST_SPREAD = 5, 6
# A share of the identity in every metric, so that no column is lost permanently.
_FLOOR = 1e-3
_MAX_ROWS = 10_000
# Standard errors by which a fit (the best of many) must be better than the mean of the
# targets.
_MIN_SIGNAL = 3.0


@dataclass(frozen=True)
class _Split:
    """Training rows and held-out rows."""

    rows: ArrayRows
    held: ArrayRows
    # Groups of equal held-out rows, which count as a single row of their total weight.
    groups: np.ndarray

    def losses(self, residuals: Array) -> np.ndarray:
        """Return the weighted sum of squares for every distinct held-out row."""
        losses = (residuals**2).sum(axis=1) * self.held.targets()[1]
        return np.bincount(self.groups, ops_of(losses).to_host(losses))

    @property
    def losses_of_mean(self) -> np.ndarray:
        Y, weight = self.rows.targets()
        return self.losses(self.held.Y - weight @ Y / weight.sum())


@dataclass(frozen=True)
class _Trial:
    """Fits with a metric, one per split, and their losses on held-out rows.

    `spread` and `alpha` are positions in the grids; `root` is the metric that follows
    from the mean of what those of the splits follow from.
    """

    fits: list[tuple[GradientRidge, Any]]
    losses: np.ndarray
    root: np.ndarray
    spread: int
    alpha: int

    @property
    def loss(self) -> float:
        return float(self.losses.mean())


@dataclass(frozen=True)
class SearchResult:
    """The result of a search."""

    trial: _Trial
    full: bool  # or diagonal
    n_steps: int  # from the identity
    history: list[float]  # errors of all steps, relative to the mean of the targets
    learned: bool  # whether predictions are clearly better than that mean


def _root(G: np.ndarray, power: float) -> np.ndarray:
    """Return A with AᵀA = G^power plus a small multiple of I; G may be a diagonal."""
    if G.ndim == 1:
        return np.sqrt((G / (G.max() or 1.0)) ** power + _FLOOR)
    values, vectors = np.linalg.eigh(G)
    values = (values / (values[-1] or 1.0)).clip(min=0.0) ** power
    return (vectors * np.sqrt(values + _FLOOR)) @ vectors.T


def _gain(losses: np.ndarray, others: np.ndarray) -> float:
    """Return by how many standard errors the mean of paired losses is lower."""
    gain = others - losses
    error = float(gain.std()) / math.sqrt(len(gain))
    return float(gain.mean()) / error if error else 0.0


def _has_signal(losses: np.ndarray, constant: np.ndarray) -> bool:
    """Return whether predictions are clearly better than the mean of the targets.

    With heavy-tailed squared losses no difference of means may be significant: if half
    of the variance is explained, it is enough that most rows improve.
    """
    if _gain(losses, constant) > _MIN_SIGNAL:
        return True
    share = float((losses < constant).mean())
    signs = (2 * share - 1) * math.sqrt(len(losses))
    return signs > _MIN_SIGNAL and float(losses.mean()) < 0.5 * float(constant.mean())


@dataclass(frozen=True)
class Search:
    """Fits and steps of the recursion, on split rows.

    Up to `exact_rows` rows are fitted with the exact kernel. `alpha` is None to search
    the grid.
    """

    kernel: Any
    n_components: int
    exact_rows: int
    alpha: float | None
    stream: Stream
    standardised: StandardisedMap
    splits: Sequence[_Split] = ()

    def scaled(self, rows: ArrayRows, root: np.ndarray, spread: int) -> StandardisedMap:
        """Return the map by A, scaled so that rows have the variance 2ℓ²/spread²."""
        mapped = replace(self.standardised, root=root)
        weight = rows.targets()[1]
        squares = float(weight @ (mapped(rows).X ** 2).sum(axis=1))
        scale = math.sqrt(2 * float(weight.sum()) / squares if squares else 2.0)
        root = root * (scale * self.kernel.lengthscale / _SPREADS[spread])
        return replace(mapped, root=root)

    def fit(self, rows: ArrayRows, mapped: StandardisedMap, draw: str) -> GradientRidge:
        """Return a fit on the features of a draw, or on the exact kernel."""
        plan = None
        if rows.n_rows > self.exact_rows:
            row = np.zeros((1, len(mapped.shift)))
            stream = self.stream.child(draw)
            plan = fit_plan(self.kernel, row, None, self.n_components, stream)
        return GradientRidge(self.kernel, plan, rows, mapped)

    def trial(
        self, roots: Sequence[np.ndarray], root: np.ndarray, spread: int, alpha: int
    ) -> _Trial:
        """Fit with one metric per split, and the best penalty near `alpha`."""
        cases = []
        for split, own in zip(self.splits, roots, strict=True):
            mapped = self.scaled(split.rows, own, spread)
            ridge = self.fit(split.rows, mapped, "features")
            held = mapped(split.held)
            cases.append((split, ridge, held.Y, ridge.values(held.X)))

        def at(alpha: int) -> _Trial:
            fits, losses = [], []
            for split, ridge, Y, values in cases:
                weights, intercept = ridge.solve(self.penalty(alpha))
                fits.append((ridge, weights))
                losses.append(split.losses(Y - values @ weights - intercept))
            return _Trial(fits, np.concatenate(losses), root, spread, alpha)

        n_alphas = len(ALPHAS) if self.alpha is None else 1
        return descended(at, alpha if self.alpha is None else 0, n_alphas)

    def penalty(self, alpha: int) -> float:
        return float(ALPHAS[alpha]) if self.alpha is None else self.alpha

    def start(self) -> _Trial:
        """Fit with the identity."""
        one = self.standardised.root
        ones = [one for _ in self.splits]
        return self.with_best_spread(self.trial(ones, one, _FIRST_SPREAD, _FIRST_ALPHA))

    @property
    def of_squares(self) -> Search:
        """The same search with the squares of the targets as targets."""
        return replace(self, standardised=replace(self.standardised, squared=True))

    def step(self, sources: Sequence[_Trial], full: bool) -> _Trial:
        """Return the best trial with a metric computed from others' gradients."""

        def trials() -> Iterator[_Trial]:
            for source in sources:
                outer = [fit.outer_products(W, full) for fit, W in source.fits]
                for power in (0.5, 1.0, 2.0):
                    roots = [_root(G, power) for G in outer]
                    root = _root(np.mean(outer, axis=0), power)
                    yield self.trial(roots, root, source.spread, source.alpha)

        return self.with_best_spread(min(trials(), key=lambda trial: trial.loss))

    def with_best_spread(self, trial: _Trial) -> _Trial:
        """Return a trial with the best lengthscale near its own."""
        roots = [ridge.mapped.root for ridge, _ in trial.fits]

        def at(spread: int) -> _Trial:
            if spread == trial.spread:
                return trial
            return self.trial(roots, trial.root, spread, trial.alpha)

        return descended(at, trial.spread, len(_SPREADS))

    def importances(
        self, rows: ArrayRows, mapped: StandardisedMap, alpha: int
    ) -> np.ndarray:
        """Return the mean squares of gradients along standardised columns.

        They are products of the gradients of two fits, each to half of the rows with
        its own features, so that noise adds nothing on average.
        """
        order = self.stream.child("halves").generator().permutation(rows.n_rows)
        fits = []
        for number, half in enumerate(np.array_split(order, 2)):
            ridge = self.fit(rows.take(np.sort(half)), mapped, f"half {number}")
            fits.append((ridge, ridge.solve(self.penalty(alpha))[0]))
        return mean_products(fits[0], fits[1], rows).clip(0.0) * (mapped.scale > 0)

    def best(
        self, kinds: Sequence[bool], labelled: bool, n_iterations: int
    ) -> SearchResult | None:
        """Return the steps of the better kind of metric, None if nothing was learned.

        `kinds` are the kinds to try: True is full, False diagonal.
        """
        if not self.splits:
            return None
        start = self.start()
        # The variance of a target may depend on x even if its mean hardly does: its
        # squares then show which columns matter. Squares of ±1 do not.
        sources = [start] if labelled else [start, self.of_squares.start()]
        paths = {full: [start, self.step(sources, full)] for full in kinds}
        # After two steps only the better kind continues.
        n_first = min(2, n_iterations) if len(paths) > 1 else n_iterations
        for full, path in paths.items():
            self.advance(path, full, n_first - 1)
        full = min(paths, key=lambda full: min(trial.loss for trial in paths[full]))
        path = paths[full]
        self.advance(path, full, n_iterations - n_first)
        constant = np.concatenate([split.losses_of_mean for split in self.splits])
        history = [trial.loss / float(constant.mean()) for trial in path]
        n_steps = int(np.argmin(history))
        # Less than a standard error better than standardised columns is no gain.
        if _gain(path[n_steps].losses, start.losses) < 1:
            n_steps = 0
        trial = path[n_steps]
        learned = _has_signal(trial.losses, constant)
        return SearchResult(trial, full, n_steps, history, learned)

    def advance(self, path: list[_Trial], full: bool, n_steps: int) -> None:
        """Append steps to a path until they no longer help."""
        for _ in range(n_steps):
            best = min(range(len(path)), key=lambda at: path[at].loss)
            if len(path) - 1 - best >= 2:  # two steps without a gain
                return
            path.append(self.step([path[-1]], full))
            # Gram matrices of earlier fits are large and no longer needed.
            if len(path) > 2:
                path[-2] = replace(path[-2], fits=[])


def sampled_rows(rows: TrainingData, stream: Stream) -> ArrayRows:
    """Return at most 10,000 of the rows of positive weight."""
    generator = stream.child("searched").generator()
    numbers = np.arange(rows.n_rows)
    if rows.n_rows > _MAX_ROWS:
        # Weights of a stream are not known by row: as many rows are drawn as have
        # 10,000 of positive weight, within reason.
        n_used = max(rows.survey().n_used, 1)
        n = min(-(-_MAX_ROWS * rows.n_rows // n_used), rows.n_rows, 10 * _MAX_ROWS)
        numbers = np.sort(generator.choice(rows.n_rows, n, replace=False))
    sample = rows.take(numbers)
    if sample.weight is None or bool((sample.weight > 0).all()):
        return sample
    used = np.flatnonzero(ops_of(sample.Y).to_host(sample.weight) > 0)
    if not len(used):
        raise ValueError(
            "no sampled row has a positive weight; remove rows with sample_weight 0."
        )
    if len(used) > _MAX_ROWS:
        used = np.sort(generator.choice(used, _MAX_ROWS, replace=False))
    return sample.take(used)


def split_rows(rows: ArrayRows, stream: Stream) -> list[_Split]:
    """Split rows into training and held-out rows, with equal rows on the same side."""
    from sklearn.model_selection import GroupKFold

    X = ops_of(rows.X).to_host(rows.X)
    groups = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    n_folds = min(5, int(groups.max()) + 1)
    if n_folds < 2:
        return []
    seed = int(stream.child("folds").generator().integers(2**31))
    folds = GroupKFold(n_folds, shuffle=True, random_state=seed)
    splits = []
    for train, held in folds.split(X, groups=groups):
        inverse = np.unique(groups[held], return_inverse=True)[1]
        splits.append(_Split(rows.take(train), rows.take(held), inverse))
        if groups.max() >= 1000:  # one fold has enough rows to validate on
            break
    return splits
