"""Training rows that are left out of a fit, one at a time, without fitting again.

With the hat matrix H of a fit, the residual of row i in a fit without it is

e_i = (y_i − ŷ_i)/(1 − H_ii)

for the same features or kernel. Copies of a row in the sample are left out together, as
one row with the sum w of their weights w_i: H_ii becomes H_ii w/w_i.

Direct solvers of a dual system give H_ii. For others it is estimated from fits to
probes, random signs at sampled rows and 0 elsewhere: the fit to a probe v has the value
H_ii v_i + Σ_{j≠i} H_ij v_j at row i, whose second term has the mean 0 (Bekas,
Kokiopoulou and Saad 2007, "An estimator for the diagonal of a matrix"), and is 0 if row
i is the only one of its probe. Probes are further columns of targets, so that they take
no passes over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from randkern._validation import Array, Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.models._feature_model import feature_sums
from randkern.plan import Plan, evaluate

# This share of the rows is left out, one at a time, so that computing their features
# takes little of a fit; at least, and at most, so many rows. Of 500 rows a quantile
# has an error of 2 %, a temperature one of 5 %.
_SHARE = 1 / 20
MAX_LEFT_OUT = 5000
_MIN_LEFT_OUT = 500
# The variance of an estimated H_ii is at most about this share of H_ii ...
_PROBE_VARIANCE = 0.05
# ... unless that takes more probes.
_MAX_PROBES = 8
# With a factor, this share of the rows, at most so many; all of a few rows.
_PROBE_SHARE = 0.01
_MAX_FACTORISED = 16
# Smaller weights, relative to the largest, are raised to this one in probes.
_MIN_WEIGHT = 1e-12
# Columns of features at a time, unless all of them take little memory.
_COLUMNS = 512
_FEW_BYTES = 2**25
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
    """Return rows to leave out, drawn by their numbers.

    The weights returned, (m,), are those of the rows; for labelled rows they add up to
    the share of each class in all rows.
    """
    n_used = rows.survey().n_used
    n = max(_MIN_LEFT_OUT, int(n_used * _SHARE))
    n = min(n, n_used, MAX_LEFT_OUT)
    # Which rows have no weight is not known before they are read: drawn are as many as
    # have n with one, within reason.
    n = min(-(-n * rows.n_rows // max(n_used, 1)), rows.n_rows, 4 * MAX_LEFT_OUT)
    numbers = np.sort(generator.choice(rows.n_rows, n, replace=False))
    sample = rows.take(numbers)
    own = np.ones(n)
    if sample.weight is not None:
        own = ops_of(sample.Y).to_host(sample.weight)
        own = own / own.max(initial=np.finfo(float).tiny)
    # The first of each set of copies, with the weights of all.
    used = np.flatnonzero(own)
    hashes = _hashes(sample.X, sample.Y)[used]
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    weight = np.bincount(group, own[used])[order]
    kept = used[first[order]]
    copies = weight / own[kept]
    if len(kept) < n:
        numbers = numbers[kept]
        if rows.in_memory:
            del sample  # never two copies of wide rows
            sample = rows.take(numbers)
        else:
            sample = sample.take(kept)
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
    first : ndarray
        The number of the first copy of each different row.
    group : ndarray of shape (n,)
        For each of the given rows, the number of the row that it is a copy of.
    share : ndarray of shape (n,)
        Its share of the weight.
    """

    rows: ArrayRows
    first: np.ndarray
    group: np.ndarray
    share: np.ndarray

    def expanded(self, weights: Array) -> Any:
        """Return the weights (n, k) of all rows in a sum over the merged ones."""
        ops = ops_of(weights)
        share = ops.float64_like(self.share[:, None], weights)
        return ops.take(weights, self.group) * share


def merge_copies(rows: ArrayRows) -> MergedRows | None:
    """Merge rows of equal entries and targets, or return None if all are different."""
    if rows.n_rows == 0:
        return None
    copies = copies_of(rows.X, rows.Y)
    if len(copies.first) == rows.n_rows:
        return None
    weight = np.ones(rows.n_rows)
    if rows.weight is not None:
        weight = ops_of(rows.Y).to_host(rows.weight)
    total = np.bincount(copies.group, weight)
    share = weight / np.where(total > 0, total, 1.0)[copies.group]
    return MergedRows(_merged(rows, copies), *copies, share)


def distinct_rows(rows: ArrayRows) -> ArrayRows:
    """Return different rows, with the sums of the weights of their copies.

    Weights are repetitions to the last digit: rows that have any, or copies, are in an
    order by their entries and targets.
    """
    copies = copies_of(rows.X, rows.Y)
    is_plain = rows.weight is None and len(copies.first) == rows.n_rows
    return rows if is_plain else _merged(rows, copies)


def _merged(rows: ArrayRows, copies: Copies) -> ArrayRows:
    """Return the first row of each group, with the sum of weights."""
    ops = ops_of(rows.Y)
    weight = np.ones(rows.n_rows)
    if rows.weight is not None:
        weight = ops.to_host(rows.weight)
    total = np.bincount(copies.group, weight)
    merged = rows.take(copies.first)
    return ArrayRows(merged.X, merged.Y, ops.float64_like(total, merged.Y))


class Copies(NamedTuple):
    """The first row of each group of equal rows, and the group of each row."""

    first: np.ndarray
    group: np.ndarray


def copies_of(X: Rows, Y: Array) -> Copies:
    """Return the groups of rows with equal entries and targets.

    X and Y, (n, k), hold numbers of 4 or 8 bytes.
    """
    hashes = _hashes(X, Y)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    return Copies(first, group)


def _hashes(X: Rows, Y: Array) -> np.ndarray:
    """Return hashes of rows with their targets, which are equal for equal rows."""
    raw = np.random.PCG64(0).random_raw(X.shape[1] + Y.shape[1])
    odd = (raw | np.uint64(1)).view(np.int64)
    of_rows, of_targets = np.split(odd, [X.shape[1]])
    hashes = ops_of(X).row_hashes(X, of_rows) + ops_of(Y).row_hashes(Y, of_targets)
    return np.asarray(hashes)


def _classes_of(Y: Array) -> Any:
    """Return the numbers of classes, for labels coded as ±1."""
    return Y.argmax(axis=1) if Y.shape[1] > 1 else (Y[:, 0] > 0) * 1


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
        *,
        factorised: bool,
    ) -> ProbedRows:
        """Draw rows and their probes: many if a factor makes further targets cheap.

        These are ±1/√w_i, which makes S H S⁻¹, S = diag(√w_i), whose diagonal they
        estimate, symmetric: no row hides the others.
        """
        left_out = sample_left_out(rows, labelled, generator)
        sample = left_out.rows
        m = sample.n_rows
        if factorised:
            few = rows.n_rows <= _MIN_LEFT_OUT
            needed = m if few else round(rows.n_rows * _PROBE_SHARE)
            most = m if few else _MAX_FACTORISED
        else:
            needed = int(np.ceil(m / rows.n_rows / _PROBE_VARIANCE))
            most = _MAX_PROBES
        n_probes = max(1, min(needed, most, m))
        signs = np.zeros((m, n_probes))
        probe = generator.permutation(m) % n_probes
        signs[np.arange(m), probe] = generator.choice([-1.0, 1.0], m)
        signs /= max(1, m) ** 0.5  # the trace of the fits to them is the mean leverage
        probes = ops_of(sample.Y).float64_like(signs, sample.Y)
        if sample.weight is not None:
            least = _MIN_WEIGHT * rows.survey().largest_weight
            probes = probes / sample.weight.clip(min=least)[:, None] ** 0.5
        return cls(left_out, probes, rows.n_rows)

    @property
    def _weighted(self) -> Array:
        weight = self.sample.rows.weight
        return self.probes if weight is None else self.probes * weight[:, None]

    def columns(self, plan: Plan) -> Callable[[slice], Array]:
        """Return a function for raw columns of the features of the rows.

        All of them are computed at once if they take little memory.
        """
        X = self.sample.rows.X
        if X.shape[0] * plan.n_components * X.dtype.itemsize <= _FEW_BYTES:
            Z = evaluate(plan.raw, X)
            return lambda columns: Z[:, columns]
        return lambda columns: evaluate(plan.raw, X, columns)

    def right_hand_side(
        self, plan: Plan, columns_of: Callable[[slice], Array], mean: Array
    ) -> Any:
        """Return Σ w_i (z_i − z̄) v_iᵀ for probes v, (D, s), and the mean z̄, (D,)."""
        targets = self._weighted
        sums = feature_sums(plan, columns_of, targets)
        return sums - mean[:, None] * targets.sum(axis=0)

    def residuals_of_weights(
        self,
        plan: Plan,
        columns_of: Callable[[slice], Array],
        weights: Array,
        intercept: Array,
        of_probes: Array,
        mean: Array,
        weight_sum: float,
    ) -> Any:
        """Return leave-one-out residuals (m, k), as `left_out_residuals`.

        The weights are those of targets, (D, k), and of probes, (D, s).
        """
        k = weights.shape[1]
        ops = ops_of(weights)
        weights = plan.solve(ops.hstack([weights, of_probes]), transposed=True)
        fitted = ops.float64_zeros((len(self.probes), weights.shape[1]), weights)
        for columns in row_blocks(len(weights), _COLUMNS):
            fitted += ops.as_float64(columns_of(columns)) @ weights[columns]
        constants = self._weighted.sum(axis=0) / weight_sum - mean @ of_probes
        return self.left_out_residuals(
            fitted[:, :k] + intercept, fitted[:, k:] + constants
        )

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
        eps = float(np.finfo(float).eps)
        mean = max(float(1.0 - leverage.mean()), eps)
        others = (m / n_probes - 1.0) / self.n_rows
        by_probes = others * mean * max(1.0 - mean, 0.0)
        variance = float(leverage.var())
        share_explained = max(0.0, 1.0 - by_probes / variance) if variance > 0 else 0.0
        freedom = mean + share_explained * (1.0 - leverage - mean)
        freedom = freedom.clip(eps if n_probes == m else mean / _MAX_RAISE, 1.0)
        return residuals / ops.float64_like(freedom, residuals)[:, None]
