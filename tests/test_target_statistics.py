"""What a fit learns of targets and weights in one pass, joined over blocks of rows."""

import itertools

import numpy as np
import pytest

from randkern.data.target_statistics import TargetStatistics
from randkern.data.training_data import ArrayRows

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(30, 2)) * [1.0, 50.0] + [3.0, -1e3]


@pytest.mark.parametrize("scale", [1e-9, 0.01, 1.0, 1e6])
@pytest.mark.parametrize("cuts", [(0, 30), (0, 7, 8, 30)])
def test_statistics_of_blocks_are_those_of_all_rows(scale, cuts):
    weight = scale * RNG.uniform(size=30)
    blocks = [(Y[a:b], weight[a:b]) for a, b in itertools.pairwise(cuts)]
    joined = TargetStatistics.of(blocks, 2)
    mean = np.average(Y, axis=0, weights=weight)
    assert joined.weight_sum == pytest.approx(weight.sum())
    np.testing.assert_allclose(joined.target_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(
        joined.target_squares, weight @ (Y - mean) ** 2, rtol=1e-9
    )


def test_rows_of_no_weight_count_for_nothing():
    nothing = TargetStatistics.of([(Y, np.zeros(30))], 2)
    subset = TargetStatistics.of([(Y, np.ones(30))], 2)
    for joined in (subset + nothing, nothing + subset):
        np.testing.assert_allclose(joined.target_mean, subset.target_mean, rtol=1e-14)
        np.testing.assert_allclose(
            joined.target_squares, subset.target_squares, rtol=1e-14
        )


@pytest.mark.parametrize(("size", "is_refused"), [(1e99, False), (1e101, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_targets_whose_squares_leave_the_range_are_refused(size, is_refused, sign):
    rows = ArrayRows(np.ones((30, 1)), Y * [1.0, 0.0] + [0.0, size**sign])
    if not is_refused:
        assert np.isfinite(rows.survey().all_squares).all()
        return
    with pytest.raises(ValueError, match="targets are of size 1e.*Divide y"):
        rows.survey()
