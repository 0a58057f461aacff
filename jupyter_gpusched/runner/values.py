"""Values that travel: captured ones into the job, results out of it.

Owns the two pickle formats and makes captured functions of the notebook live in the job's own
``__main__``, where they see what the cell redefines. Runs in the job's process only.
"""

from __future__ import annotations

import io
import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

from . import pickling
from .records import write_file

FORMAT = 1

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class CannotTravel(Exception):
    """A value that cannot be brought in or out; the text says what to do."""


def load(path: str, namespace: dict[str, Any]) -> None:
    """Put the captured values of a payload file into ``namespace``, and its folders on the path."""
    payload, _ = _read(path, namespace, or_else=", or capture nothing with --no-capture")
    if not isinstance(payload, dict):
        raise CannotTravel("the payload is not a dict of names and values; pickle one with cloudpickle.dumps")
    namespace.update(payload)


def load_call(
    path: str, namespace: dict[str, Any], *, item: int | None = None, given: dict[str, Any] | None = None
) -> Call:
    """The function of a payload file with its arguments; what it uses of the notebook is in ``namespace`` then.

    item   which of the calls in the payload is meant: each has one argument of its own, pickled apart.
    given  arguments by name beside those of the payload.
    Over REST the payload may also be a plain cloudpickle of the function, or of ``(function, args, kwargs)``.
    """
    payload, items = _read(path, namespace, or_else="")
    if item is not None and item >= len(items):
        raise CannotTravel(f"the payload has {len(items)} items, and item {item} was asked for")
    if isinstance(payload, dict):
        payload = tuple(payload.get(name, empty) for name, empty in (("function", None), ("args", ()), ("kwargs", {})))
    function, args, kwargs, *more = (*payload, (), {})[:4] if isinstance(payload, tuple) else (payload, (), {})
    if not callable(function) or (more and more[0] != ()):
        raise CannotTravel(
            "the payload is no function with its arguments; make it with cloudpickle.dumps((function, args, kwargs))"
        )
    if getattr(function, "__module__", None) == "__main__":
        namespace.setdefault(getattr(function, "__name__", ""), function)
    own = () if item is None else (_unpickled(items[item], namespace, ""),)
    return function, (*own, *args), {**kwargs, **(given or {})}


def save(folder: str, name: str, namespace: dict[str, Any]) -> None:
    """Write one result of the cell, whole or not at all."""
    if name not in namespace:
        raise CannotTravel(f"output {name!r} is not there: the cell did not assign a variable of this name")
    save_value(folder, name, namespace[name], what=f"output {name!r}", way_out="save it to a file in the cell instead")


def dumped(value: object) -> bytes:
    """A value pickled with all that it needs of ``__main__``."""

    class Pickler(_cloudpickle().Pickler):  # type: ignore[misc, name-defined, unused-ignore]
        def reducer_override(self, obj: Any) -> Any:
            reduced = pickling.reduce(obj, self.dispatch_table)
            return super().reducer_override(obj) if reduced is NotImplemented else reduced

    content = io.BytesIO()
    Pickler(content, protocol=4).dump(value)
    return content.getvalue()


def save_value(folder: str, name: str, value: object, *, what: str, way_out: str) -> None:
    """Write a value under this name, whole or not at all."""
    try:
        content = dumped(value)
    except CannotTravel:
        raise
    except Exception as error:  # noqa: BLE001  pickling runs code of the value, which may raise anything
        how = f"{type(error).__name__}: {error}"
        raise CannotTravel(f"{what} ({_type_name(value)}) cannot be pickled ({how}); {way_out}") from None
    _write(folder, name, value, {"value": content})


def save_exception(folder: str, error: BaseException, text: str, *, attempt: int) -> None:
    """Keep an exception for whoever asks for the result: itself if it can travel, in any case its traceback's text."""
    try:
        content = dumped(error.with_traceback(None))
    except Exception:  # noqa: BLE001  see save_value; the text will do
        content = None
    _write(folder, "exception", error, {"value": content, "text": text, "attempt": attempt})


def _write(folder: str, name: str, value: object, more: dict[str, Any]) -> None:
    record = {"__gpusched__": FORMAT, "python": list(sys.version_info[:2]), "type": _type_name(value), **more}
    mine = f"{folder}/.{name}.{os.getpid()}"
    write_file(mine, pickle.dumps(record, protocol=4))
    os.rename(mine, f"{folder}/{name}.pkl")


def _read(path: str, namespace: dict[str, Any], *, or_else: str) -> tuple[Any, list[bytes]]:
    """The content of a payload file, and its items, still pickled. ``or_else`` is a further way out for messages."""
    with open(path, "rb") as file:
        payload = _unpickled(file.read(), namespace, or_else)
    if not (isinstance(payload, dict) and payload.get("__gpusched__") == FORMAT):
        return payload, []
    _check_python(tuple(payload["python"]), or_else)
    after_here = sys.path.index("") + 1 if "" in sys.path else 1
    sys.path[after_here:after_here] = [folder for folder in payload.get("sys_path", ()) if folder not in sys.path]
    for name, text in payload.get("sources", {}).items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return _unpickled(payload["values"], namespace, or_else), payload.get("items", [])


def _check_python(pickled_by: tuple[int, ...], or_else: str) -> None:
    if pickled_by != sys.version_info[:2]:
        theirs, ours = ".".join(map(str, pickled_by)), ".".join(map(str, sys.version_info[:2]))
        raise CannotTravel(
            f"the captured values come from Python {theirs} and this job runs on Python {ours}; "
            f"choose a Python {theirs} with --python{or_else}"
        )


def _unpickled(content: bytes, namespace: dict[str, Any], or_else: str) -> Any:
    try:
        return _Unpickler(io.BytesIO(content), namespace).load()
    except CannotTravel:
        raise
    except Exception as error:  # unpickling runs the values' own code, which may raise anything
        raise CannotTravel(
            f"the captured values cannot be loaded in {sys.executable} ({type(error).__name__}: {error}); "
            f"install there what they need, or choose another interpreter with --python{or_else}"
        ) from error


def unpickled_for_main(content: bytes, namespace: dict[str, Any]) -> Any:
    """A value of the job in one of its worker processes, where ``namespace`` is to become ``__main__``."""
    return _Unpickler(io.BytesIO(content), namespace, own_main=True).load()


class _Unpickler(pickle.Unpickler):
    """Makes functions that were defined in a notebook live in the job's ``__main__``."""

    def __init__(self, file: io.BytesIO, namespace: dict[str, Any], *, own_main: bool = False) -> None:
        """own_main  ``namespace`` is to become the one of ``__main__``, as in a worker process."""
        super().__init__(file)
        self._own_main = own_main
        self._namespace = namespace

    def find_class(self, module: str, name: str) -> Any:
        if name == "_make_function" and module.startswith("cloudpickle"):
            return self._make_function
        if module == "__main__" and self._own_main and name in self._namespace:
            return self._namespace[name]
        if module.partition(".")[0] == "cloudpickle":
            _cloudpickle()
        return super().find_class(module, name)

    def _make_function(self, code: Any, own: dict[str, Any], name: str, defaults: Any, closure: Any) -> Any:
        """As cloudpickle's, but all functions of the notebook share one namespace, as they did there."""
        home = self._namespace if own.get("__name__") == "__main__" else own
        home.setdefault("__builtins__", __builtins__)
        return types.FunctionType(code, home, name, defaults, closure)


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise CannotTravel(
            f"{sys.executable} has no cloudpickle, which brings values into the job and out of it; "
            f"install it there: {sys.executable} -m pip install cloudpickle"
        ) from None
    return cloudpickle


def _type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
