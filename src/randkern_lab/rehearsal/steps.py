"""Steps of the rehearsal: right by an independent check, or what is wrong."""

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from randkern import cli

from ..process import SkippedCase
from .answers import NAMED_ERRORS, is_raised

#: Differences of predictions that count as rounding, relative to their spread.
ROUNDING = 1e-6
#: The standard error of a coverage counts this many rows that calibrated it.
_CALIBRATION_ROWS = 500
#: The status of a command that has refused its input by a named error.
REFUSED = 2
_STANDARD_ERRORS = 4


class Ran(NamedTuple):
    """A command that has ended: its status, and what it has printed."""

    status: int
    output: str
    errors: str


class Wrong(AssertionError):  # noqa: N818 - it says what is wrong
    """Raised by a check that fails; the message has the numbers."""


class Steps:
    """Records of steps: what was done, the result, and the seconds."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def take(
        self, name: str, work: Callable[[], str], *, may_refuse: bool = False
    ) -> None:
        """Do a step; `work` returns what was checked, or raises.

        A named error fails the step too, unless the library `may_refuse` what it asks.
        """
        start = time.perf_counter()
        try:
            result, message = "ok", work()
        except SkippedCase as reason:
            result, message = "skipped", str(reason)
        except Wrong as wrong:
            result, message = "FAILED", str(wrong)
        except NAMED_ERRORS as error:
            result = "named error" if is_raised(error) else "FAILED"
            message = f"{type(error).__name__}: {error}"
        except Exception as error:
            # A method that `available_if` withholds has a reason as its cause.
            withheld = isinstance(error, AttributeError) and error.__cause__ is not None
            result = "named error" if withheld else "FAILED"
            message = f"{type(error).__name__}: {error.__cause__ or error}"
        if result == "named error" and not may_refuse:
            result = "FAILED"
        seconds = time.perf_counter() - start
        summary = {"result": result, "message": " ".join(message.split())}
        self.records.append({"step": name, **summary, "seconds": seconds})


def check(holds: bool, message: str) -> str:
    """Return the message, or raise it if it does not hold."""
    if not holds:
        raise Wrong(message)
    return message


def same(actual: Any, expected: Any, what: str, tolerance: float = ROUNDING) -> str:
    """Compare two arrays relative to the spread of the expected one; texts exactly."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        raise Wrong(f"{what}: shapes {actual.shape} and {expected.shape}")
    if expected.dtype.kind not in "fiu" or actual.dtype.kind not in "fiu":
        n = int(np.sum(actual.astype(str) != expected.astype(str)))
        return check(n == 0, f"{what}: {n} of {expected.size} differ")
    spread = float(np.ptp(expected)) or float(np.abs(expected).max()) or 1.0
    difference = float(np.abs(actual - expected).max(initial=0.0)) / spread
    return check(difference <= tolerance, f"{what}: they differ by {difference:.1e}")


def no_worse(error: float, bound: float, what: str) -> str:
    """Check that an error is at most a bound."""
    return check(error <= bound, f"{what} {error:.4f}, at most {bound:.4f}")


def covers(y: np.ndarray, ends: np.ndarray, coverage: float) -> str:
    """Check that intervals hold their share of targets, but for chance.

    The share has the variance of the test rows and of those that calibrated it. More
    is no error for cross-validated intervals, whose coverage may exceed what was asked.
    """
    share = float(np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])))
    variance = coverage * (1 - coverage) * (1 / len(y) + 1 / _CALIBRATION_ROWS)
    least = coverage - _STANDARD_ERRORS * variance**0.5
    return check(
        share >= least,
        f"intervals of {coverage:.0%} hold {share:.1%}, least {least:.1%}",
    )


def randkern(*words: Any) -> Ran:
    """Run the command line in this process, as ``randkern WORDS``."""
    output, errors, status = StringIO(), StringIO(), 0
    with (
        patch.object(sys, "argv", ["randkern", *map(str, words)]),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
    return Ran(status, output.getvalue(), errors.getvalue())


def succeeded(*words: Any) -> Ran:
    """Run the command line on valid input; raise unless it succeeds."""
    ran = randkern(*words)
    check(ran.status == 0, f"status {ran.status}: {_error_of(ran)}")
    return ran


def refused(*words: Any, naming: str) -> str:
    """Run the command line, which must refuse its input by a message with `naming`."""
    ran = randkern(*words)
    message = _error_of(ran)
    check(ran.status != 0, "it was taken, where a named error is expected")
    check(ran.status == REFUSED, f"status {ran.status}: {message}")
    check(naming in message, f"the error does not name {naming!r}: {message}")
    return f"refused: {message}"


def _error_of(ran: Ran) -> str:
    lines = [line for line in ran.errors.splitlines() if "error:" in line]
    return " ".join(lines) or ran.errors.strip()


def folder_of(request: dict[str, Any]) -> Path:
    """Return the folder of a data set's files and models, which may be new."""
    folder = Path(request["work"]) / request["data"].replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
