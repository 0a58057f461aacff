"""The child of a supervisor that waits for an attempt: there, in its cgroup, before anybody knows what it will be.

A fork and the way into a cgroup take longer than all else between an order and its program, and
need not wait for the order. The child runs nothing but ``become``, ends with its supervisor, and
belongs to no attempt until it has been given one.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # as in ``supervision``
import _socket  # ``socket`` itself imports enum and selectors
import marshal
import os

from . import cgroup
from .becoming import become_job
from .born import fork_into
from .tree import start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .becoming import Become


class Unborn:
    """pid, start_time  the child, which is ours to reap.
    line             our end of the socket to it: its word and our gate.
    home             its cgroup, if it has one.
    """

    def __init__(self, pid: int, line: _socket.socket, home: str | None) -> None:
        self.pid = pid
        self.start_time = start_time(pid)
        self.line = line
        self.home = home

    def give(self, order: int, log: int) -> None:
        """Let it become the job up to its gate, while we take the claim. Raises ``OSError`` if it has ended."""
        send_files(self.line, b"+", (order, log))

    def discard(self) -> None:
        """No attempt has come, or another supervisor has it."""
        os.kill(self.pid, signal.SIGKILL)  # not reaped yet: it is our child and nobody else
        os.waitpid(self.pid, 0)
        if self.home is not None:
            cgroup.remove(self.home)


def bear(become: Become, home: str | None, umask: int, *, closing: _socket.socket) -> Unborn:
    """Fork the child. Raises ``OSError`` where there is no room for a process.

    home     the cgroup that is made for it; None = it gets none.
    umask    of the job.
    closing  what is its supervisor's alone.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    if home is not None and not cgroup.make(home):
        home = None
    try:
        inside = fork_into(home) if home is not None and become is become_job else None
        child = os.fork() if inside is None else inside
    except OSError:
        if home is not None:
            cgroup.remove(home)
        raise
    if child == 0:
        closing.close()
        ours.close()
        if inside is None and home is not None:
            cgroup.enter(home)
        _wait_to_become(theirs, become, umask)
    theirs.close()
    return Unborn(child, ours, home)


def _wait_to_become(line: _socket.socket, become: Become, umask: int) -> None:
    try:
        _, given = received(line, 16)
    except OSError:
        given = []
    if len(given) != 2:  # the supervisor has ended
        os._exit(0)
    content, log = given
    order = marshal.loads(os.pread(content, os.fstat(content).st_size, 0))  # noqa: S302  the one our supervisor reads
    order["umask"] = umask
    os.close(content)
    end = line.detach()
    become(order, log, end, end, None)


# Messages that bring open files


def received(door: _socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it; nothing at all where the other side has closed."""
    message, more, _, _ = door.recvmsg(most, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
    found: list[int] = []
    for level, kind, content in more:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            found += memoryview(content).cast("i").tolist()
    return message, found


def send_files(door: _socket.socket, message: bytes, files: tuple[int, int]) -> None:
    """Raises ``OSError`` if the other side has closed."""
    numbers = memoryview(bytearray(8)).cast("i")
    numbers[0], numbers[1] = files
    door.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
