"""Composition root of a host: configuration, state folder, lock, store, engine, API.

Owns the order of starting and stopping. Which process this runs in (Jupyter server,
daemon, later a system service) is the business of ``hosts``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio

from ._version import __version__
from .admission import Admission
from .api import routes
from .bodies import Bodies
from .callers import Doorkeeper, OwnerOnly
from .core.operations import SCHEDULER
from .desk import ENDLESS, LARGEST_BODY, Desk
from .drafts import PLAIN_PATH
from .engine import Engine
from .foresight import Foresight
from .gpus import open_provider
from .growth import Growth
from .history import History
from .launch.fence import Fence, build_fence
from .launch.homes import open_homes, uncontrolled
from .launch.local import LocalLauncher
from .launch.means import probe
from .launch.owners import Owners, ourselves
from .listening import MOST_OF_ONE, BoundedServer, bind
from .pace import Pace
from .places import (
    API,
    HostRecord,
    PlaceError,
    boot_id,
    passable_folder,
    private_folder,
    remove_host_record,
    socket_path,
    start_time,
    write_host_record,
)
from .retention import keep_clearing
from .settings import GpuSched
from .store import SqliteStore, refuse_emptied
from .tending import keep_checking, keep_pruning

log = logging.getLogger(__name__)

BUFFER = 64 * 2**20
"""Bytes of one connection that wait to be read; bodies pass through it piece by piece."""

SENT_S = 300.0
"""So long a body may take to be sent: what is there of it is in memory."""


class HostLock:
    """The exclusive lock of a state folder: who has it hosts. Freed by the kernel when its process dies."""

    def __init__(self, state: Path, *, folder: Callable[[Path], Path] = private_folder) -> None:
        self._path = folder(state) / "host.lock"
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Whether the lock is ours now. Raises ``PlaceError`` where files cannot be made or locked."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _no_lock(self._path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise _no_lock(self._path, error) from error
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _no_lock(path: Path, error: OSError) -> PlaceError:
    return PlaceError(f"{path} cannot be locked: {error.strerror}; set GPUSCHED_HOME to a folder on a local disk")


@dataclass(frozen=True)
class TcpAddress:
    """Where a host listens besides its socket; ``prefix`` may come before its paths, without a slash at its end."""

    host: str
    port: int
    prefix: str = ""

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class Access:
    """Who may come in, and where, and as whom jobs run. By default only the user who runs the host, by its socket.

    owners  finds the unix user of a job's owner.
    socket  where all users of the machine find the host; None = a private place.
    """

    doorkeeper: Doorkeeper = field(default_factory=OwnerOnly)
    tcp: TcpAddress | None = None
    owners: Owners = ourselves
    socket: Path | None = None

    def folder(self, path: Path) -> Path:
        """Make a folder of the host: others must get through to their jobs' where there are any."""
        return passable_folder(path) if self.for_others else private_folder(path)

    def found_by(self, path: Path) -> dict[str, str]:
        """How a job finds its host again, given the path of the host's socket."""
        return {"GPUSCHED_SOCKET": str(path)} if self.tcp is None else {"GPUSCHED_SERVICE_URL": self.tcp.url}

    @property
    def for_others(self) -> bool:
        """Whether jobs run as other users, who must reach their folders."""
        return self.owners is not ourselves


class Host:
    """A running scheduler on a state folder. The caller holds the ``HostLock`` while ``serve`` runs."""

    def __init__(self, state: Path, config: GpuSched, *, kind: str, access: Access | None = None) -> None:
        self._access = access or Access()
        self.state = self._access.folder(state)
        self.config = config
        self.kind = kind
        self.socket = self._access.socket or socket_path(self.state)
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
        jobs_folder = self._access.folder(self.state / "jobs")
        means = await anyio.to_thread.run_sync(lambda: probe(jobs_folder, cgroups=self.config.cgroups))
        settings = replace(settings, ends_with_server=means.ends_with_server)
        fence = await anyio.to_thread.run_sync(self._fence)
        launcher = partial(LocalLauncher, log_limit=self.config.log_bytes(), means=means)
        if not self._access.for_others:  # what is kept ready is ours, and could not become another's
            ready, prepared = self.config.supervisors_ready, self.config.cells_prepared
            launcher = partial(launcher, spares=ready, prepared=prepared)
        if self._access.for_others:
            passed_on = {"PATH": PLAIN_PATH, "LANG": "C.UTF-8", **self._access.found_by(self.socket)}
            homes = None if means.cgroups is None else open_homes(means.cgroups)
            launcher = partial(launcher, owners=self._access.owners, environ=passed_on, homes=homes, fence=fence)
            why = uncontrolled(homes)
            means = replace(means, counted_only=why, limits_host=why is None, isolation=self.config.isolation)
        store = await anyio.to_thread.run_sync(self._open_store, jobs_folder)
        instance = secrets.token_hex(8)
        try:
            epoch = await anyio.to_thread.run_sync(
                lambda: store.take_over(at=time.time(), host=f"{self.kind} pid {os.getpid()} {instance}")
            )
            engine = Engine(
                store=store,
                epoch=epoch,
                gpus=provider,
                launcher=launcher,
                settings=settings,
                jobs_folder=jobs_folder,
                clock=time.time,
                sample_interval_s=self.config.sample_interval_s,
            )
            record = self._record(epoch, instance)
            history = History(engine.folder, engine.clock)
            engine.observers.append(history.observe)
            foresight = Foresight(engine)
            engine.observers.append(foresight.observe)
            hides = (lambda _: None) if fence is None else fence.hides
            admission = Admission(engine, provider, self._access.owners, hides)
            growth = Growth(engine.folder)
            doorkeeper = self._access.doorkeeper
            self.desk = Desk(engine, admission, record, self.state, growth, history, means, doorkeeper, foresight)
            self.desk.limits_file = self.config.limits
            self.desk.bodies = Bodies(self.config.largest_body() or LARGEST_BODY)
            if self.config.requests_per_s and not isinstance(doorkeeper, OwnerOnly):
                self.desk.pace = Pace(self.config.requests_per_s, self.config.requests_at_once, time.monotonic)
            await self._run(engine, self.desk, record, until, started)
        finally:
            await provider.close()
            await anyio.to_thread.run_sync(store.close)

    def _fence(self) -> Fence | None:
        """Raises ``PlaceError`` where jobs are to be isolated and cannot be."""
        if self.config.isolation == "none":
            return None
        try:
            if not self._access.for_others:
                raise OSError("only jobs of a service for several users are isolated")
            shown = [] if self._access.socket is None else [self.socket.parent]
            return build_fence(shown=shown, simulated=self.config.simulation() is not None)
        except OSError as error:
            raise PlaceError(f'isolation = "{self.config.isolation}": {error}; set "none", or mend that') from None

    def _open_store(self, jobs_folder: Path) -> SqliteStore:
        path = self.state / "gpusched.sqlite"
        refuse_emptied(path, jobs_folder)
        return SqliteStore(path)

    async def _run(
        self,
        engine: Engine,
        desk: Desk,
        record: HostRecord,
        until: Callable[[Desk], Awaitable[None]],
        started: Callable[[], None],
    ) -> None:
        tcp = self._access.tcp
        application = routes(desk, "" if tcp is None else tcp.prefix)
        of_one = None if isinstance(desk.doorkeeper, OwnerOnly) else MOST_OF_ONE
        server = BoundedServer(
            application, max_body_size=ENDLESS, max_buffer_size=BUFFER, body_timeout=SENT_S, most_of_one=of_one
        )
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(engine.run)
                server.add_socket(bind(self.socket, shared=self._access.socket is not None))
                if tcp is not None:
                    server.listen(tcp.port, tcp.host)
                write_host_record(self.state, record)
                log.info("hosting %s on %s (epoch %d)", self.state, self.socket, record.epoch)
                started()
                tasks.start_soon(desk.history.keep)
                tasks.start_soon(desk.foresight.keep)
                tasks.start_soon(_ends, engine.fenced.wait, tasks.cancel_scope)
                tasks.start_soon(_ends, lambda: until(desk), tasks.cancel_scope)
                tasks.start_soon(self._tend, engine, desk.admission)
            if engine.fenced.is_set():
                log.warning("another host has taken over %s; this one stops", self.state)
        finally:
            desk.close()
            server.stop()
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await server.close_all_connections()
            remove_host_record(self.state, record.instance)

    async def _tend(self, engine: Engine, admission: Admission) -> None:
        config = self.config
        delete = partial(admission.delete, by=SCHEDULER)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: keep_pruning(engine, days=config.events_kept_days, most=config.events_kept))
            tasks.start_soon(lambda: keep_clearing(engine, delete, days=config.jobs_kept_days, most=config.jobs_kept))
            if command := shlex.split(config.quarantine_check):
                every_s, timeout_s = config.quarantine_check_interval_s, config.quarantine_check_timeout_s
                tasks.start_soon(lambda: keep_checking(engine, command, every_s=every_s, timeout_s=timeout_s))

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
