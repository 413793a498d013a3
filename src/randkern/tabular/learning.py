"""What a fit knows once its table is encoded: kernels are learned and compared."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._sklearn import num_samples, safe_indexing
from randkern._warnings import ignoring
from randkern.data import row_blocks
from randkern.tabular.encoder import TabularEncoder, encoder_to_arrays
from randkern.tabular.leave_one_out import Loss
from randkern.tabular.presets import Deadline, Plan
from randkern.tabular.rows import Table
from randkern.tabular.search import KernelSearch, Trial

# The step of fits that choose kernels, for the deadline.
COMPARISON = "the comparison of kernels"
# Fewer rows than this teach no kernel.
_MIN_LEARNED = 8
# Rows encoded at a time.
_ENCODED_ROWS = 65_536


@dataclass(frozen=True)
class Learning:
    """The rows and encoders of a fit, from which kernels are learned.

    `order` is a random order of the table's rows. The search uses the first of them,
    the `sample`, whose rows encoded for each scaling of numbers are `codes`.
    """

    table: Table
    order: np.ndarray
    sample: Table
    encoders: dict[str, TabularEncoder]
    codes: dict[str, np.ndarray]
    loss: Loss
    plan: Plan
    deadline: Deadline

    @classmethod
    def of(
        cls,
        table: Table,
        loss: Loss,
        stream: Stream,
        plan: Plan,
        deadline: Deadline,
    ) -> Learning:
        """Draw the order of rows; fit the encoders, and encode the first rows."""
        order = stream.child("searched").generator().permutation(len(table))
        sample = table.take(order[: plan.searched_rows])
        weight = table.sample_weight
        standard = encoder_to_arrays("standard").fit(table.X, sample_weight=weight)
        encoders = {"standard": standard}
        # Quantiles end at the last known time, beyond which all rows would be alike.
        if standard.widths_[0] and not table.folds.is_forward:
            with ignoring(UserWarning):  # what the first has warned of
                encoders["quantile"] = encoder_to_arrays("quantile").fit(
                    table.X, sample_weight=weight
                )
        codes = {name: e.transform(sample.X) for name, e in encoders.items()}
        return cls(table, order, sample, encoders, codes, loss, plan, deadline)

    @property
    def n_again(self) -> int:
        """The number of kinds of kernels that are learned again without each fold.

        In time, the first of these kernels would know few rows.
        """
        return 0 if self.table.folds.is_forward else self.plan.n_refits

    def encoded(self, trial: Trial, X: Any, dtype: str = "float64") -> np.ndarray:
        """Return rows encoded in blocks for the kernel of a trial."""
        if X is self.table.X and len(self.sample) == len(self.table):
            codes = self.codes[trial.numbers][np.argsort(self.order)]
            return codes.astype(dtype, copy=False)
        encoder = copy(self.encoders[trial.numbers]).set_params(dtype=dtype)
        parts = [
            encoder.transform(safe_indexing(X, rows))
            for rows in row_blocks(num_samples(X), _ENCODED_ROWS)
        ]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def encoded_table(
        self, trial: Trial, table: Table, dtype: str = "float64"
    ) -> Table:
        """Return a table with its rows encoded for the kernel of a trial."""
        return replace(table, X=self.encoded(trial, table.X, dtype))

    def search(
        self,
        order: np.ndarray,
        step: str = COMPARISON,
        report: Callable[[Trial], bool] = lambda _: False,
    ) -> KernelSearch:
        """Return a search that learns from the rows of the sample in some order."""
        return KernelSearch(
            self.codes,
            self.blocks,
            self.sample,
            order,
            self.deadline,
            step,
            report,
        )

    @property
    def blocks(self) -> dict[str, np.ndarray]:
        """The blocks of columns of the encoders."""
        return {name: encoder.blocks_ for name, encoder in self.encoders.items()}

    def relearned(self, trial: Trial, positions: np.ndarray) -> Trial | None:
        """Return a trial's kernel learned from some rows of the sample only.

        None if there is nothing to learn from them, or it has to end early.
        """
        varies = np.ptp(self.sample.Y[positions], axis=0).any()
        is_late = self.deadline.ends(COMPARISON)
        if len(positions) < _MIN_LEARNED or not varies or is_late:
            return None
        learned = self.search(positions).again(trial)
        return None if self.deadline.ends(COMPARISON) else learned
