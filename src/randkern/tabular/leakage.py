"""Signs in a table that rows held out at random make a model look too good.

Leakage (Kapoor and Narayanan, "Leakage and the reproducibility crisis in
machine-learning-based science", Patterns 4, 2023): rows of one group, or of
neighbouring dates, lie on both sides of a random split; or columns contain the target.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from randkern._tables import days_of, is_numeric, is_time, numbers_of, objects_of
from randkern.data.columns import with_known_types

# Fewer rows prove nothing, nor do so few outside the most frequent class.
_MIN_ROWS, _MIN_OTHERS = 50, 5
# Groups are at least so many, of so many rows on average.
_MIN_GROUPS, _ROWS_PER_GROUP = 10, 2
# Share of the variance of targets between groups, for columns of any name, and for
# those that are called as groups are.
_BETWEEN, _BETWEEN_NAMED = 0.5, 0.1
_NAMES_OF_GROUPS = re.compile(
    r"(^|[_\W])(id|ids|uuid|key|group|cluster|subject|patient|person|user|customer|"
    r"client|session|device|machine|site|station|batch|household)s?$|(?-i:[a-z]I[dD]$)",
    re.IGNORECASE,
)
_P_VALUE = 1e-6
# For unrelated values in a row, the ratio is near 2, for smooth curves near 0 (von
# Neumann 1941).
_UNRELATED = 1.0
# The share of the variance that a tree of one column leaves. Of the 21 tables
# of ``randkern bench tables``, a column leaves no less than 1.7 %. Rows next to each
# boundary of a class that the tree may get wrong, and rows and folds of the trees.
_LEFT_BY_TREE, _AT_BOUNDARY, _TREE_ROWS, _TREE_FOLDS = 0.01, 2, 2000, 10


@dataclass(frozen=True)
class Suspicion:
    """A sign of leakage in a table.

    Attributes
    ----------
    kind : {"group", "time", "target"}
        Rows of one group or of neighbouring times lie on both sides of a random
        split, or columns determine the target.
    columns : tuple of str
        The columns that show it.
    message : str
        One sentence or two: what is suspected, and what to do.
    """

    kind: Literal["group", "time", "target"]
    columns: tuple[str, ...]
    message: str


_Kind = Literal["text", "date", "whole", "number"]


@dataclass(frozen=True)
class _Column:
    """A column as numbers, of which texts are codes in sorted order."""

    name: str
    values: np.ndarray
    kind: _Kind


def suspected_leakage(
    X: Any, y: Any, task: str, *, dates: Collection[str] = ()
) -> list[Suspicion]:
    """Return signs that an error on rows held out at random is too optimistic.

    - ``"group"``: a column of texts or whole numbers with at least 10 different values,
      which explain half of the variance of the target (a tenth, if the column is
      called ``id``, ``patient``, ...), beyond chance, while neighbouring numbers have
      unrelated targets: it names groups of rows, and new rows may be of new groups.
    - ``"time"``: a column of dates; or a numeric column by which the rows are sorted,
      if targets of successive rows are alike.
    - ``"target"``: a column from which a decision tree predicts 99 % of the variance of
      the target in rows left out.

    Parameters
    ----------
    X : dataframe of shape (n, d)
    y : array of shape (n,)
        Numbers, or labels of classes.
    task : {"classification", "regression"}
    dates : collection of str, optional
        Columns of numbers that stand for dates, in addition to those with a dtype of
        dates.

    Returns
    -------
    list of Suspicion
        Empty for fewer than 50 rows.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from randkern.tabular.leakage import suspected_leakage
    >>> r = np.random.default_rng(0)
    >>> patient = r.integers(30, size=300)
    >>> X = pd.DataFrame({"dose": r.normal(size=300), "patient": patient})
    >>> y = X["dose"] + 5 * r.normal(size=30)[patient]
    >>> [leak.columns for leak in suspected_leakage(X, y, "regression")]
    [('patient',)]
    """
    y = np.asarray(y)
    if len(y) < _MIN_ROWS or y.ndim != 1:
        return []
    Y = _targets(y, task)
    if Y is None:
        return []
    X = with_known_types(X)
    columns = [_read(str(name), X[name], str(name) in dates) for name in X.columns]
    columns = [column for column in columns if _varies(column.values)]
    groups = [column for column in columns if _names_groups(column, Y)]
    others = [column for column in columns if column not in groups]
    return [
        *map(_of_group, groups),
        *_times(columns, Y),
        *_determined(others, Y, task == "regression"),
    ]


def _targets(y: np.ndarray, task: str) -> np.ndarray | None:
    """Return numbers, or indicators of frequent classes, (n, k), with mean 0.

    None if they are nearly constant.
    """
    labels, codes = np.unique(y.astype(str) if y.dtype.kind == "O" else y, False, True)
    counts = np.bincount(codes, minlength=len(labels))
    if len(codes) - counts.max() < _MIN_OTHERS:
        return None
    Y = y.astype(float)[:, None] if task == "regression" else None
    if Y is None:
        Y = (codes[:, None] == np.argsort(-counts)[:20]).astype(float)
    return Y - Y.mean(axis=0)


def _read(name: str, column: Any, is_date: bool) -> _Column:
    if is_time(column):
        return _Column(name, days_of(column), "date")
    if is_numeric(column):
        values = numbers_of(column)
        present = values[np.isfinite(values)]
        is_whole = (present == np.floor(present)).all()
        kind: _Kind = "date" if is_date else "whole" if is_whole else "number"
        return _Column(name, values, kind)
    texts = ["" if value is None else str(value) for value in objects_of(column)]
    codes = np.unique(texts, return_inverse=True)[1].astype(float)
    return _Column(name, codes, "text")


def _varies(values: np.ndarray) -> bool:
    """Return whether there are several values; a missing one counts as another."""
    missing = np.isnan(values)
    present = values[~missing]
    return bool(present.size and (missing.any() or present.min() < present.max()))


# -- groups ----------------------------------------------------------------------------


def _names_groups(column: _Column, Y: np.ndarray) -> bool:
    if column.kind not in ("text", "whole"):
        return False
    codes = np.unique(column.values, return_inverse=True)[1]
    n, counts = len(codes), np.bincount(codes)
    m = len(counts)
    if not _MIN_GROUPS <= m <= n / _ROWS_PER_GROUP:
        return False
    means = np.stack([np.bincount(codes, y) for y in Y.T], axis=1) / counts[:, None]
    total, within = float((Y**2).sum()), float(((Y - means[codes]) ** 2).sum())
    # ε² is the share of the variance between groups, 0 on average for random groups.
    between = 1 - (within / (n - m)) / (total / (n - 1))
    named = _NAMES_OF_GROUPS.search(column.name) is not None
    if between < (_BETWEEN_NAMED if named else _BETWEEN):
        return False
    if within > 0:
        statistic = ((total - within) / (m - 1)) / (within / (n - m))
        if stats.f.sf(statistic, m - 1, n - m) > _P_VALUE:
            return False
    return column.kind == "text" or _neumann_ratio(means) > _UNRELATED


def _neumann_ratio(Y: np.ndarray) -> float:
    """Return the mean squared difference of successive rows over the variance."""
    total = float(Y.var(axis=0).sum())
    return float((np.diff(Y, axis=0) ** 2).mean(axis=0).sum()) / total if total else 2.0


def _of_group(column: _Column) -> Suspicion:
    return Suspicion(
        "group",
        (column.name,),
        f"column {column.name!r} seems to name groups: rows of each of its "
        f"{len(np.unique(column.values)):,} values have targets that are much alike. "
        "Rows of one group are both in the training and in the held-out rows, so "
        "errors for rows of new groups will be larger than those shown. If new rows "
        f"are of other groups, say --groups {shlex.quote(column.name)} (in Python "
        "fit(..., groups=...)): whole groups are then held out, and the column is not "
        "used.",
    )


# -- time ------------------------------------------------------------------------------


def _times(columns: list[_Column], Y: np.ndarray) -> Iterator[Suspicion]:
    dates = tuple(column.name for column in columns if column.kind == "date")
    if dates:
        named = ", ".join(map(repr, dates))
        yield Suspicion(
            "time",
            dates,
            f"column {named} holds dates. Rows held out at random lie between dates of "
            "training rows, so errors for later dates will be larger than those shown. "
            "If the model is to predict later dates, say --time "
            f"{shlex.quote(str(dates[0]))} (in Python fit(..., time=...)): the latest "
            "rows are then held out.",
        )
        return
    # Of n unrelated targets the ratio has mean 2 and variance near 4/n.
    if _neumann_ratio(Y) >= min(2 - 5 * 2 / np.sqrt(len(Y)), _UNRELATED):
        return  # successive targets are not alike beyond chance
    for column in columns:
        # Without ties: else, the rows are sorted by a category or a code.
        steps = np.diff(column.values)
        if column.kind != "text" and ((steps > 0).all() or (steps < 0).all()):
            yield Suspicion(
                "time",
                (column.name,),
                f"the rows are sorted by {column.name!r}, and targets of successive "
                "rows are alike. If this is the order of time and the model is to "
                "predict later rows, errors will be larger than those shown: say "
                f"--time {shlex.quote(column.name)} (in Python fit(..., time=...)) to "
                "hold out the last rows.",
            )
            return


# -- columns that determine the target -------------------------------------------------


def _determined(
    columns: list[_Column], Y: np.ndarray, is_regression: bool
) -> list[Suspicion]:
    most = _LEFT_BY_TREE
    if not is_regression:
        most += _AT_BOUNDARY * Y.shape[1] / min(len(Y), _TREE_ROWS)
    return [
        Suspicion(
            "target",
            (column.name,),
            f"column {column.name!r} determines the target, or nearly so: drop what is "
            "not known when predictions are made.",
        )
        for column in columns
        if _share_left(column, Y) < most
    ]


def _share_left(column: _Column, Y: np.ndarray) -> float:
    """Return the share of the variance that a tree leaves in rows left out."""
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.tree import DecisionTreeRegressor

    order = np.random.default_rng(0).permutation(len(Y))[:_TREE_ROWS]
    x, Y = column.values[order].clip(-1e30, 1e30)[:, None], Y[order]
    tree = DecisionTreeRegressor(random_state=0)
    predicted = cross_val_predict(tree, x, Y, cv=KFold(_TREE_FOLDS)).reshape(Y.shape)
    return float(((Y - predicted) ** 2).sum() / ((Y - Y.mean(axis=0)) ** 2).sum())
