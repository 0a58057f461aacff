"""The one loop that owns the state of a machine's queue.

Events come in by ``post`` (facts from launcher and sampler) and by ``submit``/``cancel``
(wishes of users); each batch goes through the pure core, is written down in one durable
transaction, and only then acted on and acknowledged. While one batch is being written the
next one gathers: that is the group commit. Everybody else reads the frozen ``state``.
It must never decide anything itself, and never act before the journal has it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from .batches import HEAVY, Stimulus, Taken, decided, weight
from .core.asides import UnknownParent
from .core.messages import (
    Amended,
    CancelRequested,
    Event,
    Exited,
    HoldRequested,
    Instruction,
    Launch,
    LaunchFailed,
    OperationsEvent,
    ReleaseRequested,
    Reordered,
    Sampled,
    SampleNow,
    StopAttempt,
    Submitted,
    Together,
    Vanished,
)
from .core.model import (
    Gpu,
    GpuSchedError,
    IllegalTransition,
    Job,
    JobId,
    Phase,
    Settings,
    Unavailable,
    UnknownJob,
    Work,
)
from .core.past import Past
from .core.quota import rlimits_of
from .core.report import tally_of
from .core.schedule import awaits_memory, next_wakeup
from .core.state import State
from .core.streaks import since
from .keys import Keys
from .ports import (
    ActiveGrant,
    Clock,
    DuplicateKey,
    Fenced,
    GpuProvider,
    Launcher,
    LaunchOrder,
    Recorded,
    Report,
    Store,
    StoreUnavailable,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_STORE_S = 1.0
"""Pause before facts are offered again to a database that could not be written."""

REMEMBERED_JOBS = 2000
"""From so many ended jobs a new host learns how long jobs run and who has had how much of the machine."""

FIRST_LOOK_S = 1.5
"""So long a host that adopts jobs waits for the first sample of the cards before it answers."""

LONGEST_LOOK_S = 10.0
"""So long submissions to such a host wait for cards to turn up, before they are judged without."""

_MOST_LOOKS = 5
"""How often a submission is tried again whose idempotency keys others bring at the same moment."""


Wish = CancelRequested | HoldRequested | ReleaseRequested | Amended
"""What the owner of a job may want of it at any time."""


class Observer(Protocol):
    """Is told of each batch once it is true; called inside the loop, so it must return at once."""

    def __call__(self, recorded: Sequence[Recorded], state: State, *, sampled: bool) -> None: ...


class Engine:
    """Owns ``state``. Runs inside one event loop; ``run`` ends by cancellation or when it is fenced off."""

    def __init__(
        self,
        *,
        store: Store,
        epoch: int,
        gpus: GpuProvider,
        launcher: Callable[[Report], Launcher],
        settings: Settings,
        jobs_folder: Path,
        clock: Clock,
        sample_interval_s: float,
    ) -> None:
        self.store = store
        self.gpus = gpus
        self.settings = settings
        self.jobs_folder = jobs_folder
        self.clock = clock
        self.store_cause: str | None = None  # why the database cannot be written at present
        self.last_seq = 0
        self.fenced = anyio.Event()
        self._cards_by = -math.inf  # until then cards may still turn up that were there before
        self.observers: list[Observer] = []
        self._epoch = epoch
        self._launcher = launcher(self.post)
        self._sample_interval_s = sample_interval_s
        self._inbox: list[Stimulus] = []
        self._arrived = anyio.Event()
        self._sample_wanted = anyio.Event()
        self._looked_at = -math.inf
        self._watchers: dict[JobId | None, set[anyio.Event]] = defaultdict(set)
        self._keys = Keys(store)
        # SQLite has one writer; one thread also keeps the order of transactions.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="gpusched-journal")
        self.state = State.begin(settings)

    # --- what others call -------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Tell the engine a fact. Never blocks; never fails."""
        self._put(Stimulus(event))

    async def submit(self, jobs: Sequence[Job], works: dict[JobId, Work], *, by: str | None = None) -> list[JobId]:
        """Queue jobs, all or none; returns their ids once they are on disk.

        by  who does it in the owner's place; None = the owner.

        A job whose owner used its idempotency key before is not queued again: the id of
        the earlier job is returned in its place.
        """
        for _try in range(_MOST_LOOKS):
            try:
                return await self._submit(jobs, works, by)
            except DuplicateKey as error:  # noqa: PERF203  somebody else brought it while we looked: it is known now
                if error.field != "idempotency_key":
                    raise
            except UnknownParent:  # it has ended while we looked: the journal says how
                continue
        return await self._submit(jobs, works, by)

    async def _submit(self, jobs: Sequence[Job], works: dict[JobId, Work], by: str | None) -> list[JobId]:
        known = await self._keys.known(jobs)
        fresh = tuple(_with_known_parents(job, known) for job in jobs if known[job.id] is None)
        if fresh:
            ended = await self._ended_parents(fresh)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._keys.bring(fresh, done)
            self._put(Stimulus(Submitted(fresh, ended, by), {job.id: works[job.id] for job in fresh}, done))
            await asyncio.shield(done)
        return [known[job.id] or job.id for job in jobs]

    async def _ended_parents(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Those that these jobs are to start after and that the scheduler has nothing to do with any more."""
        named = {parent for job in jobs if job.after is not None for parent in job.after.jobs}
        gone = named - {job.id for job in jobs} - {parent for parent in named if parent in self.state.jobs}
        if not gone:
            return ()
        found = await anyio.to_thread.run_sync(lambda: {job_id: self.store.job(job_id) for job_id in sorted(gone)})
        for job_id, parent in found.items():
            if parent is None:
                raise UnknownJob(job_id)
        return tuple(parent for parent in found.values() if parent is not None and parent.phase.final)

    async def reorder(self, job_id: JobId, anchor: JobId, *, before: bool, by: str) -> None:
        """Put a waiting job right before or after another of its owner; returns when it is on disk.

        Raises ``IllegalTransition`` once one of them waits no more.
        """
        await self._wish(Reordered(job_id, by, anchor, before))

    async def operate(self, event: OperationsEvent) -> None:
        """Quarantine or return a card, drain or resume; returns when it is on disk. What is so already stays so."""
        await self._wish(event)

    async def prune(self, *, before: float, most: int, limit: int) -> int:
        """Delete some of the oldest events; returns how many. One short transaction between those of the queue."""
        try:
            return await self._written(
                lambda: self.store.prune(before=before, most=most, limit=limit, epoch=self._epoch)
            )
        except Fenced:
            self.fenced.set()
            return 0

    async def forget(self, job: Job, *, by: str) -> None:
        """Delete the record of a job that the scheduler has nothing to do with any more; its files are not ours."""
        if job.id in self.state.jobs:
            raise IllegalTransition(job, self.forget)
        tombstone = replace(job, name="", message=None, notebook=None, tags=(), attempts=(), idempotency_key=None)
        at = self.clock()
        use, share = tally_of(job, at), Past.of([job], self.state.gpus.values(), self.settings).usage
        try:
            recorded = await self._written(
                lambda: self.store.forget(tombstone, by=by, use=use, share=share, at=at, epoch=self._epoch)
            )
        except Fenced:
            self.fenced.set()
            raise _stopping() from None
        self._publish([recorded], [])

    async def act(self, event: Wish) -> None:
        """A wish about one job; returns when it is on disk. Raises ``IllegalTransition`` where it does not admit it."""
        await self._wish(event)

    async def act_on_all(self, events: Sequence[Wish]) -> list[JobId]:
        """The same wish about many jobs, in one step; returns for which of them it changed anything, once on disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stimulus = Stimulus(Together(tuple(events)), {}, done)
        self._put(stimulus)
        await done
        return [event.job_id for event in events if event.job_id in stimulus.changed]

    async def _wish(self, event: Event) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(Stimulus(event, {}, done))
        await done

    async def job(self, job_id: JobId, sees: Callable[[str], bool]) -> Job:
        """A job, live or past, of an owner whom ``sees`` admits. Another's is as unknown as one that never was."""
        job = self.state.jobs.get(job_id) or await anyio.to_thread.run_sync(self.store.job, job_id)
        if job is None or not sees(job.owner):
            raise UnknownJob(job_id)
        return job

    def watch(self, job_id: JobId | None) -> anyio.Event:
        """An event that is set at the next change of this job (None: of anything, samples too)."""
        event = anyio.Event()
        self._watchers[job_id].add(event)
        return event

    def unwatch(self, job_id: JobId | None, event: anyio.Event) -> None:
        watchers = self._watchers.get(job_id)
        if watchers is not None:
            watchers.discard(event)
            if not watchers:
                del self._watchers[job_id]

    def wake(self) -> None:
        """Set all events that ``watch`` gave, although nothing has changed: who waits is to look whether to go on."""
        for watchers in [*self._watchers.values()]:
            for event in watchers:
                event.set()

    async def cards_seen(self) -> None:
        """Return once cards are known, or it is certain enough that there are none; at once but after a recovery."""
        with anyio.CancelScope(deadline=self._cards_by):
            while not self.state.gpus and anyio.current_time() < self._cards_by:
                changed = self.watch(None)
                try:
                    await changed.wait()
                finally:
                    self.unwatch(None, changed)

    def folder(self, job_id: JobId) -> Path:
        return self.jobs_folder / job_id

    # --- the loop ---------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Recover, then serve until cancelled, or until another host has taken over (``fenced`` is set)."""
        try:
            await self._recover()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_sampling)
                task_status.started()
                await self._loop()
                tasks.cancel_scope.cancel()
        finally:
            for stimulus in self._inbox:
                stimulus.fail(_stopping())
            with anyio.CancelScope(shield=True):
                await self._launcher.close()
            self._writer.shutdown(wait=False)

    async def _loop(self) -> None:
        try:
            while True:
                await self._advance(await self._gather())
        except Fenced:
            self.fenced.set()

    async def _recover(self) -> None:
        """Take the journal's word for what was going on, and ask files and processes what is true now."""
        jobs = await anyio.to_thread.run_sync(self.store.live)
        operations = await anyio.to_thread.run_sync(self.store.operations)
        self.last_seq = await anyio.to_thread.run_sync(self.store.last_seq)
        self.state = State.begin(self.settings, jobs, (), operations)
        for job in jobs:
            if job.phase.active:
                self._launcher.adopt(job, job.attempt, self.folder(job.id))
            if job.phase is Phase.STOPPING and job.stop is not None and job.stop.reason != "stragglers":
                self._launcher.stop(job, job.attempt, job.stop.reason, job.stop.grace_s, self.folder(job.id))
        ended = await anyio.to_thread.run_sync(self.store.ended, REMEMBERED_JOBS)
        gone = await anyio.to_thread.run_sync(self.store.usage_of_gone)
        past, streaks = Past.of([*ended, *jobs], (), self.settings, gone), since(ended)
        self.state = State.begin(self.settings, jobs, (), operations, past, streaks=streaks)
        # Known before the first request: a submission must not be refused for cards not yet looked at. But jobs
        # that run must not wait for a driver that does not answer: then submissions alone do (``cards_seen``).
        with anyio.move_on_after(FIRST_LOOK_S if any(job.phase.active for job in jobs) else None) as look:
            gpus = await self._sample()
            past = Past.of([*ended, *jobs], gpus, self.settings, gone)
            self.state = State.begin(self.settings, jobs, gpus, operations, past, streaks=streaks)
            self.post(Sampled(gpus))
        if look.cancelled_caught:
            self._cards_by = anyio.current_time() + LONGEST_LOOK_S

    async def _gather(self) -> list[Stimulus]:
        """The next batch: everything that has arrived, or nothing when a timer of the core is due."""
        if not self._inbox:
            due = next_wakeup(self.state, self.clock())
            with anyio.move_on_after(None if due is None else max(0.0, due - self.clock())):
                await self._arrived.wait()
        self._arrived = anyio.Event()
        batch, self._inbox = self._inbox, []
        return batch

    async def _advance(self, batch: list[Stimulus]) -> None:
        """Core, journal, action, acknowledgement: in this order."""
        now = self.clock()
        if self.gpus.simulated and any(isinstance(stimulus.event, Exited | Vanished) for stimulus in batch):
            # A look at these cards costs nothing: what an end frees is given away in the same transaction.
            batch = [*batch, Stimulus(Sampled(await self._sample()))]
        decide = partial(decided, self.state, batch, now, self.gpus.fault)
        taken = decide() if sum(map(weight, batch)) <= HEAVY else await self._beside_the_loop(decide, batch)
        for stimulus, error in taken.refused:
            self._refused(stimulus, error)
        accepted, instructions = taken.accepted, taken.instructions
        launches = [instruction for instruction in instructions if isinstance(instruction, Launch)]
        try:
            recorded, works = await self._record(taken, launches) if taken.changes else ([], {})
        except StoreUnavailable as error:
            await self._wait_for_store(accepted, error)
            return
        except GpuSchedError as error:
            await self._without_culprit(accepted, error)
            return
        self.state = taken.state
        try:
            for instruction in instructions:  # a freed card waits for them, whoever is told of it can wait a little
                await self._act(instruction, works)
        finally:  # it is on disk, whatever becomes of us now
            for stimulus in accepted:
                stimulus.succeed()
        self._publish(recorded, accepted)
        self._observe(recorded, accepted)

    async def _beside_the_loop(self, decide: Callable[[], Taken], batch: Sequence[Stimulus]) -> Taken:
        """All that the core touches is frozen, so that others can be answered meanwhile."""
        try:
            return await anyio.to_thread.run_sync(decide)
        except BaseException:
            for stimulus in batch:
                stimulus.fail(_stopping())
            raise

    async def _record(self, taken: Taken, launches: Sequence[Launch]) -> tuple[list[Recorded], dict[JobId, Work]]:
        """Write it down, or raise why not: then the state stays as it was.

        Meanwhile what is to be launched gets ready, since a card waits for it. Returns also what it runs, as far as
        it can be read.
        """
        works = {job_id: work for stimulus in taken.accepted for job_id, work in stimulus.works.items()}
        found = self._prepare(launches, taken.state, works)

        def write() -> list[Recorded]:
            recorded = self.store.record(taken.changes, works, epoch=self._epoch)
            for launch in launches:  # from here, since the way back to the loop takes as long as all of a claim
                self._launcher.go(launch.job_id, launch.attempt)
            return recorded

        try:
            recorded = await self._written(write)
        except BaseException as error:
            for launch in launches:
                self._launcher.give_up(launch.job_id, launch.attempt)
            for stimulus in () if isinstance(error, GpuSchedError) else taken.accepted:
                stimulus.fail(_stopping())
            raise
        self.store_cause = None
        return recorded, found

    def _written(self, write: Callable[[], T]) -> Awaitable[T]:
        """Begins at once, in its turn, and ends before whoever waits for it does."""
        writing = asyncio.get_running_loop().run_in_executor(self._writer, write)

        async def ended() -> T:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([writing])
            return writing.result()

        return ended()

    def _prepare(self, launches: Sequence[Launch], state: State, works: Mapping[JobId, Work]) -> dict[JobId, Work]:
        """Let attempts get ready that may be launched in a moment. Returns what they run, as far as it can be read.

        Before the transaction, not beside it: one thread of Python at a time makes both the quickest.
        """
        found: dict[JobId, Work] = {}
        for launch in launches:
            job_id = launch.job_id
            with suppress(OSError, GpuSchedError):  # the launch itself will say why not
                # In a thread it would come later than it is needed.
                if (work := works.get(job_id) or self.store.work(job_id)) is not None:
                    found[job_id] = work
                    self._launcher.prepare(self._order(state, job_id, launch.attempt, work))
        return found

    async def _wait_for_store(self, accepted: list[Stimulus], error: StoreUnavailable) -> None:
        """Wishes fail; facts are offered again: a job that ended while the disk was full has still ended.

        Wishes that came meanwhile fail as well: they would have to wait for a second time.
        """
        for stimulus in (*accepted, *self._inbox):
            stimulus.fail(error)
        self._inbox = [stimulus for stimulus in self._inbox if stimulus.done is None]
        if self.store_cause is None:  # one line per episode
            log.error("the journal cannot be written: %s", error)
        self.store_cause = str(error)
        await anyio.sleep(RETRY_STORE_S)
        facts = [stimulus for stimulus in accepted if stimulus.done is None]
        self._inbox[:0] = facts
        if facts:
            self._arrived.set()

    async def _without_culprit(self, accepted: list[Stimulus], error: GpuSchedError) -> None:
        """One of them cannot be written down, whatever the disk: each is tried alone, so that only that one fails."""
        if len(accepted) > 1:
            try:
                for stimulus in accepted:
                    await self._advance([stimulus])
            except BaseException:
                for stimulus in accepted:
                    stimulus.fail(_stopping())
                raise
            return
        for stimulus in accepted:
            if stimulus.done is None:
                log.error("%s cannot be written down and is left out: %s", type(stimulus.event).__name__, error)
            stimulus.fail(error)
        if not accepted:  # what the core decided by itself; it will decide it again
            log.error("a decision cannot be written down: %s", error)
            await anyio.sleep(RETRY_STORE_S)

    def _refused(self, stimulus: Stimulus, error: IllegalTransition) -> None:
        if stimulus.done is not None:
            stimulus.fail(error)
        else:  # a late echo of something that another event has settled already
            log.info("ignored: %s", error)

    def _publish(self, recorded: list[Recorded], accepted: list[Stimulus]) -> None:
        if recorded:
            self.last_seq = max(self.last_seq, recorded[-1].seq)  # a deletion is written between two batches
        changed: set[JobId | None] = {None if record.job is None else record.job.id for record in recorded}
        if changed or any(isinstance(stimulus.event, Sampled) for stimulus in accepted):
            changed.add(None)
        for job_id in changed & self._watchers.keys():
            for event in self._watchers.pop(job_id):
                event.set()

    def _observe(self, recorded: list[Recorded], accepted: list[Stimulus]) -> None:
        sampled = any(isinstance(stimulus.event, Sampled) for stimulus in accepted)
        for observer in self.observers if recorded or sampled else ():
            try:
                observer(recorded, self.state, sampled=sampled)
            except Exception:  # noqa: PERF203  whoever only looks on must never stop the queue
                log.exception("an observer of the queue failed")

    async def _act(self, instruction: Instruction, works: dict[JobId, Work]) -> None:
        match instruction:
            case Launch(job_id, attempt):
                await self._launch(self.state.jobs[job_id], attempt, works.get(job_id))
            case StopAttempt(job_id, attempt, reason, grace_s):
                # Its end may have arrived in the same batch: then there is nothing left to stop.
                if (job := self.state.jobs.get(job_id)) is not None:
                    self._launcher.stop(job, attempt, reason, grace_s, self.folder(job_id))
            case SampleNow() if awaits_memory(self.state):
                self._sample_wanted.set()

    def _order(self, state: State, job_id: JobId, attempt: int, work: Work) -> LaunchOrder:
        job = state.jobs[job_id]
        return LaunchOrder(job, attempt, work, self.folder(job_id), rlimits_of(job, state))

    async def _launch(self, job: Job, attempt: int, work: Work | None) -> None:
        try:
            work = work or await anyio.to_thread.run_sync(self.store.work, job.id)
            if work is None:
                raise OSError(f"the journal does not say what job {job.id} runs")
            self._launcher.launch(self._order(self.state, job.id, attempt, work))
        except (OSError, GpuSchedError) as error:
            log.warning("job %s could not be started: %s", job.id, error)
            self.post(LaunchFailed(job.id, attempt, "launch_failed", str(error)))

    # --- the cards --------------------------------------------------------------------

    async def _keep_sampling(self) -> None:
        """Once per interval since the last look, whoever watches; at once when memory is freed that a job waits for."""
        while True:
            due = self._looked_at + self._sample_interval_s
            with anyio.move_on_after(due - anyio.current_time()):
                await self._sample_wanted.wait()
            if self._sample_wanted.is_set() or self._looked_at + self._sample_interval_s <= anyio.current_time():
                self._sample_wanted = anyio.Event()
                self.post(Sampled(await self._sample()))

    async def _sample(self) -> tuple[Gpu, ...]:
        grants = [
            ActiveGrant(
                grant,
                alive=self._launcher.alive(job.id, grant.attempt),
                pids=frozenset() if self.gpus.simulated else self._launcher.pids(job.id, grant.attempt),
            )
            for job in self.state.busy.values()
            for grant in job.grants
        ]
        gpus = await self.gpus.sample(grants, now=self.clock())
        self._looked_at = anyio.current_time()
        return gpus

    # --- small parts ------------------------------------------------------------------

    def _put(self, stimulus: Stimulus) -> None:
        self._inbox.append(stimulus)
        self._arrived.set()


def _with_known_parents(job: Job, known: Mapping[JobId, JobId | None]) -> Job:
    """A job whose parents of the same batch may be there from an earlier, equal request."""
    if job.after is None:
        return job
    parents = tuple(known.get(parent) or parent for parent in job.after.jobs)
    return replace(job, after=job.after._replace(jobs=parents))


def _stopping() -> Unavailable:
    return Unavailable("The host is stopping.", hint="Try again in a moment: the next host goes on with the queue.")
