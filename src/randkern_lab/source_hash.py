"""A hash of the code that an experiment's numbers depend on.

Names are followed definition by definition: a function, class or constant of ours
counts if the experiment's module, or another definition that counts, refers to it. Code
that only draws or prints does not count, nor do comments and docstrings; names in
annotations are not followed, and data files are not read. A module that is used as a
value, as in ``getattr(module, name)``, counts as a whole.
"""

import ast
import hashlib
import importlib.util
import io
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1]
_PACKAGES = ("randkern", "randkern_lab")
#: Methods and attributes of experiments that only present results.
_SHOWING = frozenset(
    {
        "tables",
        "figure",
        "figures",
        "write",
        "listed",
        "panels",
        "layout",
        "skipped_by",
    }
)
#: Code that runs cases, stores records and draws them, which determines no number.
_KEEPING = "randkern_lab.runner.Experiment"
_DRAWING = "randkern_lab.panels"
#: Code that runs on import of a module, besides its definitions.
_LOOSE = ""


def code_hash(module: str, sources: Path = SOURCES) -> str:
    """Return a hash of a module and of all definitions of ours that it depends on."""
    total = hashlib.sha256()
    for place, name in sorted(definitions_of(module, sources)):
        code = "\n".join(_read(place, sources).code(name))
        total.update(f"{place}.{name}\n{code}\n".encode())
    return total.hexdigest()[:16]


def definitions_of(module: str, sources: Path = SOURCES) -> set[tuple[str, str]]:
    """Return the definitions that a module depends on, as pairs of module and name."""
    result: set[tuple[str, str]] = set()
    waiting = [(module, name) for name in _read(module, sources).statements]
    while waiting:
        place, name = waiting.pop()
        if (place, name) in result:
            continue
        result.add((place, name))
        waiting += [(place, _LOOSE)]
        for path in _read(place, sources).references(name):
            waiting += _resolved(path, sources)
    return {(place, name) for place, name in result if _read(place, sources).code(name)}


def _resolved(path: tuple[str, ...], sources: Path) -> Iterator[tuple[str, str]]:
    """Yield the definitions that a dotted path refers to, if they are ours."""
    if path[0] not in _PACKAGES or ".".join(path).startswith((_KEEPING, _DRAWING)):
        return
    length = len(path)
    while not _is_module(".".join(path[:length]), sources):
        length -= 1
    place, rest = ".".join(path[:length]), path[length:]
    source = _read(place, sources)
    if not rest or rest[0] not in source.names():
        yield from ((place, name) for name in source.names())
    else:
        yield place, rest[0]


@cache
def _path(module: str, sources: Path) -> Path:
    if module.partition(".")[0] not in _PACKAGES:  # an experiment of another package
        spec = importlib.util.find_spec(module)
        return Path((spec and spec.origin) or __file__)
    place = sources.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def _is_module(name: str, sources: Path) -> bool:
    return _path(name, sources).is_file()


@cache
def _read(module: str, sources: Path) -> "_Source":
    return _Source(module, _path(module, sources))


class _Source:
    """A file: its definitions, their code, and their references."""

    def __init__(self, module: str, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        self._module = tuple(module.split("."))
        is_package = path.name == "__init__.py"
        self._package = module if is_package else module.rpartition(".")[0]
        self._shown = _showing(tree)
        self._lines = _lines_of_code(text, tree, self._shown)
        self.statements: dict[str, list[ast.stmt]] = defaultdict(list)
        for statement in tree.body:
            for name in _bound(statement):
                self.statements[name].append(statement)
        self._imports: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        self._keep_imports(tree)
        stub = path.with_suffix(".pyi")
        if stub.is_file():  # it lists the origin of lazily imported names
            self._keep_imports(ast.parse(stub.read_text(encoding="utf-8")))

    def names(self) -> set[str]:
        """Return the names of all definitions and imports."""
        return {*self.statements, *self._imports}

    def code(self, name: str) -> list[str]:
        """Return the lines of a definition that can change a number."""
        rows = [
            row
            for statement in self.statements.get(name, ())
            for row in range(_first_row(statement), (statement.end_lineno or 0) + 1)
        ]
        lines = (self._lines[row - 1].rstrip() for row in rows)
        return [line for line in lines if line]

    def references(self, name: str) -> Iterator[tuple[str, ...]]:
        """Yield the dotted paths that a definition or an import refers to."""
        yield from self._imports.get(name, ())
        for statement in self.statements.get(name, ()):
            for path in _named(statement, self._shown):
                if path[0] in self._imports:
                    for target in self._imports[path[0]]:
                        yield (*target, *path[1:])
                if path[0] in self.statements:
                    yield (*self._module, path[0])

    def _keep_imports(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    path = tuple(alias.name.split("."))
                    path = path if alias.asname else path[:1]
                    self._imports[alias.asname or path[0]].add(path)
            elif isinstance(node, ast.ImportFrom):
                named = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(named, self._package).split(".")
                for alias in node.names:
                    self._imports[alias.asname or alias.name].add((*base, alias.name))


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines; imports are handled separately."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return set()
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return set()
        case ast.Assign(targets=targets):
            return {
                n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)
            }
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return set()
        case _:  # for example a conditional definition
            inner = [node for node in ast.walk(statement) if isinstance(node, ast.stmt)]
            names = [_bound(node) for node in inner if node is not statement]
            return {_LOOSE}.union(*names)


def _named(node: ast.AST, shown: Collection[ast.AST]) -> Iterator[tuple[str, ...]]:
    """Yield the names that code refers to, with their attribute chains."""
    path: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        path.insert(0, inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield (inner.id, *path)
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and child not in shown:
                yield from _named(child, shown)


def _showing(tree: ast.Module) -> list[ast.stmt]:
    """Return what experiments have only to present results."""
    return [
        child
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        and any(
            isinstance(b, ast.Name) and b.id.endswith("Experiment") for b in owner.bases
        )
        for child in owner.body
        if _SHOWING & _bound(child)
    ]


def _first_row(statement: ast.stmt) -> int:
    """Return the first line of a statement, including its decorators."""
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(item.lineno for item in decorators)])


def _lines_of_code(
    text: str, tree: ast.Module, shown: Collection[ast.stmt]
) -> list[str]:
    """Return the lines of a file, empty where they cannot change a number."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    silent = [*shown]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                silent.append(node.body[0])
    for statement in silent:
        for row in range(_first_row(statement), (statement.end_lineno or 0) + 1):
            lines[row - 1] = ""
    return lines
