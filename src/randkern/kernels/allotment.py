"""How the columns of a sum of kernels are shared out among its terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def allot(
    n_components: int, diagonals: np.ndarray, most: Sequence[int | None]
) -> list[int]:
    """Share out columns in proportion to `diagonals`, by largest remainder.

    Every term gets at least one column, and no more than it has use for: what it
    leaves goes to the others.

    Parameters
    ----------
    n_components : int
    diagonals : ndarray of shape (n_terms,)
        The mean of k(x, x) of every term.
    most : sequence of int or None
        The width at which a term's features are exact, None if they never are.
    """
    n_terms = len(most)
    if n_components < n_terms:
        raise ValueError(
            f"n_components={n_components} is fewer than the {n_terms} terms of the "
            f"kernel; use at least {n_terms}."
        )
    caps = np.array([n_components if cap is None else cap for cap in most])
    if caps.sum() < n_components:
        raise ValueError(
            f"the linear kernel has exactly {caps.sum()} features, got "
            f"n_components={n_components}; use at most {caps.sum()}."
        )
    shares = np.asarray(diagonals, dtype=float)
    shares = shares / shares.max() if shares.max() > 0 else np.ones(n_terms)
    widths = np.ones(n_terms, dtype=int)
    open_terms = np.ones(n_terms, dtype=bool)
    # Terms that their cap or the minimum binds are settled first.
    while True:
        left = n_components - widths[~open_terms].sum()
        total = shares[open_terms].sum()
        part = shares / total if total > 0 else open_terms / open_terms.sum()
        ideal = np.where(open_terms, left * part, widths)
        over = open_terms & (ideal > caps)
        under = open_terms & (ideal < 1)
        bound = over if over.any() else under
        if not bound.any():
            break
        widths[bound] = np.where(over, caps, 1)[bound]
        open_terms &= ~bound
        if not open_terms.any():
            break
    widths[open_terms] = np.floor(ideal[open_terms]).astype(int)
    remainder = np.where(open_terms, ideal - widths, -1.0)
    for index in np.argsort(-remainder, kind="stable"):
        if widths.sum() == n_components:
            break
        widths[index] += widths[index] < caps[index]
    return [int(width) for width in widths]
