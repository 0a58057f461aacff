"""A job's folder: made for its owner alone, filled with what the job brings along, and taken away.

It lies in a folder that is the host's, so that nobody can put another in its place; what is in it
is the owner's, and is worked on with the owner's rights.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from .door import as_owner_of, opened_in
from .mounts import MountedOver, status_of
from .owners import Owner
from .spawn import as_user

log = logging.getLogger(__name__)

_REMOVAL_S = 60.0


def lay_folder(folder: Path, owner: Owner | None) -> None:
    """Make the folder, or see that it is the owner's. Raises ``OSError``.

    One that is still ours although it should be another's has just been made, and is empty.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = status_of(folder)
    wanted = os.geteuid() if owner is None else owner.uid
    if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() != wanted and owner is not None:
        os.chown(folder, owner.uid, owner.gid, follow_symlinks=False)
    elif not stat.S_ISDIR(info.st_mode) or info.st_uid != wanted:
        raise PermissionError(f"{folder} is not a folder of uid {wanted}")
    elif info.st_mode & 0o077:
        folder.chmod(0o700)


def put_file(folder: Path, owner: Owner | None, name: str, content: bytes) -> None:
    """Leave a file in the job's folder, on disk when this returns. Raises ``OSError``."""
    lay_folder(folder, owner)
    with as_owner_of(folder):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def get_file(folder: Path, name: str, *, most: int) -> bytes:
    """What lies in the job's folder, read through the door. Raises ``OSError``, also for more than ``most`` bytes."""
    with opened_in(folder, folder, name) as descriptor, open(descriptor, "rb", closefd=False) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise PermissionError(f"{folder / name} has more than {most} bytes")
    return content


def remove_folder(folder: Path) -> None:
    """Take away a job's folder with all that is in it, as far as that can be done."""
    try:
        info = status_of(folder)
    except MountedOver as error:
        log.warning("the folder of a job stays: %s", error)
        return
    except OSError:
        return
    if info.st_uid == os.geteuid():
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [*as_user(info.st_uid, info.st_gid, ()), "rm", "-rf", "--", str(folder)],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_REMOVAL_S,
            check=False,
        )
    # The folder itself lies in ours; what its owner could not take away is not for root to enter.
    with suppress(OSError):
        folder.rmdir()
