"""Where the host is: asks the places of the design in their order, and starts one where that is wanted.

Never speaks about jobs. Two programs may start a host at once: the lock in the state folder
lets one win, and both wait for what the winner publishes.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import places, transport
from .core.model import GpuSchedError
from .hub_address import HubAddress, hub_address
from .wire import PREFIX

SYSTEM_SOCKET = "/run/jupyter-gpusched/host.sock"
SYSTEM_STATE = "/var/lib/jupyter-gpusched"
START_DEADLINE_S = 20.0
_POLL_S = 0.02
_RESTART_AFTER_S = 2.0
_LOG_LINES = 8

DAEMON = ("-m", "jupyter_gpusched.hosts.daemon", "--auto")
"""What Python is asked to run when a host is started."""

_OF_ONE_ATTEMPT = (
    "GPUSCHED_JOB_ID",
    "GPUSCHED_ATTEMPT",
    "GPUSCHED_VRAM_MIB",
    "GPUSCHED_GPUS",
    "GPUSCHED_CHECKPOINT_DIR",
    "GPUSCHED_STOP_FILE",
    "GPUSCHED_MARKER",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
)


class HostUnreachable(GpuSchedError):
    """There is no host, or it does not answer; ``hint`` says what to do."""

    code = "no_host"


@dataclass
class _Search:
    """What was looked at in vain, for the message."""

    state: Path
    environ: Mapping[str, str]
    tried: list[str] = field(default_factory=list)

    def failed(self, hint: str) -> HostUnreachable:
        tried = "; ".join(self.tried)
        return HostUnreachable(f"No jupyter-gpusched host can be reached ({tried}).", hint=hint)


def find_host(environ: Mapping[str, str], *, start: bool) -> str | HubAddress:
    """The path of the host's socket, or the Hub's service: that one is for whoever asks it to say if it is there.

    Raises ``HostUnreachable`` listing what was tried, or what is wrong with the environment.
    """
    search = _Search(places.state_folder(dict(environ)), environ)
    if given := environ.get("GPUSCHED_SOCKET"):
        return _given(given, search)
    if (service := hub_address(environ)) is not None:
        return service
    found = _system_service(environ, search) or _published(search)
    if found is not None:
        return found
    if (sign := sign_of_a_service(environ)) is not None:
        raise _service_is_down(sign)
    if not start:
        raise search.failed("Start one with `jupyter gpusched serve`; submitting a job starts one too.")
    if environ.get("GPUSCHED_AUTOSTART") == "0":
        raise search.failed("GPUSCHED_AUTOSTART=0 forbids starting one: run `jupyter gpusched serve`.")
    return _start(environ, search)


def sign_of_a_service(environ: Mapping[str, str]) -> str | None:
    """The folder by which a machine says that it has a service, running or not; None where a host of one's own may be.

    The service's state folder outlives its stop and a restart of the machine, the folder of its socket a kill.
    Only root can have made them. Whoever names a state folder, or simulates, has chosen a host of their own.
    """
    if environ.get("GPUSCHED_HOME") or environ.get("GPUSCHED_SIMULATE"):
        return None
    return next((path for path in (SYSTEM_STATE, str(Path(SYSTEM_SOCKET).parent)) if _is_folder_of_root(path)), None)


def _is_folder_of_root(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == 0


def _service_is_down(sign: str) -> HostUnreachable:
    return HostUnreachable(
        f"The queue of this machine (service jupyter-gpusched) is not running; {sign} says that there is one.",
        hint="Tell its administrator, or wait and try again.",
    )


def start_daemon(environ: Mapping[str, str]) -> None:
    """Start a daemon for the state folder and do not wait: it hosts unless somebody else does by then."""
    _Daemon(environ, places.private_folder(places.state_folder(dict(environ))))


def _given(socket: str, search: _Search) -> str:
    search.tried.append(f"GPUSCHED_SOCKET={socket}")
    if _usable(socket, search):
        return socket
    raise search.failed("Start the host that listens there, or unset GPUSCHED_SOCKET.")


def _system_service(environ: Mapping[str, str], search: _Search) -> str | None:
    """A system service always wins on real cards, so that two engines never share them."""
    if environ.get("GPUSCHED_SIMULATE"):
        return None
    search.tried.append(SYSTEM_SOCKET)
    return SYSTEM_SOCKET if _usable(SYSTEM_SOCKET, search) else None


def _published(search: _Search) -> str | None:
    """The host that the state folder names, if it lives and listens."""
    record = places.read_host_record(search.state)
    search.tried.append(str(search.state / "host.json"))
    if record is None:
        return None
    if not places.host_alive(record):
        search.tried[-1] += f": host {record.pid} has ended"
        return None
    if record.kind != "serve" and sign_of_a_service(search.environ) is not None:
        return None  # nobody asked for it by name, and it would get round the service's limits
    return record.socket if _usable(record.socket, search) else None


def _usable(socket: str, search: _Search) -> bool:
    try:
        listening = transport.accepts(socket)
    except transport.ForeignSocket as error:
        search.tried[-1] += f": {error}"
        return False
    if not listening:
        search.tried[-1] += ": nobody listens"
    return listening


# --- starting one -------------------------------------------------------------------------


def _start(environ: Mapping[str, str], search: _Search) -> str:
    """Start a daemon and wait until a host, ours or a quicker one, answers."""
    try:
        places.private_folder(search.state)
    except (places.PlaceError, OSError) as error:
        raise HostUnreachable(f"A host cannot be started: {error}.", hint="Check GPUSCHED_HOME.") from error
    deadline = time.monotonic() + START_DEADLINE_S
    daemon = _Daemon(environ, search.state)
    while time.monotonic() < deadline:
        socket = _published(_Search(search.state, environ))
        if socket is not None and _answers(socket):
            return socket
        daemon.look()
        time.sleep(_POLL_S)
    raise HostUnreachable(
        f"The host that was started did not answer within {START_DEADLINE_S:.0f} seconds.",
        hint=f"See {daemon.log}.{daemon.last_words()}",
    )


def _answers(socket: str) -> bool:
    asking = transport.Transport(socket, {})
    try:
        return asking.request("GET", f"{PREFIX}/health", timeout_s=5.0).status > 0
    except (transport.ConnectionLost, transport.ForeignSocket, TimeoutError):
        return False
    finally:
        asking.close()


class _Daemon:
    """The process that we started; its log belongs to the state folder."""

    def __init__(self, environ: Mapping[str, str], state: Path) -> None:
        self.log = state / "daemon.log"
        self._environ = _for_a_daemon(environ, state)
        self._log_before = self.log.stat().st_size if self.log.exists() else 0
        self._launch()

    def look(self) -> None:
        """Raise when it failed. One that lost against another host ends well; if that one goes too, try again."""
        code = self._process.returncode
        if code == 0 and time.monotonic() - self._launched > _RESTART_AFTER_S:
            self._launch()
        elif code:
            raise HostUnreachable(
                f"The host could not be started (exit code {code}).{self.last_words()}",
                hint=f"The whole log is {self.log}.",
            )

    def last_words(self) -> str:
        """The last lines that it wrote since we started it, for a message."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_before)
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        return "\n  " + "\n  ".join(lines[-_LOG_LINES:]) if lines else ""

    def _launch(self) -> None:
        self._launched = time.monotonic()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *DAEMON],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self._environ,
                start_new_session=True,
            )
        finally:
            os.close(log)
        # It outlives us or we outlive it: somebody must take its exit status, or it stays a zombie.
        threading.Thread(target=self._process.wait, name="gpusched-daemon-reaper", daemon=True).start()


def _for_a_daemon(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """The environment without what belongs to one attempt, in case a job of ours starts the host.

    A state folder that was named is named in full: the daemon is not where we are.
    """
    inside_a_job = "GPUSCHED_JOB_ID" in environ
    named = {"GPUSCHED_HOME": str(state)} if environ.get("GPUSCHED_HOME") else {}
    kept = {name: value for name, value in environ.items() if not (inside_a_job and name in _OF_ONE_ATTEMPT)}
    return kept | named
