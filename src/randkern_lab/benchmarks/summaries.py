"""Summaries over seeds: aggregated records, and ratios paired by seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["aggregated", "paired_ratio"]


def aggregated(
    records: Sequence[Mapping[str, Any]], keys: Sequence[str], **columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return an entry per value of some keys: ``n_seeds``, and columns over the seeds.

    These are named by pandas's aggregation; ``_std`` is appended for deviations. What
    is not a number is None.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import aggregated
    >>> records = [{"D": 8, "seed": seed, "error": 0.5 * seed} for seed in (0, 1)]
    >>> aggregated(records, ["D"], mean=["error"])
    [{'D': 8, 'n_seeds': 2, 'error': 0.25}]
    """
    import pandas as pd

    if not records:
        return []
    table = pd.DataFrame(records)
    table = table.astype({c: float for c in table if table[c].isna().all()})
    named = {
        f"{column}_std" if how == "std" else column: (column, how)
        for how, some in columns.items()
        for column in some
    }
    groups = table.groupby(list(keys), sort=False)
    found = groups.agg(n_seeds=("seed", "size"), **named).reset_index()
    return [
        {key: None if value != value else value for key, value in entry.items()}
        for entry in found.to_dict("records")
    ]


def paired_ratio(
    pairs: Sequence[tuple[float, float]],
) -> tuple[float | None, float | None]:
    """Return the ratio r = ā/b̄ of two means over seeds, and its standard error.

    The standard error is that of the mean of (a_s − r b_s)/b̄ over the seeds s (delta
    method for pairs), None for a single seed; both are None without pairs.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import paired_ratio
    >>> paired_ratio([(0.8, 1.0), (1.0, 1.0)])
    (0.9, 0.1)
    """
    if not pairs:
        return None, None
    a, b = np.asarray(pairs, dtype=float).T
    ratio = float(a.mean() / b.mean())
    if len(a) < 2:
        return ratio, None
    residual = (a - ratio * b) / b.mean()
    return ratio, float(residual.std(ddof=1) / math.sqrt(len(a)))
