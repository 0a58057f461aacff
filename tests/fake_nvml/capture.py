"""Writes what NVML says on a real machine as a machine of the fake: a bug report becomes a test.

    python tests/fake_nvml/capture.py > machine.txt

UUIDs and pids are replaced, names of users are not read; nothing else identifies the machine.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pynvml as nvml

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import fakegpu

_VALUES = {
    "util": lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "temp": lambda handle: nvml.nvmlDeviceGetTemperature(handle, 0),
    "power": nvml.nvmlDeviceGetPowerUsage,
    "computemode": nvml.nvmlDeviceGetComputeMode,
}


def asked(call: Any, *arguments: Any) -> Any:
    """A value as the fake writes it: NA where the card does not have it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return "NA"


def memory(handle: Any) -> dict[str, Any]:
    info = asked(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    if info == "NA":
        return {"total": "NA"}
    listed = sum(process.usedGpuMemory or 0 for process in processes(handle))
    return {"total": info.total, "reserved": info.reserved, "base": max(0, info.used - listed)}


def processes(handle: Any) -> list[Any]:
    found = asked(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return [] if found == "NA" else found


def add_card(state: fakegpu.State, index: int) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mig = asked(nvml.nvmlDeviceGetMigMode, handle)
    state.add(
        "gpu",
        index=index,
        name=asked(nvml.nvmlDeviceGetName, handle),
        uuid=f"GPU-{index:08}-fa4e-0000-0000-{index:012}",
        **memory(handle),
        **{name: asked(call, handle) for name, call in _VALUES.items()},
        **({} if mig == "NA" else {"mig": mig[0]}),
    )
    for number, process in enumerate(processes(handle)):
        size = process.usedGpuMemory
        state.add("proc", gpu=index, pid=4000000 + number, bytes="NA" if size is None else size, sticky=1)


def main() -> None:
    nvml.nvmlInit()
    state = fakegpu.State()
    state.add("system", driver=nvml.nvmlSystemGetDriverVersion(), nvml=nvml.nvmlSystemGetNVMLVersion(), cuda=13000)
    for index in range(nvml.nvmlDeviceGetCount()):
        add_card(state, index)
    sys.stdout.write(state.text())


if __name__ == "__main__":
    main()
