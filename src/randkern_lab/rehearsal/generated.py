"""Tables that the rehearsal generates: what real files hold, at sizes that matter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Share of the values of a column that are missing.
_MISSING = 0.05
#: Share of rows of the rare class.
_RARE = 0.02
_DAYS = 700
QUARTERS = [f"Q{i:02}" for i in range(40)]


def _prices(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Regression with numbers, categories of few and many levels, dates, gaps."""
    size = rng.lognormal(4.0, 0.4, n)
    rooms = rng.integers(1, 7, n)
    quarter = rng.choice(QUARTERS, n)
    kind = rng.choice(["flat", "house", "loft"], n, p=[0.6, 0.3, 0.1])
    day = rng.integers(0, _DAYS, n)
    level = dict(zip(QUARTERS, rng.normal(size=len(QUARTERS)), strict=True))
    price = (
        3.0 * size
        + 20.0 * rooms
        + 40.0 * (kind == "house") * np.log(size)
        + 30.0 * np.array([level[name] for name in quarter])
        + 25.0 * np.sin(2 * np.pi * day / 365)
        + rng.normal(0, 25.0, n)
    )
    dates = np.datetime64("2023-01-01") + day.astype("timedelta64[D]")
    return {
        "size": _with_gaps(np.round(size, 1), rng),
        "rooms": rooms,
        "quarter": _with_gaps(quarter.astype(object), rng),
        "kind": kind,
        "sold on": dates.astype(str),
        "garage": rng.choice(["yes", "no"], n),
        "target": np.round(price, 2),
    }


def _defaults(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Classification with a rare class, of which few columns tell."""
    X = rng.normal(size=(n, 6))
    region = rng.choice(["north", "south", "east", "west"], n)
    score = (
        1.5 * X[:, 0] + X[:, 1] * X[:, 2] + (region == "east") + rng.logistic(size=n)
    )
    rare = score > np.quantile(score, 1 - _RARE)
    columns: dict[str, Any] = {f"x{j}": np.round(X[:, j], 4) for j in range(6)}
    columns["x4"] = _with_gaps(columns["x4"], rng)
    return columns | {"region": region, "target": np.where(rare, "default", "paid")}


def _texts(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Numbers in text: codes with zeros in front, placeholders, digits and letters."""
    code = rng.integers(0, 30, n)
    grade = rng.choice(["1", "2", "3", "A"], n, p=[0.4, 0.3, 0.2, 0.1])
    amount = np.round(rng.gamma(2.0, 50.0, n), 2)
    shown = amount.astype(str).astype(object)
    shown[rng.random(n) < 0.01] = "?"
    level = rng.normal(size=30)
    target = (
        0.02 * amount
        + level[code]
        + np.where(grade == "A", 2.0, 0.0)
        + rng.normal(0, 0.3, n)
    )
    return {
        "code": np.array([f"{c:03}" for c in code], dtype=object),
        "grade": grade,
        "amount": shown,
        "noise": np.round(rng.normal(size=n), 3),
        "target": np.round(target, 4),
    }


#: Name -> (number of rows, task, columns).
TABLES: dict[str, tuple[int, str, Callable[..., dict[str, Any]]]] = {
    "generated/prices": (5_000, "regression", _prices),
    "generated/defaults": (20_000, "classification", _defaults),
    "generated/texts": (60_000, "regression", _texts),
}


def generated_table(name: str, seed: int = 0) -> Any:
    """Return a dataframe with the columns of a table, ``target`` and ``fold``."""
    import pandas as pd

    n, _, columns = TABLES[name]
    rng = np.random.default_rng([seed, n])
    return pd.DataFrame(columns(n, rng)).assign(fold=rng.integers(0, 10, n))


def write_rows(folder: Path, n_rows: int, n_columns: int, n_files: int = 4) -> None:
    """Write rows of numbers and a target as Parquet files, a part at a time."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(n_files):
        rng = np.random.default_rng(number)
        X = rng.normal(size=(n_rows // n_files, n_columns))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(n_columns)])
        frame = frame.assign(y=y)
        frame.to_parquet(folder / f"part-{number}.parquet", row_group_size=50_000)


def _with_gaps(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    missing = None if values.dtype == object else np.nan
    values = values.copy()
    values[rng.random(len(values)) < _MISSING] = missing
    return values
