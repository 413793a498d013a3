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
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy import stats

from randkern._tables import days_of, is_numeric, is_time, numbers_of, objects_of
from randkern.data.columns import with_known_types

# Fewer rows prove nothing.
_MIN_ROWS = 20
# Rows on which candidates are sought; those that are reported hold for all rows.
_MAX_ROWS = 10_000
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
# Rows per combination of the values of two columns that are said to determine targets.
_ROWS_PER_PAIR = 4
# Least rows outside the most frequent class.
_MIN_OTHERS = 5
# Largest share of the variance of targets that rounding may leave.
_ROUNDING = 1e-6
# Columns of which pairs are compared, and pairs that are reported.
_MAX_COLUMNS, _MAX_PAIRS = 300, 3


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


@dataclass(frozen=True)
class _Column:
    """A column as an array, and its numbers if it has some.

    `is_integral` is set for columns of texts and of whole numbers.
    """

    name: str
    keys: np.ndarray
    is_integral: bool
    values: np.ndarray | None
    is_date: bool = False

    @cached_property
    def codes(self) -> np.ndarray:
        """The codes of values, in sorted order, for which all rows are sorted."""
        return np.unique(self.keys, return_inverse=True)[1]

    @cached_property
    def n_distinct(self) -> int:
        return int(self.codes.max()) + 1

    @cached_property
    def varies(self) -> bool:
        """Whether there are several values; a missing one counts as another."""
        if self.values is None:
            return self.n_distinct > 1
        missing = np.isnan(self.values)
        present = self.values[~missing]
        if not present.size:
            return False
        return bool(missing.any() or present.min() < present.max())

    def repeats(self, n_rows: float) -> bool:
        """Return whether values have `n_rows` rows or more on average.

        Of k rows with m values, some k²/2m equal earlier ones: far fewer show that
        there are more values, without sorting all rows.
        """
        n = len(self.keys)
        few = self.keys[:: -(-n // _MAX_ROWS)]
        n_equal = len(few) - len(np.unique(few))
        if n_equal < len(few) ** 2 / (8 * n / n_rows):
            return False
        return self.n_distinct <= n / n_rows


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
    - ``"target"``: one or two columns that determine the target: equal values have
      equal targets; or the target is a monotone function of one (classes: intervals of
      it), or a linear combination or a product of powers of one or two, up to rounding.

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
        Empty for fewer than 20 rows.

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
    X = with_known_types(X)
    columns = [_read(str(name), X[name], str(name) in dates) for name in X.columns]
    varying = [column for column in columns if column.varies]
    targets = _Targets.of(y, task)
    if targets is None:
        return []
    groups = [column for column in varying if _names_groups(column, targets)]
    others = [column for column in varying if column not in groups]
    return [
        *(_of_group(column) for column in groups),
        *_times(varying, targets),
        *_determined(others, targets),
    ]


@dataclass(frozen=True)
class _Targets:
    """Targets as codes (n,), and as columns of variance (n, k): numbers or indicators.

    `numbers` are the targets of a regression, None for classes.
    """

    codes: np.ndarray
    columns: np.ndarray
    numbers: np.ndarray | None

    @classmethod
    def of(cls, y: np.ndarray, task: str) -> _Targets | None:
        """Return targets, or None if they are nearly constant."""
        if y.dtype.kind == "O":
            y = y.astype(str)
        codes = np.unique(y, return_inverse=True)[1]
        counts = np.bincount(codes)
        if len(codes) - counts.max() < _MIN_OTHERS:
            return None
        if task == "regression":
            return cls(codes, y.astype(float)[:, None], y.astype(float))
        common = np.argsort(-counts)[:20]
        return cls(codes, (codes[:, None] == common).astype(float), None)


def _read(name: str, column: Any, is_date: bool) -> _Column:
    values = None
    if is_time(column):
        values, is_date = days_of(column), True
    elif is_numeric(column):
        values = numbers_of(column)
    if values is None:
        objects = objects_of(column)
        texts = np.array(["" if value is None else str(value) for value in objects])
        return _Column(name, texts, True, None)
    present = values[np.isfinite(values)]
    integral = bool((present == np.floor(present)).all()) and not is_date
    return _Column(name, values, integral, values, is_date)


# -- groups ----------------------------------------------------------------------------


def _names_groups(column: _Column, targets: _Targets) -> bool:
    if not column.is_integral or not column.repeats(_ROWS_PER_GROUP):
        return False
    n, m = len(column.codes), column.n_distinct
    if m < _MIN_GROUPS:
        return False
    counts = np.bincount(column.codes, minlength=m)
    Y = targets.columns - targets.columns.mean(axis=0)
    sums = np.stack([np.bincount(column.codes, y, m) for y in Y.T], axis=1)
    means = sums / counts[:, None]
    total = float((Y**2).sum())
    within = float(((Y - means[column.codes]) ** 2).sum())
    # ε² is the share of the variance between groups, 0 on average for random groups.
    between = 1 - (within / (n - m)) / (total / (n - 1))
    named = _NAMES_OF_GROUPS.search(column.name) is not None
    if between < (_BETWEEN_NAMED if named else _BETWEEN):
        return False
    if within > 0:
        statistic = ((total - within) / (m - 1)) / (within / (n - m))
        if stats.f.sf(statistic, m - 1, n - m) > _P_VALUE:
            return False
    return column.values is None or _neumann_ratio(means) > _UNRELATED


def _neumann_ratio(Y: np.ndarray) -> float:
    """Return the mean squared difference of successive rows over the variance."""
    centred = Y - Y.mean(axis=0)
    total = float((centred**2).mean(axis=0).sum())
    return float((np.diff(Y, axis=0) ** 2).mean(axis=0).sum()) / total if total else 2.0


def _of_group(column: _Column) -> Suspicion:
    return Suspicion(
        "group",
        (column.name,),
        f"column {column.name!r} seems to name groups: rows of each of its "
        f"{column.n_distinct:,} values have targets that are much alike. Rows of one "
        "group are both in the training and in the held-out rows, so errors for rows "
        "of new groups will be larger than those shown. If new rows are of other "
        f"groups, say --groups {shlex.quote(column.name)} (in Python "
        "fit(..., groups=...)): whole groups are then held out, and the column is not "
        "used.",
    )


# -- time ------------------------------------------------------------------------------


def _times(columns: list[_Column], targets: _Targets) -> Iterator[Suspicion]:
    dates = tuple(column.name for column in columns if column.is_date)
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
    bound = 2 - 5 * 2 / np.sqrt(len(targets.codes))
    if _neumann_ratio(targets.columns) >= min(bound, _UNRELATED):
        return  # successive targets are not alike beyond chance
    for column in columns:
        if column.values is None:
            continue
        # Without ties: else, the rows are sorted by a category or a code.
        steps = np.diff(column.values)
        if (steps > 0).all() or (steps < 0).all():
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


def _determined(columns: list[_Column], targets: _Targets) -> list[Suspicion]:
    """Return single columns that determine targets; if there are none, pairs."""
    single = [
        _of_target((column.name,), "")
        for column in columns
        if _determines(column, targets) or _is_monotone(column, targets)
    ]
    if targets.numbers is not None:
        known = {leak.columns for leak in single}
        numeric = [
            column
            for column in columns
            if (column.name,) not in known
            and column.values is not None
            and np.isfinite(column.values).all()
        ]
        single += _combinations(numeric, targets.numbers)
    elif not single:
        single = list(_pairs(columns, targets.codes))
    return single[:_MAX_PAIRS]


def _of_target(names: tuple[str, ...], how: str) -> Suspicion:
    named = " and ".join(map(repr, names))
    subject, verb = (
        ("columns", "determine") if len(names) > 1 else ("column", "determines")
    )
    return Suspicion(
        "target",
        names,
        f"{subject} {named} {verb} the target exactly{how}: drop what is not known "
        "when predictions are made.",
    )


def _is_function(codes: np.ndarray, m: int, y: np.ndarray) -> bool:
    """Return whether rows with equal codes, 0 to m − 1, have equal targets."""
    representative = np.zeros(m, dtype=y.dtype)
    representative[codes] = y
    return np.array_equal(representative[codes], y)


def _determines(column: _Column, targets: _Targets) -> bool:
    """Return whether equal values, each of some rows, have equal targets."""
    few = column.repeats(_ROWS_PER_GROUP)
    return few and _is_function(column.codes, column.n_distinct, targets.codes)


def _is_monotone(column: _Column, targets: _Targets) -> bool:
    """Return whether targets are a monotone function of a column of numbers.

    Classes: whether each is an interval.
    """
    if column.values is None or np.isnan(column.values).any():
        return False
    n, is_classes = len(column.values), targets.numbers is None
    # A function that is not monotone on some of the rows is not on all.
    for step in sorted({-(-n // _MAX_ROWS), 1}, reverse=True):
        x, y = column.values[::step], targets.codes[::step]
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
        changes = np.diff(y)
        if np.any((x[1:] == x[:-1]) & (changes != 0)):
            return False
        if is_classes:
            if int((changes != 0).sum()) != len(np.unique(y)) - 1:
                return False
        elif not ((changes >= 0).all() or (changes <= 0).all()):
            return False
    return True


def _pairs(columns: list[_Column], y: np.ndarray) -> Iterator[Suspicion]:
    """Yield pairs of columns of which equal values have equal classes."""
    n = len(y)
    rows = slice(None, None, -(-n // _MAX_ROWS))
    few = [c for c in columns if c.repeats(_ROWS_PER_PAIR)][:_MAX_COLUMNS]
    for first, second in combinations(few, 2):
        if first.n_distinct * second.n_distinct > 50 * n:
            continue
        codes = first.codes * second.n_distinct + second.codes
        m = first.n_distinct * second.n_distinct
        if not _is_function(codes[rows], m, y[rows]):
            continue
        enough = len(np.unique(codes)) <= n / _ROWS_PER_PAIR
        if enough and _is_function(codes, m, y):
            yield _of_target((first.name, second.name), "")


def _combinations(columns: list[_Column], y: np.ndarray) -> list[Suspicion]:
    """Return columns whose linear combinations, or products of powers, are y."""
    relations: dict[tuple[str, ...], str] = {}
    values = {c.name: c.values for c in columns[:_MAX_COLUMNS] if c.values is not None}
    for names in _linear(values, y):
        relations.setdefault(names, ", as a linear combination")
    positive = {name: np.log(x) for name, x in values.items() if x.min() > 0}
    if y.min() > 0 and positive:
        for names in _linear(positive, np.log(y)):
            relations.setdefault(names, ", as a product of powers")
    return [_of_target(names, how) for names, how in relations.items()]


def _linear(values: dict[str, np.ndarray], y: np.ndarray) -> Iterator[tuple[str, ...]]:
    """Yield one or two columns of which y is a linear combination up to rounding."""
    names = list(values)
    if not names or len(y) < _MIN_ROWS:
        return
    step = -(-len(y) // _MAX_ROWS)
    sample = np.column_stack([*(values[name][::step] for name in names), y[::step]])
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = sample.std(axis=0)
    varies = (deviation > 0) & np.isfinite(deviation)
    usable = np.flatnonzero(varies[:-1]).tolist()
    if not (varies[-1] and usable):
        return
    centred = sample - np.where(varies, sample.mean(axis=0), 0.0)
    Z = centred / np.where(varies, deviation, np.inf)
    R = Z.T @ Z / len(Z)
    r = R[:-1, -1]
    one = [j for j in usable if 1 - r[j] ** 2 < 10 * _ROUNDING]
    for j in one:
        if _fits([values[names[j]]], y):
            yield (names[j],)
    for j, k in combinations([j for j in usable if j not in one], 2):
        # 1 − R² of two columns, times 1 − ρ².
        left = 1 - R[j, k] ** 2
        lost = left - r[j] ** 2 - r[k] ** 2 + 2 * r[j] * r[k] * R[j, k]
        if lost < 10 * _ROUNDING * left and _fits(
            [values[names[i]] for i in (j, k)], y
        ):
            yield (names[j], names[k])


def _fits(columns: list[np.ndarray], y: np.ndarray) -> bool:
    """Return whether least squares leave no more than rounding."""
    design = np.column_stack([(x - x.mean()) / x.std() for x in columns])
    centred = y - y.mean()
    weights = np.linalg.lstsq(design, centred, rcond=None)[0]
    left = centred - design @ weights
    return bool((left**2).sum() <= _ROUNDING * (centred**2).sum())
