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
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from randkern._tables import kind_of, numbers_of, objects_of
from randkern.data.columns import with_known_types
from randkern.tabular.folds import correlation_within

# Fewer rows prove nothing, nor do so few outside the most frequent class.
_MIN_ROWS, _MIN_OTHERS = 50, 5
# Groups are at least so many, of two rows on average.
_MIN_GROUPS = 10
# Share of the variance of targets between groups, for columns of any name, and for
# those that are called as groups are.
_BETWEEN, _BETWEEN_NAMED = 0.5, 0.1
_NAMES_OF_GROUPS = re.compile(
    r"(^|[_\W])(id|ids|uuid|key|group|cluster|subject|patient|person|user|customer|"
    r"client|session|device|machine|site|station|batch|household)s?$|(?-i:[a-z]I[dD]$)",
    re.IGNORECASE,
)
_P_VALUE = 1e-6
# The share of the variance that a tree of one column leaves. Of the 21 tables
# of ``randkern bench tables``, a column leaves no less than 1.7 %. A tree may also get
# two rows next to each boundary of a class wrong.
_LEFT_BY_TREE, _TREE_ROWS = 0.01, 2000


@dataclass(frozen=True)
class Suspicion:
    """A sign of leakage in a table.

    Rows of one group or of neighbouring times lie on both sides of a random split, or
    columns determine the target. The message says what to do.
    """

    kind: Literal["group", "time", "target"]
    columns: tuple[str, ...]
    message: str


class _Column(NamedTuple):
    """A column as numbers, of which texts are codes in sorted order."""

    name: str
    kind: Literal["text", "date", "whole", "number"]
    values: np.ndarray


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

    None of fewer than 50 rows. `dates` names columns of numbers that stand for dates,
    beside those with a dtype of dates.

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
    if len(y) < _MIN_ROWS or y.ndim != 1 or (Y := _targets(y, task)) is None:
        return []
    X = with_known_types(X)
    columns = [_read(str(name), X[name], str(name) in dates) for name in X.columns]
    columns = [column for column in columns if len(np.unique(column.values)) > 1]
    most = _LEFT_BY_TREE
    if task == "classification":
        most += 2 * Y.shape[1] / min(len(Y), _TREE_ROWS)
    groups, determining = [], []
    for column in columns:
        name = column.name
        if _names_groups(column, Y):
            sign = f"column {name!r} seems to name groups of rows with similar targets"
            groups.append(_of_dependence("group", (name,), sign))
        elif _share_left(column, Y) < most:
            message = (
                f"column {name!r} determines the target, or nearly so: drop what is "
                "not known when predictions are made."
            )
            determining.append(Suspicion("target", (name,), message))
    return [*groups, *_times(columns, Y), *determining]


def _of_dependence(
    kind: Literal["group", "time"], columns: tuple[str, ...], sign: str
) -> Suspicion:
    near, new, option, held = {
        "group": ("the same group", "new groups", "groups", "whole groups"),
        "time": ("neighbouring times", "later times", "time", "the last rows"),
    }[kind]
    return Suspicion(
        kind,
        columns,
        f"{sign}. Rows held out at random lie among training rows of {near}, so errors "
        f"for {new} will be larger than those shown. If the model is to predict these, "
        f"say --{option} {shlex.quote(columns[0])} (in Python fit(..., {option}=...)), "
        f"which holds out {held}.",
    )


def _targets(y: np.ndarray, task: str) -> np.ndarray | None:
    """Return numbers, or indicators of frequent classes, (n, k), with mean 0.

    None if they are nearly constant.
    """
    labels, codes = np.unique(y.astype(str) if y.dtype.kind == "O" else y, False, True)
    counts = np.bincount(codes, minlength=len(labels))
    if len(codes) - counts.max() < _MIN_OTHERS:
        return None
    if task == "regression":
        Y = y.astype(float)[:, None]
    else:
        Y = (codes[:, None] == np.argsort(-counts)[:20]).astype(float)
    return Y - Y.mean(axis=0)


def _read(name: str, column: Any, is_date: bool) -> _Column:
    if (kind := kind_of(column)) != "category":
        values = numbers_of(column)
        if is_date or kind != "number":
            return _Column(name, "date", values)
        is_whole = (values[np.isfinite(values)] % 1 == 0).all()
        return _Column(name, "whole" if is_whole else "number", values)
    texts = ["" if value is None else str(value) for value in objects_of(column)]
    codes = np.unique(texts, return_inverse=True)[1]
    return _Column(name, "text", codes.astype(float))


def _names_groups(column: _Column, Y: np.ndarray) -> bool:
    _, codes, counts = np.unique(column.values, return_inverse=True, return_counts=True)
    n, m = len(codes), len(counts)
    if column.kind not in ("text", "whole") or not _MIN_GROUPS <= m <= n / 2:
        return False
    share = correlation_within(Y, codes)
    is_named = _NAMES_OF_GROUPS.search(column.name) is not None
    if share < (_BETWEEN_NAMED if is_named else _BETWEEN):
        return False
    # The ratio of the variances between and within groups.
    ratio = 1 + n / m * share / (1 - share) if share < 1 else np.inf
    if stats.f.sf(ratio, m - 1, n - m) > _P_VALUE:
        return False
    means = np.stack([np.bincount(codes, y) for y in Y.T], axis=1) / counts[:, None]
    return column.kind == "text" or not _are_alike(means)


def _are_alike(Y: np.ndarray) -> bool:
    """Return whether successive rows are alike.

    The ratio of their mean squared difference to the variance is near 2 for unrelated
    rows, near 0 for smooth curves (von Neumann 1941).
    """
    differences = (np.diff(Y, axis=0) ** 2).mean(axis=0).sum()
    return bool(differences < Y.var(axis=0).sum())


def _times(columns: list[_Column], Y: np.ndarray) -> Iterator[Suspicion]:
    dates = tuple(column.name for column in columns if column.kind == "date")
    if dates:
        named = ", ".join(map(repr, dates))
        yield _of_dependence("time", dates, f"column {named} holds dates")
        return
    for column in columns if _are_alike(Y) else ():
        # Without ties: else, the rows are sorted by a category or a code.
        steps = np.diff(column.values)
        if column.kind != "text" and ((steps > 0).all() or (steps < 0).all()):
            sign = (
                f"the rows are sorted by {column.name!r}, and successive targets alike"
            )
            yield _of_dependence("time", (column.name,), sign)
            return


def _share_left(column: _Column, Y: np.ndarray) -> float:
    """Return the share of the variance that a tree leaves in rows left out."""
    from sklearn.model_selection import cross_val_predict
    from sklearn.tree import DecisionTreeRegressor

    order = np.random.default_rng(0).permutation(len(Y))[:_TREE_ROWS]
    x, Y = column.values[order].clip(-1e30, 1e30)[:, None], Y[order]
    tree = DecisionTreeRegressor(random_state=0)
    predicted = cross_val_predict(tree, x, Y).reshape(Y.shape)
    return float(((Y - predicted) ** 2).sum() / ((Y - Y.mean(axis=0)) ** 2).sum())
