"""A real JupyterHub with real unix users, and what its users do: start servers, ask, run cells."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

from waiting import wait_for

from jupyter_gpusched.wire import PREFIX

ROOT = Path(__file__).parents[2]
OPERATOR = "operator-token-of-the-tests"
START_S = 200.0
"""So long a Hub or a server may take to come up on a machine that does much else."""


UNHURRIED = "--GpuSched.requests_per_s=0"
"""Tests look more often than a user may."""


@dataclass
class Reply:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(method: str, url: str, token: str | None = None, body: Any = None, **headers: str) -> Reply:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers} | ({"Authorization": f"token {token}"} if token else {})
    request = Request(url, data=data, headers=sent, method=method)
    try:
        with urlopen(request, timeout=60) as answer:
            return Reply(answer.status, answer.read())
    except HTTPError as refusal:
        with refusal:
            return Reply(refusal.code, refusal.read())


class Bed:
    """The environment that all users can execute, and unix users of its own. ``close`` leaves nothing behind."""

    def __init__(self, prepared: Path) -> None:
        self.prepared = prepared
        self.python = prepared / "venv/bin/python"
        self._users: list[str] = []
        self._copy_our_code()

    def _copy_our_code(self) -> None:
        library = next((self.prepared / "venv/lib").glob("python3*")) / "site-packages/jupyter_gpusched"
        shutil.rmtree(library, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__", "labextension")
        shutil.copytree(ROOT / "jupyter_gpusched", library, ignore=ignored)
        info = library.parent / "jupyter_gpusched-0.1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyter-gpusched\nVersion: 0.1.0\n")
        config = self.prepared / "venv/etc/jupyter/jupyter_server_config.d"
        config.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "jupyter-config/server-config/jupyter_gpusched.json", config)
        for place in (library, info, config):
            subprocess.run(["chmod", "-R", "go+rX", place], check=True)

    def has_panel(self) -> bool:
        """Put the built front end where the users' servers look for it; False when it has not been built."""
        built, place = ROOT / "jupyter_gpusched/labextension", self.prepared / "venv/share/jupyter/labextensions"
        if not (built / "package.json").exists():
            return False
        shutil.rmtree(place / "jupyter-gpusched", ignore_errors=True)
        shutil.copytree(built, place / "jupyter-gpusched")
        subprocess.run(["chmod", "-R", "go+rX", place], check=True)
        return True

    def add_user(self, name: str) -> str:
        """A unix user of exactly this name, with a home."""
        subprocess.run(["useradd", "--badname", "--create-home", "--shell", "/bin/bash", name], check=True)
        self._users.append(name)
        return name

    def close(self) -> None:
        for name in self._users:
            end_processes_of(pwd.getpwnam(name).pw_uid)
            subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)


def end_processes_of(uid: int) -> None:
    """What a user of ours still runs."""
    for _try in range(100):
        left = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _owner(entry) == uid]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _owner(entry: Path) -> int | None:
    try:
        stopped = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        return None if stopped else entry.stat().st_uid
    except OSError:
        return None


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Hub:
    """A JupyterHub with our service. ``more`` are lines of its configuration, after ``configure``."""

    def __init__(
        self, bed: Bed, folder: Path, users: tuple[str, ...], *, admins: tuple[str, ...] = (), before: str = "",
        more: str = "", simulate: str = "2x24G", options: tuple[str, ...] = (), service: bool = True,
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        folder.mkdir(mode=0o755, exist_ok=True)
        self.folder, self.bed = folder, bed
        self.state = folder / "state"
        self.log = folder / "hub.log"
        public, inner, proxy, self.service_port = free_ports(4)
        self.url = f"http://127.0.0.1:{public}"
        self.service_url = f"http://127.0.0.1:{self.service_port}"
        self._tokens: dict[str, str] = {}
        surroundings = {"GPUSCHED_SIMULATE": simulate} if environment is None else environment
        configured = (
            f"import jupyter_gpusched.hosts.hub\n"
            f"jupyter_gpusched.hosts.hub.configure(c, port={self.service_port}, state={str(self.state)!r},"
            f" options={[UNHURRIED, *options]!r}, environment={surroundings!r})"
            if service
            else ""
        )
        (folder / "config.py").write_text(f"""\
c.JupyterHub.bind_url = {self.url!r}
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{inner}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = ["{bed.prepared}/node_modules/.bin/configurable-http-proxy"]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {set(users) | set(admins)!r}
c.Authenticator.admin_users = {set(admins)!r}
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = ["{bed.python.parent}/jupyterhub-singleuser"]
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120
c.JupyterHub.services = [{{"name": "operator", "api_token": {OPERATOR!r}}}]
c.JupyterHub.load_roles = [{{"name": "operator", "services": ["operator"], "scopes": ["admin:users", "admin:servers",
    "tokens", "access:servers", "groups", "admin:groups", "access:services"]}}]
{before}
{configured}
{more}
""")
        self.start()

    def start(self) -> None:
        environ = {
            "PATH": f"{self.bed.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.bed.python, "-m", "jupyterhub", "-f", self.folder / "config.py"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=environ, start_new_session=True,
            )  # fmt: skip
        try:
            wait_for(self._healthy, f"the Hub does not answer, see {self.log}", deadline_s=START_S)
        except BaseException:
            self.close()
            raise

    def _healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            return ask("GET", f"{self.url}/hub/health").status == 200
        except OSError:
            return False

    def api(self, method: str, path: str, body: Any = None) -> Reply:
        return ask(method, f"{self.url}/hub/api/{path}", OPERATOR, body)

    def token(self, user: str, *scopes: str) -> str:
        """A token of the user's, with all that the user may do or with these scopes only."""
        reply = self.api("POST", f"users/{quote(user)}/tokens", {"scopes": list(scopes)} if scopes else {})
        assert reply.status == 201, reply
        return str(reply.json["token"])

    def start_server(self, user: str) -> User:
        """The user's own server, once it answers."""
        self.api("POST", f"users/{quote(user)}")
        assert self.api("POST", f"users/{quote(user)}/server").status in (201, 202)
        wait_for(lambda: self.server_of(user).get("ready"), f"no server of {user}, see {self.log}", deadline_s=START_S)
        return User(self, user)

    def server_of(self, user: str) -> dict[str, Any]:
        return dict(self.api("GET", f"users/{quote(user)}").json["servers"].get("", {}))

    def stop_server(self, user: str) -> None:
        assert self.api("DELETE", f"users/{quote(user)}/server").status in (202, 204)
        wait_for(lambda: not self.server_of(user), f"the server of {user} does not stop", deadline_s=START_S)

    def service(self, method: str, path: str, token: str | None = None, body: Any = None, **headers: str) -> Reply:
        return ask(method, f"{self.service_url}{PREFIX}/{path}", token, body, **headers)

    def service_pid(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(json.loads((self.state / "host.json").read_text())["pid"])
        return None

    def wait_for_service(self, *, other_than: int | None = None) -> int:
        def serving() -> int | None:
            pid = self.service_pid()
            if pid is None or pid == other_than:
                return None
            try:
                return pid if self.service("GET", "health").status == 401 else None
            except OSError:
                return None

        return int(wait_for(serving, f"the service does not answer, see {self.log}", deadline_s=START_S))

    def close(self) -> None:
        """The Hub ends its servers, proxy and services itself; what does not go is killed with its session."""
        pids = [self.process.pid, self.service_pid(), _number(self.folder / "proxy.pid")]
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


@dataclass
class User:
    """A user whose server runs, asking as a browser does: through the Hub's proxy and that server."""

    hub: Hub
    name: str

    def __post_init__(self) -> None:
        self.token = self.hub.token(self.name)
        self.base = f"{self.hub.url}/user/{quote(self.name)}"
        self.account = pwd.getpwnam(self.name)
        self._kernel: Kernel | None = None

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return ask(method, f"{self.base}{PREFIX}/{path}", self.token, body, **headers)

    def submit(self, *argv: str, **fields: Any) -> str:
        reply = self("POST", "jobs", {"argv": list(argv)} | ({"vram": "1G"} if fields.get("gpus", 1) else {}) | fields)
        assert reply.status == 201, reply
        return str(reply.json["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        reply = self("GET", f"jobs/{job_id}")
        assert reply.status == 200, reply
        return dict(reply.json)

    def wait(self, job_id: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            view = self.job(job_id)
            return view if view["phase"] in ("succeeded", "failed", "cancelled", "timeout", "lost") else None

        return dict(wait_for(ended, f"{job_id} does not end", deadline_s=60))

    def log(self, job_id: str) -> str:
        return self("GET", f"jobs/{job_id}/log").body.decode()

    def stream(self) -> Iterator[dict[str, Any]]:
        """The frames of the browser's WebSocket."""
        return closing(Frames(self.base + PREFIX + "/stream", self.token))

    @property
    def kernel(self) -> Kernel:
        """A kernel of this user's server, with our magics; another one after that server was stopped."""
        if self._kernel is None or not self._kernel.answers():
            self._kernel = Kernel(self.base, self.token)
        return self._kernel


def _websocket(url: str, token: str) -> Any:
    import websocket

    parts = urlsplit(url)
    return websocket.create_connection(
        f"ws://{parts.netloc}{parts.path}", header=[f"Authorization: token {token}"], timeout=60
    )


class Frames:
    def __init__(self, url: str, token: str) -> None:
        self._socket = _websocket(url, token)

    def until(self, wanted: Any) -> dict[str, Any]:
        while True:
            frame = json.loads(self._socket.recv())
            if wanted(frame):
                return dict(frame)

    def close(self) -> None:
        self._socket.close()


class Kernel:
    """A kernel of a user's server; ``run`` gives what a cell printed, or its error."""

    def __init__(self, base: str, token: str) -> None:
        reply = ask("POST", f"{base}/api/kernels", token, {"name": "python3"})
        assert reply.status == 201, reply
        self._socket = _websocket(f"{base}/api/kernels/{reply.json['id']}/channels", token)
        self.run("import jupyter_gpusched\n%load_ext jupyter_gpusched")

    def answers(self) -> bool:
        """Whether its server and the proxy before it are still those that it was started with."""
        from websocket import WebSocketException

        with suppress(OSError, ValueError, WebSocketException):  # a socket that was closed gives empty words
            self.run("")
            return True
        return False

    def run(self, code: str) -> str:
        asked = uuid.uuid4().hex
        header = {"msg_id": asked, "msg_type": "execute_request", "username": "", "session": asked, "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        self._socket.send(
            json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"})
        )
        told = []
        while True:
            message = json.loads(self._socket.recv())
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                told.append(content["text"])
            elif kind in ("execute_result", "display_data"):
                told.append(content["data"].get("text/plain", ""))
            elif kind == "error":
                told.append(f"{content['ename']}: {content['evalue']}")
            elif kind == "status" and content["execution_state"] == "idle":
                return "\n".join(told)


@contextmanager
def fifo_of(user: User, name: str) -> Iterator[Path]:
    """A gate in the user's home for which a job of theirs can wait."""
    path = Path(user.account.pw_dir) / name
    os.mkfifo(path, 0o600)
    os.chown(path, user.account.pw_uid, user.account.pw_gid)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


class Browser:
    """A page of a user's server, logged in by the Hub's form: with cookies, and nothing else."""

    def __init__(self, hub: Hub, user: str) -> None:
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies))
        self._user = quote(user)
        self._hub = hub
        self._opener.open(f"{hub.url}/hub/login", timeout=60).close()
        form = urlencode({"username": user, "password": "any", "_xsrf": self.xsrf("/hub/")}).encode()
        self._opener.open(f"{hub.url}/hub/login", data=form, timeout=60).close()
        self._opener.open(f"{hub.url}/user/{self._user}/lab", timeout=60).close()

    def xsrf(self, path: str | None = None) -> str:
        """The value that a page of this path finds in its cookies."""
        wanted = path or f"/user/{self._user}/"
        return next(cookie.value or "" for cookie in self.cookies if cookie.name == "_xsrf" and cookie.path == wanted)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._hub.url}/user/{self._user}{PREFIX}/{path}"
        request = Request(url, data=data, headers={"Content-Type": "application/json", **headers}, method=method)
        try:
            with self._opener.open(request, timeout=60) as answer:
                return Reply(answer.status, answer.read())
        except HTTPError as refusal:
            with refusal:
                return Reply(refusal.code, refusal.read())
