"""The fused kernels, interpreted on the processor, give what PyTorch gives.

Triton reads TRITON_INTERPRET when a kernel is defined: each check has a process of its
own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

CHECKS = Path(__file__).with_name("_triton_checks.py")


def run(check, **variables):
    done = subprocess.run(
        [sys.executable, str(CHECKS), check],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "check",
    [
        *("cos_sin_features", "generated_product", "hadamard_features", "huge_phases"),
        "features",
    ],
)
def test_interpreted(check):
    run(check, TRITON_INTERPRET="1")


def test_compiled():
    run("compiled", TRITON_INTERPRET="0")
