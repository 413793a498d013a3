"""Counted work, by which a fit is planned, and the deadline that ends what is late.

Work is measured in seconds of a nominal core: what each operation takes there follows
from its sizes alone. Plans depend on work, so the same data and seed give the same
model on every machine; the clock only ends what is late, and that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from randkern.backend.compiled_loops import working_seconds

# The nominal core: operations per second of a factorisation, and seconds per entry of a
# Gram matrix, per entry and column, and to read an entry twice. Two usual cores take
# about half of these seconds, so that the deadline rarely ends anything.
RATE = 3e10
_ENTRY_SECONDS, _COLUMN_SECONDS, _READING_SECONDS = 2e-8, 2e-10, 2e-9
# Operations of an exact fit per n³; for features, the share of products in the time.
_FACTORISING, _FEATURES_SHARE = 0.4, 0.3
# Seconds of a leave-one-out loss with its gradient: in all, per n·d, n², n²·d, n²·k and
# n³, for n rows, d columns and k targets.
_EVALUATION = (4e-4, 2e-7, 8e-8, 1.2e-9, 1e-9, 4.5e-11)
# Seconds of the fit to a cell of rows besides its operations.
LOCAL_FIT_SECONDS = 2e-3
# Seconds per encoded number, and per cell that is read.
_ENCODED_SECONDS, _CELL_SECONDS = 6e-8, 2e-7
# Seconds per character of texts, whose words are hashed, and per character and target,
# to which some linear models are fitted.
_HASHED_SECONDS, _TEXT_SECONDS = 8e-7, 5e-7
# Seconds per column, and per number of at most so many rows, for quantiles.
_QUANTILES_SECONDS, _QUANTILE_SECONDS, _QUANTILE_ROWS = 4e-4, 4e-7, 100_000


@dataclass
class Work:
    """The work of a fit so far, its limit, and what the deadline has cut.

    All times are in seconds: `spent` and `limit` are work, `limit` is also the deadline
    on the clock, which starts now.
    """

    limit: float
    clock: Callable[[], float] = field(default=working_seconds, repr=False)
    spent: float = 0.0
    cut: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Fits import it where they use it: in the first one, that is no work.
        import sklearn.model_selection  # noqa: F401

        self._began = self.clock()

    @property
    def elapsed(self) -> float:
        """The time on the clock since the start."""
        return self.clock() - self._began

    @property
    def pace(self) -> float:
        """How many times longer than nominal the work has taken, at least 1."""
        return max(self.elapsed / self.spent, 1.0) if self.spent > 0 else 1.0

    def charge(self, seconds: float) -> None:
        self.spent += seconds

    def stage(self, name: str, seconds: float, deadline: float | None = None) -> Stage:
        """Return a part of the fit that may do so much work from now on.

        `deadline` is by when it has to end on the clock, by default with the fit.
        """
        until = min(self.spent + seconds, self.limit)
        return Stage(self, name, until, self.limit if deadline is None else deadline)


@dataclass(frozen=True)
class Stage:
    """A part of a fit, with the work by which it ends, and a deadline on the clock."""

    work: Work
    name: str
    until: float
    deadline: float

    @property
    def left(self) -> float:
        """The work that is left."""
        return self.until - self.work.spent

    @property
    def over(self) -> bool:
        """Whether the work is done, or it is late."""
        return self.left < 0 or self._is_late(0.0)

    def fits(self, seconds: float) -> bool:
        """Return whether so much work remains, and can be done before the deadline."""
        return seconds <= self.left and not self._is_late(seconds)

    def part(self, seconds: float) -> Stage:
        """Return a stage that ends earlier, after so much work from now on."""
        return replace(self, until=min(self.work.spent + seconds, self.until))

    def affordable(self, seconds: float) -> float:
        """Return how much of this work can be done before the deadline."""
        if not self._is_late(seconds):
            return seconds
        return max(self.deadline - self.work.elapsed, 0.0) / self.work.pace

    def _is_late(self, seconds: float) -> bool:
        pace = self.work.pace if seconds else 1.0
        late = self.work.elapsed + pace * seconds > self.deadline
        if late and self.name not in self.work.cut:
            self.work.cut.append(self.name)
        return late


def largest(cost: Callable[[int], float], seconds: float, least: int, most: int) -> int:
    """Return the largest size whose cost is at most `seconds`, between two bounds.

    The cost grows with the size. If even `least` costs more, it is returned.
    """
    while least < most:
        middle = (least + most + 1) // 2
        if cost(middle) <= seconds:
            least = middle
        else:
            most = middle - 1
    return least


# -- what operations take ------------------------------------------------------------


def evaluation_seconds(n: int, n_columns: int, k: int = 1) -> float:
    """Return the work of a leave-one-out loss and its gradient on n rows."""
    sizes = (1.0, n * n_columns, n**2, n**2 * n_columns, n**2 * k, float(n) ** 3)
    return sum(seconds * size for seconds, size in zip(_EVALUATION, sizes, strict=True))


def gram_seconds(n: int, n_columns: int) -> float:
    """Return the work of the upper triangle of the Gram matrix of n rows."""
    return (_ENTRY_SECONDS + _COLUMN_SECONDS * n_columns) * n**2 / 2


def factorising_seconds(n: int) -> float:
    """Return the work of an exact fit to n rows, besides their Gram matrix."""
    return _FACTORISING * float(n) ** 3 / RATE


def exact_seconds(n: int, n_columns: int) -> float:
    """Return the work of an exact fit to n rows."""
    return gram_seconds(n, n_columns) + factorising_seconds(n)


def landmark_seconds(n: int, D: int, n_columns: int = 0) -> float:
    """Return the work of least squares with D landmarks on n rows."""
    entries = n * D * (_ENTRY_SECONDS + _COLUMN_SECONDS * n_columns)
    return n * D**2 / (_FEATURES_SHARE * RATE) + entries


def cells_seconds(n_cells: int, n: int, n_columns: int) -> float:
    """Return the work of exact fits to cells of n rows, and to these without each."""
    operations = gram_seconds(n, n_columns) + 2 * factorising_seconds(n)
    return n_cells * (LOCAL_FIT_SECONDS + operations)


def pass_seconds(n: int, D: int, k: int) -> float:
    """Return the work of two products of n × D features with k vectors.

    Features are in single precision for D < n.
    """
    reading = _READING_SECONDS * (0.5 if D < n else 1.0)
    return n * D * (4 * k / RATE + reading)


def encoding_seconds(n: int, n_read: int, n_encoded: int) -> float:
    """Return the work of encoding n rows of a table."""
    return n * (n_read * _CELL_SECONDS + n_encoded * _ENCODED_SECONDS)


def text_seconds(n_characters: int, n_targets: int) -> float:
    """Return the work of fitting a column of texts with so many characters in all."""
    return n_characters * (_HASHED_SECONDS + n_targets * _TEXT_SECONDS)


def quantile_seconds(n: int, n_columns: int) -> float:
    """Return the work of learning the quantiles of columns of numbers."""
    each = _QUANTILES_SECONDS + _QUANTILE_SECONDS * min(n, _QUANTILE_ROWS)
    return n_columns * each


# -- how rows are fitted exactly ----------------------------------------------------

# Largest number of rows whose Gram matrix is factorised, and multiplied by: beyond, it
# does not fit in MEMORY_LIMIT in 16 bits, and every product would recompute it.
MAX_FACTORISED = 16_000

MAX_ITERATED = 38_000

ALWAYS_FACTORISED = 2000

# Operations of conjugate gradients per n²: the Gram matrix and the preconditioner, and
# each iteration.
_PREPARING, _ITERATION = 600.0, 10.0

# The most iterations, and the fewest for which the exact kernel is worth its matrix.
MAX_ITER, _MIN_ITER = 60, 10

_FEATURES = (500, 8000)


def plan_of(n: int, seconds: float) -> tuple[str, int]:
    """Choose how to fit n rows in about `seconds`, and the number of features.

    The method is ``"factorise"`` or ``"iterate"`` with the exact kernel, or
    ``"features"``.
    """
    if n <= ALWAYS_FACTORISED:
        return "factorise", 0
    if n <= MAX_FACTORISED and factorising_seconds(n) < seconds:
        return "factorise", 0
    if n <= MAX_ITERATED and iterating_seconds(n, _MIN_ITER) < seconds:
        return "iterate", 0
    return "features", largest(lambda D: landmark_seconds(n, D), seconds, *_FEATURES)


def iterations_within(n: int, seconds: float) -> int:
    """Return the number of iterations of conjugate gradients in about `seconds`."""
    return largest(lambda n_iter: iterating_seconds(n, n_iter), seconds, 1, MAX_ITER)


def iterating_seconds(n: int, n_iter: int) -> float:
    """Return the work of iterations of conjugate gradients with the exact kernel."""
    return (_PREPARING + _ITERATION * n_iter) * n**2 / RATE
