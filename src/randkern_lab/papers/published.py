"""Published numbers, printed next to those of the experiments."""

import json
from importlib import resources

import pandas as pd


def published_rows(table: str) -> pd.DataFrame:
    """Return a table in ``published.json``, which describes its tables.

    They are from Ohana et al. 2020, "Kernel computations from large-scale random
    features obtained by optical processing units", and from the results of its public
    code; missing if nothing was published.
    """
    file = resources.files("randkern_lab.papers") / "published.json"
    found = json.loads(file.read_text(encoding="utf-8"))["tables"][table]
    return pd.DataFrame(found["rows"], columns=found["columns"])
