"""Logistic losses of rows, of two classes or more, with their derivatives.

Signs of labels, (n, k), are ±1: one column for two classes, else one per class.
"""

from __future__ import annotations

import numpy as np

from randkern.backend.namespace import ops_of

# Minus this replaces the logarithm of 0.
_HUGE = 1e300


def derivatives(values: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses of rows, (n,), and their derivatives in the values, (n, k)."""
    ops = ops_of(values)
    if signs.shape[1] == 1:
        margins = signs * values
        return ops.softplus(-margins)[:, 0], -signs * ops.special.expit(-margins)
    # Relative to the value of the own class, as 1 - p loses all digits for p near 1.
    own = signs > 0
    others = ops.xp.where(own, -_HUGE, values - of_label(values, signs)[:, None])
    log_sum_others = ops.special.logsumexp(others, 1)
    wrong = ops.special.expit(log_sum_others)[:, None]
    slopes = ops.xp.where(own, -wrong, ops.special.softmax(values, 1))
    return ops.softplus(log_sum_others), slopes


def of_label(values: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Return the value of the own class of every row, whose sign is positive."""
    return (ops_of(values).as_float64(signs > 0) * values).sum(axis=1)
