"""The unit file of the docs as it stands, and users' own terminals, servers and kernels, which find it by themselves.

In a view of the file system of its own, where the folders that the unit names are this test's.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub.bed import Kernel, ask
from system.conftest import OURS, User, end_everything_of
from waiting import wait_for

from jupyter_gpusched.launch.spawn import as_user
from jupyter_gpusched.wire import PREFIX

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
FOLDERS = {"opt": "/opt/jupyter-gpusched", "etc": "/etc/jupyter-gpusched",
           "state": "/var/lib/jupyter-gpusched", "run": "/run/jupyter-gpusched"}  # fmt: skip

VIEW = """
set -e
mount --make-rprivate /
mount -t tmpfs none "$1/upper"
for above in /opt /etc /var/lib /run; do
    mkdir -p "$1/upper$above" "$1/work"
    mkdir -p "$1/upper/work$above"
    mount -t overlay -o "lowerdir=$above,upperdir=$1/upper$above,workdir=$1/upper/work$above" overlay "$above"
done
shift
while [ $# -gt 0 ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done
echo ready
exec sleep 100000
"""
"""The machine as it is, but for the folders that are named with what is to be seen there."""


class Machine:
    """What the administrator's guide makes of a machine. ``ann`` and ``bob`` have no variable that names a socket."""

    def __init__(self, python: str, place: Path, accounts: dict[str, str]) -> None:
        self.place, self._python = place, python
        for name in (*FOLDERS, "upper"):
            (place / name).mkdir(mode=0o755)
        self.unit = dict(re.findall(r"^(\w+)=(.*)$", _unit(), re.MULTILINE))
        self._install()
        shown = [word for name, path in FOLDERS.items() for word in (str(place / name), path)]
        self._view = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", VIEW, "sh", str(place), *shown],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._view.stdout is not None
        if self._view.stdout.readline() != "ready\n":
            _, why = self._view.communicate()
            pytest.skip(f"no file systems can be mounted here ({why.strip()}); a machine with systemd lets root")
        self.users = {who: self._user(accounts[who]) for who in ("ann", "bob")}
        self.log = place / "service.log"
        self.service: subprocess.Popen[bytes] | None = None

    def _install(self) -> None:
        """The console script, as an installer makes it, and the administrator's two files."""
        declared = re.search(
            r'^\[project.scripts\]\n([\w-]+) = "([\w.]+):(\w+)"$', _text("pyproject.toml"), re.MULTILINE
        )
        assert declared is not None
        name, module, function = declared.groups()
        script = self.place / "opt/bin" / name
        script.parent.mkdir()
        script.write_text(f"#!{self._python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
        self.limits = self.place / "etc/limits.toml"
        self.limits.write_text("[everybody]\nqueued_jobs = 7\n")
        config = 'c.GpuSched.simulate = "2x24G"\nc.GpuSched.limits = "/etc/jupyter-gpusched/limits.toml"\n'
        (self.place / "etc/config.py").write_text(config)

    def inside(self, *words: str) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._view.pid}/ns/mnt", "--", *words]

    def _user(self, name: str) -> User:
        machine = self

        class Inside(User):
            def run(self, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    machine.inside(*machine.becoming(self), *words),
                    env=self.environ, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    timeout=120, check=False, **more,
                )  # fmt: skip

        return Inside(name, self._python)

    @staticmethod
    def becoming(user: User) -> list[str]:
        return as_user(user.uid, user.gid, os.getgrouplist(user.name, user.gid))

    def start(self) -> None:
        """As systemd does: the folders that it makes, the command as it stands, and next to no environment."""
        for made, at in (("State", "state"), ("Runtime", "run")):
            assert FOLDERS[at].endswith("/" + self.unit[f"{made}Directory"])
            (self.place / at).chmod(int(self.unit[f"{made}DirectoryMode"], 8))
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        env |= OURS if self._python == sys.executable else {}
        with self.log.open("ab") as log:
            self.service = subprocess.Popen(
                self.inside(*self.unit["ExecStart"].split()),
                env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

        def answers() -> bool:
            assert self.service is not None
            assert self.service.poll() is None, self.log.read_text()
            return (self.place / "run/host.sock").exists() and (self.place / "state/host.json").exists()

        wait_for(answers, "the service does not announce itself")

    def reload(self) -> None:
        assert self.service is not None
        command = self.unit["ExecReload"].replace("$MAINPID", str(self.service.pid))
        subprocess.run(self.inside(*command.split()), check=True)

    def stop(self) -> int:
        """As ``KillMode=process`` does; the exit code."""
        assert self.service is not None
        assert self.unit["KillMode"] == "process"
        self.service.send_signal(signal.SIGTERM)
        return self.service.wait(timeout=60)

    def close(self) -> None:
        if self.service is not None and self.service.poll() is None:
            self.service.kill()
            self.service.wait()
        for user in self.users.values():
            end_everything_of(user.name)
        self._view.kill()
        self._view.communicate()


def _unit() -> str:
    found = re.search(r"```ini\n(.*?)```", _text("docs/how-to/shared-machine.md"), re.DOTALL)
    assert found is not None
    return found[1]


def _text(path: str) -> str:
    return (ROOT / path).read_text()


@pytest.fixture
def machine(everybodys_python: str, accounts: dict[str, str]) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="gs-unit-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        machine = Machine(everybodys_python, Path(folder), accounts)
        try:
            machine.start()
            yield machine
        finally:
            machine.close()


def test_the_units_own_commands_start_reload_and_stop_a_service_that_every_terminal_finds(machine):
    ann = machine.users["ann"]
    doctor = ann.cli("doctor")
    assert f"system in process {machine.service.pid}" in doctor.stdout, doctor.stdout + doctor.stderr
    assert "/run/jupyter-gpusched/host.sock" in doctor.stdout
    submitted = ann.cli("submit", "--gpus", "0", "--", "sleep", "600")
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.split()[-1]
    view = wait_for(
        lambda: shown if (shown := json.loads(ann.cli("show", "--json", job).stdout))["phase"] == "running" else None,
        "it does not start",
    )
    assert view["user"] == ann.name
    assert (machine.place / "state/jobs" / job).stat().st_uid == ann.uid
    machine.limits.write_text("[everybody]\nqueued_jobs = 9\n")
    machine.reload()
    wait_for(lambda: re.search(r"waiting jobs +9", ann.cli("limits").stdout), "the limits are not read again")
    assert machine.stop() == 0
    down = ann.cli("ls")
    assert down.returncode == 3, "nobody starts a host beside a service that is down"
    machine.start()
    assert json.loads(ann.cli("show", "--json", job).stdout)["phase"] == "running", "KillMode=process lets it go on"
    assert ann.cli("cancel", "--grace", "0s", job).returncode == 0


def test_a_users_own_jupyter_server_and_its_kernels_join_the_service(machine, everybodys_python):
    """Ann's server asks for nothing; its page, a cell and her terminal show the same job, and Bob's show none."""
    ann, bob = machine.users["ann"], machine.users["bob"]
    if ann.run(everybodys_python, "-c", "import jupyter_server").returncode != 0:
        assert os.environ.get("GPUSCHED_TEST_PACKAGES"), "it is among NEEDS"
        pytest.skip("there is no jupyter_server in GPUSCHED_TEST_PACKAGES")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base, token = f"http://127.0.0.1:{port}", "of-ann"
    words = [
        everybodys_python, "-m", "jupyter_server", "--no-browser", f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", "--ServerApp.terminals_enabled=False",
        "--ServerApp.jpserver_extensions={'jupyter_gpusched': True}", f"--ServerApp.root_dir={ann.home}",
    ]  # fmt: skip
    log = machine.place / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            machine.inside(*machine.becoming(ann), *words),
            env=ann.environ, cwd=ann.home, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:

        def health():
            assert server.poll() is None, log.read_text()
            try:
                reply = ask("GET", f"{base}{PREFIX}/health", token)
            except OSError:
                return None
            return reply.json if reply.status == 200 else None

        found = wait_for(health, f"her server does not answer: {log.read_text()}", deadline_s=120)
        assert (found["kind"], found["pid"], found["user"]) == ("system", machine.service.pid, ann.name)
        kernel = Kernel(base, token)
        said = kernel.run("%%gpujob --gpus 0 --wait\nimport os\nprint('uid', os.getuid(), os.environ['USER'])")
        assert "Error" not in said, said
        asking = "import jupyter_gpusched as gs\njob = gs.jobs()[0]\nprint(job.id, job.status, job.logs())"
        job, phase, output = kernel.run(asking).split(None, 2)
        assert (phase, output.strip()) == ("succeeded", f"uid {ann.uid} {ann.name}")
        assert job in kernel.run("%gpujobs")
        assert "24.0G" in kernel.run("%gpus")
        listed = ask("GET", f"{base}{PREFIX}/jobs", token).json["items"]
        assert [view["id"] for view in listed] == [job]
        assert [view["id"] for view in json.loads(ann.cli("ls", "--json").stdout)] == [job]
        assert bob.cli("ls", "--json").stdout.strip() == "[]"
        assert bob.cli("show", job).returncode == 2
        assert not (ann.home / ".local/state/jupyter-gpusched").exists(), "no host of her own was started"
    finally:
        server.terminate()
        server.wait(timeout=60)
