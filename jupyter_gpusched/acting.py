"""POST jobs/ID/cancel, hold, release and resubmit, and GET arrays/ID: what is done to a job, an array or some of it.

An id stands for a job, an array, or elements of one (``targets``). Who acts on one job is
answered with its view, who acts on many with their ids.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from . import wire
from .core.messages import CancelRequested, HoldRequested, ReleaseRequested
from .core.model import BadRequest, IllegalTransition, Job, Phase, UnknownJob, WrongPhase
from .core.quantities import parse_seconds
from .desk import Handler
from .engine import Wish
from .sweeps import common_name
from .targets import Target, find, named

LONGEST_CAUSE = 500
_NAMES = 20
"""So many elements are asked for what their names have in common."""

_Request = TypeVar("_Request", bound=msgspec.Struct)


class _Acting(Handler):
    """One kind of act, on what is named by an id, or by a pattern of names."""

    async def target(self, named_by: str) -> Target:
        return await find(named_by, self.desk.engine, self.caller.sees)

    async def act_on(self, target: Target, event_of: Callable[[Job], Wish]) -> None:
        """Carry it out. Raises ``WrongPhase`` where a job that was named alone does not admit it."""
        engine = self.desk.engine
        if not target.one:
            events = [event_of(job) for job in target.jobs if not job.phase.final]
            self.answer(wire.JobIds(ids=await engine.act_on_all(events)))
            return
        job = target.jobs[0]
        try:
            await engine.act(event_of(job))
        except IllegalTransition:
            raise _only_waiting(await engine.job(job.id, self.caller.sees), self.act) from None
        self.answer(self.views().job(await engine.job(job.id, self.caller.sees)))

    act = ""

    async def asked(self, kind: type[_Request], example: str) -> _Request:
        try:
            return msgspec.convert(await self.body(), kind)
        except msgspec.ValidationError as error:
            what = str(error).split(" - at ")[0]
            raise BadRequest(f"{self.act}: {what}.", field=self.act, hint=f"For example {example}.") from None


class CancelHandler(_Acting):
    """POST jobs/ID/cancel: answers as soon as the wish is on disk; jobs/cancel by name."""

    act = "cancel"

    async def post(self, job_id: str | None = None) -> None:
        if job_id is None:
            wish = await self.asked(wire.ManyRequest, '{"name": "run-*"}')
            target, grace = named(wish.name, self.desk.engine, self.caller.user), wish.grace
        else:
            target = await self.target(job_id)
            body = await self.body()
            if not isinstance(body, dict) or set(body) - {"grace"}:
                raise BadRequest('Cancel takes {"grace": "2s"} or nothing.', field="grace")
            grace = body.get("grace")
        by, grace_s = self.caller.user, _grace_s(grace)
        await self.act_on(target, lambda job: CancelRequested(job.id, by, grace_s))


class HoldHandler(_Acting):
    """POST jobs/ID/hold: a waiting job does not start until it is released; jobs/hold by name."""

    act = "hold"

    async def post(self, job_id: str | None = None) -> None:
        if job_id is None:
            many = await self.asked(wire.ManyRequest, '{"name": "run-*"}')
            target, cause = named(many.name, self.desk.engine, self.caller.user), many.cause
        else:
            target = await self.target(job_id)
            cause = (await self.asked(wire.HoldRequest, '{"cause": "the data are not there yet"}')).cause
        if cause is not None and not (cause.isprintable() and 0 < len(cause.strip()) <= LONGEST_CAUSE):
            raise BadRequest(f"cause: it is one line of at most {LONGEST_CAUSE} characters.", field="cause")
        await self.act_on(target, lambda job: HoldRequested(job.id, self.caller.user, cause))


class ReleaseHandler(_Acting):
    """POST jobs/ID/release: held jobs go on; jobs/release by name."""

    act = "release"

    async def post(self, job_id: str | None = None) -> None:
        if job_id is None:
            wish = await self.asked(wire.ManyRequest, '{"name": "run-*"}')
            target = named(wish.name, self.desk.engine, self.caller.user)
        else:
            target = await self.target(job_id)
        held = target if target.one else Target(tuple(job for job in target.jobs if job.held is not None), one=False)
        await self.act_on(held, lambda job: ReleaseRequested(job.id, self.caller.user))


class ResubmitHandler(_Acting):
    """POST jobs/ID/resubmit: the same work again as a new job, with the changes in the body.

    Of an array those of its elements that have ended otherwise than succeeded, or all that are named by number.
    """

    act = "resubmit"

    async def post(self, job_id: str) -> None:
        target, caller, admission = await self.target(job_id), self.caller, self.desk.admission
        changes = await self.body()
        if target.one:
            new = await admission.resubmit(target.jobs[0], changes, by=caller)
            self.answer(wire.Created(id=new), HTTPStatus.CREATED)
            return
        jobs = target.jobs if target.chosen else [job for job in target.jobs if _is_to_be_repeated(job)]
        if not jobs:
            raise WrongPhase(
                f"No element of {job_id} has failed: there is nothing to be repeated.",
                hint=f"{job_id}[0-9] repeats elements whatever became of them.",
            )
        ids = await admission.resubmit_many(jobs, changes, by=caller)
        array_id = (await self.desk.engine.job(ids[0], caller.sees)).array_id
        self.answer(wire.CreatedBatch(ids=ids, array_id=array_id), HTTPStatus.CREATED)


class ArrayHandler(Handler):
    """GET arrays/ID: an array as a whole."""

    async def get(self, array_id: str) -> None:
        engine = self.desk.engine
        jobs = await anyio.to_thread.run_sync(lambda: engine.store.jobs(batch_id=array_id, limit=_NAMES))
        if not jobs or not self.caller.sees(jobs[0].owner):
            raise UnknownJob(array_id)
        phases = await anyio.to_thread.run_sync(engine.store.phases_of, array_id)
        batch = engine.state.asides.batches.get(array_id)
        waiting = [engine.state.jobs[job_id] for job_id in batch.queued] if batch is not None else []
        some = jobs[0]
        self.answer(
            wire.ArrayView(
                id=array_id,
                name=common_name([job.name for job in jobs]),
                user=some.owner,
                kind=some.kind.value,
                count=sum(phases.values()),
                phases=phases,
                held=sum(job.held is not None for job in waiting),
                throttle=some.throttle,
                submitted_at=some.submitted_at,
            )
        )


def _is_to_be_repeated(job: Job) -> bool:
    return job.phase.final and job.phase is not Phase.SUCCEEDED


def _grace_s(text: object) -> float | None:
    if text is None:
        return None
    try:
        return parse_seconds(text, zero=True)
    except ValueError as error:
        raise BadRequest(f"grace: {error}.", field="grace") from None


def _only_waiting(job: Job, act: str) -> WrongPhase:
    done = {"hold": "held", "release": "released"}.get(act, act)
    hint = "`jupyter gpusched cancel` ends it." if not job.phase.final else "Resubmit it to run it again."
    return WrongPhase(f"Job {job.id} is {job.phase.value}; only a job that waits can be {done}.", hint=hint)


_ID = r"([^/]+)"
ACTIONS: list[tuple[str, type[Handler]]] = [
    ("jobs/cancel", CancelHandler),
    ("jobs/hold", HoldHandler),
    ("jobs/release", ReleaseHandler),
    (f"jobs/{_ID}/cancel", CancelHandler),
    (f"jobs/{_ID}/hold", HoldHandler),
    (f"jobs/{_ID}/release", ReleaseHandler),
    (f"jobs/{_ID}/resubmit", ResubmitHandler),
    (f"arrays/{_ID}", ArrayHandler),
]
