"""Tests of two samples and of independence: level, power and seconds.

Samples of n rows of five columns are drawn again in every trial. Under the hypothesis
(``same``) both samples, or all columns of both variables, are independent and normal.
Otherwise (``different``) the columns of the second sample have Student's distribution
of 6 degrees of freedom, scaled to variance 1, and the second variable follows the
square of one column of the first. Tests are ours, on features and with exact kernels;
SciPy's multiscale graph correlation (Shen, Priebe and Vogelstein 2020), a test of both
hypotheses by distances; and, for two samples, Kolmogorov and Smirnov's test of every
column with Bonferroni's correction. All reject at 5 %; all but the last permute rows
200 times. Seconds are medians of the processor's time.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, ClassVar

import numpy as np
from scipy.stats import ks_2samp, multiscale_graphcorr

import randkern

from ..contenders import Contender, known_names
from ..options import CommonOptions, option
from ..panels import Panel
from ..runner import Case, Experiment, SkippedCase, grid
from ..tables import Listing, of

QUESTIONS = ("two samples", "independence")
_LEVEL, _PERMUTATIONS, _COLUMNS, _FREEDOM = 0.05, 200, 5, 6


def _own(question: str, n_components: int | None, X: Any, Y: Any, seed: int) -> float:
    test = randkern.mmd_test if question == "two samples" else randkern.hsic_test
    result = test(
        X,
        Y,
        n_components=n_components,
        n_permutations=_PERMUTATIONS,
        random_state=seed,
    )
    return result.pvalue


def _features(question: str, X: Any, Y: Any, seed: int) -> float:
    return _own(question, 500 if question == "two samples" else 100, X, Y, seed)


def _exact(question: str, X: Any, Y: Any, seed: int) -> float:
    return _own(question, None, X, Y, seed)


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


METHODS: Mapping[str, Contender] = {
    "features": Contender("randkern, features", "blue", "o", "-", make=_features),
    "exact": Contender(
        "randkern, exact", "black", "D", (0, (4, 2)), make=_exact, max_rows=1000
    ),
    "distances": Contender(
        "SciPy, graph correlation", "red", "v", "--", make=_distances, max_rows=100
    ),
    "columns": Contender("SciPy, KS by column", "orange", "s", ":", make=_columns),
}
# Of more rows fewer samples are drawn.
_MANY_ROWS = 300


def _different(question: str, results: Mapping[str, Any]) -> list[Case]:
    return of(results["records"], question=question, truth="different")


def samples(
    question: str, truth: str, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return two samples, or the paired rows of two variables."""
    X, Y = rng.normal(size=(2, n, _COLUMNS))
    if truth == "different" and question == "two samples":
        scale = np.sqrt((_FREEDOM - 2) / _FREEDOM)
        Y = scale * rng.standard_t(_FREEDOM, size=(n, _COLUMNS))
    elif truth == "different":
        Y[:, 0] += 0.5 * X[:, 0] ** 2
    return X, Y


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench hypothesis-tests``."""

    n: tuple[int, ...] = option(
        (100, 300, 1000, 10_000, 100_000), "Rows of each sample.", quick=(20,)
    )
    trials: int = option(50, "Pairs of samples of up to 300 rows.", quick=2)
    large_trials: int = option(4, "Pairs of larger samples.", quick=1)
    methods: tuple[str, ...] = option(tuple(METHODS), f"Of {', '.join(METHODS)}.")


class HypothesisTests(Experiment):
    """Shares of rejections, when the hypothesis is true and when it is not."""

    name = "hypothesis-tests"
    title = "Level, power and seconds of tests of two samples and of independence."
    command = "bench"
    Options = Options
    listed = (
        Listing(
            "{question}: rejected at 5 %, and CPU seconds of a test",
            "test | rows | samples | truth | rejected | ± | CPU s",
            "{label} | {n:,} | {trials} | {truth} | {rejected:.1p} | "
            "{standard_error:.1p} | {seconds:.3g}",
            per="question",
        ),
    )
    panels = tuple(
        Panel(
            "n",
            y,
            "method",
            METHODS,
            f"{question}: {label}",
            log=log,
            scale=scale,
            xlabel="rows of each sample",
            ylabel=label,
            records=partial(_different, question),
        )
        for question in QUESTIONS
        for y, label, log, scale in (
            ("rejected", "power in %", "x", 100.0),
            ("seconds", "CPU seconds of a test", "xy", None),
        )
    )
    layout: ClassVar = {"columns": 2}
    skipped_by = ("question", "method", "n")

    def cases(self) -> Iterator[Case]:
        """Return each test at each size, under the hypothesis and otherwise."""
        methods = known_names("test", self.options.methods, METHODS)
        yield from grid(
            question=QUESTIONS,
            method=methods,
            n=sorted(set(self.options.n)),
            truth=("same", "different"),
        )

    def measure(self, case: Case) -> dict[str, Any]:
        """Return the share of rejections, over new samples in every trial."""
        question, n = case["question"], case["n"]
        method = METHODS[case["method"]]
        method.check(n)
        if case["method"] == "columns" and question != "two samples":
            raise SkippedCase("it compares columns of two samples")
        options = self.options
        trials = options.large_trials if n > _MANY_ROWS else options.trials
        rng = np.random.default_rng([options.seed, n])
        rejections, seconds = 0, []
        for trial in range(trials):
            X, Y = samples(question, case["truth"], n, rng)
            start = time.process_time()
            pvalue = method.make(question, X, Y, trial)
            seconds.append(time.process_time() - start)
            rejections += pvalue <= _LEVEL
        share = rejections / trials
        return {
            "seed": options.seed,
            "label": method.label,
            "trials": trials,
            "rejected": share,
            "standard_error": math.sqrt(share * (1 - share) / trials),
            "seconds": median(seconds),
        }
