"""What test_torch_triton.py runs where Triton interprets its kernels."""

import json
import re
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

# Collected with the docstring examples, also where there is no PyTorch.
torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import randkern as rk  # noqa: E402
from randkern._random import Stream  # noqa: E402
from randkern.backend import torch_hadamard, torch_random, triton_kernels  # noqa: E402
from randkern.backend.counter import random_matrix  # noqa: E402
from randkern.kernels.draw import fit_plan  # noqa: E402
from randkern.plan import evaluate  # noqa: E402


def close(got, expected, tolerance):
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(expected), rtol=0, atol=tolerance
    )


def generated_product():
    rng = np.random.default_rng(0)
    # Columns that are no multiple of 64 and ones that are; more rows than a tile.
    for n, d, key, start, stop, precision in (
        (5, 70, 2**64 - 5, 3, 40, None),
        (5, 70, 1, 63, 64, "tf32"),
        (130, 64, 2**33, 64, 150, "ieee"),
        (17, 80, 3, 0, 20, "tf32x3"),
        (258, 65, 7, 0, 65, "tf32x3"),
    ):
        X = torch.as_tensor(rng.normal(size=(n, d)), dtype=torch.float32)
        matrix = random_matrix(key, "normal", start, stop, 0, d)
        got = triton_kernels.generated_product(X, key, start, stop, 0.5, precision)
        close(got, 0.5 * X.numpy().astype(float) @ matrix.T, 1e-5)
    assert triton_kernels.generated_product(X, 1, 4, 4).shape == (258, 0)


def hadamard_features():
    rng = np.random.default_rng(0)
    for p, width in ((64, 50), (256, 200), (512, 300)):
        D, start = 2 * p + 37, p - 5
        X = torch.as_tensor(rng.normal(size=(5, width)) / p**0.5, dtype=torch.float32)
        norms, offsets = (
            torch.as_tensor(rng.uniform(1, 6, size=D), dtype=torch.float32)
            for _ in range(2)
        )
        inputs = {"scale": 1.5, "bias": 0.2}
        blocks = slice(start // p, -(-(start + D) // p))
        count = blocks.stop - blocks.start
        signs = torch_random.signs(99, blocks.start, count, p, "cpu")
        rows = {"key": 99, "norms": norms, "row_start": start, "row_stop": start + D}
        cases = [
            ("project", triton_kernels.PROJECT, {}, {}),
            ("pairs", triton_kernels.PAIRS, {}, {"weight": 2.0}),
            ("cosines", triton_kernels.COSINES, {"offsets": offsets}, {"weight": 2.0}),
            *(
                ("modulus", triton_kernels.MODULUS, {"power": power}, {"weight": 2.0})
                for power in (1.0, 2.0, 2.7, 3.0, 4.0)
            ),
        ]
        for name, kind, options, weight in cases:
            out = torch.zeros(5, D * (2 if name == "pairs" else 1))
            expected = out.clone()
            triton_kernels.hadamard_features(
                *(X, signs, norms * p**-1.5, start, start + D),
                *(kind, weight.get("weight", 1.0), out),
                **inputs,
                **options,
            )
            named = torch_hadamard.StructuredRows(**rows, inverse_scale=1.5, bias=0.2)
            with patch.object(type(named), "_fused", lambda *args: False):
                getattr(named, name)(X, out=expected, **weight, **options)
            close(out, expected, 3e-6 * max(1.0, float(expected.abs().max())))


def cos_sin_features():
    rng = np.random.default_rng(0)
    for n, m in ((3, 1030), (2, 5), (1, 1)):
        phase = torch.as_tensor(30 * rng.normal(size=(n, m)), dtype=torch.float32)
        offsets = torch.as_tensor(rng.uniform(0, 6, m), dtype=torch.float32)
        out = torch.zeros(n, 2 * m + 3)
        triton_kernels.cos_sin_features(phase, 1.5, out[:, 1 : 2 * m + 1])
        close(out[:, 1 : 2 * m + 1 : 2], 1.5 * torch.cos(phase), 1e-6)
        close(out[:, 2 : 2 * m + 2 : 2], 1.5 * torch.sin(phase), 1e-6)
        assert not out[:, [0, 2 * m + 1, 2 * m + 2]].any()
        out = torch.zeros(n, m)
        triton_kernels.cos_sin_features(phase, 1.5, out, offsets)
        close(out, 1.5 * torch.cos(phase + offsets), 3e-6)
    triton_kernels.cos_sin_features(torch.zeros(0, 3), 1.0, torch.zeros(0, 6))


def huge_phases():
    """Cosines and sines of phases that the reduction in float32 would lose."""
    p = 256
    X = torch.zeros((5, p))
    X[:, 3] = torch.tensor([2.0**20, 1e12, float("inf"), 1.0, 1e25])
    norms = torch.as_tensor(np.random.default_rng(0).uniform(1, 6, p)).float()
    signs = torch_random.signs(5, 0, 1, p, "cpu")
    phases, out = torch.empty(5, p), torch.empty(5, 2 * p)
    settings = (X, signs, norms * p**-1.5, 0, p)
    triton_kernels.hadamard_features(*settings, triton_kernels.PROJECT, 1.0, phases)
    triton_kernels.hadamard_features(*settings, triton_kernels.PAIRS, 1.0, out)
    exact = phases[[0, 1, 3]].double()
    assert float(exact.abs().max()) > 1e11
    close(out[[0, 1, 3], ::2], torch.cos(exact), 1e-6)
    close(out[[0, 1, 3], 1::2], torch.sin(exact), 1e-6)
    assert out[2].isnan().all()
    close(out[4, ::2] ** 2 + out[4, 1::2] ** 2, torch.ones(p), 1e-6)


def chunks():
    """Signs that are made in several runs, and columns that do not lie side by side."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 100)).astype(np.float32)
    for fourier in ("pair", "offset"):
        plan = fit_plan(
            *(rk.Gaussian(16.0), X, None, 601, Stream(3)),
            projection="structured",
            fourier=fourier,
        )
        expected = evaluate(plan, X)
        out = torch.zeros(601, 3).T
        with patch.object(torch_hadamard, "_SIGNS", 256):
            close(evaluate(plan, torch.as_tensor(X)), expected, 1e-6)
            close(evaluate(plan, torch.as_tensor(X), out=out), expected, 1e-6)
    double = torch.zeros(2, 2, dtype=torch.float64)
    assert not triton_kernels.runs_on(torch.zeros(2, 2), double)


def features():
    """The evaluator takes the kernels, and gives the features of NumPy."""
    rng = np.random.default_rng(0)
    product, hadamard, trig = (
        {"generated_product"},
        {"hadamard_features"},
        {"cos_sin_features"},
    )
    spies = {
        name: patch.object(triton_kernels, name, wraps=getattr(triton_kernels, name))
        for name in product | hadamard | trig
    }
    for kernel, projection, d, kernels in (
        (rk.Gaussian(16.0), "structured", 200, hadamard),
        (rk.Optical(2, 0.5), "structured", 200, hadamard),
        (rk.Matern(1.5, 8.0), "streamed", 70, product | trig),
        (rk.Optical(1), "streamed", 40, product),
        (rk.Gaussian(16.0), "dense", 40, trig),
    ):
        X = rng.normal(size=(3, d)).astype(np.float32)
        plan = fit_plan(kernel, X, None, 45, Stream(3), projection=projection)
        expected = evaluate(plan, X)
        with ExitStack() as stack:
            called = {name: stack.enter_context(spy) for name, spy in spies.items()}
            got = evaluate(plan, torch.as_tensor(X))
            assert {name for name in called if called[name].called} == kernels, kernel
            for spy in called.values():
                spy.reset_mock()
            tracked = torch.as_tensor(X).requires_grad_()
            assert evaluate(plan, tracked).requires_grad
            assert not any(spy.called for spy in called.values())
        close(got, expected, 2e-5 * np.abs(expected).max())


def bytes_on_stack(kernel, types, constants, **options):
    """Compile for an H100, which need not be there; return what registers spill."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = types | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    divisible = ("X", "out", "signs", "norms", "offsets", "x_stride", "out_stride", "d")
    places = [i for i, name in enumerate(kernel.arg_names) if name in divisible]
    source = ASTSource(
        kernel,
        signature,
        constexprs=constants,
        attrs={(place,): [["tt.divisibility", 16]] for place in places},
    )
    target = GPUTarget("cuda", 90, 32)
    binary = triton.compile(source, target=target, options=options).asm["cubin"]
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        used = subprocess.check_output(
            [str(tools / "cuobjdump"), "-res-usage", file.name], text=True
        )
    return int(re.search(r"STACK:(\d+)", used)[1])


def compiled():
    """The kernels compile for GPUs, and hold everything in registers."""
    pointers = dict.fromkeys(("X", "norms", "offsets", "out"), "*fp32")
    for kind, p in ((1, 1024), (1, 8192), (3, 1024)):
        types = {**pointers, "signs": "*i8"}
        types |= dict.fromkeys(("scale", "bias", "weight"), "fp32")
        rows = max(1, triton_kernels.TILE_ENTRIES // p)
        constants = {"KIND": kind, "HALF": 1.0, "R": rows, "P": p}
        constants["BITS"] = p.bit_length() - 1
        kernel, warps = triton_kernels._hadamard_kernel, triton_kernels.warps(p)
        assert bytes_on_stack(kernel, types, constants, num_warps=warps) == 0
    types = {**pointers, "phase": "*fp32", "weight": "fp32"}
    constants = {"SHIFTED": False, "WIDTH": 1024}
    assert bytes_on_stack(triton_kernels._cos_sin_kernel, types, constants) == 0
    types = {"X": "*fp32", "out": "*fp32", "scale": "fp32"}
    types |= {"key_low": "i64", "key_high": "i64"}
    for precision, (rows, draws, warps, stages) in triton_kernels.TILES.items():
        constants = {"ROWS": rows, "DRAWS": draws, "PRECISION": precision}
        constants["MASKED"] = True
        options = {"num_warps": warps, "num_stages": stages}
        kernel = triton_kernels._generated_kernel
        assert bytes_on_stack(kernel, types, constants, **options) == 0


if __name__ == "__main__":
    # What each of the checks that are named says, as JSON: nothing, or its error.
    errors = {}
    for name in sys.argv[1:]:
        try:
            globals()[name]()
            errors[name] = ""
        except Exception:
            errors[name] = traceback.format_exc()
    json.dump(errors, sys.stdout)
