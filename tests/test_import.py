"""``import randkern`` is quick, loads nothing heavy, and lists what it offers."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

import randkern

# The first four are extras; the others are needed by the first call, not by
# the import.
HEAVY = (
    *("torch", "triton", "dask", "matplotlib"),
    *("numba", "sklearn", "scipy", "pandas", "polars", "skops", "typer", "rich"),
)


def run_python(code: str) -> str:
    """Standard output of ``code`` in a fresh interpreter."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_loads_nothing_heavy():
    loaded = run_python(
        "import sys; before = set(sys.modules); import randkern; "
        f"print(*({set(HEAVY)!r} & (set(sys.modules) - before)))"
    )
    assert not loaded, f"import randkern loads {loaded}"


# What neither command loads: models import scorers, splitters and machines of
# scikit-learn where they use them, and commands put off what scikit-learn imports.
UNUSED = {
    *("scipy.stats._stats_py", "matplotlib", "torch"),
    *("sklearn.linear_model", "sklearn.metrics", "sklearn.model_selection"),
    "sklearn.svm",
}
LATE = {"predict": UNUSED, "info": UNUSED | {"pandas.core.frame"}}


@pytest.mark.parametrize("command", LATE)
def test_commands_load_only_what_they_use(command, tmp_path):
    pytest.importorskip("typer")
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame(
        np.random.default_rng(0).normal(size=(40, 2)), None, ["a", "b"]
    )
    # Numbers are standardised here: quantiles of normal variables need SciPy's module.
    target = np.sin(rows["a"])
    model = randkern.TabularRegressor(0.5, random_state=0).fit(rows[["a"]], target)
    randkern.save(model, tmp_path / "model.skops")
    rows[:1].to_csv(tmp_path / "row.csv", index=False)
    arguments = [command, str(tmp_path / "model.skops")]
    arguments += [str(tmp_path / "row.csv")] * (command == "predict")
    code = (
        f"import sys; sys.argv[1:] = {arguments}; from randkern.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('loaded', sorted({LATE[command]} & set(sys.modules)))"
    )
    assert run_python(code).endswith("loaded []")


def test_import_takes_under_300_ms():
    code = (
        "from time import perf_counter; start = perf_counter(); import randkern; "
        "print(perf_counter() - start)"
    )
    # The best of five: a busy machine only ever makes an import slower.
    seconds = (float(run_python(code)) for _ in range(5))
    assert any(second < 0.3 for second in seconds)


def test_dir_is_the_public_api():
    assert set(dir(randkern)) >= set(randkern.__all__)
    assert sorted(set(randkern.__all__)) == sorted(randkern.__all__)


def test_public_names_resolve_and_have_docstrings():
    for name in set(randkern.__all__) - {"__version__"}:
        assert getattr(randkern, name).__doc__, f"randkern.{name} has no docstring"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        randkern.no_such_name  # noqa: B018


PUBLIC_CLASSES = [
    value
    for value in (getattr(randkern, name) for name in randkern.__all__)
    if inspect.isclass(value)
]


def test_public_methods_have_docstrings():
    undocumented = [
        f"{cls.__name__}.{name}"
        for cls in PUBLIC_CLASSES
        for name, member in inspect.getmembers(cls, callable)
        if not name.startswith("_")
        and getattr(member, "__module__", "").startswith("randkern")
        and not inspect.getdoc(member)
    ]
    assert not undocumented


def test_public_docstrings_have_examples():
    # A base class is shown by what derives from it.
    bases = {base for cls in PUBLIC_CLASSES for base in cls.__mro__[1:]}
    for name in set(randkern.__all__) - {"__version__"}:
        value = getattr(randkern, name)
        if not inspect.ismodule(value) and value not in bases:
            assert ">>>" in value.__doc__, f"randkern.{name} shows no example"
