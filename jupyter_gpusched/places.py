"""Where things lie: the state folder, the socket, and how a host announces itself.

Host and client must agree on this without talking, so it is decided here alone. Knows
nothing about jobs. Folders are made 0700 and refused when they belong to somebody else.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

API = 1
"""Number of the conversation between client and host; a client of another number is told to upgrade."""

_LONGEST_SOCKET_PATH = 107  # sun_path of Linux, without the closing zero


class PlaceError(Exception):
    """A folder that cannot be used, with what to do about it."""


def state_folder(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """``$GPUSCHED_HOME``, else ``$XDG_STATE_HOME/jupyter-gpusched/<machine>``.

    The machine's name is part of the default, since home folders are often shared between machines.
    """
    if home := environ.get("GPUSCHED_HOME"):
        return Path(home).expanduser().absolute()
    state = environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "jupyter-gpusched" / (platform.node() or "localhost")


def private_folder(path: Path) -> Path:
    """Make a folder that only we can enter; refuse one that is not ours, or that cannot be made."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise PlaceError(
            f"{path} cannot be made: {error.strerror}; set GPUSCHED_HOME to a folder of your own"
        ) from error
    if not stat.S_ISDIR(info.st_mode):
        raise PlaceError(f"{path} is not a folder; set GPUSCHED_HOME to a folder of your own")
    if info.st_uid != os.geteuid():
        raise PlaceError(f"{path} belongs to uid {info.st_uid}; set GPUSCHED_HOME to a folder of your own")
    if info.st_mode & 0o077:
        path.chmod(0o700)
    return path


def passable_folder(path: Path, mode: int = 0o711) -> Path:
    """Make a folder of ours through which others may pass; refuse one that is not ours, or that they can write."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=mode, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise PlaceError(f"{path} cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise PlaceError(f"{path} is not a folder of uid {os.geteuid()}; move it away")
    if stat.S_IMODE(info.st_mode) != mode:
        path.chmod(mode)
    return path


def socket_path(state: Path, environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """The host's unix socket, named after the state folder, in the user's runtime folder or a private one."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(state))).hexdigest()[:16] + ".sock"
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and Path(runtime).stat().st_uid == os.geteuid():
        candidate = Path(runtime) / "jupyter-gpusched" / name
        if len(os.fsencode(candidate)) <= _LONGEST_SOCKET_PATH:
            return candidate
    return Path(f"/tmp/jupyter-gpusched-{os.geteuid()}") / name


@dataclass(frozen=True)
class HostRecord:
    """``host.json``: who hosts. ``simulated`` is the GPUSCHED_SIMULATE text it runs with, or null."""

    pid: int
    start_time: int
    boot_id: str
    epoch: int
    socket: str
    version: str
    api: int
    kind: str  # server | serve | daemon
    simulated: str | None
    instance: str


def write_host_record(state: Path, record: HostRecord) -> None:
    temporary = state / f".host.json.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(record), file)
    temporary.replace(state / "host.json")


def read_host_record(state: Path) -> HostRecord | None:
    """The published host, whether or not it still lives; None when there is none or it is unreadable."""
    try:
        raw = json.loads((state / "host.json").read_text())
        return HostRecord(**{name: raw[name] for name in HostRecord.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_host_record(state: Path, instance: str) -> None:
    """Take our own announcement back; a successor's is left alone."""
    record = read_host_record(state)
    if record is not None and record.instance == instance:
        (state / "host.json").unlink(missing_ok=True)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def host_alive(record: HostRecord) -> bool:
    """Whether the very process that wrote the record still runs (pid, start time and boot must match)."""
    return record.boot_id == boot_id() and start_time(record.pid) == record.start_time


def ask_host_to_stop(record: HostRecord) -> None:
    """Send SIGTERM to the very process that wrote the record, and to no other that got its number since."""
    try:
        descriptor = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        if host_alive(record):  # asked after the pidfd was opened: the number cannot be reused any more
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    finally:
        os.close(descriptor)
