"""Streams whose rows or targets change between passes are refused."""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import randkern as rk
from randkern.exceptions import RowsChangedError
from randkern.solvers import PCG

N, WIDTH, BLOCK = 120, 3, 30
SMALL = {"n_components": 30, "random_state": 0}
LANDMARKS = SMALL | {"features": "nystrom"}
ESTIMATORS = {
    "cholesky": rk.KernelRidgeRegressor(solver="cholesky", **SMALL),
    "pcg": rk.KernelRidgeRegressor(solver=PCG(max_iter=5), **SMALL),
    "pcg, little memory": rk.KernelRidgeRegressor(
        solver=PCG(max_iter=5, rank=3), memory_limit=60_000, **SMALL
    ),
    "landmarks": rk.KernelRidgeRegressor(**LANDMARKS),
    "labels": rk.KernelRidgeClassifier(solver=PCG(max_iter=5), **SMALL),
    "process": rk.GaussianProcessRegressor(optimizer=None, **SMALL),
    "classes": rk.GaussianProcessClassifier(optimizer=None, **SMALL),
    "svc": rk.KernelSVC(max_iter=5, **SMALL),
    "hard": rk.KernelSVC(C=np.inf, **SMALL),
    "logistic": rk.KernelLogistic(max_iter=5, **SMALL),
    "metric": rk.MetricLearner(
        n_components=30, n_iterations=1, metric="diagonal", random_state=0
    ),
}


def rows_and_targets(labels, weighted):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, WIDTH))
    y = np.where(X[:, 0] > 0, "yes", "no") if labels else np.sin(X[:, 0])
    return [X, y] + [rng.uniform(1, 2, N)] * weighted


def further(parts, rng, labels):
    return [np.concatenate([part, part[:7]]) for part in parts]


def fewer(parts, rng, labels):
    return [part[:-7] for part in parts]


def order(parts, rng, labels):
    return [part[rng.permutation(N)] for part in parts]


def two_rows_exchanged(parts, rng, labels):
    i, j = rng.choice(N, 2, replace=False)
    rows = np.arange(N)
    rows[[i, j]] = j, i
    return [part[rows] for part in parts]


def blocks_exchanged(parts, rng, labels):
    rows = np.roll(np.arange(N), BLOCK)
    return [part[rows] for part in parts]


def one_target(parts, rng, labels):
    y, i = parts[1].copy(), rng.integers(N)
    y[i] = ("no" if y[i] == "yes" else "yes") if labels else y[i] + 1e-6
    return [parts[0], y, *parts[2:]]


def new_label(parts, rng, labels):
    y = parts[1].copy()
    y[rng.integers(N)] = "new" if labels else 1e3
    return [parts[0], y, *parts[2:]]


def targets_shuffled(parts, rng, labels):
    return [parts[0], parts[1][rng.permutation(N)], *parts[2:]]


def one_weight(parts, rng, labels):
    if len(parts) < 3:
        return [*parts, np.ones(N)]
    weight = parts[2].copy()
    weight[rng.integers(N)] *= 2
    return [*parts[:2], weight]


def not_finite(parts, rng, labels):
    X = parts[0].copy()
    X[rng.integers(N), 0] = np.nan
    return [X, *parts[1:]]


def another_width(parts, rng, labels):
    return [parts[0][:, :-1], *parts[1:]]


CHANGES = (
    further,
    fewer,
    order,
    two_rows_exchanged,
    blocks_exchanged,
    one_target,
    new_label,
    targets_shuffled,
    one_weight,
    not_finite,
    another_width,
)


class Changing:
    """A stream whose passes from number `first` on give other rows."""

    def __init__(self, parts, changed, first, block=BLOCK):
        self.parts, self.changed, self.first, self.block = parts, changed, first, block
        self.n_passes = 0

    def __call__(self):
        self.n_passes += 1
        parts = self.changed if self.n_passes >= self.first else self.parts
        for start in range(0, len(parts[0]), self.block):
            yield tuple(part[start : start + self.block] for part in parts)


def outcome_of(model, parts, changed, first):
    """Fit to a changing stream; return whether it was refused, and said so.

    A stream that the fit has read fewer than `first` times has not changed.
    """
    stream = Changing(parts, changed, first)
    model = clone(model)
    try:
        model.fit(rk.RowBlocks(stream))
    except RowsChangedError:
        assert not hasattr(model, "kernel_")
        return "refused"
    return "accepted" if stream.n_passes >= first else "not changed"


def trials(seeds):
    for name, model in ESTIMATORS.items():
        labels = is_classifier(model)
        for change in CHANGES:
            for seed in seeds:
                yield name, model, labels, change, seed


def run(seeds):
    counts = {}
    for name, model, labels, change, seed in trials(seeds):
        rng = np.random.default_rng([seed, CHANGES.index(change)])
        parts = rows_and_targets(labels, weighted=bool(rng.integers(2)))
        if name == "metric":
            parts = parts[:2]
        changed = change(parts, rng, labels)
        outcome = outcome_of(model, parts, changed, first=int(rng.integers(2, 4)))
        counts.setdefault(outcome, []).append((name, change.__name__, seed))
    return counts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_change_is_accepted():
    counts = run(seeds=[0])
    assert "accepted" not in counts, counts["accepted"]
    assert len(counts["refused"]) > 90


@pytest.mark.parametrize("name", ["pcg", "svc", "process"])
@pytest.mark.filterwarnings("ignore")
def test_rows_that_do_not_change_may_be_cut_elsewhere(name):
    model = clone(ESTIMATORS[name])
    parts = rows_and_targets(is_classifier(model), weighted=True)
    n_passes = []

    def cut():
        n_passes.append(1)
        yield from Changing(parts, parts, 9, block=20 + 7 * len(n_passes))()

    model.fit(rk.RowBlocks(cut))
    assert len(n_passes) > 1


def test_the_message_names_the_pass():
    parts = rows_and_targets(False, False)
    changed = [parts[0], parts[1].copy()]
    changed[1][70] += 1e-6
    model = rk.KernelRidgeRegressor(**SMALL)
    with pytest.raises(RowsChangedError, match="pass 2 over the rows differs from"):
        model.fit(rk.RowBlocks(Changing(parts, changed, 2)))
    not_numbers = [parts[0].copy(), parts[1]]
    not_numbers[0][100, 0] = np.nan
    with pytest.raises(RowsChangedError, match=r"block 3, .* pass 2, .*contains NaN"):
        model.fit(rk.RowBlocks(Changing(parts, not_numbers, 2)))


TARGETS = {
    "single": lambda y: y.astype(np.float32),
    "integers": lambda y: (10 * y).astype(int),
    "two": lambda y: np.column_stack([y, 1e9 * y]),
    "booleans": lambda y: y > 0,
    "texts": lambda y: np.where(y > 0, "a", "b"),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_targets_of_any_kind(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, WIDTH))
    y = TARGETS[kind](rng.normal(size=N))
    labels = kind in ("booleans", "texts")
    model = (rk.KernelRidgeClassifier if labels else rk.KernelRidgeRegressor)(**SMALL)
    model.fit(rk.RowBlocks(Changing([X, y], None, 9)))
    rolled = [X, np.roll(y, 1, axis=0)]
    with pytest.raises(RowsChangedError):
        model.fit(rk.RowBlocks(Changing([X, y], rolled, 2)))


def test_a_stream_may_have_changed_before_the_fit():
    parts = rows_and_targets(False, False)
    other = [parts[0] + 1, parts[1]]
    stream = rk.RowBlocks(Changing(parts, other, 2))
    list(stream)
    model = rk.KernelRidgeRegressor(**SMALL).fit(stream)
    expected = rk.KernelRidgeRegressor(**SMALL).fit(*other)
    np.testing.assert_allclose(model.predict(parts[0]), expected.predict(parts[0]))


# Files that cannot be read.


class SlowReaderError(TimeoutError):
    """An error of a reader, with arguments of its own."""

    def __init__(self, path, seconds):
        super().__init__(f"{path} took {seconds} s")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(5, "Input/output error", "rows.bin"), OSError),
        (FileNotFoundError(2, "No such file", "rows.bin"), FileNotFoundError),
        (ConnectionResetError("the server has gone"), ConnectionResetError),
        (SlowReaderError("rows.bin", 3), TimeoutError),
    ],
)
@pytest.mark.parametrize("which", [1, 2])
def test_errors_of_files_name_block_and_pass(error, kind, which):
    parts = rows_and_targets(False, False)
    blocks = Changing(parts, parts, 9)

    def failing():
        for number, block in enumerate(blocks()):
            if number == 2 and blocks.n_passes == which:
                raise error
            yield block

    model = rk.KernelRidgeRegressor(**SMALL)
    where = "of the first pass" if which == 1 else "in pass 2"
    message = rf"\(while block 2 {where} was read, after 60 rows\). Nothing was fitted"
    with pytest.raises(kind, match=message) as caught:
        model.fit(rk.RowBlocks(failing))
    assert caught.value.__cause__ is error
    assert caught.value.errno == error.errno
    assert caught.value.filename == error.filename
    assert not hasattr(model, "kernel_")
