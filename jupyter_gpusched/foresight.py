"""When waiting jobs will probably start, kept ready for whoever looks at them.

Foretelling is costly, so it is done beside the engine's loop, only while somebody asks after
waiting jobs, and so seldom that it takes no more than a small part of one processor. Decides
nothing, and nothing waits for it but a person who asks after one job.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence

import anyio
import anyio.to_thread

from .core.estimate import Start, foretold
from .core.model import Job, JobId
from .core.state import State
from .engine import Engine
from .ports import Recorded

log = logging.getLogger(__name__)

MOST_RECENT = 256
"""So many of the latest submissions say what will be submitted next."""

LEAST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
SHARE = 0.02
"""Most of one processor's time that it may take."""


class Foresight:
    """``observe`` is called inside the engine's loop and never blocks; ``keep`` works beside it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._starts: Mapping[JobId, Start] = {}
        self._recent: deque[Job] = deque(maxlen=MOST_RECENT)
        self._read = False  # whether what was submitted to earlier hosts is among the recent ones
        self._changes = 0  # of anything that was written down
        self._known = -1  # as many of them as the latest forecast knows of
        self._rests_until = 0.0
        self._wanted = anyio.Event()
        self._told = anyio.Event()

    def observe(self, recorded: Sequence[Recorded], state: State, *, sampled: bool) -> None:  # noqa: ARG002
        self._changes += len(recorded)
        self._recent += [one.job for one in recorded if one.job is not None and one.kind == "submitted"]

    def start(self, job_id: JobId) -> Start | None:
        """What was foretold last of a job that waits; None if nothing was. Whoever asks has it renewed."""
        state, now = self._engine.state, self._engine.clock()
        job = state.jobs.get(job_id)
        if state.operations.drain is not None or (job is not None and job.set_aside):
            return None  # of what was foretold before
        start = self._starts.get(job_id)
        if self._known != self._changes or (start is not None and start.at < now):
            self._wanted.set()
        if start is None or start.latest < now:
            return None
        return Start(max(now, start.at), max(now, start.earliest), start.latest)

    async def renewed(self, patience_s: float) -> None:
        """Return once what is foretold knows of all that has happened; at once while it may not be renewed yet."""
        with anyio.move_on_after(patience_s):
            while self._known != self._changes and time.monotonic() >= self._rests_until:
                self._wanted.set()
                await self._told.wait()

    async def keep(self) -> None:
        """Foretell whenever somebody has asked; for ever."""
        while True:
            await self._wanted.wait()
            pause_s = min(LONGEST_PAUSE_S, max(LEAST_PAUSE_S, await self._foretell() / SHARE))
            self._rests_until = time.monotonic() + pause_s
            self._wanted = anyio.Event()
            await anyio.sleep(pause_s)

    async def _foretell(self) -> float:
        """Returns what it cost, in seconds of a processor."""
        changes = self._changes
        try:
            if not self._read:
                await self._read_earlier()
            self._starts, cost_s = await anyio.to_thread.run_sync(self._look, self._engine.state, tuple(self._recent))
        except Exception:  # whoever only looks ahead must never stop the queue
            log.exception("the starts of waiting jobs could not be foretold")
            self._starts, cost_s = {}, LONGEST_PAUSE_S
        self._known = changes
        self._told.set()
        self._told = anyio.Event()
        return cost_s

    def _look(self, state: State, recent: Sequence[Job]) -> tuple[Mapping[JobId, Start], float]:
        began = time.thread_time()
        return foretold(state, self._engine.clock(), recent), time.thread_time() - began

    async def _read_earlier(self) -> None:
        """What was submitted before this host began, put before what has been since."""
        jobs = await anyio.to_thread.run_sync(lambda: self._engine.store.jobs(limit=MOST_RECENT))
        seen = {job.id for job in self._recent}
        earlier = [job for job in jobs if job.id not in seen][: MOST_RECENT - len(self._recent)]
        self._recent.extendleft(earlier)
        self._read = True
