"""The log marginal likelihood of a Gaussian process, and its gradient.

A row of weight w counts as w equal rows. With W = diag(w), N = Σ w and the Gram
matrix K = ZZᵀ of features or of the exact kernel,

    log p(y) = −½[yᵀ(K + σ²W⁻¹)⁻¹y + log det(I + W^½KW^½/σ²) + N log 2πσ²],

whose determinant is also that of I + ZᵀWZ/σ²; yᵀ(K + σ²W⁻¹)⁻¹y is the minimum of
(Σ w_i(y_i − z_i·b)² + σ²‖b‖²)/σ². Where weights are precisions, a row has the noise
σ²/w: the quadratic form is the same, but N is the number of rows, and Σ log w is
subtracted from the determinant. Targets of several outputs are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.optimize

from randkern._random import Stream
from randkern._validation import Rows
from randkern._warnings import ignoring, warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, FitData, TrainingData
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel
from randkern.kernels.hyperparameters import (
    Hyperparameters,
    add_feature_gradient,
    with_kernel,
)
from randkern.models._gp_likelihood import Evidence, Likelihood
from randkern.models._gp_posterior import Mode, Posterior
from randkern.models._gp_rows import most_learning_rows
from randkern.models.memory import (
    SUMMED_ROWS,
    block_rows,
    check_matrices,
    process_bytes,
)
from randkern.models.normal_equations import NormalEquations
from randkern.plan import Plan, evaluate
from randkern.solvers import Cholesky, Outcome, mirror_upper

# Rows whose exact likelihood is maximised in fits on landmarks.
_MAX_EXACT_ROWS = 1000
_ROWS = 1024
# Shares of the noise that the search for the best scale and noise starts from.
_NOISE_SHARES = (0.9, 0.1, 1e-4)
# If the noise is a larger share of the variance of the process, products of features in
# single precision change the likelihood by less than 1e-4 per row, the tolerance of the
# optimiser (up to 3e-5, measured on draws of processes).
_SINGLE_SHARE = 3e-4
# The range in which squares, and their sums over rows, are finite in single precision.
_SINGLE_RANGE = (1e-12, 1e12)
_SAMPLED_ROWS = 100
# If columns are further from 0 than this, in standard deviations, estimates of traces
# vary with the squares of the offsets, and single precision loses digits.
_MAX_OFFSET = 10.0
# Number of random vectors for estimating traces during optimisation, if there are at
# least this many times as many features.
_N_PROBES = 128
_MIN_ESTIMATED = 4


def size_of(weight: Any, precisions: bool) -> np.ndarray:
    """Return Σ w and 0, or, of precisions, the number of rows of w > 0 and Σ log w."""
    if not precisions:
        return np.array([float(weight.sum()), 0.0])
    weight = ops_of(weight).to_host(weight)
    weight = weight[weight > 0]
    return np.array([float(len(weight)), np.log(weight).sum()])


def posterior_sums(
    rows: TrainingData,
    plan: Plan,
    precisions: bool = False,
    single: bool = False,
) -> tuple[NormalEquations, float, np.ndarray]:
    """Return normal equations, the weighted squares of targets, and the rows' size.

    For ``rows.reduce``. Features are float64, as the errors of float32 features would
    be large relative to a small noise; with `single` they are float32.
    """
    like = _converted(rows.like, single)
    D, k = plan.n_components, rows.n_targets
    total = NormalEquations.empty(D, k, like)
    squares = 0.0
    size = np.zeros(2)
    for block in rows.blocks(SUMMED_ROWS):
        total.add(plan, _converted(block.X, single), block.Y, block.weight)
        _, weight = block.targets()
        squares += float((weight * (block.Y**2).sum(axis=1)).sum())
        size += size_of(weight, precisions)
    return total, squares, size


def _converted(X: Rows, single: bool) -> Rows:
    ops = ops_of(X)
    return ops.xp.astype(X, ops.xp.float32) if single else ops.as_float64(X)


def mode_of_features(
    sums: tuple[NormalEquations, float, np.ndarray], noise: float
) -> Mode:
    """Return the posterior of weights given :func:`posterior_sums`.

    Its precision is I + ZᵀWZ/σ². The sums are overwritten.
    """
    statistics, target_squares, size = sums
    scale = float(statistics.gram.diagonal().mean())
    mean, factor = _solved(statistics.gram, noise, scale, statistics.cross, noise)
    D, k = mean.shape
    determinant = ops_of(factor).algebra.log_determinant(factor)
    determinant -= D * math.log(noise)
    # The sums are in float64, and so is their difference.
    quadratic = target_squares - float((mean * statistics.cross).sum())
    quadratic = max(quadratic, 0.0) / noise
    factor /= math.sqrt(noise)
    evidence = _evidence(quadratic, determinant, size, k, noise)
    return Mode(mean, [factor], None, evidence)


def mode_of_rows(
    K: np.ndarray, Y: np.ndarray, weight: np.ndarray, size: np.ndarray, noise: float
) -> Mode:
    """Return the posterior of weights of rows, (K + σ²W⁻¹)⁻¹Y; K is overwritten."""
    root = (weight / noise) ** 0.5
    K *= root[:, None]
    K *= root
    right = root[:, None] * Y
    inner, factor = _solved(K, 1.0, float(K.diagonal().mean()), right, noise)
    determinant = ops_of(factor).algebra.log_determinant(factor)
    quadratic = float((right * inner).sum())
    evidence = _evidence(quadratic, determinant, size, Y.shape[1], noise)
    return Mode(root[:, None] * inner, [factor], [root], evidence)


def row_slopes(mode: Mode, total: float) -> tuple[np.ndarray, float]:
    """Return the derivatives of the evidence of rows in K, (n, n), and in log σ².

    `total` is the number of rows, or the sum of their weights.
    """
    dual, (factor,), (root,) = mode.mean, mode.factors, mode.roots or ()
    n, k = dual.shape
    inverse = ops_of(factor).algebra.inverse_by_factor(factor)
    # The first term gives ‖B⁻¹SY‖², the determinant k(n − tr B⁻¹).
    by_noise = float(((dual / root[:, None]) ** 2).sum())
    by_noise += k * (n - float(inverse.diagonal().sum()) - total)
    inverse *= root[:, None]
    inverse *= root
    return 0.5 * (dual @ dual.T - k * inverse), 0.5 * by_noise


@dataclass(frozen=True)
class Spectrum:
    """The log marginal likelihood for the covariance sK + σ²W⁻¹, for all s and σ².

    With the eigenvalues Λ of W^½KW^½ and the coordinates c of W^½Y along its
    eigenvectors it is

        −½[Σ c_i²/(sΛ_i + σ²) + k Σ log(1 + sΛ_i/σ²) + kN log 2πσ²].

    On features, Λ are those of ZᵀWZ; `rest` is what is left of Σ c_i² where Λ_i = 0.
    """

    eigenvalues: np.ndarray
    # c_i², summed over the k targets.
    squares: np.ndarray
    rest: float
    n_targets: int
    # The number of rows, N, or the sum of their weights.
    size: float

    @classmethod
    def of_rows(cls, K: Any, Y: Any, weight: Any, size: float) -> Spectrum:
        """Return the spectrum of a Gram matrix, which is overwritten."""
        root = weight**0.5
        K *= root[:, None]
        K *= root
        values, squares = _coordinates(K, root[:, None] * Y)
        return cls(values.clip(0.0), squares, 0.0, Y.shape[1], size)

    @classmethod
    def of_features(
        cls, statistics: NormalEquations, target_squares: float, size: float
    ) -> Spectrum:
        """Return the spectrum of normal equations, which are overwritten."""
        values, squares = _coordinates(mirror_upper(statistics.gram), statistics.cross)
        # Smaller ones are rounding errors.
        is_large = values > len(values) * np.finfo(float).eps * values.max()
        values, squares = values[is_large], squares[is_large]
        squares = squares / values
        rest = max(target_squares - float(squares.sum()), 0.0)
        n_targets = statistics.cross.shape[1]
        return cls(values, squares, rest, n_targets, size)

    def negative(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the value and its slope in (log s, log σ²)."""
        scale, noise = np.exp(at)
        variances = scale * self.eigenvalues + noise
        parts = self.squares / variances
        rest = self.rest / noise
        k, size = self.n_targets, self.size
        ratios = scale * self.eigenvalues / noise
        value = parts.sum() + rest + k * (np.log1p(ratios).sum() + size * at[1])
        shares = scale * self.eigenvalues / variances
        by_scale = k * shares.sum() - (parts * shares).sum()
        by_noise = k * (size - shares.sum()) - (parts * (1.0 - shares)).sum() - rest
        return 0.5 * float(value), 0.5 * np.array([by_scale, by_noise])

    def best(
        self, scales: tuple[float, float], noises: tuple[float, float]
    ) -> np.ndarray:
        """Return the best (log s, log σ²) within bounds."""
        total = float(self.squares.sum()) + self.rest
        starts = []
        for share in _NOISE_SHARES:
            # The scale that gives the targets their mean square.
            trace = max(float(self.eigenvalues.sum()), np.finfo(float).tiny)
            level = max(total / self.n_targets, np.finfo(float).tiny)
            start = [math.log((1 - share) * level / trace)]
            start.append(math.log(share * level / max(self.size, 1.0)))
            starts.append(np.clip(start, *np.transpose([scales, noises])))
        ends = [
            scipy.optimize.minimize(
                lambda at: [x / self.size for x in self.negative(at)],
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=[scales, noises],
            )
            for start in starts
        ]
        return min(ends, key=lambda end: end.fun).x


class NormalEvidence(Evidence):
    """The log marginal likelihood; the last entry of θ is for the noise.

    With `precisions`, a row of weight w has the noise σ²/w.
    """

    def __init__(
        self,
        rows: ArrayRows,
        kernel: Kernel,
        plan: Plan | None,
        precisions: bool,
    ):
        super().__init__(rows, kernel, plan)
        self._size = size_of(self._weight, precisions)
        self._sample = rows.X[:: max(1, rows.n_rows // _SAMPLED_ROWS)]
        self._are_centred = _are_centred(self._sample)

    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        hyper = self.hyper.at(theta[:-1])
        noise = math.exp(theta[-1])
        if self.plan is not None and self.plan.n_components <= self.rows.n_rows:
            plan = with_kernel(self.plan, self.hyper.kernel, hyper.kernel)
            return self._by_features(hyper, plan, noise, gradient)
        out = np.zeros(hyper.size + 1)
        K, add_gradient = self._gram(hyper)
        mode = mode_of_rows(K, self.rows.Y, self._weight, self._size, noise)
        if gradient:
            slopes, out[-1] = row_slopes(mode, float(self._size[0]))
            add_gradient(slopes, out[:-1])
        return mode.evidence, out

    def rescaled(
        self,
        direction: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        theta: np.ndarray,
    ) -> tuple[np.ndarray, float]:
        theta = theta.clip(low, high)
        moves = direction != 0
        scales = (0.0, 0.0)
        if moves.any():
            ends = np.array([low, high])[:, moves] - theta[moves]
            ends = np.sort(ends / direction[moves], axis=0)
            scales = (float(ends[0].max()), float(ends[1].min()))
        spectrum = self._spectrum(theta)
        best = spectrum.best(scales, (float(low[-1]), float(high[-1])))
        moved = theta + best[0] * direction
        moved[-1] = best[1]
        constant = self._size[0] * math.log(2 * math.pi) - self._size[1]
        value = -spectrum.negative(best)[0] - 0.5 * spectrum.n_targets * constant
        return moved.clip(low, high), float(value)

    def _spectrum(self, theta: np.ndarray) -> Spectrum:
        hyper = self.hyper.at(theta[:-1])
        rows = self.rows
        size = float(self._size[0])
        if self.plan is None or self.plan.n_components > rows.n_rows:
            K, _ = self._gram(hyper)
            return Spectrum.of_rows(K, rows.Y, self._weight, size)
        plan = with_kernel(self.plan, self.hyper.kernel, hyper.kernel)
        # In double precision: the best noise may be small.
        statistics, squares, _ = posterior_sums(rows, plan)
        return Spectrum.of_features(statistics, squares, size)

    @property
    def operations(self) -> float:
        return super().operations * (0.375 if self._estimated else 1.0)

    @property
    def _estimated(self) -> bool:
        """Whether the traces of a gradient are estimated."""
        if self.precise or self.plan is None or not self._are_centred:
            return False
        D = self.plan.n_components
        return _MIN_ESTIMATED * _N_PROBES <= D <= self.rows.n_rows

    def _by_features(
        self, hyper: Hyperparameters, plan: Plan, noise: float, gradient: bool
    ) -> tuple[float, np.ndarray]:
        """Evaluate with a D × D matrix, computing features block by block."""
        rows = self.rows
        weight = self._weight
        out = np.zeros(hyper.size + 1)
        single = self._is_single(hyper.kernel, noise)
        statistics, squares, _ = posterior_sums(rows, plan, single=single)
        mode = mode_of_features((statistics, squares, self._size), noise)
        if not gradient:
            return mode.evidence, out
        D, k = mode.mean.shape
        halves, trace = self._inverse(mode.factors[0])
        halves = [_converted(half, single) for half in halves]
        mean = _converted(mode.mean, single)
        residual_squares = 0.0
        for part in rows.blocks(block_rows(8 * plan.n_components)):
            w = weight[part.rows][:, None]
            Z = evaluate(plan, _converted(part.X, single))
            residual = part.Y - Z @ mean
            residual_squares += float((w * residual**2).sum())
            # ∂/∂Z: αbᵀ − kWZ(ZᵀWZ + σ²I)⁻¹ with α = W(y − Zb)/σ².
            G = Z
            for half in halves:
                G = G @ half
            G *= _converted(-k * w / noise, single)
            G += _converted(w * residual / noise, single) @ mean.T
            G = ops_of(G).as_float64(G)
            add_feature_gradient(hyper, plan, part.X, Z, G, out[:-1])
        out[-1] = residual_squares / noise
        out[-1] += k * (D - trace - float(self._size[0]))
        out[-1] *= 0.5
        return mode.evidence, out

    def _is_single(self, kernel: Kernel, noise: float) -> bool:
        """Return whether single precision is enough, with a row's noise being σ²/w."""
        if self.precise or not self._are_centred:
            return False
        size = float(kernel._diag(self._sample).mean())
        heaviest = float(ops_of(self._weight).largest_or_zero(self._weight))
        least, most = _SINGLE_RANGE
        return noise > _SINGLE_SHARE * size * heaviest and all(
            least < number < most for number in (size, noise, noise / heaviest)
        )

    def _inverse(self, factor: np.ndarray) -> tuple[list[np.ndarray], float]:
        """Return (LLᵀ)⁻¹, or factors of an estimate of it, and its trace.

        E[uuᵀ] = I for random signs u, so the estimates are unbiased; they are smooth in
        θ, since the signs are fixed.
        """
        ops = ops_of(factor)
        if not self._estimated:
            inverse = ops.algebra.inverse_by_factor(factor)
            return [inverse], float(inverse.diagonal().sum())
        signs = ops.float64_like(_signs(len(factor)), factor)
        solved = ops.algebra.factor_solve(factor, signs / _N_PROBES)
        return [solved, signs.T], float((signs * solved).sum())


@dataclass(frozen=True)
class Normal(Likelihood):
    """f plus normal noise. Weights count rows, or divide the noise (`precisions`)."""

    scale_range: ClassVar[float] = 1e10

    noise: float
    precisions: bool

    def most_rows(self, plan: Plan | None, n_targets: int) -> int:
        if plan is None:
            return _MAX_EXACT_ROWS
        return most_learning_rows(plan.n_components)

    def check_memory(self, data: FitData, n_learned: int) -> None:
        needed = process_bytes(data.plan, data.rows, n_learned)
        check_matrices(data.plan, data.rows, needed, data.limit)

    def evidence(self, rows: ArrayRows, kernel: Kernel, plan: Plan | None) -> Evidence:
        return NormalEvidence(rows, kernel, plan, self.precisions)

    def posterior(self, data: FitData, sample: ArrayRows) -> Any:
        if data.plan is not None:
            sums = data.rows.reduce(posterior_sums, data.plan, self.precisions)
            mode = mode_of_features(sums, self.noise)
            return Posterior(data.kernel, data.plan, None, *mode)
        Y, weight = sample.targets()
        K = data.kernel._gram(sample.X, None)
        size = size_of(weight, self.precisions)
        mode = mode_of_rows(K, Y, weight, size, self.noise)
        return Posterior(data.kernel, None, sample.X, *mode)

    def moments(self, mean: Any, variance: Any, noise: Any) -> tuple[Any, Any]:
        """Return mean and variance of f, or of new targets.

        `noise` is False, True, or holds the weights of new rows.
        """
        variance = variance.clip(0.0)
        if noise is False:
            return mean, variance
        if noise is True:
            return mean, variance + self.noise
        return mean, variance + (self.noise / noise).reshape(variance.shape)

    def conditioned(self, posterior: Any, rows: ArrayRows) -> Any:
        """Return the posterior given more rows: O(D²) or O(n²) operations per row."""
        condition = _with_row_features if posterior.X is None else _with_rows
        return condition(posterior, rows, self)


def _with_row_features(
    posterior: Posterior, rows: ArrayRows, likelihood: Normal
) -> Posterior:
    """Return the posterior on features given more rows.

    With Z̃ = √w/σ·Z and r̃ = √w/σ·(Y − Zb), the mean changes by P⁻¹Z̃ᵀ(I + Z̃P⁻¹Z̃ᵀ)⁻¹r̃,
    and the evidence by the log density of r̃.
    """
    noise = likelihood.noise
    Z = posterior.values(rows.X)
    Y, weight = rows.targets()
    mean, (factor,), evidence = posterior.mean, posterior.factors, posterior.evidence
    algebra = ops_of(Z).algebra
    for part in row_blocks(len(Z), _ROWS):
        root = ((weight[part] / noise) ** 0.5)[:, None]
        scaled = root * Z[part]
        residual = root * (Y[part] - Z[part] @ mean)
        half = algebra.triangular_solve(factor, scaled.T)
        size = size_of(weight[part], likelihood.precisions)
        _, solved, more = _normal(half.T @ half, residual, size, noise)
        mean = mean + algebra.triangular_solve(factor, half @ solved, transposed=True)
        factor = algebra.extended_factor(factor, scaled)
        evidence = evidence + more
    return replace(posterior, mean=mean, factors=[factor], evidence=evidence)


def _with_rows(posterior: Posterior, rows: ArrayRows, likelihood: Normal) -> Posterior:
    """Return the posterior of the exact kernel given more rows: its factor grows."""
    noise = likelihood.noise
    Y, weight = rows.targets()
    cross = posterior.values(rows.X)
    own = posterior.kernel._gram(rows.X, None)
    ops = ops_of(cross)
    (factor,), (before_root,) = posterior.factors, posterior.roots or ()
    root = (weight / noise) ** 0.5
    below = posterior.half(cross) * root
    own *= root[:, None]
    own *= root
    # L⁻¹SY of the old targets, from (K + σ²W⁻¹)⁻¹Y; the root is 0 where the weight is.
    positive = before_root + (before_root == 0)
    before = factor.T @ (posterior.mean / positive[:, None])
    right = root[:, None] * Y - below.T @ before
    size = size_of(weight, likelihood.precisions)
    corner, _, more = _normal(own - below.T @ below, right, size, noise)
    above = ops.float64_zeros(below.shape, below)
    factor = ops.concatenate(
        [ops.hstack([factor, above]), ops.hstack([below.T, corner])]
    )
    after = ops.algebra.triangular_solve(corner, right)
    inner = ops.algebra.triangular_solve(
        factor, ops.concatenate([before, after]), transposed=True
    )
    root = ops.concatenate([before_root, root])
    return Posterior(
        posterior.kernel,
        None,
        ops.concatenate([posterior.X, rows.X]),
        root[:, None] * inner,
        [factor],
        [root],
        posterior.evidence + more,
    )


def _are_centred(X: Rows) -> bool:
    """Return whether no column is far from 0, comparing constant ones with the rest."""
    ops = ops_of(X)
    X = ops.densified(X)
    offset = ops.to_host(ops.xp.mean(X, axis=0))
    spread = ops.to_host(ops.xp.std(X, axis=0))
    spread = np.where(spread == 0, np.median(spread), spread)
    return bool((abs(offset) <= _MAX_OFFSET * spread).all())


def _signs(n: int) -> np.ndarray:
    """Return random signs of shape (n, _N_PROBES), the same in every call."""
    generator = Stream(0).child("probes").generator()
    return generator.choice([-1.0, 1.0], size=(n, _N_PROBES))


def _coordinates(matrix: Any, right: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, and squared coordinates of the columns along eigenvectors.

    The squares, (n,), are summed over the columns of `right`, (n, k).
    """
    ops = ops_of(matrix)
    values, vectors = ops.algebra.symmetric_eigenpairs(ops.contiguous(matrix))
    squares = ((vectors.T @ right) ** 2).sum(axis=1)
    return ops.to_host(values), ops.to_host(squares)


def _evidence(
    quadratic: float, determinant: float, size: np.ndarray, k: int, noise: float
) -> float:
    total, logarithms = size.tolist()
    constant = total * math.log(2 * math.pi * noise) - logarithms
    return -0.5 * (quadratic + k * (determinant + constant))


def _normal(
    covariance: np.ndarray, residual: np.ndarray, size: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the factor of I + C, (I + C)⁻¹ times residuals (m, k), and their evidence.

    That is the log density of targets; `covariance`, C, is overwritten.
    """
    algebra = ops_of(covariance).algebra
    algebra.add_to_diagonal(covariance, 1.0)
    factor = algebra.lower_factor(covariance)
    solved = algebra.factor_solve(factor, residual)
    quadratic = float((residual * solved).sum())
    determinant = algebra.log_determinant(factor)
    k = residual.shape[1]
    return factor, solved, _evidence(quadratic, determinant, size, k, noise)


def _solved(
    matrix: np.ndarray, shift: float, scale: float, right: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the solution of a system, and its lower triangular factor.

    The matrix is overwritten. Warns in terms of the noise if digits are lost.
    """
    solver = Cholesky()
    with ignoring(IllConditionedWarning):
        state = solver.init(matrix, shift, scale)
        solution = solver.solve(state, right)
    if solution.outcome is not Outcome.SUCCESS:
        warn(
            f"noise = {noise:.3g} is below the rounding errors of the covariance, so "
            "that the likelihood and the standard deviations are uncertain: increase "
            "noise, or subtract the mean of the targets (normalize_y=True).",
            IllConditionedWarning,
        )
    return solution.value, state.lower_factor()
