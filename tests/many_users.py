"""A host for several users inside the test, whose doorkeeper believes a header: who may what, without unix accounts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
from rest import Reply, Rest
from waiting import DEADLINE_S

from jupyter_gpusched.callers import Caller
from jupyter_gpusched.core.model import Foreign, Gpu, Unauthorized
from jupyter_gpusched.desk import Desk
from jupyter_gpusched.service import Access, Host, HostLock
from jupyter_gpusched.settings import GpuSched

ADMINS = {"root2"}


class ByHeader:
    """Believes the header X-User, which only a test may."""

    def __init__(self, groups: dict[str, tuple[str, ...]], home: Path) -> None:
        self._groups, self._home = groups, home

    async def knows(self, user: str) -> bool:
        return True

    def administrators(self) -> str:
        return ", ".join(sorted(ADMINS))

    async def caller(self, request) -> Caller:
        user = request.headers.get("X-User")
        if user is None:
            raise Unauthorized("This request says not whose it is.")
        return Caller(user, None, str(self._home), self._groups.get(user, ()), user in ADMINS)


class OutsideUse:
    """What processes beside the queue have on simulated cards, by index; ``of`` a host whose cards show it."""

    def __init__(self, host: Lab) -> None:
        self.on: dict[int, Foreign] = {}
        provider = host.desk.engine.gpus
        look = provider.sample

        async def sample(grants, *, now):
            return tuple(self._shown(gpu) for gpu in await look(grants, now=now))

        provider.sample = sample

    def _shown(self, gpu: Gpu) -> Gpu:
        process = self.on.get(gpu.index)
        if process is None:
            return gpu
        used = min(gpu.total, (gpu.used or 0) + (process.vram or 0))
        return replace(gpu, used=used, free=gpu.total - used, utilization_pct=0.0, foreign=(process,))


class Loads:
    """How busy simulated cards say that they are, all of them; ``pct`` None = they do not tell."""

    pct: float | None = None

    def __init__(self, host: Lab) -> None:
        provider = host.desk.engine.gpus
        look = provider.sample

        async def sample(grants, *, now):
            return tuple(replace(gpu, utilization_pct=self.pct) for gpu in await look(grants, now=now))

        provider.sample = sample


class Lab:
    """``ask(user, method, path, body)`` of a running host."""

    def __init__(self, desk: Desk, host: Host) -> None:
        self.desk, self.host = desk, host

    def ask(self, user: str | None, method: str, path: str, body: object = None) -> Reply:
        rest = Rest(str(self.host.socket))
        try:
            return rest(method, path, body, **({} if user is None else {"X-User": user}))
        finally:
            rest.close()

    def submit(self, user: str, *argv: str, **spec: object) -> str:
        reply = self.ask(user, "POST", "jobs", {"argv": list(argv), "gpus": 0, **spec})
        assert reply.status == 201, reply.body
        return reply.json["id"]


@contextmanager
def lab(
    state: Path, home: Path, *, groups: dict[str, tuple[str, ...]] | None = None, **settings: object
) -> Iterator[Lab]:
    """A host with two simulated cards, unless told otherwise, on a thread of its own."""
    usual = {"simulate": "2x24564M", "cpus": 16, "requests_per_s": 0}  # tests look more often than a user may
    config = GpuSched(**{**usual, **settings})
    host = Host(state, config, kind="serve", access=Access(ByHeader(groups or {}, home)))
    ready, began = threading.Event(), []

    async def serve() -> None:
        stop = anyio.Event()
        token = anyio.lowlevel.current_token()

        async def until(desk: Desk) -> None:
            began.append((desk, lambda: anyio.from_thread.run_sync(stop.set, token=token)))
            await stop.wait()

        await host.serve(until, started=ready.set)

    lock = HostLock(state)
    assert lock.acquire()
    thread = threading.Thread(target=anyio.run, args=(serve,), daemon=True)
    thread.start()
    try:
        assert ready.wait(DEADLINE_S), "the host does not start"
        while not began:
            ready.wait(0.01)
        yield Lab(began[0][0], host)
    finally:
        if began:
            began[0][1]()
        thread.join(DEADLINE_S)
        lock.release()
