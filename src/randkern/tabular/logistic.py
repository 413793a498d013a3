"""The parts of a classifier: logistic regression or least squares with a kernel."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import expit, softmax

from randkern.kernels import Kernel, Linear
from randkern.models import KernelLogistic, KernelRidgeClassifier
from randkern.tabular.leave_one_out import positive_inverse
from randkern.tabular.members import MEMORY_LIMIT, fit_quietly
from randkern.tabular.presets import Deadline
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial

MIN_CHANCE = 1e-8
MAX_ITER = 300
TOL = 1e-3


def logistic(kernel: Any, C: float, seed: int) -> KernelLogistic:
    """Return an unfitted model with the exact kernel."""
    return KernelLogistic(
        with_constant(kernel),
        fit_intercept=False,
        C=C,
        n_components=None,
        tol=TOL,
        max_iter=MAX_ITER,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )


def with_constant(kernel: Kernel) -> Kernel:
    """Return the sum of a kernel and a constant, which acts as an intercept."""
    return kernel + Linear(1.0, columns=[])


def refitted(kernel: Kernel, C: float, encoded: Table, P: np.ndarray) -> np.ndarray:
    """Return the probabilities of folds by fits to the rows that are known then.

    `P`, (n, k), are the probabilities where nothing is known.
    """
    P = P.copy()
    assert encoded.folds is not None
    for known, held in encoded.folds.splits():
        P[held] = predicted(kernel, C, encoded.take(known), encoded.X[held], P[held])
    return P


def predicted(
    kernel: Kernel, C: float, known: Table, X: np.ndarray, P: np.ndarray
) -> np.ndarray:
    """Return probabilities of rows by a fit to others, P if these are of one class."""
    if len(np.unique(known.labels)) < 2:
        return P
    model = logistic(kernel, C, 0)
    fit_quietly(model, known.X, known.labels, known.weight)
    P = np.full_like(P, MIN_CHANCE)
    P[:, model.classes_] = np.maximum(model.predict_proba(X), MIN_CHANCE)
    return P


def all_left_out(
    kernel: Kernel, C: float, encoded: Table, gram: np.ndarray, P: np.ndarray
) -> np.ndarray:
    """Return the probabilities of rows left out, or P where there are none."""
    present = np.unique(encoded.labels)
    if len(present) > 1:
        with suppress(np.linalg.LinAlgError):  # the penalty is too small
            chances = left_out(
                kernel, C, encoded.X, gram, encoded.labels, encoded.weight
            )
            P = np.full_like(P, MIN_CHANCE)
            P[:, present] = chances
    return P


def left_out(
    kernel: Kernel,
    C: float,
    X: np.ndarray,
    gram: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """Approximate the leave-one-out probabilities of rows, (n, k).

    It takes one Newton step from the fit to all rows (Rad & Maleki 2020, "A scalable
    estimate of the out-of-sample prediction error via approximate leave-one-out
    cross-validation"): with W the curvature of the losses, the fit is a least-squares
    fit to the logits plus W⁻¹(y − p).
    """
    model = logistic(kernel, C, 0)
    fit_quietly(model, X, labels, weight)
    F, Y = model.decision_function(X), labels[:, None] == model.classes_
    if binary := F.ndim == 1:
        F, Y = F[:, None], Y[:, 1:]
    P = np.clip(expit(F) if binary else softmax(F, axis=1), MIN_CHANCE, None)
    P = np.clip(P, None, 1 - MIN_CHANCE)
    slopes, strength = (Y - P)[:, :, None], C * weight[:, None, None]
    if binary:
        W = (P * (1 - P))[:, :, None]
        B = positive_inverse(gram.copy(), 1 / (strength * W).ravel())
        B = B.diagonal()[:, None, None]
    else:
        # Both map equal logits to 0: changing that eigenvalue changes no probability.
        W = P[:, :, None] * (np.eye(F.shape[1]) - P[:, None]) + 1
        B = _blocks_of_inverse(gram, strength[:, 0] * P) + strength
    shift = np.linalg.solve(W, slopes) - np.linalg.solve(B, strength * slopes)
    F = F + shift[:, :, 0]
    return expit(np.hstack([-F, F])) if binary else softmax(F, axis=1)


def _blocks_of_inverse(gram: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Return the blocks (n, k, k), one per row, of the inverse of I ⊗ K + W⁻¹.

    It is E − ER(RᵀER)⁻¹RᵀE with E_c = (K + D_c⁻¹)⁻¹ and R stacked identities
    (Rasmussen & Williams 2006, "Gaussian processes for machine learning", section 3.5).
    """
    (n, k), inverses = D.shape, [positive_inverse(gram.copy(), 1 / d) for d in D.T]
    factor = scipy.linalg.cholesky(sum(inverses), lower=True)
    halves = [scipy.linalg.solve_triangular(factor, E, lower=True) for E in inverses]
    blocks = np.empty((n, k, k))
    for c in range(k):
        for other in range(k):
            blocks[:, c, other] = -np.einsum("ij,ij->j", halves[c], halves[other])
        blocks[:, c, c] += inverses[c].diagonal()
    return blocks


@dataclass(frozen=True)
class Part:
    """A candidate for a member of the model.

    `share` is the penalty of logistic regression relative to least squares, None for
    least squares; `P` holds the leave-one-out probabilities, with loss `loss`. Those of
    kernels that do not know the row are decisions over `temperature`, where it is a
    number, and the model that is returned has to divide by it too: its own temperature
    is that of kernels that know all rows, which overestimate how certain they are.
    """

    trial: Trial
    share: float | None
    P: np.ndarray
    loss: float
    temperature: float | None = None


def fitted_part(
    part: Part,
    seed: int,
    encoded: Table,
    weight: np.ndarray | None,
    deadline: Deadline,
) -> Any:
    """Return the model of a part, fitted to encoded rows, with its temperature."""
    kernel = part.trial.kernel
    model: Any = logistic(kernel, strength(part), seed)
    if part.share is None:
        model = KernelRidgeClassifier(
            kernel,
            part.trial.alpha,
            None,
            solver="cholesky",
            fit_intercept=True,
            memory_limit=MEMORY_LIMIT,
            random_state=seed,
        )
    fit_quietly(model, encoded.X, encoded.labels, weight, deadline)
    if part.temperature is not None:
        model.temperature_ = part.temperature
        model.calibration_offset_ = 0.0 * model.calibration_offset_
    return model


def strength(part: Part) -> float:
    """Return C of logistic regression, the inverse of the penalty."""
    return 1 / ((part.share or 1.0) * part.trial.alpha)
