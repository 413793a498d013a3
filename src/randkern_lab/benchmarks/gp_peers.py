"""Gaussian processes of other libraries: GPyTorch's, xGPR's, scikit-learn's.

GPyTorch uses Adam and float32, as in its tutorials, but `RFFKernel` uses float64, since
its D × D matrices have no Cholesky factor in float32. The exact process and `RFFKernel`
take full gradients with steps of 0.1, SVGP takes batches of 1,024 rows with steps of
0.05, with which it gets further in the same time than with the tutorials' 0.01. The
density of a tenth of the training rows (at most 2,000), held out of learning, decides
when to stop and which step is kept; the time of learning is bounded, too. Libraries are
imported on use.
"""

import copy
import importlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Predicted",
    "climb",
    "predict_gpytorch",
    "predict_scikit_learn",
    "predict_svgp",
    "predict_xgpr",
]

_BATCH = 1024
_FULL_RATE, _SVGP_RATE = 0.1, 0.05
# Held out for stopping: one row in ten, at most 2,000.
_HELD_SHARE, _MOST_HELD = 10, 2000
# Steps between evaluations of the density there, for full gradients and for batches;
# evaluations without improvement after which learning ends.
_FULL_EVERY, _SVGP_EVERY = 5, 20
_PATIENCE = 5


class Predicted(NamedTuple):
    """Means and variances of test targets, including noise, and how Adam ended.

    `steps` is the number of steps; `out_of_time` is whether the budget ended them.
    """

    mean: NDArray[Any]
    variance: NDArray[Any]
    steps: int | None = None
    out_of_time: bool | None = None


def predict_gpytorch(
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    n_components: int | None,
    budget: float,
    noise: float,
    seed: int,
) -> Predicted:
    """Learn by full gradients of the likelihood, exact or with ``RFFKernel``.

    Parameters
    ----------
    X, y, X_test : ndarray
        Rows (n, d), targets (n,), test rows.
    n_components : int or None
        D, cosines and sines of D/2 samples; None for the exact kernel.
    budget : float
        Largest CPU time of Adam in seconds, over all processors.
    noise : float
        Initial noise variance; lengthscales start from √d.
    seed : int

    Returns
    -------
    Predicted
        Conditioned on all rows, including those held out for stopping.
    """
    torch, gpytorch = _import()
    torch.manual_seed(seed)
    dtype = np.float32 if n_components is None else np.float64
    all_rows, all_targets = _tensors(torch, X, y, dtype=dtype)
    (rows, targets), held = _split(torch, all_rows, all_targets)
    d = rows.shape[1]
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__(rows, targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RBFKernel(ard_num_dims=d)
            if n_components is not None:
                base = gpytorch.kernels.RFFKernel(
                    num_samples=max(1, n_components // 2), num_dims=d, ard_num_dims=d
                )
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x: Any) -> Any:
            mean, cov = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, cov)

    model = Model().to(all_rows.dtype)  # it includes the likelihood
    _start(model.covar_module, likelihood, d, noise)
    likelihood_of_all = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    ended = climb(
        torch.nn.ModuleList([model, likelihood]),
        lambda: -likelihood_of_all(model(rows), targets),
        lambda: _density(torch, model, likelihood, *held),
        rate=_FULL_RATE,
        every=_FULL_EVERY,
        budget=budget,
    )
    model.set_train_data(all_rows, all_targets, strict=False)
    return _predict(torch, model, likelihood, X_test, ended)


def predict_svgp(
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    n_components: int,
    budget: float,
    noise: float,
    seed: int,
) -> Predicted:
    """Learn a sparse variational process with D inducing points, in batches of 1,024.

    Parameters and return values are those of :func:`predict_gpytorch`; the rows held
    out for stopping are not used for learning.
    """
    torch, gpytorch = _import()
    torch.manual_seed(seed)
    (rows, targets), held = _split(torch, *_tensors(torch, X, y))
    n, d = rows.shape
    variational = gpytorch.variational
    points = rows[torch.randperm(n)[:n_components]].clone()

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            posterior = variational.CholeskyVariationalDistribution(len(points))
            strategy = variational.VariationalStrategy(
                self, points, posterior, learn_inducing_locations=True
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RBFKernel(ard_num_dims=d)
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x: Any) -> Any:
            mean, cov = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, cov)

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    _start(model.covar_module, likelihood, d, noise)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)

    def batches() -> Iterator[Any]:
        while True:
            yield from torch.randperm(n).split(_BATCH)

    batch = batches()

    def loss() -> Any:
        chosen = next(batch)
        return -bound(model(rows[chosen]), targets[chosen])

    ended = climb(
        torch.nn.ModuleList([model, likelihood]),
        loss,
        lambda: _density(torch, model, likelihood, *held),
        rate=_SVGP_RATE,
        every=_SVGP_EVERY,
        budget=budget,
    )
    return _predict(torch, model, likelihood, X_test, ended)


def climb(
    modules: Any,
    loss: Callable[[], Any],
    density: Callable[[], float],
    *,
    rate: float,
    every: int,
    budget: float,
) -> tuple[int, bool]:
    """Take Adam steps until the density of held-out rows stops improving.

    Parameters
    ----------
    modules : torch.nn.ModuleList
        The modules, restored at the end to the smallest `density`.
    loss : callable
        Returns the loss of a step.
    density : callable
        Returns the mean negative log density of held-out rows.
    rate : float
    every : int
        Steps between evaluations of `density`.
    budget : float
        CPU time in seconds, over all processors, after which no step begins.

    Returns
    -------
    steps : int
    out_of_time : bool
    """
    torch = importlib.import_module("torch")
    optimizer = torch.optim.Adam(modules.parameters(), lr=rate)
    best, kept, waited, start = math.inf, None, 0, time.process_time()
    for step in itertools.count(1):
        modules.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        late = time.process_time() - start > budget
        if step % every and not late:
            continue
        modules.eval()
        found, waited = density(), waited + 1
        if found < best:
            best, kept, waited = found, copy.deepcopy(modules.state_dict()), 0
        if late or waited == _PATIENCE:
            break
    if kept is None:
        raise ValueError("the density of held-out rows is not finite")
    modules.load_state_dict(kept)
    return step, late


def predict_xgpr(
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    n_components: int,
    seed: int,
) -> Predicted:
    """Learn one lengthscale for all columns with xGPR, by its exact likelihood.

    Its variances come from D − 2 structured features. Parameters and return values
    are those of :func:`predict_gpytorch`.
    """
    library = importlib.import_module("xGPR")
    data = library.build_regression_dataset(X, y)
    variance = n_components - 2  # xGPR requires fewer than features
    model = library.xGPRegression(
        n_components, variance, verbose=False, random_seed=seed
    )
    model.set_hyperparams(None, data)
    model.tune_hyperparams_crude(data, random_seed=seed)
    model.fit(data, mode="exact")
    return Predicted(*model.predict(X_test, get_var=True))


def predict_scikit_learn(
    X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], *, noise: float
) -> Predicted:
    """Learn scikit-learn's exact process; see :func:`predict_gpytorch`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    bounds = (1e-5, 1e5)
    lengthscales = np.full(X.shape[1], X.shape[1] ** 0.5)
    kernel = ConstantKernel(1.0) * RBF(lengthscales, bounds) + WhiteKernel(noise)
    # The white kernel is the noise, and is included in the predicted deviations.
    model = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        # Lengthscales of irrelevant columns end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    mean, sd = model.predict(X_test, return_std=True)
    return Predicted(mean, sd**2)


def _import() -> tuple[Any, Any]:
    return importlib.import_module("torch"), importlib.import_module("gpytorch")


def _tensors(torch: Any, *arrays: NDArray[Any], dtype: type = np.float32) -> list[Any]:
    return [torch.from_numpy(np.asarray(a, dtype=dtype)) for a in arrays]


def _split(torch: Any, rows: Any, targets: Any) -> tuple[Any, Any]:
    """Return the rows for learning and those for stopping."""
    n_held = min(max(len(rows) // _HELD_SHARE, 1), _MOST_HELD)
    held, kept = torch.randperm(len(rows)).split([n_held, len(rows) - n_held])
    return (rows[kept], targets[kept]), (rows[held], targets[held])


def _start(kernel: Any, likelihood: Any, d: int, noise: float) -> None:
    """Set the same starting point as for the other contenders."""
    kernel.base_kernel.lengthscale = d**0.5
    kernel.outputscale = 1.0
    likelihood.noise = noise


def _moments(
    torch: Any, model: Any, likelihood: Any, rows: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return means and variances of targets at rows, in blocks."""
    model.eval()
    likelihood.eval()
    means, variances = [], []
    with torch.no_grad():
        law = _law_of_features if _has_features(model) else _law
        predict = law(torch, model, likelihood)
        for block in rows.split(_BATCH):
            mean, variance = predict(block)
            means.append(mean.double().numpy())
            variances.append(variance.double().numpy())
    return np.concatenate(means), np.concatenate(variances)


def _has_features(model: Any) -> bool:
    return hasattr(model.covar_module.base_kernel, "randn_weights")


def _law(torch: Any, model: Any, likelihood: Any) -> Callable[[Any], tuple[Any, Any]]:
    def predict(rows: Any) -> tuple[Any, Any]:
        predicted = likelihood(model(rows))
        return predicted.mean, predicted.variance

    return predict


def _law_of_features(
    torch: Any, model: Any, likelihood: Any
) -> Callable[[Any], tuple[Any, Any]]:
    """Return a function that predicts from the weights of features.

    The law is GPyTorch's, which takes minutes with matrices of all rows.
    """
    kernel, noise = model.covar_module, likelihood.noise

    def features(rows: Any) -> Any:
        Z = kernel.base_kernel._featurize(rows, normalize=True)
        return kernel.outputscale.sqrt() * Z

    Z = features(model.train_inputs[0])
    factor = torch.linalg.cholesky(Z.T @ Z + noise * torch.eye(Z.shape[1]).to(Z))
    weights = torch.cholesky_solve(Z.T @ model.train_targets[:, None], factor)

    def predict(rows: Any) -> tuple[Any, Any]:
        new = features(rows)
        half = torch.linalg.solve_triangular(factor, new.T, upper=False)
        return (new @ weights)[:, 0], noise * (1 + half.square().sum(dim=0))

    return predict


def _density(torch: Any, model: Any, likelihood: Any, rows: Any, targets: Any) -> float:
    mean, variance = _moments(torch, model, likelihood, rows)
    squares = (targets.double().numpy() - mean) ** 2 / variance
    return float(np.mean(np.log(2 * np.pi * variance) + squares) / 2)


def _predict(
    torch: Any,
    model: Any,
    likelihood: Any,
    X_test: NDArray[Any],
    ended: tuple[int, bool],
) -> Predicted:
    dtype = np.float64 if likelihood.noise.dtype == torch.float64 else np.float32
    (rows,) = _tensors(torch, X_test, dtype=dtype)
    return Predicted(*_moments(torch, model, likelihood, rows), *ended)
