#!/usr/bin/env python3
"""A small nvidia-smi over pynvml: -L, --query-gpu=..., --query-compute-apps=... (csv)."""

import sys

import pynvml as N  # noqa: N812

M = 1 << 20


def mem(h):
    return N.nvmlDeviceGetMemoryInfo(h, version=N.nvmlMemory_v2)


GPU = {
    "index": (N.nvmlDeviceGetIndex, ""),
    "name": (N.nvmlDeviceGetName, ""),
    "uuid": (N.nvmlDeviceGetUUID, ""),
    "pci.bus_id": (lambda h: N.nvmlDeviceGetPciInfo(h).busId, ""),
    "driver_version": (lambda h: N.nvmlSystemGetDriverVersion(), ""),
    "memory.total": (lambda h: mem(h).total // M, " MiB"),
    "memory.used": (lambda h: mem(h).used // M, " MiB"),
    "memory.free": (lambda h: mem(h).free // M, " MiB"),
    "memory.reserved": (lambda h: mem(h).reserved // M, " MiB"),
    "utilization.gpu": (lambda h: N.nvmlDeviceGetUtilizationRates(h).gpu, " %"),
    "utilization.memory": (lambda h: N.nvmlDeviceGetUtilizationRates(h).memory, " %"),
    "temperature.gpu": (lambda h: N.nvmlDeviceGetTemperature(h, 0), ""),
    "power.draw": (lambda h: f"{N.nvmlDeviceGetPowerUsage(h) / 1000:.2f}", " W"),
    "power.limit": (lambda h: f"{N.nvmlDeviceGetEnforcedPowerLimit(h) / 1000:.2f}", " W"),
}


def main(argv):
    try:
        N.nvmlInit()
    except N.NVMLError as e:
        print(f"Failed to initialize NVML: {e}")
        return e.value
    opts = dict(a.lstrip("-").partition("=")[::2] for a in argv)
    fmt = opts.get("format", "csv").split(",")
    units, header = "nounits" not in fmt, "noheader" not in fmt
    hs = [N.nvmlDeviceGetHandleByIndex(i) for i in range(N.nvmlDeviceGetCount())]
    if "query-gpu" in opts:
        keys = opts["query-gpu"].split(",")
        if header:
            print(", ".join(keys))
        for h in hs:
            row = []
            for k in keys:
                get, unit = GPU[k]
                try:
                    row.append(f"{get(h)}{unit if units else ''}")
                except N.NVMLError_NotSupported:
                    row.append("[N/A]")
            print(", ".join(row))
    elif "query-compute-apps" in opts:
        for h in hs:
            for p in N.nvmlDeviceGetComputeRunningProcesses(h):
                used = "[N/A]" if p.usedGpuMemory is None else f"{p.usedGpuMemory // M}{' MiB' if units else ''}"
                row = {"gpu_uuid": N.nvmlDeviceGetUUID(h), "pid": p.pid, "used_memory": used, "used_gpu_memory": used}
                print(", ".join(str(row[k]) for k in opts["query-compute-apps"].split(",")))
    else:
        for i, h in enumerate(hs):
            print(f"GPU {i}: {N.nvmlDeviceGetName(h)} (UUID: {N.nvmlDeviceGetUUID(h)})")
            for j in range(N.nvmlDeviceGetMaxMigDeviceCount(h)):
                try:
                    m = N.nvmlDeviceGetMigDeviceHandleByIndex(h, j)
                except N.NVMLError:
                    break
                print(f"  {N.nvmlDeviceGetName(m)}  Device {j}: (UUID: {N.nvmlDeviceGetUUID(m)})")
    return 0


sys.exit(main(sys.argv[1:]))
