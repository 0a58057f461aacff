"""On which kind of file system a path lies, told from the kernel's mount table.

SQLite's write-ahead log needs shared memory and working locks, which network file systems
do not give. Reads the table only; never touches the path itself beyond resolving it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")

_NETWORK = re.compile(
    r"nfs\d*|cifs|smb\w*|lustre|gpfs|beegfs|ceph|afs|pvfs2|orangefs|ocfs2|gfs2|glusterfs|panfs"
    r"|fuse\.(sshfs|glusterfs|ceph\S*|s3fs|s3ql|gcsfuse|rclone|goofys|blobfuse2?|juicefs|mfs\w*|davfs\S*)"
)


def filesystem(path: Path, *, table: Path = MOUNT_TABLE) -> str:
    """The type of the file system that holds ``path`` (``ext4``, ``nfs4``), or ``unknown``.

    A path that does not exist yet lies where its nearest existing folder lies.
    """
    place = os.path.realpath(path)
    best, kind = -1, "unknown"
    for mount_point, mounted in _mounts(table):
        # a later mount on the same point hides the earlier one
        if _holds(mount_point, place) and len(mount_point) >= best:
            best, kind = len(mount_point), mounted
    return kind


def network_filesystem(path: Path, *, table: Path = MOUNT_TABLE) -> str | None:
    """The type of the network file system that holds ``path``; None on a local disk or where nobody can say."""
    kind = filesystem(path, table=table)
    return kind if _NETWORK.fullmatch(kind) else None


def _mounts(table: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        before, separator, after = line.partition(" - ")
        if separator:
            yield _unescape(before.split()[4]), after.split()[0]


def _unescape(mount_point: str) -> str:
    """The kernel writes blanks in mount points as octal (``\\040``)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount_point)


def _holds(mount_point: str, place: str) -> bool:
    return mount_point in ("/", place) or place.startswith(mount_point + "/")
