"""How values of ``__main__`` that cloudpickle leaves to their name are pickled by value instead.

Shared by what goes into a job and what comes out of it; the standard library only.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import types
import typing
from typing import Any

CACHED = type(functools.lru_cache(lambda: None))


class _Caching:
    """Pickled as the decorator ``lru_cache(maxsize, typed)`` itself."""

    def __init__(self, maxsize: int | None, typed: bool) -> None:
        self._arguments = maxsize, typed

    def __call__(self, function: Any) -> Any:
        return functools.lru_cache(*self._arguments)(function)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.lru_cache, self._arguments


def reduce(obj: Any, by_type: typing.Mapping[type, Any]) -> Any:
    """A reduction for ``reducer_override``, or ``NotImplemented``.

    by_type  the reductions that the pickler knows for types.
    Raises ``PicklingError`` for a value that can only be named, in a ``__main__`` that the reader has not.
    """
    if isinstance(obj, CACHED):
        return NotImplemented if _importable(obj) else _reduced_cache(obj)
    if isinstance(obj, types.ModuleType):
        return (importlib.import_module, ("__main__",)) if obj is sys.modules["__main__"] else NotImplemented
    if isinstance(obj, (type, types.FunctionType)) or type(obj) in by_type or _home(obj) != "__main__":
        return NotImplemented
    if isinstance(obj, typing.NewType):
        return typing.NewType, (obj.__name__, obj.__supertype__)
    if isinstance(getattr(obj, "__name__", None), str) and isinstance(obj.__reduce_ex__(4), str):
        raise pickle.PicklingError(f"{obj.__name__!r} of this notebook travels by its name, which a job does not know")
    return NotImplemented


def _home(obj: Any) -> object:
    try:
        return obj.__module__
    except Exception:  # noqa: BLE001  an object's own __getattr__ may raise anything
        return None


def _importable(cached: Any) -> bool:
    """Whether the reader finds it where its name says."""
    home = getattr(cached, "__module__", None)
    if home in (None, "__main__") or home not in sys.modules:
        return False
    cloudpickle = sys.modules.get("cloudpickle")
    if cloudpickle is not None and home in cloudpickle.list_registry_pickle_by_value():
        return False
    found: Any = sys.modules[home]
    for part in cached.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cached


def _reduced_cache(cached: Any) -> tuple[Any, ...]:
    parameters = cached.cache_parameters()
    return _Caching(parameters["maxsize"], parameters["typed"]), (cached.__wrapped__,)
