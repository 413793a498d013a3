"""Grids of hyperparameters: penalty, feature scale, and lengthscale or bias.

Features multiplied by s with penalty α give the same predictions as the features
themselves with penalty α/s²: one eigendecomposition per kernel setting covers every
scale and every penalty, and no cell of their grid needs a fit.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import make_scorer

import randkern
from randkern._extras import import_extra
from randkern._validation import check_count, check_positive
from randkern.study.deadline import Deadline
from randkern.study.fits import Fits, Progress, relative_error
from randkern.study.kernel_choices import KernelChoice, parse_kernels
from randkern.study.metrics import metric_of

# Relative to the mean of the kernel's diagonal, rounded to a power of ten.
_PENALTY_EXPONENTS = np.arange(-6, 3)
# Relative to lengthscale="scale", and to the mean squared norm of the rows.
_MULTIPLES = {
    "lengthscale": tuple(2.0 ** np.arange(-3, 4)),
    "bias": (0.0, 1 / 16, 1 / 4, 1.0, 4.0, 16.0),
}
_HELD_OUT_SHARE = 0.25
# In place of a setting of a kernel that has fewer than others; None is a setting.
_NO_MORE: Any = object()


def tune(
    dataset: Any,
    kernels: str | Sequence[str] = ("gaussian", "optical"),
    *,
    n_components: int | None = 1000,
    alphas: Sequence[float] | None = None,
    scales: Sequence[float] = (0.01, 0.1, 1.0, 10.0),
    lengthscales: Sequence[float] | None = None,
    biases: Sequence[float] | None = None,
    validation: str | int = "loo",
    n_trials: int | None = None,
    memory_limit: int | str | None = None,
    time_limit: float | None = None,
    began: float | None = None,
    random_state: int = 0,
    metric: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score a grid of hyperparameters on held-out training rows.

    For every kernel and every lengthscale or bias, one model selects among all
    penalties (:class:`randkern.KernelRidgeClassifierCV`, or its regressor); the best
    of each kernel is then fitted on all training rows and scored on the test rows.

    `n_components` is the number of random features (at most one per column for the
    linear kernel), or None for the exact kernel; `validation` is ``"loo"``,
    ``"holdout"`` (a quarter of the training rows) or a number of folds. Without values,
    penalties are the powers of ten from 10⁻⁶ to 10² times the power of ten nearest to
    the mean of the kernel's diagonal (without bias); lengthscales ⅛, ¼, ..., 8 times
    what ``lengthscale="scale"`` resolves to; and biases 0, 1/16, ¼, 1, 4 and 16 times
    the mean squared norm of the rows. With `n_trials`, Optuna proposes so many values
    per kernel between the ends of the grid of lengthscales or biases, which they
    replace (log-uniform; without a bias of 0). `metric`, a name of
    :data:`.metrics.METRICS`, defines the validation error, by default the test error;
    where larger values are better it is minus the value. Leave-one-out has no
    probabilities: the log loss, and the AUC of more than two classes, are refused. Fits
    that would exceed `memory_limit` are recorded as skipped; so are settings, except
    for the first, that by the time of the one before would leave less than that for the
    final fit of each kernel before `time_limit` seconds are over, which count from
    `began`, a time by `time.perf_counter`, or from the call. Kernels take turns, and
    values in the middle of a grid come first.

    The results, which are JSON-compatible, have ``records`` (``kernel``,
    ``hyperparameters``, ``validation_error``), ``settings`` (one per decomposition:
    ``kernel``, ``hyperparameters`` of the kernel, ``n_penalties``, ``seconds``),
    ``best`` (by kernel: ``hyperparameters``, ``validation_error``, ``test_error``,
    ``standard_error``, ``log_loss``, ``auc``, ``fit_seconds``, ``at_edge``),
    ``baselines`` (scores of a constant and of a linear model, by name), and, by
    ``kernel`` and ``hyperparameters``, ``skipped`` (``reason``) and ``warnings``
    (``message``).
    """
    choices = parse_kernels(kernels)
    grid = Grid(alphas, scales, lengthscales, biases)
    if n_components is not None:
        check_count("n_components", n_components)
    if n_trials is not None:
        check_count("n_trials", n_trials)
        import_extra("optuna", "a search by trials", "tune")
    options = {
        "n_components": n_components,
        "validation": validation,
        "n_trials": n_trials,
        "memory_limit": memory_limit,
        "time_limit": time_limit,
        "random_state": random_state,
        "metric": metric,
    }
    search = _Search(dataset, grid, options, Deadline(time_limit, began), progress)
    baselines = search.baselines({"hyperparameters": {}})
    search.run(choices)
    arguments = {"kernels": [choice.label for choice in choices]}
    results = search.results(
        "tune",
        arguments | asdict(grid) | options,
        settings=search.settings,
        best=search.best,
        baselines=baselines,
    )
    results["dataset"]["validation"] = search.described
    return results


def preference(record: Mapping[str, Any]) -> tuple[float, float, float]:
    """Order records by smallest error, scale nearest to 1, and largest penalty.

    Only α/s² matters, so equal errors are common.
    """
    named = record["hyperparameters"]
    distance = abs(float(np.log(named["scale"])))
    return record["validation_error"], distance, -named["alpha"]


@dataclass
class Grid:
    """The values to try, ascending; "auto", for None, follows from the data."""

    alphas: Any
    scales: Any
    lengthscales: Any
    biases: Any

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            rising: Any = "auto"
            if values is not None:
                zero = name == "biases"
                rising = sorted({check_positive(name, v, zero=zero) for v in values})
            if not rising:
                raise ValueError(
                    f"{name} must be a list of at least one number, got an empty list"
                )
            setattr(self, name, rising)

    def values(self, choice: KernelChoice, X: NDArray[Any]) -> list[float | None]:
        """Return the lengthscales or biases of a kernel, [None] if it has none."""
        if choice.opens is None:
            return [None]
        grid = self.biases if choice.opens == "bias" else self.lengthscales
        if grid != "auto":
            return list(grid)
        reference = choice.reference(X)
        return [multiple * reference for multiple in _MULTIPLES[choice.opens]]

    def penalties(self, choice: KernelChoice, X: NDArray[Any]) -> list[float]:
        """Return the values of alpha for a kernel."""
        if self.alphas != "auto":
            return self.alphas
        value = 0.0 if choice.opens == "bias" else choice.reference(X)
        diagonal = float(np.mean(choice.build(value).diag(X)))
        decade = round(np.log10(diagonal)) if diagonal > 0 else 0
        return [float(f"1e{decade + exponent}") for exponent in _PENALTY_EXPONENTS]


class _Search(Fits):
    """Scores settings of kernels on one data set, and stores the records."""

    def __init__(
        self,
        dataset: Any,
        grid: Grid,
        options: dict[str, Any],
        deadline: Deadline,
        progress: Progress | None,
    ) -> None:
        super().__init__(dataset, options["memory_limit"], progress)
        self.grid = grid
        self.deadline = deadline
        self.options = options
        self.metric = metric_of(options["metric"], self.data.task)
        n_classes = len(np.unique(self.data.y_train))
        has_area = self.metric.score != "auc" or n_classes == 2
        if not (has_area and (self.metric.scorer or self.metric.score == "test_error")):
            raise ValueError(
                f"tune has no {self.metric.title} for {n_classes} classes: rows left "
                "out have no probabilities; pass metric='error', for two classes "
                "'auc', or use compare"
            )
        self.splits, self.described = self._splits()
        self.settings: list[dict[str, Any]] = []
        self.best: dict[str, dict[str, Any]] = {}
        # By kernel, the smallest error of its last setting, None if it was skipped.
        self.least_error: dict[str, float | None] = {}

    def _splits(self) -> tuple[list[Any] | None, str]:
        """Return training and validation rows, None for leave-one-out, and a name."""
        y = self.data.y_train
        task = self.data.task
        seed = self.options["random_state"]
        validation, splitting = self.options["validation"], self.data.splitting
        if validation == "loo":
            folds = splitting.dependent_folds(len(y))
            if folds is None:
                return None, "leave-one-out"
            splits = list(folds.splits())
            if folds.is_forward:
                return splits, f"{len(splits)} periods, each after its training rows"
            return splits, f"{len(splits)} folds of whole groups"
        if validation == "holdout":
            *rows, _ = splitting.held_out(y, task, _HELD_OUT_SHARE, seed)
            return [rows], f"{_HELD_OUT_SHARE:.0%} of the training rows"
        if isinstance(validation, str) or not 2 <= validation <= len(y):
            raise ValueError(
                "validation must be 'loo', 'holdout' or a number of folds between 2 "
                f"and the {len(y)} training rows, got {validation!r}"
            )
        splits = splitting.folds(y, task, validation, seed)
        return splits, f"{len(splits)} folds"

    def settings_of(self, choice: KernelChoice) -> tuple[int, Iterable[float | None]]:
        """Return the number of settings to try, and these: the grid's, or Optuna's.

        The middle of the grid comes first, as the more likely.
        """
        n_trials = self.options["n_trials"]
        values = self.grid.values(choice, self.data.X_train)
        if n_trials is None or choice.opens is None:
            middle = (len(values) - 1) / 2
            order = sorted(range(len(values)), key=lambda at: abs(at - middle))
            return len(values), [values[at] for at in order]
        positive = [value for value in values if value]
        if not positive or positive[0] == positive[-1]:
            raise ValueError(
                f"trials need at least two positive values of {choice.opens} for "
                f"{choice.label}, got {values}"
            )
        return n_trials, self._proposals(choice, positive[0], positive[-1])

    def _proposals(
        self, choice: KernelChoice, low: float, high: float
    ) -> Iterator[float]:
        """Yield what Optuna proposes between two values, without its log."""
        optuna = import_extra("optuna", "a search by trials", "tune")
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            sampler = optuna.samplers.TPESampler(seed=self.options["random_state"])
            study = optuna.create_study(sampler=sampler)
            for _ in range(self.options["n_trials"]):
                trial = study.ask()
                yield trial.suggest_float(choice.opens, low, high, log=True)
                failed = optuna.trial.TrialState.FAIL
                error = self.least_error[choice.label]
                study.tell(trial, error, failed if error is None else None)
        finally:
            optuna.logging.set_verbosity(verbosity)

    def score(self, choice: KernelChoice, value: float | None, *, n_final: int) -> None:
        """Add the records of one setting of a kernel, or why it was skipped.

        `n_final` fits follow all settings.
        """
        doing = "" if choice.opens is None else f", {choice.opens} {value:.4g}"
        self.begin(choice.label + doing)
        named = choice.hyperparameters(value, 1.0)
        del named["alpha"]
        self.least_error[choice.label] = None
        reason = self.deadline.reason_to_skip(1 + n_final)
        if self.settings and reason is not None:  # one is never skipped
            self.skip({"kernel": choice.label, "hyperparameters": named}, reason)
            return
        penalties = self.grid.penalties(choice, self.data.X_train)
        cells = [(s, a, _penalty(s, a)) for s in self.grid.scales for a in penalties]
        distinct = sorted({penalty for *_, penalty in cells})
        model = self.ridge_of(choice.build(value), search=True)
        model.set_params(
            alphas=distinct,
            cv=self.splits,
            scoring=self.metric.scorer
            or make_scorer(
                relative_error, greater_is_better=False, task=self.data.task
            ),
        )
        seconds = self._fitted(model, choice, named)
        if seconds is None:
            return
        self.deadline.note(1, seconds)
        self.least_error[choice.label] = -model.best_score_
        self.settings.append(
            {
                "kernel": choice.label,
                "hyperparameters": named,
                "n_penalties": len(distinct),
                "seconds": seconds,
            }
        )
        errors = dict(zip(distinct, -model.cv_results_["mean_test_score"], strict=True))
        self.records.extend(
            {
                "kernel": choice.label,
                "hyperparameters": named | {"scale": s, "alpha": a},
                "validation_error": float(errors[penalty]),
            }
            for s, a, penalty in cells
        )

    def run(self, choices: Sequence[KernelChoice]) -> None:
        """Score all settings of kernels for which there is time, then the best ones.

        The kernels take turns, so that a time limit leaves settings of each.
        """
        settings = [self.settings_of(choice) for choice in choices]
        self.total = sum(1 + n for n, _ in settings)
        self.compile(
            self.ridge_of(choice.build(1.0), search=True) for choice in choices
        )
        turns = zip_longest(*(values for _, values in settings), fillvalue=_NO_MORE)
        for turn in turns:
            for choice, value in zip(choices, turn, strict=True):
                if value is not _NO_MORE:
                    self.score(choice, value, n_final=len(choices))
        self.sort(choices)
        for choice in choices:
            self.conclude(choice)
        self.begin("done")

    def sort(self, choices: Sequence[KernelChoice]) -> None:
        """Sort records and settings by kernels as asked for, and by their values."""
        opens = {choice.label: choice.opens for choice in choices}

        def key(record: Mapping[str, Any]) -> tuple[int, float]:
            label = record["kernel"]
            value = record["hyperparameters"].get(opens[label], 0.0)
            return list(opens).index(label), value

        self.records.sort(key=key)
        self.settings.sort(key=key)

    def conclude(self, choice: KernelChoice) -> None:
        """Fit the best setting of a kernel on all training rows, and score it."""
        self.begin(f"{choice.label}: the best on the test rows")
        own = [r for r in self.records if r["kernel"] == choice.label]
        if not own:
            return
        chosen = min(own, key=preference)
        named = chosen["hyperparameters"]
        kernel = choice.build(named.get(choice.opens))
        if named["scale"] != 1.0:
            kernel = randkern.Scaled(kernel, named["scale"] ** 2)
        model = self.ridge_of(kernel).set_params(alpha=named["alpha"])
        seconds = self._fitted(model, choice, named)
        if seconds is not None:
            self.best[choice.label] = chosen | {
                **self.scores(model, model.predict(self.data.X_test)),
                "fit_seconds": seconds,
                "at_edge": at_edge(named, own, choice.opens),
            }

    def ridge_of(self, kernel: Any, *, search: bool = False) -> Any:
        """Return a model of the size and seed that were asked for."""
        size, seed = self.options["n_components"], self.options["random_state"]
        return self.model(kernel, size, seed, search=search)

    def _fitted(
        self, model: Any, choice: KernelChoice, named: Mapping[str, float]
    ) -> float | None:
        """Fit on the training rows; return the seconds, or None if it was skipped."""
        note = {"kernel": choice.label, "hyperparameters": dict(named)}
        fit = partial(model.fit, self.data.X_train, self.data.y_train)
        start = time.perf_counter()
        skipped = self.try_fit(note, fit) is None
        return None if skipped else time.perf_counter() - start


def _penalty(scale: float, alpha: float) -> float:
    """Return α/s², equal for cells that differ only by rounding."""
    return float(f"{alpha / scale**2:.12g}")


def at_edge(
    named: Mapping[str, float], own: Sequence[Mapping[str, Any]], opens: str | None
) -> list[str]:
    """Return which values are at an end of the grid, which may then be too small.

    They are `opens` (the lengthscale or bias) and ``"alpha"``; `named` are the chosen
    hyperparameters and `own` the records of the kernel.
    """

    def compared(values: Mapping[str, float]) -> dict[str, float]:
        opened = {} if opens is None else {opens: values[opens]}
        return opened | {"alpha": _penalty(values["scale"], values["alpha"])}

    tried = [compared(record["hyperparameters"]) for record in own]
    edges = []
    for name, value in compared(named).items():
        values = {setting[name] for setting in tried}
        if len(values) > 1 and value in {min(values), max(values)} - {0.0}:
            edges.append(name)
    return edges
