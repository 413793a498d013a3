"""Fitted models in other forms."""

from __future__ import annotations

import importlib
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from randkern._extras import import_extra

__all__ = ["to_torch"]


def to_torch(model: Any) -> Any:
    """Return a module that predicts what a fitted model does, from tensors.

    It computes with the model's features, or exact kernel, on tensors, and is
    differentiable in its input.

    Parameters
    ----------
    model : estimator
        A model of tables, ridge model, support vector machine, logistic regression,
        Gaussian process of regression, transformer, or a pipeline of these and
        :class:`~sklearn.preprocessing.StandardScaler`.

    Returns
    -------
    torch.nn.Module
        Takes rows (..., d) in single or double precision and returns, in that,
        predictions of regressors, (...) or (..., n_targets); probabilities of
        classifiers that have them, otherwise decisions, (..., n_classes) (for two
        classes decisions have no last dimension); features of transformers. What was
        learned is in buffers, which ``to(device)`` moves, but for encoders of tables,
        whose numbers follow the rows. Of tables the rows hold one
        number per column: days since 1970 for dates, NaN for missing values, and for
        categories their position in the module's ``categories``, a dict of lists.

    Raises
    ------
    TypeError
        For another estimator; it is named.
    ValueError
        If it was fitted to categories without a :class:`~randkern.TabularEncoder`.
    ImportError
        Without PyTorch; the extra ``gpu`` brings it.

    See Also
    --------
    randkern.export_onnx : the same as a file for other runtimes.

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
