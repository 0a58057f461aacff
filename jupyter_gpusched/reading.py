"""What a job wrote and left, for those who may see it: its log, its outputs, its results.

Reads by ``desk.readers`` in the job's folder, whose files are as its owner likes; whole answers are never in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from tornado.httputil import HTTPOutputError
from tornado.iostream import StreamClosedError

from . import wire
from .core.model import BadRequest, GpuSchedError, Job, UnknownJob
from .desk import Handler
from .launch import attempt as files
from .launch.logs import log_size, read_chunk
from .targets import find_one

LARGEST_CHUNK = 8 * 2**20
PIECE = 2**20
"""So much of a result is in memory at a time."""

_Result = TypeVar("_Result")


class OfJob(Handler):
    """Requests about one job of the caller's."""

    async def find(self, job_id: str) -> Job:
        return await find_one(job_id, self.desk.engine, self.caller.sees)

    async def read(self, function: Callable[[], _Result]) -> _Result:
        """What it reads in a job's folder, in its turn."""
        return await self.desk.readers.read(self.caller.user, function)

    def attempt_of(self, job: Job) -> int:
        number = self.number("attempt", job.attempt)
        if number != job.attempt and number not in {attempt.number for attempt in job.attempts}:
            raise BadRequest(f"attempt: job {job.id} has no attempt {number}.", field="attempt")
        return int(number)


class LogHandler(OfJob):
    """GET jobs/ID/log: the bytes that an attempt wrote, from ``offset``; a header says where to go on."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        number, folder = self.attempt_of(job), self.desk.engine.folder(job.id)
        offset, limit = int(self.number("offset", 0)), int(self.number("limit", LARGEST_CHUNK, most=LARGEST_CHUNK))
        chunk, size = await self.read(lambda: (read_chunk(folder, number, offset, limit), log_size(folder, number)))
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("X-Gpusched-Log-Size", str(size))
        self.set_header("X-Gpusched-Log-Next", str(chunk.following))
        self.finish(chunk.data)


class OutputsHandler(OfJob):
    """GET jobs/ID/outputs: nbformat outputs from number ``after`` on; of many the ``newest`` bytes."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        number, folder = self.attempt_of(job), self.desk.engine.folder(job.id)
        after = int(self.number("after", 0))
        final = job.phase.final or number != job.attempt
        asked = self.number("newest")
        newest = None if asked is None else int(asked)

        def read() -> wire.Outputs:
            if self.request.connection.stream.closed():  # type: ignore[union-attr]
                return wire.Outputs(items=[], next=after, final=False, left_out=False)  # nobody waits any more
            items, following, left_out = files.newest_outputs(folder, number, after, final=final, newest=newest)
            return wire.Outputs(items=items, next=following, final=final, left_out=left_out)

        self.answer(await self.read(read))


class ResultHandler(OfJob):
    """GET jobs/ID/result/NAME: the pickled value that the job left under this name."""

    async def get(self, job_id: str, name: str) -> None:
        job = await self.find(job_id)
        with ExitStack() as stack:
            result = files.opened_result(self.desk.engine.folder(job.id), name)
            found = await self.read(lambda: stack.enter_context(result))
            if found is None:
                raise UnknownResult(job.id, name)
            self.set_header("Content-Type", "application/octet-stream")
            self.set_header("Content-Length", str(os.fstat(found).st_size))
            try:
                while piece := await self.read(lambda: os.read(found, PIECE)):
                    self.write(piece)
                    await self.flush()  # no faster than it is taken
            except (HTTPOutputError, StreamClosedError):  # it was made shorter or longer meanwhile, or nobody reads on
                self._break_off()
            else:
                self.finish()

    def _break_off(self) -> None:
        """A half answer must not look like a whole one."""
        if not self.request.connection.stream.closed():  # type: ignore[union-attr]
            self.request.connection.stream.close()  # type: ignore[union-attr]


class UnknownResult(UnknownJob):
    code = "unknown_result"

    def __init__(self, job_id: str, name: str) -> None:
        GpuSchedError.__init__(
            self, f"Job {job_id} left no result {name!r}.", field="name", hint="Ask for results with `--out NAME`."
        )
