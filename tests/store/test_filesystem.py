"""A network file system is recognised from the mount table, and refused."""

import pytest

from jupyter_gpusched.store import SqliteStore, StoreUnavailable, filesystem, network_filesystem, opening

TABLE = r"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /home rw,relatime shared:2 master:1 - nfs4 server:/home rw
31 30 0:41 / /home/ada/local rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/two\040words rw - cifs //server/share rw
33 22 0:43 / /covered rw - nfs server:/x rw
34 33 0:44 / /covered rw - tmpfs tmpfs rw
35 22 0:45 / /ssh rw - fuse.sshfs ada@server: rw
36 22 0:46 / /docker rw - fuse.fuse-overlayfs overlay rw
"""


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "mountinfo"
    file.write_text(TABLE.lstrip())
    return file


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib/x", "ext4", False),
        ("/home/ada/state", "nfs4", True),
        ("/home/ada/local/state", "xfs", False),
        ("/homestead", "ext4", False),
        ("/mnt/two words/x", "cifs", True),
        ("/covered/x", "tmpfs", False),
        ("/ssh/x", "fuse.sshfs", True),
        ("/docker/x", "fuse.fuse-overlayfs", False),
    ],
)
def test_a_path_lies_on_the_innermost_and_latest_mount(table, path, kind, network):
    assert filesystem(path, table=table) == kind
    assert network_filesystem(path, table=table) == (kind if network else None)


@pytest.mark.parametrize("kind", ["nfs", "nfs3", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph"])
def test_file_systems_shared_over_a_network_are_known(table, kind):
    table.write_text(f"22 1 0:1 / / rw - {kind} x rw\n")
    assert network_filesystem("/", table=table) == kind


def test_without_a_mount_table_nobody_can_say(tmp_path):
    assert filesystem(tmp_path, table=tmp_path / "none") == "unknown"
    assert network_filesystem(tmp_path, table=tmp_path / "none") is None


def test_the_real_table_knows_the_temporary_folder(tmp_path):
    assert filesystem(tmp_path) != "unknown"


def test_a_database_on_a_network_file_system_is_refused_before_anything_is_made(path, monkeypatch):
    monkeypatch.setattr(opening, "network_filesystem", lambda folder: "nfs4")
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\)") as refusal:
        SqliteStore(path)
    assert "GPUSCHED_HOME" in refusal.value.hint
    assert not path.exists()
