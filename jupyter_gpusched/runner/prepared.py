"""Cell processes prepared ahead of time: Python and IPython are loaded, and each job is a fork.

The process was started as a job would be: by its interpreter, in its folder, with its environment
but for what differs between attempts. A fork then takes over the rest from its order, so that
neither the cell nor anybody who looks at the process from outside sees a difference. Whatever is
in doubt (something loaded that must not be forked, a file that has changed since) means that the
job is started anew, by executing what the order says. Never opens a card, never runs a job itself.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterable

from . import nursery
from .becoming import Order, execute, pass_gate
from .tree import read_proc

UNFIT = frozenset({"cuda", "cupy", "jax", "numba", "numpy", "pycuda", "pynvml", "tensorflow", "torch", "triton"})
"""What must not have been loaded (by a ``.pth`` file or a sitecustomize): it has random state, threads or a card."""

_FOR_A_SHELL = (
    "application async_helpers completer completerlib crashhandler display formatters logger magics oinspect "
    "payloadpage pylabtools ultratb"
)
_FIRST = 3  # the first descriptor that is nobody's standard stream
_ARGUMENTS, _ENVIRONMENT = (45, 46), (47, 48)  # where the kernel says that these lie in memory (stat, after the name)


class _Chosen(BaseException):
    """This fork is to be the job: leaves the supervisor's frames behind, which do not catch it."""

    def __init__(self, order: Order, back: int) -> None:
        self.order = order
        self.back = back


def be_prepared(control: int) -> None:
    """Serve the host at the other end; returns in the forks that are to be jobs, where ``sys.argv`` is theirs."""
    load()
    if not can_be_forked(control):
        os._exit(1)
    seen = seen_now(files_used())
    os.chdir("/")

    def become(order: Order, log: int, gate: int, back: int, home: str | None) -> None:
        pass_gate(order, log, gate, back, home)
        if seen_now(seen) == seen and not os.path.exists("cloudpickle") and not os.path.exists("cloudpickle.py"):
            raise _Chosen(order, back)
        execute(order, back)
        os._exit(127)

    try:
        nursery.serve(control, become, fit=lambda: seen_now(seen) == seen)
    except _Chosen as chosen:
        order, back = chosen.order, chosen.back
    take_over(order, back)


def load() -> None:
    """All that a cell needs before its first line; where that is not there, a job says so better than we could."""
    from . import function, job, shell, snapshot, worker  # noqa: F401

    for name in _FOR_A_SHELL.split():
        try:
            importlib.import_module(f"IPython.core.{name}")
        except ImportError:  # noqa: PERF203  of another version of IPython
            continue
    try:
        importlib.import_module("cloudpickle")
    except ImportError:
        return


def can_be_forked(control: int) -> bool:
    """Whether nothing is here that a fork would share with others or lose: threads, files, signal handlers, cards."""
    ours = {0, 1, 2, control}
    opened = {number for number in map(int, os.listdir("/proc/self/fd")) if number not in ours and _is_open(number)}
    usual = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)
    handled = [number for number in signal.valid_signals() if signal.getsignal(number) not in usual]
    alone = len(os.listdir("/proc/self/task")) == 1
    return alone and not opened and not handled and UNFIT.isdisjoint(sys.modules)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:  # the one that listed them
        return False
    return True


def files_used() -> set[str]:
    """What was loaded, and the folders where more would be found."""
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return {*filter(None, modules), *filter(os.path.isabs, sys.path), sys.executable, f"{sys.prefix}/pyvenv.cfg"}


def seen_now(paths: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """Time and size of files, by which a change of them shows; None for what is not there."""
    found: dict[str, tuple[int, int] | None] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:  # noqa: PERF203
            found[path] = None
        else:
            found[path] = status.st_mtime_ns, status.st_size
    return found


def take_over(order: Order, back: int) -> None:
    """Make of this fork what a fresh start by the order would be, up to where the runner's own work begins."""
    env: dict[bytes, bytes] = order["env"]  # type: ignore[assignment]
    argv: list[bytes] = order["argv"]  # type: ignore[assignment]
    os.environb.clear()
    os.environb.update(env)  # copies: from here on nothing points to where the old ones lie
    try:
        overwrite(_ENVIRONMENT, [name + b"=" + value for name, value in env.items()])
    except OSError:
        execute(order, back)
        os._exit(127)
    with contextlib.suppress(OSError):  # it only looks different in a list of processes
        overwrite(_ARGUMENTS, argv)
    os.closerange(_FIRST, os.sysconf("SC_OPEN_MAX"))  # ``back`` among them: to the supervisor, the job runs
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    sys.orig_argv[:] = [os.fsdecode(word) for word in argv]
    sys.argv[:] = sys.orig_argv[1:]
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)
    if (renumber := getattr(threading.main_thread(), "_set_native_id", None)) is not None:
        renumber()  # after a fork it still has the parent's number
    importlib.invalidate_caches()


def overwrite(fields: tuple[int, int], words: list[bytes]) -> None:
    """Put words where the kernel shows our environment or arguments. Raises ``OSError`` if they do not fit."""
    after_name = read_proc("self/stat").rpartition(b")")[2].split()
    begin, end = (int(after_name[field]) for field in fields)
    content = b"".join(word + b"\0" for word in words)
    if not 0 < begin <= end - len(content):
        raise OSError("there is no room for it")
    memory = os.open("/proc/self/mem", os.O_RDWR)
    try:
        if os.pwrite(memory, content.ljust(end - begin, b"\0"), begin) != end - begin:
            raise OSError("it was not written whole")
    finally:
        os.close(memory)
