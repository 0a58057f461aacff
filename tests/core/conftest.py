"""Builders for the core's values, and a small world that runs the core on a virtual clock."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpusched.core.messages import Change, Exited, MachineChange, Sampled, Started, Submitted
from jupyter_gpusched.core.model import (
    ExitRecord,
    Gpu,
    Grant,
    GrantState,
    Job,
    Kind,
    Phase,
    Priority,
    Request,
    Settings,
)
from jupyter_gpusched.core.policies import Hybrid
from jupyter_gpusched.core.schedule import next_wakeup, schedule
from jupyter_gpusched.core.state import State, apply

SETTINGS = Settings(cpus=16, memory=65536)
FIRM = replace(
    SETTINGS, claim_after_s=300.0, policy=Hybrid(per_expected=0.0, per_backlog=0.0, firm_after=1.0, evicts=False)
)
"""Patience is the same for all, and once it is over the place is left free whatever run times are expected."""
G = 1024


def job(job_id="aaaa0001", *, at=0.0, priority=Priority.NORMAL, retries=0, **request):
    request.setdefault("vram", None if request.get("gpus") == 0 else 4 * G)
    return Job(
        id=job_id,
        owner="ann",
        kind=Kind.COMMAND,
        name=job_id,
        request=Request(**request),
        priority=priority,
        submitted_at=at,
        since=at,
        retries=retries,
    )


def card(index=0, *, total=24 * G, used=0, at=0.0, simulated=True, **more):
    more.setdefault("name", "Simulated 24G")
    if "free" not in more:
        more["free"] = total - more.get("reserved", 0) - used
    return Gpu(uuid=f"GPU-{index}", index=index, total=total, sampled_at=at, used=used, simulated=simulated, **more)


def grant(the_job, index=0, *, attempt=1, promised=None, since=0.0, state=GrantState.HELD, exclusive=False):
    promised = the_job.request.vram if promised is None else promised
    return Grant(the_job.id, attempt, f"GPU-{index}", index, "Simulated 24G", promised, exclusive, state, since)


def record(code=0, signal=None, *, at=0.0, reason="exit", message="said why", stopped=None, started_at=None):
    return ExitRecord(code, signal, started_at, at, reason, message, stopped)


class World:
    """A machine on a virtual clock. Jobs use what they were promised as soon as they run.

    lingering  MiB by card that stay in use although nobody owns them.
    foreign    MiB by card in use outside the queue.
    """

    def __init__(self, *cards, settings=SETTINGS):
        self.now = 0.0
        self.cards = list(cards)
        self.lingering, self.foreign = {}, {}
        self.started_at, self.final, self.history, self.of_machine = {}, {}, [], []
        self.state = State.begin(settings)
        self.sample()

    def submit(self, *jobs):
        self.take(
            apply(
                self.state, Submitted(tuple(replace(j, submitted_at=self.now, since=self.now) for j in jobs)), self.now
            )
        )
        self.schedule()

    def tell(self, event):
        self.take(apply(self.state, event, self.now))
        self.schedule()

    def schedule(self):
        step = schedule(self.state, self.now)
        self.take(step)
        for job_id in [j.id for j in self.state.jobs.values() if j.phase is Phase.STARTING]:
            self.started_at[job_id] = self.now
            self.take(apply(self.state, Started(job_id, self.state.jobs[job_id].attempt, self.now), self.now))

    def end(self, job_id, code=0):
        self.tell(Exited(job_id, self.state.jobs[job_id].attempt, record(code, at=self.now)))

    def sample(self):
        self.see_cards()
        self.schedule()

    def see_cards(self):
        self.take(apply(self.state, Sampled(tuple(self.measured(gpu) for gpu in self.cards)), self.now))

    def sleep(self, seconds, *, tick=1.0):
        """Let time pass with a sample every tick, and a pass whenever the core's timer is due."""
        until = self.now + seconds
        while self.now < until:
            due = next_wakeup(self.state, self.now)
            assert due is None or due > self.now
            sampled = min(self.now + tick, until)
            if due is not None and due < sampled:
                self.now = due
                self.schedule()
            else:
                self.now = sampled
                self.sample()

    def phase(self, job_id):
        return self.state.jobs[job_id].phase if job_id in self.state.jobs else self.final[job_id].phase

    def running(self):
        return {job.id for job in self.state.jobs.values() if job.phase is Phase.RUNNING}

    def on_card(self, index):
        return {j.id for j in self.state.jobs.values() for g in j.grants if g.index == index}

    def measured(self, gpu):
        ours = {
            g.job_id: g.promised
            for j in self.state.jobs.values()
            for g in j.grants
            if g.gpu == gpu.uuid and j.phase is Phase.RUNNING and g.state is GrantState.HELD
        }
        used = sum(ours.values()) + self.foreign.get(gpu.index, 0) + self.lingering.get(gpu.index, 0)
        return replace(gpu, used=used, free=gpu.total - gpu.reserved - used, used_by_job=ours, sampled_at=self.now)

    def take(self, step):
        self.of_machine += [one for one in step.changes if isinstance(one, MachineChange)]
        changes = [one for one in step.changes if isinstance(one, Change)]
        self.history += changes
        for change in changes:
            if change.job.phase.final:
                self.final[change.job.id] = change.job
        self.state = step.state
