"""A host that dies, or a supervisor that pauses, at one named point: what a loss of power or ``kill -9`` does by luck.

Run as a program in place of ``jupyter_gpusched.hosts.daemon``. ``CRASH_AT`` names where the host
kills itself: ``record:placed:before`` (of the first transaction with such a change),
``post:Exited`` (before the engine takes in such an event), ``spawn:after`` and the like.
``PAUSE_AT`` names where supervisors wait until ``PAUSE_FOLDER/go`` exists. ``SLOW_WRITES_S`` makes
every transaction take so long, as a disk does whose fsync is slow. The product knows nothing of
this: its ports are wrapped here.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = {
    "launch": ("jupyter_gpusched.launch.local", "LocalLauncher.launch"),
    "stop": ("jupyter_gpusched.launch.local", "LocalLauncher.stop"),
    "adopt": ("jupyter_gpusched.launch.local", "LocalLauncher.adopt"),
    "spawn": ("jupyter_gpusched.launch.starts", "spawn"),
    "handover": ("jupyter_gpusched.launch.nursery", "_handed_over"),
    "go": ("jupyter_gpusched.launch.nursery", "Spare.go"),
    "void": ("jupyter_gpusched.launch.attempt", "claim_void"),
    "stop_file": ("jupyter_gpusched.launch.attempt", "write_stop"),
    "terminate": ("jupyter_gpusched.launch.processes", "terminate"),
}
"""What a host does between two journal entries, by its name in ``CRASH_AT``."""

PAUSES = {
    "claim": "take_claim",
    "fork": "Attempt.fork",
    "started": "Attempt.write_started",
    "gate": "Attempt.launch",
    "exit": "Attempt.write_exit",
}
"""What a supervisor does, by its name in ``PAUSE_AT``."""


def wrap(owner: Any, name: str, *, before: Callable[[], None] | None, after: Callable[[], None] | None) -> None:
    """Put something before or after a function of a module or class, given by its dotted name."""
    *path, last = name.split(".")
    for step in path:
        owner = getattr(owner, step)
    plain = getattr(owner, last)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if before is not None:
            before()
        result = plain(*arguments, **named)
        if after is not None:
            after()
        return result

    setattr(owner, last, wrapped)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash_at(point: str) -> None:
    """Arrange the host's death."""
    import importlib

    name, *rest = point.split(":")
    if name == "record":
        crash_in_transaction(*rest)
    elif name == "post":
        crash_before_event(*rest)
    else:
        module, called = CALLS[name]
        wrap(importlib.import_module(module), called, **{"before": None, "after": None, rest[0]: die})


def crash_in_transaction(kind: str, when: str) -> None:
    from jupyter_gpusched.store import SqliteStore

    record = SqliteStore.record

    def recording(store, changes, works, **more):
        meant = any(change.kind == kind for change in changes)
        if meant and when == "before":
            die()
        recorded = record(store, changes, works, **more)
        if meant:
            die()
        return recorded

    SqliteStore.record = recording


def crash_before_event(kind: str) -> None:
    from jupyter_gpusched.engine import Engine

    post = Engine.post

    def posting(engine, event):
        if type(event).__name__ == kind:
            die()
        post(engine, event)

    Engine.post = posting


def keep_ready_from_the_start() -> None:
    """Let the first attempt find a spare already."""
    from jupyter_gpusched.launch.local import LocalLauncher

    launch = LocalLauncher.launch

    def launching(launcher, order):
        nursery = launcher.nursery
        nursery.fill()
        while nursery._spares and not select.select([nursery._spares[0][0]], [], [], 1.0)[0]:
            pass  # for the one whose turn it is: the next may be ready before it
        launch(launcher, order)

    LocalLauncher.launch = launching


def pause_supervisors() -> None:
    """Let every supervisor of this host be this file."""
    import jupyter_gpusched.launch.spawn

    jupyter_gpusched.launch.spawn.SUPERVISOR = __file__


def supervise(point: str, pauses: Path) -> None:
    """Be a supervisor that waits at one point."""
    sys.path.append(os.environ["PAUSE_RUNNER"])
    from runner import supervision  # type: ignore[import-not-found]

    name, when = point.split(":")

    def pause() -> None:
        (pauses / ".reached").write_text(str(os.getpid()))
        (pauses / ".reached").rename(pauses / "reached")  # whole from its first moment
        while not (pauses / "go").exists():
            time.sleep(0.005)

    wrap(supervision, PAUSES[name], **{"before": None, "after": None, when: pause})
    supervision.main()


def host() -> None:
    from jupyter_gpusched.hosts import daemon

    if point := os.environ.get("CRASH_AT"):
        crash_at(point)
        if point.startswith(("handover", "go")):
            keep_ready_from_the_start()
    if os.environ.get("PAUSE_AT"):
        pause_supervisors()
    if slow_s := os.environ.get("SLOW_WRITES_S"):
        from jupyter_gpusched.store import SqliteStore

        wrap(SqliteStore, "record", before=lambda: time.sleep(float(slow_s)), after=None)
    daemon.main()


if __name__ == "__main__":
    if len(sys.argv) > 1 and "attempt-" in sys.argv[1]:
        supervise(os.environ["PAUSE_AT"], Path(os.environ["PAUSE_FOLDER"]))
    else:
        host()
