"""Our figures beside those of gpustat and nvitop on the same fake machine."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.gpus.test_nvml_values import cards_of

G = 1024

GPUSTAT = """
import json, gpustat
cards = gpustat.new_query().gpus
print(json.dumps([[c.uuid, c.memory_total, c.memory_used,
                   sorted([p["pid"], p["gpu_memory_usage"]] for p in c.processes)] for c in cards]))
"""

NVITOP = """
import json
from nvitop import Device
MIB = 2**20
print(json.dumps([[d.uuid(), d.memory_total() // MIB, d.memory_used() // MIB,
                   sorted([p.pid, p.gpu_memory() // MIB] for p in d.processes().values())] for d in Device.all()]))
"""


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install {package}")


@pytest.mark.parametrize(
    "program", [pytest.param(GPUSTAT, marks=needs("gpustat")), pytest.param(NVITOP, marks=needs("nvitop"))]
)
def test_totals_use_and_pids_are_the_same(watch, machine, program):
    machine.write({"base": 300 * machine.MIB}, {"total": 24564 * machine.MIB}, {"util": "NA", "temp": "NA"})
    for card in (0, 1):
        process = machine.start("--device", str(card), "--alloc", f"{card + 1}G", "--hold", "600")
        assert process.poll() is None
    cards = []

    async def body(watcher):
        ready = await watcher.until(lambda now: [len(card.foreign) for card in now] == [1, 1, 0])
        settled = [(card + 1) * G + 420 for card in (0, 1)]
        ready = await watcher.until(lambda now: [card.foreign[0].vram for card in now[:2]] == settled)
        cards.extend(ready)

    watch(body)
    ours = [[card.uuid, card.total, card.used, [[one.pid, one.vram] for one in card.foreign]] for card in cards]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == ours


def test_where_peers_show_nothing_we_show_what_there_is(watch, machine):
    """A card that is lost, and a driver without the newest lists: elsewhere the whole program ends."""
    machine.write({}, {}, {})
    machine.fail(13, fn="nvmlDeviceGetComputeRunningProcesses_v3")
    machine.set(1, lost=1)
    machine.hold(G, card=2)
    first, third = cards_of(watch)
    assert (first.index, third.index, third.foreign[0].vram) == (0, 2, G)
