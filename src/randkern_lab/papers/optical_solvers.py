"""Solvers of the systems of optical features, and their conditioning (appendix D.3).

Ohana et al. (2020), appendix D.3.

The original. Ridge solves (ZᵀZ + αI) w = Zᵀy, by Cholesky up to D = 10,000 and by
conjugate gradients beyond. On GPUs "the conditioning of the matrix" of optical features
"worsened due to numerical issues"; α was increased, "which led to slightly worse test
errors". Stochastic gradient descent is recommended as it needs less memory and is more
stable. No numbers are given.

Here. The condition number of the matrix of Fourier and optical features for penalties
around the published ones; the test errors of Cholesky in double and in single
precision, as on a GPU; the iterations and test errors of conjugate gradients without a
preconditioner, in both precisions; and the test errors of scikit-learn's stochastic
gradient descent, averaged, at the published penalty.

Deviations.

- D = 3,000 by default, as the condition numbers are those of all eigenvalues.
- Rows are structured, unless ``--projection dense`` is given. Features of degree 2 are
  then linearly dependent: those of a complete block, over ‖u‖², add up to a multiple of
  ‖x‖², the same for all blocks.
- In single precision the sums over the rows are of single precision too.
- Steps of stochastic gradient descent have half the length that is stable for the
  largest row of features.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigvalsh
from scipy.sparse.linalg import cg
from sklearn.linear_model import SGDClassifier

import randkern
from randkern.data import row_blocks

from ..figures import DASHED, add_legend, curves, name_axes, panels
from ..options import Names, option
from ..runner import Case, grid, measure_all
from ..scoring import TOL, class_targets, misclassified
from ..tables import listing
from .images import BinaryImageOptions, load_binary_images
from .optical_curves import CURVES
from .optical_settings import optical_settings

_CURVES = ("fourier", "optical-2", "optical-4")
_SHARES = (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e2)  # of the published penalty
_PRECISIONS = {"double": np.float64, "single": np.float32}
_MOST_ITERATIONS = 3000
_BLOCK_ROWS = 2048


@dataclass(frozen=True)
class Options(BinaryImageOptions):
    """Options of ``randkern reproduce optical-solvers``."""

    n_components: int = option(3000, "Number of features.", quick=60)
    curves: Names = option(_CURVES, "", among=_CURVES)
    projection: str = option(
        "auto", "How matrices are drawn; dense: independent entries, as published."
    )
    epochs: int = option(5, "Passes of stochastic gradient descent.", quick=1)


def run(options: Options) -> pd.DataFrame:
    """Solve the systems of each kernel by all solvers, for all penalties."""
    images = load_binary_images(options.data, options.data_dir)
    kernels = list(dict.fromkeys(CURVES[name].kernel for name in options.curves))
    settings = optical_settings(images, kernels)
    classes = np.unique(images.y_train)
    Y = class_targets(images.y_train, classes)

    def measure(case: Case) -> Iterator[Case]:
        """Sum the normal equations of one draw, and solve them."""
        curve = CURVES[case["curve"]]
        setting = settings[curve.kernel]
        features = randkern.RandomFeatures(
            setting.build(),
            options.n_components,
            fourier=curve.fourier,
            projection=options.projection,
            random_state=options.seed,
        )
        Z = features.fit_transform(images.X_train.astype(np.float32))
        Z_test = features.transform(images.X_test.astype(np.float32)).astype(float)

        def error(weights: NDArray[Any]) -> float:
            labels = classes[(Z_test @ weights).argmax(axis=1)]
            return misclassified(images.y_test, labels)

        sums = _sums(Z, Y)
        values = eigvalsh(sums["double"][0])
        for share in _SHARES:
            alpha = share * setting.alpha
            shared = {
                "share": share,
                "alpha": alpha,
                "condition": float((values[-1] + alpha) / (max(values[0], 0) + alpha)),
            }
            for precision, (gram, cross) in sums.items():
                own = shared | {"precision": precision}
                matrix = gram + np.eye(len(gram), dtype=gram.dtype) * alpha
                yield own | _by_cholesky(matrix, cross, error)
                yield own | _by_gradients(matrix, cross, error)
            if share == 1:
                stochastic = _by_steps(Z, images.y_train, alpha, options)
                labels = stochastic.predict(Z_test)
                yield shared | {
                    "precision": "single",
                    "solver": "sgd",
                    "test_error": misclassified(images.y_test, labels),
                    "iterations": options.epochs,
                }

    records = measure_all(options, grid(curve=options.curves), measure)
    records.attrs |= {
        "dataset": images.describe() | {"n_components": options.n_components},
        "hyperparameters": {k: own.describe() for k, own in settings.items()},
    }
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        by_penalty(frame),
        "{dataset[name]}, D = {dataset[n_components]:,}: test errors in % of solvers, "
        "and iterations of conjugate gradients",
        "features | α | condition | Cholesky | Cholesky, single | gradients | "
        "gradients, single | iterations | iterations, single | stochastic",
        "{features} | {alpha:.0e} | {condition:.0e} | {cholesky-double:.2p} | "
        "{cholesky-single} | {cg-double:.2p} | {cg-single:.2p} | "
        "{cg-double-iterations:.0f} | {cg-single-iterations:.0f} | {sgd-single:.2p}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return the iterations against the condition number, and errors by penalty."""
    from matplotlib.ticker import LogFormatterMathtext, LogLocator

    figure, (left, right) = panels(2)
    look = {name: CURVES[name].style for name in _CURVES}
    iterative = frame.query("solver == 'cg' and precision == 'double'")
    curves(left, iterative, "condition", "iterations", look, "curve")
    title = "conjugate gradients, without a preconditioner"
    name_axes(left, title, "condition number", "iterations")
    left.xaxis.set_major_locator(LogLocator(numticks=6))
    left.xaxis.set_major_formatter(LogFormatterMathtext())
    both = {}
    for name, style in look.items():
        label = f"{style.label}, single precision"
        both[name, "double"] = replace(style, dashes="-")
        both[name, "single"] = replace(style, label=label, dashes=DASHED, filled=False)
    direct, by = frame.query("solver == 'cholesky'"), ("curve", "precision")
    curves(right, direct, "share", "test_error", both, by)
    title = "Cholesky (no marker: not definite)"
    name_axes(right, title, "penalty / published penalty")
    add_legend(figure, "right")
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    direct = frame.query("solver == 'cholesky' and precision == 'single'")
    for curve, own in direct.groupby("curve", sort=False):
        failed = own[own.test_error.isna()]
        if len(failed):
            yield (
                f"{CURVES[curve].style.label}: in single precision the matrix is not "
                f"definite up to {failed.share.max():g} times the published penalty, "
                f"where its condition number is {failed.condition.min():.0e}"
            )


def by_penalty(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each curve and penalty, with the errors of all solvers."""
    rows = []
    for _, own in frame.groupby(["curve", "share"], sort=False):
        row = own.iloc[0][["curve", "share", "alpha", "condition"]].to_dict()
        row["features"] = CURVES[row["curve"]].style.label
        names = own.solver + "-" + own.precision
        row |= own.test_error.set_axis(names).to_dict()
        row |= own.iterations.set_axis(names + "-iterations").to_dict()
        single = row["cholesky-single"]
        failed = pd.isna(single)
        row["cholesky-single"] = "not definite" if failed else f"{100 * single:.2f}"
        rows.append(row)
    result = pd.DataFrame(rows)
    result.attrs = frame.attrs
    return result


def rounding(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how far errors of Cholesky in single precision are from those in double.

    That is at the published penalty.
    """
    direct = frame.query("solver == 'cholesky' and share == 1")
    errors = direct.pivot(index="curve", columns="precision", values="test_error")
    return pd.DataFrame({"difference": (errors.single - errors.double).abs()})


def _sums(
    Z: NDArray[np.float32], Y: NDArray[Any]
) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return ZᵀZ and ZᵀY of the same features in double and in single precision."""
    sums = {}
    for name, dtype in _PRECISIONS.items():
        size, targets = Z.shape[1], Y.shape[1]
        gram, cross = np.zeros((size, size), dtype), np.zeros((size, targets), dtype)
        for rows in row_blocks(len(Z), _BLOCK_ROWS):
            block = Z[rows].astype(dtype)
            gram += block.T @ block
            cross += block.T @ Y[rows].astype(dtype)
        sums[name] = gram, cross
    return sums


def _by_cholesky(matrix: NDArray[Any], cross: NDArray[Any], error: Any) -> Case:
    try:
        weights = cho_solve(cho_factor(matrix), cross)
    except LinAlgError:
        return {"solver": "cholesky", "test_error": None, "outcome": "not definite"}
    return {"solver": "cholesky", "test_error": error(weights), "outcome": "success"}


def _by_gradients(matrix: NDArray[Any], cross: NDArray[Any], error: Any) -> Case:
    """Solve by conjugate gradients, without a preconditioner, for each class."""
    steps: list[Any] = []
    solved = [
        cg(matrix, b, rtol=TOL, maxiter=_MOST_ITERATIONS, callback=steps.append)
        for b in cross.T
    ]
    weights = np.column_stack([w for w, _ in solved])
    residual = np.linalg.norm(matrix.astype(float) @ weights - cross)
    return {
        "solver": "cg",
        "test_error": error(weights),
        "iterations": len(steps) / cross.shape[1],
        "residual": float(residual / np.linalg.norm(cross)),
        "outcome": "iteration limit" if any(k for _, k in solved) else "success",
    }


def _by_steps(
    Z: NDArray[np.float32], y: NDArray[Any], alpha: float, options: Options
) -> Any:
    """Return a classifier that is fitted by stochastic gradients."""
    largest = float(np.max(np.einsum("ij,ij->i", Z, Z)))
    return SGDClassifier(
        "squared_error",
        alpha=alpha / len(Z),
        max_iter=options.epochs,
        tol=None,
        fit_intercept=False,
        learning_rate="constant",
        eta0=0.5 / largest,
        average=True,
        random_state=options.seed,
    ).fit(Z, y)
