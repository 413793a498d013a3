"""Summaries of the accuracy benchmark: means, and ratios paired by seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..tables import groups, of

__all__ = ["paired_ratio", "summarise"]

Records = Sequence[Mapping[str, Any]]


def paired_ratio(
    errors: Sequence[float], reference: Sequence[float]
) -> tuple[float, float | None]:
    """Return the ratio r = ā/b̄ of two means over seeds, and its standard error.

    The standard error is that of the mean of (a_s − r b_s)/b̄ over the seeds s (delta
    method for pairs), None for a single seed.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import paired_ratio
    >>> paired_ratio([0.8, 1.0], [1.0, 1.0])
    (0.9, 0.1)
    >>> paired_ratio([0.9, 1.8], [1.0, 2.0])  # the same ratio in every pair
    (0.9, 0.0)
    """
    a, b = np.asarray(errors, dtype=float), np.asarray(reference, dtype=float)
    ratio = float(a.mean() / b.mean())
    if len(a) < 2:
        return ratio, None
    residual = (a - ratio * b) / b.mean()
    return ratio, float(residual.std(ddof=1) / math.sqrt(len(a)))


def summarise(records: Records) -> list[dict[str, Any]]:
    """Return one entry per family, method and number of features.

    It has means over seeds of errors, and their standard deviations (``_std``); medians
    of ``features_seconds`` (fit and transform) and ``total_seconds`` (including solve);
    ``ratio_to_dense`` of the off-diagonal Gram errors, None if dense was not run; for
    centred features ``ratio_to_plain``, with the same projection.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import summarise
    >>> record = {"family": "gaussian", "method": "dense", "centered": False,
    ...           "n_components": 8, "seed": 0, "gram_error": 0.2,
    ...           "gram_error_all": 0.1, "test_error": 0.5, "alpha": 1e-3,
    ...           "fit_seconds": 1.0, "transform_seconds": 2.0, "solve_seconds": 0.5}
    >>> entry, = summarise([record])
    >>> entry["ratio_to_dense"], entry["total_seconds"]
    (1.0, 3.5)
    """
    import pandas as pd

    summary = []
    for named, own in groups(records, "family", "method", "centered", "n_components"):
        table = pd.DataFrame(own).astype({"test_error": float, "solve_seconds": float})
        errors = table[["gram_error", "gram_error_all", "test_error"]]
        spreads = errors.drop(columns="gram_error_all").std().add_suffix("_std")
        found = pd.concat([errors.mean(), spreads]).to_dict()
        features = table.fit_seconds + table.transform_seconds
        found["features_seconds"] = features.median()
        found["total_seconds"] = (features + table.solve_seconds.fillna(0.0)).median()
        dense = of(records, **named | {"method": "dense", "centered": False})
        plain = of(records, **named | {"centered": False}) if named["centered"] else []
        summary.append(
            named
            | {"n_seeds": len(own), "alpha": own[0]["alpha"]}
            | {k: None if np.isnan(v) else float(v) for k, v in found.items()}
            | _ratio(own, dense, "ratio_to_dense", "ratio_se")
            | _ratio(own, plain, "ratio_to_plain", "ratio_to_plain_se")
        )
    return summary


def _ratio(
    records: Records, reference: Records, name: str, error_name: str
) -> dict[str, float | None]:
    """Return the ratio of Gram errors over common seeds."""
    base = {record["seed"]: record["gram_error"] for record in reference}
    pairs = [
        (record["gram_error"], base[record["seed"]])
        for record in records
        if record["seed"] in base
    ]
    ratio, error = paired_ratio(*zip(*pairs, strict=True)) if pairs else (None, None)
    return {name: ratio, error_name: error}
