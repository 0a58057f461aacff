"""A nursery: a process that forks supervisors which wait for an attempt each.

A fork takes a twentieth of the time in which Python starts. A spare is asked for by a message
that brings the socket on which it says who it is and gets its attempt; with it waits the child
that will be the job. The nursery ends with the host, and so do spares without an attempt; those
that have one never notice. It runs no code of a job, and knows of attempts no more than the
folder's name that it hands over.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket  # ``socket`` itself imports enum and selectors
import marshal
import os
import resource  # noqa: F401  what the first ``wait4`` would import, while a card waits

from . import supervision
from .becoming import become_job
from .cgroup import own_cgroup
from .tree import adopt_orphans, boot_id, start_time
from .unborn import bear, received

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
    boot_id()  # read once for all
    while True:
        told, doors = received(host, LONGEST_PATH)
        if not doors or not fit():
            os._exit(0)
        try:
            child = os.fork()
        except OSError:  # no room for a process: the host sees this spare's socket close
            child = -1
        if child == 0:
            host.close()
            be_spare(_socket.socket(fileno=doors[0]), become, marshal.loads(told))  # noqa: S302  from our host
        for door in doors:
            os.close(door)


def be_spare(door: _socket.socket, become: Become, place: dict[str, str] | None) -> None:
    """Say who we are, then be the supervisor of the attempt that comes, or end with the host.

    place  where cgroups are, and the name of the attempt's own; None = there are none.
    """
    os.setsid()
    adopting = adopt_orphans()
    umask = os.umask(0o077)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else our child's end would be hidden from us
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, supervision.BLOCKED)
    own = None if place is None else own_cgroup(place["mount"], place["root"])
    try:
        unborn = bear(become, None if own is None else f"{own}/{place['name']}", umask, closing=door)  # type: ignore[index]
    except OSError:  # the host sees the door close
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    try:
        door.send(b"%d %d" % (os.getpid(), start_time(os.getpid()) or 0))
        folder, given = received(door, LONGEST_PATH)
    except OSError:  # the host has gone
        given = []
    if len(given) != 2:
        unborn.discard()
        os._exit(0)
    order, wake = given
    for stream in (1, 2):
        os.dup2(wake, stream)
    os.close(wake)

    def may_go() -> bool:
        """The host's word that its journal has it; false where it has gone or thought better of it."""
        try:
            word = door.recv(1)
        except OSError:
            word = b""
        door.close()
        return word == b"g"

    supervision.supervise(os.fsdecode(folder), adopting=adopting, content=order, unborn=unborn, may_go=may_go)
