"""Taking in submissions and their changes: everything that is checked before a job may queue.

A submission is refused here or it is queued whole; between the two nothing is left behind.
What can be checked without the machine is ``submission``'s, what needs it ``drafts``'; here
they are put together and queued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, TypeVar

import anyio
import anyio.to_thread
import msgspec

from . import wire
from .belongings import Kept, drop, payload_of, write
from .callers import Caller
from .core.ledger import check_fits
from .core.messages import Amended
from .core.model import (
    BadRequest,
    IllegalTransition,
    Job,
    JobId,
    NotAllowed,
    Phase,
    Terms,
    Unavailable,
    Work,
    WrongPhase,
)
from .core.quota import check_queue, check_terms, waiting_of
from .drafts import PLACEHOLDER, Hides, Raw, Reader
from .engine import Engine
from .errand import read_payload
from .launch.folders import remove_folder
from .launch.owners import NoSuchOwner, Owner, Owners, ourselves
from .parents import still_worth_waiting_for, with_parents
from .ports import GpuProvider
from .readers import Readers
from .respec import spec_of
from .submission import changed, read_terms

LARGE = 2**20
"""What has more bytes is decoded beside the loop, which answers others meanwhile."""

LOOKERS = 8
"""So many threads look at what users name and leave, which may be on a disk that does not answer."""

_Result = TypeVar("_Result")


class Admission:
    """The door to the queue. What a job names is looked at with the rights of the user as whom it will run."""

    def __init__(
        self, engine: Engine, gpus: GpuProvider, owners: Owners = ourselves, hides: Hides = lambda _: None
    ) -> None:
        self._engine = engine
        self._gpus = gpus
        self._owners = owners
        self._hides = hides
        self._shared = owners is not ourselves
        self._lookers = Readers(anyio.CapacityLimiter(LOOKERS))
        self._amending = anyio.Lock()
        self._on_their_way: Counter[str] = Counter()

    async def submit(
        self, raws: Sequence[object], *, by: Caller, array: wire.ArrayRequest | None = None
    ) -> list[JobId]:
        """Check submissions and queue all of them or none; returns their ids once they are on disk.

        by     who the kernel or the Hub says the caller is, never what a request says.
        array  that they are the elements of one, and what these have in common.
        Raises ``BadRequest`` (its kinds) naming the field; in a batch also the submission's number.
        """
        common = {} if array is None else array.common
        whole = [{**common, **raw} if isinstance(raw, dict) else raw for raw in raws] if common else raws
        given = [Raw(raw) for raw in whole]
        if isinstance(shared := common.get("payload"), str):
            payload = await anyio.to_thread.run_sync(read_payload, shared)
            given = [
                Raw({**raw, "payload": PLACEHOLDER}, payload)
                if isinstance(raw, dict) and raw["payload"] is shared
                else Raw(raw)
                for raw in whole
            ]
        return await self._submit(given, by=by, array=array)

    async def _submit(
        self,
        raws: Sequence[Raw],
        *,
        by: Caller,
        array: wire.ArrayRequest | None = None,
        for_them: Caller | None = None,
    ) -> list[JobId]:
        """As ``submit``. ``for_them``: the administrator who queues it as work of ``by``."""
        engine = self._engine
        if len(raws) > wire.LARGEST_ARRAY:  # all others would wait until it is written down
            many, more = ("an array", "arrays") if array is not None else ("a batch", "batches")
            raise BadRequest(
                f"jobs: {many} of {len(raws)} is too large; at most {wire.LARGEST_ARRAY} jobs are taken at a time.",
                field="jobs",
                hint=f"Submit several {more}, or let each job do more.",
            )
        await engine.cards_seen()
        throttle = None if array is None else array.throttle
        runs_as = await self._runs_as(by.user)
        reader = Reader(
            engine.state, engine.store, self._gpus, engine.folder,
            by=by, runs_as=runs_as, now=engine.clock(), hides=self._hides,
        )  # fmt: skip
        read = partial(reader.read, raws, array=array is not None, throttle=throttle)
        at_once = len(raws) == 1 and not self._shared and _is_light(raws[0])
        drafts = read() if at_once else await self._beside(by.user, read)
        jobs = await with_parents([draft.job for draft in drafts], engine, owner=by.user)
        works = {draft.job.id: draft.work for draft in drafts}
        kept = {draft.job.id: draft.kept for draft in drafts if draft.kept is not None}
        with self._entering(by, len(jobs)):
            told = None if for_them is None else for_them.user
            if kept:
                return await self._with_files(jobs, works, kept, runs_as, told)
            return await engine.submit(jobs, works, by=told)

    async def _beside(self, user: str, function: Callable[[], _Result]) -> _Result:
        """What the function returns, that looks at files of this user: those of one user keep nobody else waiting."""
        if self._shared:
            return await self._lookers.read(user, function)
        return await anyio.to_thread.run_sync(function)

    @contextmanager
    def _entering(self, by: Caller, count: int) -> Iterator[None]:
        """Jobs on their way into the queue count as waiting, so that many at once are not too many."""
        state, owner = self._engine.state, by.user
        if state.settings.limits:
            waiting = waiting_of(owner, state.jobs.values()) + self._on_their_way[owner]
            check_queue(owner, by.groups, state, waiting=waiting, joining=count)
        self._on_their_way[owner] += count
        try:
            yield
        finally:
            self._on_their_way[owner] -= count
            if not self._on_their_way[owner]:
                del self._on_their_way[owner]

    async def amend(self, job_id: JobId, changes: object, *, by: Caller) -> None:
        """Change a job that waits. Raises ``BadRequest``, ``UnknownJob``, or ``WrongPhase`` once it waits no more."""
        async with self._amending:  # two changes of one job at once must not undo each other
            job = await self._engine.job(job_id, by.sees)
            await self._engine.cards_seen()
            try:
                terms = self._terms(job, changes, by)
                if job.phase is not Phase.QUEUED:
                    raise _too_late(job)
                await self._engine.act(Amended(job_id, by.user, terms))
            except IllegalTransition:
                raise _too_late(await self._engine.job(job_id, by.sees)) from None

    async def amend_many(self, jobs: Sequence[Job], changes: object, *, by: Caller) -> list[JobId]:
        """Change those of the jobs that wait, all or none of them; returns which. Raises ``BadRequest``."""
        engine = self._engine
        async with self._amending:
            await engine.cards_seen()
            current = (engine.state.jobs.get(job.id) for job in jobs)
            waiting = [job for job in current if job is not None and job.phase is Phase.QUEUED]
            amended = await anyio.to_thread.run_sync(
                lambda: [Amended(job.id, by.user, self._terms(job, changes, by)) for job in waiting]
            )
            return await engine.act_on_all(amended)

    def _terms(self, job: Job, changes: object, by: Caller) -> Terms:
        """The terms of a job after these changes, which this machine and the limits allow."""
        terms, state = read_terms(changes, job), self._engine.state
        if job.phase is Phase.QUEUED:
            check_fits(terms.request, state.gpus.values(), state.settings, cause=self._gpus.cause)
            if not by.admin:
                check_terms(_on(terms, job), state)
        return terms

    async def reorder(self, job_id: JobId, order: wire.JobOrder, *, by: Caller) -> None:
        """Put a waiting job right before or after another of the owner's. Raises as ``amend`` does."""
        anchor_id = order.before or order.after
        if anchor_id is None or (order.before and order.after):
            raise BadRequest(
                "Give `before` or `after`, with the id of another waiting job.",
                field="before",
                hint="Change order and terms of a job in two requests.",
            )
        jobs = [await self._engine.job(each, by.sees) for each in (job_id, anchor_id)]
        if job_id == anchor_id:
            raise BadRequest(
                f"A job cannot stand before or after itself ({job_id}).",
                field="before" if order.before else "after",
                hint="Name another of your waiting jobs.",
            )
        if jobs[0].owner != jobs[1].owner:  # only administrators can name such two
            raise BadRequest(
                f"Jobs {job_id} and {anchor_id} have different owners.",
                field="before" if order.before else "after",
                hint="An order holds among the jobs of one owner.",
            )
        for job in jobs:
            if job.phase is not Phase.QUEUED:
                raise _out_of_queue(job)
        try:
            await self._engine.reorder(job_id, anchor_id, before=bool(order.before), by=by.user)
        except IllegalTransition as error:
            raise _out_of_queue(await self._engine.job(error.job.id, by.sees)) from None

    async def resubmit(self, job: Job, changes: object, *, by: Caller) -> JobId:
        """Queue the same work again, with its captured values, as a new job whose parent is this one.

        An administrator's of another user's job is that user's again: it runs as its owner and counts for its owner.

        changes  fields of a submission to be given anew; null stands for the default.
        """
        return (await self._submit([await self._again(job, changes, by)], **_on_behalf(job, by)))[0]

    async def resubmit_many(self, jobs: Sequence[Job], changes: object, *, by: Caller) -> list[JobId]:
        """As ``resubmit``, as one array whose elements keep their numbers; all or none."""
        key = changes.get("idempotency_key") if isinstance(changes, dict) else None
        raws = []
        for job in jobs:
            own = {**changes, "idempotency_key": f"{key}-{job.id}"} if isinstance(changes, dict) and key else changes
            raws.append(replace(await self._again(job, own, by), number=job.array_index))
        array = wire.ArrayRequest(throttle=jobs[0].throttle)
        return await self._submit(raws, **_on_behalf(jobs[0], by), array=array)

    async def _again(self, job: Job, changes: object, by: Caller) -> Raw:
        if not isinstance(changes, dict):
            raise BadRequest("Changes are a JSON object.", hint='For example {"vram": "8G"}.')
        if job.owner != by.user:
            _refuse_to_change_work(job, changes)
        engine = self._engine
        work = await anyio.to_thread.run_sync(engine.store.work, job.id)
        if work is None:
            raise Unavailable(f"The journal does not say what job {job.id} runs.", hint="Submit it anew.")
        spec: dict[str, Any] = msgspec.to_builtins(spec_of(job, work))
        payload = None
        if work.has_payload and "payload" not in changes:
            spec["payload"] = PLACEHOLDER
            payload = await self._beside(job.owner, partial(payload_of, job, engine.folder))
        if job.after is not None and "after" not in changes:
            spec["after"] = await still_worth_waiting_for(job, engine)
            spec["after_when"] = job.after.when if spec["after"] else None
        return Raw(changed(spec, changes), payload, parent=job)

    async def delete(self, job: Job, *, by: str) -> None:
        """Delete a job's record and files. Raises ``WrongPhase`` while anything of it is still going on."""
        if not job.phase.final:
            raise WrongPhase(
                f"Job {job.id} is {job.phase.value} and cannot be deleted.",
                hint="Cancel it first, and delete it when it has ended.",
            )
        if job.id in self._engine.state.jobs:
            raise WrongPhase(
                f"Job {job.id} has ended, but its memory has not been freed on the card yet.",
                hint="Try again in a moment.",
            )
        await self._engine.forget(job, by=by)
        folder = self._engine.folder(job.id)
        await self._beside(job.owner, partial(remove_folder, folder))

    async def _runs_as(self, owner: str) -> Owner | None:
        """None = as the host itself. Raises ``NotAllowed`` for an owner who is no user of this machine."""
        try:
            if self._owners is ourselves:
                return None
            return await anyio.to_thread.run_sync(self._owners, owner)
        except NoSuchOwner as error:
            raise NotAllowed(
                f"Jobs run as their owner, but {error}.", hint="Ask the machine's administrator."
            ) from None

    async def _with_files(
        self,
        jobs: list[Job],
        works: dict[JobId, Work],
        kept: dict[JobId, Kept],
        runs_as: Owner | None,
        by: str | None,
    ) -> list[JobId]:
        """Values and notebooks are on disk before the job is acknowledged, and gone again if it is not queued."""
        queued: list[JobId] = []
        owner = jobs[0].owner
        try:
            try:
                await self._beside(owner, partial(write, kept, self._engine.folder, runs_as))
            except OSError as error:
                why = error.strerror or str(error)
                raise Unavailable(
                    f"What the job brings along cannot be stored in {self._engine.jobs_folder}: {why}.",
                    hint="Free some space there and try again.",
                ) from error
            queued = await self._engine.submit(jobs, works, by=by)
        finally:
            refused = [job_id for job_id in kept.keys() - set(queued) if job_id not in self._engine.state.jobs]
            if refused:
                await self._beside(owner, partial(drop, refused, self._engine.folder))
        return queued


class _Behalf(TypedDict):
    by: Caller
    for_them: Caller | None


def _on_behalf(job: Job, by: Caller) -> _Behalf:
    """As whom a job is queued again: as its owner, with the limits of its owner, whoever asks for it.

    What it runs is its owner's, so that it must not run with anybody else's rights.
    """
    if job.owner == by.user:
        return {"by": by, "for_them": None}
    return {"by": replace(by, user=job.owner, uid=None, groups=job.groups, admin=False), "for_them": by}


def _refuse_to_change_work(job: Job, changes: dict[str, object]) -> None:
    """Raises ``NotAllowed``: on which terms another's work runs is for administrators as well, what runs is not."""
    for field in changes:
        if field in wire.JobSpec.__struct_fields__ and field not in (*wire.TERMS, "idempotency_key"):
            raise NotAllowed(
                f"{field}: job {job.id} runs as {job.owner}, and what it runs is for {job.owner} alone to change.",
                field=field,
                hint="Its terms can be changed, such as vram and priority. Submit work of your own as yourself.",
            )


def _is_light(raw: Raw) -> bool:
    """Whether nothing needs to be read from files for it, and little be decoded."""
    spec = raw.spec
    if not isinstance(spec, dict) or spec.get("path") is not None or spec.get("vram") == "auto":
        return False
    payload = spec.get("payload")
    return not isinstance(payload, str) or len(payload) <= LARGE


def _on(terms: Terms, job: Job) -> Job:
    """The job as far as limits look at it, on other terms."""
    return replace(job, request=terms.request, priority=terms.priority, time_limit_s=terms.time_limit_s)


def _too_late(job: Job) -> WrongPhase:
    hint = "Resubmit it with the changes." if job.phase.final else "Cancel it and resubmit it with the changes."
    return WrongPhase(f"Job {job.id} is {job.phase.value}; only a queued job can be changed.", hint=hint)


def _out_of_queue(job: Job) -> WrongPhase:
    return WrongPhase(
        f"Job {job.id} is {job.phase.value}; only jobs that wait have an order.",
        hint="`jupyter gpusched ls --phase queued` lists those that wait.",
    )
