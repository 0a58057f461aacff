"""A course on one GPU server: what a Hub's service bears while everybody looks and submits.

``GPUSCHED_TEST_HUB=FOLDER python tests/bench/hub_load.py`` (as root, see ``tests/hub/prepare.py``) starts the
service as the Hub does, with unix users of its own, and a stand-in for the Hub that knows their tokens. Each user
has an open panel (the very code of their server), submits once within the minute, and some programs read the stream
of events, a few of which never take what they are sent. The cards are those of the fake driver (needs gcc), which
counts. Prints what requests took, how often the cards were asked, and the memory of the service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "hub"), str(TESTS.parent)]

from bed import Bed, free_ports  # noqa: E402
from fake_nvml import fakegpu  # noqa: E402
from tornado.httpclient import HTTPRequest  # noqa: E402
from waiting import wait_for  # noqa: E402

from jupyter_gpusched.hosts.socket import Feed  # noqa: E402
from jupyter_gpusched.hosts.upstream import HubService  # noqa: E402
from jupyter_gpusched.hub_address import hub_address  # noqa: E402
from jupyter_gpusched.wire import PREFIX  # noqa: E402

CARDS = 4
SCOPE = "access:services!service=gpusched"


class StandIn(ThreadingHTTPServer):
    """Answers as the Hub does when a service asks whose a token is."""

    daemon_threads = True

    def __init__(self, users: list[str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                name = self.headers.get("Authorization", "").removeprefix("token of-")
                model = {"kind": "user", "name": name, "admin": False, "groups": [], "scopes": [SCOPE]}
                body = json.dumps(model if name in users else None).encode()
                self.send_response(200 if name in users else 403)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Service:
    """The service as the Hub starts it."""

    def __init__(self, bed: Bed, folder: Path, hub: StandIn, profile: str | None) -> None:
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        environ = {
            "PATH": f"{bed.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "GPUSCHED_HOME": str(folder / "state"),
            "FAKE_NVML_STATE": str(folder / "machine"),
            "FAKE_NVML_CALLS": str(folder / "calls"),
            "LD_LIBRARY_PATH": str(fakegpu.build(folder / "driver")),
            "JUPYTERHUB_API_TOKEN": "of-the-service",
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.server_port}/hub/api",
            "JUPYTERHUB_SERVICE_NAME": "gpusched",
            "JUPYTERHUB_SERVICE_PREFIX": "/services/gpusched/",
            "JUPYTERHUB_SERVICE_URL": self.url,
        }
        card = {"name": "NVIDIA Fake 11G", "total": 11264 * 2**20, "reserved": 0}
        fakegpu.write(fakegpu.machine(*[card] * CARDS), folder / "machine")
        self.calls_file = folder / "calls"
        with (folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    bed.python,
                    *(["-m", "cProfile", "-o", profile] if profile else []),
                    "-m",
                    "jupyter_gpusched.hosts.hub",
                ],
                env=environ,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        wait_for((folder / "state/host.json").exists, "the service does not start", deadline_s=60)

    def calls(self) -> int:
        """Calls of the driver's library so far."""
        return self.calls_file.stat().st_size

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def service_of(url: str, user: str) -> HubService:
    address = hub_address({"GPUSCHED_SERVICE_URL": url, "JUPYTERHUB_API_TOKEN": f"of-{user}"})
    assert address is not None
    return HubService(address)


class Measured:
    """What requests took, in seconds, by what was asked."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}

    async def ask(self, host: HubService, client: Any, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        request = HTTPRequest(f"{host.url}{PREFIX}/{path}", method, dict(host.headers), data, request_timeout=60)
        begun = time.monotonic()
        answer = await client.fetch(request)
        self.took.setdefault(f"{method} {re.sub('/.*', '/ID', path.partition('?')[0])}", []).append(
            time.monotonic() - begun
        )
        return json.loads(answer.body)

    def lines(self) -> list[str]:
        rows = dict(sorted(self.took.items())) | {"all requests": [one for took in self.took.values() for one in took]}
        return [
            f"{name:14} {len(took):6} requests, median {1e3 * statistics.median(took):6.1f} ms, "
            f"p99 {1e3 * sorted(took)[int(0.99 * len(took))]:6.1f} ms, longest {1e3 * max(took):6.1f} ms"
            for name, took in rows.items()
        ]


def ask_all(url: str, users: list[str], seconds: float) -> Measured:
    """What all users ask, from a process of its own: the time that viewers take must not count."""

    async def ask() -> None:
        until, step = time.monotonic() + seconds, min(60.0, seconds) / len(users)
        hosts = [service_of(url, name) for name in users]
        await asyncio.gather(*(user(host, measured, number * step, until) for number, host in enumerate(hosts)))

    measured = Measured()
    asyncio.run(ask())
    return measured


async def user(host: HubService, measured: Measured, submits_at: float, until: float) -> None:
    """One student: an open panel, one submission, a look at the job and at the list now and then."""
    client = host.http()
    await asyncio.sleep(submits_at)
    spec = {"argv": ["sleep", "3"], "vram": "2G", "cwd": "/"}
    job_id = (await measured.ask(host, client, "POST", "jobs", spec))["id"]
    while time.monotonic() < until:
        await measured.ask(host, client, "GET", f"jobs/{job_id}")
        await measured.ask(host, client, "GET", "jobs?limit=50")
        await measured.ask(host, client, "GET", "gpus")
        await asyncio.sleep(2)


async def reader(host: HubService, sampled: set[float], *, stalled: bool) -> None:
    """A program that follows the events; one that is stalled asks and then takes nothing, with its buffers full."""
    stream, writer = await host.connect(2**16 if not stalled else 1)
    writer.write(f"GET {PREFIX}/events HTTP/1.0\r\nAuthorization: {host.headers['Authorization']}\r\n\r\n".encode())
    try:
        if stalled:
            await asyncio.Event().wait()
        buffer = b""
        while data := await stream.read(2**16):
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                if b'"type":"gpus"' in line[:40]:
                    sampled.update(card["sampled_at"] for card in json.loads(line).get("gpus", [])[:1])
    finally:
        writer.close()


async def course(service: Service, users: list[str], chosen: argparse.Namespace) -> None:
    sampled = set[float]()
    frames = 0

    async def take(_text: str) -> None:
        nonlocal frames
        frames += 1

    hosts = [service_of(service.url, name) for name in users]
    feeds = [Feed(host) for host in hosts]
    tabs = [feed.join(take) for feed in feeds]
    tasks = [asyncio.create_task(tab.run()) for tab in tabs]
    for number in range(chosen.readers):
        stalled = number < chosen.stalled
        tasks.append(asyncio.create_task(reader(hosts[number % len(hosts)], sampled, stalled=stalled)))
    await asyncio.sleep(5)
    before, busy, begun = service.rss_mib(), service.cpu_s(), time.monotonic()
    called, starting = service.calls(), time.time()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        asked_by = asyncio.get_running_loop().run_in_executor(pool, ask_all, service.url, users, chosen.seconds)
        measured = await asked_by
    span = time.monotonic() - begun
    calls = service.calls() - called
    seen = [at for at in sampled if at > starting]
    print("\n".join(measured.lines()))
    print(f"{len(users)} panels got {frames / span / len(users):.1f} frames a second each")
    print(f"the cards were looked at {len(seen) / span:.2f} times a second, for everybody together, "
          f"by {calls / max(1, len(seen)) / CARDS:.1f} calls of the driver a card")  # fmt: skip
    used, asked = service.cpu_s() - busy, sum(len(took) for took in measured.took.values())
    print(f"the service was busy for {100 * used / span:.0f} % of one CPU, {1e3 * used / asked:.1f} ms a request, "
          f"frames included")  # fmt: skip
    print(f"load of this machine meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"memory of the service: {before:.0f} MiB at the start, {service.rss_mib():.0f} MiB after {span:.0f} s")
    for task in tasks:
        task.cancel()
    for feed in feeds:
        feed.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--stalled", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--profile", help="a file for what cProfile says of the service, which makes it slower")
    chosen = parser.parse_args()
    bed = Bed(Path(os.environ["GPUSCHED_TEST_HUB"]))
    with tempfile.TemporaryDirectory(prefix="gpusched-load-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        try:
            users = [bed.add_user(f"gsl{os.getpid()}x{number}") for number in range(chosen.users)]
            service = Service(bed, folder, StandIn(users), chosen.profile)
            try:
                asyncio.run(course(service, users, chosen))
            finally:
                service.close()
        finally:
            bed.close()


if __name__ == "__main__":
    main()
