"""Published numbers that the experiments print beside their own."""

import json
from importlib import resources
from typing import Any

__all__ = ["published_rows"]


def published_rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of ``published.json``, which says what it holds.

    From Ohana et al. 2020, "Kernel computations from large-scale random features
    obtained by optical processing units", and the results of its public code; None
    where nothing was published.

    Examples
    --------
    >>> from randkern_lab.papers.published import published_rows
    >>> rows = published_rows("fashion-mnist-features")
    >>> [row["test_accuracy"] for row in rows
    ...  if row["features"] == "sim_opu_2" and row["n_components"] == 10_000]
    [0.8821]
    """
    file = resources.files("randkern_lab.papers") / "published.json"
    tables = json.loads(file.read_text(encoding="utf-8"))["tables"]
    if table not in tables:
        known = ", ".join(map(repr, tables))
        raise ValueError(f"no published table {table!r}; expected one of {known}")
    found = tables[table]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
