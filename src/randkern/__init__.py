"""Kernel machines from random features, on scikit-learn's conventions.

Public names load on first use (PEP 562), so that ``import randkern`` stays
cheap.
"""

from ._lazy import loader

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    **dict.fromkeys(
        (
            "ArcCosine",
            "Categorical",
            "Cauchy",
            "Compositional",
            "Coregionalization",
            "Gaussian",
            "Kernel",
            "Laplacian",
            "Linear",
            "Matern",
            "Optical",
            "Periodic",
            "Polynomial",
            "Precomputed",
            "Product",
            "RationalQuadratic",
            "Scaled",
            "Softmax",
            "Spectral",
            "SpectralMixture",
            "Sum",
        ),
        ".kernels",
    ),
    "MetricLearner": ".metric",
    "NystromFeatures": ".features",
    "OpticalFeatures": ".optics",
    "RandomFeatures": ".features",
    **dict.fromkeys(("DeviceBlocks", "RowBlocks"), ".data"),
    **dict.fromkeys(("load", "save"), ".persistence"),
    **dict.fromkeys(("hsic_test", "mmd_test"), ".hypothesis_tests"),
    "export_onnx": ".onnx",
    "report": ".reporting.public",
    "to_torch": ".modules",
    **dict.fromkeys(
        ("TabularClassifier", "TabularEncoder", "TabularRegressor"), ".tabular"
    ),
    **dict.fromkeys(
        (
            "GaussianProcessClassifier",
            "GaussianProcessRegressor",
            "KernelLogistic",
            "KernelQuantileRegressor",
            "KernelRidgeClassifier",
            "KernelRidgeClassifierCV",
            "KernelRidgeRegressor",
            "KernelRidgeRegressorCV",
            "KernelSVC",
            "KernelSVR",
            "LocalClassifier",
            "LocalRegressor",
        ),
        ".models",
    ),
    **dict.fromkeys(
        ("effective_dimension", "hoeffding_n_components", "suggest_n_components"),
        ".sizing",
    ),
}
_MODULES = (
    "datasets",
    "exceptions",
    "kernels",
    "onnx",
    "optics",
    "plots",
    "skeletons",
    "solvers",
)

__all__ = ["__version__", *sorted(_PUBLIC), *_MODULES]

__getattr__ = loader(__name__, {**_PUBLIC, **dict.fromkeys(_MODULES, "")})


def __dir__() -> list[str]:
    return sorted(__all__)
