"""What jobs of a service see of the machine: other cards' device files and the common ``/tmp`` are hidden."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpusched.core.model import Kind, Work
from jupyter_gpusched.launch import fence as fences
from jupyter_gpusched.launch.fence import Fence, NotBehindTheFence, build_fence
from jupyter_gpusched.launch.spawn import as_user
from jupyter_gpusched.ports import LaunchOrder
from tests.launch.conftest import a_grant, a_job

FIRST, SECOND = "GPU-11111111-0000-0000-0000-000000000000", "GPU-22222222-0000-0000-0000-000000000000"


@pytest.fixture
def fence(tmp_path):
    """Two cards whose device files are numbered otherwise than the driver lists them; plain files stand for devices."""
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    devices, private = tmp_path / "dev", tmp_path / "tmp"
    (devices / "nvidia-caps").mkdir(parents=True)
    private.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "null", "tty1", "loop0"):
        (devices / name).write_text(name)
    (devices / "fd").symlink_to("/proc/self/fd")
    (private / "of-somebody").write_text("secret")
    for bus, uuid, minor in (("0000:01:00.0", FIRST, 1), ("0000:02:00.0", SECOND, 0)):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        (tmp_path / "gpus" / bus / "information").write_text(
            f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t {uuid}\n"
            f"Bus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        )
    return Fence(shutil.which("bwrap") or "bwrap", devices=devices, cards=tmp_path / "gpus", private=private)


def order(*gpus: str, cwd: str = "/", folder: Path = Path("/nowhere")) -> LaunchOrder:
    job = a_job(grants=[a_grant(gpu=gpu) for gpu in gpus])
    return LaunchOrder(job, 1, Work(Kind.COMMAND, cwd, {}, argv=("true",)), folder)


@pytest.fixture
def behind(fence):
    """Run a shell behind the fence as a user without rights; skipped where bubblewrap cannot do that."""
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("needs root and bubblewrap")
    if (why := Fence(fence.bwrap).fails()) is not None:
        pytest.skip(f"bubblewrap does not work here: {why}")
    return Behind(fence)


class Behind:
    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def words(self, script: str, *gpus: str, **more: object) -> list[str]:
        return [*self._fence.command(order(*gpus, **more)), *as_user(65534, 65534, ()), "/bin/sh", "-c", script]

    def __call__(self, script: str, *gpus: str, **more: object) -> subprocess.CompletedProcess[str]:
        words = self.words(script, *gpus, **more)
        return subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("gpus", "seen"),
    [((), []), ((FIRST,), ["nvidia1"]), ((SECOND,), ["nvidia0"])],
    ids=["none", "first", "second"],
)
def test_a_job_sees_the_device_files_of_its_own_cards_and_all_that_are_of_no_card(behind, fence, gpus, seen):
    listed = behind(f"cd {fence.devices} && ls && cat nvidiactl nvidia-caps/nvidia-cap1 && echo && readlink fd", *gpus)
    assert listed.returncode == 0, listed.stderr
    *names, content, link = listed.stdout.split()
    assert sorted(names) == sorted(["fd", "null", "nvidia-caps", "nvidia-uvm", "nvidiactl", *seen])
    assert content == "nvidiactlnvidia-caps/nvidia-cap1"
    assert link == "/proc/self/fd"


def test_a_job_has_a_tmp_of_its_own_that_is_gone_with_it(behind, fence):
    written = behind(f"ls -A {fence.private}; echo mine >{fence.private}/mine && cat {fence.private}/mine")
    assert (written.stdout, written.returncode) == ("mine\n", 0), written.stderr
    assert os.listdir(fence.private) == ["of-somebody"]


def test_the_jobs_own_folder_is_seen_even_below_tmp(behind, fence):
    folder = fence.private / "jobs" / "aaaaaaaa"
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    done = behind(f"echo 7 >{folder}/claim; ls {fence.private} {fence.private}/jobs", folder=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "claim").read_text() == "7\n"
    assert "of-somebody" not in done.stdout


def test_what_runs_there_keeps_its_pid_its_rights_and_the_way_it_ends(behind):
    words = behind.words("echo $$ $PPID; id -u; kill -9 $$")
    with subprocess.Popen(words, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        told = process.stdout.read().split()
    assert told == [str(process.pid), str(os.getpid()), "65534"]
    assert process.returncode == -signal.SIGKILL


def test_a_card_that_the_driver_does_not_tell_of_starts_no_job_rather_than_one_that_sees_nothing(fence):
    with pytest.raises(NotBehindTheFence, match="does not tell which device file belongs to GPU-3"):
        fence.command(order("GPU-3"))


def test_jobs_on_simulated_cards_see_no_real_one(behind, fence):
    simulating = Behind(replace(fence, simulated=True))
    assert "nvidiactl" in simulating(f"ls {fence.devices}", FIRST).stdout.split()
    assert "nvidia1" not in simulating(f"ls {fence.devices}", FIRST, "GPU-3").stdout.split()


def test_a_job_on_all_cards_gets_the_folder_as_it_is(fence):
    assert str(fence.devices) not in fence.command(order(FIRST, SECOND))


def test_without_device_files_of_cards_the_folder_stays_as_it_is(fence):
    for name in ("nvidia0", "nvidia1"):
        (fence.devices / name).unlink()
    assert str(fence.devices) not in fence.command(order("SIM-1"))


def test_a_job_on_an_instance_of_a_card_keeps_the_cards_files(fence):
    assert str(fence.devices) not in fence.command(order("MIG-1"))


def test_a_folder_in_tmp_is_told_rather_than_missed(fence):
    with pytest.raises(NotBehindTheFence, match="of which each job has its own here"):
        fence.command(order(cwd=str(fence.private / "project")))
    assert "of which each job has its own here" in fence.hides(str(fence.private / "project"))
    assert fence.hides(f"{fence.private}/../elsewhere") is None
    assert fence.command(order(cwd=str(fence.private)))
    shown = replace(fence, shown=(fence.private / "project",))
    assert str(fence.private / "project") in shown.command(order(cwd=str(fence.private / "project")))


def test_a_fence_that_hides_nothing_is_not_taken_for_one(fence, tmp_path):
    pretends = tmp_path / "bwrap"
    pretends.write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n')
    pretends.chmod(0o755)
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert "does not hide nvidia0, nvidia1, of-somebody" in (replace(fence, bwrap=str(pretends)).fails() or "")


def test_cards_of_which_the_driver_tells_no_device_file_are_noticed_at_the_start(fence, tmp_path):
    assert "does not tell which device file" in (replace(fence, cards=tmp_path / "nowhere").fails() or "")


@pytest.mark.parametrize(
    ("uid", "bwrap", "why"),
    [(1000, "/usr/bin/bwrap", "runs as root"), (0, None, "missing"), (0, "/bin/false", "does not work here")],
)
def test_it_is_refused_in_words_where_it_cannot_be(monkeypatch, uid, bwrap, why):
    monkeypatch.setattr(fences.os, "geteuid", lambda: uid)
    monkeypatch.setattr(fences.shutil, "which", lambda name: bwrap)
    with pytest.raises(OSError, match=why):
        build_fence()
