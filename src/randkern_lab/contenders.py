"""What an experiment or benchmark compares, described once."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from .panels import Style
from .process import SkippedCase

__all__ = ["Contender"]


@dataclass(frozen=True)
class Contender(Style):
    """A method: its name in tables and figures, its style, and how to make it.

    Attributes
    ----------
    make : callable, optional
    needs : tuple of str
        Packages that must be installed.

    Examples
    --------
    >>> from randkern_lab.contenders import Contender
    >>> Contender("a list", "blue", "s", make=list).made("ab")
    ['a', 'b']
    """

    make: Callable[..., Any] | None = None
    needs: tuple[str, ...] = ()

    def why_not(self) -> str | None:
        """Return why it cannot be made here, or None."""
        missing = [name for name in self.needs if find_spec(name) is None]
        return f"{missing[0]} is not installed" if missing else None

    def made(self, *arguments: Any, **options: Any) -> Any:
        """Return what `make` returns, or raise :class:`.process.SkippedCase`."""
        reason = self.why_not()
        if reason is not None:
            raise SkippedCase(reason)
        assert self.make is not None
        return self.make(*arguments, **options)
