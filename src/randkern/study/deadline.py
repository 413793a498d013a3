"""The end of a command or study, and which fits still end before it."""

from time import perf_counter

from randkern._validation import check_positive


class Deadline:
    """The end of a command or study, and the pace of fits, in seconds per operation.

    It ends `limit` seconds, if any, after `began`, a time by `time.perf_counter`, by
    default now.
    """

    def __init__(self, limit: float | None, began: float | None = None) -> None:
        if limit is not None:
            check_positive("time_limit", limit)
        self.limit = float("inf") if limit is None else limit
        self.began = perf_counter() if began is None else began
        self._pace = 0.0

    def __str__(self) -> str:
        return f"{self.limit - self.left:.0f} of {self.limit:g} s"

    @property
    def left(self) -> float:
        """The seconds that are left, negative once the limit is over."""
        return self.limit - (perf_counter() - self.began)

    def is_over(self) -> bool:
        return self.left <= 0

    def reason_to_skip(self, operations: float) -> str | None:
        """Return why a fit is not begun, or None if it ends in time at this pace."""
        left = self.left
        seconds = self._pace * operations
        if left <= 0:
            return f"the time limit of {self.limit:g} s is over"
        if seconds > left:
            return (
                f"it would take about {seconds:,.0f} s, and {left:,.0f} s of the time "
                f"limit of {self.limit:g} s are left"
            )
        return None

    def note(self, operations: float, seconds: float) -> None:
        """Learn from a fit how fast the next ones are."""
        self._pace = seconds / operations
