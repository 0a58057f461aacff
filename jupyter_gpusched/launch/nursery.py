"""Supervisors kept ready: an attempt that gets one starts without waiting for a Python to start.

The host's side of ``runner/nursery.py``, be it with or without a prepared cell process. A process
that was started once forks spare supervisors, each of which has told who it is before it is given
anything. Nothing depends on it: whoever gets no spare from here starts a supervisor by itself, and
the claim sees to it that nothing runs twice.
"""

from __future__ import annotations

import asyncio
import logging
import marshal
import math
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jupyter_gpusched.core.environment import submitted

from .cgroups import as_kept_ready
from .means import Hierarchy
from .orders import NURSERY
from .spawn import as_file

log = logging.getLogger(__name__)

BEING_FORKED_S = 0.005
"""So long a spare is waited for that is still being forked: less than a start of Python takes."""

REFILL_AFTER_S = 0.005
"""After a spare was told to go."""

RESTART_S = 10.0
"""A nursery that has ended is started again so long after its start at the earliest."""

_ENDS_S = 0.5


class Spare(NamedTuple):
    """A supervisor that has an attempt now: no child of ours, so only its start time makes sure that a pid is it.

    wake    our end of its pipe.
    marker  of the attempt: the cgroup that was waiting for one is named by it.
    door    where it waits for our word.
    """

    pid: int
    start_time: int
    wake: int
    marker: str
    door: socket.socket

    def go(self) -> bool:
        """Let it take its attempt; False if it has ended meanwhile, and has not."""
        with self.door:
            try:
                self.door.send(b"g")
            except OSError:
                os.close(self.wake)
                return False
        return True

    def give_up(self) -> None:
        """It ends without its attempt, unless it was told to go: then it is only let go of."""
        self.door.close()
        os.close(self.wake)


class Nursery:
    """Starts when it is first asked for a spare; ends by ``close`` or with this process.

    command  starts it, together with the number of its descriptor.
    environ  its whole environment.
    cgroups  where each spare's job gets one of its own; None = nowhere.
    """

    def __init__(
        self,
        command: Sequence[str | bytes],
        environ: Mapping[str, str] | Mapping[bytes, bytes],
        *,
        spares: int,
        cwd: str | bytes = "/",
        restart_s: float = RESTART_S,
        cgroups: Hierarchy | None = None,
    ) -> None:
        self._command = command
        self._environ = environ
        self._cwd = cwd
        self._restart_s = restart_s
        self._wanted = spares
        self._cgroups = cgroups
        self._spares: deque[tuple[socket.socket, str]] = deque()  # each with the marker of its attempt to come
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -math.inf
        self._refill: asyncio.TimerHandle | None = None

    def give(self, order: Callable[[str], bytes], attempt_folder: Path, *, patience_s: float = 0.0) -> Spare | None:
        """Give an attempt to a spare, which waits for the word to go; None where there is none.

        order       of the attempt with this marker.
        patience_s  so long one is waited for that is still being forked.
        """
        if not self._spares and self._control is not None and patience_s:  # given away a moment ago
            self.fill()
        return self._given(order, attempt_folder, patience_s)

    def fill_soon(self) -> None:
        """Another attempt goes. The next spare is forked a moment later, so as not to be in its way."""
        if self._refill is None:
            self._refill = asyncio.get_running_loop().call_later(REFILL_AFTER_S, self.fill)

    def fill(self) -> None:
        """Ask for as many spares as are to be kept ready; they are forked meanwhile."""
        if self._refill is not None:
            self._refill.cancel()
            self._refill = None
        while len(self._spares) < self._wanted and self._ask_for_spare():
            pass

    def close(self) -> None:
        if self._refill is not None:
            self._refill.cancel()
        for door, _ in self._spares:
            door.close()
        self._spares.clear()
        self._hang_up()

    def _given(self, order: Callable[[str], bytes], attempt_folder: Path, patience_s: float) -> Spare | None:
        while self._spares:
            door, marker = self._spares[0]
            poll = select.poll()
            poll.register(door, select.POLLIN)
            if not poll.poll(patience_s * 1000):
                return None
            self._spares.popleft()
            try:
                content = order(marker)
            except BaseException:
                door.close()
                raise
            try:
                pid, start_time = map(int, door.recv(64).split())
                return Spare(pid, start_time, _handed_over(door, content, attempt_folder), marker, door)
            except (OSError, ValueError):  # it has ended meanwhile
                door.close()
        return None

    def _ask_for_spare(self) -> bool:
        if self._control is None and not self._start():
            return False
        assert self._control is not None
        marker = secrets.token_hex(16)
        told = marshal.dumps(as_kept_ready(self._cgroups, marker), 2)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._control, [told], [theirs.fileno()])
            except OSError as error:
                log.warning("the process that keeps supervisors ready is gone: %s", error)
                ours.close()
                self._hang_up()
                return False
        self._spares.append((ours, marker))
        return True

    def _start(self) -> bool:
        if time.monotonic() < self._started_at + self._restart_s:
            return False
        self._started_at = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*self._command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd=self._cwd,
                    env=self._environ,
                    start_new_session=True,
                )
            except OSError as error:
                log.warning("no supervisors can be kept ready: %s", error)
                ours.close()
                return False
        ours.setblocking(False)
        self._control = ours
        return True

    def _hang_up(self) -> None:
        """End it, whatever it is doing; spares with an attempt go on."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_S)
            self._process = None


def of_supervisors(environ: Mapping[str, str], spares: int, cgroups: Hierarchy | None = None) -> Nursery:
    """For attempts of any kind.

    environ  the host's own; supervisors get of it what may travel, as those do that are started singly.
    """
    return Nursery([sys.executable, "-I", "-S", NURSERY], submitted(environ), spares=spares, cgroups=cgroups)


def _handed_over(door: socket.socket, order: bytes, attempt_folder: Path) -> int:
    """Give a spare its attempt; return our end of its pipe. Raises ``OSError`` if it is gone."""
    ours, theirs = os.pipe()
    try:
        with as_file(order) as content:
            socket.send_fds(door, [os.fsencode(attempt_folder)], [content, theirs])
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return ours
