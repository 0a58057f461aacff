"""Processes of other sessions as the host holds them: by a descriptor that no reuse of the pid can fool.

Owns pidfds and the question whether a pid still is the process that a record names. It signals
only what it has verified, or what bears the marker of one attempt.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Any

from jupyter_gpusched.runner import cgroup
from jupyter_gpusched.runner.tree import bearers, boot_id, children, read_proc, send, send_all, start_time

_SYS_PIDFD_OPEN = 434  # the same on every architecture


def hold(pid: int, started: int | None, *, ours: bool = False, uid: int | None = None) -> int | None:
    """A pidfd of that very process; None when it is gone.

    ours  our own child, not reaped yet: its pid cannot mean another process.
    uid   whose it must be; another's counts as gone.
    Raises ``NotImplementedError`` where the kernel (before 5.3) has no pidfds.
    """
    try:
        held = _pidfd_open(pid)
    except ProcessLookupError:
        return None
    if ours or (started is not None and belongs_to(pid, uid) and start_time(pid) == started):
        return held
    os.close(held)
    return None


def ended(pid: int, started: int | None, uid: int | None = None) -> bool:
    """Whether that process is gone or a zombie, for where it cannot be held."""
    whose = belongs_to(pid, uid)
    now = start_time(pid)
    return now is None or not whose or (started is not None and now != started)


def belongs_to(pid: int, uid: int | None) -> bool:
    """Whether a process runs as this user, and as nobody else besides; None = whose it is does not matter.

    Asked before the start time is compared: if that is right afterwards, it was the same process.
    """
    if uid is None:
        return True
    lines = read_proc(f"{pid}/status").split(b"\n")
    uids = next((line.split()[1:] for line in lines if line.startswith(b"Uid:")), [])
    return bool(uids) and all(int(one) == uid for one in uids)


def _pidfd_open(pid: int) -> int:
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)  # an interpreter built on old kernel headers, as conda's was
    held = int(libc.syscall(_SYS_PIDFD_OPEN, pid, 0))
    if held >= 0:
        os.set_inheritable(held, False)
        return held
    number = ctypes.get_errno()
    if number == 38:
        raise NotImplementedError("this kernel has no pidfds; Linux 5.3 or newer is needed")
    raise OSError(number, os.strerror(number))


def is_living(record: dict[str, Any]) -> bool:
    """Whether the process that a record names (pid, start_time) is there and not just a zombie."""
    return record.get("start_time") is not None and start_time(int(record["pid"])) == record["start_time"]


def identity(pid: int) -> dict[str, Any]:
    """The process that has this pid now, as a record names it."""
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}


def of_this_boot(record: dict[str, Any]) -> bool:
    return record.get("boot_id") == boot_id()


def terminate(record: dict[str, Any], uid: int | None = None) -> bool:
    """SIGTERM to the process that a record of this boot names, also if it was stopped; False when it is gone.

    uid  whose it must be; another's counts as gone.
    """
    if not of_this_boot(record) or not belongs_to(int(record["pid"]), uid) or not is_living(record):
        return False
    with suppress(ProcessLookupError):
        for number in (signal.SIGTERM, signal.SIGCONT):
            send(int(record["pid"]), int(record["start_time"]), number)
        return True
    return False


def ask_to_end(supervisor: int, spare_since: int | None) -> None:
    """SIGTERM to a supervisor that we know without its claim.

    spare_since  its start time; None of our own child, which is not reaped yet: its pid means no other.
    """
    if spare_since is None:
        os.kill(supervisor, signal.SIGTERM)
    else:
        send(supervisor, spare_since, signal.SIGTERM)


def descendants(pid: int) -> frozenset[int]:
    """All processes below this one, itself left out."""
    found: set[int] = set()
    unseen = children(pid)
    while unseen:
        child = unseen.pop()
        if child not in found:
            found.add(child)
            unseen += children(child)
    return frozenset(found)


def kill_left(
    marker: str | None, main: dict[str, Any] | None, home: str | None = None, *, uid: int | None = None
) -> list[int]:
    """SIGKILL what is left of an attempt whose supervisor is gone; the pids that were still there.

    home  its cgroup; taken away once it is empty.
    uid   whose processes they must be: others are left alone.
    """
    left = bearers(f"GPUSCHED_MARKER={marker}".encode()) if marker else {}
    if main is not None and is_living(main):
        pids = {int(main["pid"]), *descendants(int(main["pid"]))}
        left |= {pid: started for pid in pids if (started := start_time(pid)) is not None}
    left |= cgroup.members(home) if home is not None else {}
    left = {pid: started for pid, started in left.items() if belongs_to(pid, uid)}
    send_all(left, signal.SIGKILL)
    if home is not None:
        cgroup.kill(home)
        cgroup.remove(home)
    return sorted(left)


def booted_at() -> float:
    """When this machine started, in seconds since the epoch."""
    words = read_proc("stat").split()
    return float(words[words.index(b"btime") + 1])
