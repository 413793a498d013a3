"""The public names, for type checkers: `__init__.py` imports them on first use."""

from randkern import (
    datasets as datasets,
    exceptions as exceptions,
    kernels as kernels,
    onnx as onnx,
    optics as optics,
    plots as plots,
    skeletons as skeletons,
    solvers as solvers,
)
from randkern.data import (
    DeviceBlocks as DeviceBlocks,
    RowBlocks as RowBlocks,
)
from randkern.features import (
    NystromFeatures as NystromFeatures,
    RandomFeatures as RandomFeatures,
)
from randkern.hypothesis_tests import (
    hsic_test as hsic_test,
    mmd_test as mmd_test,
)
from randkern.kernels import (
    ArcCosine as ArcCosine,
    Categorical as Categorical,
    Cauchy as Cauchy,
    Compositional as Compositional,
    Coregionalization as Coregionalization,
    Gaussian as Gaussian,
    Kernel as Kernel,
    Laplacian as Laplacian,
    Linear as Linear,
    Matern as Matern,
    Optical as Optical,
    Periodic as Periodic,
    Polynomial as Polynomial,
    Precomputed as Precomputed,
    Product as Product,
    RationalQuadratic as RationalQuadratic,
    Scaled as Scaled,
    Softmax as Softmax,
    Spectral as Spectral,
    SpectralMixture as SpectralMixture,
    Sum as Sum,
)
from randkern.metric import (
    MetricLearner as MetricLearner,
)
from randkern.models import (
    GaussianProcessClassifier as GaussianProcessClassifier,
    GaussianProcessRegressor as GaussianProcessRegressor,
    KernelLogistic as KernelLogistic,
    KernelQuantileRegressor as KernelQuantileRegressor,
    KernelRidgeClassifier as KernelRidgeClassifier,
    KernelRidgeClassifierCV as KernelRidgeClassifierCV,
    KernelRidgeRegressor as KernelRidgeRegressor,
    KernelRidgeRegressorCV as KernelRidgeRegressorCV,
    KernelSVC as KernelSVC,
    KernelSVR as KernelSVR,
    LocalClassifier as LocalClassifier,
    LocalRegressor as LocalRegressor,
)
from randkern.modules import (
    to_torch as to_torch,
)
from randkern.onnx import (
    export_onnx as export_onnx,
)
from randkern.optics import (
    OpticalFeatures as OpticalFeatures,
)
from randkern.persistence import (
    load as load,
    save as save,
)
from randkern.reporting.public import (
    report as report,
)
from randkern.sizing import (
    effective_dimension as effective_dimension,
    hoeffding_n_components as hoeffding_n_components,
    suggest_n_components as suggest_n_components,
)
from randkern.tabular import (
    TabularClassifier as TabularClassifier,
    TabularEncoder as TabularEncoder,
    TabularRegressor as TabularRegressor,
)

__version__: str
