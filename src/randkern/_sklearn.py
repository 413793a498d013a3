"""What is private in scikit-learn, in one place: a new version may move it."""

from sklearn.externals.array_api_compat import numpy as numpy_namespace
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _num_samples as num_samples

__all__ = [
    "Interval",
    "Options",
    "StrOptions",
    "check_feature_names_in",
    "check_sample_weight",
    "is_pandas_na",
    "is_scalar_nan",
    "num_samples",
    "numpy_namespace",
    "safe_indexing",
]
