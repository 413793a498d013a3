"""The work of logistic regression with the exact kernel of many rows."""

from __future__ import annotations

import math

from randkern.models.dual_logistic import preconditioner_rank
from randkern.tabular.work import RATE, gram_seconds

# Products of a fit, for two classes and for several; operations of one with up to so
# many columns per n²; Newton steps; and fits in all that choose a penalty.
_PRODUCTS, _PRODUCT, _COLUMNS = (20, 90), 20.0, 8
_STEPS, TRIED = 8, 2.5
# How often the Gram matrix's time until the first product.
_GRAMS = 2


def fit_seconds(n: int, n_columns: int, n_classes: int, n_fits: float = 1.0) -> float:
    """Return the work of fits to n rows that start from each other."""
    several = n_classes > 2
    k = n_classes if several else 1
    product = math.ceil(k / _COLUMNS) * _PRODUCT * float(n) ** 2
    preparing = _STEPS * 2.0 * n * preconditioner_rank(n, 1) ** 2
    operations = n_fits * (_PRODUCTS[several] * product + preparing)
    return _GRAMS * gram_seconds(n, n_columns) + operations / RATE
