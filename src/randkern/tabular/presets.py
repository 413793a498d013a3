"""How much a fit of a table does: its plan, from sizes and the time limit alone.

`plan_of` is asked once, before anything is learned. What it returns depends on the
numbers of rows, columns and classes and on `time_limit`, so the same data and seed give
the same model on every machine and under any load. The clock is read by `Deadline`
alone, which ends what is late, and says so.

The last fit is planned first: of all rows if that takes at most two fifths of the
limit, and else in cells, with a share of their own. The steps before it, each in its
share of what is left, take as many rows as their evaluations of a kernel allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from randkern.backend.compiled_loops import working_seconds


def largest(cost: Callable[[int], float], seconds: float, least: int, most: int) -> int:
    """Return the largest size whose cost is at most `seconds`, between two bounds.

    The cost grows with the size. If even `least` costs more, it is returned.
    """
    while least < most:
        middle = (least + most + 1) // 2
        if cost(middle) <= seconds:
            least = middle
        else:
            most = middle - 1
    return least


# -- the table: steps of a fit ---------------------------------------------------------

# The least rows of a step: on fewer, columns hardly differ.
_LEAST_ROWS = 200


@dataclass(frozen=True)
class Step:
    """A step that evaluates kernels on as many rows as its share of the time allows.

    Attributes
    ----------
    share : float
        Of the seconds that are left to this step and those planned after it.
    times : int
        The number of evaluations.
    most : int
        The most rows.
    """

    share: float
    times: int
    most: int

    def rows(self, cost: Callable[[int], float], left: float, n: int) -> int:
        """Return the most of n rows whose evaluations end within the share."""
        least, most = min(_LEAST_ROWS, n), min(self.most, n)
        return largest(cost, self.share * left / self.times, least, most)


# Learning kernels again without each fold, where there is time for that of as many as
# are averaged or more. On tables of 200 x 12, intervals of 90 % cover 87 % without;
# halves of iris and wine have a log loss of .15 and .08 with all kernels, .21 and .10
# with three.
FOLDS, _RELEARNING = 5, 33
# Comparing seven trials by rows that are left out; of classes, also three penalties of
# logistic regression with each of three kernels, in folds: so many fits per evaluation.
_COMPARED, _PENALTIES = Step(0.2, 7, 2000), 4.0
# Continuing the best trials. Of classes, larger tables are fitted in cells.
SEARCHED_ROWS = 2500
_CONTINUED = Step(0.75, 50, SEARCHED_ROWS)
# First descents of all kernels, and their steps. If the least rows take too long, as in
# wide tables, steps are saved.
_FIRST, _FIRST_STEPS, _FEWEST_STEPS = Step(1.0, 200, 600), 30, 4
# Learning the best kernels in cells, of which there are about so many at least. C of
# classes is chosen there, too, by so many fits per evaluation.
_LEARNED, _LEARNED_CELLS, _CHOSEN = Step(0.6, 720, 1000), 10, 0.5
# The share of the limit for fits that are averaged.
_MEMBERS_SHARE = 0.2
# The largest share of the limit that a fit to all rows may take, and learning again.
# Larger fits are in cells, with the other share, as are numbers whose Gram matrix does
# not fit in memory, and labels of more rows than are searched at once.
_LARGE_SHARE, MAX_FACTORISED, _CELLS_SHARE = 0.4, 16_000, 0.3
# The least rows of a cell, for numbers and for classes. If time is short, fewer rows
# are fitted, not smaller cells: with cells of 250 or more, errors at 10 seconds were
# 1.00 to 1.12 times as large (diamonds, kin40k; two folds), and at 60 seconds for
# 500,000 generated rows 1.00 to 1.28 times (four functions). Classes have a lower log
# loss in small cells (adult, .292 for .306).
_CELL_ROWS, _CLASS_CELL_ROWS = 1000, 250
# How many times all rows are in cells, which overlap.
_OVERLAPPED = 1.9
# The share of the limit that is planned: other steps take the rest.
_USED = 0.8


# -- numbers that are the same in all plans --------------------------------------------

# Trials that are continued on more rows, or in cells. If only the best were, errors of
# pumadyn32nm in 10 seconds would be 1.3 times as large, as few rows of many columns
# hardly distinguish kernels. Also the most fits that are averaged.
N_BEST = 3
# Rows from which importances are computed.
EFFECT_ROWS = 2000
# Values of C of logistic regression, and the first that is tried. Of rows of new groups
# a fit may know little more than the shares of classes: these need small values. Tens
# without roots of ten between them cost large tables 1.6 % (magic).
STRENGTHS, FIRST_STRENGTH = [10 ** (k / 2) for k in range(-4, 9)], 10.0
# The weight of a linear kernel beside another, at first.
LINEAR_WEIGHT = 0.1
# Descents start from the deviation of whole rows, the lengthscale of all columns, and
# this penalty. From the best of six starts, or a learned one, the log loss of 17 tables
# of 150 rows and 25 columns was 1.02 and 1.07 times as large.
FIRST_ALPHA = 1e-2
# Labels of more rows than are searched start from this share of the deviation: a sample
# shows less detail than all rows resolve. From the whole deviation, the log loss of 12
# fits in 10 seconds was 1.02 times as large (adult 1.04), but errors of numbers .98.
SPARSE_SPREAD = 0.5
# Precisions of the normal prior on the logarithms of learned numbers, centred at the
# start, for each table, of targets and of labels: without it, lengthscales overfit few
# rows. With 1, errors of numbers were 1.008 times as large; with .5, those of
# pumadyn32nm in 10 seconds 1.14 times. With .3, labels of new groups were predicted
# worse than by the shares of classes; with a single .3 for all cells together, log
# losses of 13 fits of classes in 10 seconds were 1.05 times as large.
PRECISIONS = (0.3, 1.0)
# The most rows that are left out of an exact fit, from which sizes of residuals are
# learned, and to which the distance of others is measured. As many, but no more than
# a sixteenth, are held out of cells.
VALIDATION_ROWS = 1500
# Groups that are held out of cells, but no more than one in FOLDS.
HELD_GROUPS = 10
# Steps of learning a kernel again, without a fold or in cells.
STEPS_AGAIN = 16
# Cells of which three fifths teach the best kernels, and the others compare them and
# choose C.
DRAWN_CELLS = 25
# About how many rows of a cell are fitted if it is late.
LATE_ROWS = 200
# Fits of smaller weight are left out of a mean.
LEAST_WEIGHT = 0.05
# The size of residuals is learned by ridge regression with one of these penalties.
SIZE_PENALTIES = (1.0, 10.0, 100.0)
# What is added to sizes before their logarithms are taken, relative to their mean.
SMALLEST_SIZE = 0.05
# Intervals are wider at rows that are farther from the known ones than this share of
# those that evaluate the fit. If they were not, intervals of rows outside of the range
# of 2,400 others would cover 82 % in place of 91 %.
USUAL_NOVELTY = 0.95
# Residuals outside of intervals by which those of similar predictions have a width of
# their own. With one width for all, intervals of noise that grows with the target cover
# 76 to 81 % of the dearest tenth of 600 and 2,400 rows, with it 83 to 88 %.
OUTSIDE = 15
# Importances: how often a column is shuffled, and the most kernel values that all take,
# counted as of 100 encoded columns: some five seconds. Wide tables have fewer rows.
SHUFFLES, EFFECT_VALUES = 3, 2e8


# -- what operations take --------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Seconds of an operation on n rows of d columns, on one core of modest speed.

    Attributes
    ----------
    square, column, cube : float
        Per n², n²·d and n³.
    """

    square: float
    column: float
    cube: float

    def __call__(self, n: int, d: int) -> float:
        return float(n) ** 2 * (self.square + self.column * d + self.cube * n)


# A loss of rows left out, or the evidence, with its gradient; an exact fit; logistic
# regression of two classes, and what each eight of several add per n².
_EVALUATION, _FIT = Cost(6e-8, 9e-10, 3.4e-11), Cost(1e-8, 1e-10, 8e-12)
_LOGISTIC, _OF_EIGHT = Cost(5e-8, 2e-10, 1.3e-12), 7e-8
# What each cell takes besides.
_CELL_SECONDS = 2e-3
# Indicators of categories that take the time of a column of numbers.
INDICATORS_PER_NUMBER = 4


def _fit_cost(n_classes: int) -> Cost:
    """Return what a fit takes."""
    if n_classes > 2:
        square = _LOGISTIC.square + _OF_EIGHT * -(-n_classes // 8)
        return replace(_LOGISTIC, square=square)
    return _LOGISTIC if n_classes else _FIT


# -- plans -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How much a fit does.

    Attributes
    ----------
    fitted_rows, cell_rows : int
        The most rows that are fitted, and those of each cell; 0: all at once.
    n_members : int
        Fits that are averaged.
    n_refits : int
        Kinds of kernels that are learned again without each fold.
    compared_rows : int
        Rows on which trials are compared.
    learned_rows : int
        Rows of cells in which kernels are learned further, and penalties chosen.
    searched_rows, more_rows : int
        Rows that the search may use, and those on which it continues the best trials; 0
        if this is done in cells.
    first_rows, first_steps : int
        Rows and steps of first descents.
    search_seconds, seconds : float
        What the search takes by the table of costs, and what all steps do.
    """

    fitted_rows: int
    cell_rows: int
    n_members: int
    n_refits: int
    compared_rows: int
    learned_rows: int
    searched_rows: int
    more_rows: int
    first_rows: int
    first_steps: int
    search_seconds: float
    seconds: float

    @property
    def in_cells(self) -> bool:
        """Whether rows are fitted in cells."""
        return self.cell_rows > 0


class _Budget:
    """The seconds of a fit that are left to steps."""

    def __init__(self, seconds: float):
        self.left = seconds

    def rows(self, step: Step, cost: Callable[[int], float], n: int) -> int:
        """Return the rows of a step, and take off what it takes."""
        rows = step.rows(cost, self.left, n)
        self.left -= step.times * cost(rows)
        return rows


def plan_of(n: int, d: int, n_classes: int, time_limit: float) -> Plan:
    """Return the plan for n rows of d encoded columns.

    Parameters
    ----------
    n, d : int
    n_classes : int
        0: regression.
    time_limit : float
    """
    budget = _Budget(_USED * time_limit)

    def evaluation(m: int) -> float:
        return _EVALUATION(m, d)

    def fit(m: int) -> float:
        return _fit_cost(n_classes)(m, d)

    def comparison(m: int) -> float:
        return evaluation(m) + (_PENALTIES * fit(m) if n_classes else 0.0)

    def learning(m: int) -> float:
        return evaluation(m) + (_CHOSEN * fit(m) if n_classes else 0.0)

    def members(seconds: float) -> int:
        return min(max(int(_MEMBERS_SHARE * time_limit / seconds), 1), N_BEST)

    is_large = n > (SEARCHED_ROWS if n_classes else MAX_FACTORISED)
    in_cells = is_large or fit(n) > _LARGE_SHARE * time_limit
    is_small = n <= SEARCHED_ROWS and not in_cells
    fitted, cell_rows, n_members = n, 0, 1
    n_refits, learned = 0, _LEAST_ROWS
    if in_cells:
        share = _CELLS_SHARE * time_limit
        least = min(_CLASS_CELL_ROWS if n_classes else _CELL_ROWS, n)

        def per_row(m: int) -> float:
            return _OVERLAPPED * (_CELL_SECONDS + fit(m)) / m

        fitted = min(n, max(int(share / per_row(least)), least))
        most = min(fitted, MAX_FACTORISED)
        cell_rows = largest(per_row, share / fitted, least, most)
        seconds = fitted * per_row(cell_rows)
        if n <= MAX_FACTORISED and fit(n) <= share:  # a single cell
            cell_rows, seconds = n, fit(n)
        n_members = members(seconds) if n_classes else 1
        budget.left -= n_members * seconds
        most = max(fitted // _LEARNED_CELLS, _LEAST_ROWS)
        learned = budget.rows(_LEARNED, learning, most)
    else:
        n_members = members(fit(n))
        budget.left -= n_members * fit(n)
    if is_small:
        refit = FOLDS * _RELEARNING * evaluation(n - n // FOLDS)
        n_refits = min(int(_LARGE_SHARE * time_limit / refit), _COMPARED.times)
        n_refits = n_refits if n_refits >= N_BEST else 0
        budget.left -= n_refits * refit
    compared = 0 if in_cells else budget.rows(_COMPARED, comparison, n)
    before = budget.left
    more = 0 if in_cells else budget.rows(_CONTINUED, evaluation, n)
    first = _FIRST.rows(evaluation, budget.left, more or min(SEARCHED_ROWS, n))
    each = _FIRST.times / _FIRST_STEPS * evaluation(first)
    steps = min(max(int(budget.left / each), _FEWEST_STEPS), _FIRST_STEPS)
    budget.left -= steps * each
    return Plan(
        fitted_rows=fitted,
        cell_rows=cell_rows,
        n_members=n_members,
        n_refits=n_refits,
        compared_rows=compared,
        learned_rows=learned,
        searched_rows=min(SEARCHED_ROWS, n),
        more_rows=more,
        first_rows=first,
        first_steps=steps,
        search_seconds=before - budget.left,
        seconds=_USED * time_limit - budget.left,
    )


# -- the clock -------------------------------------------------------------------------

# Fits of at most so many rows have no deadline: a busy machine slows them, and ruins
# none. It is at least so many seconds for the others, of which all steps before the
# last fit have this share.
_SMALL_TABLE, _SHORTEST_DEADLINE, _LAST_STARTS = 1000, 10.0, 0.75
SEARCH, COMPARISON, LAST_FIT = "the search", "the comparison of kernels", "the last fit"


@dataclass
class Deadline:
    """The deadline of a fit, which starts now, and what it has ended.

    Attributes
    ----------
    limit : float
        In seconds; infinite for small tables.
    cut : list of str
        The names of steps that were ended.
    """

    limit: float
    cut: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = working_seconds()

    @classmethod
    def of(cls, n: int, time_limit: float) -> Deadline:
        """Return the deadline of a fit to n rows."""
        is_small = n <= _SMALL_TABLE
        return cls(math.inf if is_small else max(time_limit, _SHORTEST_DEADLINE))

    def ends(self, step: str) -> bool:
        """Return whether a step has to end now, and note that."""
        share = 1.0 if step == LAST_FIT else _LAST_STARTS
        late = working_seconds() - self._began > share * self.limit
        if late and step not in self.cut:
            self.cut.append(step)
        return late
