"""What a fit knows once its table is encoded: kernels are learned and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from randkern._random import Stream, root_stream
from randkern._sklearn import num_samples, safe_indexing
from randkern._warnings import ignoring
from randkern.data import row_blocks
from randkern.tabular.encoder import TabularEncoder, encoder_to_arrays
from randkern.tabular.exact_ridge import adapted
from randkern.tabular.folds import Folds, divided, predicted_rows
from randkern.tabular.leave_one_out import Loss, leave_one_out
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch
from randkern.tabular.trials import Trial
from randkern.tabular.work import (
    Stage,
    Work,
    encoding_seconds,
    evaluation_seconds,
    exact_seconds,
    largest,
    quantile_seconds,
)

# Largest number of rows to which lengthscales are adapted, and the ratio to the rows
# they were learned from at which this starts.
_MAX_ADAPTED = 6000
_ADAPTED_SHARE = 1.2
# Approximate number of fits that this takes.
_ADAPTING_FITS = 12
# Smallest and largest number of rows on which trials, and the fits of a blend, are
# evaluated.
_MIN_VALIDATION, MAX_VALIDATION = 200, 2000
MAX_MEMBERS = 3
# Largest share of the time for learning the quantiles of all columns.
_QUANTILE_SHARE = 0.1
# Rows encoded at a time.
_ENCODED_ROWS = 65_536


@dataclass(frozen=True)
class SearchResult:
    """The best trials of a search, `refined` ones first; and all that were `tried`."""

    refined: list[Trial]
    tried: list[Trial]
    stopped: bool


@dataclass(frozen=True)
class Learning:
    """The rows and encoders of a fit, from which kernels are learned.

    `order` is a random order of the table's rows. The search uses the first of them,
    `searched`, whose codes for each scaling of numbers are `codes`. `counts` are the
    weights of the rows for encoders, None if they are equal.
    """

    table: Table
    order: np.ndarray
    searched: np.ndarray
    encoders: dict[str, TabularEncoder]
    codes: dict[str, np.ndarray]
    counts: np.ndarray | None
    loss: Loss
    work: Work

    @classmethod
    def of(
        cls,
        table: Table,
        counts: np.ndarray | None,
        sizes: tuple[int, int],
        loss: Loss,
        stream: Stream,
        work: Work,
    ) -> Learning:
        """Draw the order of rows; fit the encoders, and encode the first rows.

        `sizes` are how many rows are searched at most, and how many of the others, at
        the end of the order, share no fold with the rest.
        """
        most_searched, n_held = sizes
        order = stream.child("searched").generator().permutation(len(table))
        if n_held:
            order = np.concatenate(divided(order, table.folds, n_held))
        searched = order[:most_searched]
        standard = encoder_to_arrays("standard").fit(table.X, sample_weight=counts)
        encoders = {"standard": standard}
        n_varying = len(standard._varying)
        seconds = quantile_seconds(len(table), n_varying)
        if n_varying and seconds < _QUANTILE_SHARE * work.limit:
            work.charge(seconds)
            with ignoring(UserWarning):  # what the first has warned of
                encoders["quantile"] = encoder_to_arrays("quantile").fit(
                    table.X, sample_weight=counts
                )
        sample = safe_indexing(table.X, searched)
        codes = {name: e.transform(sample) for name, e in encoders.items()}
        learning = cls(table, order, searched, encoders, codes, counts, loss, work)
        for encoder in encoders.values():
            learning._charge_encoding(encoder, len(table))
        return learning

    @property
    def searched_folds(self) -> Folds | None:
        """The folds of the searched rows."""
        folds = self.table.folds
        return None if folds is None else folds.take(self.searched)

    def _charge_encoding(self, encoder: TabularEncoder, n: int) -> None:
        sizes = encoder.n_features_in_, len(encoder.columns_)
        self.work.charge(encoding_seconds(n, *sizes))

    def n_columns(self, trial: Trial) -> int:
        """Return the number of columns of the trial's kernel."""
        return self.codes[trial.numbers].shape[1]

    def sample(self, trial: Trial) -> np.ndarray:
        """Return the searched rows, encoded for the kernel of a trial."""
        return self.codes[trial.numbers]

    def encoded(self, trial: Trial, X: Any, dtype: str = "float64") -> np.ndarray:
        """Return rows encoded in blocks for the kernel of a trial."""
        if X is self.table.X and len(self.searched) == len(self.table):
            codes = self.codes[trial.numbers][np.argsort(self.searched)]
            return codes.astype(dtype, copy=False)
        encoder = copy(self.encoders[trial.numbers]).set_params(dtype=dtype)
        self._charge_encoding(encoder, num_samples(X))
        parts = [
            encoder.transform(safe_indexing(X, rows))
            for rows in row_blocks(num_samples(X), _ENCODED_ROWS)
        ]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def codes_of(self, trials: Sequence[Trial], X: Any) -> dict[str, np.ndarray]:
        """Return rows encoded for each scaling of numbers of the trials."""
        codes = {}
        for name in dict.fromkeys(trial.numbers for trial in trials):
            self._charge_encoding(self.encoders[name], num_samples(X))
            codes[name] = self.encoders[name].transform(X)
        return codes

    def encoded_table(
        self, trial: Trial, table: Table, dtype: str = "float64"
    ) -> Table:
        """Return a table with its rows encoded for the kernel of a trial."""
        return replace(table, X=self.encoded(trial, table.X, dtype))

    def search(
        self, stage: Stage, stream: Stream, report: Callable[[Trial], bool]
    ) -> SearchResult:
        """Return the best trials of a search, and all."""
        blocks = {name: encoder.blocks_ for name, encoder in self.encoders.items()}
        Y, weight = self.table.Y[self.searched], self.table.weight[self.searched]
        search = KernelSearch(
            self.codes,
            blocks,
            Y,
            weight,
            stage,
            stream,
            report,
            self.loss,
            self.searched_folds,
        )
        refined = search.run()
        return SearchResult(refined, search.log.trials, search.log.stopped)

    def relearned(
        self, trial: Trial, positions: np.ndarray, stage: Stage
    ) -> Trial | None:
        """Return a trial's kernel learned from some of the searched rows only.

        None if there is nothing to learn from them, or it has to end early.
        """
        Y, weight = self.table.Y[self.searched], self.table.weight[self.searched]
        codes = self.codes[trial.numbers]
        blocks = self.encoders[trial.numbers].blocks_
        folds = self.searched_folds
        return relearned(
            trial, codes, blocks, Y, weight, positions, stage, self.loss, folds
        )

    def adapted(self, trial: Trial, stage: Stage, most: int = _MAX_ADAPTED) -> Trial:
        """Return a trial adapted to more rows than it was learned from.

        Their number allows several factorisations in the stage.
        """
        n_columns = self.n_columns(trial)
        m = largest(
            lambda n: _ADAPTING_FITS * exact_seconds(n, n_columns),
            stage.left,
            least=1,
            most=min(len(self.table), most),
        )
        if m < _ADAPTED_SHARE * trial.n_rows or stage.over:
            return trial
        # Rows unknown to the search come last: they evaluate it.
        sample = self.encoded_table(trial, self.table.take(self.order[:m]))
        kernel, alpha = adapted(trial.kernel, trial.alpha, sample, stage, self.loss)
        return replace(trial, kernel=kernel, alpha=alpha, n_rows=m)

    def compared(
        self, trials: Sequence[Trial], stage: Stage, adapting: float
    ) -> list[tuple[Trial, np.ndarray]]:
        """Return trials with their leave-one-out residuals, best first.

        Residuals are multiplied by the roots of weights. If possible, trials are
        evaluated on more rows than they were learned from: adapting each of the best
        to them may take `adapting` seconds of work.
        """
        n_columns, k = max(map(self.n_columns, trials)), self.table.Y.shape[1]
        m = largest(
            lambda m: evaluation_seconds(m, n_columns, k),
            stage.left,
            least=min(_MIN_VALIDATION, len(self.searched)),
            most=min(MAX_VALIDATION, len(self.searched)),
        )
        rows = self.searched[:m]
        Y, w = self.table.Y[rows], self.table.weight[rows]
        folds = None if self.table.folds is None else self.table.folds.take(rows)
        out = predicted_rows(folds, len(rows))
        results: list[tuple[float, Trial, np.ndarray]] = []
        for at, trial in enumerate(trials):
            if results and stage.over:
                break
            if at < MAX_MEMBERS:
                trial = self.adapted(trial, stage.part(adapting), len(rows))
            U, residuals = self.sample(trial)[: len(rows)], None
            while residuals is None:  # more rows may need a larger penalty
                self.work.charge(evaluation_seconds(len(U), U.shape[1], Y.shape[1]))
                residuals = leave_one_out(trial.kernel, trial.alpha, U, Y, w, folds)
                if residuals is None:
                    trial = replace(trial, alpha=10 * trial.alpha)
            loss, _ = self.loss(Y[out] - residuals, Y[out], w[out])
            results.append((loss, trial, residuals * np.sqrt(w[out])[:, None]))
        results.sort(key=itemgetter(0))
        return [(trial, residuals) for _, trial, residuals in results]


# Fewer rows than this teach no kernel.
_MIN_LEARNED = 8


def relearned(
    trial: Trial,
    codes: np.ndarray,
    blocks: np.ndarray,
    Y: np.ndarray,
    weight: np.ndarray,
    positions: np.ndarray,
    stage: Stage,
    loss: Loss,
    folds: Folds | None = None,
) -> Trial | None:
    """Return a trial's kernel learned from some rows only.

    None if there is nothing to learn from them, or it has to end early.
    """
    varies = np.ptp(Y[positions], axis=0).any()
    if len(positions) < _MIN_LEARNED or not varies or stage.over:
        return None
    search = KernelSearch(
        {trial.numbers: codes},
        {trial.numbers: blocks},
        Y,
        weight,
        stage,
        root_stream(0),
        lambda _: False,
        loss,
        folds,
    )
    learned = search.again(trial, positions)
    return None if stage.over else learned


def descended(
    evaluate: Callable[[int], Any], start: int, size: int, over: Callable[[], bool]
) -> Any:
    """Return what `evaluate` returns at a place in a list with no better neighbour.

    Losses decrease on the way from `start` to this place.
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
