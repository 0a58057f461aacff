"""The cgroup of one attempt: whoever is born in it stays, whatever it does to its session, parents or environment.

Made by the supervisor below its own cgroup where the host has found that this works; entered by
the job before its first instruction. Shared by the supervisor and the host; decides nothing.
"""

from __future__ import annotations

import os
import time

from .tree import read_file, read_proc, start_time

_PAUSES_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


def own_cgroup(mount: str, root: str) -> str | None:
    """The folder of our own cgroup (version 2); None where the mount does not show it.

    mount, root  where the hierarchy is mounted, and which of its folders is the top there.
    """
    lines = read_proc("self/cgroup").decode(errors="surrogateescape").split("\n")
    path = next((line[3:] for line in lines if line.startswith("0::/")), None)
    inside = path is not None and "/.." not in path and (root == "/" or f"{path}/".startswith(f"{root}/"))
    if path is None or not inside:
        return None
    below = path if root == "/" else path[len(root) :]
    return mount + ("" if below == "/" else below)


def make(path: str) -> bool:
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return False
    return True


def enter(path: str) -> None:
    """Move this process in. Where that fails, its descent and its marker still show whose it is."""
    try:
        _write(f"{path}/cgroup.procs", b"0")
    except OSError:
        return


def members(path: str) -> dict[int, int]:
    """Living processes in it and below, and their start times."""
    pids = [int(pid) for folder in _folders(path) for pid in read_file(f"{folder}/cgroup.procs").split()]
    return {pid: started for pid in pids if pid and (started := start_time(pid)) is not None}


def kill(path: str) -> None:
    """SIGKILL to all in it at once, so that none can fork away."""
    try:
        _write(f"{path}/cgroup.kill", b"1")
    except OSError:
        return


def remove(path: str) -> None:
    """Take it away, with those that the job made in it; one with a process in it stays.

    The kernel counts a process for a moment after it was collected.
    """
    for pause_s in (*_PAUSES_S, None):
        for folder in reversed(_folders(path)):
            try:
                os.rmdir(folder)
            except OSError:  # noqa: PERF203
                continue
        if pause_s is None or not os.path.isdir(path) or members(path):
            return
        time.sleep(pause_s)


def below(path: str) -> list[str]:
    """Those that the job made in it, parents before children."""
    return _folders(path)[1:]


def _folders(path: str) -> list[str]:
    """Parents before children."""
    found = [path]
    for folder in found:
        try:
            found += [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:  # noqa: PERF203
            continue
    return found


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
