"""Cgroups that a service makes for the attempts of its users: what is written, on folders that look like some.

What the kernel makes of them is tested with real users in tests/system.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_for

from jupyter_gpusched.core.model import Kind, Request, Work
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.launch import homes
from jupyter_gpusched.launch.homes import Homes, clear, entering, open_homes, uncontrolled
from jupyter_gpusched.launch.means import Hierarchy, find_hierarchy
from jupyter_gpusched.ports import LaunchOrder
from jupyter_gpusched.runner import cgroup
from tests.launch.conftest import a_job


@pytest.fixture
def hierarchy(tmp_path, monkeypatch):
    """A service in its subgroup; new groups get the files that the kernel would give them."""
    base = tmp_path / "system.slice" / "jupyter-gpusched.service"
    (base / "host").mkdir(parents=True)
    (base / "cgroup.subtree_control").write_text("")

    written = []
    monkeypatch.setattr(homes, "_write", lambda path, text: written.append((path.removeprefix(f"{base}/"), text)))
    monkeypatch.setattr(cgroup, "own_cgroup", lambda mount, root: str(base / "host"))
    monkeypatch.setattr(homes, "read_file", lambda path: b"cpu memory")
    return Hierarchy(str(tmp_path), "/"), written


def order(**request):
    job = replace(a_job(), request=Request(gpus=0, **request))
    return LaunchOrder(job, 1, Work(Kind.COMMAND, "/", {}), Path("/nowhere"))


def test_a_service_in_its_subgroup_limits_what_jobs_asked_for(hierarchy):
    mounted, written = hierarchy
    found = open_homes(mounted)
    assert found.controllers == {"memory", "cpu"}
    assert uncontrolled(found) is None
    assert written == [("cgroup.subtree_control", "+cpu"), ("cgroup.subtree_control", "+memory")]
    written.clear()
    name = "gpusched-aaaaaaaa-1-aaaaaaaa"
    assert Path(found.make(order(cpus=2, memory=Mib(1024)), "a" * 32)).name == name
    assert written == [(f"{name}/memory.max", str(2**30)), (f"{name}/cpu.max", "200000 100000")]
    written.clear()
    assert found.make(order(), "b" * 32)
    assert written == []


def test_elsewhere_jobs_have_cgroups_without_limits_and_it_is_said(hierarchy, monkeypatch):
    monkeypatch.setattr(cgroup, "own_cgroup", lambda mount, root: f"{mount}/user.slice")
    found = open_homes(hierarchy[0])
    assert (found.base, found.controllers) == (f"{hierarchy[0].mount}/user.slice", frozenset())
    assert uncontrolled(found).startswith("the service may not turn on controllers in")
    assert "DelegateSubgroup=host" in uncontrolled(found)
    assert uncontrolled(None) == "there are no cgroups for its jobs"
    monkeypatch.setattr(cgroup, "own_cgroup", lambda mount, root: None)
    assert open_homes(hierarchy[0]) is None


def test_where_the_controllers_are_elsewhere_it_is_said_what_brings_them(hierarchy, monkeypatch):
    """As on a machine with both versions, where those of memory and CPUs belong to the first."""
    monkeypatch.setattr(cgroup, "own_cgroup", lambda mount, root: mount)
    monkeypatch.setattr(homes, "read_file", lambda path: b"hugetlb memory" if "controllers" in path else b"")
    told = uncontrolled(open_homes(hierarchy[0]))
    assert told.startswith("the kernel has no controllers for cpu in cgroups of version 2")
    assert "systemd.unified_cgroup_hierarchy=1" in told
    assert "DelegateSubgroup" not in told


HERE = find_hierarchy(Path("/proc/self/mountinfo").read_text())
OWN = None if HERE is None else cgroup.own_cgroup(*HERE)


def in_subgroup(base, code):
    """What a process says that runs in the subgroup of a part of the real hierarchy."""
    (base / "host").mkdir()
    words = [*entering(str(base / "host")), sys.executable, "-c", code]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(ran.stdout)


@pytest.fixture
def part():
    """A part of the real hierarchy, as a service manager hands it over."""
    if HERE is None or OWN is None or not os.access(OWN, os.W_OK):
        pytest.skip("there are no cgroups of version 2 that could be divided; root in a container has them")
    base = Path(OWN) / f"gpusched-test-{os.getpid()}"
    if not cgroup.make(str(base)):
        pytest.skip(f"no cgroup can be made in {OWN}")
    yield base
    cgroup.remove(str(base))


def test_what_is_told_of_the_real_hierarchy_is_what_the_kernel_does(part):
    """Where it has the controllers the limits are in its files, where not it is said; and all goes with one write."""
    code = (
        "import json, sys; from pathlib import Path\n"
        "from jupyter_gpusched.launch.homes import open_homes, uncontrolled\n"
        "from jupyter_gpusched.launch.means import find_hierarchy\n"
        "homes = open_homes(find_hierarchy(Path('/proc/self/mountinfo').read_text()))\n"
        "print(json.dumps([homes.base, sorted(homes.controllers), uncontrolled(homes)]))"
    )
    base, controllers, why = in_subgroup(part, code)
    assert base == str(part)
    assert (why is None) == (controllers == ["cpu", "memory"])
    made = Path(Homes(base, frozenset(controllers)).make(order(cpus=2, memory=Mib(1024)), "a" * 32))
    limits = {"memory": ("memory.max", str(2**30)), "cpu": ("cpu.max", "200000 100000")}
    for controller, (name, value) in limits.items():
        assert (made / name).exists() == (controller in controllers)
        if controller in controllers:
            assert (made / name).read_text().strip() == value
    inside = subprocess.Popen([*entering(str(made)), "/bin/sh", "-c", "echo in; sleep 600 & wait"], stdout=-1)
    assert inside.stdout.readline() == b"in\n"
    assert inside.pid in cgroup.members(str(made))
    clear(str(made))
    assert inside.wait(60) == -signal.SIGKILL
    inside.stdout.close()
    wait_for(lambda: clear(str(made)), "it cannot be taken away")


def test_a_cgroup_that_cannot_be_made_is_done_without(tmp_path):
    assert Homes(str(tmp_path / "absent")).make(order(), "a" * 32) is None


def test_one_that_is_gone_already_is_cleared(tmp_path):
    assert clear(str(tmp_path / "gone"))
    (tmp_path / "empty").mkdir()
    assert clear(str(tmp_path / "empty"))
    assert not (tmp_path / "empty").exists()


def test_the_one_of_an_attempt_is_found_by_its_name_alone_after_a_restart(tmp_path):
    base = tmp_path / "service"
    base.mkdir()
    found = Homes(str(base))
    assert found.of("aaaaaaaa", 1) is None
    made = found.make(order(), "a" * 32)
    (base / "gpusched-aaaaaaaa-11-bbbbbbbb").mkdir()
    (base / f"gpusched-{'a' * 32}").mkdir()  # as a host of a user's own names those that it keeps ready
    assert found.of(a_job().id, 1) == made
    assert found.of(a_job().id, 2) is None
    assert Homes(str(tmp_path / "absent")).of(a_job().id, 1) is None
