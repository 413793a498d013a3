"""The best place in a list, such as of penalties, by descents from a start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class _HasLoss(Protocol):
    @property
    def loss(self) -> float: ...


_Result = TypeVar("_Result", bound=_HasLoss)


def descended(
    evaluate: Callable[[int], _Result],
    start: int,
    size: int,
    over: Callable[[], bool] = lambda: False,
) -> _Result:
    """Return what `evaluate` returns at a place in a list with no better neighbour.

    Losses decrease on the way from `start` to this place, unless it is `over` before.
    """
    best, at = evaluate(start), start
    for step in (1, -1):
        while 0 <= at + step < size and not over():
            candidate = evaluate(at + step)
            if not candidate.loss < best.loss:
                break
            best, at = candidate, at + step
        if at != start:
            break
    return best
