"""What every test and every docstring example shares: threads and printing.

It sits at the root so that the examples in ``src/`` get it too.
"""

import importlib.util
import os

# Before anything loads BLAS or Numba. The workers of pytest-xdist share the
# cores, so each keeps BLAS to one thread. Numba may use two: tests compare one
# thread with two, and `set_num_threads` cannot exceed what the pool began with.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tensors are tested where PyTorch is installed; SciPy reads this when it is imported.
if importlib.util.find_spec("torch"):
    os.environ.setdefault("SCIPY_ARRAY_API", "1")

from collections.abc import Iterator

import numpy as np
import pytest

# Modules that import PyTorch at their top, or in their examples, have these only where
# it is installed.
collect_ignore_glob = (
    []
    if importlib.util.find_spec("torch")
    else [
        "src/randkern/backend/torch_*.py",
        "src/randkern/backend/triton_*.py",
        "src/randkern/blocks/devices.py",
        "src/randkern/torch.py",
    ]
)


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """Seed NumPy's global state and pin how arrays print.

    Nothing in randkern draws from the global state, but scikit-learn's common
    checks do, and a failure must come back on the next run.
    """
    np.random.seed(0)  # noqa: NPY002
    with np.printoptions(precision=8, threshold=1000, linewidth=75, suppress=False):
        yield
