"""Calls into the C library without ``ctypes``, whose import would double the supervisor's time to start.

Owns the way there through ``_ctypes``; where an interpreter was built without libffi, a call
raises ``OSError`` with ENOSYS, as a kernel does that lacks it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ENOSYS = 38
_CDECL, _USE_ERRNO = 1, 8


def call(name: str, *numbers: int) -> int:
    """A function of the C library that takes ``long`` and returns ``int``; raises ``OSError`` where it says -1."""
    try:
        import _ctypes
    except ImportError:
        raise OSError(_ENOSYS, os.strerror(_ENOSYS)) from None
    native: Any = _ctypes
    number = type("number", (native._SimpleCData,), {"_type_": "l"})
    answer = type("answer", (native._SimpleCData,), {"_type_": "i"})
    function = type("function", (native.CFuncPtr,), {"_flags_": _CDECL | _USE_ERRNO, "_restype_": answer})
    found = function(native.dlsym(native.dlopen(None, 0), name))
    said: Any = found(*map(number, numbers))
    value = int(getattr(said, "value", said))
    if value == -1:
        raise OSError(native.get_errno(), os.strerror(native.get_errno()))
    return value
