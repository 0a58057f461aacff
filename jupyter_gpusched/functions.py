"""Functions as jobs: one call, one for each item, and a function whose calls are jobs.

Keywords of ``submit`` and ``map`` are options of the job, always; the function's own go into
``kwargs={...}``. What travels with a call is decided in ``calls``.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from . import request
from .calls import check_call, name_of, payload_of
from .core.model import BadRequest
from .jobs import Job, send
from .session import host
from .wire import LARGEST_PAYLOAD

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


def map(  # noqa: A001 - the contract's name
    function: Callable[..., Any], items: Iterable[Any], *, kwargs: Mapping[str, Any] | None = None, **spec: Any
) -> list[Job]:
    """Queue ``function(item)`` for each item, all of them or none; returns the jobs in the order of the items.

    kwargs  further arguments by name, the same for each call.
    spec    the options of each job, as for ``submit``: ``vram="4G"``, ``time_limit="2h"``.
    """
    _check_options(spec, function)
    calls = list(items)
    for item in calls:
        check_call(function, (item,), kwargs or {})
    name = str(spec.pop("name", None) or name_of(function))
    key = spec.pop("idempotency_key", None) or uuid.uuid4().hex
    specs = []
    for number, item in enumerate(calls):
        own = {**spec, "name": f"{name}[{number}]", "idempotency_key": f"{key}-{number}"}
        specs.append(spec_of_call(function, (item,), kwargs or {}, own))
        _check_size(specs)
    return [Job(job_id) for job_id in host().submit_many(specs)] if specs else []


def _check_size(specs: Sequence[request.Spec]) -> None:
    total = sum(len(spec["payload"]) for spec in specs) * 3 // 4
    if total > LARGEST_PAYLOAD:
        raise BadRequest(
            f"The first {len(specs)} calls are {total >> 20} MiB; at most {LARGEST_PAYLOAD >> 20} MiB travel at once. "
            "Nothing was queued.",
            field="payload",
            hint="Save large data to files and map over their paths, or map over fewer items at a time.",
        )


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

    def map(self, items: Iterable[Any], **spec: Any) -> list[Job]:
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
