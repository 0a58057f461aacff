"""The journal and the jobs on disk: ``SqliteStore`` and the look at the file system beneath it.

Nothing outside this package knows SQL or the file's layout.
"""

from jupyter_gpusched.ports import DuplicateKey, Fenced, StoreUnavailable

from .filesystem import filesystem, network_filesystem
from .opening import refuse_emptied
from .sqlite import SqliteStore
from .trial import Ground, try_out

__all__ = [
    "DuplicateKey",
    "Fenced",
    "Ground",
    "SqliteStore",
    "StoreUnavailable",
    "filesystem",
    "network_filesystem",
    "refuse_emptied",
    "try_out",
]
