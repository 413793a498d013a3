"""Models in files: the same bits back, and nothing but what was asked for."""

import importlib
import io
import json
import pickle
import sys
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import randkern as rk
from _damage import with_checksums
from _models import MODELS, arrays_of
from randkern import persistence
from randkern._files import atomic_write
from randkern.exceptions import ModelFileError, ModelVersionWarning
from randkern.projections import PROJECTIONS, Projection

skops_io = pytest.importorskip("skops.io")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


def round_trip(estimator, path, **options):
    rk.save(estimator, path)
    return rk.load(path, **options)


def predictions(model, X):
    return [
        getattr(model, name)(X)
        for name in ("decision_function", "predict", "predict_proba", "transform")
        if hasattr(model, name)
    ]


def assert_same(model, again, X):
    found = predictions(again, X)
    assert found
    for one, other in zip(predictions(model, X), found, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


KERNELS = {
    "gaussian": rk.Gaussian(2.0),
    "ard": rk.Gaussian(np.linspace(1, 3, 6)),
    "rule": rk.Gaussian("median"),
    "laplacian": rk.Laplacian("scale"),
    "cauchy": rk.Cauchy(2.0),
    "matern": rk.Matern(nu=2.5, lengthscale=2.0),
    "rational": rk.RationalQuadratic(alpha=0.7),
    "optical": rk.Optical(degree=3, bias=1.0),
    "linear": rk.Linear(),
    "categorical": rk.Categorical(columns=[0]),
    "sum": rk.Gaussian(2.0) + 0.5 * rk.Linear(),
    "product": rk.Gaussian(2.0, columns=[0, 1]) * rk.Optical(degree=2),
    "nested": 2.0 * (rk.Gaussian(1.0) * rk.Laplacian(2.0) + rk.Matern()) + rk.Linear(),
}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 6))
    X[:, 0] = np.arange(40) % 3
    return X, np.column_stack([X[:, 1] ** 2, np.sin(X[:, 2])])


# -- the same bits -------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name, path, data):
    X, _ = data
    kernel = KERNELS[name].resolve(X)
    again = round_trip(kernel, path)
    assert repr(again) == repr(kernel)
    assert np.array_equal(again(X), kernel(X))
    unresolved = round_trip(KERNELS[name], path)
    assert repr(unresolved) == repr(KERNELS[name])


@pytest.mark.slow
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections(projection, dtype, path, rng):
    X = rng.normal(size=(20, 70)).astype(dtype)
    features = rk.RandomFeatures(
        rk.Matern(), 129, projection=projection, fourier="offset", random_state=1
    )
    features.fit(X).transform(X)
    assert_same(features, round_trip(features, path), X)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_models_of_every_kind(name, path):
    """From a file and from a pickle, which can be fitted anew."""
    # Products with matrices that lie elsewhere in memory may be rounded otherwise.
    arrays = arrays_of(name)
    model = clone(MODELS[name].model).fit(*arrays)
    wanted = predictions(model, arrays[0])
    for again in (round_trip(model, path), pickle.loads(pickle.dumps(model))):
        for one, other in zip(wanted, predictions(again, arrays[0]), strict=True):
            assert one.dtype == other.dtype
            if one.dtype.kind != "f":
                assert np.array_equal(one, other)
                continue
            size = np.abs(one).max()
            np.testing.assert_allclose(one / size, other / size, rtol=0, atol=1e-12)
        assert repr(again) == repr(model)
    clone(again).fit(*arrays)


def test_partial_fit_goes_on(path, data):
    X, Y = data
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=20, random_state=0)
    model.partial_fit(X[:20], Y[:20])
    again = round_trip(model, path)
    assert_same(model, again, X)
    assert_same(model.partial_fit(X[20:], Y[20:]), again.partial_fit(X[20:], Y[20:]), X)
    model = clone(model).partial_fit(X, Y, solve=False)
    assert_same(round_trip(model, path).solve(), model.solve(), X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dataframes_with_categories(library, path, data):
    X, Y = data
    columns = {
        "a": X[:, 1],
        "word": [["x", "y", None][int(v)] for v in X[:, 0]],
        "b": X[:, 2],
    }
    make = (pd if library == "pandas" else pytest.importorskip("polars")).DataFrame
    frame = make(columns)
    kernel = rk.Gaussian(1.0, columns=["a", "b"]) * rk.Categorical(columns=["word"])
    for n_components in (30, None):
        model = rk.KernelRidgeRegressor(kernel, n_components=n_components)
        model.set_params(random_state=0).fit(frame, Y)
        again = round_trip(model, path)
        assert_same(model, again, frame)
        assert list(again.feature_names_in_) == ["a", "word", "b"]
        with pytest.raises(ValueError, match="expected a dataframe"):
            again.predict(X[:, :3])


def test_pipelines_and_searches(path, data):
    X, Y = data
    y = Y[:, 0] > 0.5
    frame = pd.DataFrame(X, columns=list("uvwxyz"))
    mixed = ColumnTransformer(
        [("scale", StandardScaler(), ["u", "v"]), ("keep", "passthrough", ["w"])]
    )
    for model in (
        make_pipeline(StandardScaler(), rk.KernelRidgeClassifier(n_components=20)),
        make_pipeline(
            FunctionTransformer(np.tanh),
            rk.RandomFeatures(n_components=20),
            LogisticRegression(),
        ),
        make_pipeline(mixed, rk.KernelRidgeRegressor(n_components=20)),
        make_pipeline(rk.RandomFeatures(n_components=20, random_state=0), Ridge()),
    ):
        model.fit(frame, y)
        assert_same(model, round_trip(model, path), frame)
    search = GridSearchCV(
        rk.KernelRidgeClassifier(rk.Gaussian(), n_components=20, random_state=0),
        {"kernel__lengthscale": [1.0, 3.0]},
        cv=2,
        scoring="accuracy",
    ).fit(X, y)
    again = round_trip(search, path)
    assert_same(search, again, X)
    assert again.best_params_ == search.best_params_


def test_callbacks_are_left_out(path, data):
    model = StandardScaler()
    if not hasattr(model, "set_callbacks"):
        pytest.skip("scikit-learn before 1.9 has no callbacks")
    callback = pytest.importorskip("sklearn.callback").ProgressBar()
    model.set_callbacks(callback)
    again = round_trip(model.fit(data[0]), path)
    assert not hasattr(again, "_skl_callbacks")
    assert model._skl_callbacks == [callback]


# -- what a file holds ---------------------------------------------------------


def test_file_holds_weights_and_seed_not_the_projection(path, rng):
    X = rng.normal(size=(100, 500))
    options = {"n_components": 2000, "projection": "dense", "random_state": 0}
    features = rk.RandomFeatures(**options).fit(X)
    features.transform(X)  # the projection, 1,000 by 500, is in memory now
    rk.save(features, path)
    assert path.stat().st_size < 6_000
    for model in (
        rk.KernelRidgeRegressor(**options),
        rk.KernelRidgeRegressor(**options, solver="pcg"),
    ):
        model.fit(X, X[:, :3]).predict(X)
        rk.save(model, path)
        weights = model.coef_.nbytes
        assert weights == 8 * 3 * 2000
        # Where the system is of size D its solution is kept beside the weights.
        assert weights < path.stat().st_size < 2 * weights + 8_000


def test_file_names_its_version_and_is_one_of_skops(path):
    rk.save(rk.Gaussian(3.0), path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info.CRC for info in archive.infolist()}
        del members["randkern.json"]
        assert json.loads(archive.read("randkern.json")) == {
            "members": members,
            "format": 2,
            "randkern": rk.__version__,
            "estimator": "Gaussian",
        }
    again = skops_io.load(path, trusted=["randkern.kernels.Gaussian"])
    assert again.lengthscale == 3.0


STORED = {
    "ridge": lambda X, y: rk.KernelRidgeRegressor(
        rk.Gaussian(2.0) * rk.Categorical(columns=[0]), n_components=20, random_state=0
    ).partial_fit(X, y),
    "tree of kernels": lambda X, y: rk.RandomFeatures(
        2.0 * rk.Periodic() + rk.Spectral(sampler, columns=[1, 2]),
        *(30,),
        random_state=0,
    ).fit(X),
    "process": lambda X, y: rk.GaussianProcessRegressor(
        n_components=20, optimizer=None, random_state=0
    ).fit(X, y),
    "skeleton": lambda X, y: rk.RandomFeatures(
        rk.Compositional(rk.skeletons.fully_connected(6)), 10, random_state=0
    ).fit(X),
    "optical": lambda X, y: make_pipeline(
        rk.optics.ThresholdBinarizer(),
        rk.optics.OpticalFeatures(
            rk.optics.SimulatedOPU(n_components=10, random_state=0)
        ),
    ).fit(X),
}


def sampler(n, d, generator):
    return generator.normal(size=(n, d))


def named_types(path):
    """Return the full names of all types in the description of a file."""
    with zipfile.ZipFile(path) as archive:
        left, found = [json.loads(archive.read("schema.json"))], set()
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if "__module__" in node:
                found.add(f"{node['__module__']}.{node['__class__']}")
            left += node.values()
        elif isinstance(node, list):
            left += node
    return found


@pytest.mark.parametrize("kind", STORED)
def test_files_name_public_modules_only(kind, path, data):
    X, Y = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the function above
        rk.save(STORED[kind](X, Y[:, 0]), path)
    ours = {name for name in named_types(path) if name.startswith("randkern.")}
    assert ours
    for name in ours:
        assert "._" not in name
        place, _, attribute = name.rpartition(".")
        module = importlib.import_module(place)
        # A list that later versions keep, wherever they define what is in it.
        assert attribute in module.__all__ or module is persistence


def test_every_type_of_the_library_can_be_stored():
    kinds = [getattr(rk, name) for name in rk.__all__]
    stack = [Projection]
    while stack:
        kinds += (found := stack.pop().__subclasses__())
        stack += found
    missing = [
        kind
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, BaseEstimator | Projection)
        and kind.__module__.startswith("randkern.")
        and kind not in persistence.TYPES.values()
    ]
    assert not missing


# -- what is refused -----------------------------------------------------------


class Stranger(BaseEstimator):
    """An estimator of a package that randkern does not know."""

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self


def test_types_of_others_need_trust(path, data):
    name = f"{__name__}.Stranger"
    with pytest.warns(UserWarning, match=rf"load\(path, trusted=\['{name}'\]\)"):
        rk.save(make_pipeline(Stranger(), rk.RandomFeatures()), path)
    with pytest.raises(
        ModelFileError, match=rf"not trusted: {name}.*trusted=\['{name}"
    ):
        rk.load(path)
    for trusted in ([name], [Stranger], (Stranger,)):
        assert isinstance(rk.load(path, trusted=trusted)[0], Stranger)


@pytest.mark.parametrize("trusted", [True, "numpy.ndarray", 3])
def test_trust_is_a_list(trusted, path):
    rk.save(rk.Gaussian(), path)
    with pytest.raises(TypeError, match="trusted must be a list"):
        rk.load(path, trusted=trusted)


@pytest.mark.parametrize("thing", [rk.Gaussian, np.ones(3), {"a": 1}, "model"])
def test_only_estimators_are_saved(thing, path):
    with pytest.raises(TypeError, match="save expects an estimator"):
        rk.save(thing, path)
    assert not path.exists()


def test_what_cannot_be_loaded_is_not_saved(path):
    def inner(X):
        return X

    rk.save(rk.Gaussian(3.0), path)
    for function in (lambda X: X, inner):
        with pytest.raises(TypeError, match="define it at the top level of a module"):
            rk.save(make_pipeline(FunctionTransformer(function)), path)
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert rk.load(path).lengthscale == 3.0  # the file that was there


@pytest.fixture
def saved(path):
    rk.save(rk.Gaussian(3.0), path)
    return path.read_bytes()


def test_truncated_files(saved, path):
    for length in range(len(saved)):
        path.write_bytes(saved[:length])
        with pytest.raises(ModelFileError, match="damaged or truncated"):
            rk.load(path)


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04N.", bytes(1000)])
def test_other_files(content, path):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="was not written by randkern.save"):
        rk.load(path)


def test_files_of_skops_and_missing_files(path):
    skops_io.dump(rk.Gaussian(), path)
    with pytest.raises(ModelFileError, match=r"with skops\.io\.load"):
        rk.load(path)
    with pytest.raises(FileNotFoundError):
        rk.load(path.with_name("none.skops"))


def rewritten(content, change):
    """The archive with its members changed by `change(name, content)`."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(buffer, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return with_checksums(buffer.getvalue())


def with_header(content, **changes):
    def change(name, member):
        if name != "randkern.json":
            return member
        return json.dumps(json.loads(member) | changes)

    return rewritten(content, change)


def test_newer_versions(saved, path):
    path.write_bytes(with_header(saved, randkern="99.1"))
    with pytest.warns(ModelVersionWarning, match=r"randkern 99\.1, which is newer"):
        assert rk.load(path).lengthscale == 3.0
    path.write_bytes(with_header(saved, randkern="0.0.1"))
    assert rk.load(path).lengthscale == 3.0
    for form, advice in ((3, "upgrade randkern"), (1, "fit the model again")):
        path.write_bytes(with_header(saved, format=form))
        with pytest.raises(ModelFileError, match=f"has format {form} .* {advice}"):
            rk.load(path)
    for changes in ({"randkern": "?"}, {"format": "x"}, {"format": None}):
        path.write_bytes(with_header(saved, **changes))
        with pytest.raises(ModelFileError, match="damaged"):
            rk.load(path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("ObjectNode", "NoNode"),
        lambda text: text.replace('"__loader__": "ObjectNode",', ""),
        lambda text: text.replace('"protocol": ', '"protocol": 1000'),
        lambda text: "[" * 100_000,
        lambda text: "{}",
        lambda text: "null",
    ],
)
def test_invalid_descriptions(edit, saved, path):
    def change(name, member):
        return edit(member.decode()) if name == "schema.json" else member

    path.write_bytes(rewritten(saved, change))
    with pytest.raises(ModelFileError, match="cannot be read by randkern"):
        rk.load(path)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("randkern._files", "atomic_write"),
        ("randkern.persistence.files", "atomic_write"),
        ("randkern.kernels.stationary", "Gaussian"),
        ("randkern.models.ridge", "os"),
        ("randkern.cli", "main"),
    ],
)
def test_functions_and_other_types_are_not_created(module, name, saved, path):
    """A crafted file cannot reach a function, not even one of the library."""
    for loader in ("ObjectNode", "FunctionNode", "ConstructorFromReduceNode"):

        def change(member_name, member, loader=loader):
            if member_name != "schema.json":
                return member
            schema = json.loads(member)
            if loader == "ConstructorFromReduceNode":
                text = {"__loader__": "JsonNode", "__class__": "str"}
                text |= {"__module__": "builtins", "content": '["true"]'}
                schema["content"] = text
            schema |= {"__module__": module, "__class__": name, "__loader__": loader}
            return json.dumps(schema)

        path.write_bytes(rewritten(saved, change))
        with pytest.raises(ModelFileError, match=rf"not trusted: {module}\.{name}"):
            rk.load(path)


def test_types_of_another_version_are_named(saved, path):
    def change(name, member):
        return (
            member.replace(b"Gaussian", b"OlderKernel") if ".json" in name else member
        )

    path.write_bytes(rewritten(saved, change))
    with pytest.raises(ModelFileError, match="OlderKernel.* has no such types"):
        rk.load(path)


def test_without_skops_the_error_names_the_extra(monkeypatch, path):
    """It is needed for objects of other packages alone."""
    forest = make_pipeline(StandardScaler(), RandomForestRegressor())
    rk.save(forest, path)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    for call in (lambda: rk.save(forest, path), lambda: rk.load(path)):
        with pytest.raises(ImportError, match=r'Forest.*"randkern\[skops\]"'):
            call()
    assert round_trip(rk.Gaussian(3.0), path).lengthscale == 3.0


# -- writing -------------------------------------------------------------------


def test_atomic_write_can_be_interrupted(path):
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert len(list(path.parent.iterdir())) == 1
