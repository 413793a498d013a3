"""``kernel=None`` can be searched over as the kernel that it stands for."""

import inspect

import pytest
from sklearn.base import clone

import randkern as rk
from randkern.kernels.default import TakesKernel

ESTIMATORS = [
    cls
    for name in rk.__all__
    if isinstance(cls := getattr(rk, name), type) and issubclass(cls, TakesKernel)
]
EVERY_ESTIMATOR = pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda c: c.__name__)


def nested(cls):
    """Return the name of the lengthscale of the default kernel."""
    result = [name for name in cls().get_params() if name.endswith("__lengthscale")]
    assert result == [result[0]]
    return result[0]


def test_every_estimator_with_a_kernel_is_here():
    with_kernel = {
        name
        for name in rk.__all__
        if hasattr(cls := getattr(rk, name), "fit")
        if "kernel" in inspect.signature(cls).parameters
    }
    assert with_kernel == {cls.__name__ for cls in ESTIMATORS}
    assert len(with_kernel) == 13


@EVERY_ESTIMATOR
def test_setting_a_parameter_of_the_default_kernel(cls):
    name = nested(cls)
    model = cls()
    assert model.get_params()[name] == "scale"
    assert name not in model.get_params(deep=False)
    assert model.kernel is None, "reading parameters changes none"
    assert model.set_params(**{name: 3.0}) is model
    assert model.get_params()[name] == 3.0
    assert type(model.kernel) is type(cls()._default_kernel())
    assert clone(model).get_params()[name] == 3.0
    assert clone(cls()).kernel is None
    # None beside a parameter of it, in either order, is the default kernel too.
    for params in ({"kernel": None, name: 2.0}, {name: 2.0, "kernel": None}):
        model = cls(rk.Optical()).set_params(**params)
        assert model.get_params()[name] == 2.0
    other = cls().set_params(kernel=rk.Laplacian(), kernel__lengthscale=5.0)
    assert isinstance(other.kernel, rk.Laplacian)
    assert other.kernel.lengthscale == 5.0
    with pytest.raises(ValueError, match="Invalid parameter 'sigma'"):
        cls().set_params(kernel__sigma=1.0)
