"""What a function job brings along: the function, what it uses of the notebook, and its arguments.

Everything is decided at submission: a call that cannot work or a value that cannot travel is
refused here, by the argument's name. Never calls the function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import culprits
from .core.model import BadRequest
from .travel import TooLarge, envelope, pickled, search_path, show_size, size_of, sources_of, travels
from .wire import LARGEST_PAYLOAD

Function = Callable[..., Any]


def name_of(function: Function) -> str:
    """What a job that runs it is called."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2] or "function"


def check_call(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that the function does not take, before anything is queued for them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise BadRequest(
            f"{name_of(function)}{signature} cannot be called like this: {error}.",
            field="payload",
            hint="Arguments follow the function, those by name in kwargs={...}; other keywords are the job's options.",
        ) from None


def payload_of(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The payload of a job that makes this call. Raises ``BadRequest`` naming what cannot travel."""
    call = {"function": function, "args": tuple(args), "kwargs": dict(kwargs)}
    parts = _named(function, args, kwargs)
    try:
        values = pickled(call)
    except TooLarge:
        raise _too_large(parts) from None
    except Exception as error:  # noqa: BLE001 - see travels
        raise _refusal(parts, error) from None
    return envelope(values, search_path(with_here=True), sources_of([function, *args, *kwargs.values()]))


def payload_of_many(function: Function, items: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The payload of jobs that each call the function with one of the items. Raises ``BadRequest``."""
    call = {"function": function, "args": (), "kwargs": dict(kwargs)}
    parts = _named(function, (), kwargs)
    try:
        values = pickled(call)
        total, each = len(values), []
        for number, item in enumerate(items):
            parts = _named(function, (item,), kwargs) | {f"items[{number}]": item}
            each.append(pickled(item))
            total += len(each[-1])
            if total > LARGEST_PAYLOAD:
                raise _too_many(number + 1, total)
    except TooLarge:
        raise _too_large(parts) from None
    except BadRequest:
        raise
    except Exception as error:  # noqa: BLE001 - see travels
        raise _refusal(parts, error) from None
    sources = sources_of([function, *items, *kwargs.values()])
    return envelope(values, search_path(with_here=True), sources, each)


def _too_many(count: int, size: int) -> BadRequest:
    return BadRequest(
        f"The first {count} calls are {size >> 20} MiB; at most {LARGEST_PAYLOAD >> 20} MiB travel at once. "
        "Nothing was queued.",
        field="payload",
        hint="Save large data to files and map over their paths, or map over fewer items at a time.",
    )


def _named(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a call by the names under which a person knows them."""
    names = _parameter_names(function)
    numbered = {names[n] if n < len(names) else f"args[{n}]": value for n, value in enumerate(args)}
    return {name_of(function): function, **numbered, **kwargs}


def _parameter_names(function: Function) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in by_place]


def _refusal(parts: dict[str, Any], error: Exception) -> BadRequest:
    found = [
        culprits.find(name, value, why, travels) for name, value in parts.items() if (why := travels(value)) is not None
    ]
    if not found:
        what = f"{next(iter(parts))} and its arguments cannot travel to the job together: {error}"
        return BadRequest(f"{what}. Nothing was queued.", field="payload", hint="Pass plain data instead.")
    sentences = ". ".join(culprit.sentence() for culprit in found)
    ways_out = " ".join(dict.fromkeys(culprit.way_out() for culprit in found))
    hint = ways_out.replace("inside the cell", "inside the function")
    return BadRequest(f"{sentences}. Nothing was queued.", field="payload", hint=hint)


def _too_large(parts: dict[str, Any]) -> BadRequest:
    sizes = sorted(((size_of(value), name) for name, value in parts.items()), reverse=True)
    largest = ", ".join(f"`{name}` ({culprits.type_name(parts[name])}, {show_size(size)})" for size, name in sizes[:3])
    return BadRequest(
        f"The call is too much to travel: at most {show_size(LARGEST_PAYLOAD)}. "
        f"The largest: {largest}. Nothing was queued.",
        field="payload",
        hint="Save large data to a file, pass its path and read it inside the function.",
    )
