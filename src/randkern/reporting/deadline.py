"""The end of a command, by which fits, baselines and figures are planned."""

from time import perf_counter
from typing import Any

from randkern._tables import is_numeric
from randkern._validation import check_positive
from randkern.tabular.presets import plan_of

# Seconds of a usual core: of starting Python with its packages, of quick figures and of
# writing the files; of reading, checking and describing a number, and a text; of
# predicting a held-out row.
_START = 3.5
_NUMBER = 2e-7
_TEXT = 2e-6
_HELD_ROW = 1e-4
# Of the other seconds, the report has this share, but no more than some seconds and a
# smaller share, for importances. The fits divide the rest: the refit, which does not
# search for kernels, has the smaller part.
_REPORT_SHARE = 0.22
_REPORT_SECONDS = 6.0
_IMPORTANCES_SHARE = 0.05
_REFIT_SHARE = 0.38
# The fits have at least this share of the limit, and each of them a second: in less,
# they would be cut short for nothing.
_MIN_SHARE = 0.25
_MIN_SECONDS = 1.0
# Two fits are planned if none of them takes more than so many times its seconds: the
# least that a fit does is more for large tables.
_TOLERATED = 1.25


class Deadline:
    """The end of a command or study, `limit` seconds, if any, after `began`.

    `began` is a time by `time.perf_counter`, by default now. Of the seconds that are
    left, `reserved` ones belong to what comes last.
    """

    def __init__(self, limit: float | None = None, began: float | None = None) -> None:
        if limit is not None:
            check_positive("time_limit", limit)
        self.limit = float("inf") if limit is None else limit
        self.began = perf_counter() if began is None else began
        self.reserved = 0.0
        self._paces: dict[str, float] = {}

    def __str__(self) -> str:
        return f"{self.limit - self.left:.0f} of {self.limit:g} s"

    @property
    def left(self) -> float:
        """The seconds that are left, negative once the limit is over."""
        return self.limit - (perf_counter() - self.began)

    def allows(self, seconds: float) -> bool:
        """Return whether something of so many seconds ends in time."""
        return self.left - self.reserved >= seconds

    def plans(self, seconds: float) -> bool:
        """Return whether a part of the report is planned, however busy the machine is.

        A part may take half of the seconds that fits leave for the report.
        """
        return 2 * seconds <= self._seconds_of_report(self.limit - _START)

    @staticmethod
    def _seconds_of_report(left: float) -> float:
        return min(_REPORT_SHARE * left, _REPORT_SECONDS + _IMPORTANCES_SHARE * left)

    def reason_to_skip(self, kind: str, operations: float) -> str | None:
        """Return why a fit is not begun, or None if it ends at the pace of its kind."""
        left = self.left
        seconds = self._paces.get(kind, 0.0) * operations
        if left <= 0:
            return f"the time limit of {self.limit:g} s is over"
        if seconds > left:
            return (
                f"it would take about {seconds:,.0f} s, and {left:,.0f} s of the time "
                f"limit of {self.limit:g} s are left"
            )
        return None

    def note(self, kind: str, operations: float, seconds: float) -> None:
        """Learn from a fit how fast the next ones of its kind are."""
        self._paces[kind] = seconds / operations

    def seconds_of_fits(
        self,
        X: Any,
        n_classes: int,
        n_held: int,
        *,
        is_refitted: bool,
        baselines: float = 0.0,
    ) -> tuple[float, float]:
        """Return the seconds of the fit that is scored, and of the one to all rows.

        The latter are 0 if there is no time for two fits. They follow from the limit,
        the size of the table `X`, that of the rows held out and the planned seconds of
        baselines alone, so that the same data, seed and limit give the same model. The
        clock only decides which figures are left out of a report.
        """
        n, d = X.shape
        n_numbers = sum(is_numeric(X[name]) for name in X.columns)
        fixed = _START + n * (_NUMBER * n_numbers + _TEXT * (d - n_numbers))
        fixed += n_held * _HELD_ROW + baselines
        left = max(self.limit - fixed, _MIN_SHARE * self.limit)
        left -= self._seconds_of_report(left)
        first = max((1 - _REFIT_SHARE) * left, _MIN_SECONDS)
        refit = max(_REFIT_SHARE * left, _MIN_SECONDS)
        if is_refitted and _are_planned(X, n_classes, first, refit):
            return first, refit
        return max(left, _MIN_SECONDS), 0.0


def _are_planned(X: Any, n_classes: int, first: float, refit: float) -> bool:
    """Return whether a fit and another one, without a search, end in these seconds.

    Both must have the time for all rows, and may take a quarter longer.
    """
    n, d = X.shape
    plan, again = (plan_of(n, d, n_classes, limit) for limit in (first, refit))
    return (
        plan.fitted_rows == again.fitted_rows == n
        and plan.seconds <= _TOLERATED * first
        and again.seconds - again.search_seconds <= _TOLERATED * refit
    )
