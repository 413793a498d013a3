"""Kernels of computation skeletons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows, check_choice
from randkern.exceptions import UnresolvedKernelError
from randkern.kernels._base import Leaf
from randkern.projections import InputMap, Law
from randkern.skeletons.builders import fully_connected
from randkern.skeletons.graph import Skeleton
from randkern.skeletons.paths import (
    SkeletonColumns,
    SkeletonPaths,
    has_constant,
    least_columns,
)

if TYPE_CHECKING:
    from randkern.projections import Projection

__all__ = ["Compositional"]


class Compositional(Leaf):
    """The kernel of a computation skeleton, and its random features.

    κ_v = σ̂_v(mean of κ_u over the nodes u with an edge into v), from the base kernels of
    the inputs to the output. A random feature is a product of the base features at the
    ends of a few random paths (Algorithm 1), and is kept as a few integers.

    Parameters
    ----------
    skeleton : Skeleton, optional
        None is one ReLU node over all columns, read as angles, known once `resolve`
        has seen their number (models do it in `fit`).
    columns : None, slice, or list of column numbers or names
        Those that the skeleton reads: its column 0 is the first of them.
    deduplicate : "auto" or bool
        Merge equal features of a draw into one of a higher weight, and go on drawing
        until all columns are filled by different ones (see Notes). ``"auto"`` does
        wherever features can be equal: where some input is not on a Gaussian space or
        a sphere by directions.
    constant : {"analytic", "sampled"}
        Put the probability P₀ of the constant feature in as one column √P₀ and draw
        the others on the condition that they meet an input, or draw it as any other.

    Raises
    ------
    ValueError
        At `fit` and on calls: for rows of another width, or points that do not lie on
        their base spaces; for ``deduplicate=True`` where no two features are equal.

    Notes
    -----
    The draws that count are those before the first for which no column is left; with N
    of them, a feature that came up c times has the weight √((1 − P₀)c/N), which keeps
    the kernel's mean exact. A skeleton of no more features than columns is not drawn
    but listed: then the features' kernel is the exact one, and columns that are left
    over are zero, as they are when 100 draws a column do not find enough features.

    As a factor of a product, or with ``fourier="offset"``, features are drawn
    independently, whatever `deduplicate` and `constant`; `projection` makes no
    difference to them. The mean of the features is the kernel of
    ``skeleton.truncated()``: degrees above 10,000 are not drawn.

    References
    ----------
    Daniely, Frostig, Gupta and Singer 2017, "Random features for compositional
    kernels".

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> skeleton = rk.skeletons.convolutional((24, 24, 3))
    >>> kernel = rk.Compositional(skeleton)
    >>> X = np.random.default_rng(0).uniform(-1.5, 1.5, (5, 24 * 24 * 3))
    >>> Z = rk.RandomFeatures(kernel, 10_000, random_state=0).fit_transform(X)
    >>> bool(np.abs(Z @ Z.T - kernel(X)).max() < 0.03)
    True
    """

    def __init__(
        self,
        skeleton: Skeleton | None = None,
        *,
        columns: Any = None,
        deduplicate: Literal["auto"] | bool = "auto",
        constant: str = "analytic",
    ):
        self.skeleton = skeleton
        self.columns = columns
        self.deduplicate = deduplicate
        self.constant = constant

    @property
    def role(self) -> Literal["phase", "signed", "polar"]:  # type: ignore[override]
        """What a draw gives: a phase, a signed number, or a modulus and a phase."""
        skeleton = self._skeleton()
        if skeleton.is_real:
            return "signed"
        return "phase" if skeleton.is_unit else "polar"

    def _skeleton(self) -> Skeleton:
        if self.skeleton is None:
            raise UnresolvedKernelError(
                "Compositional() takes the number of inputs from data: call "
                "kernel.resolve(X) first (models do it in fit), or pass a skeleton."
            )
        return self.skeleton

    # -- checks -------------------------------------------------------------------

    def _resolve_leaf(
        self, X: Rows, sample_weight: np.ndarray | None, stream: Stream
    ) -> None:
        if self.skeleton is None:
            self.skeleton = fully_connected(len(self._selected(X.shape[1])))

    def _check_leaf(self, n_features: int) -> None:
        super()._check_leaf(n_features)
        if self.skeleton is not None and not isinstance(self.skeleton, Skeleton):
            raise ValueError(
                f"skeleton must be a Skeleton or None, got {self.skeleton!r}; make one "
                "by randkern.skeletons.fully_connected or .convolutional."
            )
        skeleton = self._skeleton()
        skeleton.check_width(len(self._selected(n_features)))
        check_choice("constant", self.constant, ("analytic", "sampled"))
        if self.deduplicate not in ("auto", True, False):
            raise ValueError(
                f"deduplicate must be 'auto', True or False, got {self.deduplicate!r}."
            )
        if self.deduplicate is True and not self._repeats():
            raise ValueError(
                "deduplicate=True, but no two features are equal where every input is "
                "of a continuous law; use deduplicate='auto'."
            )

    def _repeats(self) -> bool:
        """Return whether two features can be equal, other than by being constant."""
        return any(base.discrete for base in self._skeleton().graph.bases)

    def _number_columns(self, n_features: int) -> tuple[int, ...]:
        selected = self._selected(n_features)
        read = self._skeleton().columns_of_numbers()
        return tuple(selected[column] for column in read)

    # -- exact values -------------------------------------------------------------

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> np.ndarray:
        X = self._select(X)
        Y = X if Y is None else self._select(Y)
        return self._skeleton().recursion.gram(X, Y, precise=precise)

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        return self._skeleton().recursion.gram(X, Y, precise=False)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        recursion = self._skeleton().recursion
        recursion.check(X)
        return recursion.diagonal(X)

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray | float:
        if self._skeleton().is_unit:
            return 1.0
        return self._moments(X, Y)[1]

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray | float:
        if self.role == "signed":
            return 1.0
        squares, sizes = self._moments(X, Y)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(sizes > 0, squares / sizes, 1.0)

    def _moments(self, X: Rows, Y: Rows) -> tuple[np.ndarray, np.ndarray]:
        recursion = self._skeleton().recursion
        return recursion.squared_moments(self._select(X), self._select(Y))

    # -- draws --------------------------------------------------------------------

    def law(self) -> Law:
        return Law("paths")

    def inputs(self, n_features: int) -> InputMap:
        return self._input_map(n_features, 1.0, 0.0)

    def projection(self, stream: Stream, n_draws: int) -> Projection:
        """Return independent draws."""
        skeleton = self._skeleton()
        width = skeleton.n_features
        return SkeletonPaths(stream, n_draws, width, self.law(), skeleton=skeleton)

    def weighs_columns(self, n_columns: int) -> bool:
        """Tell whether so many columns get weights of their own, or are drawn plainly."""
        apart = self._merges() or self.constant == "analytic"
        return apart and n_columns >= least_columns(self._skeleton())

    def _merges(self) -> bool:
        return self._repeats() if self.deduplicate == "auto" else bool(self.deduplicate)

    def analytic_share(self) -> float:
        """Return the probability of the constant feature that is not drawn."""
        if self.constant != "analytic":
            return 0.0
        return self._skeleton().constant_probability()

    def constant_columns(self) -> int:
        """Return how many columns are kept for the constant feature, 0 or 1."""
        return int(has_constant(self._skeleton()))

    def weighted_columns(self, stream: Stream, n_columns: int) -> SkeletonColumns:
        """Return columns of features with weights of their own."""
        skeleton = self._skeleton()
        return SkeletonColumns(
            *(stream, n_columns, skeleton.n_features, self.law()),
            skeleton=skeleton,
            merged=self._merges(),
            analytic=self.constant == "analytic",
        )
