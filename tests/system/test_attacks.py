"""A unix user who means harm, against another user and the service that runs as root."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest
from waiting import wait_for

from jupyter_gpusched.launch.spawn import as_user

pytestmark = pytest.mark.system

FLOOD = """
import socket, sys
kept, refused = [], 0
for number in range(600):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(20)
    try:
        one.connect(sys.argv[1])
        kept.append(one)
    except OSError:
        refused += 1
kept[-1].settimeout(20)
print(kept[-1].recv(20).decode(), flush=True)
sys.stdin.read()
"""


def test_thousands_of_connections_of_one_user_keep_nobody_else_out(service, ann, bob):
    words = [*as_user(bob.uid, bob.gid, ()), bob._python, "-c", FLOOD, str(service.socket)]
    flood = subprocess.Popen(words, env=bob.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        assert flood.stdout.readline().startswith("HTTP/1.1 503"), "the last ones are told"
        job = ann.submit("echo", "it works all the same")
        assert ann.ended(job)["phase"] == "succeeded"
        assert ann.log(job) == "it works all the same\n"
    finally:
        flood.communicate("")
    wait_for(lambda: bob.ask("GET", "health")[0] == 200, "who has closed them all is still turned away")


SWAPS = """
import os, sys, time
folder = os.path.dirname(os.environ["GPUSCHED_CHECKPOINT_DIR"])
attempt = folder + "/attempt-1"
secret = sys.argv[1]
print("begin", flush=True)
os.mkdir(folder + "/other")
for name in ("log", "outputs.jsonl", "exit.json", "cells", "log.cut"):
    os.symlink(secret, folder + "/other/" + name)
os.mkdir(folder + "/pipes")
for name in ("log", "outputs.jsonl", "exit.json", "cells", "stop", ".stop", "started", "timeline.json"):
    os.mkfifo(folder + "/pipes/" + name)
os.mkfifo(folder + "/pipe")
os.symlink(os.path.dirname(secret), folder + "/link")
end = time.monotonic() + 20
while time.monotonic() < end:
    for other in ("other", "pipes", "pipe", "link"):
        os.rename(attempt, folder + "/mine")
        os.rename(folder + "/" + other, attempt)
        os.rename(attempt, folder + "/" + other)
        os.rename(folder + "/mine", attempt)
"""


LOOKS = ("/log", "/outputs", "/timeline", "/memory", "/spec", "")


def test_folders_that_change_all_the_time_show_nothing_of_others_and_hold_up_nobody(service, ann, bob):
    secret = service.place / "secret"
    secret.write_text("of root alone")
    secret.chmod(0o600)
    job = bob.submit("python3", "-c", SWAPS, str(secret))
    wait_for(lambda: "begin" in bob.log(job), "the job does not begin")
    seen: list[str] = []
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            seen.extend(str(bob.ask("GET", f"jobs/{job}{what}")) for what in LOOKS)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        longest = 0.0
        for _ in range(5):
            began = time.monotonic()
            assert ann.ended(ann.submit("true"))["phase"] == "succeeded"
            longest = max(longest, time.monotonic() - began)
        status, _ = bob.ask("POST", f"jobs/{job}/cancel", {"grace": "1s"})
        assert status == 200
    finally:
        enough.set()
        looking.join()
    bob.ended(job)
    assert seen
    assert not any("of root alone" in one for one in seen)
    assert longest < 30, "others wait for it"
    assert service.process.poll() is None


RAW = """
import socket, sys
for text in sys.stdin.buffer.read().split(b"\\0\\0"):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(20)
    one.connect(sys.argv[1])
    try:
        one.sendall(text)
        one.shutdown(socket.SHUT_WR)
        answer = one.recv(65536)
    except OSError:
        answer = b""
    print(answer.split(b"\\r\\n")[0].decode(errors="replace") or "closed")
"""

REQUESTS = [
    b"GET /gpusched/api/v1/jobs/../../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /gpusched/api/v1/jobs/%2e%2e%2f%2e%2e%2fetc%2fshadow/log HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /gpusched/api/v1/jobs/a%00b HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /gpusched/api/v1/jobs/%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://127.0.0.1/gpusched/api/v1/admin/events HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /gpusched/api/v1/admin/report HTTP/1.1\r\nHost: x\r\nX-User: root\r\nRemote-User: root\r\n\r\n",
    b"POST /gpusched/api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    b"POST /gpusched/api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
    b"POST /gpusched/api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    b"POST /gpusched/api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    b"POST /gpusched/api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"GET /gpusched/api/v1/jobs?limit=99999999999999999999&cursor=1e999~x HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(20_000)) + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n\r\n\r\n", b"G", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]  # fmt: skip


def test_requests_that_are_none_are_refused_and_end_nothing(service, ann, bob):
    words = [*as_user(bob.uid, bob.gid, ()), bob._python, "-c", RAW, str(service.socket)]
    done = subprocess.run(
        words, env=bob.environ, input=b"\0\0".join(REQUESTS), capture_output=True, cwd="/", timeout=120, check=False
    )
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(REQUESTS), done
    for request, answer in zip(REQUESTS, answers, strict=True):
        assert answer == "closed" or answer.split()[1][0] == "4", (request[:80], answer)
    assert ann.ask("GET", "health")[0] == 200
    assert "Traceback" not in service.log.read_text()


def test_an_administrator_who_takes_up_a_users_job_runs_nothing_of_that_users_as_himself(service, ann, admin):
    job = ann.submit("sh", "-c", "id -un; touch ran; ls -l ran", cwd=str(ann.home))
    assert ann.ended(job)["phase"] == "succeeded"
    status, answer = admin.ask("POST", f"jobs/{job}/resubmit", {})
    assert status == 201, answer
    assert admin.ended(answer["id"])["user"] == ann.name
    assert admin.log(answer["id"]).split()[0] == ann.name
    assert (service.state / "jobs" / answer["id"]).stat().st_uid == ann.uid
    status, refused = admin.ask("POST", f"jobs/{job}/resubmit", {"argv": ["id"]})
    assert (status, refused["error"]["field"]) == (403, "argv")

    call = "import jupyter_gpusched as gs; print(gs.submit(pow, 6, 2, gpus=0).wait(60).id)"
    done = ann.run(ann._python, "-c", call)
    read = f"import jupyter_gpusched as gs; print(gs.job({done.stdout.strip()!r}).result())"
    assert ann.run(ann._python, "-c", read).stdout.strip() == "36", done.stderr
    tried = admin.run(admin._python, "-c", read)
    assert f"would run {ann.name}'s code as {admin.name}" in tried.stderr
