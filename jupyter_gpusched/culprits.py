"""Finds what keeps a value from being pickled, and says what to do about it.

Used only after pickling has failed: takes the value apart and pickles its parts alone, until
the innermost one is found. Never changes a value.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_DEEPEST = 12
_MOST_PARTS = 2000

Travels = Callable[[object], Exception | None]
"""Pickles a value alone; what went wrong, or None."""


@dataclass(frozen=True)
class Culprit:
    """A variable that cannot travel. ``place`` and ``inner`` name the part inside it that is to blame."""

    name: str
    type: str
    inner: str | None
    place: str | None
    error: str

    def sentence(self) -> str:
        if self.inner is None:
            return f"`{self.name}` ({self.type}) cannot travel to the job: {self.error}"
        return f"`{self.name}` ({self.type}) cannot travel to the job: `{self.place}` is a {self.inner}"

    def way_out(self) -> str:
        if self.inner is not None and _USED_BY not in (self.place or ""):
            return f"Create `{self.name}` inside the cell, or bring along plain data from which to make it."
        kind, name = self.inner or self.type, (self.place or self.name).partition("`")[0]
        for part, advice in _WAYS_OUT.items():
            if part in kind.lower():
                return advice.format(name=name)
        return f"Create `{name}` inside the cell, or bring along plain data from which to make it."


_USED_BY = "` used by `"


_WAYS_OUT = {
    "lock": "Create the lock inside the cell; a lock protects only within one process.",
    "generator": "Make a list of it first (`{name} = list({name})`), or create it inside the cell.",
    "iterator": "Make a list of it first (`{name} = list({name})`), or create it inside the cell.",
    "connection": "Bring along what is needed to connect (path, address) and open the connection inside the cell.",
    "cursor": "Fetch the rows first, or run the query inside the cell.",
    "socket": "Bring along the address and open the socket inside the cell.",
    "_io.": "Bring along the path and open the file inside the cell.",
    "thread": "Start the thread inside the cell.",
    "coroutine": "Await it first, or call the function inside the cell.",
    "popen": "Start the process inside the cell.",
    "module": "Import the module inside the cell.",
}


def find(name: str, value: object, error: Exception, travels: Travels) -> Culprit:
    """Name the variable and, if something inside it is to blame, that."""
    place, inner = _innermost(value, name, travels)
    inside = inner is not value
    return Culprit(
        name=name,
        type=type_name(value),
        inner=type_name(inner) if inside else None,
        place=place if inside else None,
        error=_one_line(error),
    )


def type_name(value: object) -> str:
    kind = type(value)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _innermost(value: object, place: str, travels: Travels) -> tuple[str, object]:
    seen: set[int] = set()
    for _ in range(_DEEPEST):
        seen.add(id(value))
        guilty = next(((p, part) for p, part in _parts(value, place) if id(part) not in seen and travels(part)), None)
        if guilty is None:
            break
        place, value = guilty
    return place, value


def _parts(value: object, place: str) -> Iterator[tuple[str, object]]:
    """What a value is made of, as far as pickling goes, each with the words that lead to it."""
    for number, part in enumerate(_all_parts(value, place)):
        if number == _MOST_PARTS:
            return
        yield part


def _all_parts(value: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((f"{place}[{key!r:.40}]", part) for key, part in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((f"{place}[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f"a member of {place}", part) for part in value)
    elif isinstance(value, types.FunctionType):
        yield from _used_by_function(value, place)
    elif isinstance(value, types.MethodType):
        yield f"{place}.__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield from ((f"{place}.{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif isinstance(value, type):
        yield from ((f"{place}.{name}", part) for name, part in list(vars(value).items()) if not name.startswith("__"))
    yield from _attributes(value, place)


def _used_by_function(function: types.FunctionType, place: str) -> Iterator[tuple[str, object]]:
    used = inspect.getclosurevars(function)
    for name, part in {**used.globals, **used.nonlocals}.items():
        yield f"{name}{_USED_BY}{place}", part
    yield from ((f"a default of {place}", part) for part in function.__defaults__ or ())


def _attributes(value: object, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (type, types.ModuleType)):
        return
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((f"{place}.{name}", part) for name, part in list(attributes.items()))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                yield f"{place}.{name}", getattr(value, name)
