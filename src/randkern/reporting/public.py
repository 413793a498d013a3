"""The report as a function of a model and its rows."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted

from randkern._files import atomic_write
from randkern.reporting.baseline_models import baselines
from randkern.reporting.page import contents, panels, render
from randkern.reporting.scores import EvaluatedModel, evaluate
from randkern.reporting.summary import summarise
from randkern.tabular.html_summary import fitted_rows
from randkern.tabular.target_encoding import text_columns

# Held-out rows are this share of all rows, and at most so many.
_SHARE = 0.2
_MAX_ROWS = 10_000


def report(
    model: Any,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    path: str | Path = "report.html",
    title: str | None = None,
) -> Path:
    """Write a page about a model of a table, the same as ``randkern fit`` does.

    One HTML file without references to others: scores on rows that the model has not
    seen beside those of a constant and of a linear model, figures, the columns with
    warnings about them, the kernels that were tried, and the code that builds the
    model.

    Parameters
    ----------
    model : TabularRegressor or TabularClassifier
        Fitted to `X` and `y` if test rows are passed; it is then scored as it is.
    X : DataFrame of shape (n, d)
    y : array of shape (n,)
    X_test, y_test : DataFrame and array, optional
        Rows that the model has not seen. By default a fifth of the rows, at most
        10,000, drawn at random: a clone of the model is fitted to the others, in the
        time limit of the model, and the page is about the clone.
    path : str or Path, default="report.html"
        Where the page is written.
    title : str, optional
        By default it names the target, if `y` is a Series with a name.

    Returns
    -------
    Path
        That of the page.

    Raises
    ------
    TypeError
        If `X` is not a pandas DataFrame, or `model` is not a model of tables.
    ValueError
        If only one of `X_test` and `y_test` is passed.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = rk.TabularRegressor(time_limit=2, random_state=0)
    >>> page = rk.report(model, X[:80], y[:80], path="page.html")  # doctest: +SKIP
    """
    _check(model, X, X_test, y_test)
    target = str(getattr(y, "name", None) or "the target")
    y = np.asarray(y)
    seconds = None
    summary = summarise(X, y, _task(model))
    if X_test is None:
        size = min(max(int(_SHARE * len(y)), 1), _MAX_ROWS)
        labels = None
        if is_classifier(model) and np.unique(y, return_counts=True)[1].min() > 1:
            labels = y
        X, X_test, y, y_test = train_test_split(
            X, y, test_size=size, random_state=0, stratify=labels
        )
        model = clone(model)
        start = perf_counter()
        model.fit(X, y)
        seconds = perf_counter() - start
    check_is_fitted(model)
    y_test = np.asarray(y_test)
    texts = text_columns(X, model.text_columns)
    others = baselines(X, y, _task(model), texts)
    evaluated = EvaluatedModel(
        model,
        (X, y),
        (X_test, y_test),
        evaluate(model, X_test, y_test),
        {name: evaluate(other, X_test, y_test) for name, other in others.items()},
        seconds,
    )
    page = contents(
        evaluated, summary, title or f"Predicting {target}", panels(evaluated, target)
    )
    fitted = fitted_rows(model) or f"fitted to {len(y):,} rows"
    path = Path(path)
    with atomic_write(path) as file:
        file.write(render(page, f"The model is {fitted}.").encode())
    return path


def _check(model: Any, X: Any, X_test: Any, y_test: Any) -> None:
    if not hasattr(model, "time_limit"):
        raise TypeError(
            "report expects a TabularRegressor or TabularClassifier, got "
            f"{type(model).__name__}; scikit-learn's displays draw other models."
        )
    for rows in (X, X_test):
        if rows is not None and not hasattr(rows, "iloc"):
            raise TypeError(
                f"report expects a pandas DataFrame, got {type(rows).__name__}; pass "
                "pandas.DataFrame(X)."
            )
    if (X_test is None) != (y_test is None):
        raise ValueError(
            "report takes X_test and y_test together, got one of them; pass both, or "
            "neither, and a fifth of the rows are held out."
        )


def _task(model: Any) -> str:
    return "classification" if is_classifier(model) else "regression"
