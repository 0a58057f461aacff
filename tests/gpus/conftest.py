"""The fake machine, and a provider that is watched until it shows something."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from fake_nvml.machine import built_driver, machine
from waiting import DEADLINE_S

from jupyter_gpusched.core.model import Grant, GrantState
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.gpus.nvml import NvmlGpus, Timing
from jupyter_gpusched.ports import ActiveGrant

__all__ = ["built_driver", "machine"]


class Watcher:
    """Samples a provider as the engine does, faster."""

    def __init__(self, gpus):
        self.gpus = gpus

    async def look(self, *grants):
        return await self.gpus.sample(grants, now=time.time())

    async def until(self, what, *grants):
        """The cards once ``what(cards)`` is true."""
        end = time.monotonic() + DEADLINE_S
        while True:
            cards = await self.look(*grants)
            if what(cards):
                return cards
            if time.monotonic() > end:
                pytest.fail(f"waited in vain; the cards are {cards}, the cause is {self.gpus.cause}")
            await asyncio.sleep(0.02)


@pytest.fixture
def watch(tmp_path):
    """Run ``body(watcher)`` with a provider, which is closed afterwards."""

    def run(body, **timing):
        async def whole():
            gpus = NvmlGpus(remembered=tmp_path / "cards.json", timing=Timing(**timing))
            try:
                await body(Watcher(gpus))
            finally:
                await gpus.close()

        asyncio.run(whole())

    return run


def use(gpu, job_id="aaaaaaaa", *, promised=4096, pids=(), alive=True, attempt=1):
    """A grant on a card and the processes of its attempt."""
    state = GrantState.HELD if alive else GrantState.RELEASING
    grant = Grant(job_id, attempt, gpu, 0, "a card", Mib(promised), False, state, 1.0)
    return ActiveGrant(grant, alive=alive, pids=frozenset(pids))


def sampler_pids():
    """Processes that read the driver for this test."""
    state = os.environ["FAKE_NVML_STATE"].encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as environ, open(f"/proc/{name}/cmdline", "rb") as command:
                if b"FAKE_NVML_STATE=" + state in environ.read() and b"gpus.sampler" in command.read():
                    found.append(int(name))
        except OSError:
            continue
    return found
