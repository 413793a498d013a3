"""A clock that does not count what happens on first use only."""

import time

from numba.core import event

_COMPILING = event.TimingListener()
event.register("numba:compile", _COMPILING)


def working_seconds() -> float:
    """Return the seconds of a clock that stands still while Numba compiles.

    Compiled code is cached, so that the first fit after an installation would find much
    less in the same time than all others.

    Examples
    --------
    >>> from randkern.backend.clock import working_seconds
    >>> began = working_seconds()
    >>> working_seconds() >= began
    True
    """
    return time.perf_counter() - (_COMPILING.duration if _COMPILING.done else 0.0)
