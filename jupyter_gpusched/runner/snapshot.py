"""Values that a cell has made by running, for its worker processes: they repeat its definitions, not its work.

Written when the first of them is about to start (and anew for each further one), by a hook in
``multiprocessing.spawn``, and only those that the definitions use. A forkserver takes them once.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from typing import Any

from . import pickling
from .records import write_file

LARGEST = 512 << 20
"""Bytes of one such value; a larger one is left out, with a word."""

_LOOKUPS = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
_MODULE = "multiprocessing.spawn"


def hook(before_start: Callable[[], None]) -> None:
    """Call this whenever a process is about to be started by spawn or forkserver; costs nothing until then."""
    if _MODULE in sys.modules:
        _patch(sys.modules[_MODULE], before_start)
    else:
        sys.meta_path.insert(0, _WhenImported(before_start))


class _WhenImported:
    def __init__(self, before_start: Callable[[], None]) -> None:
        self._before_start = before_start

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: types.ModuleType) -> None:
                load(module)
                _patch(module, self._before_start)

            spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def _patch(spawn: Any, before_start: Callable[[], None]) -> None:
    describe, flags = spawn.get_preparation_data, spawn.util._args_from_interpreter_flags

    def get_preparation_data(name: str) -> Any:
        before_start()
        return describe(name)

    def safe_flags() -> list[str]:
        """Workers, too, must not take a user's ``random.py`` for Python's while they start."""
        return [*flags(), *(["-P"] if "-P" not in flags() and sys.version_info >= (3, 11) else [])]

    spawn.get_preparation_data, spawn.util._args_from_interpreter_flags = get_preparation_data, safe_flags


class Snapshot:
    """Which values of a cell its workers need, and the file that they lie in."""

    def __init__(self, path: str, namespace: dict[str, Any], kept: list[ast.stmt], others: list[ast.stmt]) -> None:
        self._path = path
        self._namespace = namespace
        self._kept = kept
        self._defined = {
            part.name for part in kept if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        self._made = _bound(others) - self._defined
        self._told: set[str] = set()

    def write(self) -> None:
        """Write what is there now. What cannot be pickled is left out, and said once."""
        home = self._namespace
        used = _looked_up(
            [self._definitions(), *(code for value in list(home.values()) for code in _code_of(value, home))]
        )
        pickled = {}
        for name in sorted(used & self._made & home.keys()):
            if isinstance(home[name], types.ModuleType):
                continue
            try:
                pickled[name] = self._pickled(home[name])
            except Exception as error:  # noqa: BLE001  pickling runs code of the value
                self._tell(name, error)
        if pickled or os.path.exists(self._path):
            mine = f"{self._path}.{os.getpid()}"
            with contextlib.suppress(OSError):
                write_file(mine, pickle.dumps(pickled, protocol=4))
                os.rename(mine, self._path)

    def _definitions(self) -> types.CodeType:
        return compile(ast.Module(self._kept, []), "<definitions>", "exec", dont_inherit=True)

    def _pickled(self, value: Any) -> bytes:
        bag = _Bag()
        defined, home = self._defined, self._namespace
        try:
            import cloudpickle  # type: ignore[import-untyped]
        except ImportError:
            pickle.Pickler(bag, protocol=4).dump(value)
            return bag.getvalue()

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined, unused-ignore]
            def reducer_override(self, obj: Any) -> Any:
                if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
                    name = obj.__qualname__
                    if name in defined and home.get(name) is obj:
                        return name  # the worker has defined it, too
                reduced = pickling.reduce(obj, self.dispatch_table)
                return super().reducer_override(obj) if reduced is NotImplemented else reduced

        Pickler(bag, protocol=4).dump(value)
        return bag.getvalue()

    def _tell(self, name: str, error: Exception) -> None:
        if name not in self._told:
            self._told.add(name)
            sys.stderr.write(
                f"gpusched: worker processes will not have `{name}` ({type(error).__name__}: {error}); "
                "pass it to them as an argument, or make it in the function that they run\n"
            )


class _Bag(io.BytesIO):
    def write(self, content: Any) -> int:
        if self.tell() + memoryview(content).nbytes > LARGEST:
            raise ValueError(f"more than {LARGEST >> 20} MiB")
        return super().write(content)


def _bound(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that these statements make or change at the top level."""
    names: set[str] = set()
    unseen: list[ast.AST] = list(statements)
    while unseen:
        node = unseen.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.update(part.id for part in ast.walk(node.value) if isinstance(part, ast.Name))
        unseen += ast.iter_child_nodes(node)
    return names


def _code_of(value: object, home: dict[str, Any]) -> list[types.CodeType]:
    """The code of a function of the notebook that the cell brought along."""
    if isinstance(value, (types.FunctionType, pickling.CACHED)):
        value = getattr(value, "__wrapped__", value)
    return [value.__code__] if isinstance(value, types.FunctionType) and value.__globals__ is home else []


def _looked_up(codes: list[types.CodeType]) -> set[str]:
    """Global names that code reads, and what is defined in it."""
    import dis

    names: set[str] = set()
    while codes:
        code = codes.pop()
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        names.update(step.argval for step in dis.get_instructions(code) if step.opname in _LOOKUPS)
    return names


def read(path: str) -> dict[str, bytes]:
    """In a worker: the values that are there, each pickled."""
    try:
        with open(path, "rb") as file:
            return dict(pickle.loads(file.read()))  # noqa: S301  the job's own
    except FileNotFoundError:
        return {}
