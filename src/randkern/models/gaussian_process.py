"""Gaussian process regression, on random features or on the exact kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import (
    Rows,
    check_count,
    check_has_targets,
    check_weights,
    validate_rows,
)
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.columns import split_target
from randkern.data.reading import are_in_memory
from randkern.data.sharded import column_of, is_dask, lazily
from randkern.data.target_statistics import MAX_PROCESS_TARGET
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Kernel
from randkern.models._feature_model import check_same_device
from randkern.models._gp_evidence import Normal
from randkern.models._gp_laplace import likelihood_of
from randkern.models._gp_likelihood import Likelihood
from randkern.models._gp_model import (
    GaussianProcess,
    add_mean_function,
    units_of,
)
from randkern.models._gp_neighbors import Nearest, check_neighbors
from randkern.models._gp_paths import Draws, posterior_paths
from randkern.models._gp_posterior import Posterior
from randkern.models._targets import Numbers, RealTargets
from randkern.models.callbacks import with_callbacks
from randkern.models.memory import SUMMED_ROWS


class GaussianProcessRegressor(RealTargets, RegressorMixin, GaussianProcess):
    """Gaussian process regression on random features, or on the exact kernel.

    y_i = f(x_i) + ε_i, ε_i ~ N(0, σ²). On features f(x) = φ(x)·b with b ~ N(0, I),
    whose covariance is the kernel in the limit of many features; with
    A = ZᵀZ + σ²I

        mean φ(x)·A⁻¹Zᵀy,   Var f(x) = σ² φ(x)·A⁻¹φ(x),

    with the full D × D matrix. Sums over rows are computed block by block in float64,
    so that memory is about D² numbers, never n·D. Lengthscales, scales and noise are
    learned by maximising the log marginal likelihood with analytic gradients through
    the features, for fixed random draws.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``1.0 * Gaussian(lengthscale="scale")``. Learned are each lengthscale (a
        vector gives one per column) and the scale of each multiple ``s * kernel``; a
        rule such as ``"scale"`` is the start of learning. Without a multiple the
        variance of f is fixed.
    noise : float, default=1e-2
        σ² > 0, the **variance** of the noise (scikit-learn's ``alpha``); also learned.
    n_components : int, sequence of int or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        None keeps the given hyperparameters.
    n_restarts_optimizer : int, default=0
        Number of additional starts, each a factor of about 4 away from the first.
    bounds : dict or None, default=None
        ``"fixed"``, or the smallest and largest value, of learned numbers:
        ``{"noise": "fixed", "lengthscale": (0.1, 10.0)}``. Names are those of
        `hyperparameters_`; without an index they refer to a whole vector, without a
        path to every attribute of that name, unless overridden by a more specific name.
        Paths are those of the given kernel, also with a `mean`.
    priors : dict or None, default=None
        Log-normal priors of learned numbers, as ``{"lengthscale": (median, sigma)}``
        with sigma the standard deviation of the logarithm: learning then maximises the
        log likelihood plus Σ −(log v − log median)²/(2σ²), the posterior density of θ.
    mean : {"zero", "constant", "linear"}, default="zero"
        The mean of f: ``"zero"``; ``"constant"``: a number; ``"linear"``: a number and
        coefficients of the columns. Their prior is vague, and they are integrated out.
    normalize_y : bool, default=False
        Scale targets to mean 0 and variance 1: `noise` is then in units of their
        variance. For ``likelihood="student-t"``, to median 0 and the median deviation
        of a standard normal, which are robust to outliers.
    weights : {"counts", "precision"}, default="counts"
        Meaning of a row's weight w. ``"counts"``: the row counts as w equal rows;
        ``"precision"``: its noise has the variance σ²/w. The posterior is the same in
        both cases, but not the likelihood. For known variances v of rows,
        ``sample_weight=1 / v``, ``noise=1.0`` and ``bounds={"noise": "fixed"}``.
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
        `n_components` landmark rows. The mean is then that of the subset of regressors,
        the variance that of the deterministic training conditional, which adds the
        variance that features omit: far from the data it is that of the prior.
    likelihood : {"gaussian", "student-t", "poisson"}, default="gaussian"
        The distribution of a target given f. ``"gaussian"``: f plus normal noise;
        ``"student-t"``: f plus σ times Student's t with 4 degrees of freedom, for
        outliers; ``"poisson"``: counts with the rate c·exp(f), c their mean. The latter
        two use Laplace's approximation, for a single target (see Notes).
    n_neighbors : int or None, default=None
        k: every prediction is that of the exact process given the k nearest rows of the
        fit, by O(k³) operations (Vecchia's approximation, see Notes); with
        ``n_components=None``. For many rows of few columns whose values vary too
        quickly for features; 16 to 64 are usual. None: given all rows.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``: a fit that needs more raises
        :class:`~randkern.exceptions.MemoryLimitError`. None: 2 GB.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the learned numbers.
    noise_ : float
        The learned σ².
    hyperparameters_ : list of str
        Names of the entries of θ: numbers of the kernel as in ``get_params``, then
        ``"noise"``. θ holds their natural logarithms, or the arsinh of loadings
        (numbers of any sign, see :class:`~randkern.Coregionalization`).
    theta_ : ndarray
        θ at the end of learning: a NumPy array on the host, also for fits to tensors.
    log_marginal_likelihood_value_ : float
        The log marginal likelihood of all rows at `theta_`; with `n_neighbors`,
        computed when it is read.
    coef_ : ndarray of shape (D,) or (n_targets, D)
        Posterior mean of the weights of features.
    precision_factor_ : ndarray of shape (D, D)
        Lower triangular Cholesky factor of I + ZᵀZ/σ², the posterior precision.
    dual_coef_ : ndarray of shape (n,) or (n, n_targets)
        Weights of the rows ``X_fit_``, for the exact kernel.
    plan_ : Plan or None
    n_rows_learned_ : int
        Number of rows that the hyperparameters were learned from.

    Notes
    -----
    Learning starts from the kernel's lengthscales, and from a quarter and four times
    these, with the scale and noise that suit the targets, in any unit. If there is one
    lengthscale per column, the last start has a quarter of those of columns that
    correlate with the targets, in value or in distance from the mean. L-BFGS-B
    maximises the exact likelihood of 300 rows from each, and that of 500 to 1,000 rows
    on features from the best. Results and starts are then compared by the likelihood of
    all rows, each at its best scale and noise (from one eigendecomposition), and
    L-BFGS-B continues from the best. The final likelihood is thus no lower than that of
    any start, nor than that of a constant. L-BFGS-B stops when two steps gain less than
    10⁻⁴ of log likelihood (10⁻⁴ per row if evaluations are expensive), or after 6·10¹¹
    operations and at least 10 evaluations. If evaluations are expensive, it uses
    estimated gradients, and sums in single precision if the noise is large enough. A
    :class:`~sklearn.exceptions.ConvergenceWarning` reports a result on a bound, before
    a maximum, or a process of negligible variance.

    An evaluation of the likelihood with its gradient takes about 4nD² operations.
    Beyond 10¹¹ (n = 25,000 at D = 1,000, but never below 2,000 rows) the
    hyperparameters are learned from a uniform sample of as many rows; the posterior
    always uses all rows. For rows that are not in memory the sample takes at most
    64 MB. The exact kernel uses all rows. Landmarks, which are chosen again for the
    learned kernel, use the exact likelihood of 1,000 rows. Features are float64 even
    for float32 rows, unless the likelihood is not Gaussian.

    Many rows determine d = tr ZᵀZA⁻¹ of the D weights of random features, which reduces
    the variance by the share d/D even far from all rows. With landmarks, and with the
    exact kernel, it returns there to that of the prior.

    For other likelihoods the posterior of f is approximated by a normal distribution at
    its mode (Rasmussen & Williams 2006, section 3.4), which Newton's method finds in
    passes over all rows. Hyperparameters are learned with the approximate likelihood of
    a uniform sample of 1,000 rows, or of all rows for the exact kernel. For Student's
    t, `noise` is σ², and the curvature is Fisher's information (Laplace-Fisher
    approximation). `predict` returns E[y | f] averaged over the posterior, and its
    standard deviation.

    With `n_neighbors` k, let C = K + σ²W⁻¹ be the covariance of the targets of the k
    rows nearest to x, and c the kernel values of x with them:

        mean cᵀC⁻¹y,   Var f(x) = k(x, x) − cᵀC⁻¹c.

    Distances are those of columns over their learned lengthscales. The log marginal
    likelihood is Σ log p(y_i | targets of k rows that precede row i in a random order,
    near it), exact for k ≥ n − 1 (Vecchia 1988; Datta et al. 2016); hyperparameters are
    learned from 2,000 of its terms, with neighbours by the given lengthscales, in place
    of the second and third likelihood above. Joint distributions of new rows
    (`return_cov`, `sample_y`, `sample_paths`) need ``n_neighbors=None``. Rows at one
    place are one neighbour, with the mean of their targets. If the k nearest places are
    much closer to each other than to all others, as in a dense cluster, a prediction
    knows of these alone: increase k, or use landmarks.

    A mean function h(x)·β with β ~ N(0, vI) is a term v h(x)·h(y) of the covariance
    (Rasmussen & Williams 2006, section 2.7): `kernel_` is ``kernel + v * Linear(1.0)``,
    about the means of the columns, or on no columns for a constant. v is not learned:
    it is 10⁴ times the mean square of the targets, divided by the variance of the
    smallest column, so that predictions are those of generalised least squares to about
    10⁻³. Scale columns of very different sizes, and with ``mean="zero"`` centre targets
    far from 0 (`normalize_y`).

    Several targets share the hyperparameters and are independent;
    :class:`~sklearn.multioutput.MultiOutputRegressor` gives each its own. ``kernel *
    Coregionalization(...)`` correlates outputs whose index is a column.

    Callbacks of scikit-learn (``set_callbacks``) are called at every step, and may stop
    learning.

    PyTorch tensors are processed on their own device, under
    ``sklearn.config_context(array_api_dispatch=True)``. Fitted arrays and predictions
    are on that device, θ and the noise are numbers on the host.

    References
    ----------
    Rasmussen & Williams 2006, "Gaussian processes for machine learning", eqs. 2.11 and
    5.9; Lázaro-Gredilla et al. 2010, "Sparse spectrum Gaussian process regression";
    Quiñonero-Candela & Rasmussen 2005, "A unifying view of sparse approximate Gaussian
    process regression", sections 4 to 6; Vecchia 1988, "Estimation and model
    identification for continuous spatial processes"; Datta et al. 2016, "Hierarchical
    nearest-neighbor Gaussian process models for large geostatistical datasets";
    Snelson & Ghahramani 2006, "Sparse Gaussian processes using pseudo-inputs"; Hartmann
    & Vanhatalo 2019, "Laplace approximation and natural gradient for Gaussian process
    regression with heteroscedastic Student-t model".

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> model = rk.GaussianProcessRegressor(n_components=300, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 4 * std[0])
    True
    >>> round(model.noise_**0.5, 1)
    0.1
    >>> counts = rng.poisson(np.exp(1 + np.sin(2 * X[:, 0])))
    >>> model = rk.GaussianProcessRegressor(
    ...     n_components=100, likelihood="poisson", random_state=0
    ... )
    >>> bool(abs(model.fit(X, counts).predict([[0.5]])[0] - np.exp(1.84)) < 2)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **GaussianProcess._parameter_constraints,
        "noise": [Interval(Real, 0, None, closed="neither")],
        "mean": [StrOptions({"zero", "constant", "linear"})],
        "normalize_y": ["boolean"],
        "weights": [StrOptions({"counts", "precision"})],
        "likelihood": [StrOptions({"gaussian", "student-t", "poisson"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        noise: float = 1e-2,
        n_components: int | Sequence[int] | None = 1000,
        *,
        optimizer: str | None = "l-bfgs-b",
        n_restarts_optimizer: int = 0,
        bounds: dict[str, Any] | None = None,
        priors: dict[str, Any] | None = None,
        mean: str = "zero",
        normalize_y: bool = False,
        weights: str = "counts",
        projection: str = "auto",
        fourier: str = "pair",
        features: str = "random",
        likelihood: str = "gaussian",
        n_neighbors: int | None = None,
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.noise = noise
        self.n_components = n_components
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.bounds = bounds
        self.priors = priors
        self.mean = mean
        self.normalize_y = normalize_y
        self.weights = weights
        self.projection = projection
        self.fourier = fourier
        self.features = features
        self.likelihood = likelihood
        self.n_neighbors = n_neighbors
        self.memory_limit = memory_limit
        self.random_state = random_state

    # -- fitting --------------------------------------------------------------

    @all_or_nothing
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
    ) -> GaussianProcessRegressor:
        """Fit to rows and their targets.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their targets and weights; Dask collections are summed on their
            workers.
        y : array of shape (n,) or (n, n_targets)
            Targets; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Counts or precisions of the rows, depending on `weights`.
        target : str, optional
            The column of a dataframe `X`, of Dask or in memory, that holds `y`.
        """
        self._validate_params()
        X, y = split_target(X, y, target)
        check_neighbors(self, X)
        report = self._report(X, y, sample_weight)
        stream = root_stream(self.random_state)
        data = self._read_rows(X, y, sample_weight, stream)
        rows, sample = data.rows, data.sample
        self._target_mean, self._target_scale = units_of(
            rows,
            center=self.mean != "zero" and self.likelihood != "poisson",
            normalize=self.normalize_y,
            median_stream=stream.child("units")
            if self.likelihood == "student-t"
            else None,
        )
        rows = rows.rescaled(self._target_mean, self._target_scale)
        rows.survey().check_sizes(MAX_PROCESS_TARGET)
        kernel = add_mean_function(self._kernel_or_default, self.mean, rows, sample[0])
        data = self._drawn(replace(data, rows=rows), kernel)
        self.intercept_ = 0.0
        self._infer(data, self._likelihood_of(data.rows, stream), report)
        if "noise" in self.hyperparameters_:
            self.noise_ = math.exp(self.theta_[-1])
        self._set_coefficients()
        report.end()
        return self

    def _likelihood_of(self, rows: TrainingData, stream: Stream) -> Likelihood:
        """Return the likelihood of rows in units of the fit, with the first noise."""
        noise, precisions = float(self.noise), self.weights == "precision"
        if self.n_neighbors is not None:
            k = int(self.n_neighbors)
            return Nearest(noise, precisions, k, stream.child("neighbors"))
        if self.likelihood == "gaussian":
            return Normal(noise, precisions)
        return likelihood_of(
            self.likelihood,
            rows,
            noise,
            counted=not precisions,
            normalized=self.normalize_y,
        )

    def _set_coefficients(self) -> None:
        """Set the attributes with the mean of the posterior."""
        posterior = self._posterior
        if not isinstance(posterior, Posterior):
            return
        if self.plan_ is not None:
            self.coef_ = self._as_coef(posterior.mean)
        else:
            self.X_fit_ = posterior.X
            self.dual_coef_ = self._drop_single_target(posterior.mean)

    @property
    def precision_factor_(self) -> np.ndarray:
        """Cholesky factor of the precision of the weights of features."""
        likelihood = getattr(self, "_likelihood", None)
        if isinstance(likelihood, Normal) and self.plan_ is not None:
            return self._posterior.factors[0]
        raise AttributeError("only fits on features have a precision_factor_.")

    # -- prediction -----------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        include_noise: Any = False,
    ) -> Any:
        """Return the posterior mean, and optionally standard deviations or covariance.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy; `return_cov` needs rows in memory.
        return_std : bool
            Also return standard deviations, with the shape of the mean.
        return_cov : bool
            Also return the covariance of all rows, (n, n), or (n, n, n_targets).
        include_noise : bool or array of shape (n,)
            Whether these are for new targets y (σ² is added) or for f. With
            ``weights="precision"`` an array holds weights w of the new rows, for σ²/w.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, n_targets)
        std or cov : ndarray
        """
        if return_std and return_cov:
            raise ValueError(
                "return_std and return_cov cannot both be True; call predict twice."
            )
        check_is_fitted(self)
        if return_cov:
            return self._mean_and_covariance(X, include_noise)
        is_normal = isinstance(self._likelihood, Normal)
        if is_normal and not return_std:
            return self._values(X)
        if is_dask(X) and return_std:
            return self._lazy_mean_and_std(X, include_noise)
        noise = self._noise_of_rows(X, include_noise)

        def moments(rows: Rows) -> Any:
            mean, std = self._moments(rows, noise)
            return (mean, std) if return_std else mean

        is_joint = isinstance(self._posterior, Posterior)
        like = self._posterior.mean if is_joint else None
        return self._mapped(self.predict, X, moments, None, like)

    def _moments(self, X: Rows, noise: Any = False) -> tuple[Any, Any]:
        """Return means and standard deviations of checked rows, in units of targets."""
        likelihood: Any = self._likelihood
        means, variances = likelihood.moments(*self._posterior.moments(X), noise)
        return self._in_units(means), self._with_units(variances[:, 0] ** 0.5, 1)

    def _mean_and_covariance(self, X: Any, include_noise: Any) -> tuple[Any, Any]:
        """Return means of rows in memory, and their covariance."""
        posterior = self._joint("return_cov")
        if not are_in_memory(X):
            raise ValueError(
                f"return_cov=True needs rows in memory, got {type(X).__name__}; pass "
                "an array."
            )
        noise = self._noise_of_rows(X, include_noise)
        X = validate_rows(self, X, reset=False)
        covariance = posterior.covariance(X)
        zero = 0.0 * covariance.diagonal()
        likelihood: Any = self._likelihood
        _, added = likelihood.moments(zero, zero, noise)
        ops_of(X).algebra.add_to_diagonal(covariance, added)
        return self._values_of(X), self._with_units(covariance, 2)

    def _noise_of_rows(self, X: Any, include_noise: Any) -> Any:
        """Return whether noise is included, or the weights of its precisions."""
        if np.ndim(include_noise) == 0:
            return bool(include_noise)
        self._check_gaussian("an array of include_noise")
        if self.weights != "precision" or not are_in_memory(X):
            raise ValueError(
                "include_noise takes weights of rows in memory, of a process with "
                "weights='precision' and a Gaussian likelihood."
            )
        weight: Any = check_weights(include_noise, validate_rows(self, X, reset=False))
        if not bool((weight > 0).all()):
            raise ValueError(
                f"include_noise has the weight {float(weight.min()):.3g}, expected "
                "positive weights of new rows; pass only rows of positive weight."
            )
        return weight

    def _lazy_mean_and_std(self, X: Any, include_noise: Any) -> tuple[Any, Any]:
        """Return means and standard deviations of a Dask collection."""
        if np.ndim(include_noise):
            raise ValueError(
                "include_noise must be True or False for a Dask collection, got an "
                f"{type(include_noise).__name__}; pass weights with arrays."
            )
        k = self._n_outputs
        arguments = {"return_std": True, "include_noise": include_noise}
        columns = lazily(self.predict, X, 2 * (k or 1), arguments=arguments)
        if k is None:
            return column_of(columns, 0), column_of(columns, 1)
        numbers = list(range(2 * k))
        return column_of(columns, numbers[:k]), column_of(columns, numbers[k:])

    def _check_gaussian(self, what: str) -> None:
        """Raise unless the likelihood is Gaussian."""
        check_is_fitted(self)
        if not isinstance(self._likelihood, Normal):
            raise ValueError(
                f"{what} needs likelihood='gaussian', got {self.likelihood!r}."
            )

    def _with_units(self, spread: np.ndarray, power: int) -> np.ndarray:
        """Return deviations (power 1) or covariances (2) in units of the targets."""
        scale = ops_of(spread).float64_like(self._target_scale, spread)
        scaled = spread[..., None] * scale**power
        return scaled if self._n_outputs is not None else scaled[..., 0]

    def _joint(self, what: str) -> Posterior:
        """Return the posterior of f at several rows; raise if there is none."""
        self._check_gaussian(what)
        posterior = self._posterior
        if not isinstance(posterior, Posterior):
            raise ValueError(
                f"{what} needs the joint distribution of several rows, but "
                f"n_neighbors={self.n_neighbors} has that of single rows; use "
                "n_neighbors=None, with n_components for many rows."
            )
        return posterior

    def _in_units(self, means: np.ndarray) -> np.ndarray:
        """Return means (n, n_targets) of f in units of the targets."""
        like = ops_of(means).float64_like
        values = means * like(self._target_scale, means)
        values += like(self._target_mean, means)
        return values if self._n_outputs is not None else values[:, 0]

    def _values_of(self, X: Rows, moved: bool = False) -> np.ndarray:
        if not isinstance(self._posterior, Posterior):
            return self._moments(X)[0]
        ops = ops_of(X)
        shape = (X.shape[0], len(self._target_mean))
        out = ops.float64_zeros(shape[:1] if self._n_outputs is None else shape, X)
        for part in row_blocks(X.shape[0], SUMMED_ROWS):
            out[part] = super()._values_of(ops.as_float64(X[part]), moved)
        like = ops_of(out).float64_like
        return out * like(self._target_scale, out) + like(self._target_mean, out)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Return draws of f at rows `X` from the posterior.

        On features, weights are drawn, at the cost of a prediction; the exact kernel
        needs the covariance of all rows.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of n rows
        n_samples : int
        random_state : int, generator or None

        Returns
        -------
        ndarray of shape (n, n_samples) or (n, n_targets, n_samples)
        """
        check_count("n_samples", n_samples)
        posterior = self._joint("sample_y")
        if self.plan_ is not None:
            return self.sample_paths(n_samples, random_state)(X)
        X = validate_rows(self, X, reset=False)
        ops = ops_of(X)
        generator = root_stream(random_state).child("sample_y").generator()
        values, vectors = ops.algebra.symmetric_eigenpairs(
            ops.contiguous(posterior.covariance(X))
        )
        columns = (X.shape[0], len(self._target_mean) * n_samples)
        right = ops.float64_like(generator.normal(size=columns), X)
        draws = (vectors * values.clip(0.0) ** 0.5) @ right
        return self._about_the_mean(X, draws)

    def sample_paths(self, n_paths: int = 1, random_state: Any = 0) -> Any:
        """Return draws of f from the posterior, as one function of rows.

        Every call of the function returns values of the same draws, for any rows. On
        features a path is φ(x)·b with b from the posterior of the weights; on landmarks
        the part of a prior draw that these omit is added. For the exact kernel it is a
        draw of the prior, on 2,000 random features, conditioned on the targets by
        Matheron's rule:

            f(x) + k(x, X)(K + σ²W⁻¹)⁻¹(y − f(X) − ε),

        which has the covariance of the posterior up to the error of those features.

        Parameters
        ----------
        n_paths : int
        random_state : int, generator or None

        Returns
        -------
        callable
            Returns an ndarray of shape (n, n_paths) or (n, n_targets, n_paths) for an
            array, CSR matrix or dataframe of n rows.

        References
        ----------
        Wilson et al. 2020, "Efficiently sampling functions from Gaussian process
        posteriors".

        Examples
        --------
        >>> import numpy as np, randkern as rk
        >>> X = np.linspace(0, 3, 30)[:, None]
        >>> model = rk.GaussianProcessRegressor(n_components=50, random_state=0)
        >>> path = model.fit(X, np.sin(X[:, 0])).sample_paths()
        >>> path([[0.5], [99.0]]).shape
        (2, 1)
        """
        check_count("n_paths", n_paths)
        posterior = self._joint("sample_paths")
        columns = len(self._target_mean) * n_paths
        paths = posterior_paths(posterior, columns, random_state)
        return partial(self._path_values, paths)

    def _path_values(self, paths: Draws, X: Any) -> np.ndarray:
        """Return values of draws of f less its mean, with the mean, at rows."""
        X = validate_rows(self, X, reset=False)
        check_same_device(X, self._model_weights)
        return self._about_the_mean(X, paths(ops_of(X).as_float64(X)))

    def _about_the_mean(self, X: Rows, draws: np.ndarray) -> np.ndarray:
        """Return draws (n, n_targets·m) in units of the targets, plus the mean."""
        k = len(self._target_mean)
        draws = draws.reshape(X.shape[0], k, -1)
        draws *= ops_of(X).float64_like(self._target_scale, X)[:, None]
        draws += self._values_of(X).reshape(X.shape[0], k, 1)
        return draws if self._n_outputs is not None else draws[:, 0]

    def condition_on(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> GaussianProcessRegressor:
        """Return the process given more rows, with the same hyperparameters.

        It equals a fit to all rows with these hyperparameters and draws, and takes
        O(D²) operations per row on features, O(n²) for the exact kernel, without the
        rows of the fit. Targets keep the units of the fit.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (m, d)
        y : array of shape (m,) or (m, n_targets)
        sample_weight : array of shape (m,), optional

        Returns
        -------
        GaussianProcessRegressor
            A new process; this one is not changed.

        References
        ----------
        Golub & Van Loan 2013, "Matrix computations", section 6.5.4.

        Examples
        --------
        >>> import numpy as np, randkern as rk
        >>> X = np.linspace(0, 3, 30)[:, None]
        >>> model = rk.GaussianProcessRegressor(n_components=50, random_state=0)
        >>> before = model.fit(X, np.sin(X[:, 0]))
        >>> after = before.condition_on([[4.0]], [0.0])
        >>> bool(abs(after.predict([[4.0]])[0]) < 0.1)
        True
        """
        self._check_gaussian("condition_on")
        check_neighbors(self, X)
        X = validate_rows(self, X, reset=False)
        if isinstance(self._posterior, Posterior):  # others take arrays alone
            check_same_device(X, self._model_weights)
        check_has_targets(self, y)
        reader = Numbers(self._n_outputs)
        Y, weight = reader.columns(X, y, check_weights(sample_weight, X))
        rows = ArrayRows(ops_of(X).as_float64(X), Y, weight)
        rows = rows.rescaled(self._target_mean, self._target_scale)
        out = copy(self)
        likelihood: Any = self._likelihood
        out._posterior = likelihood.conditioned(self._posterior, rows)
        out._set_coefficients()
        return out
