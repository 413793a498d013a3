"""What test_torch_triton.py runs where Triton interprets its kernels."""

import sys

import numpy as np
import pytest

# Collected with the docstring examples, also where there is no PyTorch.
torch = pytest.importorskip("torch")

import randkern as rk  # noqa: E402
from randkern._random import Stream  # noqa: E402
from randkern.backend import torch_hadamard, torch_random, torch_triton  # noqa: E402
from randkern.backend.counter import random_matrix  # noqa: E402
from randkern.features import fit_plan  # noqa: E402
from randkern.plan import evaluate  # noqa: E402


def close(got, expected, tolerance):
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(expected), rtol=0, atol=tolerance
    )


def generated_product():
    X = torch.as_tensor(
        np.random.default_rng(0).normal(size=(5, 70)), dtype=torch.float32
    )
    for key, start, stop in ((2**64 - 5, 3, 40), (1, 63, 64)):
        matrix = random_matrix(key, "normal", start, stop, 0, 70)
        got = torch_triton.generated_product(X, key, start, stop, 0.5)
        close(got, 0.5 * X.numpy() @ matrix.T, 1e-4)
    assert torch_triton.generated_product(X, 1, 4, 4).shape == (5, 0)


def hadamard_features():
    rng = np.random.default_rng(0)
    for p, width in ((256, 200), (512, 300)):
        D, start = 2 * p + 37, p - 5
        X = torch.as_tensor(rng.normal(size=(5, width)) / p**0.5, dtype=torch.float32)
        norms, offsets = (
            torch.as_tensor(rng.uniform(1, 6, size=D), dtype=torch.float32)
            for _ in range(2)
        )
        padded = torch.nn.functional.pad(X, (0, p - width))
        blocks = slice(start // p, -(-(start + D) // p))
        count = blocks.stop - blocks.start
        signs = torch_random.signs(99, blocks.start, count, 6, p, "cpu")
        rows = {"key": 99, "norms": norms, "row_start": start, "row_stop": start + D}
        cases = [
            ("project", torch_triton.PROJECT, {}, {}),
            ("pairs", torch_triton.PAIRS, {}, {"weight": 2.0}),
            ("cosines", torch_triton.COSINES, {"offsets": offsets}, {"weight": 2.0}),
            ("modulus", torch_triton.MODULUS, {"power": 1.0}, {"weight": 2.0}),
            ("modulus", torch_triton.MODULUS, {"power": 2.7}, {"weight": 2.0}),
        ]
        fused = torch_hadamard._fused
        for name, kind, options, weight in cases:
            out = torch.zeros(5, D * (2 if name == "pairs" else 1))
            expected = out.clone()
            torch_triton.hadamard_features(
                *(padded, signs, norms * p**-1.5, start, start + D),
                *(kind, weight.get("weight", 1.0), out),
                **options,
            )
            torch_hadamard._fused = lambda *args, **kwargs: False
            getattr(torch_hadamard, name)(X, out=expected, **rows, **weight, **options)
            torch_hadamard._fused = fused
            close(out, expected, 2e-6)


def features():
    """The evaluator takes the kernels, and gives the features of NumPy."""
    rng = np.random.default_rng(0)
    called = []
    for name in ("generated_product", "hadamard_features"):
        function = getattr(torch_triton, name)

        def counted(*args, _function=function, _name=name, **kwargs):
            called.append(_name)
            return _function(*args, **kwargs)

        setattr(torch_triton, name, counted)
    for kernel, projection, d in (
        (rk.Gaussian(16.0), "structured", 200),
        (rk.Optical(2, 0.5), "structured", 200),
        (rk.Matern(1.5, 8.0), "streamed", 70),
        (rk.Optical(1), "streamed", 40),
    ):
        X = rng.normal(size=(3, d)).astype(np.float32)
        plan = fit_plan(kernel, X, None, 45, Stream(3), projection=projection)
        expected = evaluate(plan, X)
        got = evaluate(plan, torch.as_tensor(X))
        close(got, expected, 2e-5 * np.abs(expected).max())
        assert called, f"{kernel} took no kernel"
        called.clear()
        tracked = torch.as_tensor(X).requires_grad_()
        assert evaluate(plan, tracked).requires_grad
        assert not called


if __name__ == "__main__":
    {each.__name__: each for each in (generated_product, hadamard_features, features)}[
        sys.argv[1]
    ]()
