"""Gaussian processes of other libraries: GPyTorch's and scikit-learn's.

GPyTorch uses Adam and float32, as in its tutorials, but `RFFKernel` uses float64, since
its D × D matrices have no Cholesky factor in float32. The exact process and `RFFKernel`
take full gradients with steps of 0.1, SVGP takes batches of 1,024 rows with steps of
0.05, with which it gets further in the same time than with the tutorials' 0.01. The
density of a tenth of the training rows (at most 2,000), held out of learning, decides
when to stop and which step is kept; the time of learning is bounded, too. The exact
process and `RFFKernel` are then conditioned on all rows. Libraries are imported on use.

A model is made from the request of a fit, and predicts the means and variances of
targets, including noise.
"""

import copy
import importlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

# The variance from which all learn it; lengthscales start from √d.
NOISE = 0.1
_BATCH = 1024
# Held out for stopping: one row in ten, at most 2,000.
_HELD_SHARE, _MAX_HELD = 10, 2000
# Evaluations of the density there without improvement after which learning ends.
_PATIENCE = 5


class GPyTorchProcess:
    """The exact process, learned by full gradients of the likelihood.

    `steps_` is the number of steps, `out_of_time_` whether the budget ended them.
    """

    dtype: Any = np.float32
    rate = 0.1
    # Steps between evaluations of the density of rows held out.
    every = 5

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.torch = importlib.import_module("torch")
        self.gpytorch = importlib.import_module("gpytorch")
        self.request = request

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> "GPyTorchProcess":
        torch = self.torch
        torch.manual_seed(self.request["seed"])
        rows, targets = self._tensor(X), self._tensor(y)
        n_held = min(max(len(rows) // _HELD_SHARE, 1), _MAX_HELD)
        held, selected = torch.randperm(len(rows)).split([n_held, len(rows) - n_held])
        self.likelihood = self.gpytorch.likelihoods.GaussianLikelihood()
        loss = self.prepare(rows[selected], targets[selected])
        self.kernel.base_kernel.lengthscale = X.shape[1] ** 0.5
        self.kernel.outputscale = 1.0
        self.likelihood.noise = NOISE

        def density() -> float:
            mean, variance = self._moments(rows[held])
            residual = targets[held].double().numpy() - mean
            return negative_log_density(residual, variance)

        self.steps_, self.out_of_time_ = climb(
            torch.nn.ModuleList([self.model, self.likelihood]),
            loss,
            density,
            rate=self.rate,
            every=self.every,
            budget=self.request["budget"],
        )
        self.condition(rows, targets)
        return self

    def prepare(self, rows: Any, targets: Any) -> Callable[[], Any]:
        """Make the model; return the loss of a step."""
        settings = rows, targets, self.likelihood
        model = self.process(self.gpytorch.models.ExactGP, rows, lambda model: settings)
        model.to(rows.dtype)  # it includes the likelihood
        mlls = self.gpytorch.mlls
        evidence = mlls.ExactMarginalLogLikelihood(self.likelihood, model)
        return lambda: -evidence(model(rows), targets)

    def process(self, base: Any, rows: Any, arguments: Callable[[Any], Any]) -> Any:
        """Make a process of a kind of GPyTorch, from what it is given."""
        gpytorch = self.gpytorch
        kernel = self.kernel = gpytorch.kernels.ScaleKernel(self.base(rows.shape[1]))

        class Model(base):
            def __init__(self) -> None:
                super().__init__(*arguments(self))
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = kernel

            def forward(self, x: Any) -> Any:
                mean, cov = self.mean_module(x), self.covar_module(x)
                return gpytorch.distributions.MultivariateNormal(mean, cov)

        self.model = Model()
        return self.model

    def base(self, d: int) -> Any:
        """Return a kernel with a lengthscale per column."""
        return self.gpytorch.kernels.RBFKernel(ard_num_dims=d)

    def condition(self, rows: Any, targets: Any) -> None:
        """Condition on all rows, including those held out for stopping."""
        self.model.set_train_data(rows, targets, strict=False)

    def predict(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._moments(self._tensor(X))

    def predictive(self) -> Callable[[Any], Any]:
        """Return a function of rows that returns the distribution of their targets."""
        return lambda rows: self.likelihood(self.model(rows))

    def _tensor(self, array: NDArray[Any]) -> Any:
        return self.torch.from_numpy(np.asarray(array, dtype=self.dtype))

    def _moments(self, rows: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return means and variances of targets at rows, in blocks."""
        self.model.eval()
        self.likelihood.eval()
        with self.torch.no_grad():
            predictions = map(self.predictive(), rows.split(_BATCH))
            moments = [(p.mean, p.variance) for p in predictions]
        mean, variance = map(self.torch.cat, zip(*moments, strict=True))
        return mean.double().numpy(), variance.double().numpy()


class FourierProcess(GPyTorchProcess):
    """``RFFKernel``: cosines and sines of D/2 samples."""

    dtype = np.float64

    def base(self, d: int) -> Any:
        samples = max(1, self.request["n_components"] // 2)
        return self.gpytorch.kernels.RFFKernel(
            num_samples=samples, num_dims=d, ard_num_dims=d
        )

    def predictive(self) -> Callable[[Any], Any]:
        """Predict from weights of features; GPyTorch itself takes minutes."""
        torch, kernel, noise = self.torch, self.kernel, self.likelihood.noise

        def features(rows: Any) -> Any:
            Z = kernel.base_kernel._featurize(rows, normalize=True)
            return kernel.outputscale.sqrt() * Z

        Z = features(self.model.train_inputs[0])
        factor = torch.linalg.cholesky(Z.T @ Z + noise * torch.eye(Z.shape[1]).to(Z))
        moments = Z.T @ self.model.train_targets[:, None]
        weights = torch.cholesky_solve(moments, factor)

        def predict(rows: Any) -> Any:
            new = features(rows)
            half = torch.linalg.solve_triangular(factor, new.T, upper=False)
            variance = noise * (1 + half.square().sum(dim=0))
            return SimpleNamespace(mean=(new @ weights)[:, 0], variance=variance)

        return predict


class SparseProcess(GPyTorchProcess):
    """SVGP with D inducing points; rows held out for stopping are not used."""

    rate, every = 0.05, 20

    def prepare(self, rows: Any, targets: Any) -> Callable[[], Any]:
        gpytorch, torch, n = self.gpytorch, self.torch, len(rows)
        points = rows[torch.randperm(n)[: self.request["n_components"]]].clone()

        def strategy(model: Any) -> Any:
            variational = gpytorch.variational
            posterior = variational.CholeskyVariationalDistribution(len(points))
            return [
                variational.VariationalStrategy(
                    model, points, posterior, learn_inducing_locations=True
                )
            ]

        model = self.process(gpytorch.models.ApproximateGP, rows, strategy)
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, model, num_data=n)

        passes = (torch.randperm(n).split(_BATCH) for _ in itertools.count())
        batch = itertools.chain.from_iterable(passes)

        def loss() -> Any:
            chosen = next(batch)
            return -bound(model(rows[chosen]), targets[chosen])

        return loss

    def condition(self, rows: Any, targets: Any) -> None:
        """Keep what was learned in batches."""


def negative_log_density(residual: NDArray[Any], variance: NDArray[Any]) -> float:
    """Return the mean negative log density of normal residuals."""
    return float(np.mean(np.log(2 * np.pi * variance) + residual**2 / variance) / 2)


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

    `density` returns their mean negative log density, every so many steps; the modules
    end with its smallest. After `budget` seconds of CPU time, over all processors, no
    step begins. Returns the number of steps, and whether the budget ended them.
    """
    torch = importlib.import_module("torch")
    optimizer = torch.optim.Adam(modules.parameters(), lr=rate)
    best, selected, waited, start = math.inf, None, 0, time.process_time()
    for step in itertools.count(1):
        modules.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        late = time.process_time() - start > budget
        if step % every and not late:
            continue
        modules.eval()
        result, waited = density(), waited + 1
        if result < best:
            best, selected, waited = result, copy.deepcopy(modules.state_dict()), 0
        if late or waited == _PATIENCE:
            break
    if selected is None:
        raise ValueError("the density of held-out rows is not finite")
    modules.load_state_dict(selected)
    return step, late


class ProcessWithDeviations:
    """A process that predicts standard deviations, with `options`."""

    def __init__(self, model: Any, **options: Any) -> None:
        self.model, self.options = model, options

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> "ProcessWithDeviations":
        with warnings.catch_warnings():
            # Lengthscales of irrelevant columns end at their bounds.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(X, y)
        return self

    def predict(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        mean, sd = self.model.predict(X, return_std=True, **self.options)
        return mean, sd**2
