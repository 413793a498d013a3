"""Published numbers that the experiments print beside their own."""

import json
from importlib import resources
from typing import Any

__all__ = ["published_about", "published_rows", "published_source"]


def published_rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a published table.

    Parameters
    ----------
    table : str
        ``"fashion-mnist-features"``, ``"fashion-mnist-kernels"``,
        ``"fashion-mnist-grid-gaussian"``, ``"fashion-mnist-grid-optical-2"``,
        ``"fashion-mnist-grid-optical-4"``, ``"cifar10-transfer-learning"`` or
        ``"projection-cost-p100"``.

    Returns
    -------
    rows : list of dict
        By column; None where nothing was published.

    Raises
    ------
    ValueError
        If there is no such table.

    References
    ----------
    Ohana et al. 2020, "Kernel computations from large-scale random features obtained
    by optical processing units", and the results of its public code.

    Examples
    --------
    >>> from randkern_lab.papers.published import published_rows
    >>> rows = published_rows("fashion-mnist-features")
    >>> [row["test_accuracy"] for row in rows
    ...  if row["features"] == "sim_opu_2" and row["n_components"] == 10_000]
    [0.8821]
    """
    found = _table(table)
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def published_about(table: str) -> str:
    """Return what the columns of a table of :func:`published_rows` hold.

    Examples
    --------
    >>> from randkern_lab.papers.published import published_about
    >>> published_about("projection-cost-p100")
    'Figure 3: seconds and joules of a product (batch, D) x (D, D) on a NVIDIA P100.'
    """
    return str(_table(table)["about"])


def published_source() -> str:
    """Return where the tables come from.

    Examples
    --------
    >>> from randkern_lab.papers.published import published_source
    >>> published_source().startswith("Ohana et al. 2020")
    True
    """
    return str(_read()["source"])


def _table(name: str) -> dict[str, Any]:
    tables = _read()["tables"]
    if name not in tables:
        known = ", ".join(map(repr, tables))
        raise ValueError(f"no published table {name!r}; expected one of {known}")
    return dict(tables[name])


def _read() -> dict[str, Any]:
    file = resources.files("randkern_lab.papers") / "published.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))
