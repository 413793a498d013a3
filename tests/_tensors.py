"""What the tests of tensors share: they need PyTorch, and scikit-learn's dispatch."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import sklearn

torch = pytest.importorskip("torch")

# SciPy reads this variable when it is imported; scikit-learn refuses to dispatch
# without it. The root's conftest.py sets it where PyTorch is installed.
if os.environ.get("SCIPY_ARRAY_API") != "1":
    pytest.skip(
        "set SCIPY_ARRAY_API=1 before pytest starts: scikit-learn needs it to take "
        "tensors",
        allow_module_level=True,
    )

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = {"float32": (np.float32, 2e-5), "float64": (np.float64, 1e-6)}
each_device = pytest.mark.parametrize("device", DEVICES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def dispatch():
    """Return scikit-learn's context in which tensors are taken."""
    return sklearn.config_context(array_api_dispatch=True)


def tensor(array, device="cpu"):
    """Return an array as a tensor of its dtype."""
    return torch.as_tensor(np.ascontiguousarray(array), device=device)


def host(tensor):
    """Return a tensor as a NumPy array."""
    return tensor.detach().cpu().numpy()


def assert_close(got, expected, share):
    """Compare with an array, errors as a share of its largest value."""
    assert str(got.dtype) == f"torch.{expected.dtype}"
    size = np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(host(got) / size, expected / size, rtol=0, atol=share)


#: Where samples of at most 500 rows are taken to the host: rows that a fit leaves out,
#: and those on which the error of its features is estimated.
SAMPLES = (
    "randkern.models._feature_model",
    "randkern.models.left_out",
    "randkern.models.calibration",
)
_LARGEST_SAMPLE = 500 * 20


class HostCopyError(AssertionError):
    """A tensor was copied to the host."""


@contextmanager
def no_host_copies(monkeypatch, most: float = np.inf) -> Iterator[list[str]]:
    """Let nothing but Python numbers leave the device.

    `to_host` of :class:`randkern.backend.torch_ops.TorchOps` is let through, with at
    most so many numbers at a time, or a matrix of at most so many rows and columns, and
    its callers are listed. Hashes of rows, and the choice of samples of rows, take a
    number per row to the host, so that they are those of arrays, and the latter what is
    computed of the rows chosen: this is not listed.
    """
    import sys

    from randkern.backend.torch_ops import TorchOps

    copied: list[str] = []
    # Of each thread: devices are served side by side.
    inside = threading.local()
    methods = ("cpu", "numpy", "__array__", "tolist", "__dlpack__")
    originals = {name: getattr(torch.Tensor, name) for name in methods}

    def forbidden(name):
        def method(self, *args, **kwargs):
            if not getattr(inside, "to_host", False):
                raise HostCopyError(f"Tensor.{name} was called")
            return originals[name](self, *args, **kwargs)

        return method

    to_host = TorchOps.to_host

    def listed(self, array):
        caller = sys._getframe(1)
        name = caller.f_code.co_name
        if name == "row_hashes" or caller.f_globals["__name__"] in SAMPLES:
            allowed = array.ndim == 1 or array.numel() <= _LARGEST_SAMPLE
        else:
            copied.append(name)
            square = array.ndim == 2 and max(array.shape) <= most
            allowed = square or array.numel() <= most
        if not allowed:
            raise HostCopyError(f"{name} copied {array.numel()} numbers")
        inside.to_host = True
        try:
            return to_host(self, array).copy()
        finally:
            inside.to_host = False

    with monkeypatch.context() as patch:
        for name in methods:
            patch.setattr(torch.Tensor, name, forbidden(name))
        patch.setattr(TorchOps, "to_host", listed)
        yield copied
