"""Frozen values, and copies of them with some fields changed, at a fraction of their usual cost.

The standard library sets each field of a frozen dataclass through ``object.__setattr__``, and
every event makes a dozen values with up to fifty fields: that was a quarter of the core's time.
Here a value is filled in while it is of a draft of its class, which is the same but for being
frozen, and then becomes one of its class. It knows nothing of jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

V = TypeVar("V")

_Copier = Callable[[Any, dict[str, Any]], Any]
_known: dict[tuple[type, tuple[str, ...]], _Copier] = {}


def replace(value: V, /, **changes: Any) -> V:
    """As ``dataclasses.replace`` gives it, for frozen dataclasses with slots and without a base or ``__post_init__``.

    Raises ``TypeError`` for a field that there is not.
    """
    asked = (type(value), (*changes,))
    copy = _known.get(asked)
    if copy is None:
        copy = _known[asked] = _copier(*asked)
    copied: V = copy(value, changes)
    return copied


def quick(kind: type[V]) -> type[V]:
    """Give a frozen dataclass with slots, of which very many are made, a quicker constructor of the same signature."""
    parameters, lines = [], []
    known: dict[str, Any] = {"_draft": _draft(kind), "_kind": kind, "_become": object.__setattr__}
    for field in _fields_of(kind):
        name, given = field.name, field.name
        if field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_become")  # which nobody gives
            given = f"_make_{name}() if {name} is _become else {name}"
        else:
            parameters.append(name)
        lines.append(f" self.{name} = {given}")
    head = [f"def __init__(self, {', '.join(parameters)}):", " _become(self, '__class__', _draft)"]
    init = _written([*head, *lines, " self.__class__ = _kind"], known)["__init__"]
    kind.__init__ = init  # type: ignore[method-assign]
    return kind


def _copier(kind: type, changed: tuple[str, ...]) -> _Copier:
    """Copies a value of this class with these fields changed."""
    names = [field.name for field in _fields_of(kind)]
    unknown = set(changed).difference(names)
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    lines = ["def copy(value, changes):", " made = blank(draft)"]
    lines += [f" made.{name} = " + (f"changes[{name!r}]" if name in changed else f"value.{name}") for name in names]
    lines += [" made.__class__ = kind", " return made"]
    copy: _Copier = _written(lines, {"blank": object.__new__, "draft": _draft(kind), "kind": kind})["copy"]
    return copy


def _fields_of(kind: type) -> tuple[Field[Any], ...]:
    if kind.__bases__ != (object,) or hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} is more than its fields")
    return fields(kind)


def _draft(kind: type) -> type:
    """The same but for being frozen."""
    return type(kind.__name__, (), {"__slots__": kind.__slots__})  # type: ignore[attr-defined]


def _written(lines: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """What this code defines: written out, so that no field costs a call, as dataclasses do it too."""
    exec("\n".join(lines), known)  # noqa: S102  of names of fields only
    return known
