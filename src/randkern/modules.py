"""Fitted models as modules of PyTorch, which may be absent until one is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from randkern._extras import import_extra

__all__ = ["to_torch"]


def to_torch(model: Any) -> Any:
    """Return a PyTorch module with the predictions of a fitted model.

    It evaluates the model's features, or exact kernel, on tensors, and is
    differentiable in its input.

    Parameters
    ----------
    model : estimator
        A tabular model, ridge model, support vector machine, logistic regression,
        Gaussian process regression, transformer, or a pipeline of these and
        :class:`~sklearn.preprocessing.StandardScaler`.

    Returns
    -------
    torch.nn.Module
        Takes rows (..., d) in single or double precision and returns, in the same
        precision, predictions of regressors, (...) or (..., n_targets); probabilities
        of classifiers that have them, otherwise decision values, (..., n_classes)
        (without the last dimension for two classes); features of transformers. The
        learned numbers are buffers, which ``to(device)`` moves; those of table
        encoders follow the device of the rows. Rows of tables hold one number per
        column: days since 1970 for dates, NaN for missing values, and for categories
        their position in the module's ``categories``, a dict of lists.

    Raises
    ------
    TypeError
        For any other estimator; the message names it.
    ValueError
        If it was fitted to categories without a :class:`~randkern.TabularEncoder`.
    ImportError
        Without PyTorch, which the extra ``gpu`` installs.

    See Also
    --------
    randkern.export_onnx : the same as an ONNX file.

    Examples
    --------
    >>> import torch, randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelRidgeRegressor(n_components=50, random_state=0).fit(X, y)
    >>> x = torch.tensor(X[:3], requires_grad=True)
    >>> predictions = rk.to_torch(model)(x)
    >>> bool((abs(predictions.detach().numpy() - model.predict(X[:3])) < 1e-6).all())
    True
    >>> predictions.sum().backward()
    >>> x.grad.shape
    torch.Size([3, 10])
    """
    torch = import_extra("torch", "randkern.to_torch", "gpu")
    check_is_fitted(model)
    if isinstance(model, Pipeline):
        return torch.nn.Sequential(*(to_torch(step) for _, step in model.steps))
    return importlib.import_module("randkern.torch").module_of(model)
