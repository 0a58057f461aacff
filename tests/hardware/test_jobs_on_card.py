"""Real PyTorch jobs on a real card under our core, launcher and provider: shared, measured, ended, out of memory."""

from __future__ import annotations

import asyncio
import sys

from hardware.card import (
    CONTEXT_MIB,
    driver,
    holding,
    listed,
    memory,
    need_torch,
    note,
    roomiest,
    speaks_of_our_pids,
    temporary_folder,
    until,
)
from hardware.small_host import SmallHost

from jupyter_gpusched.core.model import Phase

MIB = 2**20

TAKES = """
import sys, time, torch
for mib in map(int, sys.argv[1:]):
    held = torch.empty(mib * 2**20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    print(f"has {mib}", flush=True)
    time.sleep(1.5)
    del held
    torch.cuda.empty_cache()
print("peak", torch.cuda.max_memory_allocated() // 2**20, flush=True)
"""
HOLDS = """
import sys, time, torch
held = torch.empty(int(sys.argv[1]) * 2**20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("holding", flush=True)
time.sleep(600)
"""
WORKERS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n" + sys.argv[1]
for session in (False, True):
    subprocess.Popen([sys.executable, "-c", code, "256"], start_new_session=session)
time.sleep(600)
"""
SAYS_ITS_CARD = """
import os, torch
properties = torch.cuda.get_device_properties(0)
print("count", torch.cuda.device_count())
print("uuid", getattr(properties, "uuid", None))
print("asked", os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
"""


def on_the_card(body):
    """Run ``body(host, handle, uuid)`` with a small host on the roomiest device."""
    need_torch()

    async def whole(handle, uuid, folder):
        async with SmallHost(folder, uuid) as host:
            await body(host, handle, uuid)

    with driver(), temporary_folder() as folder:
        handle, uuid = roomiest()
        asyncio.run(whole(handle, uuid, folder))


def python(code, *arguments):
    return (sys.executable, "-u", "-c", code, *map(str, arguments))


def test_a_job_gets_the_very_card_that_was_chosen_for_it():
    async def body(host, handle, uuid):
        job_id = host.submit(*python(SAYS_ITS_CARD), vram=2048)
        job = await host.final(job_id)
        assert job.phase is Phase.SUCCEEDED, host.log(job_id)
        said = dict(line.split(" ", 1) for line in host.log(job_id).splitlines() if " " in line)
        assert said["count"] == "1"
        assert said["asked"] == f"{uuid} PCI_BUS_ID"
        if said["uuid"] != "None" and uuid.startswith("GPU-"):  # older PyTorch does not tell
            assert said["uuid"].replace("GPU-", "") in uuid
        assert job.attempts[0].gpus[0].gpu == uuid

    on_the_card(body)


def test_the_peak_of_a_job_is_measured():
    def close(seen, expected):
        return seen is not None and expected <= seen < expected + CONTEXT_MIB

    async def body(host, handle, uuid):
        known = speaks_of_our_pids(handle, uuid)
        job_id = host.submit(*python(TAKES, 1024, 3072, 512), vram=6144)
        await host.printed(job_id, "has 3072")
        if known:
            await host.until(lambda: close(host.job(job_id).used_vram_mib, 3072), 10)
        job = await host.final(job_id)
        assert job.phase is Phase.SUCCEEDED, host.log(job_id)
        assert "peak 3072" in host.log(job_id)
        if known:
            assert close(job.peak_vram_mib, 3072), job.peak_vram_mib
        note("peak of a job that took 3072 MiB", f"{job.peak_vram_mib} MiB" if known else "its pids are not told")

    on_the_card(body)


def test_out_of_memory_is_recognised_with_its_amounts():
    async def body(host, handle, uuid):
        more_than_there_is = memory(handle).total // MIB * 2
        job = await host.final(host.submit(*python(HOLDS, more_than_there_is), vram=2048))
        assert (job.phase, job.reason) == (Phase.FAILED, "cuda_oom"), job.message
        assert "asked for" in job.message
        assert "iB" in job.message
        note("out of memory is told as", job.message)

    on_the_card(body)


def test_two_jobs_share_a_card_and_the_third_waits_for_room():
    async def body(host, handle, uuid):
        third = (host.card().free - 512) // 3
        first, second = (host.submit(*python(HOLDS, 512), vram=third) for _ in range(2))
        for job_id in (first, second):
            await host.printed(job_id, "holding")
        waiting = host.submit(*python(HOLDS, 512), vram=third + third // 2)
        await asyncio.sleep(1.5)
        assert host.job(waiting).phase is Phase.QUEUED  # free it is, but promised
        host.cancel(first, grace_s=0.0)
        took = await host.until(lambda: host.job(waiting).phase is not Phase.QUEUED, 60)
        await host.printed(waiting, "holding")
        assert host.job(second).phase is Phase.RUNNING
        note("a waiting job starts after a cancellation in", f"{took:.2f} s")

    on_the_card(body)


def test_cancelling_a_job_frees_its_memory():
    async def body(host, handle, uuid):
        before = memory(handle).used
        job_id = host.submit(*python(HOLDS, 2048), vram=4096)
        await host.printed(job_id, "holding")
        assert memory(handle).used - before >= 2048 * MIB
        host.cancel(job_id)
        assert (await host.final(job_id)).phase is Phase.CANCELLED
        took = await host.until(lambda: job_id not in host.state.jobs, 65)
        assert memory(handle).used <= before + 64 * MIB
        note("grant of a cancelled job is let go in", f"{took:.2f} s after its end")

    on_the_card(body)


def test_workers_that_ignore_the_signal_are_ended_with_their_memory():
    async def body(host, handle, uuid):
        before = memory(handle).used
        job_id = host.submit(*python(WORKERS, HOLDS), vram=6144, grace_s=1.0)
        await host.until(lambda: host.log(job_id).count("holding") == 2)
        workers = host.pids(job_id)
        assert len(workers) >= 3
        host.cancel(job_id)
        job = await host.final(job_id, 30)
        assert job.phase is Phase.CANCELLED
        assert until(lambda: memory(handle).used <= before + 64 * MIB, 30.0) is not None
        assert not workers & set(listed(handle))

    on_the_card(body)


def test_use_outside_the_queue_counts_and_its_end_is_seen():
    async def body(host, handle, uuid):
        free = host.card().free
        with holding(free // 2, uuid):
            await host.until(lambda: host.card().free < free * 2 // 3, 10)
            job_id = host.submit(*python(HOLDS, 256), vram=free * 2 // 3)
            await asyncio.sleep(1.0)
            assert host.job(job_id).phase is Phase.QUEUED
        await host.printed(job_id, "holding")

    on_the_card(body)
