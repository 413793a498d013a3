"""Contenders of benchmarks: how each is drawn, made and timed, or why it is not."""

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from randkern._memory import available_memory, format_bytes

from ..panels import Style
from ..process import Lap, SkippedCase, Stopwatch

__all__ = [
    "INSTALLATION",
    "Contender",
    "Timed",
    "check_landmarks",
    "check_package",
    "fit_and_predict",
    "known_names",
    "some_records",
]

# Of packages that pip does not install by their name alone.
INSTALLATION = {
    "lightonml": "pip install --no-deps lightonml==1.4.3",
    "xGPR": "pip install xgpr",
    "falkon": (
        "install PyTorch and a C++ compiler, then pip install --no-build-isolation "
        "git+https://github.com/FalkonML/falkon.git"
    ),
}
# Rows, components and iterations of the fits that load compiled code.
_WARM_UP_ROWS, _WARM_UP_SIZE = 64, 16


@dataclass(frozen=True)
class Contender(Style):
    """A model of a benchmark: the style of its curve, and how it is made.

    Attributes
    ----------
    make : callable
        Returns the unfitted model for a request, which has the arguments of a fit.
    package : str
        The optional package that it needs.
    landmarks : bool
        Whether its components are training rows.
    memory : callable, optional
        Estimates its bytes from numbers of rows, columns and components, if it does not
        bound its memory itself.
    """

    make: Callable[[Mapping[str, Any]], Any] = dict
    package: str = ""
    landmarks: bool = False
    memory: Callable[[int, int, int], int] | None = None

    def check(self, n: int = 0, d: int = 0, n_components: int = 0) -> None:
        """Raise SkippedCase if it cannot be fitted to n rows of d columns here."""
        if self.package:
            check_package(self.package)
        if self.landmarks:
            check_landmarks(n, n_components)
        needed = self.memory(n, d, n_components) if self.memory else 0
        free = available_memory()
        if free is not None and needed > free:
            raise SkippedCase(
                f"its features and their copies take about {format_bytes(needed)}; "
                f"{format_bytes(free)} are free"
            )


def check_package(name: str) -> None:
    """Raise SkippedCase, with how to install it, if a package is missing."""
    if importlib.util.find_spec(name) is None:
        how = INSTALLATION.get(name, f"pip install {name}")
        raise SkippedCase(f"{name} is not installed; {how}")


def check_landmarks(n: int, n_components: int) -> None:
    """Raise SkippedCase if there are fewer rows than landmarks."""
    if n_components > n:
        raise SkippedCase(f"it has at most one component per training row: {n:,}")


class Timed(NamedTuple):
    """A fitted model, its predictions, and what they took."""

    model: Any
    predicted: Any
    warm_up: Lap
    fit: Lap
    predict: Lap


def fit_and_predict(
    contender: Contender,
    request: Mapping[str, Any],
    X: Any,
    y: Any,
    X_test: Any,
    few: Any = slice(_WARM_UP_ROWS),
) -> Timed:
    """Time a fit and its predictions.

    Before, a small model is fitted to a few rows, to load compiled code.
    """
    small = {**request, "memory_limit": None, "budget": 0.0}
    for size in ("n_components", "max_iter"):
        small[size] = request.get(size) and min(request[size], _WARM_UP_SIZE)
    watch = Stopwatch()
    contender.make(small).fit(X[few], y[few]).predict(X_test[:_WARM_UP_ROWS])
    warm_up = watch.lap()
    model = contender.make(request).fit(X, y)
    fit = watch.lap()
    predicted = model.predict(X_test)
    return Timed(model, predicted, warm_up, fit, watch.lap())


def known_names(kind: str, names: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return distinct names, or raise for unknown ones.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import known_names
    >>> known_names("method", ["a", "b", "a"], "abc")
    ['a', 'b']
    """
    listed = ", ".join(known)
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; expected some of {listed}")
    if not names:
        raise ValueError(f"nothing to run: name some of {listed}")
    return list(dict.fromkeys(names))


def some_records(results: Mapping[str, Any]) -> list[Any]:
    """Return the records, or raise the reason why there are none."""
    if not results["records"]:
        reason = results["skipped"][0]["reason"]
        raise ValueError(f"nothing could be run: {reason}")
    found: list[Any] = results["records"]
    return found
