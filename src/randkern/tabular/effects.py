"""How much the predictions of a tabular model depend on each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from randkern.kernels import Laplacian, Sum
from randkern.tabular.folds import Folds
from randkern.tabular.learning import relearned
from randkern.tabular.leave_one_out import inverse, log_loss, log_squares
from randkern.tabular.trials import Trial
from randkern.tabular.work import Work

__all__ = ["ColumnEffects"]

# Times that rows are halved, the most and the fewest rows whose columns are changed,
# and the fewest rows that wide tables are fitted to.
_HALVINGS = 7
_MAX_CHANGED, _MIN_CHANGED, _MIN_ROWS = 200, 20, 100
# Most kernel values that are computed for all changes, some five seconds' work. Each
# change takes as long as this many, however few rows there are.
_VALUES, _VALUES_OF_A_CHANGE = 4e8, 20_000

# The weight of a kernel, and the kernel.
Part = tuple[float, Trial]


@dataclass(frozen=True)
class _Fit:
    """A weighted fit of least squares to encoded rows U, but for its intercept."""

    share: float
    trial: Trial
    U: np.ndarray
    dual: np.ndarray


@dataclass
class ColumnEffects:
    """The kernels of a model, and what it takes to fit them to halves of the rows.

    Attributes
    ----------
    parts : list of (float, Trial)
        The kernels, and their weights.
    rows : dict of str to ndarray of shape (n, ...)
        Encoded rows in random order, for each scaling of numbers.
    columns, blocks : dict of str to ndarray
        The input column of each encoded column, and the block that shares its
        lengthscale.
    Y, weight : ndarray of shape (n, k) and (n,)
        Targets or codes of labels, and weights.
    is_labels : bool
    seconds : float
        The work for learning kernels from halves.
    seed : int
        Seeds the choice of halves.
    folds : Folds or None
        Those of rows that depend on each other, which are whole in either half.
    """

    parts: Sequence[Part]
    rows: dict[str, np.ndarray]
    columns: dict[str, np.ndarray]
    blocks: dict[str, np.ndarray]
    Y: np.ndarray
    weight: np.ndarray
    is_labels: bool
    seconds: float
    seed: int
    folds: Folds | None = None

    def shares(self, n_columns: int) -> np.ndarray:
        """Return the total-effect index of each column, as shares of their sum.

        It is E[(f(x) − f(x'))²]/2, where x' is x with the column of another row (Jansen
        1999, "Analysis of variance designs for model output"). The square is the
        product of the differences of two fits, each to half of the rows, so that noise
        adds nothing on average; each column gets the median over several halvings. As
        an effect is not negative, the negative ones are noise: those that do not exceed
        their root mean square are set to zero.
        """
        n, n_halvings, m = self._sizes(n_columns)
        generator = np.random.default_rng(self.seed)
        halvings = [self._halves(generator, n) for _ in range(n_halvings)]
        effects = []
        for pair in self._learned(halvings):
            first, second = (
                self._changes(self._fitted(*half), m, n_columns) for half in pair
            )
            both = zip(first, second, strict=True)
            effects.append([(one * other).sum() for one, other in both])
        total = np.median(effects, axis=0)
        negative = total[total < 0]
        noise = np.sqrt(np.mean(negative**2)) if len(negative) else 0.0
        total[total <= noise] = 0.0
        if total.sum() > 0:
            return total / total.sum()
        return np.full(n_columns, 1 / n_columns)

    def _halves(self, generator: np.random.Generator, n: int) -> list[np.ndarray]:
        """Return random halves of the first n rows, of whole folds if there are any."""
        folds = None if self.folds is None else self.folds.take(np.arange(n))
        if folds is None:
            return np.array_split(generator.permutation(n), 2)
        values, codes = np.unique(folds.codes, return_inverse=True)
        place = generator.permutation(len(values))[codes]
        is_first = place < len(values) // 2
        return [np.flatnonzero(is_first), np.flatnonzero(~is_first)]

    def _sizes(self, n_columns: int) -> tuple[int, int, int]:
        """Return the numbers of rows, of halvings, and of rows that are changed.

        Wide tables have fewer of each.
        """
        turns = [trial.turn for _, trial in self.parts if trial.turn is not None]
        width = n_columns * (1 + max((turn.shape[1] for turn in turns), default=0) / 20)
        most = _VALUES / (len(self.parts) * width)
        n = len(self.Y)
        m = int(np.clip(most / (_HALVINGS * n), _MIN_CHANGED, _MAX_CHANGED))
        size = max(n * m, _VALUES_OF_A_CHANGE)
        n_halvings = int(np.clip(most / size, 1, _HALVINGS))
        return min(n, max(int(most / m), _MIN_ROWS)), n_halvings, min(m, n)

    def _learned(
        self, halvings: list[list[np.ndarray]]
    ) -> list[list[tuple[np.ndarray, Sequence[Part]]]]:
        """Return the halves with the kernels to fit to them.

        A kernel that was learned from all rows has learned from the noise of both
        halves: if there is time, the first one is learned again from each half.
        """
        first = self.parts[0][1]
        learned: list[list[tuple[np.ndarray, Sequence[Part]]]] = []
        loss = log_loss if self.is_labels else log_squares
        codes, blocks = self.rows[first.numbers], self.blocks[first.numbers]
        stage = Work(self.seconds, clock=lambda: 0.0).stage("", self.seconds)
        for halves in halvings if first.metric != "none" else []:
            kernels = []
            for half in halves:
                learned_trial = relearned(
                    first,
                    codes,
                    blocks,
                    self.Y,
                    self.weight,
                    half,
                    stage,
                    loss,
                    self.folds,
                )
                if learned_trial is None:
                    break
                kernels.append((half, [(1.0, learned_trial)]))
            if len(kernels) < len(halves):
                break
            learned.append([*kernels])
        return learned or [
            [(half, self.parts) for half in halves] for halves in halvings
        ]

    def _fitted(self, positions: np.ndarray, parts: Sequence[Part]) -> list[_Fit]:
        """Fit least squares with an intercept and each kernel to half of the rows."""
        Y, weight = self.Y[positions], self.weight[positions]
        fits = []
        for share, trial in parts:
            U = trial.turned(self.rows[trial.numbers][positions])
            P, penalty = None, trial.alpha
            while P is None:  # rounding errors may need a larger penalty
                P = inverse(np.array(trial.kernel._gram(U, None)), penalty / weight)
                penalty *= 10.0
            fits.append(_Fit(share, trial, U, P @ Y))
        return fits

    def _changes(
        self, fits: list[_Fit], m: int, n_columns: int
    ) -> Iterator[np.ndarray]:
        """Yield how predictions of m rows change with each column of other rows."""
        changes_of = []
        for fit in fits:
            numbers = fit.trial.numbers
            rows, columns = self.rows[numbers][:m], self.columns[numbers]
            changes_of.append(_changes(fit, rows, columns, n_columns))
        for changes in zip(*changes_of, strict=True):
            yield np.sum(changes, axis=0)


def _changes(
    fit: _Fit, rows: np.ndarray, columns: np.ndarray, n_columns: int
) -> Iterator[np.ndarray]:
    """Yield the changes of a fit's predictions for each input column, (m, k).

    A column changes distances by its own term alone, so a change of one takes no more
    than the kernel's values at the new distances.
    """
    kernel, turn, U = fit.trial.kernel, fit.trial.turn, fit.U
    base, linear = (kernel.k1, kernel.k2) if isinstance(kernel, Sum) else (kernel, None)
    others = np.roll(rows, len(rows) // 2, axis=0)
    scale, X = 1.0 / base.lengthscale, fit.trial.turned(rows)
    metric = "cityblock" if isinstance(base, Laplacian) else "sqeuclidean"
    distances = cdist(X * scale, U * scale, metric)
    before = base._profile(distances.copy()) @ fit.dual
    for j in range(n_columns):
        J = columns == j
        if not J.any():
            yield np.zeros_like(before)
            continue
        if turn is None:
            old, new, known = (A[:, J] * scale[J] for A in (rows, others, U))
            moved = distances + cdist(new, known, metric) - cdist(old, known, metric)
        else:
            step = ((others - rows)[:, J] @ turn[J]) * scale
            along = ((2 * X * scale + step) * step).sum(axis=1)
            moved = distances + along[:, None] - 2 * step @ (U * scale).T
        change = base._profile(np.maximum(moved, 0.0)) @ fit.dual - before
        if linear is not None:
            slope = linear.scale * (U.T @ fit.dual)
            steps = (others - rows)[:, J]
            change += steps @ (slope[J] if turn is None else turn[J] @ slope)
        yield fit.share * change
