"""How ``randkern fit`` divides its time limit, and when its clock starts."""

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

pytest.importorskip("typer")
pytest.importorskip("pandas")
import pandas as pd

from randkern.cli import console
from randkern.cli.fit import threads_for
from randkern.reporting.deadline import Deadline


def table(n, n_texts=0):
    numbers = {f"x{j}": np.zeros(n) for j in range(3)}
    return pd.DataFrame(numbers | {f"c{j}": ["a"] * n for j in range(n_texts)})


def seconds(limit, X, is_refitted=True):
    return Deadline(limit).seconds_of_fits(X, 0, 0, is_refitted=is_refitted)


@pytest.mark.parametrize("limit", [10.0, 20.0, 60.0, 600.0])
def test_fits_leave_the_report_its_share(limit):
    small, large = table(100), table(100_000, n_texts=10)
    assert 0.6 * (limit - 3.5) < sum(seconds(limit, small)) < 0.95 * (limit - 3.5)
    assert sum(seconds(limit, small)) == pytest.approx(
        *seconds(limit, small, False)[:1]
    )
    # Two seconds to read 1,000,000 texts, of which the report would get its share.
    if limit > 10:
        less = sum(seconds(limit, small)) - sum(seconds(limit, large))
        assert 1.5 < less < 2.1


def test_fits_have_a_second_each_at_least():
    assert seconds(1.0, table(100)) == (1.0, 1.0)


def test_two_fits_are_planned_if_the_least_of_them_fits_the_limit():
    large = table(100_000)
    assert seconds(10.0, large)[1] == 0.0 < seconds(120.0, large)[1]
    assert seconds(10.0, large)[0] == pytest.approx(seconds(10.0, large, False)[0])


def test_the_clock_starts_with_the_process():
    token = console.start_of_process.set(time.perf_counter() - 2.0)
    try:
        clock = console.started(5.0)
    finally:
        console.start_of_process.reset(token)
    assert 2.0 < clock.left <= 3.0
    assert str(clock) == "2 of 5 s"
    assert console.started(5.0).left > 4.0  # of a command in a process that does more


@pytest.mark.parametrize("n_rows, is_limited", [(200, True), (4000, False)])
def test_small_tables_are_fitted_on_one_thread(n_rows, is_limited):
    def threads():
        return [pool["num_threads"] for pool in threadpool_info()]

    with threadpool_limits(2):
        with threads_for(n_rows):
            assert set(threads()) == ({1} if is_limited else {2})
        assert set(threads()) == {2}
