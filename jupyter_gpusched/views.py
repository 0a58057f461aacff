"""What a caller is shown of jobs and cards.

Turns the engine's frozen state into wire views: the scheduler's words on queued jobs, the
ledger's figures on cards. Whose content a caller may see is ``Caller.sees``; it is asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from . import wire
from .callers import Caller
from .core.advice import advice
from .core.booking import assigned
from .core.choice import told
from .core.estimate import Start
from .core.explain import explanation, waiting, waiting_all
from .core.ledger import Card, read_books
from .core.model import Attempt, Foreign, Gpu, GpuUuid, Grant, GrantState, Job, JobId, Opener, Phase
from .core.operations import Alert, Reservation
from .core.release import is_earlier, use_of
from .core.reservations import reaching_in
from .core.standing import Standing
from .core.state import State


@dataclass(frozen=True)
class Views:
    """The state as one caller sees it at one moment."""

    state: State
    caller: Caller
    simulated: bool
    now: float
    cause: str | None = None  # why there is no card at all
    halted: str | None = None  # why nothing can be written down, and so nothing starts
    progress: Mapping[JobId, wire.Progress] = field(default_factory=dict)
    starts: Callable[[JobId], Start | None] = lambda _: None  # when a waiting job will probably start
    standings: Callable[[State, float], Standing] = Standing

    @classmethod
    def of(
        cls,
        state: State,
        *,
        caller: Caller,
        simulated: bool,
        now: float,
        cause: str | None = None,
        halted: str | None = None,
        progress: Mapping[JobId, wire.Progress] | None = None,
        starts: Callable[[JobId], Start | None] = lambda _: None,
        standings: Callable[[State, float], Standing] = Standing,
    ) -> Views:
        cause = None if state.gpus else cause
        return cls(state, caller, simulated, now, cause, halted, progress or {}, starts, standings)

    @cached_property
    def standing(self) -> Standing:
        """The places of everybody in the queue; worked out once, and only if somebody waits."""
        return self.standings(self.state, self.now)

    def knows_no_more(self, job: Job) -> bool:
        """Whether a job that was live when it was looked up has ended since."""
        return not job.phase.final and job.id not in self.state.jobs

    def job(self, job: Job) -> wire.JobView:
        """The view of a job of the caller's own."""
        current = self.state.jobs.get(job.id, job)
        told = None
        if current.phase is Phase.QUEUED and not self.knows_no_more(current):
            told = explanation(self.state, current, self.now, self.standing)
        return self._job(current, waiting(self.state, current, self.now), told)

    def jobs(self, jobs: Sequence[Job]) -> list[wire.JobView]:
        """The views of many: what they wait for is worked out in one go."""
        current = [self.state.jobs.get(job.id, job) for job in jobs]
        words = waiting_all(self.state, self.now, [job for job in current if job.phase is Phase.QUEUED])
        return [self._job(job, words.get(job.id)) for job in current]

    def _job(self, current: Job, words: str | None, told: list[str] | None = None) -> wire.JobView:
        queued = current.phase is Phase.QUEUED
        if queued and self.cause and current.request.gpus and not current.set_aside:
            cards = f"{current.request.gpus} GPU" + ("s" if current.request.gpus > 1 else "")
            words = f"needs {cards}, and none can be used: {self.cause}"
        if queued and self.halted:
            words = f"nothing starts while the queue cannot be written down: {self.halted.rstrip('.')}"
        return job_view(
            current,
            waiting=words if queued else None,
            position=self._position(current) if queued else None,
            start=self.starts(current.id) if queued and not self.halted else None,
            simulated=self.simulated,
            progress=self.progress.get(current.id) if current.phase.active else None,
            explanation=told,
        )

    def _position(self, job: Job) -> int | None:
        """None for one that waits no more in this state."""
        return self.standing.position(job) if job.id in self.state.jobs else None

    def past(self, job: Job) -> wire.JobView:
        """The view of a job as the journal has it at an event; words on waiting only if it still does, and in short."""
        if self.state.jobs.get(job.id) == job:
            return self._job(job, waiting(self.state, job, self.now))
        return job_view(job, waiting=None, position=None, start=None, simulated=self.simulated)

    def reservations(self) -> list[wire.Reservation]:
        """What is reserved now or later is everybody's to see, the first first."""
        standing = [one for one in self.state.operations.reservations.values() if one.end > self.now]
        laid_out = assigned(standing, self.state.gpus.values()) if standing else {}
        ordered = sorted(standing, key=lambda one: (one.start, one.id))
        return [self._reservation(one, laid_out[one.id]) for one in ordered]

    def _reservation(self, one: Reservation, uuids: Sequence[GpuUuid]) -> wire.Reservation:
        cards = sorted((self.state.gpus[uuid] for uuid in uuids), key=_order)
        return wire.Reservation(
            id=one.id,
            user=one.user,
            count=one.cards,
            gpus=[wire.GpuRef(uuid=gpu.uuid, index=gpu.index, name=gpu.name) for gpu in cards],
            start=one.start,
            end=one.end,
            zone=one.zone,
            by=one.by,
            cause=one.cause,
            active=one.start <= self.now,
            reaching_in=len(reaching_in(self.state, one, uuids, self.now)),
            mine=one.user == self.caller.user,
        )

    def gpus(self, books: Mapping[GpuUuid, Card] | None = None) -> list[wire.GpuView]:
        """The cards by index. ``books``: the ledger's, when they have been read for others already."""
        cards = read_books(self.state, self.now).cards if books is None else books
        reserved = self.reservations()
        return [self._gpu(gpu, cards.get(gpu.uuid), reserved) for gpu in sorted(self.state.gpus.values(), key=_order)]

    def _gpu(self, gpu: Gpu, card: Card | None, reserved: Sequence[wire.Reservation]) -> wire.GpuView:
        return wire.GpuView(
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            parent_uuid=gpu.parent_uuid,
            total_mib=gpu.total,
            reserved_mib=gpu.reserved,
            used_mib=gpu.used,
            free_mib=gpu.free,
            promised_mib=card.promised if card else 0,
            foreign_mib=card.foreign if card else None,
            available_mib=max(0, card.available) if card and card.available is not None else None,
            utilization_pct=gpu.utilization_pct,
            temperature_c=gpu.temperature_c,
            power_w=gpu.power_w,
            compute_mode=gpu.compute_mode,
            health=self._health(gpu),
            simulated=gpu.simulated,
            sampled_at=gpu.sampled_at,
            holders=[self._holder(gpu, grant) for grant in (card.grants if card else ())]
            + [self._foreign(process) for process in gpu.foreign],
            unattributed_mib=gpu.unattributed,
            device_file=gpu.device_file,
            opened_by=[self._opener(opener) for opener in gpu.opened_by],
            reservations=[one for one in reserved if any(ref.uuid == gpu.uuid for ref in one.gpus)],
        )

    def _health(self, gpu: Gpu) -> wire.HealthOfGpu:
        order = self.state.operations.quarantines.get(gpu.uuid)
        return wire.HealthOfGpu(
            status=gpu.health,
            cause=gpu.health_cause,
            since=gpu.health_since,
            by=None if order is None else order.by,
        )

    def _holder(self, gpu: Gpu, grant: Grant) -> wire.Holder:
        """Everyone sees who holds how much since when; only the owner and administrators which job it is."""
        job = self.state.jobs[grant.job_id]
        own = self.caller.sees(job.owner)
        measured = use_of(gpu, job.id, earlier=is_earlier(job.grants, grant))
        return wire.Holder(
            kind="job",
            state=grant.state.value,
            job_id=job.id if own else None,
            name=job.name if own else None,
            user=job.owner,
            pid=None,
            vram_mib=measured if measured is not None or grant.state is GrantState.RELEASING else grant.promised,
            estimated=measured is None or gpu.simulated,
            promised_mib=grant.promised,
            since=grant.since,
            notebook=job.notebook if own else None,
            mine=job.owner == self.caller.user,
        )

    def _foreign(self, process: Foreign) -> wire.Holder:
        return wire.Holder(
            kind="foreign",
            state=None,
            job_id=None,
            user=process.user,
            pid=process.pid,
            vram_mib=process.vram,
            estimated=process.vram is None,
            promised_mib=None,
            since=process.since,
            notebook=process.notebook if self._sees(process.user) else None,
            mine=process.user == self.caller.user,
        )

    def _opener(self, process: Opener) -> wire.DeviceUser:
        program = process.program if self._sees(process.user) else None
        return wire.DeviceUser(pid=process.pid, program=program, user=process.user)

    # --- alerts -------------------------------------------------------------------------

    def alerts(self) -> list[wire.Alert]:
        """Those that stand and are the caller's to see, the gravest first."""
        told = [self.alert(alert) for alert in self.state.operations.alerts.values() if self.sees(alert)]
        return sorted(told, key=lambda alert: (_GRAVITY.index(alert.severity), alert.since, alert.id))

    def sees(self, alert: Alert) -> bool:
        """Alerts about cards and the machine are everybody's, those about a job its owner's."""
        return alert.job_id is None or self._sees(alert.user)

    def _sees(self, owner: str | None) -> bool:
        """What belongs to nobody known is for administrators."""
        return self.caller.sees(owner) if owner is not None else self.caller.admin

    def alert(self, alert: Alert) -> wire.Alert:
        own = alert.own_message if self._sees(alert.user) else None
        return wire.Alert(
            id=alert.id,
            kind=alert.kind,
            message=own or alert.message,
            since=alert.since,
            gpu_uuid=alert.gpu_uuid,
            gpu_index=alert.gpu_index,
            job_id=alert.job_id,
            user=alert.user,
            hint=alert.hint,
            severity=alert.severity,
        )


_GRAVITY = ("error", "warning", "info")


def _order(gpu: Gpu) -> tuple[int, str]:
    return gpu.index, gpu.uuid


def job_view(
    job: Job,
    *,
    waiting: str | None,
    position: int | None,
    start: Start | None,
    simulated: bool,
    progress: wire.Progress | None = None,
    explanation: list[str] | None = None,
) -> wire.JobView:
    """The owner's view of a job; the first three keywords are the scheduler's words on a queued one.

    explanation  why it stands where it stands; left out of lists and events.
    """
    last = job.attempts[-1] if job.attempts and job.phase is not Phase.QUEUED else None
    over = job.overuse
    return wire.JobView(
        id=job.id,
        kind=job.kind.value,
        name=job.name,
        user=job.owner,
        phase=job.phase.value,
        reason=job.reason,
        message=job.message,
        waiting=waiting,
        explanation=explanation,
        position=position,
        in_line=job.phase is Phase.QUEUED and not job.set_aside,
        estimated_start=None if start is None else start.at,
        estimated_start_range=None if start is None else [start.earliest, start.latest],
        vram_mib=job.request.vram,
        gpus_requested=job.request.gpus,
        gpus=_refs(last.gpus) if last else [],
        cpus=job.request.cpus,
        memory_mib=job.request.memory,
        priority=job.priority.value,
        submitted_at=job.submitted_at,
        started_at=last.started_at if last else None,
        ended_at=job.ended_at,
        exit_code=last.exit_code if last else None,
        signal=last.signal if last else None,
        used_vram_mib=job.used_vram_mib,
        peak_vram_mib=job.peak_vram_mib,
        overuse_mib=over.used - over.promised if over is not None and over.told else None,
        cap=("cooperative" if job.cap else "off") if job.request.vram is not None else None,
        peak_rss_mib=max((a.peak_rss_mib for a in job.attempts if a.peak_rss_mib is not None), default=None),
        progress=progress,
        time_limit_s=job.time_limit_s,
        advice=advice(job, simulated=simulated),
        attempts=[_attempt(attempt) for attempt in job.attempts],
        notebook=job.notebook,
        parent_id=job.parent_id,
        array_id=job.array_id,
        tags=list(job.tags),
        simulated=simulated and job.request.gpus > 0,
        held=_held(job),
        after=list(job.after.jobs) if job.after is not None else [],
        array_index=job.array_index,
        sweep=dict(job.sweep) or None,
    )


def _held(job: Job) -> wire.HeldView | None:
    hold = job.held if job.phase is Phase.QUEUED else None
    return None if hold is None else wire.HeldView(by=hold.by, cause=hold.cause, since=hold.since)


def _attempt(attempt: Attempt) -> wire.AttemptView:
    return wire.AttemptView(
        number=attempt.number,
        outcome=attempt.outcome.value if attempt.outcome else None,
        reason=attempt.reason,
        message=attempt.message,
        gpus=_refs(attempt.gpus),
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        peak_vram_mib=attempt.peak_vram_mib,
        placement=None if attempt.choice is None else told(attempt.choice, attempt.gpus),
    )


def _refs(grants: tuple[Grant, ...]) -> list[wire.GpuRef]:
    return [wire.GpuRef(uuid=grant.gpu, index=grant.index, name=grant.gpu_name) for grant in grants]
