"""A whole host on a real card, as a user has it: submission to freed memory, and a kill -9 in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from hardware.card import CONTEXT_MIB, MIB, driver, memory, need, need_torch, note, roomiest, temporary_folder, until
from hardware.test_jobs_on_card import HOLDS, python

MODULES = ("anyio", "msgspec", "tornado", "traitlets", "jupyter_core")
"""What a host needs of its dependencies; without them the other tests of this folder still run."""


@contextlib.contextmanager
def hosts(folder):
    """A function that starts a host on a state folder of its own; all that still runs is ended afterwards."""
    need_torch()
    need(*MODULES)
    from jupyter_gpusched.client import Client

    environ = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSCHED_", "CUDA_"))}
    environ |= {"GPUSCHED_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder), "GPUSCHED_AUTOSTART": "0"}
    started = []

    def start():
        with (folder / "host.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpusched.hosts.daemon"], env=environ, stdout=log, stderr=log
            )
        started.append(process)

        def client():
            with contextlib.suppress(Exception):
                found.append(Client.connect(environ=environ))
            return found

        found = []
        assert until(client, 30.0) is not None, (folder / "host.log").read_text()
        return process, found[0]

    try:
        yield start
    finally:
        with contextlib.suppress(Exception):
            client = Client.connect(environ=environ)
            for view in client.jobs():
                client.cancel(view["id"], grace="0s")
            until(lambda: not any(gpu["holders"] for gpu in client.gpus()), 10.0)
        for process in started:
            process.kill()
            process.wait()


def spec(code, *arguments, **fields):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSCHED_", "CUDA_"))}
    return {"argv": list(python(code, *arguments)), "cwd": "/", "env": env, "grace": "1s"} | fields


def test_a_job_from_submission_to_freed_memory_through_a_host_that_is_killed_meanwhile():
    with driver(), temporary_folder() as folder, hosts(folder) as start:
        handle, uuid = roomiest()
        before = memory(handle).used
        host, client = start()
        job_id = client.submit(spec(HOLDS, 1024, vram="3G", preferred_gpus=[uuid]))
        assert until(lambda: b"holding" in client.log(job_id), 60.0) is not None, client.job(job_id)
        view = client.job(job_id)
        (card,) = view["gpus"]
        shown = next(gpu for gpu in client.gpus() if gpu["uuid"] == card["uuid"])
        (holder,) = [holder for holder in shown["holders"] if holder["job_id"] == job_id]
        assert holder["promised_mib"] == 3072
        if not holder["estimated"]:
            assert (
                until(lambda: 1024 <= (client.job(job_id)["used_vram_mib"] or 0) < 1024 + CONTEXT_MIB, 10) is not None
            )
        host.send_signal(signal.SIGKILL)
        host.wait()
        _, client = start()
        assert client.job(job_id)["phase"] == "running"
        assert sum(len(gpu["holders"]) for gpu in client.gpus() if gpu["uuid"] == card["uuid"]) >= 1
        client.cancel(job_id)
        assert client.wait(job_id, timeout=60)["phase"] == "cancelled"
        took = until(lambda: memory(handle).used <= before + 64 * MIB, 65.0)
        assert took is not None
        assert until(lambda: not any(h["job_id"] for gpu in client.gpus() for h in gpu["holders"]), 65.0) is not None


def test_out_of_memory_through_a_host_has_its_reason():
    with driver(), temporary_folder() as folder, hosts(folder) as start:
        handle, _uuid = roomiest()
        _, client = start()
        view = client.wait(client.submit(spec(HOLDS, memory(handle).total // MIB * 2, vram="2G")), timeout=90)
        assert (view["phase"], view["reason"]) == ("failed", "cuda_oom"), view["message"]
        health = client.health()
        assert health["status"] == "ok", health["causes"]
        note("a host sees", ", ".join(f"{gpu['name']} {gpu['total_mib']} MiB" for gpu in client.gpus()))
