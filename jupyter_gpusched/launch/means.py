"""What this machine offers for ending, keeping and leaving alone the processes of jobs; tried once per host.

Never believes that something works because it is there: cgroups, user scopes and holes in files
are each tried on something small that is gone afterwards. Decides nothing about jobs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jupyter_gpusched.runner import cgroup
from jupyter_gpusched.runner.logcap import can_punch
from jupyter_gpusched.runner.tree import read_file

LINGER = (
    "To let them go on, run `loginctl enable-linger` as the user whom it runs as, or set KillMode=process in its unit; "
    "then start it again."
)

_TRIAL_S = 5.0
_SYSTEMD = Path("/run/systemd/system")
_TRIAL = str(Path(cgroup.__file__).with_name("trial.py"))


class Hierarchy(NamedTuple):
    """Where cgroups of version 2 are mounted, and which of their folders is the top there."""

    mount: str
    root: str


@dataclass(frozen=True, slots=True)
class Means:
    """What was found to work.

    cgroups           where each attempt gets a cgroup of its own; None = descent and marker show whose a process is.
    no_cgroups        why there are none.
    scope             the command before a supervisor's that takes it out of this server's service.
    ends_with_server  why jobs end with this server; None = they go on without it.
    holes             whether logs can be kept within their limit here.
    counted_only      why a service for others counts host memory and CPUs and does not limit them; None = it limits.
    limits_host       whether a job cannot take more host memory and CPUs than it asked for.
    isolation         what hides other users' cards and `/tmp` from jobs: `none` or `bwrap`.
    oom_counters      files in which the kernel counts processes that it ended for lack of host memory.
    """

    cgroups: Hierarchy | None = None
    no_cgroups: str | None = None
    scope: tuple[str, ...] | None = None
    ends_with_server: str | None = None
    holes: bool = True
    oom_counters: tuple[str, ...] = ()
    counted_only: str | None = None
    limits_host: bool = False
    isolation: str = "none"

    @property
    def ending(self) -> str:
        """How the processes of a job are found when they are to be ended, in words."""
        if self.cgroups is not None:
            return "by a cgroup of its own (cgroup.kill), by descent, and by a marker in the environment"
        return "by descent (child subreaper) and by a marker in the environment"

    @property
    def notices(self) -> list[str]:
        """What a person should know of this machine, a sentence each."""
        told = []
        if self.ends_with_server is not None:
            told.append(f"Jobs end when this server does: {self.ends_with_server}. {LINGER}")
        if not self.holes:
            told.append("Logs are not kept within their limit: this file system cannot give back space inside a file.")
        if self.counted_only is not None:
            told.append(f"Host memory and CPUs of jobs are counted, not limited: {self.counted_only}.")
        return told


def probe(
    folder: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    cgroups: bool = True,
    proc: Path = Path("/proc/self"),
) -> Means:
    """Try what works here.

    folder   where jobs will lie.
    cgroups  whether attempts may have some.
    proc     where this process is described.
    """
    membership = read_file(str(proc / "cgroup")).decode(errors="replace")
    hierarchy = find_hierarchy(read_file(str(proc / "mountinfo")).decode(errors="replace"))
    scope, ends = _leaving(membership, environ)
    no_cgroups = _cgroups_fail(hierarchy, scope, environ) if cgroups else "they are turned off"
    return Means(
        cgroups=hierarchy if no_cgroups is None else None,
        no_cgroups=no_cgroups,
        scope=scope,
        ends_with_server=ends,
        holes=holes_in(folder),
        oom_counters=oom_counters(membership, hierarchy),
    )


# Cgroups


def find_hierarchy(mountinfo: str) -> Hierarchy | None:
    """The first mount of cgroups of version 2, be it all there is or beside those of version 1."""
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.split()[:1] == ["cgroup2"]:
            root, mount = fields.split()[3:5]
            return Hierarchy(_unescaped(mount), _unescaped(root))
    return None


def _unescaped(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _cgroups_fail(hierarchy: Hierarchy | None, scope: tuple[str, ...] | None, environ: Mapping[str, str]) -> str | None:
    """Why attempts can have no cgroups; None when a process could be put into one, and ended by it.

    A scope of its own is handed to us with all that is in it; elsewhere systemd must have said so.
    """
    own = None if hierarchy is None else cgroup.own_cgroup(*hierarchy)
    if hierarchy is None or own is None:
        return "there are no cgroups of version 2"
    if scope is None and _SYSTEMD.exists() and not _delegated(own):
        return f"systemd manages {own} and has not delegated it"
    works, complaint = _said([*(scope or ()), sys.executable, "-I", "-S", _TRIAL, *hierarchy], environ)
    return None if works is not None else complaint or "the trial ended without a word"


def _delegated(path: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(path, name) == b"1":
                return True
    return False


# The service of this server


def _leaving(membership: str, environ: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str | None]:
    """The command that starts something outside of our service, and, where there is none, why jobs end with it."""
    unit = service_of(membership) if _SYSTEMD.exists() else None
    if unit is None:
        return None, None
    of_user = ["--user"] if "/user@" in membership else []
    if _kill_mode(unit, of_user, environ) in ("process", "none"):
        return None, None
    scope = ("systemd-run", *of_user, "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--")
    failure = _scope_fails(scope, unit, environ)
    if failure is None:
        return scope, None
    return None, f"this server is the service {unit}, which systemd ends with all its processes ({failure})"


def service_of(membership: str) -> str | None:
    """The systemd service that this process belongs to, by ``/proc/self/cgroup``; None in a scope or session."""
    for line in membership.splitlines():
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" or names == "name=systemd":
            units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
            unit = units[-1] if units else ""
            if unit.endswith(".service") and not unit.startswith("user@"):
                return unit
    return None


def _kill_mode(unit: str, of_user: list[str], environ: Mapping[str, str]) -> str:
    said, _ = _said(["systemctl", *of_user, "show", "--property=KillMode", "--value", unit], environ)
    return (said or "").strip()


def _scope_fails(scope: tuple[str, ...], unit: str, environ: Mapping[str, str]) -> str | None:
    """Why nothing can be started outside; the trial says where it finds itself."""
    where, error = _said([*scope, "cat", "/proc/self/cgroup"], environ)
    if not where:
        return f"systemd-run failed: {error or 'without a word'}"
    return None if service_of(where) != unit else "systemd-run left it inside"


def _said(command: list[str], environ: Mapping[str, str]) -> tuple[str | None, str]:
    """What a command printed, None if it failed, and its last word of complaint."""
    try:
        ended = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    complaint = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return (None if ended.returncode else ended.stdout.decode(errors="replace")), complaint


# Logs and host memory


def holes_in(folder: Path) -> bool:
    """Whether files there can give back space in their middle; also True where none can be made to try."""
    trial = folder / f".hole-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        descriptor = os.open(trial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return True
    try:
        return can_punch(descriptor)
    finally:
        os.close(descriptor)
        trial.unlink(missing_ok=True)


def oom_counters(membership: str, hierarchy: Hierarchy | None) -> tuple[str, ...]:
    """Of our cgroup where there is one with a limit, then the whole machine's."""
    found = []
    own = None if hierarchy is None else cgroup.own_cgroup(*hierarchy)
    if own is not None:
        found.append(f"{own}/memory.events")
    for line in membership.splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in names.split(","):
            found.append(f"/sys/fs/cgroup/memory{'' if path == '/' else path}/memory.oom_control")
    return (*(path for path in found if Path(path).exists()), "/proc/vmstat")
