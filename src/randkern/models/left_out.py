"""Training rows that are left out of a fit, one at a time, without fitting again.

With the hat matrix H of a fit, the residual of row i in a fit without it is

e_i = (y_i − ŷ_i)/(1 − H_ii)

for the same features or kernel. Copies of a row in the sample are left out together, as
one row with the sum w of their weights w_i: H_ii becomes H_ii w/w_i.

Direct solvers give H_ii. For others it is estimated from fits to probes, random signs
at sampled rows and 0 elsewhere: the fit to a probe v has the value
H_ii v_i + Σ_{j≠i} H_ij v_j at row i, whose second term has the mean 0 (Bekas,
Kokiopoulou and Saad 2007, "An estimator for the diagonal of a matrix"). Probes are
further columns of targets, so that they take no passes over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import Array
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows, TrainingData

# Largest number of rows left out: enough for a temperature, or a quantile to 2 %.
MAX_LEFT_OUT = 500
# The variance of an estimated H_ii is at most about this share of H_ii ...
_PROBE_VARIANCE = 0.05
# ... unless that takes more probes.
_MAX_PROBES = 8
# Smaller weights, relative to the largest, are raised to this one in probes.
_MIN_WEIGHT = 1e-12
# No residual is raised more than this many times the mean factor.
_MAX_RAISE = 10.0


@dataclass(frozen=True)
class SampledRows:
    """Rows that are left out of a fit, one at a time, with their copies.

    Attributes
    ----------
    numbers : ndarray of shape (m,)
        Ascending.
    rows : ArrayRows
        One of each set of copies.
    weight : array of shape (m,)
        For sums over all rows that they stand for.
    copies : array of shape (m,)
        The weight of a row and its copies, divided by its own.
    """

    numbers: np.ndarray
    rows: ArrayRows
    weight: Array
    copies: Any


def sample_left_out(
    rows: TrainingData, labelled: bool, generator: np.random.Generator
) -> SampledRows:
    """Return rows to leave out.

    Rows in memory are drawn with probabilities in proportion to their weights, labelled
    ones as many of each class; the weights returned, (m,), make up for this. Those of
    labelled rows add up to the share of each class in all rows.
    """
    if rows.in_memory:
        numbers, factors = _drawn(rows.as_arrays(), labelled, generator)
    else:
        n = min(rows.n_rows, MAX_LEFT_OUT)
        numbers = np.sort(generator.choice(rows.n_rows, n, replace=False))
        factors = np.ones(n)
    sample = rows.take(numbers)
    own = np.ones(len(numbers))
    if sample.weight is not None:
        own = ops_of(sample.Y).to_host(sample.weight)
        own = own / own.max(initial=np.finfo(float).tiny)
    # The first of each set of copies, with the weights of all.
    used = np.flatnonzero(own)
    hashes = _hashes(sample)[used]
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    total = np.bincount(group, own[used])[order]
    weight = np.bincount(group, (own * factors)[used])[order]
    kept = used[first[order]]
    copies = total / own[kept]
    numbers, sample = numbers[kept], sample.take(kept)
    if labelled and len(numbers):
        # The weighted mean of labels ±1 of all rows is that of their share.
        shares = (1 + rows.survey().target_mean) / 2
        shares = np.array([1 - shares[0], shares[0]]) if len(shares) == 1 else shares
        classes = ops_of(sample.Y).to_host(_classes_of(sample.Y))
        totals = np.bincount(classes, weight, len(shares))
        weight = weight * (shares / np.where(totals > 0, totals, 1.0))[classes]
    like = ops_of(sample.Y).float64_like
    return SampledRows(numbers, sample, like(weight, sample.Y), like(copies, sample.Y))


@dataclass(frozen=True)
class MergedRows:
    """Different rows, with the sums of the weights of their copies.

    Attributes
    ----------
    rows : ArrayRows
    group : ndarray of shape (n,)
        For each of the given rows, the number of the row that it is a copy of.
    share : ndarray of shape (n,)
        Its share of the weight.
    """

    rows: ArrayRows
    group: np.ndarray
    share: np.ndarray

    @property
    def first(self) -> np.ndarray:
        """The number of the first copy of each different row."""
        return np.unique(self.group, return_index=True)[1]

    def expanded(self, weights: Array) -> Any:
        """Return the weights (n, k) of all rows in a sum over the merged ones."""
        ops = ops_of(weights)
        share = ops.float64_like(self.share[:, None], weights)
        return ops.take(weights, self.group) * share


def merge_copies(rows: ArrayRows) -> MergedRows | None:
    """Merge rows of equal entries and targets, or return None if all are different."""
    if rows.n_rows == 0:
        return None
    _, first, group = np.unique(_hashes(rows), return_index=True, return_inverse=True)
    if len(first) == rows.n_rows:
        return None
    ops = ops_of(rows.Y)
    weight = np.ones(rows.n_rows)
    if rows.weight is not None:
        weight = ops.to_host(rows.weight)
    total = np.bincount(group, weight)
    merged = rows.take(first)
    merged = ArrayRows(merged.X, merged.Y, ops.float64_like(total, merged.Y))
    share = weight / np.where(total > 0, total, 1.0)[group]
    return MergedRows(merged, group, share)


def _hashes(rows: ArrayRows) -> np.ndarray:
    """Return hashes of rows with their targets, which are equal for equal rows."""
    raw = np.random.PCG64(0).random_raw(rows.X.shape[1] + rows.n_targets)
    odd = (raw | np.uint64(1)).view(np.int64)
    of_rows, of_targets = np.split(odd, [rows.X.shape[1]])
    ops = ops_of(rows.X)
    return ops.row_hashes(rows.X, of_rows) + ops.row_hashes(rows.Y, of_targets)


def _drawn(
    rows: ArrayRows, labelled: bool, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending numbers of rows in memory, and 1/probability of each."""
    ops = ops_of(rows.Y)
    weight = np.ones(rows.n_rows)
    if rows.weight is not None:
        weight = ops.to_host(rows.weight / (ops.largest_or_zero(rows.weight) or 1.0))
    classes = np.zeros(rows.n_rows, dtype=np.int64)
    if labelled:
        classes = ops.to_host(_classes_of(rows.Y))
    return _balanced(weight, classes, generator)


def _classes_of(Y: Array) -> Any:
    """Return the numbers of classes, for labels coded as ±1."""
    return Y.argmax(axis=1) if Y.shape[1] > 1 else (Y[:, 0] > 0) * 1


def _balanced(
    weight: np.ndarray, classes: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending numbers of rows, as many per class, and 1/probability of each.

    Within a class probabilities are in proportion to weights, but at most 1.
    """
    members = [
        np.flatnonzero((classes == label) & (weight > 0))
        for label in range(classes.max(initial=0) + 1)
    ]
    factors = np.zeros(len(weight))
    n_remaining = MAX_LEFT_OUT
    by_size = sorted(members, key=len)
    for position, numbers in enumerate(by_size):
        n_drawn = min(len(numbers), n_remaining // (len(by_size) - position))
        n_remaining -= n_drawn
        probability = _probabilities(weight[numbers], n_drawn)
        # Systematic sampling: marks at distances of 1 on the line of probabilities.
        order = generator.permutation(len(numbers))
        marks = np.floor(np.cumsum(probability[order]) + generator.random())
        drawn = order[np.diff(marks, prepend=0.0) > 0]
        if n_drawn == len(numbers):
            drawn = order
        factors[numbers[drawn]] = 1 / probability[drawn]
    drawn_rows = np.flatnonzero(factors)
    return drawn_rows, factors[drawn_rows]


def _probabilities(weight: np.ndarray, n_drawn: int) -> np.ndarray:
    """Return inclusion probabilities of rows, whose sum is the number drawn."""
    certain = np.zeros(len(weight), dtype=bool)
    out = np.ones(len(weight))
    if n_drawn >= len(weight):
        return out
    while True:
        others = weight[~certain]
        out[~certain] = others / others.sum() * (n_drawn - certain.sum())
        if not (out > 1).any():
            return out
        certain |= out >= 1
        out[certain] = 1.0


@dataclass(frozen=True)
class ProbedRows:
    """Sampled rows of a fit, with probes that estimate their leverage H_ii."""

    sample: SampledRows
    # Targets at the rows, (m, s), each row in one probe.
    probes: Any
    # The number of rows of the fit.
    n_rows: int

    @classmethod
    def of(
        cls,
        rows: TrainingData,
        labelled: bool,
        generator: np.random.Generator,
    ) -> ProbedRows:
        """Draw rows and their probes.

        These are ±1/√w_i, which makes S H S⁻¹, S = diag(√w_i), whose diagonal they
        estimate, symmetric: no row hides the others.
        """
        left_out = sample_left_out(rows, labelled, generator)
        sample = left_out.rows
        m = sample.n_rows
        needed = int(np.ceil(m / rows.n_rows / _PROBE_VARIANCE))
        n_probes = max(1, min(needed, _MAX_PROBES, m))
        signs = np.zeros((m, n_probes))
        probe = generator.permutation(m) % n_probes
        signs[np.arange(m), probe] = generator.choice([-1.0, 1.0], m)
        probes = ops_of(sample.Y).float64_like(signs, sample.Y)
        if sample.weight is not None:
            least = _MIN_WEIGHT * rows.survey().largest_weight
            probes = probes / sample.weight.clip(min=least)[:, None] ** 0.5
        return cls(left_out, probes, rows.n_rows)

    def left_out_residuals(self, fitted: Any, fitted_probes: Any) -> Any:
        """Return residuals (m, k) in fits without their row.

        `fitted` are the fitted values, (m, k), and `fitted_probes` those of the fits to
        probes, (m, s). Estimates of 1 − H_ii are shrunk to their mean by the share of
        their variance that is due to the probes: if that is all, residuals are those of
        generalised cross-validation.
        """
        residuals = self.sample.rows.Y - fitted
        if not len(residuals):
            return residuals
        ops = ops_of(residuals)
        m, n_probes = self.probes.shape
        inside = (self.probes != 0) * fitted_probes
        leverage = ops.to_host(inside.sum(axis=1) / self.probes.sum(axis=1))
        # Estimates may lie beyond [0, 1], by far if the system is singular.
        leverage = leverage.clip(-1.0, 2.0) * ops.to_host(self.sample.copies)
        mean = max(float(1.0 - leverage.mean()), np.finfo(float).eps)
        by_probes = m / n_probes / self.n_rows * mean * max(1.0 - mean, 0.0)
        variance = float(leverage.var())
        share_explained = max(0.0, 1.0 - by_probes / variance) if variance > 0 else 0.0
        freedom = mean + share_explained * (1.0 - leverage - mean)
        freedom = freedom.clip(mean / _MAX_RAISE, 1.0)
        return residuals / ops.float64_like(freedom, residuals)[:, None]
