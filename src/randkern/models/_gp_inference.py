"""How the posterior of a Gaussian process follows from rows, for each likelihood.

Normal noise has a posterior in closed form (:class:`Conjugate`). Other likelihoods have
Laplace's approximation, each column of targets by itself (:class:`Laplace`), or all
classes jointly (:class:`LaplaceOfClasses`). A model chooses its inference when it is
fitted, and asks it for everything that depends on the likelihood. It passes what that
needs as values: rows, and a :class:`Basis`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from randkern._memory import check_memory
from randkern._random import Stream
from randkern._validation import Rows
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels.hyperparameters import Hyperparameters
from randkern.models._gp_evidence import (
    Basis,
    Evidence,
    FeaturePosterior,
    LikelihoodOfRows,
    RowPosterior,
    posterior_sums,
    size_of,
)
from randkern.models._gp_laplace import (
    LaplaceEvidence,
    LaplacePosterior,
    Likelihood,
    StudentT,
    likelihood_of,
    softmax_posteriors,
)
from randkern.models._gp_neighbors import (
    NearestEvidence,
    NearestPosterior,
    merged,
)
from randkern.models._gp_rows import FIRST_ROWS
from randkern.models.feature_matrix import FeatureMatrix, GramFactor
from randkern.models.left_out import distinct_rows
from randkern.models.memory import (
    check_matrices,
    laplace_bytes,
    process_bytes,
)
from randkern.plan import Plan

# Rows whose exact likelihood is maximised in fits on landmarks.
_MAX_EXACT_ROWS = 1000
# The largest and smallest number of rows for learning with Laplace's approximation;
# between them, as many as this number of operations allows, of order n³ per column of
# targets.
_MAX_LAPLACE_ROWS = 1000
_MIN_LAPLACE_ROWS = 300
_LAPLACE_OPERATIONS = 1e9
# Largest factors by which learning may change a scale: log odds, and log rates, with 10
# times their initial standard deviation are large enough for any data; beyond,
# Laplace's approximation fails. Scales for real targets follow the targets.
_RANGE_OF_LOGARITHMS = 1e2
_RANGE_OF_TARGETS = 1e10


@dataclass(frozen=True)
class Posteriors:
    """The posteriors of the functions f of a process, one or more.

    For an exact kernel, `X` are the rows that their means are sums of kernel values
    with; if its features are those of pivots X, `triangle` is their factor.
    """

    of_functions: Sequence[Any]
    X: Rows | None = None
    triangle: np.ndarray | None = None


class Inference(ABC):
    """What a Gaussian process does with its likelihood."""

    # Largest factor by which learning may change a scale.
    scale_range: float
    # The likelihood of Laplace's approximation, row by row; None for others.
    likelihood: Likelihood | None = None

    @property
    def has_outliers(self) -> bool:
        """Whether some targets may be far from f."""
        return isinstance(self.likelihood, StudentT)

    def learned_from(self, sample: ArrayRows) -> ArrayRows:
        """Return the rows whose likelihood is that of a sample."""
        return sample

    @abstractmethod
    def max_learning_rows(self, basis: Basis, rows: TrainingData) -> int | None:
        """Return the largest number of rows to learn from.

        None: as many as a limit of operations per evaluation allows.
        """

    @abstractmethod
    def check_memory(
        self, basis: Basis, rows: TrainingData, n_learned: int, limit: int
    ) -> None:
        """Raise if a fit, learning from `n_learned` rows, takes more than the limit."""

    @abstractmethod
    def evidence(
        self,
        rows: ArrayRows,
        hyper: Hyperparameters,
        plan: Plan | None,
        stream: Stream | None = None,
    ) -> LikelihoodOfRows:
        """Return the log marginal likelihood of rows, on features or exact (None).

        The stream is for estimates of its gradient.
        """

    @property
    def logarithms(self) -> dict[str, float]:
        """The numbers that are learned besides those of the kernel, by name."""
        return {}

    def at(self, noise: float) -> Inference:
        """Return the inference with another noise, if there is one."""
        return self

    @abstractmethod
    def posteriors(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Posteriors:
        """Return the posteriors given rows, or given the sample for an exact kernel.

        The sample are the rows that hyperparameters were learned from.
        """


@dataclass(frozen=True)
class Conjugate(Inference):
    """Normal noise. Weights count rows, or divide the noise (`precisions`)."""

    noise: float
    precisions: bool
    scale_range: float = _RANGE_OF_TARGETS

    def max_learning_rows(self, basis: Basis, rows: TrainingData) -> int | None:
        return _MAX_EXACT_ROWS if basis.learning_plan is None else None

    def check_memory(
        self, basis: Basis, rows: TrainingData, n_learned: int, limit: int
    ) -> None:
        needed = process_bytes(basis.plan, rows, n_learned)
        check_matrices(basis.plan, rows, needed, limit)

    def evidence(
        self,
        rows: ArrayRows,
        hyper: Hyperparameters,
        plan: Plan | None,
        stream: Stream | None = None,
    ) -> LikelihoodOfRows:
        return Evidence(rows, hyper, plan, self.precisions, stream)

    @property
    def logarithms(self) -> dict[str, float]:
        return {"noise": math.log(self.noise)}

    def at(self, noise: float) -> Conjugate:
        return replace(self, noise=noise)

    def posteriors(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Posteriors:
        kernel = basis.kernel
        plan = basis.plan
        if plan is None:
            Y, weight = sample.targets()
            size = size_of(weight, self.precisions)
            K = kernel._gram(sample.X, None)
            exact = RowPosterior.of(K, Y, weight, size, self.noise)
            return Posteriors([exact], sample.X)
        sums = rows.reduce(posterior_sums, plan, self.precisions)
        return Posteriors([FeaturePosterior.of(sums, self.noise)])


@dataclass(frozen=True, kw_only=True)
class Nearest(Conjugate):
    """Normal noise; every row depends on its nearest rows only."""

    n_neighbors: int
    stream: Stream

    def check_memory(
        self, basis: Basis, rows: TrainingData, n_learned: int, limit: int
    ) -> None:
        # Copies of the rows in random order and over their lengthscales, a tree of
        # them, and the neighbours of all rows with their distances.
        n, d = rows.n_rows, rows.like.shape[1]
        needed = 8 * n * (4 * d + 2 * self.n_neighbors)
        subject = f"the process of {n} rows with n_neighbors={self.n_neighbors}"
        check_memory(needed, limit, subject, "Use fewer neighbors")

    def evidence(
        self,
        rows: ArrayRows,
        hyper: Hyperparameters,
        plan: Plan | None,
        stream: Stream | None = None,
    ) -> LikelihoodOfRows:
        if rows.n_rows <= FIRST_ROWS:
            return super().evidence(rows, hyper, plan, stream)
        return NearestEvidence(
            rows, hyper, self.precisions, self.n_neighbors, self.stream
        )

    def posteriors(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Posteriors:
        places, deviations = merged(sample, self.precisions)
        posterior = NearestPosterior(
            basis.kernel,
            places.X,
            places.Y,
            places.weight,
            self.noise,
            self.precisions,
            self.n_neighbors,
            self.stream,
            deviations,
        )
        return Posteriors([posterior])


class _LaplaceInference(Inference):
    """Laplace's approximation, with matrices of rows for each function, or for all."""

    is_joint: ClassVar[bool]

    def learned_from(self, sample: ArrayRows) -> ArrayRows:
        return distinct_rows(sample)  # weights count rows

    def max_learning_rows(self, basis: Basis, rows: TrainingData) -> int | None:
        return _max_laplace_rows(rows.n_targets)

    def check_memory(
        self, basis: Basis, rows: TrainingData, n_learned: int, limit: int
    ) -> None:
        most = min(rows.n_rows, _max_laplace_rows(rows.n_targets))
        needed = laplace_bytes(basis.plan, rows, most, joined=self.is_joint)
        check_matrices(basis.plan, rows, needed, limit)


@dataclass(frozen=True)
class Laplace(_LaplaceInference):
    """Laplace's approximation, of every column of targets by itself."""

    is_joint = False

    likelihood: Likelihood
    scale_range: float = _RANGE_OF_LOGARITHMS

    def evidence(
        self,
        rows: ArrayRows,
        hyper: Hyperparameters,
        plan: Plan | None,
        stream: Stream | None = None,
    ) -> LikelihoodOfRows:
        return LaplaceEvidence(rows, hyper, plan, self.likelihood)

    @property
    def logarithms(self) -> dict[str, float]:
        noise = self.likelihood.noise
        return {} if noise is None else {"noise": math.log(noise)}

    def at(self, noise: float) -> Laplace:
        return replace(self, likelihood=self.likelihood.at(noise))

    def posteriors(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Posteriors:
        features = _features(basis, rows, sample, limit)
        width = _width(features)
        of_functions = [
            LaplacePosterior.of(features, width, self.likelihood, target)
            for target in range(rows.n_targets)
        ]
        return _of_features(features, sample, of_functions)


@dataclass(frozen=True)
class LaplaceOfClasses(_LaplaceInference):
    """Laplace's approximation of the softmax, jointly of all classes."""

    is_joint = True

    scale_range: float = _RANGE_OF_LOGARITHMS

    def evidence(
        self,
        rows: ArrayRows,
        hyper: Hyperparameters,
        plan: Plan | None,
        stream: Stream | None = None,
    ) -> LikelihoodOfRows:
        return LaplaceEvidence(rows, hyper, plan, None)

    def posteriors(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Posteriors:
        features = _features(basis, rows, sample, limit)
        hyper = Hyperparameters(basis.kernel)
        evidence = self.evidence(sample, hyper, basis.learning_plan)
        value, _ = evidence(hyper.theta, False)
        of_functions = softmax_posteriors(features, _width(features), value)
        return _of_features(features, sample, of_functions)


def _max_laplace_rows(n_targets: int) -> int:
    affordable = round((_LAPLACE_OPERATIONS / n_targets) ** (1 / 3))
    return max(_MIN_LAPLACE_ROWS, min(_MAX_LAPLACE_ROWS, affordable))


def _features(
    basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
) -> FeatureMatrix:
    """Return features of rows, or, for an exact kernel, those of pivots of the sample.

    Pivots may be fewer than the components of the matrix.
    """
    if basis.plan is None:
        return GramFactor(basis.kernel, sample.X, *sample.targets())
    return FeatureMatrix(rows, basis.plan, limit // 4)


def _width(features: FeatureMatrix) -> int:
    if isinstance(features, GramFactor):
        return len(features.pivots)
    return features.n_components


def _of_features(
    features: FeatureMatrix, sample: ArrayRows, of_functions: Sequence[Any]
) -> Posteriors:
    if isinstance(features, GramFactor):
        return Posteriors(of_functions, sample.X[features.pivots], features.triangle)
    return Posteriors(of_functions)


def regression_inference(model: Any, rows: TrainingData, stream: Stream) -> Inference:
    """Return the inference of a regressor, for rows in units of the fit."""
    noise = float(model.noise)
    counted = model.weights == "counts"
    if model.n_neighbors is not None:
        return Nearest(
            noise,
            not counted,
            n_neighbors=int(model.n_neighbors),
            stream=stream.child("neighbors"),
        )
    if model.likelihood == "gaussian":
        return Conjugate(noise, not counted)
    likelihood = likelihood_of(
        model.likelihood, rows, noise, counted=counted, normalized=model.normalize_y
    )
    if likelihood.noise is None:
        return Laplace(likelihood)
    return Laplace(likelihood, _RANGE_OF_TARGETS)
