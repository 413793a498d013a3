"""House rules of style that a parser can check; those of structure are in
``test_structure.py``.

Exceptions are listed by name, with their reason. The lists only ever get shorter: an
exception that no longer applies fails, but for those of files that are being changed on
several branches at once, which would fail on the branch that merges last.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from test_structure import FILES, LAB_FILES, PACKAGE, TREES, Function, functions

MAX_CONSTANTS = 10
MAX_SMALL_LINES = 3
ALL_FILES = [*FILES, *LAB_FILES]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()


def check_exceptions(violations: set[str], exceptions: set[str], rule: str) -> None:
    """Raise for violations that are not exceptions, and for exceptions that are not."""
    assert not violations - exceptions, f"{rule}: {sorted(violations - exceptions)}"
    obsolete = sorted(exceptions - violations)
    assert not obsolete, f"no longer exceptions of '{rule}', remove them: {obsolete}"


# -- calls -------------------------------------------------------------------------


def starred_literals(tree: ast.AST) -> list[int]:
    """Lines of ``*(a, b)``: what is in the parentheses can stand there itself."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Starred)
        and isinstance(node.value, ast.Tuple | ast.List | ast.Set)
    ]


STARRED_LITERALS: set[str] = set()


def test_no_literal_is_unpacked_in_place():
    violations = {name_of(path) for path in ALL_FILES if starred_literals(TREES[path])}
    check_exceptions(violations, STARRED_LITERALS, "write out unpacked literals")


def test_starred_literals_are_recognised():
    assert starred_literals(ast.parse("f(*(a, b), c)")) == [1]
    assert starred_literals(ast.parse("[\n*(1, 2), 3]")) == [2]
    assert not starred_literals(ast.parse("f(*names, *(x for x in y), **{'a': 1})"))


def split_texts(tree: ast.AST) -> list[int]:
    """Lines of ``"a b c".split()``: a list of names is written as one."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "split"
        and isinstance(node.func.value, ast.Constant)
    ]


SPLIT_TEXTS: set[str] = set()


def test_no_list_is_written_as_a_text_to_split():
    violations = {name_of(path) for path in ALL_FILES if split_texts(TREES[path])}
    check_exceptions(violations, SPLIT_TEXTS, "write lists of names as lists")


def changed_namespaces(tree: ast.AST) -> list[int]:
    """Lines of ``x.__dict__.update(...)`` and of its other methods that change it.

    But for ``__setstate__``, whose idiom it is.
    """
    unpickling = {
        id(node)
        for function in functions(tree)
        if function.name == "__setstate__"
        for node in ast.walk(function)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and id(node) not in unpickling
        and node.attr in {"update", "pop", "clear", "setdefault"}
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "__dict__"
    ]


CHANGED_NAMESPACES: set[str] = set()


def test_attributes_are_set_by_name():
    violations = {
        name_of(path) for path in ALL_FILES if changed_namespaces(TREES[path])
    }
    check_exceptions(violations, CHANGED_NAMESPACES, "use setattr and delattr")


# -- assignments -------------------------------------------------------------------


def packed_assignments(tree: ast.Module) -> list[int]:
    """Lines of ``a, b = x, y`` that are two statements in one line.

    Attributes and constants of modules have a line each. In functions, only names of
    one pair, such as ``low, high = 0.0, 1.0``, share one, and values that are swapped
    or change together.
    """
    top = {id(node) for node in tree.body}
    lines = []
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            continue
        targets = node.targets[0].elts
        are_names = all(isinstance(target, ast.Name) for target in targets)
        has_attributes = any(isinstance(target, ast.Attribute) for target in targets)
        if has_attributes or (id(node) in top and are_names):
            lines.append(node.lineno)
    return lines


# Rooms in which they are still to be written out.
PACKED_ROOMS = ("randkern/tabular/", "randkern_lab/")
PACKED_ASSIGNMENTS = {
    # Coefficients and bit masks of compiled code.
    "randkern/backend/cpu.py",
    "randkern/backend/duals.py",
    "randkern/backend/hadamard_kernels.py",
    "randkern/backend/hadamard_vectors.py",
    "randkern/backend/pairwise.py",
    "randkern/backend/paths.py",
    "randkern/backend/triton_kernels.py",
}


def test_assignments_have_a_line_each():
    violations = {
        name_of(path)
        for path in ALL_FILES
        if packed_assignments(TREES[path])
        and not name_of(path).startswith(PACKED_ROOMS)
    }
    check_exceptions(violations, PACKED_ASSIGNMENTS, "one assignment per line")


def test_packed_assignments_are_recognised():
    assert packed_assignments(ast.parse("self.a, self.b = x, y")) == [1]
    assert packed_assignments(ast.parse("A, B = 1, 2")) == [1]
    assert not packed_assignments(ast.parse("self.a, b = f()\nA, B = f()"))
    assert not packed_assignments(ast.parse("def f(a, b):\n    a, b = b, a"))


# -- constants ---------------------------------------------------------------------


def constants(tree: ast.Module) -> list[str]:
    """Names in capitals that a module assigns at its top level, also in tuples."""
    targets = [
        target
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return [
        name.id
        for target in targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and re.fullmatch("_?[A-Z][A-Z0-9_]*", name.id)
    ]


MANY_CONSTANTS = {
    # Coefficients and bit masks of compiled code, which reads them at its top level.
    "randkern/backend/counter.py",
    "randkern/backend/cpu.py",
    "randkern/backend/duals.py",
    "randkern/backend/hadamard_kernels.py",
    "randkern/backend/pairwise.py",
    "randkern/backend/skinny_gemm.py",
    "randkern/backend/triton_kernels.py",
    # Limits of one iteration each, a comment for each of them.
    "randkern/models/_margin_newton.py",
    "randkern/models/_svm_dual.py",
    # Operators of ONNX by their names.
    "randkern/onnx/traced.py",
    # Thresholds of one method each, which its docstrings explain; to be grouped.
    "randkern/reporting/page.py",
    "randkern/tabular/classifier.py",
    "randkern/tabular/estimators.py",
    "randkern/tabular/intervals.py",
    "randkern/tabular/leakage.py",
    "randkern/tabular/search.py",
    "randkern/tabular/work.py",
    # Names, sizes and checksums of published files.
    "randkern_lab/image_files/cifar.py",
    "randkern_lab/image_files/idx.py",
    "randkern_lab/benchmarks/ridge.py",
    "randkern_lab/benchmarks/tables.py",
    # Settings of experiments, colours and styles of lines.
    "randkern_lab/papers/compositional_structure.py",
    "randkern_lab/papers/compositional_tables.py",
    "randkern_lab/papers/optical_ridge.py",
    "randkern_lab/papers/transfer_learning.py",
}


def test_modules_have_few_constants():
    violations = {
        name_of(path)
        for path in ALL_FILES
        if len(constants(TREES[path])) > MAX_CONSTANTS
    }
    check_exceptions(
        violations,
        MANY_CONSTANTS,
        f"at most {MAX_CONSTANTS} constants per module",
    )


# -- small functions ---------------------------------------------------------------


def names_called(tree: ast.AST) -> Iterator[str]:
    """The name of the function of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute):
                yield node.func.attr


def names_read(tree: ast.AST) -> Iterator[str]:
    """Every use of a name, as a variable, an attribute or a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def n_body_lines(function: Function) -> int:
    """Number of lines of the body of a function, without its docstring."""
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


SMALL_FUNCTIONS = {
    "randkern/models/callbacks.py::_init_callback_context",  # scikit-learn's hook
    "randkern/onnx/traced.py::_arccos",  # defined after the table that calls it
    # In a comprehension, where its name says what is computed.
    "randkern_lab/papers/optical_convergence.py::_relative_variance",
    # Their docstrings say why; the second stands beside the like for monotone columns.
    "randkern/tabular/encoder.py::_days_of_dates",
    "randkern/tabular/leakage.py::_determines",
    "randkern/tabular/many_rows.py::_n_evaluated",
}


def test_small_private_functions_are_used_more_than_once():
    """A function that is used once, in a line or three, is read faster in its place.

    Those with a decorator are called by other means, or cached; those that are passed
    on as values are entries of a table, or tasks that must be pickled.
    """
    uses = Counter(name for path in ALL_FILES for name in names_read(TREES[path]))
    calls = Counter(name for path in ALL_FILES for name in names_called(TREES[path]))
    private = [
        (path, node)
        for path in ALL_FILES
        for node in functions(TREES[path])
        if node.name.startswith("_") and not node.name.startswith("__")
    ]
    n_definitions = Counter(node.name for _, node in private)
    violations = {
        f"{name_of(path)}::{node.name}"
        for path, node in private
        if not node.decorator_list
        and n_body_lines(node) <= MAX_SMALL_LINES
        and n_definitions[node.name] == 1
        and uses[node.name] == calls[node.name] == 1
    }
    check_exceptions(
        violations,
        SMALL_FUNCTIONS,
        "inline functions that are used once",
    )


# -- abstract methods --------------------------------------------------------------


def unenforced(trees: list[ast.AST]) -> list[str]:
    """Classes with abstract methods that do not derive from ABC.

    Python only enforces these in subclasses of ABC (or in protocols).
    """
    classes = {
        node.name: node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def is_enforced(name: str) -> bool:
        if name not in classes:
            return name in {"ABC", "Protocol"}
        bases = [ast.unparse(base) for base in classes[name].bases]
        return any(is_enforced(base.partition("[")[0]) for base in bases)

    return [
        name
        for name, node in classes.items()
        if any(
            isinstance(method, ast.FunctionDef)
            and any(ast.unparse(d) == "abstractmethod" for d in method.decorator_list)
            for method in node.body
        )
        and not is_enforced(name)
    ]


def test_abstract_methods_are_enforced():
    assert not unenforced([TREES[path] for path in ALL_FILES])
    method = "    @abstractmethod\n    def f(self): ...\n"
    bad, good = f"class A(B):\n{method}", f"class A(B):\n{method}class B(ABC): ...\n"
    assert unenforced([ast.parse(bad)]) == ["A"]
    assert not unenforced([ast.parse(good)])


# -- scikit-learn ------------------------------------------------------------------


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
    violations = {name_of(path) for path in ALL_FILES if private_imports(TREES[path])}
    check_exceptions(violations, PRIVATE_IMPORTS, "import it from randkern._sklearn")
