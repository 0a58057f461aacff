"""What the forked child of a supervisor does until it is the job.

Waits at its gate until the start is written down, then executes the order's program with the
order's environment, and with signals, files and umask as a shell would give them. It reports
each step that fails to the supervisor and never returns.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # as in ``supervision``
import os

from . import cgroup

RESERVED_SIGNALS = (signal.SIGKILL, signal.SIGSTOP)

Order = dict[str, "object"]


def become_job(order: Order, log: int, gate: int, back: int, home: str | None) -> None:
    """Turn the forked child into the job; whatever happens, it never returns."""
    step = b"X"
    try:
        os.setsid()
        os.umask(order["umask"])  # type: ignore[arg-type]
        os.dup2(log, 1)
        os.dup2(log, 2)
        step = b"D"
        os.chdir(order["cwd"])  # type: ignore[arg-type]
        step = b"X"
        os.write(back, b"R")
        if home is not None:
            cgroup.enter(home)  # while the supervisor writes down that it starts
        if os.read(gate, 1):
            default_signals()
            argv, env = order["argv"], order["env"]
            os.execvpe(argv[0], argv, env)  # type: ignore[index,arg-type]  # noqa: S606
    except OSError as error:
        os.write(back, step + str(error.errno or 0).encode())
    finally:
        os._exit(127)


def default_signals() -> None:
    """The job starts as from a shell: every signal with its default effect, none blocked."""
    for number in range(1, signal.NSIG):
        if number not in RESERVED_SIGNALS:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # the numbers that the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
