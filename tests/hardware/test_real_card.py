"""The provider on a real NVIDIA card: figures that add up, and a process that comes and goes.

    pytest -m gpu tests/hardware

Takes a CUDA context on the first card for a moment and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpusched.core.operations import LITTLE_MIB
from jupyter_gpusched.gpus.nvml import NvmlGpus
from tests.gpus.conftest import Watcher, use

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not Path("/proc/driver/nvidia/version").exists(),
        reason="needs a real NVIDIA card; on a machine with one: pytest -m gpu tests/hardware",
    ),
]

CONTEXT = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
print("ready", flush=True)
sys.stdin.read()
"""


def watched(body):
    async def whole():
        gpus = NvmlGpus()
        try:
            await body(Watcher(gpus))
        finally:
            await gpus.close()

    asyncio.run(whole())


def test_the_figures_of_each_card_add_up():
    async def body(watcher):
        for card in await watcher.until(bool):
            assert card.uuid.startswith(("GPU-", "MIG-"))
            assert card.name
            if card.free is not None:
                assert abs(card.total - card.reserved - card.used - card.free) <= 2  # each is rounded to a MiB
            assert card.utilization_pct is None or 0 <= card.utilization_pct <= 100
            assert card.temperature_c is None or 0 < card.temperature_c < 120

    watched(body)


def test_a_card_in_use_says_what_it_knows_of_itself_and_hides_no_memory():
    """Where all pids are seen, what is in use belongs to listed processes but for little."""
    devices = {str(file) for file in Path("/dev").glob("nvidia*")}

    async def body(watcher):
        for card in await watcher.until(bool):
            assert card.fault is None, "this card needs a person"
            assert card.unattributed is None or card.unattributed <= LITTLE_MIB, card.opened_by
            if card.device_file is not None:
                assert card.device_file in devices

    watched(body)


def test_the_sampler_itself_takes_no_memory_of_a_card():
    async def body(watcher):
        cards = await watcher.until(bool)
        again = await watcher.look()
        assert [card.used for card in cards] == [card.used for card in again]

    watched(body)


def test_a_context_is_listed_attributed_and_gone_after_its_end():
    """Where the driver speaks of the pids we see; in most containers it does not, which the test then shows."""

    async def body(watcher):
        before = {card.uuid: card.used for card in await watcher.until(bool)}
        uuid = next(iter(before))
        environ = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
        with subprocess.Popen(  # noqa: ASYNC220  nothing else runs in this loop
            [sys.executable, "-c", CONTEXT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        ) as process:
            assert process.stdout.readline() == "ready\n"
            grant = use(uuid, pids={process.pid})
            (card,) = [card for card in await watcher.look(grant) if card.uuid == uuid]
            assert card.used > before[uuid]
            assert "aaaaaaaa" not in card.used_by_job or 50 < card.used_by_job["aaaaaaaa"] < 2000
            process.stdin.close()
        ended = time.monotonic()
        await watcher.until(lambda cards: next(card.used for card in cards if card.uuid == uuid) <= before[uuid] + 64)
        assert time.monotonic() - ended < 30

    watched(body)
