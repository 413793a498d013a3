"""Random features as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._memory import check_free, resolve_memory_limit
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import (
    MAX_COMPONENTS,
    Rows,
    check_components,
    check_count,
    check_weights,
    is_dask_collection,
    is_tensor,
    validate_rows,
)
from randkern.backend.namespace import ops_of
from randkern.data.sharded import lazily, sampled_dask
from randkern.kernels import Kernel
from randkern.kernels.default import TakesKernel
from randkern.kernels.draw import fit_plan
from randkern.landmarks import landmark_plan
from randkern.plan import Plan, evaluate
from randkern.projections import PROJECTIONS

__all__ = ["NystromFeatures", "RandomFeatures"]

_CHECKED_COLUMNS = 64


class _FeatureTransformer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, TakesKernel
):
    """Base class of transformers that compute the features of a plan."""

    n_components: Any
    random_state: Any
    kernel_: Kernel
    plan_: Plan

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",  # checked_kernel says what to pass
        "n_components": [
            Interval(Integral, 1, MAX_COMPONENTS, closed="both"),
            "array-like",
        ],
        "random_state": ["random_state", np.random.Generator],
    }

    def _plan(self, X: Rows, sample_weight: np.ndarray | None, stream: Stream) -> Plan:
        """Return the plan of features for checked rows."""
        raise NotImplementedError

    def _fit(self, X: Any, sample_weight: Any = None) -> Any:
        self._validate_params()
        stream = root_stream(self.random_state)
        if is_dask_collection(X):
            X, sample_weight = sampled_dask(self, X, sample_weight, stream)
        else:
            X = validate_rows(self, X, reset=True)
            sample_weight = check_weights(sample_weight, X)
        names = getattr(self, "feature_names_in_", None)
        self.kernel_ = self._kernel_or_default._resolve(
            X, sample_weight, stream, names, self.table_encoder_
        )
        self.plan_ = self._plan(X, sample_weight, stream.child("features"))
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of the rows of `X`, shape (n, number of features).

        float32 rows give float32 features, all others float64. A Dask array or
        dataframe gives one with the same partitions, computed on the workers.
        A PyTorch tensor gives a tensor on its device, under
        ``sklearn.config_context(array_api_dispatch=True)``.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor or Dask collection of shape (n, d)
        """
        check_is_fitted(self)
        if is_dask_collection(X):
            dtypes = X.dtypes if hasattr(X, "dtypes") else [X.dtype]
            single = all(dtype == np.float32 for dtype in dtypes)
            dtype = np.float32 if single else np.float64
            names = self.get_feature_names_out()
            return lazily(self.transform, X, self._n_features_out, dtype, names)
        X = validate_rows(self, X, reset=False)
        if not is_tensor(X):
            check_free(
                X.shape[0] * self._n_features_out * X.dtype.itemsize,
                f"the array of {self._n_features_out} features for each of "
                f"{X.shape[0]} rows",
                "transform fewer rows at a time, or fit a model with n_components",
            )
        Z = evaluate(self.plan_, X)
        # If the features of a row overflow, nearly all columns of a term do.
        starts = (group.start for group in self.plan_.groups)
        checked = (Z[:, start : start + _CHECKED_COLUMNS] for start in starts)
        if not all(map(ops_of(Z).is_finite, checked)):
            raise ValueError(
                f"features overflow {Z.dtype}: rows of X are too large for "
                f"{self.kernel_}; scale the input down, or use float64."
            )
        return Z

    @property
    def _n_features_out(self) -> int:
        return self.plan_.n_components

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class RandomFeatures(_FeatureTransformer):
    """Random features φ with E[φ(x)·φ(y)] = k(x, y), for any kernel.

    A stationary kernel gives ``√(2/D)·[cos ω·x, sin ω·x]`` with ω from its
    spectral measure, an optical one ``|u·x|^m/√D``; sums and products combine
    the features of their parts.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``; a search may set its parameters
        (``kernel__lengthscale``).
    n_components : int or sequence of int, default=1000
        D, exactly the number of output columns. A sequence has the number per term of a
        sum of kernels, from left to right.
    projection : str, default="auto"
        How the rows of the random matrix are drawn. ``"dense"``: independently,
        and stored; ``"streamed"``: the same entries, recomputed when needed;
        ``"orthogonal"``: in orthogonal blocks, which lowers the variance;
        ``"structured"``: orthogonal blocks by fast Walsh-Hadamard transforms,
        at a cost of log d per feature and no memory; ``"qmc"``: a scrambled
        Sobol sequence. ``"auto"``: for rotation-invariant distributions of the
        rows, structured from 64 columns on and orthogonal below; for the others
        (Laplacian, Cauchy) dense, or streamed if the matrix would take more than
        500 MB.
    fourier : {"pair", "offset"}, default="pair"
        ``"pair"``: cos and sin of D/2 frequencies, interleaved (with D odd
        the last column is a single cosine with a random phase); ``"offset"``:
        ``√(2/D)·cos(ω·x + b)`` with D frequencies.
    centered : bool, default=False
        Subtract the mean of optical features from them and put it in a column of
        its own: the same kernel with a lower variance.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers in place of rules that depend on data.
    plan_ : Plan
        The drawn feature map: a few kilobytes, for any D and d.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    The variance of φ(x)·φ(y) at D even columns is (1 + K(2τ) − 2K²)/D for
    pairs and (1 + K(2τ)/2 − K²)/D for offsets: pairs win wherever 2K² >
    K(2τ), which for a Gaussian kernel is everywhere.

    References
    ----------
    Rahimi & Recht 2007, "Random features for large-scale kernel machines";
    Sutherland & Schneider 2015, "On the error of random Fourier features".

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> features = rk.RandomFeatures(rk.Gaussian(2.0), 10_000, random_state=0)
    >>> Z = features.fit_transform(X)
    >>> Z.shape
    (5, 10000)
    >>> bool(np.abs(Z @ Z.T - rk.Gaussian(2.0)(X)).max() < 0.03)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_FeatureTransformer._parameter_constraints,
        "projection": [StrOptions(set(PROJECTIONS))],
        "fourier": [StrOptions({"pair", "offset"})],
        "centered": ["boolean"],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int | Sequence[int] = 1000,
        *,
        projection: str = "auto",
        fourier: str = "pair",
        centered: bool = False,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.n_components = n_components
        self.projection = projection
        self.fourier = fourier
        self.centered = centered
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RandomFeatures:
        """Draw the features for rows like those of `X`.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, Dask array or dataframe of shape (n, d)
            Used for its number of columns, for lengthscales that depend on data, and
            for the shares of the terms of a sum. For a Dask collection, workers draw
            a sample of at most 16 MB that is used in place of all rows.
        y : ignored
        sample_weight : array of shape (n,), optional
        """
        return self._fit(X, sample_weight)

    def _plan(self, X: Rows, sample_weight: np.ndarray | None, stream: Stream) -> Plan:
        return fit_plan(
            self.kernel_,
            X,
            sample_weight,
            check_components(self.n_components),
            stream,
            projection=self.projection,
            fourier=self.fourier,
            centered=self.centered,
        )


class NystromFeatures(_FeatureTransformer):
    """Nyström features, φ(x) = T⁻¹ k(L, x) with landmarks L and TTᵀ = k(L, L).

    φ(x)·φ(y) = k(x, L) k(L, L)⁻¹ k(L, y) is the best approximation of the kernel by
    its values at the landmarks, and exact where x or y is one.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``; a search may set its parameters
        (``kernel__lengthscale``).
    n_components : int, default=1000
        Number of landmarks. There are fewer features if `X` has fewer rows, or if
        k(L, L) has a lower rank in floating point, as for repeated rows.
    landmarks : {"auto", "rpcholesky", "uniform"} or rows, default="auto"
        ``"rpcholesky"``: the pivots of a randomly pivoted Cholesky factorisation of
        all rows, or of a uniform sample of as many as take 5·10¹⁰ operations (50,000
        for 1,000 landmarks), at least five per landmark, or as memory allows;
        ``"uniform"``: rows drawn uniformly; ``"auto"``: the former up to 1,500
        landmarks, and the latter beyond. Rows are taken as the landmarks themselves,
        whatever `n_components`.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers in place of rules that depend on data.
    landmarks_ : array or CSR matrix of shape (n_features_out, n_features_in)
        In float64.
    plan_ : Plan
        The map, which holds the landmarks and T: D² numbers, also in files.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    RandomFeatures : features that need no rows, and are cheaper to compute.

    Notes
    -----
    With "rpcholesky" the mean error of the diagonal, k(x, x) − φ(x)·φ(x), is near the
    least possible for any features: it decreases with the eigenvalues of the kernel,
    whereas the error of random features decreases as 1/√D.

    References
    ----------
    Williams and Seeger 2001, "Using the Nyström method to speed up kernel machines";
    Chen, Epperly, Tropp and Webber 2022, "Randomly pivoted Cholesky",
    arXiv 2207.06503; Epperly, Tropp and Webber 2024, "Embrace rejection",
    arXiv 2410.03969.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> features = rk.NystromFeatures(rk.Gaussian(2.0), 100, random_state=0)
    >>> Z = features.fit_transform(X)
    >>> Z.shape
    (500, 100)
    >>> bool(np.abs(Z @ Z.T - rk.Gaussian(2.0)(X)).max() < 0.01)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_FeatureTransformer._parameter_constraints,
        "landmarks": [
            StrOptions({"auto", "rpcholesky", "uniform"}),
            "array-like",
            "sparse matrix",
        ],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int = 1000,
        *,
        landmarks: Any = "auto",
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.n_components = n_components
        self.landmarks = landmarks
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> NystromFeatures:
        """Choose landmarks among the rows of `X`.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, Dask array or dataframe of shape (n, d)
            For a Dask collection, workers draw a sample of at most 16 MB that is used
            in place of all rows.
        y : ignored
        """
        return self._fit(X)

    def _plan(self, X: Rows, sample_weight: np.ndarray | None, stream: Stream) -> Plan:
        landmarks = self.landmarks
        if not isinstance(landmarks, str):
            try:
                landmarks = validate_rows(self, landmarks, reset=False)
            except (TypeError, ValueError) as error:
                raise type(error)(f"landmarks are not valid rows: {error}") from error
        limit = resolve_memory_limit(ops_of(X).memory_limit(X))
        return landmark_plan(
            self.kernel_,
            X,
            sample_weight,
            check_count("n_components", self.n_components),
            stream,
            landmarks=landmarks,
            memory_limit=limit,
        )

    @property
    def landmarks_(self) -> Any:
        """The landmarks, in the order of the features, float64."""
        check_is_fitted(self)
        (group,) = self.plan_.groups
        projection: Any = group.factors[0].projection
        return projection.rows
