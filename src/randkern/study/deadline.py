"""The time limit of a study, and how long its fits take."""

from __future__ import annotations

import copy
from time import perf_counter


class Deadline:
    """The end of a study, and the pace of its fits, in seconds per operation.

    Without `seconds` it never ends.
    """

    def __init__(self, seconds: float | None) -> None:
        self._limit = float("inf") if seconds is None else seconds
        self._end, self._pace = perf_counter() + self._limit, 0.0

    def part(self, n_parts: int) -> Deadline:
        """Return the end of the next of so many equal parts of the time left."""
        part = copy.copy(self)
        if n_parts > 1:
            part._end -= self._left() * (1 - 1 / n_parts)
        return part

    def is_over(self) -> bool:
        return self._left() <= 0

    def reason_to_skip(self, operations: float) -> str | None:
        """Return why a fit is not begun, or None if it ends in time at this pace."""
        left, seconds = self._left(), self._pace * operations
        if left <= 0:
            return f"the time limit of {self._limit:g} s is over"
        if seconds > left:
            return (
                f"it would take about {seconds:,.0f} s, and {left:,.0f} s of the time "
                f"limit of {self._limit:g} s are left"
            )
        return None

    def note(self, operations: float, seconds: float) -> None:
        """Learn from a fit how fast the next ones are."""
        self._pace = seconds / operations

    def _left(self) -> float:
        return self._end - perf_counter()


def operations_of(n: int, size: int | None) -> float:
    """Count the operations of a fit: a factorisation, of features or of rows."""
    return n**3 / 3 if size is None or size > n else n * float(size) ** 2
