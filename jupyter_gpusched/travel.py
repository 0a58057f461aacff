"""How values travel to a job: pickled together, bounded, in an envelope that any Python can open.

Shared by what cells and functions bring along. Decides nothing about which values travel, and
never changes one.
"""

from __future__ import annotations

import functools
import io
import linecache
import os
import pickle
import sys
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .runner.pickling import reduce
from .wire import LARGEST_PAYLOAD

_FORM = 1
_NAMELESS = "<dynamic-code>"
_MOST_LOOKED_AT = 2000


class TooLarge(Exception):
    pass


class _Bounded(io.BytesIO):
    """Stops pickling as soon as the result is too large, before memory is filled with it."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST_PAYLOAD:
            raise TooLarge
        return super().write(data)


class _Counter:
    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size += size
        return size


@functools.cache
def _pickler() -> Any:
    """cloudpickle's pickler, for which the kernel's ``get_ipython`` means the job's own.

    Code keeps the name of its file, which newer cloudpickles leave out: tracebacks need it.
    """
    import cloudpickle  # type: ignore[import-untyped, unused-ignore]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined, unused-ignore]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, types.MethodType) and obj.__name__ == "get_ipython":
                return getattr, (sys.modules["IPython"], "get_ipython")  # a kernel's own: IPython is there
            if isinstance(obj, types.CodeType):
                make, parts = self.dispatch_table[types.CodeType](obj)
                return make, tuple(obj.co_filename if part == _NAMELESS else part for part in parts)
            reduced = reduce(obj, self.dispatch_table)
            return super().reducer_override(obj) if reduced is NotImplemented else reduced

    return Pickler


def _dump(value: object, file: Any) -> None:
    _pickler()(file).dump(value)


def travels(value: object) -> Exception | None:
    """What keeps a value from being pickled on its own, or None."""
    try:
        _dump(value, _Counter())
    except Exception as error:  # noqa: BLE001 - a value's own pickling code may raise anything
        return error
    return None


def pickled(values: Any) -> bytes:
    bag = _Bounded()
    _dump(values, bag)
    return bag.getvalue()


def size_of(value: object) -> int:
    counter = _Counter()
    try:
        _dump(value, counter)
    except Exception:  # noqa: BLE001 - a size for a message; what was counted so far will do
        return counter.size
    return counter.size


def show_size(size: int) -> str:
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 1024:.1f} KiB"


def envelope(values: bytes, extras: list[str], sources: dict[str, str], items: Sequence[bytes] = ()) -> bytes:
    """The payload file: readable by any Python, the values themselves only by the same minor version.

    extras   folders for the job's ``sys.path``.
    sources  text of code that lies in no file, by the name it goes under in tracebacks.
    items    values of which each job takes one.
    """
    whole: dict[str, Any] = {
        "__gpusched__": _FORM,
        "python": list(sys.version_info[:2]),
        "sys_path": extras,
        "sources": sources,
        "values": values,
    }
    if items:
        whole["items"] = list(items)
    return pickle.dumps(whole, protocol=4)


def search_path(*, with_here: bool = False) -> list[str]:
    """Folders that this kernel's session added to ``sys.path``: modules found there must be found in the job too.

    with_here  the current folder too, where the job need not run.
    """
    installed = tuple({os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix)})
    here = os.path.realpath(os.curdir)
    extras = []
    for entry in sys.path:
        path = os.path.realpath(entry or os.curdir)
        if path == here and not with_here:
            continue
        if Path(path).exists() and not (path + os.sep).startswith(installed):
            extras.append(str(Path(entry).absolute()))
    return list(dict.fromkeys(extras))


def sources_of(values: Iterable[object]) -> dict[str, str]:
    """Text of the notebook's code that these values run, so that a job's traceback shows its lines."""
    sources: dict[str, str] = {}
    seen: set[int] = set()
    unseen = list(values)
    while unseen and len(seen) < _MOST_LOOKED_AT:
        value = unseen.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            sources |= _kept_text(value.__code__.co_filename)
        unseen += _code_of(value)
    return sources


def _code_of(value: object) -> list[object]:
    """Functions and classes of the notebook that a callable leads to."""
    if isinstance(value, functools._lru_cache_wrapper):
        return [value.__wrapped__]
    if isinstance(value, functools.partial):
        return [value.func]
    if isinstance(value, types.MethodType):
        return [value.__func__]
    if isinstance(value, types.FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        used = [value.__globals__.get(name) for name in value.__code__.co_names]
        return [part for part in (*closed, *used, getattr(value, "__wrapped__", None)) if _is_own(part)]
    if isinstance(value, type):
        return [part for part in vars(value).values() if isinstance(part, types.FunctionType)]
    return [type(value)] if type(value).__module__ == "__main__" else []


def _is_own(value: object) -> bool:
    return (
        isinstance(value, (types.FunctionType, type, functools._lru_cache_wrapper)) and value.__module__ == "__main__"
    )


def _kept_text(name: str) -> dict[str, str]:
    """What the interpreter remembers of code that lies in no file."""
    entry = linecache.cache.get(name)
    if entry is None or len(entry) != 4 or Path(name).exists():
        return {}
    return {name: "".join(entry[2])}
