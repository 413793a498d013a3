"""Published numbers, printed next to those of the experiments."""

import json
from importlib import resources
from typing import Any


def published_rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table in ``published.json``, which describes its tables.

    They are from Ohana et al. 2020, "Kernel computations from large-scale random
    features obtained by optical processing units", and from the results of its public
    code; None if nothing was published.
    """
    file = resources.files("randkern_lab.papers") / "published.json"
    tables = json.loads(file.read_text(encoding="utf-8"))["tables"]
    if table not in tables:
        known = ", ".join(map(repr, tables))
        raise ValueError(f"no published table {table!r}; expected one of {known}")
    result = tables[table]
    return [dict(zip(result["columns"], row, strict=True)) for row in result["rows"]]
