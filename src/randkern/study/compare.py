"""Test error against the number of random features, compared to the exact kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from statistics import fmean
from typing import Any

from randkern._validation import check_choice, check_count, check_positive
from randkern.reporting.deadline import Deadline
from randkern.study.fits import Fits, Progress
from randkern.study.kernel_choices import KernelChoice, parse_kernels
from randkern.study.metrics import by_setting, metric_of
from randkern.study.selection import MAX_ROWS, Selection, select_hyperparameters

# As many as a usual core does in the time that a fit of any size takes.
_FIXED_OPERATIONS = 1e8
# With less, hyperparameters are chosen on fewer rows, to leave most of it for fits.
_SECONDS_OF_KERNEL = 20.0
# The number of features (None: the exact kernel), the seed, and which features.
_Draw = tuple[int | None, int, str]


def compare(
    dataset: Any,
    kernels: str | Sequence[str] = ("gaussian", "laplacian", "optical"),
    n_components: Sequence[int] = (30, 100, 300, 1000, 3000),
    *,
    exact: bool = True,
    features: Sequence[str] = ("random",),
    alpha: float | None = None,
    n_seeds: int = 3,
    memory_limit: int | str | None = None,
    time_limit: float | None = None,
    began: float | None = None,
    metric: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure test error, time and memory of kernels by number of features.

    Every kernel's hyperparameters are chosen once, by the errors of training rows that
    are left out (:func:`.selection.select_hyperparameters`), and used for every number
    of features and for the exact kernel. Each model is then fitted on all training rows
    and scored on the test rows. The models' intercept centres the targets.

    `features` may be ``"random"`` and ``"nystrom"``: landmarks are recorded as a
    separate kernel, ``"gaussian, landmarks"``. Models with random features are drawn
    with the seeds 0, 1, ..., `n_seeds` − 1; the split and the hyperparameters are the
    same for all. By default one penalty `alpha` is chosen per kernel. More features
    than a linear kernel has columns, and fits that would exceed `memory_limit`, are
    recorded as skipped; so are fits, except for the first, that by their operations and
    the pace of the fit before would end after `time_limit` seconds, which count from
    `began`, a time by `time.perf_counter`, or from the call. All kernels are measured
    with few features before any is with more, and exact ones when it is their turn by
    operations; further seeds follow once each of these has been measured. Where there
    are less than 20 seconds per kernel, hyperparameters are chosen on half as many
    rows. Before a kernel is timed, its models are fitted once on a few rows, so that no
    record includes compilation.

    `metric` is the name of one in :data:`.metrics.METRICS`, in which the best model is
    chosen.

    Of the results, which are JSON-compatible, ``selection`` has the trials by kernel,
    ``baselines`` scores and times of the most frequent class, or the mean, and of a
    linear model; ``skipped`` has a ``reason`` and ``warnings`` a ``message`` by
    ``kernel`` and ``n_components``. A record has the ``kernel`` as requested,
    ``n_components`` (None: exact) and ``seed``; ``test_error`` in the metric that
    ``dataset`` names, its ``standard_error`` from the number of test rows, ``log_loss``
    and ``auc`` (one-vs-rest, weighted) of classifiers with probabilities, ``rmse``,
    ``mae`` and ``r2`` of regressors;
    ``fit_seconds`` and ``predict_seconds``; ``peak_memory_bytes`` of the process in
    both, with interpreter and data, and ``memory_before_bytes`` just before; and the
    kernel's ``hyperparameters`` with ``alpha``.
    """
    choices = parse_kernels(kernels)
    sizes = sorted({check_count("n_components", size) for size in n_components})
    if not (sizes or exact):
        raise ValueError(
            "there is nothing to compare; pass n_components, exact kernels, or both"
        )
    for name in features:
        check_choice("features", name, ("random", "nystrom"))
    if alpha is not None:
        check_positive("alpha", alpha)
    check_count("n_seeds", n_seeds)
    metric_of(metric, dataset.task)  # raises before the work, not after
    deadline = Deadline(time_limit, began)
    draws: list[_Draw] = [(None, 0, "random")] * exact
    draws += [
        (size, seed, which)
        for which in features
        for size in sizes
        for seed in range(n_seeds)
    ]
    # Baselines, and of each kernel the hyperparameters and all draws.
    total = 1 + len(choices) * (1 + len(draws))
    fits = Fits(dataset, memory_limit, progress, total)
    fits.begin("baselines")
    baselines = fits.baselines({"n_components": None})
    chosen = _measure_all(fits, choices, draws, alpha, deadline)
    _note_divergence(fits, next(iter(baselines.values()), None))
    fits.begin("done")
    arguments = {
        "kernels": [choice.label for choice in choices],
        "n_components": sizes,
        "exact": exact,
        "features": list(features),
        "alpha": "auto" if alpha is None else alpha,
        "n_seeds": n_seeds,
        "memory_limit": memory_limit,
        "time_limit": time_limit,
        "metric": metric,
    }
    selection = {label: asdict(selected) for label, selected in chosen.items()}
    return fits.results(arguments, selection=selection, baselines=baselines)


def _measure_all(
    fits: Fits,
    choices: Sequence[KernelChoice],
    draws: Sequence[_Draw],
    alpha: float | None,
    deadline: Deadline,
) -> dict[str, Selection]:
    """Add all records, as kernels and sizes were asked for; return hyperparameters."""
    chosen: dict[str, Selection] = {}
    enough = _SECONDS_OF_KERNEL * len(choices)
    for choice in choices:
        fits.begin(f"{choice.label}: choosing hyperparameters")
        if deadline.left <= 0 and chosen:
            continue
        X = fits.data.X_train
        y = fits.data.y_train
        task = fits.data.task
        selected = select_hyperparameters(
            choice,
            X,
            y,
            task=task,
            alpha=alpha,
            splitting=fits.data.splitting,
            max_rows=MAX_ROWS if deadline.limit >= enough else MAX_ROWS // 2,
            report=lambda n: fits.detail(f"setting {n}"),
        )
        chosen[choice.label] = selected
        # The exact kernel, and fewer features than rows: the primal system.
        few = None, len(fits.few_rows()) // 2
        fits.compile(_model(fits, choice, selected, size, 0) for size in few)
    n = len(fits.data.X_train)
    for draw in sorted(draws, key=lambda draw: (draw[1], _operations(n, draw[0]))):
        for choice in choices:
            _measure(fits, choice, chosen.get(choice.label), deadline, *draw)
    asked = [
        (_label(choice, features), size, seed)
        for choice in choices
        for size, seed, features in draws
    ]
    fits.records.sort(
        key=lambda record: asked.index(
            (record["kernel"], record["n_components"], record["seed"])
        )
    )
    return chosen


def _note_divergence(fits: Fits, constant: Mapping[str, Any] | None) -> None:
    """Note features that err more than a constant where their exact kernel does not."""
    settings = by_setting(fits.records)
    for (kernel, size), records in settings.items():
        exact = settings.get((kernel.partition(",")[0], None))
        if size is None or exact is None or constant is None:
            continue
        error = fmean(record["test_error"] for record in records)
        limit = exact[0]["test_error"]
        if limit < constant["test_error"] < error:
            message = (
                f"these features err more than a constant ({error:.3g}, against "
                f"{constant['test_error']:.3g}; the exact kernel {limit:.3g}): the "
                "penalty of the exact kernel is too small for so few features; pass "
                "a larger --alpha, or more features"
            )
            note = {"kernel": kernel, "n_components": size, "message": message}
            fits.warnings.append(note)


def _operations(n: int, size: int | None) -> float:
    """Count the operations of a fit: a factorisation, of features or of rows.

    In the time of what does not depend on the size there could be some more.
    """
    rest = n**3 / 3 if size is None or size > n else n * float(size) ** 2
    return _FIXED_OPERATIONS + rest


def _label(choice: KernelChoice, features: str) -> str:
    return choice.label + ", landmarks" * (features == "nystrom")


def _model(
    fits: Fits, choice: KernelChoice, selected: Selection, size: int | None, seed: int
) -> Any:
    """Return a model of a kernel with the hyperparameters that were chosen."""
    model = fits.model(choice.build(selected.value), size, seed)
    return model.set_params(alpha=selected.alpha)


def _measure(
    fits: Fits,
    choice: KernelChoice,
    selected: Selection | None,
    deadline: Deadline,
    size: int | None,
    seed: int,
    features: str,
) -> None:
    """Add one record, or a note on why it was skipped."""
    label = _label(choice, features)
    doing = "exact" if size is None else f"{size:,} features, seed {seed}"
    fits.begin(f"{label}: {doing}")
    note: dict[str, Any] = {"kernel": label, "n_components": size}
    operations = _operations(len(fits.data.X_train), size)
    reason = deadline.reason_to_skip(features, operations)
    if not fits.records:  # one fit is never skipped, so that there is a model to save
        reason = None
    if selected is None or reason is not None:
        fits.skip(note, reason or "the time limit was over before it was its turn")
        return
    model = _model(fits, choice, selected, size, seed).set_params(features=features)
    if (most := model.n_components) != size:
        fits.skip(note, f"the {choice.family} kernel is exact with {most} features")
        return
    measured = fits.try_fit(note, partial(fits.measured, model))
    if measured is not None:
        seconds = measured["fit_seconds"] + measured["predict_seconds"]
        deadline.note(features, operations, seconds)
        named = choice.hyperparameters(selected.value, selected.alpha)
        fits.records.append(note | {"seed": seed, "hyperparameters": named} | measured)
