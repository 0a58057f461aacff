"""Whether a process here can be put into a cgroup and ended by it: ``python -I -S trial.py MOUNT ROOT``.

Run by a host where supervisors will run, in this server's place or in a scope outside. Ends with 0,
or with 1 and the reason on standard error. Leaves nothing behind, and tidies up what others left.
"""

import os
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runner import cgroup  # type: ignore[import-not-found]

PATIENCE_S = 3.0
STALE_S = 60.0


def main() -> None:
    own = cgroup.own_cgroup(sys.argv[1], sys.argv[2])
    if own is None:
        sys.exit("there are no cgroups of version 2")
    tidy(own)
    place = f"{own}/gpusched-trial-{os.getpid()}"
    if not cgroup.make(place):
        sys.exit(f"no cgroup can be made in {own}")
    child, entered = start_inside(place)
    if not entered:
        os.kill(child, 9)
    cgroup.kill(place)
    gone = ended(child)
    if not gone:
        os.kill(child, 9)
        os.waitpid(child, 0)
    cgroup.remove(place)
    if not entered:
        sys.exit(f"no process can be moved into a cgroup of {own}")
    if not gone:
        sys.exit("this kernel has no cgroup.kill (Linux 5.14 or newer has)")


def tidy(own: str) -> None:
    """Take away empty cgroups of attempts whose supervisor and host were both killed."""
    for entry in os.scandir(own):
        try:
            if entry.name.startswith("gpusched-") and time.time() - entry.stat().st_ctime > STALE_S:
                os.rmdir(entry.path)
        except OSError:  # noqa: PERF203  not empty, or gone meanwhile
            continue


def start_inside(place: str) -> tuple[int, bool]:
    """A child that enters the cgroup and waits there, and whether it is in it."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        cgroup.enter(place)
        os.write(tell, b".")
        time.sleep(60)
        os._exit(0)
    os.read(told, 1)
    return child, child in cgroup.members(place)


def ended(child: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


main()
