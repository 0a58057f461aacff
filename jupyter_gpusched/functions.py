"""Functions as jobs: one call, one for each item, and a function whose calls are jobs.

Keywords of ``submit`` and ``map`` are options of the job, always; the function's own go into
``kwargs={...}``. What travels with a call is decided in ``calls``.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from . import request
from .arrays import JobArray
from .calls import check_call, name_of, payload_of, payload_of_many
from .core.model import BadRequest
from .jobs import Job, send
from .session import host

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def submit_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], spec: Any) -> Job:
    """Queue one call of a function. ``spec`` has the job's options by their JSON names."""
    _check_options(spec, function)
    check_call(function, args, kwargs)
    return send(spec_of_call(function, args, kwargs, spec))


def spec_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], spec: Mapping[str, Any]
) -> request.Spec:
    """The whole submission of one call."""
    options = dict(spec)
    env = options.pop("env", None) or {}
    return request.complete(request.of_call(name_of(function), payload_of(function, args, kwargs)), options, env)


def complete_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    given: Mapping[str, Any],
) -> request.Spec:
    """As ``spec_of_call``, for a function that gets further arguments by name from the job itself (``given``)."""
    _check_options(spec, function)
    check_call(function, args, {**kwargs, **given})
    return spec_of_call(function, args, kwargs, spec)


def map(  # noqa: A001 - the contract's name
    function: Callable[..., Any],
    items: Iterable[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    throttle: int | None = None,
    **spec: Any,
) -> JobArray:
    """Queue ``function(item)`` for each item, all of them or none; returns the jobs as an array, in their order.

    kwargs    further arguments by name, the same for each call.
    throttle  how many of them may run at a time.
    spec      the options of each job, as for ``submit``: ``vram="4G"``, ``time_limit="2h"``.
    What the function brings along travels and is stored once.
    """
    from .wire import LARGEST_ARRAY

    _check_options(spec, function)
    calls = list(itertools.islice(items, LARGEST_ARRAY + 1))
    if len(calls) > LARGEST_ARRAY:
        raise BadRequest(
            f"items: there are more than the {LARGEST_ARRAY} that an array may have.",
            field="items",
            hint="Map over parts of them, or have each call do several.",
        )
    for item in calls:
        check_call(function, (item,), kwargs or {})
    if not calls:
        return JobArray("", [])
    options = dict(spec)
    env = options.pop("env", None) or {}
    key = options.pop("idempotency_key", None) or uuid.uuid4().hex
    what = request.of_call(name_of(function), payload_of_many(function, calls, kwargs or {}))
    common = request.complete(what, {**options, "item": 0}, env)
    del common["idempotency_key"], common["item"]
    elements = [{"item": number, "idempotency_key": f"{key}-{number}"} for number in range(len(calls))]
    array_id, ids = host().submit_array(common, elements, throttle=throttle)
    return JobArray(array_id, ids, calls)


def _check_options(spec: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """A keyword that is no option is most likely meant for the function: say how it gets there."""
    from .wire import JobSpec

    for name in spec:
        if name not in JobSpec.__struct_fields__:
            raise BadRequest(
                f"There is no option {name!r}.",
                field=name,
                hint=f"If it is an argument of {name_of(function)}, write kwargs={{{name!r}: ...}}.",
            )


class JobFunction(Generic[Parameters, Result]):
    """A function whose calls are jobs: calling it returns a ``Job``; ``local`` runs it here."""

    def __init__(self, function: Callable[Parameters, Result], spec: Mapping[str, Any]) -> None:
        _check_options(spec, function)
        functools.update_wrapper(self, function)
        self._function = function
        self._spec = dict(spec)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Job:
        """Queue a call. All arguments are the function's own."""
        return submit_call(self._function, args, kwargs, dict(self._spec))

    def local(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Run the function here and now, as if it were not decorated."""
        return self._function(*args, **kwargs)

    def options(self, **spec: Any) -> JobFunction[Parameters, Result]:
        """The same function with other options for its jobs."""
        return JobFunction(self._function, {**self._spec, **spec})

    def map(self, items: Iterable[Any], **spec: Any) -> JobArray:
        """As ``gs.map`` with this function and its options."""
        return map(self._function, items, **{**self._spec, **spec})

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: ``self`` is the first argument and travels along."""
        if instance is None:
            return self
        return JobFunction(self._function.__get__(instance, owner), self._spec)

    def __repr__(self) -> str:
        asks = ", ".join(f"{name}={value!r}" for name, value in self._spec.items())
        return f"<job function {name_of(self._function)} ({asks})>"
