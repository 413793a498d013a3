"""The names of published experiments and of benchmarks."""

import importlib
from typing import Any

EXPERIMENTS = (
    "optical-ridge",
    "optical-hyperparameters",
    "optical-device",
    "transfer-learning",
    "projection-cost",
    "optical-convergence",
    "optical-solvers",
    "compositional-accuracy",
    "compositional-bounds",
    "compositional-structure",
    "compositional-cost",
    "compositional-tables",
    "kitchen-sinks-gp",
    "fourier-svm",
)
BENCHMARKS = (
    "features",
    "accuracy",
    "classifiers",
    "scaling",
    "landmarks",
    "gp",
    "gpu",
    "tables",
    "hypothesis-tests",
    "quantiles",
    "terrain",
)
# Earlier names, which recorded commands have.
EARLIER = {"ridge": "classifiers", "svm": "classifiers", "ways": "classifiers"}


def load(name: str) -> Any:
    """Return the script of that name, a module, which is imported on demand."""
    folder = "papers" if name in EXPERIMENTS else "benchmarks"
    return importlib.import_module(f"{__package__}.{folder}.{name.replace('-', '_')}")
