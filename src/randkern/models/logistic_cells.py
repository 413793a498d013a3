"""Logistic regression with the exact kernel in overlapping cells of rows.

The values of rows, before the logistic function, are blended as predictions of
:mod:`randkern.models.cells` are: time is linear in the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randkern._fitting import is_late
from randkern._random import Stream
from randkern.backend.tasks import map_on_threads
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models.cells import CellFits, divided_rows, rows_in_time
from randkern.models.dual_logistic import DualLogistic, DualWeights

# Larger cells are fitted one after another: their products are on all threads.
_ROWS_OF_A_THREAD = 2048


@dataclass(frozen=True)
class LogisticCells(CellFits):
    """Logistic regressions of the rows of single cells, and their blend.

    Attributes
    ----------
    kernel, tree, stream, rows, dual, intercepts
        See :class:`CellFits`; the intercepts are 0.
    n_iter : int
        The largest number of products with the kernel.
    gradient : float
        The largest bound of the excess of an objective over its minimum, relative to
        the objective.
    """

    n_iter: int
    gradient: float


def fit_logistic_cells(
    kernel: Kernel,
    rows: ArrayRows,
    C: float,
    cell_rows: int,
    tol: float,
    max_iter: int,
    limit: int,
    stream: Stream,
) -> LogisticCells:
    """Fit logistic regression with the exact kernel to the rows of each cell.

    Once it is late, few rows of a cell are fitted.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    rows : ArrayRows
        Rows of positive weight, whose targets are signs, (n, k).
    C : float
    cell_rows : int
        The largest number of rows of a cell.
    tol, max_iter
        See :meth:`DualLogistic.minimise`.
    limit : int
        Bytes of memory.
    stream : Stream

    Returns
    -------
    LogisticCells
    """
    tree, members, _ = divided_rows(kernel, rows.X, cell_rows, stream)

    def fitted(numbers: np.ndarray) -> tuple[np.ndarray, DualWeights]:
        numbers = rows_in_time(numbers)
        cell = rows.take(numbers)
        Y, weight = cell.targets()
        dual = DualLogistic.of(kernel, cell.X, Y, share, stream.child("solver"))
        return numbers, dual.minimise(
            C * weight, tol, max_iter, report=lambda _: is_late()
        )

    is_small = max(map(len, members)) <= _ROWS_OF_A_THREAD
    max_threads = max(limit // (64 * _ROWS_OF_A_THREAD**2), 1) if is_small else 1
    share = limit // max_threads
    parts = list(map_on_threads(fitted, members, max_threads))
    fits = [fit for _, fit in parts]
    return LogisticCells(
        kernel,
        tree,
        stream,
        rows=[numbers for numbers, _ in parts],
        dual=[fit.weights for fit in fits],
        intercepts=np.zeros((len(fits), rows.n_targets)),
        n_iter=max(fit.n_iter for fit in fits),
        gradient=max(fit.gradient for fit in fits),
    )
