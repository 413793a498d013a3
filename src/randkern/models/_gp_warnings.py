"""What learning of a Gaussian process warns of."""

from __future__ import annotations

import math

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._warnings import warn
from randkern.models._gp_starts import Space

# A larger gain per row in the last step is worth a warning.
_UNFINISHED = 0.1
# A process with a smaller share of the variance of the noise, or a smaller variance of
# log odds, is worth a warning.
_NEGLIGIBLE_SHARE = 1e-2
_NEGLIGIBLE_VALUES = 1e-4
# Logarithms this close to a bound count as on it.
_TOUCHING = 1e-3


def warn_of_the_end(
    space: Space, theta: np.ndarray, value: float, gain: float, n_rows: int
) -> None:
    """Warn if learning did not end in a maximum within the bounds.

    It ended at θ with the log likelihood `value`, and its last step gained `gain`.
    """
    if not math.isfinite(value):
        reason = "the likelihood could not be evaluated at any start"
    elif gain > max(1.0, _UNFINISHED * n_rows):
        reason = f"learning stopped early (the last step gained {gain:.3g})"
    else:
        ended = [
            f"{name} = {math.exp(x):.3g} at its {side} bound"
            for name, x, *limits in zip(
                space.names, theta, space.low, space.high, strict=True
            )
            for side, bound in zip(("lower", "upper"), limits, strict=True)
            if abs(x - bound) < _TOUCHING < limits[1] - limits[0]
            and not _is_usual(name, side, space.names)
        ]
        if not ended:
            return
        reason = f"learning ended with {', '.join(ended)}"
    warn(
        f"{reason}: the likelihood may have no maximum for these rows. Start "
        "elsewhere, set n_restarts_optimizer, scale the targets (normalize_y=True of "
        "regression), or fix the hyperparameters (optimizer=None).",
        ConvergenceWarning,
    )


def warn_of_a_constant(variance: float, noise: float | None) -> None:
    """Warn if the learned process hardly varies, compared to the noise if there is one.

    Values of f are compared to 1 otherwise: they are log odds or logarithms of rates.
    """
    compared, share = "", _NEGLIGIBLE_VALUES
    if noise is not None:
        compared, share = f", that of the noise {noise:.3g}", _NEGLIGIBLE_SHARE * noise
    if not variance < share:
        return
    warn(
        "the learned process is nearly constant: its variance is "
        f"{variance:.3g}{compared}. Either X explains little of y, or learning missed "
        "the right lengthscales: start from other lengthscales, use one per column, or "
        "use more features.",
        ConvergenceWarning,
    )


def _is_usual(name: str, side: str, names: list[str]) -> bool:
    """Return whether it is normal for a hyperparameter to be on this bound."""
    # An irrelevant column has the longest possible lengthscale, an output without a
    # part of its own the smallest variance; classes that are separated with certainty
    # (there is no noise) have the largest scale.
    if side == "lower":
        return "[" in name and "lengthscale" not in name
    # A Gaussian kernel is the limit of rational quadratic ones.
    last = name.rpartition("__")[2]
    return "[" in name or last == "alpha" or ("noise" not in names and last == "scale")
