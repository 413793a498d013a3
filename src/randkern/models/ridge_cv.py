"""Kernel ridge regression and classification that choose their penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import sklearn
from scipy import stats
from sklearn.base import is_classifier
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)

from randkern._fitting import all_or_nothing, forget
from randkern._random import root_stream
from randkern._sklearn import Interval, StrOptions
from randkern.backend.namespace import ops_of
from randkern.data.columns import split_target
from randkern.data.reading import are_in_memory
from randkern.data.training_data import ArrayRows, FitData
from randkern.kernels import Gaussian, Kernel
from randkern.models._feature_model import check_features
from randkern.models._ridge import Fitted, RidgeModel, fit_equations, fit_gram
from randkern.models.alpha_search import (
    DualSearch,
    Predictions,
    PrimalSearch,
    Split,
    scores_by,
    squared_error,
)
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.component_search import finds_components
from randkern.models.dual import gram_of
from randkern.models.left_out import ProbedRows
from randkern.models.memory import block_rows, check_matrices, matrix_bytes
from randkern.models.ridge import RidgeClassifierMixin, RidgeRegressorMixin

DEFAULT_ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
# Multiples of the lengthscale "scale"; ties are resolved in favour of the first.
_LENGTHSCALES = (1.0, 0.5, 2.0, 0.25, 4.0)


class _ChoosesAlpha(RidgeModel):
    """Fits weights to targets at the best of several penalties."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RidgeModel._parameter_constraints,
        "alphas": ["array-like", Interval(Real, 0, None, closed="neither")],
        "scoring": [str, callable, None],
        "cv": [StrOptions({"gcv"}), "cv_object"],
    }

    alphas: Any
    scoring: Any
    cv: Any

    _chooses_kernel = True

    @all_or_nothing
    @finds_components
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
        **params: Any,
    ) -> Self:
        """Fit to rows and their targets or labels, at the best penalty.

        Parameters
        ----------
        X : array, CSR matrix, dataframe or tensor of n rows
        y : array of shape (n,) or (n, n_targets)
            Targets, or labels (n,) of a classifier.
        sample_weight : array of shape (n,), optional
            Factors of the rows' squared errors, and of their scores: 1 each by default.
        target : str, optional
            The column of a dataframe `X` that holds `y`.
        **params : arrays of shape (n,)
            What the splitter `cv` asks for, such as ``groups`` for
            :class:`~sklearn.model_selection.GroupKFold`, if scikit-learn's metadata
            routing is enabled.
        """
        split_arguments = {}
        if params and not sklearn.get_config()["enable_metadata_routing"]:
            raise ValueError(
                f"fit takes {', '.join(params)} only by metadata routing; use "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
        if params:
            routed = process_routing(self, "fit", **params)
            split_arguments = routed["splitter"]["split"]
        self._validate_params()
        X, y = split_target(X, y, target)
        if not are_in_memory(X):
            name = type(self).__name__
            raise ValueError(
                f"{name} needs all rows in memory, got {type(X).__name__}; fit it to "
                f"a sample in memory, and then fit {name.removesuffix('CV')} with its "
                "kernel_ and alpha_ to all rows."
            )
        report = FitReport(self, X, y, sample_weight)
        stream = root_stream(self.random_state)
        self._forget()
        data = self._read(X, y, sample_weight, stream)
        alphas = _checked_alphas(self.alphas)
        self._check_cv()
        splits = self._splits(data.rows.as_arrays(), split_arguments)
        fitted, data = self._solve(data, alphas, splits)
        self._store(fitted, data.shift, data.kept_rows)
        report.end()
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what metadata is passed on: to `fit`, and to the splitter `cv`."""
        from sklearn.model_selection import check_cv

        splits = not (self.cv is None or self.cv == "gcv")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(
            splitter=check_cv(self.cv if splits else None),
            method_mapping=MethodMapping().add(caller="fit", callee="split"),
        )

    def _forget(self) -> None:
        super()._forget()
        forget(self, "alpha_", "best_score_", "cv_results_")

    def _solve(
        self, data: FitData, alphas: np.ndarray, splits: list[Split]
    ) -> tuple[Fitted, FitData]:
        """Choose the kernel and the penalty, and return their fit, and its data."""
        rows = data.rows.as_arrays()
        X, Y, weight = rows.X, rows.Y, rows.weight
        ops = ops_of(X)
        weighted: Any = slice(None)
        if weight is not None and not (weight != 0).all():
            # Rows of weight 0 are excluded from fits and scores.
            weighted = ops.flatnonzero(weight)
            splits = [_among(_on_host(weighted), split) for split in splits]
            rows = ArrayRows(X[weighted], Y[weighted], weight[weighted])
        if rows.n_rows < 2:
            raise ValueError(
                "choosing alpha needs at least 2 rows of positive weight, got "
                f"n_samples = {rows.n_rows}."
            )
        used = self._near_zero(replace(data, rows=rows))
        search: Any = None

        def search_with(lengthscale: float | None) -> Any:
            if lengthscale is not None:
                self._drawn(data, Gaussian(lengthscale))
            return self._search(used.rows.as_arrays(), alphas, data.limit)

        lengthscales = self._lengthscales()
        results = []
        for lengthscale in lengthscales:
            search = None  # free its memory first
            search = search_with(lengthscale)
            results.append(self._scores(search, used, rows.Y, splits))
        best = self._choose(results, alphas, lengthscales)
        if best < len(lengthscales) - 1:
            search = None
            search = search_with(lengthscales[best])
        used = replace(used, kernel=self.kernel_, plan=self.plan_)
        if self.features == "random":
            check_features(used)
        chosen = np.full(rows.n_targets, self.alpha_)
        if isinstance(search, PrimalSearch):
            probed = ProbedRows.of(
                used.rows,
                used.targets.labelled,
                used.stream.child("left out").generator(),
                factorised=True,
            )
            fitted = fit_equations(
                search.total, self._plan, chosen, self.fit_intercept, probed
            )
            return fitted, used
        search = None
        fitted = fit_gram(used, chosen, self.fit_intercept)
        dual = ops.float64_zeros((X.shape[0], rows.n_targets), X)
        dual[weighted] = fitted.solution.value
        fitted = replace(fitted, solution=replace(fitted.solution, value=dual))
        return fitted, replace(used, rows=data.rows)

    def _check_cv(self) -> None:
        """Raise for `cv` or scorers that do not apply."""
        from sklearn.metrics import check_scoring

        if isinstance(self.cv, np.ndarray):  # has no truth value
            raise ValueError(
                "cv must be None, 'gcv', an integer, a splitter or a list of splits, "
                f"got an array {self.cv!r}; pass cv.tolist()."
            )
        if self.cv == "gcv" and self.scoring is not None:
            raise ValueError(
                f"cv='gcv' does not support scoring={self.scoring!r}; use cv=None "
                "(leave-one-out), or a number of folds."
            )
        scorer = None if self.scoring is None else check_scoring(self, self.scoring)
        response: Any = getattr(scorer, "_response_method", "predict")
        asked = {response} if isinstance(response, str) else set(response)
        if not is_classifier(self) and asked.isdisjoint({"predict", "default"}):
            raise ValueError(
                f"scoring={self.scoring!r} needs {' or '.join(sorted(asked))}, but a "
                "regressor only predicts numbers; use for instance scoring='r2'."
            )

    def _search(
        self, rows: ArrayRows, alphas: np.ndarray, limit: int
    ) -> PrimalSearch | DualSearch:
        """Return the search with the smaller system; raise if it exceeds the memory."""
        n, k, n_alphas = rows.n_rows, rows.n_targets, len(alphas)
        dual = self.plan_ is None or self.plan_.n_components > n
        side = n if dual else self._plan.n_components
        # The matrix of a split, eigenvectors, and the workspace of LAPACK's divide and
        # conquer, twice the size of the matrix.
        needed = matrix_bytes(self.plan_, rows, 4 if dual else 5, dual=dual)
        needed += 8 * n_alphas * side * (6 * k + 2)
        if self.scoring or self.cv:
            needed += 8 * n_alphas * n * k  # predictions
        if not dual:
            width = side + n_alphas * k
            needed += 3 * 8 * width * min(n, block_rows(8 * width, at_least=16))
        check_matrices(self.plan_, rows, needed, limit, dual=dual)
        if dual:
            gram = gram_of(self.kernel_, self.plan_, rows.X)
            return DualSearch(gram, rows, alphas, self.fit_intercept)
        spare = limit - needed
        return PrimalSearch(self._plan, rows, alphas, self.fit_intercept, spare)

    def _lengthscales(self) -> list[float] | list[None]:
        """Return the lengthscales to choose from, or None for the kernel as drawn.

        Generalised cross-validation does not choose, as it replaces each leverage by
        the mean: if a few rows have most of the weight, it prefers kernels that fit
        only those.
        """
        if self.kernel is not None or self.cv == "gcv":
            return [None]
        assert isinstance(self.kernel_, Gaussian)
        scale = float(self.kernel_.lengthscale)
        return [factor * scale for factor in _LENGTHSCALES]

    def _scores(
        self,
        search: PrimalSearch | DualSearch,
        used: FitData,
        original: Any,
        splits: list[Split],
    ) -> np.ndarray:
        """Return the scores of every penalty, (n_splits, n_alphas).

        The rows have fitted targets; `original` are the user's.
        """
        rows = used.rows.as_arrays()
        Y, weight = rows.Y, rows.weight
        scored = partial(self._scored, shift=used.shift)
        if self.cv == "gcv":
            return search.generalised()[None]
        if self.cv is None and self.scoring is None:
            return squared_error(search.leave_one_out(), Y, weight)[None]
        if self.cv is None:
            return scored(search.leave_one_out(), original, weight)[None]
        parts = []
        held_out = zip(splits, search.held_out(splits), strict=True)
        for (train, test), predictions in held_out:
            part = None if weight is None else weight[test]
            # A fit does not predict classes that it has not seen.
            seen = (Y[train] > 0).any(axis=0)
            parts.append(scored(predictions, original[test], part, seen))
        return np.stack(parts)

    def _choose(
        self, results: list[np.ndarray], alphas: np.ndarray, lengthscales: list[Any]
    ) -> int:
        """Store the best penalty; return the index of its kernel, the first of ties."""
        by_split = np.concatenate(results, axis=1)
        table = {"param_alpha": np.tile(alphas, len(lengthscales))}
        if len(lengthscales) > 1:
            table["param_lengthscale"] = np.repeat(lengthscales, len(alphas))
        if self.cv is not None and self.cv != "gcv":
            for split, scores in enumerate(by_split):
                table[f"split{split}_test_score"] = scores
            with np.errstate(invalid="ignore"):  # infinite log losses
                table["std_test_score"] = np.std(by_split, axis=0)
        scores = by_split.mean(axis=0)
        finite = np.where(np.isfinite(scores), scores, -np.inf)
        best = int(finite.argmax())
        if not np.isfinite(scores[best]):
            raise ValueError(
                f"no alpha has a finite score, got {scores.tolist()}; the folds may "
                "be too small for scoring, or the targets too large."
            )
        table["mean_test_score"] = scores
        table["rank_test_score"] = stats.rankdata(-finite, method="min").astype(int)
        self.cv_results_ = table
        self.alpha_ = float(table["param_alpha"][best])
        self.best_score_ = float(scores[best])
        return best // len(alphas)

    def _scored(
        self,
        predictions: Predictions,
        original: Any,
        weight: Any,
        seen: Any = None,
        *,
        shift: tuple[float, ...],
    ) -> np.ndarray:
        """Return the scorer's scores of predictions of some rows, (n_alphas,)."""
        from sklearn.metrics import check_scoring

        values = np.empty((np.size(self.alphas), *original.shape))
        for rows, part in predictions:
            values[:, rows] = _on_host(part)
        values += np.array(shift)
        classes = _on_host(getattr(self, "classes_", None))
        if classes is not None and seen is not None and self._many_targets:
            values[..., ~_on_host(seen)] = -np.inf
        weight = _on_host(weight)
        values = values if self._many_targets else values[..., 0]
        scorer = check_scoring(self, self.scoring)
        y = self._original_targets(original)
        return scores_by(scorer, values, y, weight, classes)

    def _splits(self, rows: ArrayRows, arguments: dict[str, Any]) -> list[Split]:
        """Return (training, validation) rows; empty for leave-one-out and "gcv"."""
        from sklearn.model_selection import check_cv

        if self.cv is None or self.cv == "gcv":
            return []
        y = self._original_targets(rows.Y)
        numbers = np.arange(rows.n_rows)
        try:
            cv = check_cv(self.cv, y, classifier=is_classifier(self))
            splits = [
                (numbers[np.asarray(train)], numbers[np.asarray(test)])
                for train, test in cv.split(rows.X, y, **arguments)
            ]
            valid = all(part.ndim == 1 for split in splits for part in split)
        except (IndexError, TypeError):
            valid = False
        if not valid or not splits:
            raise ValueError(
                "cv must yield at least one pair (training rows, validation rows) of "
                f"arrays of row numbers between 0 and {len(y) - 1}, got {self.cv!r}."
            )
        used = _on_host(rows.targets()[1]) > 0
        for train, test in splits:
            for name, part in (("training", train), ("validation", test)):
                if not used[part].any():
                    raise ValueError(
                        f"a split of cv has no {name} rows of positive weight; use "
                        "fewer folds, or shuffle the rows."
                    )
            classes_of_split = np.unique(y[train][used[train]]).tolist()
            if is_classifier(self) and len(classes_of_split) == 1:
                raise ValueError(
                    "a split of cv has training rows of one class only, "
                    f"{classes_of_split[0]!r}; use fewer folds, or stratified folds "
                    "such as those of cv=5."
                )
        return splits

    def _original_targets(self, Y: Any) -> np.ndarray:
        """Return targets (n, k) as labels, or in the given shape, on the host."""
        Y = _on_host(Y)
        if not is_classifier(self):
            return Y if self._many_targets else Y[:, 0]
        classes = _on_host(self.classes_)
        if Y.shape[1] == 1:
            return classes[(Y[:, 0] > 0).astype(int)]
        return classes[Y.argmax(axis=1)]


def _on_host(array: Any) -> Any:
    """Return an array as one of NumPy, or None."""
    return None if array is None else ops_of(array).to_host(array)


def _checked_alphas(alphas: Any) -> np.ndarray:
    """Return penalties as an array; raise unless they are positive and finite."""
    values = np.atleast_1d(np.asarray(alphas))
    values = values.astype(float) if values.dtype.kind in "iuf" else np.zeros(1)
    valid = (values > 0) & np.isfinite(values)
    if values.ndim > 1 or not values.size or not valid.all():
        raise ValueError(
            f"alphas must be one or more positive finite numbers, got {alphas!r}; for "
            "instance numpy.logspace(-6, 3, 10)."
        )
    return values


def _among(weighted: np.ndarray, split: Split) -> Split:
    """Return a split of rows as positions among rows of non-zero weight."""
    position = np.full(weighted[-1] + 1, -1)
    position[weighted] = np.arange(len(weighted))
    train, test = (rows[np.isin(rows, weighted)] for rows in split)
    return position[train], position[test]


class KernelRidgeRegressorCV(RidgeRegressorMixin, _ChoosesAlpha):
    r"""Kernel ridge regression that chooses its penalty by cross-validation.

    If no kernel is given, the lengthscale is chosen, too.

    One eigendecomposition serves every α: with ZᵀZ = V diag(λ) Vᵀ the weights are
    V diag(1/(λ + α)) VᵀZᵀY, and the residual of row i in a fit without it is

        (y_i − ŷ_i)/(1 − H_ii),  H = Z (ZᵀZ + αI)⁻¹ Zᵀ

    (sample weights and an intercept are taken into account). With more features than
    rows, and for the exact kernel, the n × n matrix is decomposed instead. The
    model is then that of :class:`KernelRidgeRegressor` with ``alpha=alpha_``.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is the Gaussian with the best of 1/4, 1/2, 1, 2 and 4 times the
        lengthscale ``"scale"`` (the scale itself for ``cv="gcv"``);
        ``Gaussian("scale")`` keeps that.
    alphas : array of shape (n_alphas,) or float, default=(1e-6, 1e-5, ..., 1e3)
        Penalties to try, each positive.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    scoring : str, callable or None, default=None
        A scikit-learn scorer, or its name. None: the negative mean squared error for
        leave-one-out, the coefficient of determination for folds. Targets whose squares
        leave the range of floats are divided by a power of two for scoring.
    cv : None, "gcv", int, splitter or iterable, default=None
        None: leave-one-out, in closed form. ``"gcv"``: minus the generalised
        cross-validation score, Σ_i (y_i − ŷ_i)²/n / (1 − tr H/n)², which allows no
        `scoring`. An int or a splitter: folds, with normal equations accumulated once
        per fold (a fit sums those of all other folds) and one decomposition per fold.
    projection : str, default="auto"
        How the random matrix is drawn: ``"dense"``, with independent rows, and stored;
        ``"streamed"``, the same, recomputed when needed; ``"orthogonal"``, in
        orthogonal blocks, for a lower variance; ``"structured"``, in such blocks by
        fast Walsh-Hadamard transforms; ``"qmc"``, from a Sobol sequence; ``"auto"``,
        by kernel and number of columns.
    features : {"random", "nystrom"}, default="random"
        ``"random"``: random features of the kernel; ``"nystrom"``: its values at
        `n_components` landmark rows, chosen by randomly pivoted Cholesky.
    fourier : {"pair", "offset"}, default="pair"
        For stationary kernels. ``"pair"``: cosines and sines of D/2 frequencies;
        ``"offset"``: cosines of D frequencies with random phases.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised constant. Without it, targets far from 0 raise a
        warning: the penalty pulls predictions towards 0.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``. None: 2 GB. A decomposition takes about
        5·8·min(n, D)² bytes; features are cached if memory is left.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    alpha_ : float
        The best penalty.
    best_score_ : float
        Its score.
    cv_results_ : dict of ndarray
        ``param_alpha``, ``mean_test_score`` and ``rank_test_score``, all of shape
        (n_alphas,); for folds ``std_test_score`` and ``split0_test_score``, ... With
        ``kernel=None`` also ``param_lengthscale``, and 5 times as many entries.
    kernel_, plan_, coef_, dual_coef_, intercept_, solution_
        Of the fit with the best penalty: the resolved kernel, the plan of its features,
        weights of features or of rows, the intercept, and the result of the solve.

    Notes
    -----
    A kernel is resolved and its features drawn once, on all rows. Sample weights
    apply to the fit and to the score; rows of weight zero are in neither. As the
    penalty is chosen on all rows at once, there is no `partial_fit`: to add rows, use
    :class:`KernelRidgeRegressor` with `kernel_` and `alpha_`.

    References
    ----------
    Golub, Heath & Wahba 1979, "Generalized cross-validation as a method for choosing
    a good ridge parameter"; Rifkin & Lippert 2007, "Notes on regularized least
    squares".

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelRidgeRegressorCV(
    ...     n_components=200, scoring="r2", fit_intercept=True, random_state=0)
    >>> model.fit(X, y).alpha_
    0.1
    >>> round(model.best_score_, 2)
    0.51
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        alphas: float | Sequence[float] = DEFAULT_ALPHAS,
        n_components: int | Sequence[int] | None = 1000,
        *,
        scoring: Any = None,
        cv: Any = None,
        projection: str = "auto",
        features: str = "random",
        fourier: str = "pair",
        fit_intercept: bool = False,
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alphas = alphas
        self.n_components = n_components
        self.scoring = scoring
        self.cv = cv
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.fit_intercept = fit_intercept
        self.memory_limit = memory_limit
        self.random_state = random_state


class KernelRidgeClassifierCV(RidgeClassifierMixin, _ChoosesAlpha):
    """Kernel ridge classification that chooses its penalty by cross-validation.

    If no kernel is given, the lengthscale is chosen, too. Like
    :class:`KernelRidgeRegressorCV`, on labels coded as ±1; the model is then that of
    :class:`KernelRidgeClassifier` with ``alpha=alpha_``.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is the Gaussian with the best of 1/4, 1/2, 1, 2 and 4 times the
        lengthscale ``"scale"`` (the scale itself for ``cv="gcv"``);
        ``Gaussian("scale")`` keeps that.
    alphas : array of shape (n_alphas,) or float, default=(1e-6, 1e-5, ..., 1e3)
        Penalties to try, each positive.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    scoring : str, callable or None, default=None
        A scikit-learn scorer, or its name. None: the negative mean squared error of
        the targets ±1 for leave-one-out, the accuracy for folds.
    cv : None, "gcv", int, splitter or iterable, default=None
        None: leave-one-out, in closed form. ``"gcv"``: minus the generalised
        cross-validation score, which allows no `scoring`. An int (stratified folds) or
        a splitter: folds, with one decomposition per fold.
    projection : str, default="auto"
        How the random matrix is drawn: ``"dense"``, with independent rows, and stored;
        ``"streamed"``, the same, recomputed when needed; ``"orthogonal"``, in
        orthogonal blocks, for a lower variance; ``"structured"``, in such blocks by
        fast Walsh-Hadamard transforms; ``"qmc"``, from a Sobol sequence; ``"auto"``,
        by kernel and number of columns.
    features : {"random", "nystrom"}, default="random"
        ``"random"``: random features of the kernel; ``"nystrom"``: its values at
        `n_components` landmark rows, chosen by randomly pivoted Cholesky.
    fourier : {"pair", "offset"}, default="pair"
        For stationary kernels. ``"pair"``: cosines and sines of D/2 frequencies;
        ``"offset"``: cosines of D frequencies with random phases.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised constant.
    class_weight : dict, "balanced" or None, default=None
        A factor for the rows of each class; ``"balanced"``: n_samples / (n_classes ·
        rows of the class). They also weight the score. None: 1 for all.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``. None: 2 GB. A decomposition takes about
        5·8·min(n, D)² bytes; features are cached if memory is left.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    alpha_, best_score_, cv_results_
        The best penalty, its score, and a dict of arrays with all penalties
        (``param_alpha``) and their scores (``mean_test_score``).
    classes_ : ndarray of shape (n_classes,)
    kernel_, plan_, coef_, dual_coef_, intercept_, solution_
        Of the fit with the best penalty: the resolved kernel, the plan of its features,
        weights of features or of rows, the intercept, and the result of the solve.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = rk.KernelRidgeClassifierCV(scoring="accuracy", random_state=0)
    >>> model.fit(X[:1000], y[:1000]).best_score_ > 0.97
    True
    """

    _parameter_constraints: ClassVar = {
        **_ChoosesAlpha._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        alphas: float | Sequence[float] = DEFAULT_ALPHAS,
        n_components: int | Sequence[int] | None = 1000,
        *,
        scoring: Any = None,
        cv: Any = None,
        projection: str = "auto",
        features: str = "random",
        fourier: str = "pair",
        fit_intercept: bool = False,
        class_weight: Any = None,
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alphas = alphas
        self.n_components = n_components
        self.scoring = scoring
        self.cv = cv
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.memory_limit = memory_limit
        self.random_state = random_state
