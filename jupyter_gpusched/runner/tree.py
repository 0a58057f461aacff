"""Processes as /proc shows them: which belong to an attempt, and how that very one is signalled.

Shared by the supervisor and the host. A process is its pid and its start time; no signal is
sent to anything else, and nothing here decides whether to send one. ``signal`` and ``ctypes``
are not imported, since they would double the supervisor's time to start.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

from .native import call
from .records import read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends, so that none can leave the tree.

    ``prctl(PR_SET_CHILD_SUBREAPER)``. False where it cannot be called: the marker in the environment still finds them.
    """
    try:
        call("prctl", 36, 1, 0, 0, 0)
    except OSError:
        return False
    return True


def tree(marker: bytes, others: Iterable[int] = ()) -> dict[int, int]:
    """The living processes of the attempt and their start times: our descendants, who bears the marker, and ``others``.

    Parents come before their children: a parent that saw its child killed might exit by itself first,
    with a code that hides the signal.
    """
    me = os.getpid()
    found: dict[int, int] = {}
    unseen = [*children(me), *bearers(marker), *others]
    while unseen:
        pid = unseen.pop(0)
        started = start_time(pid)
        if started is not None and pid != me and pid not in found:
            found[pid] = started
            unseen += children(pid)
    return found


def bearers(word: bytes) -> dict[int, int]:
    """Living processes that have exactly this ``NAME=value`` in their environment, and their start times."""
    whole = b"\0%b\0" % word  # a stranger may have the text inside another variable
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    pids = [int(name) for name in names if whole in b"\0%b\0" % read_proc(f"{name}/environ")]
    return {pid: started for pid in pids if (started := start_time(pid)) is not None}


def children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in read_proc(f"{pid}/task/{thread}/children").split()]


def send_all(processes: dict[int, int], number: int) -> None:
    for pid, started in processes.items():
        try:
            send(pid, started, number)
        except OSError:  # noqa: PERF203
            continue  # gone meanwhile, or grown beyond our rights: then it will be named as a survivor


def send(pid: int, started: int, number: int) -> None:
    """Signal that very process: held by a descriptor first, compared afterwards, so that no reused pid is hit."""
    if not hasattr(os, "pidfd_open"):  # an interpreter built on old kernel headers
        if start_time(pid) == started:
            os.kill(pid, number)
        return
    held = os.pidfd_open(pid)
    try:
        if start_time(pid) == started:
            signal.pidfd_send_signal(held, number)
    finally:
        os.close(held)


def start_time(pid: int) -> int | None:
    """In clock ticks since boot (field 22 of stat); None for what is gone or only waits to be reaped."""
    after_name = read_proc(f"{pid}/stat").rpartition(b")")[2].split()
    return None if not after_name or after_name[0] in (b"Z", b"X") else int(after_name[19])


def parent(pid: int) -> int | None:
    """Field 4 of stat; None for what is gone."""
    after_name = read_proc(f"{pid}/stat").rpartition(b")")[2].split()
    return int(after_name[1]) if after_name else None


def name_of(pid: int) -> str:
    return f"{pid} ({read_proc(f'{pid}/comm').decode(errors='replace').strip()})"


_boot_id = ""


def boot_id() -> str:
    """The same for as long as we can live: read once."""
    global _boot_id  # noqa: PLW0603  ``functools`` would be a slow import
    if not _boot_id:
        _boot_id = read_proc("sys/kernel/random/boot_id").decode().strip()
    return _boot_id


def read_proc(name: str) -> bytes:
    """A file of /proc; empty when the process is gone or not ours to look at."""
    return read_file(f"/proc/{name}")


def read_file(path: str) -> bytes:
    """What a file has; empty where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return read_all(descriptor)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for this signal."""
    for line in read_proc(f"{pid}/status").split(b"\n"):
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
