"""Kernels, projections and points that the statistical suites run over.

A new kernel joins by one line of `KERNELS`, a new projection by one of
`PROJECTIONS`.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

import randkern as rk
from randkern._random import Stream
from randkern.kernels import Kernel
from randkern.kernels.base import mean_diagonals
from randkern.kernels.draw import draw_plan
from randkern.plan import Group, Plan, evaluate
from randkern.projections import Antithetic, NormalDistribution, projection_class

# Rows 0 and 1 are parallel, 0 and 2 orthogonal, 3 is zero. Columns 2 and 3
# hold few values, so that categorical kernels find some rows equal: 0 and 2
# agree on column 3, 2 and 3 on column 2.
POINTS = np.array(
    [
        [0.8, -0.4, 0.6, 1.0],
        [0.4, -0.2, 0.3, 0.5],
        [-1.25, 0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 0.0],
        [0.5, 0.1, -0.3, 0.0],
        [0.9, -0.2, 0.5, 0.5],
    ]
)
N_FEATURES = POINTS.shape[1]

# All pairs of points, x = y among them.
FIRST, SECOND = np.triu_indices(len(POINTS))


@dataclass(frozen=True)
class Case:
    """A kernel; `phases` if its features are cosines and sines."""

    kernel: Kernel
    phases: bool = True
    # An average over a few hundred draws is nearly normal.
    light_tailed: bool = True


def _ones() -> list[np.ndarray]:
    """Categories in which the value 1 of the points is an unseen one."""
    return [np.array([0.0, 0.5])]


def _uniform(n, d, generator):
    return generator.uniform(-1, 1, size=(n, d))


def _sinc(differences):
    return np.sinc(differences / np.pi).prod(axis=-1)


ARD = np.array([0.7, 1.0, 2.0, 1.4])
KERNELS: dict[str, Case] = {
    "gaussian": Case(rk.Gaussian(0.9)),
    "gaussian-ard": Case(rk.Gaussian(ARD)),
    "laplacian": Case(rk.Laplacian(2.0)),
    "laplacian-ard": Case(rk.Laplacian(2 * ARD)),
    "cauchy": Case(rk.Cauchy(1.2)),
    "matern-0.7": Case(rk.Matern(0.7, 1.1)),
    "matern-1.5": Case(rk.Matern(1.5, 0.8)),
    "matern-inf": Case(rk.Matern(np.inf)),
    "rational-quadratic": Case(rk.RationalQuadratic(0.6, 0.8)),
    "linear": Case(rk.Linear(), phases=False),
    "linear with a bias": Case(rk.Linear(0.7), phases=False),
    "optical-0.5": Case(rk.Optical(0.5), phases=False),
    "optical-1": Case(rk.Optical(1), phases=False),
    "optical-1-bias": Case(rk.Optical(1, 1.0), phases=False),
    "optical-2": Case(rk.Optical(2), phases=False),
    "optical-2-bias": Case(rk.Optical(2, 1.0), phases=False),
    "optical-3": Case(rk.Optical(3), phases=False, light_tailed=False),
    "optical-3-bias": Case(rk.Optical(3, 1.0), phases=False, light_tailed=False),
    "optical-4": Case(rk.Optical(4), phases=False, light_tailed=False),
    "categorical": Case(rk.Categorical(columns=[3])),
    "categorical-2": Case(rk.Categorical(columns=[2, 3])),
    "categorical-unseen": Case(rk.Categorical(columns=[3], categories=_ones())),
    "compositional": Case(
        rk.Compositional(
            rk.skeletons.fully_connected(4, depth=2),
            deduplicate=False,
            constant="sampled",
        )
    ),
    "polynomial": Case(rk.Polynomial(2, 0.5), light_tailed=False),
    "arc-cosine": Case(rk.ArcCosine(0), phases=False),
    "softmax": Case(
        rk.Softmax(2.5, features="positive"), phases=False, light_tailed=False
    ),
    "spectral-mixture": Case(
        rk.SpectralMixture(
            [1.0, 0.5], [[0.1] * 4, [0.2, 0.0, -0.1, 0.3]], [[0.1] * 4] * 2
        )
    ),
    "periodic": Case(rk.Periodic(3.0, 1.5)),
    "spectral": Case(rk.Spectral(_uniform, _sinc, lengthscale=0.5)),
    "scaled": Case(2.5 * rk.Gaussian(1.3)),
    "sum": Case(rk.Gaussian(0.9) + 2.0 * rk.Laplacian(2.0)),
    "sum-optical": Case(rk.Optical(1, 1.0) + rk.Cauchy() + rk.Linear(columns=[0, 1])),
    "gaussian*laplacian": Case(rk.Gaussian(1.2) * rk.Laplacian(3.0)),
    "gaussian*categorical": Case(
        rk.Gaussian(columns=[0, 1]) * rk.Categorical(columns=[3])
    ),
    "gaussian*linear*optical": Case(
        rk.Gaussian(columns=[0])
        * rk.Linear(columns=[1, 2])
        * rk.Optical(1, 1.0, columns=[3]),
        light_tailed=False,
    ),
    "linear*optical": Case(
        rk.Linear() * rk.Optical(1, 0.5), phases=False, light_tailed=False
    ),
    "mixture*mixture": Case(
        rk.SpectralMixture([1.0], [[0.1, 0.2, 0.0, -0.1]], [[0.1] * 4])
        * rk.SpectralMixture([1.0], [[0.2, -0.1, 0.3, 0.1]], [[0.05] * 4])
    ),
    "(a+b)*c": Case((rk.Gaussian() + 0.5 * rk.Cauchy()) * rk.Matern(1.5, 2.0)),
}

#: Name -> (draws are independent, bound of the bias as a share of √(K(x,x)K(y,y))).
#: Rows of structured matrices are only nearly normal.
PROJECTIONS: dict[str, tuple[bool, float]] = {
    "dense": (True, 0.0),
    "streamed": (True, 0.0),
    "orthogonal": (False, 0.0),
    "structured": (False, 0.01),
    "qmc": (False, 0.0),
}
CORRELATED = {name: bias for name, (free, bias) in PROJECTIONS.items() if not free}


STREAM = Stream(20_240_607)


def admits(projection: str, case: Case) -> bool:
    """Tell whether every leaf of the kernel has draws of this projection."""
    unrotated = (rk.Laplacian, rk.Cauchy, rk.Polynomial)
    suits_all = not projection_class(
        projection, 1, 1, NormalDistribution()
    ).needs_rotation_invariance
    return suits_all or not any(
        isinstance(leaf, unrotated) for leaf in case.kernel.leaves()
    )


def has_draws(case: Case) -> bool:
    """Tell whether the features are random at all (those of x·y need not be)."""
    return not isinstance(case.kernel, rk.Linear)


def draw(
    case: Case,
    n_components: int,
    *,
    projection: str = "dense",
    fourier: str = "pair",
    centered: bool = False,
    stream: Stream = STREAM,
) -> Plan:
    """Draw features for rows like `POINTS`."""
    kernel = case.kernel.resolve(POINTS)
    diagonals = mean_diagonals(kernel.terms(), POINTS, None)
    return draw_plan(
        kernel,
        n_components,
        N_FEATURES,
        diagonals,
        stream,
        projection=projection,
        fourier=fourier,
        centered=centered,
    )


def redraw(plan: Plan, seed: int) -> Plan:
    """Return the same plan with every random stream replaced by a new one.

    What `draw_plan` would return for another seed, in a tenth of its time. A
    stream that two projections share they still share.
    """
    return replace(plan, groups=tuple(_redraw_group(g, seed) for g in plan.groups))


def _redraw_group(group: Group, seed: int) -> Group:
    factors = []
    for factor in group.factors:
        stream = factor.projection.stream.child("seed", seed)
        projection = replace(factor.projection, stream=stream, _cache={})
        if isinstance(projection, Antithetic):
            half = replace(projection.half, stream=stream, _cache={})
            projection = replace(projection, half=half)
        factors.append(replace(factor, projection=projection))
    offsets = group.offsets and group.offsets.child("seed", seed)
    return replace(group, factors=tuple(factors), offsets=offsets)


def grams(plan: Plan, n_seeds: int, first_seed: int = 0) -> np.ndarray:
    """Return φ(x)·φ(y) for every pair of points and seed, (n_seeds, pairs)."""
    out = np.empty((n_seeds, len(FIRST)))
    for seed in range(n_seeds):
        Z = evaluate(redraw(plan, first_seed + seed), POINTS)
        out[seed] = np.einsum("ij,ij->i", Z[FIRST], Z[SECOND])
    return out


def exact(case: Case) -> np.ndarray:
    """Return K(x, y) for every pair of points."""
    return case.kernel(POINTS)[FIRST, SECOND]


def size(case: Case) -> np.ndarray:
    """Return √(K(x, x)·K(y, y)), the largest that |K(x, y)| can be."""
    root = np.sqrt(case.kernel.diag(POINTS))
    return root[FIRST] * root[SECOND]


def variance(case: Case, n_components: int, fourier: str = "pair") -> np.ndarray:
    """Return Var[φ(x)·φ(y)] in closed form for every pair of points."""
    kernel = case.kernel.resolve(POINTS)
    values = kernel.feature_variance(POINTS, n_components=n_components, fourier=fourier)
    return np.maximum(values[FIRST, SECOND], 0.0)


#: The chance that any comparison of a suite fails by accident.
LEVEL = 1e-6


def z_bound(n_comparisons: int) -> float:
    """Return the two-sided normal bound of one in `n_comparisons` (Bonferroni)."""
    return float(stats.norm.isf(LEVEL / 2 / n_comparisons))


def t_bound(n_comparisons: int, n_seeds: int) -> float:
    """Return the bound for a mean whose variance is that of `n_seeds` values."""
    return float(stats.t.isf(LEVEL / 2 / n_comparisons, n_seeds - 1))
