"""Gaussian processes of other libraries: GPyTorch's RFFKernel and SVGP, xGPR's.

GPyTorch in float32 and with Adam, as its tutorials do. Libraries are imported on use.
"""

import importlib
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["predict_rff", "predict_scikit_learn", "predict_svgp", "predict_xgpr"]

_BATCH = 1024
_RFF_RATE, _SVGP_RATE = 0.1, 0.02
# So few steps would not learn anything on small data.
_LEAST_STEPS = 300


def predict_rff(
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    n_components: int,
    steps: int,
    noise: float,
    seed: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Learn with ``RFFKernel``, D/2 samples, by full gradients of the likelihood.

    Parameters
    ----------
    X, y, X_test : ndarray
        Rows (n, d), targets (n,), test rows.
    n_components : int
        D, cosines and sines.
    steps : int
        Of Adam.
    noise : float
        The variance to start from; lengthscales start from √d.
    seed : int

    Returns
    -------
    mean, variance : ndarray
        Of the test targets, noise included.
    """
    torch, gpytorch = _import()
    torch.manual_seed(seed)
    rows, targets = _tensors(torch, X, y)
    d = rows.shape[1]
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__(rows, targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RFFKernel(
                num_samples=max(1, n_components // 2), num_dims=d, ard_num_dims=d
            )
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x: Any) -> Any:
            mean, cov = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, cov)

    model = Model()
    _start(model.covar_module, likelihood, d, noise)
    likelihood_of_all = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    likelihood.train()
    # The likelihood is among the model's parameters.
    optimizer = torch.optim.Adam(model.parameters(), lr=_RFF_RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -likelihood_of_all(model(rows), targets)
        loss.backward()
        optimizer.step()
    return _predict(torch, model, likelihood, X_test)


def predict_svgp(
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    n_components: int,
    epochs: int,
    noise: float,
    seed: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Learn a sparse variational process with D inducing points, in batches of 1,024.

    Parameters and returned values are those of :func:`predict_rff`; `epochs` are
    passes over the rows, of at least 300 steps in all.
    """
    torch, gpytorch = _import()
    torch.manual_seed(seed)
    rows, targets = _tensors(torch, X, y)
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
    model.train()
    likelihood.train()
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=_SVGP_RATE)
    batches = -(-n // _BATCH)
    for _ in range(max(epochs, -(-_LEAST_STEPS // batches))):
        for chosen in torch.randperm(n).split(_BATCH):
            optimizer.zero_grad()
            loss = -bound(model(rows[chosen]), targets[chosen])
            loss.backward()
            optimizer.step()
    return _predict(torch, model, likelihood, X_test)


def predict_xgpr(
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    *,
    n_components: int,
    seed: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Learn one lengthscale for all columns with xGPR, by its exact likelihood.

    Its variances come from D − 2 structured features. Parameters and returned
    values are those of :func:`predict_rff`.
    """
    library = importlib.import_module("xGPR")
    data = library.build_regression_dataset(X, y)
    variance = n_components - 2  # of its own rule: fewer than features
    model = library.xGPRegression(
        n_components, variance, verbose=False, random_seed=seed
    )
    model.set_hyperparams(None, data)
    model.tune_hyperparams_crude(data, random_seed=seed)
    model.fit(data, mode="exact")
    mean, variance = model.predict(X_test, get_var=True)
    return mean, variance


def predict_scikit_learn(
    X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], *, noise: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Learn scikit-learn's exact process; see :func:`predict_rff`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    bounds = (1e-5, 1e5)
    lengthscales = np.full(X.shape[1], X.shape[1] ** 0.5)
    kernel = ConstantKernel(1.0) * RBF(lengthscales, bounds) + WhiteKernel(noise)
    # The white kernel is the noise, and is part of the predicted deviations.
    model = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        # Lengthscales of columns that do not matter end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    mean, sd = model.predict(X_test, return_std=True)
    return mean, sd**2


def _import() -> tuple[Any, Any]:
    return importlib.import_module("torch"), importlib.import_module("gpytorch")


def _tensors(torch: Any, *arrays: NDArray[Any]) -> list[Any]:
    return [torch.from_numpy(np.asarray(a, dtype=np.float32)) for a in arrays]


def _start(kernel: Any, likelihood: Any, d: int, noise: float) -> None:
    """Begin where the other contenders do."""
    kernel.base_kernel.lengthscale = d**0.5
    kernel.outputscale = 1.0
    likelihood.noise = noise


def _predict(
    torch: Any, model: Any, likelihood: Any, X_test: NDArray[Any]
) -> tuple[Any, Any]:
    model.eval()
    likelihood.eval()
    means, variances = [], []
    with torch.no_grad():
        for block in _tensors(torch, X_test)[0].split(_BATCH):
            predicted = likelihood(model(block))
            means.append(predicted.mean.double().numpy())
            variances.append(predicted.variance.double().numpy())
    return np.concatenate(means), np.concatenate(variances)
