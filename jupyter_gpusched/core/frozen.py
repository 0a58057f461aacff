"""Frozen values, and copies of them with some fields changed, at a fraction of their usual cost.

The standard library sets each field of a frozen dataclass through ``object.__setattr__``, and
every event makes a dozen values with up to fifty fields: that was a quarter of the core's time.
Here a value is filled in while it is of a draft of its class, which is the same but for being
frozen, and then becomes one of its class. It knows nothing of jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
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


def _copier(kind: type, changed: tuple[str, ...]) -> _Copier:
    """Copies a value of this class with these fields changed; written out, so that no field costs a call."""
    names = [field.name for field in fields(kind)]
    unknown = set(changed).difference(names)
    if unknown or kind.__bases__ != (object,) or hasattr(kind, "__post_init__"):
        raise TypeError(
            f"no such copy of {kind.__name__}: {', '.join(sorted(unknown)) or 'it is more than its fields'}"
        )
    lines = ["def copy(value, changes):", " made = blank(draft)"]
    lines += [f" made.{name} = " + (f"changes[{name!r}]" if name in changed else f"value.{name}") for name in names]
    lines += [" made.__class__ = kind", " return made"]
    draft = type(kind.__name__, (), {"__slots__": kind.__slots__})  # type: ignore[attr-defined]
    names_in_it: dict[str, Any] = {"blank": object.__new__, "draft": draft, "kind": kind}
    exec("\n".join(lines), names_in_it)  # noqa: S102  as dataclasses do; of names of fields only
    copy: _Copier = names_in_it["copy"]
    return copy
