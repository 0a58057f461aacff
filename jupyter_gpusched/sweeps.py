"""Sweeps: one variable or several over their values, an element of an array for each combination.

``lr=0.1,0.01 seed=1..5`` means ten elements. A cell and a function get the values as variables,
a notebook as parameters; in the words of scripts and commands ``{lr}`` stands for the value.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .core.asked import Swept
from .core.model import BadRequest, Kind
from .wire import LARGEST_ARRAY, JobSpec

WORD = re.compile(r"[A-Za-z_]\w*=")
"""How a word of a sweep begins; by it further ones are known after ``--sweep``."""

_RANGE = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})(?:\.\.(\d{1,15}))?")
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NO_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?:\.\.{_NUMBER})?")
"""What is meant as a range, but not one of whole numbers."""

_PIECE = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^,]*?)\s*(?:,|$)""")
_EXAMPLE = "For example --sweep lr=0.1,0.01 seed=1..5."


# --- what a person writes -------------------------------------------------------------------


def read(words: Iterable[str]) -> dict[str, list[Swept]]:
    """The variables of ``lr=0.1,0.01``, ``seed=1..5`` with their values. Raises ``BadRequest``."""
    found: dict[str, list[Swept]] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name in found:
            raise BadRequest(f"sweep: {name} is given twice.", field="sweep", hint="Give all of its values at once.")
        found[name] = list(values_of(text)) if WORD.match(word) else []
        if not found[name]:
            raise BadRequest(f"sweep: {word!r} is not NAME=VALUES.", field="sweep", hint=_EXAMPLE)
    return found


def values_of(text: str) -> Iterable[Swept]:
    """``0.1,0.01`` or ``1..5`` or ``0..100..10``; each a Python literal where it is one, else text.

    Raises ``BadRequest`` for ranges of other numbers than whole ones.
    """
    if not text:
        return
    at = 0
    while at < len(text) or text[at - 1 : at] == ",":
        found = _PIECE.match(text, at)
        assert found is not None, "a piece may be anything"
        at = found.end()
        if (span := _RANGE.fullmatch(found[1])) is not None:
            yield from _range(int(span[1]), int(span[2]), int(span[3] or 1))
        elif _NO_RANGE.fullmatch(found[1]):
            raise BadRequest(
                f"sweep: {found[1]} is no range: ranges are of whole numbers, with a step above zero.",
                field="sweep",
                hint="Give the values one by one, as in lr=0.1,0.2,0.3, or in quotes if they are text. "
                "Ranges that work: 1..5, 0..100..10.",
            )
        else:
            yield _literal(found[1])
        if at == len(text) and text[-1] != ",":
            return
        if at == len(text):
            raise BadRequest(f"sweep: {text!r} ends with a comma.", field="sweep", hint=_EXAMPLE)


def _range(first: int, last: int, step: int) -> Iterable[int]:
    if not step:
        raise BadRequest(f"sweep: {first}..{last}..0 never gets on.", field="sweep", hint="Give a step above zero.")
    if abs(last - first) // step >= LARGEST_ARRAY:
        raise BadRequest(
            f"sweep: {first}..{last} has too many values; an array has at most {LARGEST_ARRAY} elements.",
            field="sweep",
        )
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _literal(text: str) -> Swept:
    words = {"true": True, "false": False}
    if text in words:
        return words[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if value is None or isinstance(value, (str, int, float, bool)) else text


def combinations(swept: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations, the last variable changing fastest. Raises ``BadRequest`` for none and for too many."""
    count = math.prod(len(values) for values in swept.values())
    if not swept or not count:
        raise BadRequest("sweep: there is no combination of values.", field="sweep", hint=_EXAMPLE)
    if count > LARGEST_ARRAY:
        raise BadRequest(
            f"sweep: {count} combinations are too many; an array has at most {LARGEST_ARRAY} elements.",
            field="sweep",
            hint="Give fewer values, or submit several sweeps.",
        )
    return [dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())]


# --- what it means for a submission -----------------------------------------------------------


def applied(spec: JobSpec) -> JobSpec:
    """The submission of an element with its values put in. Raises ``BadRequest``."""
    values = checked(spec.sweep)
    if not values:
        return spec
    told: dict[str, Any] = {"args": [_put(word, values) for word in spec.args]}
    if spec.name is not None:
        told["name"] = _put(spec.name, values)
    if isinstance(spec.argv, str):
        told["argv"] = _put(spec.argv, {name: shlex.quote(str(value)) for name, value in values.items()})
    elif spec.argv is not None:
        told["argv"] = [_put(word, values) for word in spec.argv]
    notebook = spec.kind is Kind.NOTEBOOK or (spec.kind is None and (spec.path or "").endswith(".ipynb"))
    if notebook:
        told["parameters"] = {**(spec.parameters or {}), **values}
    return msgspec.structs.replace(spec, **told)


def checked(sweep: Mapping[str, Any] | None) -> dict[str, Swept]:
    """The variables of an element. Raises ``BadRequest`` for names and values that cannot be those of one."""
    known: set[str] = set()
    for name, value in (sweep or {}).items():
        if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
            raise BadRequest(f"sweep: {name!r} is not a variable name.", field="sweep", hint=_EXAMPLE)
        if name.upper() in known:
            raise BadRequest(f"sweep: {name!r} is there twice, but for upper and lower case.", field="sweep")
        if not (value is None or isinstance(value, (str, int, float, bool))):
            raise BadRequest(
                f"sweep: the value of {name} is neither text nor a number.",
                field="sweep",
                hint="Sweep over names or numbers, and look up what they stand for in the job.",
            )
        known.add(name.upper())
    return dict(sweep or {})


def _put(text: str, values: Mapping[str, object]) -> str:
    """``{lr}`` replaced where it names a variable of the sweep; all other braces stay as they are."""
    if "{" not in text:
        return text
    return re.sub(r"\{([A-Za-z_]\w*)\}", lambda found: str(values.get(found[1], found[0])), text)


def common_name(names: Sequence[str]) -> str:
    """What the names of elements have in common: ``run`` of ``run-1`` and ``run-2``."""
    if len(set(names)) == 1:
        return names[0]
    prefix = os.path.commonprefix(names)  # noqa: RUF071  of texts
    return re.sub(r"[^\s\-_=:,(\[]*$", "", prefix).rstrip(" -_=:,([") or names[0]
