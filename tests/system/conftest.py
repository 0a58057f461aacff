"""A machine with users: real unix accounts, and the system service as root beside them.

Only with GPUSCHED_TEST_SYSTEM=1 and as root, since accounts are made and taken away again. The
Python of these tests need not be one that others can execute: then one is made that is.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_for

import jupyter_gpusched
from jupyter_gpusched.hosts.system import unreadable
from jupyter_gpusched.launch.spawn import as_user

NEEDS = (
    "anyio", "cloudpickle", "ipykernel", "ipython", "jupyter-core", "jupyter-server", "msgspec", "nvidia-ml-py",
    "tornado", "traitlets",
)  # fmt: skip
"""What the host, the client and cell jobs import, and a user's own Jupyter server."""


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    asked_for = os.environ.get("GPUSCHED_TEST_SYSTEM") == "1" and os.geteuid() == 0
    skip = pytest.mark.skip(reason="adds unix users; run `sudo GPUSCHED_TEST_SYSTEM=1 pytest tests/system`")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))
            if not asked_for:
                item.add_marker(skip)


def _packages_at_hand() -> str | None:
    """Site-packages that everybody can read and that were put together before: named, or those of the Hub's tests."""
    named, hub = os.environ.get("GPUSCHED_TEST_PACKAGES"), os.environ.get("GPUSCHED_TEST_HUB")
    if named is not None or hub is None:
        return named
    return next(map(str, Path(hub).glob("venv/lib/python3.*/site-packages")), None)


def _same_file(source: str, target: str) -> None:
    """Linked rather than copied where that can be."""
    if not Path(target).exists():
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


@pytest.fixture(scope="session")
def everybodys_python() -> Iterator[str]:
    """An interpreter with our package that all users of the machine can execute."""
    if unreadable() is None:
        yield sys.executable
        return
    folder = Path(tempfile.mkdtemp(prefix="gs-python-"))
    folder.chmod(0o755)
    try:
        given = _packages_at_hand()
        subprocess.run(["/usr/bin/python3", "-m", "venv", folder / "venv"], check=True, capture_output=True)
        python = folder / "venv" / "bin" / "python"
        if given is None:
            subprocess.run([python, "-m", "pip", "install", "-q", *NEEDS], check=True, capture_output=True)
        (site,) = (folder / "venv" / "lib").glob("python3.*/site-packages")
        if given is not None:
            # Below the interpreter: a fence around a job leaves that in sight also where it hides `given`.
            without = shutil.ignore_patterns("jupyter_gpusched*")
            shutil.copytree(given, site, copy_function=_same_file, ignore=without, dirs_exist_ok=True)
        shutil.copytree(
            Path(jupyter_gpusched.__file__).parent,
            site / "jupyter_gpusched",
            ignore=shutil.ignore_patterns("labextension", "__pycache__"),
        )
        subprocess.run([python, "-m", "compileall", "-q", site / "jupyter_gpusched"], check=True, capture_output=True)
        subprocess.run(["chmod", "-R", "go+rX", folder], check=True)
        yield str(python)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


OURS = {"PYTHONPATH": str(Path(jupyter_gpusched.__file__).parents[1])}
"""The package under test, whatever else the interpreter has installed; not needed where it was copied."""


class User:
    """A unix user; ``ask`` speaks to the service as this user, ``run`` runs anything."""

    def __init__(self, name: str, python: str) -> None:
        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid, self.home = name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir)
        self._python = python
        self.environ = {"HOME": entry.pw_dir, "USER": name, "LOGNAME": name, "PATH": os.environ["PATH"]}
        self.environ |= OURS if python == sys.executable else {}

    def run(self, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
        groups = os.getgrouplist(self.name, self.gid)
        return subprocess.run(
            [*as_user(self.uid, self.gid, groups), *words],
            env=self.environ, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False, **more,
        )  # fmt: skip

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self._python, "-m", "jupyter_gpusched.cli", *words)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """One request over the socket, by a process of this user: status, and JSON or text."""
        done = self.run(self._python, "-c", _ASK, self.environ["GPUSCHED_SOCKET"], method, path, json.dumps(body))
        assert done.returncode == 0, done.stderr
        status, _, text = done.stdout.partition("\n")
        try:
            return int(status), json.loads(text)
        except ValueError:
            return int(status), text

    def submit(self, *argv: str, **spec: object) -> str:
        status, answer = self.ask("POST", "jobs", {"argv": list(argv), "gpus": 0, **spec})
        assert status == 201, answer
        return answer["id"]

    def ended(self, job_id: str) -> dict[str, object]:
        def final() -> dict[str, object] | None:
            status, view = self.ask("GET", f"jobs/{job_id}?wait=final&timeout=20")
            assert status == 200, view
            return view if view["ended_at"] is not None else None

        return wait_for(final, f"job {job_id} does not end", deadline_s=120)

    def log(self, job_id: str) -> str:
        return str(self.ask("GET", f"jobs/{job_id}/log")[1])


_ASK = """
import http.client, socket, sys
path, method, target, body = sys.argv[1:]
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.settimeout(60)
connection.sock.connect(path)
sent = None if body == "null" else body.encode()
connection.request(method, "/gpusched/api/v1/" + target, body=sent)
answer = connection.getresponse()
print(answer.status)
sys.stdout.flush()
sys.stdout.buffer.write(answer.read())
"""


@pytest.fixture(scope="session")
def accounts() -> Iterator[dict[str, str]]:
    """Two users, one administrator and their group; gone again afterwards, with all that they run."""
    mark = uuid.uuid4().hex[:6]
    names = {who: f"gs-{who}-{mark}" for who in ("ann", "bob", "root2")}
    group = f"gs-lab-{mark}"
    try:
        subprocess.run(["groupadd", group], check=True, capture_output=True)
        for name in names.values():
            subprocess.run(["useradd", "-m", "-s", "/bin/bash", "-G", group, name], check=True, capture_output=True)
            Path(pwd.getpwnam(name).pw_dir).chmod(0o700)
        yield names | {"group": group}
    finally:
        for name in names.values():
            end_everything_of(name)
            subprocess.run(["userdel", "-r", name], check=False, capture_output=True)
        subprocess.run(["groupdel", group], check=False, capture_output=True)


def end_everything_of(name: str) -> None:
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return

    def none_left() -> bool:
        left = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _runs_as(entry, uid)]
        for entry in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
        return not left

    wait_for(none_left, f"processes of {name} do not end")


def _runs_as(entry: Path, uid: int) -> bool:
    try:
        words = (entry / "status").read_text()
    except OSError:
        return False
    lines = dict(line.split(":", 1) for line in words.splitlines() if ":" in line)
    return lines["State"].split()[0] != "Z" and int(lines["Uid"].split()[0]) == uid


class Service:
    """``serve --system`` as root on folders of this test."""

    def __init__(self, python: str, place: Path, accounts: dict[str, str]) -> None:
        self.place, self.state, self.socket = place, place / "state", place / "run" / "host.sock"
        self.log = place / "service.log"
        self._python, self._accounts = python, accounts
        self.users = {who: User(accounts[who], python) for who in ("ann", "bob", "root2")}
        for user in self.users.values():
            user.environ["GPUSCHED_SOCKET"] = str(self.socket)
        self.process: subprocess.Popen[bytes] | None = None
        self.config = place / "jupyter_gpusched_config.py"
        unhurried = "c.GpuSched.requests_per_s = 0\n"  # tests look more often than a user may
        self.config.write_text(f"c.GpuSched.admin_users = [{accounts['root2']!r}]\n{unhurried}")

    def start(self, *options: str) -> Service:
        env = {"PATH": os.environ["PATH"], "GPUSCHED_HOME": str(self.state), "A_SECRET": "of the service"}
        env |= OURS if self._python == sys.executable else {}
        words = [
            "serve",
            "--system",
            f"--socket={self.socket}",
            "--simulate=2x24G",
            f"--config={self.config}",
            *options,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self._python, "-m", "jupyter_gpusched.cli", *words],
                env=env, cwd=self.place, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

        def answers() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                pytest.fail(f"the service ended with {self.process.returncode}:\n{self.log.read_text()}")
            return self.socket.exists() and (self.state / "host.json").exists()

        wait_for(answers, "the service does not announce itself")
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        (self.state / "host.json").unlink(missing_ok=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=60)


@pytest.fixture
def service(everybodys_python: str, accounts: dict[str, str]) -> Iterator[Service]:
    place = Path(tempfile.mkdtemp(prefix="gs-sys-"))
    place.chmod(0o755)
    service = Service(everybodys_python, place, accounts)
    try:
        yield service.start()
    finally:
        service.stop()
        for user in service.users.values():
            end_everything_of(user.name)
        for claim in service.state.glob("jobs/*/attempt-*/claim"):  # of jobs that were killed without a service
            with contextlib.suppress(OSError, ValueError):
                remove_cgroup(Path(json.loads(claim.read_text()).get("cgroup") or "/nowhere"))
        shutil.rmtree(place, ignore_errors=True)


def remove_cgroup(path: Path) -> None:
    def is_gone() -> bool:
        with contextlib.suppress(OSError):  # whoever was killed counts until it is collected
            path.rmdir()
        return not path.exists()

    wait_for(is_gone, f"{path} cannot be removed")


@pytest.fixture
def ann(service: Service) -> User:
    return service.users["ann"]


@pytest.fixture
def bob(service: Service) -> User:
    return service.users["bob"]


@pytest.fixture
def admin(service: Service) -> User:
    return service.users["root2"]
