r"""When conjugate gradients stop: how far the loss is above its minimum.

Let F(x) = c + x·(A + σI)x − 2b·x be the loss of one target, x* its minimiser and
r = b − (A + σI)x the residual. The excess of the loss is

    E = F(x) − F(x*) = r·(A + σI)⁻¹r.  (1)

*Bound.* No eigenvalue of A + σI is below σ, so that

    E ≤ U = ‖r‖²/σ.  (2)

Usually U is far larger: what r has along eigenvectors of large eigenvalues counts less.

*Estimate.* Step i of conjugate gradients decreases the loss by Δ_i, a square that the
step computes anyway, and E_k = Σ_{i>k} Δ_i. Decreases come in bursts between plateaus.
The longest burst so far, in units of the decrease with which it began, is

    S = max_{j≤k} Σ_{i=j..k} Δ_i / Δ_j,

and if what follows the last five decreases is no longer than that,

    E ≤ Ê = S·max(Δ_{k−4}, ..., Δ_k)  (3)

(after Meurant, Papež and Tichý 2021, "Accurate error estimation in CG"). The first six
steps, also after a restart, do not determine S: for them E is estimated by U.

*Caution.* As Ê may be too small, it is raised by a small power γ of its ratio to the
bound (γ = 1/4; 0 would take the estimate, 1 the bound):

    E ≈ min(U, Ê·max(1, U/Ê)^γ).  (4)

Compared with U alone, (4) saves iterations where σ is small.

*Rounding.* The residual of the recurrence differs from the true one by d, which is
known when the true one is computed. By the triangle inequality in the norm of
(A + σI)⁻¹

    √E ≤ √(4) + ‖d‖/√σ.  (5)

Steps s_i have ‖d‖ ≤ cελ Σ ‖s_i‖, where ε is the rounding error of products with A, λ
its largest eigenvalue, and c some constant. If E is small even so, the true residual is
not computed, which takes a pass over the rows.

*Scale.* The iteration stops when E is at most `loss_tol` times a loss s of every
target: the current loss, which is c minus the decrease G = Σ Δ_i so far,

    s = min(max(c − G − 16εc, floor·F₀), 10·G),  (6)

where F₀ is the loss of the best constant.
If nearly all of the variance is explained (s below the share `floor` of F₀) the rest
need not be as accurate; and if little can be explained, most of that should be (10·G).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Decreases from which the next burst is predicted, in equation (3).
_LAST = 5
# The factors in equation (6).
_ROUNDING_ERRORS = 16.0
_GAINS = 10.0


@dataclass(frozen=True)
class Loss:
    """The loss that the iteration minimises: initial + x·(A + shift·I)x − 2b·x.

    See :mod:`randkern.solvers.stopping` for how it decides when to stop.

    Attributes
    ----------
    initial : ndarray of shape (k,)
        The loss of X = 0, Σ_i w_i y_i².
    floor : float
        The `floor` of equation (6): a loss below this share of `spread` counts as this
        share. Labels coded as ±1 have the right sign long before their values are
        fitted: 1 suffices for them.
    spread : ndarray of shape (k,), optional
        The loss of the best constants, Σ_i w_i (y_i − ȳ)²; None: `initial`.
    caution : float
        The exponent γ of equation (4).
    """

    initial: np.ndarray
    floor: float = 1e-3
    spread: np.ndarray | None = None
    caution: float = 1 / 4


def relative_excess(
    loss: Loss,
    gains: np.ndarray,
    gained: np.ndarray,
    residual_squares: np.ndarray,
    shift: float,
    rounding: float,
    drift_squares: np.ndarray | float = 0.0,
) -> float:
    """Return E/s of equations (1) to (6), the largest over the k targets.

    Parameters
    ----------
    loss : Loss
    gains : ndarray of shape (steps, k)
        The decreases Δ_i since the last restart.
    gained : ndarray of shape (k,)
        G, the decrease since the loss was `initial`.
    residual_squares : ndarray of shape (k,)
        ‖r‖².
    shift : float
        σ. If it is 0, E is not bounded: infinite unless r is 0.
    rounding : float
        ε.
    drift_squares : ndarray of shape (k,) or 0
        ‖d‖².
    """
    if shift > 0:
        excess = bound = residual_squares / shift
    else:
        excess = bound = np.where(residual_squares > 0, np.inf, 0.0)
    if shift > 0 and len(gains) > _LAST + 1:
        gains = np.maximum(gains, np.finfo(float).tiny)
        following = np.cumsum(gains[::-1], axis=0)[::-1]
        burst = np.max(following / gains, axis=0)
        estimate = burst * gains[-_LAST:].max(axis=0)
        with np.errstate(over="ignore"):  # infinities are replaced by the bound
            raised = np.maximum(bound / estimate, 1.0) ** loss.caution * estimate
        excess = np.minimum(bound, raised)
    if shift > 0:
        excess = (np.sqrt(excess) + np.sqrt(drift_squares / shift)) ** 2
    spread = loss.initial if loss.spread is None else loss.spread
    floor = loss.floor * np.where(spread > 0, spread, loss.initial)
    current = loss.initial - gained - _ROUNDING_ERRORS * rounding * loss.initial
    scale = np.maximum(current, floor)
    scale = np.minimum(scale, _GAINS * gained)
    # Where the scale is 0, only an excess of 0 is small.
    is_known = (scale > 0) | (excess == 0)
    shares = np.where(is_known, excess / np.where(scale > 0, scale, 1.0), np.inf)
    return float(shares.max(initial=0.0))
