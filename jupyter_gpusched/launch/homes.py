"""Cgroups that a service makes for the attempts of others: none of their processes can leave its own.

Made and entered as root before the change of user, so that a job can neither hide from its end
nor raise its limits. Host memory and CPUs are limited where the service was given a part of the
hierarchy in which it may turn the controllers on; elsewhere they are only counted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from jupyter_gpusched.core.model import JobId
from jupyter_gpusched.ports import LaunchOrder
from jupyter_gpusched.runner import cgroup
from jupyter_gpusched.runner.tree import read_file

from .cgroups import OF_ATTEMPT, name_of
from .means import Hierarchy

SUBGROUP = "host"
"""Where the service itself is when it may divide what is above (`DelegateSubgroup=host` in its unit)."""

LIMITING = frozenset({"memory", "cpu"})
"""Controllers by which a job can be kept to what it asked for."""

_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Homes:
    """base  where they are made; ``controllers`` limit them; ``mount`` is the top of the hierarchy."""

    base: str
    controllers: frozenset[str] = frozenset()
    mount: str = "/sys/fs/cgroup"

    def make(self, order: LaunchOrder, marker: str) -> str | None:
        """A new one for an attempt; None where that fails, and descent and marker must do."""
        path, request = f"{self.base}/{name_of(order.job.id, order.attempt, marker)}", order.job.request
        if not (cgroup.make(path) or os.path.isdir(path)):  # noqa: PTH112  from a start that came to nothing
            return None
        if "memory" in self.controllers and request.memory is not None:
            _write(f"{path}/memory.max", str(request.memory * 2**20))
        if "cpu" in self.controllers and request.cpus is not None:
            _write(f"{path}/cpu.max", f"{request.cpus * _PERIOD_US} {_PERIOD_US}")
        return path

    def of(self, job_id: JobId, attempt: int) -> str | None:
        """The one that was made for an attempt, also by an earlier host; None where none is left.

        Known by its name and by where it lies: only we can make any here, so that no word of the job's user is needed.
        """
        beginning = OF_ATTEMPT.format(job_id=job_id, attempt=attempt)
        try:
            found = sorted(entry.path for entry in os.scandir(self.base) if entry.name.startswith(beginning))
        except OSError:
            return None
        return next((path for path in found if cgroup.members(path)), found[0] if found else None)


def open_homes(hierarchy: Hierarchy) -> Homes | None:
    """Where this service makes them, with the controllers that it could turn on; None where it has no place."""
    own = cgroup.own_cgroup(*hierarchy)
    if own is None:
        return None
    base, _, last = own.rpartition("/")
    if last != SUBGROUP or not base.startswith(hierarchy.mount):
        return Homes(own, mount=hierarchy.mount)
    for controller in sorted(LIMITING):
        _write(f"{base}/cgroup.subtree_control", f"+{controller}")
    on = read_file(f"{base}/cgroup.subtree_control").decode().split()
    return Homes(base, LIMITING.intersection(on), hierarchy.mount)


def uncontrolled(homes: Homes | None) -> str | None:
    """Why jobs can use more host memory and CPUs than they asked for; None where they cannot."""
    if homes is None:
        return "there are no cgroups for its jobs"
    if homes.controllers == LIMITING:
        return None
    there = read_file(f"{homes.mount}/cgroup.controllers").decode().split()
    if absent := sorted(LIMITING.difference(there)):
        return (
            f"the kernel has no controllers for {' and '.join(absent)} in cgroups of version 2 at {homes.mount} "
            "(systemd.unified_cgroup_hierarchy=1 on the kernel's command line moves them there from version 1)"
        )
    return f"the service may not turn on controllers in {homes.base} (DelegateSubgroup={SUBGROUP} in its unit lets it)"


def entering(path: str) -> list[str]:
    """The command before another one by which it runs in this cgroup; where that fails it runs all the same."""
    return ["/bin/sh", "-c", 'echo 0 >"$0/cgroup.procs"; exec "$@"', path]


def clear(path: str) -> bool:
    """End what is left in a cgroup and take it away; False while something is still there."""
    cgroup.kill(path)
    try:
        os.rmdir(path)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError:
        for inner in reversed(cgroup.below(path)):
            with suppress(OSError):
                os.rmdir(inner)  # noqa: PTH106
        return False
    return True


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, text.encode())
    except OSError:  # a controller that is not offered here
        return
    finally:
        os.close(descriptor)
