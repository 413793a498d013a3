"""Experiments and benchmarks by name; modules are imported on demand."""

import importlib
from collections.abc import Mapping

from .runner import Experiment

EXPERIMENTS: Mapping[str, str] = {
    "optical-ridge": "papers.optical_ridge:OpticalRidge",
    "optical-hyperparameters": "papers.optical_hyperparameters:OpticalHyperparameters",
    "optical-device": "papers.optical_device:OpticalDevice",
    "transfer-learning": "papers.transfer_learning:TransferLearning",
    "projection-cost": "papers.projection_cost:ProjectionCost",
    "optical-convergence": "papers.optical_convergence:OpticalConvergence",
    "compositional-accuracy": "papers.compositional_accuracy:CompositionalAccuracy",
    "compositional-bounds": "papers.compositional_bounds:CompositionalBounds",
    "compositional-structure": "papers.compositional_structure:CompositionalStructure",
    "compositional-cost": "papers.compositional_cost:CompositionalCost",
    "compositional-tables": "papers.compositional_tables:CompositionalTables",
    "kitchen-sinks-gp": "papers.kitchen_sinks_gp:KitchenSinks",
    "fourier-svm": "papers.fourier_svm:FourierSVM",
}
BENCHMARKS: Mapping[str, str] = {
    "features": "benchmarks.features:FeatureCost",
    "accuracy": "benchmarks.accuracy:Accuracy",
    "ridge": "benchmarks.ridge:Ridge",
    "gp": "benchmarks.gaussian_process:GaussianProcesses",
    "gpu": "benchmarks.gpu:OnGPU",
    "svm": "benchmarks.svm:Machines",
    "tables": "benchmarks.tables:Tables",
    "families": "benchmarks.families:Families",
    "ways": "benchmarks.ways:Ways",
    "hypothesis-tests": "benchmarks.hypothesis_tests:HypothesisTests",
    "quantiles": "benchmarks.quantiles:Quantiles",
    "terrain": "benchmarks.terrain:Terrain",
}


def load(name: str) -> type[Experiment]:
    """Return one of :data:`EXPERIMENTS` or :data:`BENCHMARKS`."""
    module, _, experiment = {**EXPERIMENTS, **BENCHMARKS}[name].partition(":")
    result = importlib.import_module(f"{__package__}.{module}")
    chosen: type[Experiment] = getattr(result, experiment)
    return chosen
