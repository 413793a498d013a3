"""Tests of two samples and of independence, on random features or exact kernels."""

from randkern.hypothesis_tests.hsic import HSICResult, hsic_test
from randkern.hypothesis_tests.mmd import MMDResult, mmd_test

__all__ = ["HSICResult", "MMDResult", "hsic_test", "mmd_test"]
