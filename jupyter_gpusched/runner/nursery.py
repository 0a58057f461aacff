"""Entry of the nursery: ``python -I -S nursery.py``, one end of a socket pair on standard input.

It forks supervisors that wait for an attempt each, since a fork takes a twentieth of the time in
which Python starts. A spare is asked for by a message that brings the socket on which it will say
who it is and get its order. The nursery ends with the host, and so do spares without an attempt;
those that have one never notice. It runs no code of a job and knows nothing of attempts.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket  # ``socket`` itself imports enum and selectors
import gc
import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runner import supervision  # type: ignore[import-not-found]
from runner.tree import adopt_orphans, start_time  # type: ignore[import-not-found]

LONGEST_PATH = 8192


def main() -> None:
    import fcntl  # noqa: F401  what a supervisor needs only once its job runs

    devnull = os.open(os.devnull, os.O_RDWR)
    control = _socket.socket(fileno=os.dup(0))
    os.set_inheritable(control.fileno(), False)
    os.dup2(devnull, 0)
    os.close(devnull)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended spares are collected by the kernel
    gc.freeze()  # else the first collection in each would copy all of our memory
    while True:
        _, descriptors = received(control, 16)
        if not descriptors:
            os._exit(0)
        try:
            child = os.fork()
        except OSError:  # no room for processes: the host sees that this spare is none
            child = -1
        if child == 0:
            control.close()
            wait_for_attempt(_socket.socket(fileno=descriptors[0]))
        for descriptor in descriptors:
            os.close(descriptor)


def wait_for_attempt(door: _socket.socket) -> None:
    """Say who we are, then be the supervisor of the attempt that comes, or end with the host."""
    os.setsid()
    adopting = adopt_orphans()
    try:
        door.send(b"%d %d" % (os.getpid(), start_time(os.getpid()) or 0))
        folder, descriptors = received(door, LONGEST_PATH)
    except OSError:  # the host has gone
        os._exit(0)
    if len(descriptors) != 2:
        os._exit(0)
    door.close()
    order, wake = descriptors
    for ours, place in ((order, 0), (wake, 1), (wake, 2)):
        os.dup2(ours, place)
    os.close(order)
    os.close(wake)
    supervision.supervise(os.fsdecode(folder), adopting=adopting)


def received(door: _socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it; nothing at all where the other side has closed."""
    message, more, _, _ = door.recvmsg(most, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
    found: list[int] = []
    for level, kind, content in more:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            found += memoryview(content).cast("i").tolist()
    return message, found


if __name__ == "__main__":
    main()
