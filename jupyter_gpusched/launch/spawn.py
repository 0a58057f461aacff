"""Starts a supervisor as a process of its own session that outlives this host.

Owns what the two have open between them at the start: the order as a file on its standard
input, so that a large one blocks nobody, and a pipe for its last words and its sign to look.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpusched.core.environment import submitted
from jupyter_gpusched.core.limits import Rlimits

from .orders import SUPERVISOR
from .owners import Owner


def as_user(uid: int, gid: int, groups: Sequence[int]) -> list[str]:
    """The command before another one by which it runs as this user and can become nobody else."""
    listed = ["--groups=" + ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", *listed, "--inh-caps=-all", "--no-new-privs", "--"]


def limiting(rlimits: Rlimits) -> list[str]:
    """The command before another one by which the kernel limits it so, and all that it starts.

    To raise what the host itself has takes root, so that it comes before the change of user.
    """
    if not rlimits:
        return []
    return [
        "prlimit",
        *(f"--{name}={'unlimited' if value is None else value}" for name, value in rlimits.items()),
        "--",
    ]


def spawn(
    order: bytes,
    attempt_folder: Path,
    environ: Mapping[str, str],
    *,
    before: Sequence[str] = (),
    owner: Owner | None = None,
) -> tuple[int, int]:
    """Start a supervisor; return its pid, for the caller to reap, and our end of its pipe.

    environ  the host's own, of which the supervisor gets what may travel; above all not the marker
             of a job in which this host may be running itself.
    before   a command that becomes the one after it, in another place.
    owner    as whom it runs, before it opens anything; None = as ourselves.
    """
    user = [] if owner is None else as_user(owner.uid, owner.gid, owner.groups)
    ours, theirs = os.pipe()
    try:
        with as_file(order) as content:
            process = subprocess.Popen(
                [*before, *user, sys.executable, "-I", "-S", SUPERVISOR, str(attempt_folder)],
                stdin=content,
                stdout=theirs,
                stderr=theirs,
                cwd="/",
                env=submitted(environ),
                start_new_session=True,
                umask=-1 if owner is None else 0o077,
            )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    process.returncode = 0  # it may outlive us: its Popen must neither warn of that nor reap it behind our back
    os.set_blocking(ours, False)
    return process.pid, ours


@contextmanager
def as_file(content: bytes) -> Iterator[int]:
    """An open file without a name, at its beginning."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gpusched-order")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


_ADVICE = {
    os.strerror(errno.ENOSPC): "free some space on the disk, then submit it again",
    os.strerror(errno.EDQUOT): "free some space within your quota, then submit it again",
    f"Error {errno.EMFILE}": "its limit of open files is too low for Python: raise nofile in the file of limits",
    os.strerror(errno.EMFILE): "its limit of open files is too low for Python: raise nofile in the file of limits",
    "annot allocate memory": "there was too little memory for it, or its limits leave it too little",
}
"""What to do about it, by words in what was printed."""


def last_words(said: bytes) -> str:
    """Why a supervisor ended before the job ran, from what it printed."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    why = lines[-1] if lines else "it ended without a word"
    if why.startswith("prlimit:"):
        return f"its resource limits cannot be set ({why}); ask the administrator, whose file of limits names them"
    advice = next((words for sign, words in _ADVICE.items() if sign in why), "submit it again")
    return f"its supervisor failed before the job ran: {why}; {advice}"
