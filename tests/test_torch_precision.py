"""Products under ``torch.set_float32_matmul_precision``, which is for networks."""

import numpy as np
import pytest

import randkern as rk

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv")


class Float32Products(TorchDispatchMode):
    """Records products of float32 matrices, which the setting makes imprecise."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in PRODUCTS and args[-1].dtype == torch.float32:
            self.shapes.append((name, [tuple(arg.shape) for arg in args]))
        return function(*args, **(kwargs or {}))


@pytest.fixture
def medium():
    """Lower the precision for a test; "medium" also lowers it on some CPUs."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def rows(rng, d=5):
    X = torch.as_tensor(rng.normal(size=(400, d)), dtype=torch.float32)
    return X, torch.sin(X[:, 0].double())


def test_the_record_sees_products(medium, rng):
    X, _ = rows(rng)
    with Float32Products() as record:
        X @ X.T
    assert record.shapes == [("mm", [(400, 5), (5, 400)])]


REGRESSORS = {
    "cholesky": {"n_components": 64, "solver": "cholesky"},
    "dual": {"n_components": 500, "solver": "cholesky"},
    "pcg": {"n_components": 64, "solver": "pcg"},
    "exact": {"n_components": None, "solver": "cholesky"},
    "exact pcg": {"n_components": None, "solver": "pcg"},
    "landmarks": {"n_components": 64, "features": "nystrom"},
}


@pytest.mark.parametrize("options", REGRESSORS.values(), ids=REGRESSORS)
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_regression(medium, options, weighted, rng):
    X, y = rows(rng)
    weight = 0.5 + torch.rand(400, dtype=torch.float64) if weighted else None
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), 0.1, random_state=0, **options)
    with Float32Products() as record:
        model.fit(X, y, weight).predict(X)
    assert not record.shapes


@pytest.mark.parametrize(
    "model",
    [
        rk.KernelRidgeRegressorCV(rk.Gaussian(2.0), n_components=64, random_state=0),
        rk.KernelRidgeClassifier(rk.Gaussian(2.0), n_components=64, random_state=0),
        rk.KernelLogistic(rk.Gaussian(2.0), n_components=64, random_state=0),
        rk.KernelSVC(rk.Gaussian(2.0), n_components=64, random_state=0),
        rk.GaussianProcessRegressor(
            rk.Gaussian(2.0), 0.1, n_components=64, optimizer=None, random_state=0
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models(medium, model, rng):
    X, y = rows(rng)
    y = y > 0 if hasattr(model, "predict_proba") or "SVC" in repr(model) else y
    weight = 0.5 + torch.rand(400, dtype=torch.float64)
    with Float32Products() as record:
        model.fit(X, y, weight).predict(X)
    assert not record.shapes


KERNELS = [
    rk.Gaussian(5.0),
    rk.Linear(),
    rk.Optical(2),
    rk.Optical(1.5, bias=1.0),
    rk.Polynomial(3, bias=1.0),
    rk.ArcCosine(1),
    rk.Softmax(5.0),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels(medium, kernel, rng):
    X, _ = rows(rng, d=40)
    with Float32Products() as record:
        values = kernel._gram(X, X[:50], precise=False)
        if not isinstance(kernel, rk.Linear):
            rk.RandomFeatures(kernel, 100, random_state=0).fit_transform(X)
    assert not record.shapes
    exact = kernel(X.double().numpy(), X[:50].double().numpy())
    error = np.abs(np.asarray(values) - exact).max()
    assert error < 1e-5 * max(1.0, np.abs(exact).max())
