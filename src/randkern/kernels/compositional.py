"""Kernels of computation skeletons."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from randkern._random import Stream
from randkern._validation import Array, Rows, check_choice
from randkern.backend.namespace import ops_of
from randkern.exceptions import UnresolvedKernelError
from randkern.kernels.base import Leaf
from randkern.kernels.factor_draws import FactorDraws, Fourier, TermVariance
from randkern.nonlinearities import Nonlinearity, Phase, Polar, Signed
from randkern.projections import Distribution
from randkern.skeletons.builders import FullyConnected
from randkern.skeletons.paths import (
    SkeletonColumns,
    SkeletonPaths,
    has_constant,
    min_columns,
)
from randkern.skeletons.skeleton import Skeleton


class Compositional(Leaf):
    """The kernel of a computation skeleton, and its random features.

    κ_v = σ̂_v(mean of κ_u over the nodes u with an edge into v), from the base kernels
    of the inputs to the output. A random feature is a product of the base features at
    the ends of a few random paths (Algorithm 1), and is stored as a few integers.

    Parameters
    ----------
    skeleton : Skeleton or FullyConnected, optional
        A :class:`~randkern.skeletons.FullyConnected` becomes a skeleton once `resolve`
        has seen the number of columns (models call it in `fit`); None is one with its
        defaults: one ReLU node over all columns, read as angles.
    columns : None, slice, or list of column numbers or names
        The columns that the skeleton reads: its column 0 is the first of them.
    deduplicate : "auto" or bool
        Merge equal features of a draw into one with a higher weight, and continue
        drawing until all columns hold different features (see Notes). ``"auto"`` does
        so if features can be equal: if some input is not on a Gaussian space or a
        sphere by directions.
    constant : {"analytic", "sampled"}
        ``"analytic"``: the constant feature, of probability P₀, is one column √P₀, and
        the others are drawn conditionally on depending on an input; ``"sampled"``: the
        constant is drawn like any other feature.

    Raises
    ------
    ValueError
        In `fit` and on calls: for rows of another width, or points that do not lie on
        their base spaces; for ``deduplicate=True`` if no two features can be equal.

    Notes
    -----
    Drawing stops at the first draw for which no column is left. Of the N draws before,
    a feature drawn c times has the weight √((1 − P₀)c/N), which keeps the kernel
    unbiased. If a skeleton has no more features than columns, they are enumerated
    instead of drawn, unless that takes too long (more than 64 degrees at a node, or
    three products per column): the features' kernel is then the exact one, and unused
    columns are zero, as they are if 50 draws per column do not find enough features.

    As a factor of a product, or with ``fourier="offset"``, features are drawn
    independently, whatever `deduplicate` and `constant`; `projection` has no effect.
    The mean kernel of the features is that of ``skeleton.truncated()``: degrees above
    10,000 are not drawn.

    `feature_variance` is an upper bound where equal features are merged, and where some
    are real or constant, as deep features of circles may be: they leave columns to
    others.

    Paths are drawn on the host. For tensors they are copied to the device once, and
    features and exact values are computed there.

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
        skeleton: Skeleton | FullyConnected | None = None,
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
    def is_normalised(self) -> bool:
        """Whether k(x, x) is 1 for every x."""
        return self._skeleton().recursion.is_normalised

    def _skeleton(self, n_columns: int | None = None) -> Skeleton:
        """Return the skeleton; a FullyConnected needs the number of columns for it."""
        if isinstance(self.skeleton, Skeleton):
            return self.skeleton
        recipe = FullyConnected() if self.skeleton is None else self.skeleton
        if not isinstance(recipe, FullyConnected):
            raise ValueError(
                f"skeleton must be a Skeleton or None, got {self.skeleton!r}; create "
                "one with randkern.skeletons.fully_connected or .convolutional."
            )
        if n_columns is None:
            raise UnresolvedKernelError(
                "Compositional takes the number of inputs from data: call "
                "kernel.resolve(X) first (models do it in fit), or pass a skeleton."
            )
        return recipe.build(n_columns)

    def _resolve_leaf(self, X: Rows, weight: Array, stream: Stream, names: Any) -> None:
        self.skeleton = self._skeleton(X.shape[1])

    def _check_leaf(self, width: int) -> None:
        skeleton = self._skeleton(width)
        skeleton.check_width(width)
        check_choice("constant", self.constant, ("analytic", "sampled"))
        if self.deduplicate not in ("auto", True, False):
            raise ValueError(
                f"deduplicate must be 'auto', True or False, got {self.deduplicate!r}."
            )
        if self.deduplicate is True and not _repeats(skeleton):
            raise ValueError(
                "deduplicate=True has no effect: no two features are equal if all "
                "inputs have continuous distributions; use deduplicate='auto'."
            )

    def _columns_of_numbers(self, n_features: int) -> tuple[int, ...]:
        selected = self._selected(n_features)
        read = self._skeleton(len(selected)).columns_of_numbers()
        return tuple(selected[column] for column in read)

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> Array:
        X = self._select(X)
        Y = X if Y is None else self._select(Y)
        return self._skeleton(X.shape[1]).recursion.gram(X, Y, precise=precise)

    def _diag_selected(self, X: Rows) -> np.ndarray:
        recursion = self._skeleton(X.shape[1]).recursion
        recursion.check(X)
        return recursion.diagonal(X)

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray | float:
        if self._skeleton().is_unit:
            return 1.0
        return self._moments(X, Y)[1]

    def doubled_phase(self, X: Rows, Y: Rows) -> np.ndarray | float:
        if self._skeleton().is_real:
            return 1.0
        squares, sizes = self._moments(X, Y)
        where = ops_of(X).xp.where
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = where(sizes > 0, squares / sizes, 1.0)
        return where(sizes == np.inf, 0.0, ratio)

    def _moments(self, X: Rows, Y: Rows) -> tuple[np.ndarray, np.ndarray]:
        recursion = self._skeleton().recursion
        return recursion.squared_moments(self._select(X), self._select(Y))

    @property
    def nonlinearity(self) -> Nonlinearity:
        skeleton = self._skeleton()
        if skeleton.is_real:
            return Signed()
        return Phase() if skeleton.is_unit else Polar()

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> SkeletonPaths:
        stream = draws.stream()
        skeleton = self._skeleton()
        return SkeletonPaths(stream, n_draws, width, Distribution(), skeleton=skeleton)

    def own_projection(
        self, draws: FactorDraws, n_columns: int, width: int
    ) -> SkeletonColumns | None:
        if not self._weighs_columns(n_columns, draws.fourier):
            return None
        return SkeletonColumns(
            draws.stream(),
            n_columns,
            width,
            Distribution(),
            skeleton=self._skeleton(),
            merged=self._merges(),
            analytic=self.constant == "analytic",
        )

    def own_variance(
        self, X: Rows, Y: Rows, weight: float, fourier: Fourier
    ) -> TermVariance:
        """Return the variance, treating the constant feature, of probability P, apart.

        A draw that is not constant has the mean (K − P)/(1 − P) and the second moment
        (S − cP)/(1 − P), where c = 1 is that of the constant (3/2 in offset form), and
        the weight 1 − P. This is an upper bound if equal draws are merged, or if some
        features are real or constant, as on categories, and in deep skeletons on
        circles, where the angles of a draw may cancel: they leave columns to others.
        """
        size = weight**2 * self.squared_amplitude(X, Y)
        value = weight * self._gram(X, Y)
        moments: tuple[Any, ...] = (size,)
        plain = TermVariance.of_amplitudes(size, value**2)
        if self.nonlinearity.has_phase:
            double = self.doubled_phase(X, Y)
            moments = size * (1 + double) / 2, size * (1 + double / 2)
            plain = TermVariance.of_phases(size, double, value**2, fourier)
        analytic = self.constant == "analytic"
        share = weight * self._skeleton().constant_probability() if analytic else 0.0
        apart = tuple(
            (weight - share) * (moment / weight - c * share) - (value - share) ** 2
            for moment, c in zip(moments, (1.0, 1.5), strict=False)
        )

        def factors(width: int) -> tuple[float, ...]:
            none = (0.0,) * len(moments)
            if not self._weighs_columns(width, fourier):
                return *plain.factors(width), *none
            drawn_apart = (0.0,) * len(plain.matrices)
            n_free = width - has_constant(self._skeleton())
            if len(moments) == 1:
                return *drawn_apart, 1 / n_free
            pairs, odd = divmod(n_free, 2)
            n = pairs + odd
            return *drawn_apart, pairs / n**2, odd / n**2

        return TermVariance((*plain.matrices, *apart), factors)

    def _weighs_columns(self, n_columns: int, fourier: Fourier) -> bool:
        """Return whether this many columns are weighted individually."""
        apart = self._merges() or self.constant == "analytic"
        return (
            apart and fourier == "pair" and n_columns >= min_columns(self._skeleton())
        )

    def _merges(self) -> bool:
        if self.deduplicate == "auto":
            return _repeats(self._skeleton())
        return bool(self.deduplicate)


def _repeats(skeleton: Skeleton) -> bool:
    """Return whether two features that are not constant can be equal."""
    return any(base.discrete for base in skeleton.graph.bases)
