"""What an experiment or benchmark compares, described once, and why it is skipped."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import pandas as pd

from randkern._memory import available_memory, format_bytes

from .figures import Style
from .process import SkippedCase

# Of packages that pip does not install by their names alone.
INSTALLATION = {
    "lightonml": "pip install --no-deps lightonml==1.4.3",
    "falkon": (
        "install PyTorch and a C++ compiler, then pip install --no-build-isolation "
        "git+https://github.com/FalkonML/falkon.git"
    ),
}


@dataclass(frozen=True)
class Contender(Style):
    """A method: its name in tables and figures, its style, and how to make it."""

    make: Any = None
    needs: tuple[str, ...] = ()  # packages that must be installed
    landmarks: bool = False  # whether its components are training rows
    max_rows: int | None = None  # of more, it takes minutes, or gigabytes
    # Estimates its bytes from numbers of rows, columns and components, if it does not
    # limit its memory itself.
    memory: Callable[[int, int, int], int] | None = None

    def check(self, n: int = 0, d: int = 0, n_components: int = 0) -> None:
        """Raise SkippedCase if it cannot be fitted here, to n rows of d columns."""
        for name in self.needs:
            check_package(name)
        if self.landmarks:
            check_landmarks(n, n_components)
        if self.max_rows is not None and n > self.max_rows:
            raise SkippedCase(f"it takes at most {self.max_rows:,} rows here")
        needed = self.memory(n, d, n_components) if self.memory else 0
        free = available_memory()
        if free is not None and needed > free:
            raise SkippedCase(
                f"its features and their copies take about {format_bytes(needed)}; "
                f"{format_bytes(free)} are free"
            )


def check_package(name: str) -> None:
    """Raise SkippedCase, with how to install it, if a package is missing."""
    if find_spec(name) is None:
        how = INSTALLATION.get(name, f"pip install {name}")
        raise SkippedCase(f"{name} is not installed; {how}")


def versions_of(names: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of packages, None of those that are not installed."""
    result: dict[str, str | None] = dict.fromkeys(names)
    for name in result:
        with suppress(metadata.PackageNotFoundError):
            result[name] = metadata.version(name)
    return result


def check_landmarks(n: int, n_components: int) -> None:
    """Raise SkippedCase if there are fewer rows than landmarks."""
    if n_components > n:
        raise SkippedCase(f"it has at most one component per training row: {n:,}")


def check_any(frame: pd.DataFrame) -> None:
    """Raise the first reason if no case was measured."""
    if "reason" in frame and frame.reason.notna().all():
        raise ValueError(f"nothing could be run: {frame.reason.iloc[0]}")
