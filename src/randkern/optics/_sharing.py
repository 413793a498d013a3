"""A device that several threads use: one of them at a time."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class SharedDevice:
    """Gives a device its attribute ``lock``, a re-entrant lock.

    Copies and pickles have a lock of their own: they are another device.
    """

    lock: Any

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {k: v for k, v in self.__dict__.items() if k != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.RLock()


def exclusive(device: Any) -> AbstractContextManager[Any]:
    """Return the device's lock, or nothing to wait for if it has none.

    Settings and the frames shown with them belong together: whoever sets a device
    and then reads it holds the lock over both.
    """
    return getattr(device, "lock", None) or nullcontext()
