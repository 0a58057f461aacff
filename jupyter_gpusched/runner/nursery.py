"""A nursery: a process that forks supervisors which wait for an attempt each.

A fork takes a twentieth of the time in which Python starts. A spare is asked for by a message
that brings the socket on which it says who it is and gets its attempt. The nursery ends with the
host, and so do spares without an attempt; those that have one never notice. It runs no code of a
job, and knows of attempts no more than the folder's name that it hands over.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket  # ``socket`` itself imports enum and selectors
import os

from . import supervision
from .becoming import become_job
from .tree import adopt_orphans, start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from .becoming import Become

LONGEST_PATH = 8192


def serve(control: int, become: Become = become_job, fit: Callable[[], bool] = lambda: True) -> NoReturn:
    """Fork a spare for each message on this socket, until the host closes it.

    become  how a spare's child becomes the job.
    fit     whether what we have in memory may still be handed on; where it may not, we end.
    """
    host = _socket.socket(fileno=control)
    os.set_inheritable(control, False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended spares are collected by the kernel
    while True:
        _, doors = received(host, 16)
        if not doors or not fit():
            os._exit(0)
        try:
            child = os.fork()
        except OSError:  # no room for a process: the host sees this spare's socket close
            child = -1
        if child == 0:
            host.close()
            be_spare(_socket.socket(fileno=doors[0]), become)
        for door in doors:
            os.close(door)


def be_spare(door: _socket.socket, become: Become) -> None:
    """Say who we are, then be the supervisor of the attempt that comes, or end with the host."""
    os.setsid()
    adopting = adopt_orphans()
    try:
        door.send(b"%d %d" % (os.getpid(), start_time(os.getpid()) or 0))
        folder, given = received(door, LONGEST_PATH)
    except OSError:  # the host has gone
        os._exit(0)
    if len(given) != 2:
        os._exit(0)
    door.close()
    order, wake = given
    for ours, place in ((order, 0), (wake, 1), (wake, 2)):
        os.dup2(ours, place)
    os.close(order)
    os.close(wake)
    supervision.supervise(os.fsdecode(folder), adopting=adopting, become=become)


def received(door: _socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it; nothing at all where the other side has closed."""
    message, more, _, _ = door.recvmsg(most, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
    found: list[int] = []
    for level, kind, content in more:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            found += memoryview(content).cast("i").tolist()
    return message, found
