"""What a fit knows once its table is encoded: kernels are learned and compared."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._sklearn import num_samples, safe_indexing
from randkern._warnings import ignoring
from randkern.data import row_blocks
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.leave_one_out import Loss
from randkern.tabular.presets import Deadline, Plan
from randkern.tabular.rows import Table

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
        standard = TabularEncoder().set_output(transform="default")
        encoders = {"standard": standard.fit(table.X, sample_weight=weight)}
        # Quantiles end at the last known time, beyond which all rows would be alike.
        if standard.widths_[0] and not table.folds.is_forward:
            quantile = TabularEncoder("quantile").set_output(transform="default")
            with ignoring(UserWarning):  # what the first has warned of
                encoders["quantile"] = quantile.fit(table.X, sample_weight=weight)
        codes = {name: e.transform(sample.X) for name, e in encoders.items()}
        return cls(table, order, sample, encoders, codes, loss, plan, deadline)

    def encoder(self, numbers: str, dtype: str) -> TabularEncoder:
        """Return an encoder to rows of some dtype."""
        return copy(self.encoders[numbers]).set_params(dtype=dtype)

    def encoded(self, numbers: str, X: Any, dtype: str = "float64") -> np.ndarray:
        """Return rows encoded in blocks, with a scaling of numbers."""
        if X is self.table.X and len(self.sample) == len(self.table):
            codes = self.codes[numbers][np.argsort(self.order)]
            return codes.astype(dtype, copy=False)
        encoder = self.encoder(numbers, dtype)
        parts = [
            encoder.transform(safe_indexing(X, rows))
            for rows in row_blocks(num_samples(X), _ENCODED_ROWS)
        ]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def encoded_table(
        self, numbers: str, table: Table, dtype: str = "float64"
    ) -> Table:
        """Return a table with its rows encoded."""
        return replace(table, X=self.encoded(numbers, table.X, dtype))
