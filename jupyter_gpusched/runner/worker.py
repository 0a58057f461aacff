"""What worker processes of a cell get as ``__main__``: its definitions and the captured values.

Processes started by *spawn* or *forkserver* run the file that ``main_file`` writes. They take
over imports, functions, classes and constants of the cell, and never run its other statements.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from collections.abc import Iterable
from typing import Any

from . import snapshot, values
from .records import write_file

_MAIN_FILE = '''"""Written by jupyter-gpusched: by it, worker processes of this job find what its cell defined."""


def _restore():
    import importlib.util
    import sys

    name = "_gpusched_runner"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, {init!r}, submodule_search_locations=[{here!r}])
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    from _gpusched_runner.worker import restore

    restore(globals(), {payload!r}, {source!r}, {given!r})


_restore()
del _restore
'''

_QUIET_CALLS = frozenset(
    {"Path", "PurePath", "namedtuple", "TypeVar", "NewType", "bool", "dict", "float", "frozenset", "int", "len"}
    | {"list", "max", "min", "range", "round", "set", "str", "sum", "tuple", "abs"}
)
"""Calls that only make a value; every other call may be the work that must not be done twice."""

_VALUES = ".pkl"

_TRANSPARENT_MAGICS = frozenset({"capture", "prun", "time"})
"""Cell magics that run their body as the cell would."""


def main_file(
    attempt_folder: str, here: str, *, payload: str | None, source: str | None, given: dict[str, Any] | None = None
) -> str:
    """Write what workers need: the file for ``__main__``, whose path is returned, and the cell's plain Python.

    source  None for a function: then all that workers need is in the payload.
    given   plain values beside those of the payload.
    """
    path = f"{attempt_folder}/{'function' if source is None else 'cell'}.py"
    kept = None if source is None else f"{attempt_folder}/source.py"
    text = _MAIN_FILE.format(init=f"{here}/__init__.py", here=here, payload=payload, source=kept, given=given or {})
    if kept is not None and source is not None:
        write_file(kept, source.encode("utf-8", "backslashreplace"))
    write_file(path, text.encode("utf-8", "backslashreplace"))
    return path


def restore(
    namespace: dict[str, Any], payload: str | None, path: str | None, given: dict[str, Any] | None = None
) -> None:
    """Fill a worker's ``__main__``. What cannot be had is said on stderr and left out."""
    try:
        if payload is not None:
            (values.load_call if path is None else values.load)(payload, namespace)
    except values.CannotTravel as error:
        _complain(str(error))
    namespace.update(given or {})
    if path is not None:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        define(source, path, namespace)


def snapshot_of(namespace: dict[str, Any], attempt_folder: str, source: str) -> snapshot.Snapshot:
    """What else the workers of this cell need: values that it makes by running."""
    statements = _statements(source)
    kept = [statement for statement in statements if is_definition(statement)]
    others = [statement for statement in statements if not is_definition(statement)]
    return snapshot.Snapshot(f"{attempt_folder}/source.py{_VALUES}", namespace, kept, others)


def define(source: str, path: str, namespace: dict[str, Any]) -> None:
    """Execute the definitions of a cell's plain Python, and add the values that the job has made by now."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return  # the job itself has failed by it
    flags = _future_flags(statements)

    def failing(statements: Iterable[ast.stmt]) -> dict[ast.stmt, Exception]:
        failures: dict[ast.stmt, Exception] = {}
        for statement in statements:
            code = compile(ast.Module([statement], []), path, "exec", flags=flags, dont_inherit=True)
            try:
                exec(code, namespace)  # noqa: S102  the user's own definitions
            except Exception as error:  # noqa: BLE001  it may need a value that only the job has
                failures[statement] = error
        return failures

    failed = failing(filter(is_definition, statements))
    pickled = snapshot.read(path + _VALUES)
    made, _ = _unpickled(pickled, namespace)
    namespace.update(made)
    for statement, error in failing(failed).items():  # once more, with these values
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            _complain(f"line {statement.lineno} of the cell is not known here: {type(error).__name__}: {error}")
    more, missing = _unpickled({name: content for name, content in pickled.items() if name not in made}, namespace)
    for name, error in missing.items():
        _complain(f"`{name}` is not known here: {type(error).__name__}: {error}")
    namespace.update({**made, **more})


def _unpickled(pickled: dict[str, bytes], namespace: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Exception]]:
    """The values that can be had by now, and why the others cannot."""
    found, failures = {}, {}
    for name, content in pickled.items():
        try:
            found[name] = values.unpickled_for_main(content, namespace)
        except Exception as error:  # noqa: BLE001, PERF203  unpickling runs code of the value
            failures[name] = error
    return found, failures


def plain_python(transformed: str, transform: Any) -> str:
    """The cell as Python; of a cell magic that only wraps, its body. Lines keep their numbers."""
    match _statements(transformed):
        case [ast.Expr(ast.Call(ast.Attribute(attr="run_cell_magic"), [name, _, ast.Constant(str() as body)]))]:
            if isinstance(name, ast.Constant) and name.value in _TRANSPARENT_MAGICS:
                return "\n" + str(transform(body))
    return transformed


def _statements(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def is_definition(node: ast.stmt) -> bool:
    """Whether a statement only makes names known, so that repeating it does none of the cell's work."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Pass():
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            return value is None or is_inert(value)
        case ast.If(test, body, rest):
            return is_inert(test) and all(map(is_definition, [*body, *rest]))
        case ast.Try(body, handlers, rest, last):
            caught = [statement for handler in handlers for statement in handler.body]
            return all(map(is_definition, [*body, *caught, *rest, *last]))
        case _:
            return False


_INERT = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.FormattedValue,
    ast.IfExp,
    ast.JoinedStr,
    ast.List,
    ast.Name,
    ast.Set,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
    ast.expr_context,
    ast.boolop,
    ast.cmpop,
    ast.operator,
    ast.unaryop,
    ast.keyword,
)


def is_inert(node: ast.AST) -> bool:
    """Whether an expression only makes or names a value."""
    match node:
        case ast.Lambda():
            return True
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), words, options):
            return name in _QUIET_CALLS and all(map(is_inert, [*words, *options]))
        case _:
            return isinstance(node, _INERT) and all(map(is_inert, ast.iter_child_nodes(node)))


def _future_flags(statements: Iterable[ast.stmt]) -> int:
    names = [
        alias.name
        for node in statements
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    ]
    flags = 0
    for name in names:
        flags |= getattr(__future__, name).compiler_flag
    return flags


def _complain(text: str) -> None:
    sys.stderr.write(f"gpusched: worker process {os.getpid()}: {text}\n")
