"""A transformer with a linear map learned from labels."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import MAX_COMPONENTS, Array, check_positive
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data.reading import mapped_rows, read
from randkern.data.training_data import ArrayRows
from randkern.exceptions import NoSignalWarning
from randkern.kernels import Gaussian, Kernel, Matern, RationalQuadratic
from randkern.kernels.default import TakesKernel
from randkern.metric.ridge import applied, standardised, unit_targets
from randkern.metric.search import ALPHAS, Search, sampled_rows, split_rows
from randkern.models._targets import NumbersOrLabels

# Full metrics are tried for at most this many columns, and at least this many rows per
# column.
_MAX_FULL = 500
_ROWS_PER_COLUMN = 5


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TakesKernel):
    r"""A linear map of the columns, learned from labels.

    Ridge regression with the kernel k(Ax, Ay) is fitted, the average outer product of
    its gradients, G = (1/n) Σ_i J(x_i)ᵀJ(x_i), gives AᵀA = G^p for the next fit, and so
    on. Every step is validated on held-out rows, as are the lengthscale, the penalty,
    the power p and whether A is diagonal or full. G is the mean over the fits without
    a part of the rows. The first step also uses the gradients of a fit to the squares
    of the targets, which show columns that affect the variance but not the mean, such
    as the factors of a product.

    Parameters
    ----------
    kernel : Gaussian, Matern or RationalQuadratic, default=None
        None is ``Matern(nu=1.5)``. A Matérn kernel needs ν > 1: otherwise gradients of
        its random features have infinite variance. Its lengthscale is that of the
        transformed rows; A is scaled to it.
    n_components : int or None, default=2000
        Number of random features. With at most as many rows, and for None, fits use
        the exact kernel, which is then no more expensive. Steps are chosen with half of
        them.
    metric : {"auto", "diagonal", "full"}, default="auto"
        ``"diagonal"``: A scales columns; ``"full"``: it may also rotate them.
        ``"auto"`` tries both if there are at least 5 rows per column, and at most 500
        columns.
    n_iterations : int, default=5
        Maximum number of steps.
    alpha : float or "auto", default="auto"
        The penalty; ``"auto"`` is the best of 10⁻⁸, ..., 10³ for each fit.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    components_ : ndarray of shape (d, d)
        A, including the scales of the columns; zero for constant ones.
    metric_ : {"identity", "diagonal", "full"}
        ``"identity"``: no step was better than standardised columns by a standard
        error.
    feature_importances_ : ndarray of shape (d,)
        Mean squares of gradients along standardised columns, normalised to sum 1. They
        are products of the gradients of two fits to halves of the sampled rows, so that
        noise adds nothing on average. If nothing was learned, the variances of the
        columns.
    kernel_ : Kernel
        The kernel for transformed rows, with its lengthscale.
    alpha_ : float
        The penalty of its fit.
    history_ : list of float
        Mean squared error of every step on held-out rows, divided by the variance of
        the targets. The first is that of standardised columns.
    n_iter_ : int
        Number of steps of the chosen metric.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Warns
    -----
    randkern.exceptions.NoSignalWarning
        If no fit predicts the targets clearly better than their mean (by three standard
        errors). `components_` is then the identity.

    Notes
    -----
    Labels (text, booleans, or at most 20 different integers) are coded as columns of
    ±1; other targets are standardised. The search uses a sample of at most 10,000 rows,
    a fifth of which is held out (each fifth in turn for up to 1,000 rows); equal rows
    are on the same side.

    References
    ----------
    Radhakrishnan, Beaglehole, Pandit & Belkin 2024, "Mechanism for feature learning in
    neural networks and backpropagation-free machine learning models", Science 383.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(300, 6))
    >>> y = np.sin(2 * X[:, 1]) + X[:, 4] ** 2
    >>> metric = rk.MetricLearner(random_state=0).fit(X, y)
    >>> bool(metric.feature_importances_[[1, 4]].sum() > 0.95)
    True
    >>> model = rk.KernelRidgeRegressorCV(metric.kernel_, n_components=None)
    >>> model.fit(metric.transform(X), y).predict(metric.transform(X[:2])).shape
    (2,)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",
        "n_components": [Interval(Integral, 1, MAX_COMPONENTS, closed="both"), None],
        "metric": [StrOptions({"auto", "diagonal", "full"})],
        "n_iterations": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int | None = 2000,
        *,
        metric: str = "auto",
        n_iterations: int = 5,
        alpha: Any = "auto",
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.n_components = n_components
        self.metric = metric
        self.n_iterations = n_iterations
        self.alpha = alpha
        self.random_state = random_state

    memory_limit: ClassVar[None] = None

    def _default_kernel(self) -> Kernel:
        return Matern(nu=1.5, lengthscale="scale")

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MetricLearner:
        """Learn the map.

        Parameters
        ----------
        X : array, tensor, dataframe, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their targets and weights.
        y : array of shape (n,) or (n, k)
            Labels, or one or more real targets.
        sample_weight : array of shape (n,), optional
        """
        self._validate_params()
        stream = root_stream(self.random_state)
        data = read(
            self,
            NumbersOrLabels(),
            X,
            y,
            sample_weight,
            stream,
            exact=self.n_components is None,
            in_place=True,
        )
        rows, labelled = data.rows, data.targets.labelled
        self._check_dense(rows.like)
        if rows.n_rows < 2:
            raise ValueError(
                "MetricLearner needs training rows and validation rows, got n_samples "
                f"= {rows.n_rows}; expected at least 2 rows."
            )
        sample, varies = unit_targets(sampled_rows(rows, stream), labelled)
        # Steps are chosen with half of the features, at a quarter of the cost.
        exact_rows = self.n_components or sample.n_rows
        mapped, variances = standardised(sample)
        kernel = self._resolved(mapped(sample), stream)
        search = Search(
            kernel,
            (exact_rows + 1) // 2,
            exact_rows,
            None if self.alpha == "auto" else float(self.alpha),
            stream,
            mapped,
            split_rows(sample, stream) if varies else [],
        )
        kinds = self._kinds(sample.n_rows, self.n_features_in_)
        result = search.best(kinds, labelled, self.n_iterations)
        self.history_ = [] if result is None else result.history
        if result is None or not result.learned:
            return self._keep_identity(sample.X, variances, search)
        trial = result.trial
        self.n_iter_ = result.n_steps
        self.metric_ = "full" if result.full else "diagonal"
        if self.n_iter_ == 0:
            self.metric_ = "identity"
        self.alpha_ = search.penalty(trial.alpha)
        self.kernel_ = kernel
        mapped = search.scaled(sample, trial.root, trial.spread)
        search = replace(search, n_components=exact_rows)
        importances = search.importances(sample, mapped, trial.alpha)
        return self._keep(mapped.root * mapped.scale, importances, sample.like)

    def _check_dense(self, like: Array) -> None:
        """Raise unless rows are dense and numeric."""
        encoder = self.table_encoder_
        if encoder is not None:
            names = ", ".join(repr(encoder.names[j]) for j in encoder.levels)
            raise ValueError(
                f"MetricLearner expects numeric columns, but {names} are categorical; "
                "encode them first, for instance with OneHotEncoder."
            )
        if sp.issparse(like):
            raise TypeError(
                "MetricLearner expects dense rows, got a sparse matrix; pass "
                "X.toarray()."
            )

    def _keep_identity(
        self, sample: Any, variances: np.ndarray, search: Search
    ) -> MetricLearner:
        warn(
            "on held-out rows no kernel predicted the targets clearly better than "
            "their mean, so MetricLearner leaves the columns unchanged. More rows, or "
            "other columns, may help.",
            NoSignalWarning,
        )
        self.metric_ = "identity"
        self.n_iter_ = 0
        self.alpha_ = search.penalty(len(ALPHAS) - 1)
        self.kernel_ = clone(search.kernel).set_params(lengthscale="scale")
        self.kernel_ = self.kernel_.resolve(sample)
        return self._keep(np.ones(len(variances)), variances, sample)

    def _keep(self, root: np.ndarray, relevance: np.ndarray, like: Array) -> Any:
        """Store A and the importances, on the device of the rows."""
        total = float(relevance.sum())
        place = ops_of(like).float64_like
        equal = np.full(len(relevance), 1 / len(relevance))
        self._root = place(root, like)
        self.feature_importances_ = place(relevance / total if total else equal, like)
        return self

    def _kinds(self, n: int, d: int) -> list[bool]:
        """Return the kinds of metric to try: False is diagonal, True is full."""
        if self.metric != "auto":
            return [self.metric == "full"]
        return (
            [False, True] if 1 < d <= min(_MAX_FULL, n / _ROWS_PER_COLUMN) else [False]
        )

    def _resolved(self, rows: ArrayRows, stream: Stream) -> Any:
        """Return the kernel with a number as its lengthscale."""
        if self.kernel is None:
            return Matern(nu=1.5)
        kernel: Any = self.kernel
        smooth = not isinstance(kernel, Matern) or check_positive("nu", kernel.nu) > 1
        if (
            not isinstance(kernel, (Gaussian, Matern, RationalQuadratic))
            or not smooth
            or kernel.columns is not None
            or np.ndim(kernel.lengthscale)
        ):
            raise ValueError(
                "kernel must be a Gaussian, a Matern with nu > 1 or a "
                "RationalQuadratic of all columns with one lengthscale, got "
                f"{self.kernel!r}; use for instance randkern.Matern(nu=1.5)."
            )
        seed = int(stream.child("kernel").generator().integers(2**31))
        kernel = kernel.resolve(rows.X, rows.weight, seed)
        if not 1e-100 <= kernel.lengthscale <= 1e100:  # squares are representable
            raise ValueError(
                "MetricLearner expects a lengthscale from 1e-100 to 1e100, got "
                f"{kernel.lengthscale:g}; scale the columns, or use 'scale'."
            )
        return kernel

    @property
    def components_(self) -> Any:
        check_is_fitted(self, "_root")
        root = self._root
        if root.ndim == 2:
            return root
        return root[:, None] * ops_of(root).algebra.identity(len(root), root)

    def transform(self, X: Any) -> Any:
        """Return X Aᵀ, float32 for float32 rows.

        Parameters
        ----------
        X : array, tensor, dataframe, Dask collection or RowBlocks of n rows
            The result of a Dask collection is lazy.
        """
        check_is_fitted(self)
        single = getattr(X, "dtype", None) == np.float32
        dtype = np.float32 if single else np.float64
        return mapped_rows(
            self.transform, X, self._transformed, self.n_features_in_, dtype
        )

    def _transformed(self, X: Any) -> Any:
        self._check_dense(X)
        ops = ops_of(X)
        return ops.asarray(applied(self._root, ops.as_float64(X)), X)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
