"""Kernels of an earlier fit, for newly encoded columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.search import Trial


def column_blocks(encoder: TabularEncoder) -> list[int | str]:
    """Return the block of each encoded column, by names that fits have in common.

    Columns of a block share a lengthscale: those of numbers and indicators are blocks
    of their own, by name, and those of a categorical column are one, by its number.
    """
    n_own = sum(encoder.widths_[:2])
    names = encoder.get_feature_names_out()[:n_own].tolist()
    return [*names, *encoder.columns_[n_own:].tolist()]


def moved(
    trial: Trial, before: Sequence[int | str], after: Sequence[int | str]
) -> Trial:
    """Return a trial whose kernel reads the blocks of other encoded columns.

    Those that are new have the longest lengthscale.
    """
    kernel = clone(trial.kernel)
    for leaf in kernel.leaves():
        if "lengthscale" in leaf.get_params():
            known = dict(zip(before, leaf.lengthscale, strict=True))
            longest = leaf.lengthscale.max()
            values = [known.get(block, longest) for block in after]
            leaf.set_params(lengthscale=np.array(values))
    return replace(trial, kernel=kernel)
