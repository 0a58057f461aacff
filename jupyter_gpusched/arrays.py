"""Arrays as seen from Python: many jobs under one id, their results and a table of them.

A handle knows the ids of the elements; all else is asked of the host. As with a single job,
nothing here keeps an element alive or ends one unasked.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, overload

from . import describe, request, sweeps
from .arraywords import numbered
from .card import MIME, Bundle, JobTable
from .core.model import GpuSchedError, NotAvailable
from .jobs import Job, JobFailed, needs_widgets, readable, without_card
from .session import host
from .widgetrows import array_of

if TYPE_CHECKING:
    from .client import Client
    from .widgets import ArrayWidget

_ASYNC_WAIT_S = 2.0
_SHOWN_ROWS = 20


class JobArray(Collection[Job]):
    """The elements of an array, in their order. Awaitable, as a job is.

    ``array[3]`` is the element with number 3, which ``ID[3]`` names everywhere else, and ``array[0:10]`` those with
    numbers below 10. Elements that were resubmitted keep their numbers, so of such an array some may be missing.
    Negative ones count from the end.
    """

    def __init__(
        self,
        array_id: str,
        job_ids: Sequence[str],
        items: Sequence[Any] | None = None,
        client: Client | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self._id = array_id
        self._jobs = [Job(job_id, client) for job_id in job_ids]
        self._numbers = list(range(len(job_ids)) if numbers is None else numbers)
        self._items = items
        self._client = client

    @property
    def _host(self) -> Client:
        return self._client or host()

    @property
    def id(self) -> str:
        """The id of the array; it is accepted where an id of a job is, ``ID[3]`` or ``ID[0-9]`` for some of it."""
        return self._id

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, number: int) -> Job: ...
    @overload
    def __getitem__(self, number: slice) -> list[Job]: ...
    def __getitem__(self, number: int | slice) -> Job | list[Job]:
        if isinstance(number, slice):
            bounds = [bound for bound in (number.start, number.stop, number.step) if bound is not None]
            if any(bound < 0 for bound in bounds):
                return self._jobs[number]
            wanted = range(max(self._numbers, default=-1) + 1)[number]
            return [job for at, job in zip(self._numbers, self._jobs, strict=True) if at in wanted]
        if number < 0:
            return self._jobs[number]
        try:
            return self._jobs[self._numbers.index(number)]
        except ValueError:
            known = numbered(self._numbers) or "none"
            raise IndexError(f"array {self._id} has no element {number}; its elements are {known}") from None

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def __reversed__(self) -> Iterator[Job]:
        return reversed(self._jobs)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (JobArray, list)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    @property
    def views(self) -> list[describe.View]:
        """The records of all elements, fresh from the host."""
        if not self._jobs:
            return []
        known = {view["id"]: view for view in self._host.jobs(array=self._id)}
        return [known[job.id] for job in self._jobs if job.id in known]

    @property
    def phases(self) -> dict[str, int]:
        """How many elements are in which phase."""
        return dict(Counter(view["phase"] for view in self.views))

    def wait(self, timeout: float | None = None) -> JobArray:
        """Wait until all elements have ended, however they ended, or for ``timeout`` seconds; returns the array."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for job in self._jobs:
            job.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self

    def results(self, *, errors: str = "raise") -> list[Any]:
        """Wait, then give back what each element left, in their order; as ``Job.result`` does.

        errors  ``raise`` raises ``JobFailed`` for the first that did not succeed; ``return`` puts that
                exception in the place of its result.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f"errors is 'raise' or 'return', not {errors!r}")
        found: list[Any] = []
        for job in self._jobs:
            try:
                found.append(job.result())
            except JobFailed as error:  # noqa: PERF203  each element is answered for by itself
                if errors == "raise":
                    raise
                found.append(error)
        return found

    @property
    def failed(self) -> list[Job]:
        """Those that have ended otherwise than succeeded, by now."""
        bad = {view["id"] for view in self.views if view["phase"] in describe.FINAL - {"succeeded"}}
        return [job for job in self._jobs if job.id in bad]

    def cancel(self, grace: str | None = None) -> JobArray:
        """End all elements that have not ended."""
        self._host.cancel(self._id, grace)
        return self

    def hold(self, cause: str | None = None) -> JobArray:
        """What waits does not start until ``release``."""
        self._host.hold(self._id, cause)
        return self

    def release(self) -> JobArray:
        """Let what is held go on."""
        self._host.release_job(self._id)
        return self

    def amend(self, **changes: Any) -> JobArray:
        """Change what waits of it, by the options' JSON names: ``priority="low"``; None stands for a default."""
        self._host.amend(self._id, changes)
        return self

    def resubmit_failed(self, **changes: Any) -> JobArray:
        """Queue those again that have ended otherwise than succeeded, as an array of their own; maybe an empty one.

        changes  options to be given anew, by their JSON names: ``vram="8G"``.
        """
        if not self.failed:
            return JobArray(self._id, [], client=self._client)
        answer = self._host.resubmit_any(self._id, request.changes(changes, {}, {}))
        return _known(answer["array_id"], self._host, self._client)

    def show(self) -> None:
        """Display the outputs of the elements, each under its number; of a large array those of the first 20."""
        for number, job in list(zip(self._numbers, self._jobs, strict=True))[:_SHOWN_ROWS]:
            print(f"{self._id}[{number}], job {job.id}:")  # noqa: T201 - heads what is displayed
            job.show()
        if len(self) > _SHOWN_ROWS:
            print(f"{len(self) - _SHOWN_ROWS} more are not shown; array[{self._numbers[_SHOWN_ROWS]}].show() shows one")  # noqa: T201

    def table(self) -> ArrayTable:
        """A row for each element: its values, phase, exit code, peak VRAM, waiting and run time."""
        now = time.time()
        items = dict(zip((job.id for job in self._jobs), self._items or (), strict=False))
        return ArrayTable(_row(view, items, now) for view in self.views)

    def widget(self) -> ArrayWidget:
        """A live view of the array for front ends that know ipywidgets. JupyterLab's own card needs none."""
        from .widgets import ArrayWidget

        return ArrayWidget(self._id)

    def __await__(self) -> Generator[Any, None, JobArray]:
        return self._ended().__await__()

    async def _ended(self) -> JobArray:
        loop = asyncio.get_running_loop()
        for job in self._jobs:
            while (await loop.run_in_executor(None, job.wait, _ASYNC_WAIT_S)).status not in describe.FINAL:
                pass
        return self

    def __repr__(self) -> str:
        return f"<JobArray {self._id}: {describe.jobs_counted(len(self))}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return JobArray, (self._id, [job.id for job in self._jobs], None, None, self._numbers)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:  # noqa: ARG002 - IPython's
        try:
            views = self.views
        except GpuSchedError as error:
            return {"text/plain": "\n".join([repr(self), *readable(error)])}
        head = headline(self._id, views)
        known = array_of(self._id, views)
        shown = JobTable(views[:_SHOWN_ROWS])
        as_of = f"as of {time.strftime('%H:%M:%S')}; show it again for news, or see the panel"
        more = f"{len(views) - _SHOWN_ROWS} more, .table() has all; {as_of}" if len(views) > _SHOWN_ROWS else as_of
        html = f"<div><b>{escape(head)}</b></div>{shown._repr_html_()}<div>{escape(more)}</div>"
        text = "\n".join(part for part in (head, repr(shown), more) if part)
        bundle = {MIME: {"id": self._id, "array": known.whole}, "text/plain": text, "text/html": html}
        if not views or not needs_widgets(os.environ):
            return bundle
        return without_card(bundle, os.environ) | self.widget().mime()


class QuietArray(JobArray):
    """An array that shows nothing while the cell that submitted it runs; afterwards like any other."""

    def __init__(self, array_id: str, job_ids: Sequence[str], quiet_now: Callable[[], bool]) -> None:
        super().__init__(array_id, job_ids)
        self._quiet_now = quiet_now

    def _ipython_display_(self) -> None:
        if not self._quiet_now():
            raise NotImplementedError  # tells IPython to show it in the ordinary way


class ArrayTable(list[dict[str, Any]]):
    """The rows as plain dicts; shown as a table, and ``to_pandas()`` makes a DataFrame of them."""

    def to_pandas(self) -> Any:
        try:
            import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            raise NotAvailable(
                "pandas is not installed in this environment.",
                hint="Install it, or take the table as it is: a list with a dict for each job.",
            ) from None
        return pd.DataFrame(list(self))

    def _rows(self) -> list[list[str]]:
        heading = list(dict.fromkeys(name for row in self for name in row))
        return [heading, *([_cell(row.get(name)) for name in heading] for row in self)]

    def __repr__(self) -> str:
        return describe.table(self._rows()) if self else "no jobs"

    def _repr_html_(self) -> str:
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._rows())
        return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return describe.one_line(f"{value:g}" if isinstance(value, float) else str(value))


def _row(view: describe.View, items: Mapping[str, Any], now: float) -> dict[str, Any]:
    item = {"item": items[view["id"]]} if view["id"] in items else {}
    first = view["attempts"][0]["started_at"] if view["attempts"] else None
    until = first or view["ended_at"] or now
    return {
        "index": view["array_index"],
        "id": view["id"],
        **item,
        **(view["sweep"] or {}),
        "phase": view["phase"],
        "exit_code": view["exit_code"],
        "peak_vram_mib": view["peak_vram_mib"],
        "waited_s": round(until - view["submitted_at"], 3),
        "ran_s": None if view["started_at"] is None else round((view["ended_at"] or now) - view["started_at"], 3),
        "message": view["message"],
    }


def headline(array_id: str, views: Sequence[describe.View]) -> str:
    """``Array abcd1234 · sweep · 100 jobs: 4 running, 96 queued``."""
    phases = Counter(view["phase"] for view in views)
    name = describe.one_line(views[0]["name"]) if views else ""
    told = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    return " · ".join(
        part for part in (f"Array {array_id}", name, f"{describe.jobs_counted(len(views))}: {told}") if part
    )


def array(array_id: str) -> JobArray:
    """The array with this id; raises ``UnknownJob``."""
    host().array(array_id)
    return _known(array_id, host())


def _known(array_id: str, at: Client, client: Client | None = None) -> JobArray:
    views = sorted(at.jobs(array=array_id), key=lambda view: (view["array_index"] or 0, view["submitted_at"]))
    numbers = [view["array_index"] for view in views]
    return JobArray(
        array_id, [view["id"] for view in views], client=client, numbers=None if None in numbers else numbers
    )


def send(spec: request.Spec, swept: Mapping[str, Sequence[Any]], throttle: int | None) -> JobArray:
    """Queue a complete submission once for each combination of values."""
    common, own = request.elements(spec, swept)
    array_id, ids = host().submit_array(common, own, throttle=throttle)
    return JobArray(array_id, ids)


def sweep(
    what: Any,
    values: Mapping[str, Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    throttle: int | None = None,
    **spec: Any,
) -> JobArray:
    """Queue a function, command, script or notebook once for each combination of values.

    values    ``{"lr": [0.1, 0.01], "seed": range(5)}``, or as text ``{"seed": "0..4"}``. A function gets them as
              arguments by name, a notebook as parameters; in words ``{lr}`` stands for the value.
    throttle  how many of the jobs may run at a time.
    The rest is as for ``gs.submit``.
    """
    from .functions import complete_call
    from .jobs import complete_words

    swept = {
        name: list(sweeps.values_of(given)) if isinstance(given, str) else list(given) for name, given in values.items()
    }
    if callable(what):
        full = complete_call(what, args, kwargs or {}, spec, given=next(iter(sweeps.combinations(swept))))
    else:
        full = complete_words(what, args, kwargs, spec)
    return send(full, swept, throttle)
