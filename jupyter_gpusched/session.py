"""This process's line to the host: one client, found when it is first needed.

Looks for the host anew when the environment asks for another one, and in a forked child.
Knows nothing about jobs.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client

_DECIDES_THE_HOST = (
    "GPUSCHED_SOCKET",
    "GPUSCHED_SERVICE_URL",
    "GPUSCHED_SIMULATE",
    "GPUSCHED_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "HOME",
)

_found: dict[tuple[object, ...], Client] = {}
_finding = threading.Lock()


def host() -> Client:
    """The client of this process, connected; a host is started if there is none.

    Raises ``HostUnreachable`` (and what the host says) when that fails.
    """
    key = (os.getpid(), *(os.environ.get(name) for name in _DECIDES_THE_HOST))
    with _finding:
        if key not in _found:
            from .client import Client

            _found.clear()
            _found[key] = Client.connect(start=True)
        return _found[key]
