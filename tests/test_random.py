"""Named random streams: repeatable, distinct, independent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from randkern._random import Stream, root_stream

NAMES = st.lists(st.text("ab1", max_size=3) | st.integers(0, 20), max_size=3)


def test_streams_stay_the_same_for_ever():
    """A seed names the same features in every version: these keys are a contract."""
    assert root_stream(0).key == 15793235383387715774
    assert root_stream(0).child("features").key == 13481551799091875991
    assert root_stream(42).child("term", 0).key == 13095866056548118436
    first = root_stream(0).generator().integers(2**32)
    assert first == root_stream(0).generator().integers(2**32)


def test_a_generator_always_starts_at_the_beginning():
    stream = root_stream(3)
    first = stream.generator()
    first.normal(size=1000)
    np.testing.assert_array_equal(
        stream.generator().normal(size=5), root_stream(3).generator().normal(size=5)
    )


@given(NAMES, NAMES)
def test_different_paths_are_different_streams(one, other):
    root = Stream(7)
    assert (root.child(*one) == root.child(*other)) == (one == other)


def test_paths_do_not_run_together():
    root = Stream(7)
    paths = [("ab",), ("a", "b"), ("1",), (1,), (11,), (1, 1), ("11",), (), ("",)]
    keys = [root.child(*path).key for path in paths]
    keys += [root.child("a").child("b").key, root.key]
    assert len(set(keys)) == len(keys)


def test_children_are_uniform_and_independent():
    draws = np.array(
        [Stream(5).child("factor", i).generator().random(8) for i in range(1_000)]
    )
    for column in draws.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-6
    correlation = np.corrcoef(draws.T) - np.eye(8)
    assert np.abs(correlation).max() < 6 / np.sqrt(1_000)
    # Nor do neighbours in the path, or a parent and its child, go together.
    for lagged in (draws[1:], np.roll(draws, 1, axis=1)[:-1]):
        r = np.corrcoef(draws[:-1].ravel(), lagged.ravel())[0, 1]
        assert abs(r) < 6 / np.sqrt(draws[1:].size)


def test_seeds():
    assert root_stream(5) == root_stream(np.int64(5)) == root_stream(np.uint8(5))
    assert root_stream(2**100) != root_stream(2**100 + 1)
    seeds = [root_stream(seed) for seed in range(200)]
    assert len(set(seeds)) == 200
    assert root_stream(None) != root_stream(None)
    assert root_stream(seeds[3]) is seeds[3]


@pytest.mark.parametrize(
    "make", [np.random.RandomState, np.random.default_rng], ids=["legacy", "generator"]
)
def test_generators_advance_by_one_draw(make):
    one, other = make(11), make(11)
    first, second = root_stream(one), root_stream(one)
    assert first != second
    assert (first, second) == (root_stream(other), root_stream(other))


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "0", (1,), np.bool_(False)], ids=str)
def test_wrong_seeds(wrong):
    with pytest.raises(ValueError, match="random_state must be"):
        root_stream(wrong)
