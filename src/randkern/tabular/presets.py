"""How much a fit of a table does: its plan, from sizes and the time limit alone.

`plan_of` is asked once, before anything is learned. What it returns depends on the
numbers of rows, columns and classes and on `time_limit`, so the same data and seed give
the same model on every machine and under any load. The clock is read by `Deadline`
alone, which ends what is late, and says so.

The table below has the share of a budget that each step may take, and
`planned_seconds` says what they take on one usual core. The budget is the largest with
which that is some four fifths of the limit, so that the deadline rarely ends anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from randkern.backend.compiled_loops import working_seconds
from randkern.models.cells import rows_of_cells

# -- the table: shares of the time limit ----------------------------------------------


@dataclass(frozen=True)
class Shares:
    """What each step may take of the time limit.

    Attributes
    ----------
    search : float
        Learning kernels.
    compared : float
        Comparing them on the same rows, besides the search.
    last : float
        The last fits.
    """

    search: float
    compared: float
    last: float


# Kernels matter most, and their search takes most; fits in cells, which are learned
# further there, need more. Plans with a row each for numbers, labels, and few or more
# rows differed from these by less than a sixth.
_SHARES, _SHARES_IN_CELLS = Shares(0.5, 0.3, 0.2), Shares(0.35, 0.12, 0.55)
# Rows that the search uses for classes: it takes others in each step. With the same
# 2,500 in all, log losses were 2 to 3 % larger (four tables, three folds of two).
_SEARCHED = 10_000
# Rows of first descents and of those that continue the best. The least are the floor
# of a search: on fewer, columns hardly differ. From more, each step uses other rows.
_FIRST_ROWS, SEARCHED_ONCE = (200, 600), 2500
# Evaluations for which first descents, those that continue them and streams of rows
# are planned: fewer than their steps, as most end early.
_FIRST_EVALUATIONS, _MORE_EVALUATIONS, _STREAM_EVALUATIONS = 550, 62, 200
# Steps of first descents, and the fewest, for wide tables.
_FIRST_STEPS, _FEWEST_STEPS = 30, 4
# Steps of streams of rows: first ones, and those that continue the best; and of
# learning a kernel again without a fold.
TRIED_STEPS, STREAMED_STEPS, RELEARNING_STEPS = 12, 40, 20
# Trials that are continued, and that are compared: three kernels for two scalings of
# numbers, and the best with one lengthscale.
N_REFINED, _N_COMPARED = 3, 7
# Trials that no deadline ends: three kernels, each with one lengthscale and with one
# per column.
FLOOR = 6
# Folds without each of which kernels are learned again, evaluations that each takes,
# and the largest share of the limit for all kernels. Where it does not allow
# three, none is learned again. On tables of 200 x 12, intervals of 90 % cover 87 % with
# none; halves of iris and wine have a log loss of .15 and .08 with eight, .21 and .10
# with three.
MAX_REFITTED = 5
_RELEARNING, _REFIT_SHARE = 32, 0.4
# Rows on which trials are compared.
_COMPARED_ROWS = (200, 2000)
# Rows from which importances are computed.
EFFECT_ROWS = 2000
# The most fits that are averaged.
MAX_MEMBERS = 3
# The most rows whose Gram matrix is factorised: beyond, it does not fit in memory. Up
# to so many it always is, and else if the least search leaves the time.
MAX_FACTORISED, ALWAYS_FACTORISED = 16_000, 2000
# Of many rows, shares of the last step, for numbers and for classes: learning in cells,
# the fit, and choosing a penalty.
_CELL_SHARES, _CLASS_SHARES = (0.35, 0.6, 0.0), (0.25, 0.5, 0.25)
# Rows of a cell from which kernels are learned, of which there are at least so many if
# there are enough, and the evaluations that it takes.
_LEARNED_ROWS, _LEARNED_CELLS, _CELL_EVALUATIONS = (200, 1000), 20, 112
# Rows of a cell. If time is short, regression fits fewer rows, not smaller cells: with
# cells of 250 or more, errors at 10 seconds were 1.00 to 1.12 times as large (diamonds,
# kin40k; two folds), and at 60 seconds for 500,000 generated rows 1.00 to 1.28 times
# (four functions). Classes have a lower log loss in small cells (adult, .292 for .306).
# Matrices of the largest take a gigabyte, and those of classes are in single precision.
_CELL_ROWS, _CLASS_CELL_ROWS = (1000, 6000), (250, 16_000)
# Cells that choose the penalty of classes, rows of each, and the share that is held
# out. They are as dense as all rows; few cells may hardly have one of the classes.
_CHOOSING_CELLS, CHOOSING_CELL_ROWS, HELD_SHARE = (4, 16), 1000, 0.25
# If rows depend on each other: rows that choose it, for two and for several classes,
# and the most that are held out.
_CHOOSING_ROWS, HELD_ROWS = (8000, 3000), 4000
# Values of C of logistic regression, and the first one tried. Of 12 tables, 10 to 100
# had the least log loss on 8, and 1,000 or more where classes are nearly separate.
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
# Kernels that have seen the labels of the rows that choose C fit them too well, so that
# larger C seem better: it is at most this one (splice: log loss .59 of 1e5, .11 of it).
FIRST_STRENGTH, MOST_KNOWN = 10.0, 1e3
# Share of the limit in which the smallest cells must fit the rows that are used.
_USED_SHARE = 0.3
# The most kernels whose logistic regressions are evaluated on rows left out, and rows.
_MOST_PARTS, _PART_ROWS = 5, (500, 2000)

# The share of the limit that plans take, and the budgets from which they are made: the
# least, as a share of the limit, their ratio, and their number.
_USED, _LEAST_BUDGET, _BUDGET_STEP, _MOST_STEPS = 0.8, 0.25, 1.08, 40
# How many times all rows are in cells, which overlap.
_OVERLAPPED = 1.6


# -- numbers that are the same in all plans --------------------------------------------

# The weight of a linear kernel beside another, at first.
LINEAR_WEIGHT = 0.1
# Isotropic starts: lengthscales relative to the deviation of whole rows, and penalties.
SPREADS, ALPHAS = (0.5, 1.5, 5.0), (1e-1, 1e-3)
# Precisions of the normal prior on the logarithms of learned numbers, centred at the
# start, for targets and for labels: without it, lengthscales overfit few rows.
PRECISIONS = (0.3, 1.0)
# The most rows that are left out of an exact fit, one at a time, or, if they depend on
# each other, in folds. As many, but no more than a sixteenth, are held out of cells.
VALIDATION_ROWS, MAX_LEFT_OUT = 1500, 6000
# Steps of learning the best kernel in cells, and cells of which half learn it and half
# evaluate it; about how many rows of a cell are fitted if it is late.
CELL_STEPS, LEARNED_CELLS, LATE_ROWS = 16, 8, 200
# Whole groups are left out in at most so many folds; of the periods of time, each but
# the first is predicted from the earlier ones.
MAX_FOLDS, PERIODS = 20, 6
# Fits of smaller weight are left out of a mean.
LEAST_WEIGHT = 0.05
# The size of residuals is learned from at most so many rows, by ridge regression with
# one of these penalties.
SIZE_ROWS, SIZE_PENALTIES = 1500, (0.1, 1.0, 10.0, 100.0)
# Lengthscales of its kernel: of normal quantiles of predictions, and of rows, relative
# to the deviation of whole rows.
SIZE_WIDTH, SIZE_REACH = 0.5, 2.0
# What is added to sizes before their logarithms are taken, relative to their mean.
SMALLEST_SIZE = 0.05
# Intervals are wider at rows that are farther from at most so many than this share of
# those that evaluate the fit.
NEAR_ROWS, USUAL_NOVELTY = 3000, 0.95
# Residuals outside of intervals by which those of similar predictions have a width of
# their own, and the most parts into which predictions are divided.
OUTSIDE, MAX_PARTS = 15, 10
# Importances: how often a column is shuffled, and the most kernel values that all take,
# counted as of 100 encoded columns: some five seconds. Wide tables have fewer rows.
SHUFFLES, EFFECT_VALUES, LEAST_EFFECT_ROWS = 3, 2e8, 100


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


# An evidence or leave-one-out loss with its gradient, an exact fit, and one with
# residuals of rows left out.
_EVALUATION = Cost(6e-8, 9e-10, 3.4e-11)
_FIT, _LEFT_OUT = Cost(1e-8, 1e-10, 8e-12), Cost(1e-8, 1e-10, 4e-11)
# Logistic regression, for two classes and for each eight of several.
_LOGISTIC, _OF_EIGHT = Cost(5e-8, 2e-10, 1.3e-12), 7e-8
# Of each cell besides the fit to its rows.
_CELL_SECONDS = 2e-3
# Penalties that a comparison tries, and kernels for which it tries them in cells.
_TRIED, _KERNELS = 3, 2
# Indicators of categories that take the time of a column of numbers.
INDICATORS_PER_NUMBER = 4
# Of the sizes of residuals.
_INTERVALS_SECONDS = 0.6


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


def _logistic(k: int) -> Cost:
    """Return what logistic regression of k columns of values takes."""
    if k == 1:
        return _LOGISTIC
    return replace(_LOGISTIC, square=_LOGISTIC.square + _OF_EIGHT * -(-k // 8))


@cache
def _share_of_cell(n_cells: int) -> float:
    return rows_of_cells(10**9, n_cells) / 1e9


def _rows_of_cells(n: int, n_cells: int) -> int:
    """Return into how many rows per cell n different rows are divided."""
    return math.ceil(n * _share_of_cell(n_cells))


def _cells(
    cost: Callable[[int], float], n: int, seconds: float, least: int, most: int
) -> int:
    """Return the rows of the largest cells whose fits take at most `seconds`.

    `cost` is that of a cell of so many rows. If there is no time for the smallest
    cells, it is these.
    """
    n_cells = 1
    while True:
        rows = _rows_of_cells(n, n_cells)
        fits = rows <= most and n_cells * (_CELL_SECONDS + cost(rows)) <= seconds
        if rows <= least or fits:
            return rows
        n_cells += 1 + n_cells // 20


def _most_in_cells(cost: Callable[[int], float], seconds: float, least: int) -> int:
    """Return the number of rows that cells of `least` rows fit in `seconds`."""
    n = 10**6
    rows, n_cells = n, 1
    while rows > least:
        n_cells += 1 + n_cells // 20
        rows = _rows_of_cells(n, n_cells)
    return int(seconds * n / (n_cells * (_CELL_SECONDS + cost(rows)))) + 1


# -- plans -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How much a fit does.

    Attributes
    ----------
    in_cells : bool
        Whether rows are fitted in cells, or exactly.
    fitted_rows : int
        The most rows that are fitted.
    searched_rows, first_rows, more_rows : int
        Rows that the search uses; those of first descents; and those of each step of
        descents that continue the best, or of streams.
    first_steps : int
        Steps of first descents.
    n_refits : int
        Kinds of kernels that are learned again without each fold.
    compared_rows : int
        Rows on which trials are compared.
    n_parts : int
        Kernels for which penalties of logistic regression are compared.
    n_members : int
        Fits that are averaged.
    learned_rows, cell_rows : int
        Rows of the cells in which kernels are learned, and of those that are fitted.
    choosing_rows, choosing_cells : int
        Rows that choose the penalty of classes, or cells of 1,000 rows.
    """

    in_cells: bool
    fitted_rows: int
    searched_rows: int
    first_rows: int
    more_rows: int
    first_steps: int = _FIRST_STEPS
    n_refits: int = 0
    compared_rows: int = _COMPARED_ROWS[1]
    n_parts: int = MAX_MEMBERS
    n_members: int = 1
    learned_rows: int = _LEARNED_ROWS[0]
    cell_rows: int = 0
    choosing_rows: int = 0
    choosing_cells: int = 0


def plan_of(n: int, d: int, n_classes: int, time_limit: float) -> Plan:
    """Return the plan for n rows of d encoded columns.

    It is the largest that takes `_USED` of the limit by what its steps take.

    Parameters
    ----------
    n, d : int
    n_classes : int
        0: regression.
    time_limit : float
    """
    in_cells = n > (SEARCHED_ONCE if n_classes else MAX_FACTORISED)

    def plan_at(step: int) -> Plan:
        budget = _LEAST_BUDGET * time_limit * _BUDGET_STEP**step
        return _plan(n, d, n_classes, time_limit, budget, in_cells)

    def cost(step: int) -> float:
        return sum(planned_seconds(plan_at(step), n, d, n_classes).values())

    seconds = _USED * time_limit
    in_cells = in_cells or (n > ALWAYS_FACTORISED and cost(0) > seconds)
    return plan_at(largest(cost, seconds, 0, _MOST_STEPS))


def planned_seconds(plan: Plan, n: int, d: int, n_classes: int) -> dict[str, float]:
    """Return what each step of a plan takes."""
    k = n_classes if n_classes > 2 else 1
    half = -(-plan.first_steps // 2)
    first, more = (_EVALUATION(m, d) for m in (plan.first_rows, plan.more_rows))
    if plan.searched_rows > SEARCHED_ONCE:
        streamed = 6 * TRIED_STEPS + N_REFINED * STREAMED_STEPS
        seconds = {"search": 36 * first + streamed * more}
    else:
        steps = 6 * plan.first_steps
        seconds = {"search": (36 + steps) * first + N_REFINED * half * more}
    rows = plan.searched_rows if plan.n_refits else plan.compared_rows
    if plan.n_refits:
        seconds["comparison"] = plan.n_refits * _refitting(rows, d)
    else:
        seconds["comparison"] = _N_COMPARED * _LEFT_OUT(rows, d)
    if not n_classes:
        seconds["intervals"] = _INTERVALS_SECONDS
    if plan.in_cells:
        seconds["last"] = _cells_seconds(plan, d, k, n_classes > 0)
        return seconds
    if n_classes:
        fits = _TRIED * MAX_REFITTED
        known = rows - rows // MAX_REFITTED
        seconds["penalties"] = plan.n_parts * fits * _logistic(k)(known, d)
    fit = _logistic(k) if n_classes else _FIT
    seconds["last"] = plan.n_members * fit(n, d)
    return seconds


def _refitting(n: int, d: int) -> float:
    """Return what it takes to learn a kernel again without each fold."""
    known = n - n // MAX_REFITTED
    refit = _RELEARNING * _EVALUATION(known, d) + _LEFT_OUT(n, d)
    return MAX_REFITTED * refit


def _cells_seconds(plan: Plan, d: int, k: int, is_classes: bool) -> float:
    """Return what learning and fitting in cells take."""
    n, m = plan.fitted_rows, plan.cell_rows
    seconds = _CELL_EVALUATIONS * _EVALUATION(plan.learned_rows, d)
    n_cells = _OVERLAPPED * n / m if m < n else 1
    if is_classes:
        choosing = _KERNELS * _TRIED * _logistic(k)(CHOOSING_CELL_ROWS, d)
        seconds += plan.choosing_cells * choosing
        return seconds + n_cells * (_CELL_SECONDS + _logistic(k)(m, d))
    return seconds + n_cells * (_CELL_SECONDS + _FIT(m, d))


def _plan(
    n: int, d: int, n_classes: int, time_limit: float, budget: float, in_cells: bool
) -> Plan:
    """Return a plan whose steps take about their shares of a budget."""
    k = n_classes if n_classes > 2 else 1
    share = _SHARES_IN_CELLS if in_cells else _SHARES
    plan = _search_plan(n, d, n_classes, share.search * budget)
    seconds = share.compared * budget
    if not in_cells and n <= SEARCHED_ONCE:
        n_refits = min(int(_REFIT_SHARE * time_limit / _refitting(n, d)), _N_COMPARED)
        plan = replace(plan, n_refits=n_refits if n_refits >= MAX_MEMBERS else 0)
    last = share.last * budget
    if n_classes:  # half of it for penalties
        seconds /= 2
    least, most = (min(m, plan.searched_rows) for m in _COMPARED_ROWS)
    rows = largest(lambda m: _N_COMPARED * _LEFT_OUT(m, d), seconds, least, most)
    plan = replace(plan, compared_rows=rows)
    if in_cells:
        return _cells_plan(plan, n, d, n_classes, last, time_limit)
    fit = _FIT
    if n_classes:
        fit = _logistic(k)
        plan = _parts_plan(plan, n, d, k, seconds)
    n_members = min(max(int(last / fit(n, d)), 1), MAX_MEMBERS)
    return replace(plan, n_members=n_members)


def _search_plan(n: int, d: int, n_classes: int, seconds: float) -> Plan:
    """Return a plan whose search takes about so many seconds."""

    def cost(m: int) -> float:
        return _EVALUATION(m, d)

    searched = min(_SEARCHED if n_classes else SEARCHED_ONCE, n)
    first = min(largest(cost, seconds / _FIRST_EVALUATIONS, *_FIRST_ROWS), searched)
    # Where even few rows take too long, steps are saved, not rows.
    steps = int(_FIRST_STEPS * seconds / (_FIRST_EVALUATIONS * cost(first)))
    evaluations = _STREAM_EVALUATIONS if searched > SEARCHED_ONCE else _MORE_EVALUATIONS
    most = min(searched, SEARCHED_ONCE)
    more = largest(cost, seconds / evaluations, first, most)
    steps = min(max(steps, _FEWEST_STEPS), _FIRST_STEPS)
    return Plan(False, n, searched, first, more, steps)


def _parts_plan(plan: Plan, n: int, d: int, k: int, seconds: float) -> Plan:
    """Return a plan whose penalties are compared in about so many seconds."""

    def cost(rows: int) -> float:
        return _TRIED * MAX_REFITTED * _logistic(k)(rows, d)

    least, most = (min(m, n) for m in _PART_ROWS)
    rows = largest(cost, seconds / MAX_MEMBERS, least, most)
    n_parts = min(max(int(seconds / cost(rows)), 1), _MOST_PARTS)
    return replace(plan, n_parts=n_parts, compared_rows=rows)


def _cells_plan(
    plan: Plan, n: int, d: int, n_classes: int, last: float, time_limit: float
) -> Plan:
    """Return a plan of fits in cells, which take about `last` seconds."""
    k = n_classes if n_classes > 2 else 1
    shares, (least, most) = (
        (_CLASS_SHARES, _CLASS_CELL_ROWS) if n_classes else (_CELL_SHARES, _CELL_ROWS)
    )
    learning, cells, penalty = (share * last for share in shares)

    def cost(m: int) -> float:
        return (_logistic(k) if n_classes else _FIT)(m, d)

    def learned(m: int) -> float:
        return _CELL_EVALUATIONS * _EVALUATION(m, d)

    def choosing(m: int) -> float:
        return _KERNELS * _TRIED * _logistic(k)(m, d)

    fitted = min(n, _most_in_cells(cost, _USED_SHARE * time_limit, least))
    fewest, many = _LEARNED_ROWS
    many = max(min(many, fitted // _LEARNED_CELLS), fewest)
    plan = replace(
        plan,
        in_cells=True,
        fitted_rows=fitted,
        learned_rows=largest(learned, learning, fewest, many),
        cell_rows=_cells(cost, fitted, cells, least, most),
    )
    if not n_classes:
        return plan
    each, fewest = choosing(CHOOSING_CELL_ROWS), min(CHOOSING_CELL_ROWS, n)
    return replace(
        plan,
        choosing_cells=largest(lambda m: m * each, penalty, *_CHOOSING_CELLS),
        choosing_rows=largest(choosing, penalty, fewest, min(_CHOOSING_ROWS[k > 1], n)),
    )


# -- the clock -------------------------------------------------------------------------

# Fits of at most so many rows have no deadline: a busy machine slows them, and ruins
# none. It is at least so many seconds for the others, and each step ends by its share.
_SMALL_TABLE, _SHORTEST_DEADLINE = 1000, 10.0
_ENDS = {"the search": 0.75, "the comparison of kernels": 0.9, "the last fit": 1.0}


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
        late = working_seconds() - self._began > _ENDS[step] * self.limit
        if late and step not in self.cut:
            self.cut.append(step)
        return late
