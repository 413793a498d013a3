"""Kernels of an earlier fit, for newly encoded columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.search import Trial

# The input column of an encoded one, and its name; they do not change between fits.
Column = tuple[int | str, str]


@dataclass(frozen=True)
class Candidates:
    """The trials of a model, and the encoded columns that their kernels read."""

    trials: list[Trial]
    columns: dict[str, list[Column]]  # for each scaling of numbers

    @classmethod
    def of(
        cls, trials: Sequence[Trial], encoders: Mapping[str, TabularEncoder]
    ) -> Candidates:
        columns = {name: _columns_of(encoder) for name, encoder in encoders.items()}
        different = {id(trial): trial for trial in trials}
        return cls(list(different.values()), columns)

    def encoded(self, encoders: Mapping[str, TabularEncoder]) -> Iterator[Trial]:
        """Yield the trials for the columns of other encoders of the same table."""
        for trial in self.trials:
            if trial.numbers in encoders:
                after = _columns_of(encoders[trial.numbers])
                yield _moved(trial, self.columns[trial.numbers], after)


def _columns_of(encoder: TabularEncoder) -> list[Column]:
    names = encoder.get_feature_names_out().tolist()
    # Numbers and indicators have lengthscales of their own, unlike categories.
    n_own = sum(encoder.widths_[:2])
    blocks = [*names[:n_own], *encoder.columns_[n_own:].tolist()]
    return list(zip(blocks, names, strict=True))


def _moved(trial: Trial, before: list[Column], after: list[Column]) -> Trial:
    """Return a trial whose kernel reads other encoded columns.

    New columns get the lengthscale of their block, or else the longest one.
    """
    if before == after:
        return trial
    place_of = {block: at for at, (block, _) in enumerate(before)}
    kernel = clone(trial.kernel)
    for leaf in kernel.leaves():
        if "lengthscale" in leaf.get_params():
            result = leaf.lengthscale
            places = [place_of.get(block) for block, _ in after]
            longest = result.max()
            values = [longest if at is None else result[at] for at in places]
            leaf.set_params(lengthscale=np.array(values))
    return replace(trial, kernel=kernel)
