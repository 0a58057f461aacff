"""The files and folders that a submission names: what is no file on a disk is refused, and nothing is waited for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpusched.core.model import BadRequest, Kind, Work
from jupyter_gpusched.learning import code_of
from jupyter_gpusched.named_files import kernels_own, read_file
from jupyter_gpusched.notebooks import read_notebook


@pytest.fixture
def links(tmp_path):
    """Names in a folder of the user's that lead elsewhere."""
    real = tmp_path / "real"
    real.mkdir()
    for name, target in {
        "cwd": "/proc/self/cwd", "far": str(real), "near": "real", "again": "cwd/etc", "up": "real/../cwd",
        "proc": "/proc", "round": "round", "shared": "/dev/shm", "gone": "/no/such/place", "dev": "/proc/../dev",
    }.items():  # fmt: skip
        (tmp_path / name).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("/proc/self/cwd", "/proc/self"), ("/proc", "/proc"), ("/sys/kernel", "/sys/kernel"),
        ("/dev/stdin", "/dev/stdin"), ("/dev/fd/3", "/dev/fd"), ("/dev", "/dev"), ("/dev/shmx", "/dev/shmx"),
        ("//proc//./self", "/proc/self"),
        ("/etc/../proc/1", "/proc/1"), ("cwd", "/proc/self"), ("again", "/proc/self"), ("up", "/proc/self"),
        ("proc/1/root", "/proc/1"), ("dev", "/dev"),
        ("/", None), ("/process", None), ("/dev/shm", None), ("/dev/shm/x", None), ("shared/x", None), ("far", None),
        ("near/x", None), ("round", None), ("gone", None), ("real/../real/x", None), ("x" * 5000, None),
    ],
)  # fmt: skip
def test_the_kernels_own_places_are_found_by_whatever_way_a_name_leads_there(links, name, refused):
    assert kernels_own(os.path.join(links, name)) == refused


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("cwd", {"cwd": "/proc/self/cwd"}), ("cwd", {"cwd": "/dev"}), ("cwd", {"cwd": "{links}/cwd"}),
        ("path", {"kind": "script", "path": "/proc/self/exe"}), ("path", {"kind": "script", "path": "/dev/stdin"}),
        ("path", {"kind": "notebook", "path": "/proc/self/cwd/x.ipynb"}), ("python", {"python": "/proc/self/exe"}),
    ],
)  # fmt: skip
def test_a_job_is_not_made_of_what_is_another_thing_for_each_process(client, command, links, field, fields):
    named = {name: value.format(links=links) for name, value in fields.items()}
    spec = {"cwd": str(links), "gpus": 0} | ({"argv": ["true"]} if "kind" not in fields else {}) | named
    with pytest.raises(BadRequest) as refused:
        client.submit(spec)
    assert refused.value.field == field
    assert "no place for files of jobs" in refused.value.message
    assert client.jobs() == []


def test_a_job_may_work_in_shared_memory(client, command):
    assert client.wait(client.submit(command("true") | {"cwd": "/dev/shm"}))["phase"] == "succeeded"


def test_a_pipe_that_took_the_place_of_a_file_is_not_waited_for(tmp_path):
    """Between the look at it and its opening its owner may have put anything there."""
    for name in ("pipe.py", "pipe.ipynb"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="is not a file"):
        read_file(tmp_path / "pipe.py", 10)
    work = Work(kind=Kind.SCRIPT, cwd=str(tmp_path), env={}, path="pipe.py")
    assert code_of(work, name="x") is None
    with pytest.raises(BadRequest, match="there is no notebook"):
        read_notebook(replace(work, kind=Kind.NOTEBOOK, path="pipe.ipynb"))


def test_of_a_file_without_end_only_a_beginning_is_read(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 100)
    assert read_file(tmp_path / "long", 10) == b"x" * 10
    before = os.listdir("/proc/self/fd")
    for other in (Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="is not a file"):
            read_file(other, 10)
    assert len(os.listdir("/proc/self/fd")) == len(before), "a descriptor is left open"
