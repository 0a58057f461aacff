"""A fork whose child is born inside a cgroup (``clone3`` with ``CLONE_INTO_CGROUP``, Linux 5.7).

Moving a process into one by hand waits for all processors when none was moved of late: 10 ms in
which a card lies idle. Only for children that execute another program soon: the C library does
not learn of this fork. Where it cannot be had (older kernels, container filters, interpreters
without libffi) the caller forks and moves.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CLONE3 = 435  # the same on every architecture
_INTO_CGROUP = 1 << 33
_SIGCHLD = 17
_CDECL, _PYTHON = 1, 4  # the second one keeps Python's lock, as its own fork does


def fork_into(path: str) -> int | None:
    """As ``os.fork``, with the child in this cgroup; None where that does not work, and then nothing was forked."""
    try:
        import _ctypes
    except ImportError:
        return None
    native: Any = _ctypes
    try:
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        return _clone(native, place)
    except (AttributeError, OSError):  # a C library without ``syscall``, a Python that hides its functions
        return None
    finally:
        os.close(place)


def _clone(native: Any, cgroup: int) -> int | None:
    number = type("number", (native._SimpleCData,), {"_type_": "l"})
    unsigned = type("unsigned", (native._SimpleCData,), {"_type_": "Q"})
    function = type("function", (native.CFuncPtr,), {"_flags_": _CDECL | _PYTHON, "_restype_": number})
    library = native.dlopen(None, 0)
    before, in_parent, in_child, syscall = (
        function(native.dlsym(library, name))
        for name in ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child", "syscall")
    )
    arguments = type("arguments", (native.Array,), {"_type_": unsigned, "_length_": 11})(
        _INTO_CGROUP, 0, 0, 0, _SIGCHLD, 0, 0, 0, 0, 0, cgroup
    )
    words = [number(_CLONE3), number(native.addressof(arguments)), number(native.sizeof(arguments))]
    before()
    answer = syscall(*words)
    pid = int(getattr(answer, "value", answer))
    if pid == 0:
        in_child()
        return 0
    in_parent()
    return pid if pid > 0 else None
