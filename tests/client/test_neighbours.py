"""Whose promises a host of one's own cannot see, by what it finds around itself."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from jupyter_gpusched import neighbours
from jupyter_gpusched.neighbours import Neighbours, others_hosts, unseen

HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"
SOCKET = "0123456789abcdef.sock"


def line(path, flags="00010000"):
    return f"000000009b3c8f5d: 00000002 00000000 {flags} 0001 01 7794402 {path}\n"


@pytest.fixture
def world(tmp_path):
    """A machine with its own pids and no other host; ``look`` sees it."""

    class World:
        proc, root = tmp_path / "proc", tmp_path / "root"

        def look(self, **environ):
            return unseen(proc=self.proc, root=self.root, environ=environ)

        def has(self, path, text):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

        def pids_of(self, namespace):
            place = self.proc / "self/ns/pid"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.symlink_to(namespace)

    world = World()
    world.pids_of("pid:[4026531836]")
    world.has("proc/net/unix", HEAD)
    return world


def test_a_machine_with_one_host_hides_nothing(world):
    assert world.look() is None


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_the_mark_of_a_container_tells_it(world, mark):
    world.has(f"root/{mark}", "")
    assert world.look() == "containers"


def test_so_do_its_environment_and_pids_of_its_own(world):
    assert world.look(container="podman") == world.look(KUBERNETES_SERVICE_HOST="10.0.0.1") == "containers"
    world.pids_of("pid:[4026532999]")
    assert world.look() == "containers"
    world.has("proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2")
    assert world.look() is None, "that is no container"


def test_hosts_of_other_users_are_told_from_ones_own_and_from_all_else(world):
    own, other = os.geteuid(), os.geteuid() + 1
    listed = "".join(
        line(path)
        for path in (f"/tmp/jupyter-gpusched-{own}/{SOCKET}", f"/run/user/{other}/bus", "@abstract", f"/x y/{SOCKET}")
    )
    connected = line(f"/run/user/{other}/jupyter-gpusched/{SOCKET}", flags="00000000")
    unnamed = "000000009b3c8f5d: 00000003 00000000 00000000 0001 03  1073\n"
    world.has("proc/net/unix", HEAD + listed + connected + unnamed)
    assert world.look() is None
    for place in (f"/run/user/{other}/jupyter-gpusched", f"/tmp/jupyter-gpusched-{other}"):
        world.has("proc/net/unix", HEAD + listed + line(f"{place}/{SOCKET}"))
        assert world.look() == "hosts"


def test_the_kernels_own_table_is_understood():
    """A socket where hosts have theirs, as the kernel lists it; it is ours, and then taken for another user's."""
    folder = Path(f"/tmp/jupyter-gpusched-{os.geteuid()}")
    made = not folder.exists()
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{os.getpid():016x}.sock"
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(str(path))
        host.listen()
        try:
            listed = Path("/proc/net/unix").read_text()
            assert str(path) in listed
            assert others_hosts(listed.replace(str(folder), "/tmp/jupyter-gpusched-123456")) >= {123456}
            assert os.geteuid() not in others_hosts(listed)
        finally:
            path.unlink()
            if made:
                folder.rmdir()


def test_it_is_looked_up_once_a_minute_at_most(monkeypatch):
    now, looks = [0.0], []
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: now[0])
    asked = Neighbours(lambda: looks.append(now[0]) or "hosts")
    assert [asked.unseen() for _ in range(3)] == ["hosts"] * 3
    now[0] = 61.0
    asked.unseen()
    assert looks == [0.0, 61.0]
