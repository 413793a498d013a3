"""How the time limit of ``randkern fit`` is divided among all that the command does.

What the fits get follows from the limit and the size of the table alone, so that the
same data, seed and limit give the same model. The clock only decides which baselines
and figures are left out of the report, and the report says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

# Seconds of a usual core: of starting Python with its packages, of quick figures and of
# writing the files; of reading, checking and describing a number, and a text.
_START = 3.5
_NUMBER = 2e-7
_TEXT = 2e-6
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


@dataclass(frozen=True)
class Schedule:
    """Seconds for the fit of the model that is scored, and for the fit to all rows."""

    search: float
    refit: float

    @classmethod
    def of(cls, limit: float, X: Any, *, is_refitted: bool) -> Self:
        """Return the schedule for a table, in whole if it is fitted twice."""
        from randkern._tables import is_numeric

        n, d = X.shape
        n_numbers = sum(is_numeric(X[name]) for name in X.columns)
        fixed = _START + n * (_NUMBER * n_numbers + _TEXT * (d - n_numbers))
        left = max(limit - fixed, _MIN_SHARE * limit)
        left -= min(_REPORT_SHARE * left, _REPORT_SECONDS + _IMPORTANCES_SHARE * left)
        refit = _REFIT_SHARE * left if is_refitted else 0.0
        return cls(
            max(left - refit, _MIN_SECONDS),
            max(refit, _MIN_SECONDS) if is_refitted else 0.0,
        )
