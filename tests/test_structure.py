"""The house rules that a parser can check.

The floors are read from the table in ``docs/architecture.md``, so that the
drawing and the code cannot drift apart: a new room is one new row there.
"""

import ast
import graphlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import randkern

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(randkern.__file__).resolve().parent
LAB = PACKAGE.with_name("randkern_lab")
FILES = sorted(PACKAGE.rglob("*.py"))
LAB_FILES = sorted(LAB.rglob("*.py"))
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8")) for path in [*FILES, *LAB_FILES]
}


def each_of(
    files: list[Path],
) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make a check of a file a test of these files, which names all that fail."""

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            failed = []
            for path in files:
                try:
                    check(path)
                except AssertionError as error:
                    failed.append(f"{path.relative_to(PACKAGE.parent)}: {error}")
            assert not failed, "\n".join(failed)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


EVERY_FILE = each_of(FILES)
# The second package stands above all floors.
OF_BOTH = each_of([*FILES, *LAB_FILES])

# The array work of a framework lives behind the backend's verbs.
FRAMEWORKS = {"numba", "llvmlite", "torch"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_floors() -> dict[str, tuple[int, set[str]]]:
    """Room -> (floor, the rooms of the same floor that it may import)."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    floors = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and cells[0].isdigit():
            beside = set(re.findall(r"`(\w+)`", cells[2]))
            for room in re.findall(r"`(\w+)`", cells[1]):
                floors[room] = (int(cells[0]), beside)
    return floors


FLOORS = read_floors()


def room_of(path: Path) -> str:
    """The top-level module or package of the file: ``kernels``, ``plan``, ..."""
    if path.is_relative_to(LAB):
        return "cli" if path.name in {"cli.py", "records.py", "render.py"} else "lab"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of every import, in functions and by name too."""
    return list(_imported_modules(path))


def _imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    package = path.relative_to(PACKAGE.parent).parts[:-1]
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            prefix = (*base, *((node.module or "").split(".") if node.module else ()))
            for alias in node.names:
                yield node.lineno, ".".join((*prefix, alias.name))
        elif isinstance(node, ast.Call) and node.args:
            # By name: importlib.import_module("randkern.torch").
            by_name = "import_module" in ast.unparse(node.func)
            (name, *_) = node.args
            if by_name and isinstance(name, ast.Constant):
                yield node.lineno, name.value


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def test_architecture_lists_every_room():
    rooms = {room_of(path) for path in FILES} - {"__init__", "__main__"}
    assert FLOORS, "docs/architecture.md has no table of floors"
    assert rooms <= set(FLOORS), (
        f"no floor for {sorted(rooms - set(FLOORS))}: add the room to the table "
        "in docs/architecture.md and say there why it stands where it does"
    )


@EVERY_FILE
def test_the_library_does_not_import_the_lab(path):
    found = [m for _, m in imported_modules(path) if m.split(".")[0] == LAB.name]
    assert not found, f"randkern_lab stands above the library: {found}"


@pytest.mark.slow
@EVERY_FILE
def test_imports_only_from_lower_floors(path):
    room = room_of(path)
    if room in {"__init__", "__main__"}:
        return  # the public names resolve lazily, above every floor
    floor, beside = FLOORS[room]
    wrong = []
    for line, name in imported_modules(path):
        parts = [*name.split("."), ""]
        if parts[0] != "randkern" or parts[1] in (room, "__version__"):
            continue
        other = parts[1]
        other_floor = FLOORS.get(other, (None,))[0]
        if other_floor is None:
            # Above the models a room may use the library as its users do.
            if floor <= FLOORS["models"][0]:
                wrong.append(f"line {line}: {name} goes through the public front")
        elif other_floor >= floor and other not in beside:
            wrong.append(f"line {line}: {other} is on floor {other_floor}")
    assert not wrong, f"{room} is on floor {floor}; {'; '.join(wrong)}"


def module_of(path: Path) -> str:
    """The dotted name of the file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in [*FILES, *LAB_FILES]}


def own_imports(path: Path) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name imported from it) of every import of a file of ours."""
    for line, name in imported_modules(path):
        if name in MODULES:
            yield line, name, None
        elif name.rpartition(".")[0] in MODULES:
            module, _, attribute = name.rpartition(".")
            yield line, module, attribute


@pytest.mark.slow
def test_no_circles_between_files():
    """Imports inside functions count, and those for type checkers."""
    needs = {
        name: {other for _, other, _ in own_imports(path)} - {name, "randkern"}
        for name, path in MODULES.items()
        if name != "randkern"  # resolves the public names lazily, above all files
    }
    try:
        tuple(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.slow
@OF_BOTH
def test_no_underscore_names_of_other_files(path):
    if room_of(path) == "cli":
        return
    found = [
        f"line {line}: {module}.{name}"
        for line, module, name in own_imports(path)
        if name and name.startswith("_") and not name.startswith("__")
    ]
    assert not found, f"make what other files use public: {found}"


@pytest.mark.slow
@OF_BOTH
def test_imports_stand_at_the_top(path):
    """But those of optional dependencies, and of the one dispatch between backends."""
    if room_of(path) in {"cli", "lab"}:
        return  # commands load what they run
    if path.name in {"namespace.py", "torch_kernels.py"}:
        return
    inside = {
        node.lineno
        for scope in functions(TREES[path])
        for node in ast.walk(scope)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    found = [f"line {line}: {m}" for line, m, _ in own_imports(path) if line in inside]
    assert not found, f"import at the top: {found}"


@pytest.mark.slow
@OF_BOTH
def test_frameworks_stay_in_the_backend(path):
    if room_of(path) in {"backend", "lab", "torch"}:
        return
    found = {
        f"line {line}: {name}"
        for line, name in imported_modules(path)
        if name.split(".")[0] in FRAMEWORKS
    }
    assert not found, f"only backend/ knows Numba and PyTorch; {sorted(found)}"


def private_imports(tree: ast.AST) -> list[int]:
    """Lines that import what is private in scikit-learn."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("sklearn")
        and any(
            part.startswith("_") or part == "externals"
            for alias in node.names
            for part in [*(node.module or "").split("."), alias.name]
        )
    ]


PRIVATE_IMPORTS = {
    "randkern/_sklearn.py",
    "randkern/backend/torch_ops.py",  # the namespace of tensors, which imports PyTorch
}


def test_one_file_imports_what_is_private_in_scikit_learn():
    found = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path, tree in TREES.items()
        if private_imports(tree)
    }
    assert found <= PRIVATE_IMPORTS, "import it from randkern._sklearn"
