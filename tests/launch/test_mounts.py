"""What a user mounts over a job's folder is not entered; mounts of root's stand here for file systems of users."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess

import pytest

from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch import mounts
from jupyter_gpusched.launch.door import as_owner_of, opened, owner_of
from jupyter_gpusched.launch.folders import lay_folder, remove_folder
from jupyter_gpusched.launch.mounts import MountedOver, open_below, status_of
from jupyter_gpusched.launch.owners import Owner

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has only the own files to open")

USER = Owner("somebody", 54321, 54321, (54321,), "/", "/bin/sh")


@pytest.fixture
def folder(tmp_path):
    """A job's folder of a user, below one that others may pass through."""
    above = tmp_path / "jobs"
    above.mkdir(mode=0o711)
    for parent in (above, *above.parents):
        if parent.stat().st_uid == os.geteuid() and parent != parent.parent and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    folder = above / "aaaaaaaa"
    lay_folder(folder, USER)
    with as_owner_of(folder):
        (folder / "attempt-1").mkdir()
        (folder / "attempt-1" / "exit.json").write_text('{"code": 0}')
    return folder


@pytest.fixture
def mounted(tmp_path):
    """``mounted(path)``: another file system over it, in which root's are the files."""
    over = []

    def mount(path):
        words = ["mount", "-t", "tmpfs", "-o", "mode=700", "none", str(path)]
        if not path.is_dir():
            source = tmp_path / "other"
            source.write_text('{"code": 7}')
            words = ["mount", "--bind", str(source), str(path)]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here")
        over.append(path)

    yield mount
    for path in reversed(over):
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture(params=["the kernel looks out", "an older kernel"])
def kernel(request, monkeypatch):
    if request.param == "an older kernel":

        class Older:
            def syscall(self, *_words):
                ctypes.set_errno(errno.ENOSYS)
                return -1

        monkeypatch.setattr(mounts, "_library", Older)
    return request.param


@pytest.mark.usefixtures("kernel")
def test_without_anything_mounted_all_is_as_the_files_say(folder):
    assert status_of(folder).st_uid == owner_of(folder) == USER.uid
    assert files.read_exit(folder, 1) == {"code": 0}
    files.write_stop(folder, 1, "cancelled", 1.0)
    assert (folder / "attempt-1" / "stop").stat().st_uid == USER.uid


@pytest.mark.usefixtures("kernel")
def test_a_folder_that_is_mounted_over_is_nobodys_and_nothing_is_done_in_it(folder, mounted):
    mounted(folder)
    with pytest.raises(MountedOver, match="something is mounted over it"):
        status_of(folder)
    assert owner_of(folder) is None, "or it would be root's, as what is mounted says"
    with pytest.raises(MountedOver), as_owner_of(folder):
        pass
    with pytest.raises(MountedOver):
        lay_folder(folder, USER)
    assert files.read_exit(folder, 1) is None
    remove_folder(folder)
    assert folder.exists()


@pytest.mark.usefixtures("kernel")
def test_nor_in_a_folder_of_an_attempt(folder, mounted):
    mounted(folder / "attempt-1")
    assert files.read_exit(folder, 1) is None
    with pytest.raises(MountedOver):
        files.write_stop(folder, 1, "cancelled", 1.0)
    with pytest.raises(MountedOver):
        files.claim_void(folder, 1, at=0.0, why="adopted", owner=USER)
    with pytest.raises(MountedOver):
        files.keep_timeline(folder, 1, [])


def test_a_file_that_is_mounted_over_is_not_read(folder, mounted):
    mounted(folder / "attempt-1" / "exit.json")
    with pytest.raises(MountedOver), opened(folder, 1, "exit.json"):
        pass
    assert files.read_exit(folder, 1) is None


def test_a_folder_is_taken_away_with_its_owners_rights_and_what_is_mounted_in_it_is_left(folder, mounted):
    other = folder / "mine"
    with as_owner_of(folder):
        other.mkdir()
    mounted(other)
    (other / "kept").write_text("by root's hand")
    remove_folder(folder)
    assert (other / "kept").exists()
    assert not (folder / "attempt-1").exists()


def test_what_is_not_there_is_not_there_for_either_kernel(folder, kernel):
    inside = os.open(folder, os.O_PATH)
    try:
        with pytest.raises(FileNotFoundError):
            open_below(inside, "absent", os.O_RDONLY)
    finally:
        os.close(inside)
