"""Which kernel takes which projection, as the documentation's table says."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import randkern as rk
from randkern.projections import PROJECTIONS

OWN_WAY = (
    "Linear",
    "Categorical",
    "Compositional",
    "Coregionalization",
    "Periodic",
    "Spectral",
)
TABLE = Path(__file__).parents[1] / "docs" / "projections.md"


def table_rows():
    """Return {kernel: {projection: cell}} from the documentation."""
    lines = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in TABLE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    start = next(i for i, cells in enumerate(lines) if cells[0] == "kernel")
    header = lines[start]
    rows = lines[start + 2 :]
    return {cells[0]: dict(zip(header[1:], cells[1:], strict=True)) for cells in rows}


CELLS = [
    (kernel, projection, cell)
    for kernel, cells in table_rows().items()
    for projection, cell in cells.items()
]


def leaf_projection(features):
    return features.plan_.groups[0].factors[0].projection.name


def test_the_table_is_complete():
    rows = table_rows()
    public = {name: getattr(rk, name) for name in rk.kernels.__all__}
    assert set(rows) == set(public) - {
        "Kernel",
        "Precomputed",
        "Product",
        "Scaled",
        "Sum",
    }
    for cells in rows.values():
        assert set(cells) == set(PROJECTIONS)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "projection", "cell"), CELLS)
def test_the_table_is_true(kernel, projection, cell, rng):
    width = 70
    X = rng.integers(0, 3, size=(4, width)).astype(float)
    arguments = {
        "Coregionalization": {
            "loadings": [[1.0], [-1.0], [2.0]],
            "variances": [0.1] * 3,
            "columns": [0],
        },
        "Softmax": {"scale": 10.0, "features": "positive"},
        "Spectral": {"sampler": lambda n, d, generator: generator.normal(size=(n, d))},
        "SpectralMixture": {
            "weights": [1.0],
            "means": [[0.0] * X.shape[1]],
            "scales": [[0.1] * X.shape[1]],
        },
    }
    features = rk.RandomFeatures(
        getattr(rk, kernel)(**arguments.get(kernel, {})),
        9,
        projection=projection,
        random_state=0,
    )
    if cell == "no":
        with pytest.raises(ValueError, match=rf"{kernel}.*use projection="):
            features.fit(X)
        return
    Z = features.fit_transform(X)
    assert Z.shape == (4, 9)
    assert np.all(np.isfinite(Z))
    drawn = leaf_projection(features)
    if projection == "auto" and cell.startswith("structured"):
        assert drawn == "structured"
        if kernel != "SpectralMixture":  # its numbers are of one width
            assert leaf_projection(features.fit(X[:, :63])) == "orthogonal"
    elif projection != "auto" and kernel not in OWN_WAY:
        assert drawn == projection


def test_a_product_distribution_is_streamed_when_the_matrix_is_large():
    X = np.zeros((1, 200_000), dtype=np.float32)
    features = rk.RandomFeatures(rk.Laplacian(), 2_000, random_state=0).fit(X)
    assert leaf_projection(features) == "streamed"


def test_the_error_names_the_leaf_of_a_sum(rng):
    X = rng.normal(size=(5, 3))
    kernel = rk.Gaussian() + rk.Cauchy(lengthscale=2.0)
    features = rk.RandomFeatures(kernel, 8, projection="structured")
    with pytest.raises(ValueError, match=re.escape("Cauchy(lengthscale=2.0)")):
        features.fit(X)


def test_qmc_refuses_more_dimensions_than_the_sequence_has():
    X = np.zeros((1, 21_202), dtype=np.float32)
    features = rk.RandomFeatures(rk.Gaussian(), 4, projection="qmc")
    with pytest.raises(ValueError, match="21,201 dimensions"):
        features.fit(X)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "projection"),
    [
        (rk.Laplacian("scale"), "dense"),
        (rk.Laplacian("scale"), "streamed"),
        (rk.Laplacian("scale"), "qmc"),
        (rk.Matern(0.5, "scale"), "dense"),
        (rk.Matern(0.5, "scale"), "orthogonal"),
        (rk.Laplacian("scale") * rk.Categorical(columns=[0]), "streamed"),
    ],
)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_large_phases_of_float32_rows(kernel, projection, container, rng):
    """Frequencies that are a million times the others keep the digits that matter.

    They are compared with float64 phases of the same rounded inputs and frequencies,
    and from one row at a time, of which BLAS sums the products in another order.
    """
    d, n_components = 30, 4000
    X = rng.normal(size=(40, d)).astype(np.float32)
    X[:, 0] = 1  # one category
    features = rk.RandomFeatures(
        kernel, n_components, projection=projection, random_state=0
    ).fit(X)
    Z = features.transform(container(X)) * np.sqrt(n_components / 2)
    phases = np.zeros((40, n_components // 2))
    for factor in features.plan_.groups[0].factors:
        inputs = factor.inputs.apply(X)
        if factor.projection.name == "roots":
            phases += factor.projection.project(inputs, 0, n_components // 2)
            continue
        frequencies = factor.projection.matrices(X)[0].astype(float)
        phases += inputs.astype(float) @ frequencies.T
    assert np.abs(phases).max() > 1e3
    # Phases above 32 are taken modulo 2π in float64.
    tolerance = 32 * 2.0**-23 * np.sqrt(d)
    np.testing.assert_allclose(Z[:, ::2], np.cos(phases), rtol=0, atol=tolerance)
    np.testing.assert_allclose(Z[:, 1::2], np.sin(phases), rtol=0, atol=tolerance)
    item = [features.transform(container(X[i : i + 1])) for i in range(40)]
    item = np.vstack(item) * np.sqrt(n_components / 2)
    np.testing.assert_allclose(item, Z, rtol=0, atol=tolerance)


def test_the_factors_of_a_product_share_one_sequence(rng):
    """Two sequences of the same dimensions pair up badly; one joint one does not."""
    X = rng.normal(size=(60, 4))
    kernel = rk.Gaussian(2.0, columns=[0, 1]) * rk.Matern(1.5, 2.0, columns=[2, 3])
    exact = kernel(X)

    def error(projection):
        total = 0.0
        for seed in range(10):
            Z = rk.RandomFeatures(
                kernel, 256, projection=projection, random_state=seed
            ).fit_transform(X)
            total += np.sum((Z @ Z.T - exact) ** 2)
        return total

    assert error("qmc") < 0.5 * error("dense")
