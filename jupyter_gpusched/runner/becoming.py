"""What the forked child of a supervisor does until it is the job.

Waits at its gate until the start is written down, then executes the order's program with the
order's environment, and with signals, files and umask as a shell would give them. Each step that
fails is told to the supervisor; nothing of the supervisor goes on in the child.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # as in ``supervision``
import os

from . import cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

RESERVED_SIGNALS = (signal.SIGKILL, signal.SIGSTOP)

Order = dict[str, "object"]
if TYPE_CHECKING:
    Become = Callable[[Order, int, int, int, "str | None"], None]


def become_job(order: Order, log: int, gate: int, back: int, home: str | None) -> NoReturn:
    """Turn the forked child into the job; whatever happens, it never returns."""
    try:
        pass_gate(order, log, gate, back, home)
        execute(order, back)
    finally:
        os._exit(127)


def pass_gate(order: Order, log: int, gate: int, back: int, home: str | None) -> None:
    """Enter the job's place and wait there until the start is written down; else end.

    log, gate, back  the log, the pipe that opens, and the pipe for our word.
    home             the attempt's cgroup, if it has one.
    """
    step = b"X"
    try:
        os.setsid()
        os.umask(order["umask"])  # type: ignore[arg-type]
        os.dup2(log, 1)
        os.dup2(log, 2)
        step = b"D"
        os.chdir(order["cwd"])  # type: ignore[arg-type]
        step = b"X"
        default_signals()
        os.write(back, b"R")
        if home is not None:
            cgroup.enter(home)  # while the supervisor writes down that it starts
        if os.read(gate, 1):
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            return
    except OSError as error:
        os.write(back, step + str(error.errno or 0).encode())
    os._exit(127)


def execute(order: Order, back: int) -> None:
    """Be the order's program; returns only where that cannot be, once it has said so."""
    argv, env = order["argv"], order["env"]
    try:
        os.execvpe(argv[0], argv, env)  # type: ignore[index,arg-type]  # noqa: S606
    except OSError as error:
        os.write(back, b"X" + str(error.errno or 0).encode())


def default_signals() -> None:
    """The job starts as from a shell: every signal with its default effect; none will be blocked."""
    for number in range(1, signal.NSIG):
        if number not in RESERVED_SIGNALS:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # the numbers that the C library keeps for itself
