"""Tests of two samples and of independence: level, power and seconds.

Samples of n rows of five columns are drawn again in every trial. Under the hypothesis
(``same``, ``independent``) both samples, or all columns of both variables, are
independent and normal. Otherwise two columns of the second sample have a correlation of
0.6 (``correlated``), so that no single column differs, or its columns have Student's
distribution of 6 degrees of freedom, scaled to variance 1 (``tails``); and the second
variable follows the square of one column of the first (``square``). Tests are ours, on
features and with exact kernels; SciPy's multiscale graph correlation (Shen, Priebe and
Vogelstein 2020), a test of both hypotheses by distances; and, for two samples,
Kolmogorov and Smirnov's test of every column with Bonferroni's correction. All reject
at 5 %; all but the last permute rows 200 times. Seconds are medians of the processor's
time.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, ks_2samp, multiscale_graphcorr

import randkern

from ..contenders import Contender
from ..figures import add_legend, curves, name_axes, panels
from ..options import CommonOptions, Names, Sizes, option
from ..runner import Case, SkippedCase, grid, measure_all
from ..tables import listing

#: Questions, with what is true of the samples: first the hypothesis.
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "two samples": ("same", "correlated", "tails"),
    "independence": ("independent", "square"),
}
_LEVEL, _PERMUTATIONS, _COLUMNS, _FREEDOM, _CORRELATION = 0.05, 200, 5, 6, 0.6


def _own(question: str, X: Any, Y: Any, seed: int, exact: bool = False) -> float:
    test: Any = randkern.hsic_test
    n_components = 100
    if question == "two samples":
        test, n_components = randkern.mmd_test, 500
    result = test(
        X,
        Y,
        n_components=None if exact else n_components,
        n_permutations=_PERMUTATIONS,
        random_state=seed,
    )
    return result.pvalue


def _distances(question: str, X: Any, Y: Any, seed: int) -> float:
    return float(
        multiscale_graphcorr(
            X,
            Y,
            reps=_PERMUTATIONS,
            is_twosamp=question == "two samples",
            random_state=seed,
        ).pvalue
    )


def _columns(question: str, X: Any, Y: Any, seed: int) -> float:
    pvalues = [ks_2samp(*columns).pvalue for columns in zip(X.T, Y.T, strict=True)]
    return float(min(1.0, len(pvalues) * min(pvalues)))


_exact = partial(_own, exact=True)
METHODS: Mapping[str, Contender] = {
    name: Contender(label, colour, marker, dashes, make=make, max_rows=most)
    for name, label, colour, marker, dashes, make, most in (
        ("features", "randkern, features", "blue", "o", "-", _own, None),
        ("exact", "randkern, exact", "black", "D", (0, (4, 2)), _exact, 1000),
        ("distances", "SciPy, graph correlation", "red", "v", "--", _distances, 100),
        ("columns", "SciPy, KS by column", "orange", "s", ":", _columns, None),
    )
}
# All samples are drawn of so many rows; of more rows fewer.
_FULL_ROWS = 1000
# These take seconds a test: a quarter of the samples, of up to so many rows.
_SLOW, _SLOW_ROWS = ("exact", "distances"), 300


def _interval(trials: int, share: float) -> str:
    """Return Wilson's 95 % interval of a share, in percentage points."""
    interval = binomtest(round(share * trials), trials).proportion_ci(method="wilson")
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"


def samples(
    truth: str, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return two samples, or the paired rows of two variables."""
    X, Y = rng.normal(size=(2, n, _COLUMNS))
    if truth == "correlated":
        Y[:, 0] = _CORRELATION * Y[:, 1] + np.sqrt(1 - _CORRELATION**2) * Y[:, 0]
    elif truth == "tails":
        scale = np.sqrt((_FREEDOM - 2) / _FREEDOM)
        Y = scale * rng.standard_t(_FREEDOM, size=(n, _COLUMNS))
    elif truth == "square":
        Y[:, 0] += 0.5 * X[:, 0] ** 2
    return X, Y


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench hypothesis-tests``."""

    n: Sizes = option(
        (100, 300, 1000, 10_000, 100_000), "Rows of each sample.", quick=(20,)
    )
    trials: int = option(
        400,
        "Pairs of samples of up to 1,000 rows; of more rows proportionally fewer. Of "
        "exact kernels and SciPy's graph correlation a quarter, of up to 300 rows.",
        quick=4,
    )
    methods: Names = option(tuple(METHODS), "", among=METHODS)


SKIPPED_BY = ("question", "method", "n")


def run(options: Options) -> pd.DataFrame:
    """Count rejections of each test, under the hypothesis and otherwise."""
    cases = [
        case
        for question, truths in QUESTIONS.items()
        for case in grid(
            question=[question], method=options.methods, n=options.n, truth=truths
        )
    ]
    return measure_all(options, cases, partial(rejections, options))


def rejections(options: Options, case: Case) -> dict[str, Any]:
    """Return the share of rejections, over new samples in every trial."""
    question, n = case["question"], case["n"]
    method = METHODS[case["method"]]
    method.check(n)
    if case["method"] == "columns" and question != "two samples":
        raise SkippedCase("it compares columns of two samples")
    trials, full = options.trials, _FULL_ROWS
    if case["method"] in _SLOW:
        trials, full = trials // 4, _SLOW_ROWS
    trials = max(1, trials * min(n, full) // n)
    rng = np.random.default_rng([options.seed, n])
    rejected, seconds = 0, []
    for trial in range(trials):
        X, Y = samples(case["truth"], n, rng)
        start = time.process_time()
        pvalue = method.make(question, X, Y, trial)
        seconds.append(time.process_time() - start)
        rejected += bool(pvalue <= _LEVEL)
    return {
        "seed": options.seed,
        "label": method.label,
        "trials": trials,
        "rejected": rejected / trials,
        "seconds": median(seconds),
    }


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        frame.assign(interval=list(map(_interval, frame.trials, frame.rejected))),
        "{question}: rejected at 5 %, and CPU seconds of a test",
        "test | rows | samples | truth | rejected | 95 % interval | CPU s",
        "{label} | {n:,} | {trials} | {truth} | {rejected:.1p} | "
        "{interval} | {seconds:.3g}",
        per="question",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return shares of rejections and seconds against the number of rows."""
    figure, axes = panels(6, 3, (4.4, 3.6))
    xlabel = "rows of each sample"
    for place, title, top, *truths in (
        (axes[0], "two samples, correlated columns: power", 105, "correlated"),
        (axes[1], "two samples, heavier tails: power", 105, "tails"),
        (axes[2], "independence, a square: power", 105, "square"),
        (axes[3], "no difference: level (5 %)", 20, "same", "independent"),
    ):
        own = frame[frame.truth.isin(truths)]
        curves(place, own, "n", "rejected", METHODS, log="x", scale=100.0)
        name_axes(place, title, xlabel, "rejected in %")
        place.set_ylim(0, top)
    axes[3].axhline(100 * _LEVEL, color="grey", linewidth=1)
    for place, question in zip(axes[4:], QUESTIONS, strict=True):
        curves(place, frame[frame.question == question], "n", "seconds", METHODS)
        name_axes(place, f"{question}: seconds", xlabel, "CPU seconds of a test")
    add_legend(figure)
    return figure
