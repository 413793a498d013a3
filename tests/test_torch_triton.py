"""The fused kernels, interpreted on the processor, give what PyTorch gives.

Triton reads TRITON_INTERPRET when a kernel is defined: the checks have a process of
their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

CHECKS = Path(__file__).with_name("_triton_checks.py")
INTERPRETED = (
    *("cos_sin_features", "generated_product", "hadamard_features", "huge_phases"),
    *("chunks", "features"),
)


def run(*checks, interpret):
    """Return the error of each check, empty where it passes."""
    done = subprocess.run(
        [sys.executable, str(CHECKS), *checks],
        env={**os.environ, "TRITON_INTERPRET": interpret},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def errors():
    """Those of all checks from one process, whose start takes longest."""
    return run(*INTERPRETED, interpret="1")


@pytest.mark.slow
@pytest.mark.parametrize("check", INTERPRETED)
def test_interpreted(check, errors):
    assert not errors[check], errors[check]


@pytest.mark.slow
def test_compiled():
    assert run("compiled", interpret="0") == {"compiled": ""}


@pytest.mark.parametrize("d", [64, 784, 10_000])
def test_three_products_of_tf32_round_as_float32_does(d):
    """Products of what 11 bits hold, summed in float64: what splitting loses."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, d), np.float32)
    w = rng.standard_normal((d, 60), np.float32)

    def leading(values):
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    def product(left, right):
        return leading(left).astype(float) @ leading(right).astype(float)

    x_high, w_high = leading(x), leading(w)
    three = product(x - x_high, w) + product(x_high, w - w_high) + product(x, w)
    exact = x.astype(float) @ w.astype(float)
    size = np.sqrt(np.mean(exact**2))
    assert np.abs(three - exact).max() < 4e-6 * size
    assert np.abs(product(x, w) - exact).max() > 1e-3 * size


def test_what_products_are_computed_in(monkeypatch):
    from randkern.backend.triton_kernels import product_precision

    def chosen(precision, device="cuda:0", capability=(9, 0)):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        return product_precision(torch.device(device))

    assert chosen("highest") == "tf32x3"
    # Whose tensor cores are no faster at it.
    assert chosen("highest", capability=(8, 6)) == "ieee"
    assert chosen("highest", "cpu") == "ieee"
    assert chosen("high") == chosen("medium") == "tf32"
