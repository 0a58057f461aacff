"""Composition root of a host: configuration, state folder, lock, store, engine, API.

Owns the order of starting and stopping. Which process this runs in (Jupyter server,
daemon, later a system service) is the business of ``hosts``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from tornado.httpserver import HTTPServer
from traitlets import Float, Unicode
from traitlets import Integer as Int
from traitlets.config import Configurable

from ._version import __version__
from .admission import Admission
from .api import routes
from .core.model import Settings
from .core.quantities import Mib, parse_mib
from .desk import ENDLESS, Desk
from .engine import Engine
from .gpus import open_provider
from .growth import Growth
from .launch.local import LocalLauncher
from .places import (
    API,
    HostRecord,
    boot_id,
    private_folder,
    remove_host_record,
    socket_path,
    start_time,
    write_host_record,
)
from .policy_choice import choose_policy
from .store import SqliteStore

log = logging.getLogger(__name__)

BUFFER = 64 * 2**20
"""Bytes of one connection that wait to be read; bodies pass through it piece by piece."""


class GpuSched(Configurable):
    """What an administrator may set, in ``jupyter_server_config.py``, ``jupyter_gpusched_config.py`` or as options."""

    simulate = Unicode(
        None,
        allow_none=True,
        help="Simulated cards instead of real ones: count x size, `2x24G`, or a list, `1x24564M,1x48G`. "
        "The environment variable GPUSCHED_SIMULATE goes before it.",
    ).tag(config=True)
    cpus = Int(0, help="CPUs that jobs which ask for them may share; 0 = all that this process may use.").tag(
        config=True
    )
    memory = Unicode("", help="Host memory that jobs which ask for it may share: `64G`; empty = all there is.").tag(
        config=True
    )
    headroom = Unicode(
        "",
        help="Memory kept free on each card: `512M`; empty = the larger of 256 MiB and 1 % on real cards, "
        "nothing on simulated ones.",
    ).tag(config=True)
    policy = Unicode(
        "default",
        help="Who goes first: `default`, `fifo`, `backfill`, `fair`, or a policy of your own as `module:factory`.",
    ).tag(config=True)
    claim_after_s = Float(
        14400.0, min=0.0, help="Seconds that a job may be passed by others at least before cards are kept for it."
    ).tag(config=True)
    compute_limit = Float(
        2.0,
        min=0.0,
        help="How often over the jobs on one card may fill its processors, as far as that has been seen; 0 = no limit.",
    ).tag(config=True)
    sample_interval_s = Float(1.0, min=0.1, help="Seconds between two looks at the cards.").tag(config=True)
    stale_after_s = Float(10.0, min=1.0, help="Seconds after which a sample of a card places nothing.").tag(config=True)
    release_timeout_s = Float(
        60.0, min=0.0, help="Seconds that an ended job's memory may stay on a card before it counts as foreign use."
    ).tag(config=True)
    foreign_limit = Unicode("512M", help="Foreign use of a card with which a whole-card job still starts.").tag(
        config=True
    )

    def settings(self) -> Settings:
        return Settings(
            cpus=self.cpus or len(os.sched_getaffinity(0)),
            memory=parse_mib(self.memory) if self.memory else _machine_memory(),
            headroom=parse_mib(self.headroom) if self.headroom else None,
            claim_after_s=self.claim_after_s,
            stale_after_s=self.stale_after_s,
            release_timeout_s=self.release_timeout_s,
            foreign_limit=parse_mib(self.foreign_limit),
            compute_limit=self.compute_limit,
            policy=choose_policy(self.policy),
        )

    def simulation(self) -> str | None:
        """What is simulated, or None for real cards."""
        return os.environ.get("GPUSCHED_SIMULATE") or self.simulate or None


def _machine_memory() -> Mib:
    return Mib(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20)


class HostLock:
    """The exclusive lock of a state folder: who has it hosts. Freed by the kernel when its process dies."""

    def __init__(self, state: Path) -> None:
        self._path = private_folder(state) / "host.lock"
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Host:
    """A running scheduler on a state folder. The caller holds the ``HostLock`` while ``serve`` runs."""

    def __init__(self, state: Path, config: GpuSched, *, kind: str) -> None:
        self.state = private_folder(state)
        self.config = config
        self.kind = kind
        self.socket = socket_path(self.state)
        self.desk: Desk | None = None

    async def serve(
        self, until: Callable[[Desk], Awaitable[None]], *, started: Callable[[], None] = lambda: None
    ) -> None:
        """Open everything, answer requests while ``until`` runs, and close everything again.

        until    given the desk (for idleness and the like); its end is the host's end.
        started  called once requests are answered and ``host.json`` says so.
        Returns early when another host took over. Running jobs go on.
        """
        provider = open_provider(self.config.simulation(), remembered=self.state / "cards.json")
        settings = self.config.settings()
        jobs_folder = private_folder(self.state / "jobs")
        store = await anyio.to_thread.run_sync(SqliteStore, self.state / "gpusched.sqlite")
        instance = secrets.token_hex(8)
        try:
            epoch = await anyio.to_thread.run_sync(
                lambda: store.take_over(at=time.time(), host=f"{self.kind} pid {os.getpid()} {instance}")
            )
            engine = Engine(
                store=store,
                epoch=epoch,
                gpus=provider,
                launcher=LocalLauncher,
                settings=settings,
                jobs_folder=jobs_folder,
                clock=time.time,
                sample_interval_s=self.config.sample_interval_s,
            )
            record = self._record(epoch, instance)
            self.desk = Desk(engine, Admission(engine, provider), record, self.state, Growth(engine.folder))
            await self._run(engine, self.desk, record, until, started)
        finally:
            await provider.close()
            await anyio.to_thread.run_sync(store.close)

    async def _run(
        self,
        engine: Engine,
        desk: Desk,
        record: HostRecord,
        until: Callable[[Desk], Awaitable[None]],
        started: Callable[[], None],
    ) -> None:
        server = HTTPServer(routes(desk), max_body_size=ENDLESS, max_buffer_size=BUFFER)
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(engine.run)
                server.add_socket(bind(self.socket))
                write_host_record(self.state, record)
                log.info("hosting %s on %s (epoch %d)", self.state, self.socket, record.epoch)
                started()
                tasks.start_soon(_ends, engine.fenced.wait, tasks.cancel_scope)
                tasks.start_soon(_ends, lambda: until(desk), tasks.cancel_scope)
            if engine.fenced.is_set():
                log.warning("another host has taken over %s; this one stops", self.state)
        finally:
            desk.closing.set()
            server.stop()
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await server.close_all_connections()
            remove_host_record(self.state, record.instance)

    def _record(self, epoch: int, instance: str) -> HostRecord:
        return HostRecord(
            pid=os.getpid(),
            start_time=start_time(os.getpid()) or 0,
            boot_id=boot_id(),
            epoch=epoch,
            socket=str(self.socket),
            version=__version__,
            api=API,
            kind=self.kind,
            simulated=self.config.simulation(),
            instance=instance,
        )


async def _ends(wait: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
    await wait()
    scope.cancel()


def bind(path: Path) -> socket.socket:
    """Listen on the host's socket. The lock is ours, so a file left there belongs to a dead host."""
    private_folder(path.parent)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    listener.bind(str(path))
    path.chmod(0o600)  # nobody else can enter the folder meanwhile
    listener.listen(512)
    return listener
