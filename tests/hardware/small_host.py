"""Core, launcher and NVML provider on a real card, without store and API: what decides, starts and measures.

Needs the standard library and pynvml, so that it runs on a machine where nothing can be
installed. One device only, so that tests of sharing mean the same on one card and on eight.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpusched.core.messages import CancelRequested, Event, Launch, Sampled, SampleNow, StopAttempt, Submitted
from jupyter_gpusched.core.model import Gpu, Job, Kind, Priority, Request, Settings, Work
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.gpus.nvml import NvmlGpus
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch.local import LocalLauncher
from jupyter_gpusched.ports import ActiveGrant, LaunchOrder

INTERVAL_S = 0.25


class SmallHost:
    """``async with SmallHost(folder, uuid) as host``; what still runs at the end is ended."""

    def __init__(self, folder: Path, uuid: str) -> None:
        self._folder = folder
        self._uuid = uuid
        self._gpus = NvmlGpus()
        self._launcher = LocalLauncher(self._take)
        self._works: dict[str, Work] = {}
        self._look = asyncio.Event()
        self._moved = asyncio.Event()
        self.state = State.begin(Settings(cpus=os.cpu_count() or 1, memory=Mib(2**20)))
        self.ended: dict[str, Job] = {}

    async def __aenter__(self) -> SmallHost:
        self._sampling = asyncio.create_task(self._sample())
        await self.until(lambda: self.state.gpus, 30.0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for job_id, job in list(self.state.jobs.items()):
            if not job.phase.final:
                self.cancel(job_id, grace_s=0.0)
        await self.until(lambda: all(job.phase.final for job in self.state.jobs.values()), 30.0)
        self._sampling.cancel()
        await self._launcher.close()
        await self._gpus.close()

    # --- what a test asks -----------------------------------------------------------------

    def submit(self, *argv: str, vram: int | None, grace_s: float = 1.0) -> str:
        """Queue a command for this device; ``vram`` in MiB, None = the whole card."""
        number = len(self._works)
        job_id = f"hw{number:06}"
        now = time.time()
        self._works[job_id] = Work(kind=Kind.COMMAND, cwd=str(self._folder), env=dict(os.environ), argv=argv)
        job = Job(
            id=job_id,
            owner="me",
            kind=Kind.COMMAND,
            name=job_id,
            request=Request(vram=None if vram is None else Mib(vram)),
            priority=Priority.NORMAL,
            submitted_at=now + number * 1e-6,
            since=now,
        )
        self._take(Submitted((replace(job, grace_s=grace_s),)))
        return job_id

    def cancel(self, job_id: str, *, grace_s: float | None = None) -> None:
        self._take(CancelRequested(job_id, "me", grace_s))

    def job(self, job_id: str) -> Job:
        return self.state.jobs.get(job_id) or self.ended[job_id]

    def card(self) -> Gpu:
        return self.state.gpus[self._uuid]

    def pids(self, job_id: str) -> frozenset[int]:
        return self._launcher.pids(job_id, 1)

    def log(self, job_id: str) -> str:
        return files.read_log(self._folder / job_id, 1, 0, 2**20).decode(errors="replace")

    async def until(self, what: Callable[[], Any], seconds: float = 120.0) -> float:
        """Wait until it is true; how long that took."""
        start = time.monotonic()
        while not what():
            assert time.monotonic() - start < seconds, f"not within {seconds:.0f} s; {self.told()}"
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), 0.1)
            except asyncio.TimeoutError:
                continue
        return time.monotonic() - start

    async def final(self, job_id: str, seconds: float = 120.0) -> Job:
        await self.until(lambda: self.job(job_id).phase.final, seconds)
        return self.job(job_id)

    async def printed(self, job_id: str, text: str, seconds: float = 120.0) -> None:
        await self.until(lambda: text in self.log(job_id) or self.job(job_id).phase.final, seconds)
        assert text in self.log(job_id), f"{self.job(job_id).message}\n{self.log(job_id)}"

    def told(self) -> str:
        jobs = [f"{job_id} {self.job(job_id).phase.value}: {self.log(job_id)[-300:]!r}" for job_id in self._works]
        return f"{jobs}; {self.state.gpus}; {self._gpus.cause}"

    # --- what an engine does, without writing it down -----------------------------------------

    def _take(self, event: Event) -> None:
        now = time.time()
        step = apply(self.state, event, now)
        planned = schedule(step.state, now)
        self.state = planned.state
        for change in (*step.changes, *planned.changes):
            if change.job.phase.final:
                self.ended[change.job.id] = change.job
        for instruction in (*step.instructions, *planned.instructions):
            match instruction:
                case Launch(job_id, attempt):
                    folder = self._folder / job_id
                    self._launcher.launch(LaunchOrder(self.state.jobs[job_id], attempt, self._works[job_id], folder))
                case StopAttempt(job_id, attempt, reason, grace_s):
                    self._launcher.stop(self.state.jobs[job_id], attempt, reason, grace_s, self._folder / job_id)
                case SampleNow():
                    self._look.set()
        self._moved.set()

    async def _sample(self) -> None:
        while True:
            grants = [
                ActiveGrant(
                    grant, alive=self._launcher.alive(job.id, grant.attempt), pids=self._launcher.pids(job.id, 1)
                )
                for job in self.state.jobs.values()
                for grant in job.grants
            ]
            cards = await self._gpus.sample(grants, now=time.time())
            self._take(Sampled(tuple(card for card in cards if card.uuid == self._uuid)))
            self._look.clear()
            try:
                await asyncio.wait_for(self._look.wait(), INTERVAL_S)
            except asyncio.TimeoutError:
                continue
