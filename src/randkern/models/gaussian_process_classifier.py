"""Gaussian process classification, on random features or on the exact kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._random import root_stream
from randkern._sklearn import StrOptions
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data.columns import split_target
from randkern.kernels import Kernel
from randkern.models._gp_laplace import (
    Bernoulli,
    Softmax,
    mean_probability,
    mean_softmax,
)
from randkern.models._gp_model import GaussianProcess
from randkern.models._targets import ClassLabels
from randkern.models.callbacks import with_callbacks


class GaussianProcessClassifier(ClassLabels, ClassifierMixin, GaussianProcess):
    """Gaussian process classification on random features, or on the exact kernel.

    P(y = 1 | x) = 1/(1 + exp(−f(x))) with f(x) = φ(x)·b, b ~ N(0, I). Laplace's
    approximation replaces the posterior of b by a normal distribution at its mode, with
    the full D × D precision I + ZᵀWZ; probabilities are averaged over it. For several
    classes P(y = c | x) = exp(f_c(x))/Σ_d exp(f_d(x)), with one kernel for all f_c.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``1.0 * Gaussian(lengthscale="scale")``. Learned are lengthscales and
        scales of multiples, which determine how far probabilities are from one half.
    n_components : int, sequence of int or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        Maximises the approximate log marginal likelihood; None keeps the given
        hyperparameters.
    n_restarts_optimizer : int, default=0
        Number of additional starts, each a factor of about 4 away from the first.
    bounds, priors : dict or None, default=None
        By name of a learned number: bounds, ``"fixed"`` or the smallest and largest
        value, as ``{"lengthscale": (0.1, 10.0)}``, and log-normal priors, the median
        and the standard deviation of the logarithm. Names are those of
        `hyperparameters_`; without an index or a path they refer to every entry of that
        name.
    class_weight : dict, "balanced" or None, default=None
        A factor for the rows of each class; ``"balanced"``: n_samples / (n_classes ·
        rows of the class). None: 1 for all.
    projection : str, default="auto"
        How the random matrix is drawn: ``"dense"``, with independent rows, and stored;
        ``"streamed"``, the same, recomputed when needed; ``"orthogonal"``, in
        orthogonal blocks, for a lower variance; ``"structured"``, in such blocks by
        fast Walsh-Hadamard transforms; ``"qmc"``, from a Sobol sequence; ``"auto"``,
        by kernel and number of columns.
    fourier : {"pair", "offset"}, default="pair"
        For stationary kernels. ``"pair"``: cosines and sines of D/2 frequencies;
        ``"offset"``: cosines of D frequencies with random phases.
    features : {"random", "nystrom"}, default="random"
        ``"random"``: random features of the kernel; ``"nystrom"``: its values at
        `n_components` landmark rows, with the variance of the deterministic training
        conditional, which far from the data is that of the prior.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``: a fit that needs more raises
        :class:`~randkern.exceptions.MemoryLimitError`. None: 2 GB.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    kernel_, plan_, hyperparameters_, theta_, n_rows_learned_
        The kernel with the learned numbers, the plan of its features, names and
        logarithms of the learned numbers, and how many rows they were learned from: a
        uniform sample of 1,000 for features (464 for ten classes), all for the exact
        kernel.
    log_marginal_likelihood_value_ : float
        Laplace's approximation for all rows; for more than two classes, for the rows
        that were learned from.

    Notes
    -----
    PyTorch tensors are processed on their own device, under
    ``sklearn.config_context(array_api_dispatch=True)``.

    Several classes are learned by Laplace's approximation for the sampled rows, jointly
    (algorithm 3.3). The mode given all rows is that of
    :class:`~randkern.KernelLogistic` with C=1. The precisions of the weights there are
    I + ZᵀD_cZ, D × D each, with D_c the probabilities of class c: the coupling of
    classes is neglected, so variances of differences f_c − f_d are a little smaller
    than those of the joint precision, down to a half if one class is certain.
    Probabilities are averages over 512 points of a Sobol sequence, without random
    numbers.

    References
    ----------
    Rasmussen & Williams 2006, "Gaussian processes for machine learning", sections 3.4,
    3.5 and 5.5.1.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = rk.GaussianProcessClassifier(n_components=200, random_state=0)
    >>> model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **GaussianProcess._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int | Sequence[int] | None = 1000,
        *,
        optimizer: str | None = "l-bfgs-b",
        n_restarts_optimizer: int = 0,
        bounds: dict[str, Any] | None = None,
        priors: dict[str, Any] | None = None,
        class_weight: Any = None,
        projection: str = "auto",
        fourier: str = "pair",
        features: str = "random",
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.n_components = n_components
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.bounds = bounds
        self.priors = priors
        self.class_weight = class_weight
        self.projection = projection
        self.fourier = fourier
        self.features = features
        self.memory_limit = memory_limit
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
    ) -> GaussianProcessClassifier:
        """Fit to rows and their labels.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their labels and weights; Dask collections are summed on their workers.
        y : array of shape (n,)
            Labels; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Counts of the rows: 1 each by default.
        target : str, optional
            The column of a dataframe `X`, of Dask or in memory, that holds `y`.
        """
        self._validate_params()
        X, y = split_target(X, y, target)
        report = self._report(X, y, sample_weight)
        stream = root_stream(self.random_state)
        data = self._read(X, y, sample_weight, stream)
        self._infer(data, Softmax() if self._many_targets else Bernoulli(), report)
        if self.plan_ is None:
            self.X_fit_ = self._posterior.X
        report.end()
        return self

    def _class_values(self, X: Any) -> Any:
        return self.predict_proba(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class, (n, n_classes).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        check_is_fitted(self)
        width = len(self.classes_)
        like = self._posterior.mean
        return self._mapped(self.predict_proba, X, self._probabilities, width, like)

    def _probabilities(self, X: Rows) -> np.ndarray:
        """Return the probabilities of checked rows."""
        return self._mean_probabilities(*self._posterior.moments(X))

    def _mean_probabilities(self, means: Any, variances: Any) -> Any:
        """Return probabilities given means and variances of every f, (n, k)."""
        if isinstance(self._likelihood, Softmax):
            return mean_softmax(means, variances)
        chance = mean_probability(means[:, 0], variances[:, 0])[:, None]
        return ops_of(means).hstack([1 - chance, chance])
