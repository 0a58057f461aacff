"""The fake is good enough if unmodified pynvml cannot tell."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import pynvml as N  # noqa: N812
import pytest
from fake_nvml import fakegpu as F  # noqa: N812
from fake_nvml.fakegpu import GiB, MiB

HERE = os.path.dirname(__file__)


@pytest.fixture(scope="session", autouse=True)
def library(tmp_path_factory):
    out = F.build(tmp_path_factory.mktemp("nvml"))
    # glibc gives a loaded library for its SONAME, so pynvml's own
    # CDLL("libnvidia-ml.so.1") finds this one without LD_LIBRARY_PATH.
    ctypes.CDLL(str(out / "libnvidia-ml.so.1"))
    return out


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_STATE", str(tmp_path / "machine"))
    F.write(
        F.machine(
            {"util": 37, "temp": 61, "power": 212500, "accounting": 1, "numa": 0, "cpus": 3},
            {"mig": 1, "ecc": 1, "eccunc": 2, "remapunc": 1, "remappending": 1},
            {"name": "NVIDIA GeForce RTX 4090", "total": 24 * GiB, "base": 300 * MiB},
        )
    )
    with F.change() as st:
        for i in range(2):
            st.add("mig", gpu=1, index=i, gi=7 + i, ci=0, uuid=f"MIG-{i}", total=10 * GiB, reserved=16 * MiB)
    N.nvmlInit()
    yield [N.nvmlDeviceGetHandleByIndex(i) for i in range(3)]
    F.write(F.machine({}))
    N.nvmlShutdown()


def job(*args, **kw):
    return subprocess.Popen(
        [sys.executable, f"{HERE}/fake_gpu_job.py", *args],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kw,
    )


def wait_for(what, limit=10):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if got := what():
            return got
        time.sleep(0.02)
    raise AssertionError("did not come true")


def test_identity(gpus):
    assert N.nvmlSystemGetDriverVersion() == "580.82.07"
    assert N.nvmlDeviceGetCount() == 3
    assert N.nvmlDeviceGetName(gpus[2]) == "NVIDIA GeForce RTX 4090"
    uuid = N.nvmlDeviceGetUUID(gpus[1])
    assert N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByUUID(uuid.encode())) == 1
    bus = N.nvmlDeviceGetPciInfo(gpus[2]).busId
    assert N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByPciBusId(bus.encode())) == 2
    with pytest.raises(N.NVMLError_InvalidArgument):
        N.nvmlDeviceGetHandleByIndex(9)


def test_memory_versions(gpus):
    v1, v2 = (N.nvmlDeviceGetMemoryInfo(gpus[0], version=v) for v in (None, N.nvmlMemory_v2))
    assert (v1.used, v2.used, v2.reserved) == (512 * MiB, 0, 512 * MiB)
    assert v1.free == v2.free == v2.total - v2.reserved - v2.used
    with pytest.raises(N.NVMLError):
        N.nvmlDeviceGetMemoryInfo(gpus[0], version=0x03000028)


def test_numbers(gpus):
    assert N.nvmlDeviceGetUtilizationRates(gpus[0]).gpu == 37
    assert N.nvmlDeviceGetTemperature(gpus[0], N.NVML_TEMPERATURE_GPU) == 61
    assert N.nvmlDeviceGetTemperatureV(gpus[0], N.NVML_TEMPERATURE_GPU) == 61
    assert N.nvmlDeviceGetPowerUsage(gpus[0]) == 212500
    assert N.nvmlDeviceGetNumaNodeId(gpus[0]) == 0
    assert list(N.nvmlDeviceGetCpuAffinity(gpus[0], 1)) == [3]
    assert N.nvmlDeviceGetRemappedRows(gpus[1]) == (0, 1, 1, 0)
    for call in (N.nvmlDeviceGetFanSpeed, N.nvmlDeviceGetSerial, N.nvmlDeviceGetMigMode):
        with pytest.raises(N.NVMLError_NotSupported):
            call(gpus[0])


def test_mig(gpus):
    assert N.nvmlDeviceGetMigMode(gpus[1]) == [1, 1]
    h = N.nvmlDeviceGetMigDeviceHandleByIndex(gpus[1], 1)
    assert N.nvmlDeviceIsMigDeviceHandle(h)
    assert N.nvmlDeviceGetUUID(h) == "MIG-1"
    assert N.nvmlDeviceGetMemoryInfo(h).total == 10 * GiB
    assert N.nvmlDeviceGetGpuInstanceId(h) == 8
    for dev in (h, gpus[1]):
        with pytest.raises(N.NVMLError_NotSupported):
            N.nvmlDeviceGetUtilizationRates(dev)
    with pytest.raises(N.NVMLError_NotFound):
        N.nvmlDeviceGetMigDeviceHandleByIndex(gpus[1], 5)


def test_job_grows_and_is_listed_then_kill_9_frees_everything(gpus):
    p = job("--alloc", "2G", "--grow", "1G", "--every", "0.05", "--max", "5G", "--hold", "60")
    want = 5 * GiB + 420 * MiB
    wait_for(lambda: [q.usedGpuMemory for q in N.nvmlDeviceGetComputeRunningProcesses(gpus[0])] == [want])
    assert N.nvmlDeviceGetComputeRunningProcesses(gpus[0])[0].pid == p.pid
    assert N.nvmlDeviceGetMemoryInfo(gpus[0], version=N.nvmlMemory_v2).used == want
    p.kill()
    # not yet waited for: a zombie must not hold memory
    wait_for(lambda: N.nvmlDeviceGetMemoryInfo(gpus[0], version=N.nvmlMemory_v2).used == 0)
    assert N.nvmlDeviceGetComputeRunningProcesses(gpus[0]) == []
    p.communicate()
    st = N.nvmlDeviceGetAccountingStats(gpus[0], p.pid)
    assert st.maxMemoryUsage == want
    assert not st.isRunning


def test_oom_and_term(gpus):
    big = job("--device", "2", "--alloc", "20G", "--hold", "60")
    wait_for(lambda: N.nvmlDeviceGetComputeRunningProcesses(gpus[2]))
    wait_for(lambda: F.read().free(2) < 4 * GiB)
    second = job("--device", "2", "--alloc", "8G")
    _out, err = second.communicate(timeout=20)
    assert second.returncode == 1
    assert "CUDA out of memory. Tried to allocate 8.00 GiB" in err
    big.terminate()
    big.communicate(timeout=20)
    assert big.returncode == 143
    assert F.read().free(2) == 24 * GiB - 812 * MiB


def test_visible_devices(gpus):
    p = job("--alloc", "1G", "--hold", "60", env={**os.environ, "CUDA_VISIBLE_DEVICES": "MIG-1"})
    h = N.nvmlDeviceGetMigDeviceHandleByIndex(gpus[1], 1)
    procs = wait_for(lambda: N.nvmlDeviceGetComputeRunningProcesses(h))
    assert procs[0].gpuInstanceId == 8
    assert len(N.nvmlDeviceGetComputeRunningProcesses(gpus[1])) == 1  # seen on the parent, too
    p.send_signal(signal.SIGKILL)
    p.communicate()


def test_odd_processes(gpus):
    with F.change() as st:
        st.add("proc", gpu=0, pid=4000000, bytes=GiB, sticky=1)  # other pid namespace
        st.add("proc", gpu=0, pid=4000001, bytes="NA", real=2 * GiB, sticky=1)  # WSL2, WDDM, vGPU
        st.add("proc", gpu=0, pid=4000002, bytes=GiB)  # gone
        st.add("proc", gpu=0, pid=os.getpid(), start=1, bytes=GiB)  # pid used again
        st.add("proc", gpu=0, pid=4000003, bytes=MiB, type="G", sticky=1)
    got = {q.pid: q.usedGpuMemory for q in N.nvmlDeviceGetComputeRunningProcesses(gpus[0])}
    assert got == {4000000: GiB, 4000001: None}
    assert [q.pid for q in N.nvmlDeviceGetGraphicsRunningProcesses(gpus[0])] == [4000003]
    assert N.nvmlDeviceGetMemoryInfo(gpus[0], version=N.nvmlMemory_v2).used == 3 * GiB + MiB


def test_injected_errors(gpus):
    with F.change() as st:
        st.add("fail", fn="nvmlDeviceGetTemperature", gpu=0, code=N.NVML_ERROR_NO_PERMISSION)
        st.add("delay", fn="nvmlDeviceGetPowerUsage", us=100000)
    with pytest.raises(N.NVMLError_NoPermission):
        N.nvmlDeviceGetTemperature(gpus[0], 0)
    assert N.nvmlDeviceGetTemperature(gpus[2], 0) == 35
    t = time.monotonic()
    N.nvmlDeviceGetPowerUsage(gpus[0])
    assert time.monotonic() - t > 0.09
    with F.change() as st:
        st.device(2)["lost"] = "1"
    for call in (lambda: N.nvmlDeviceGetMemoryInfo(gpus[2]), lambda: N.nvmlDeviceGetHandleByIndex(2)):
        with pytest.raises(N.NVMLError_GpuIsLost):
            call()
    assert N.nvmlDeviceGetCount() == 3
    with F.change() as st:
        st.add("fail", fn="*", code=N.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(N.NVMLError_LibRmVersionMismatch):
        N.nvmlInit()


def test_events(gpus):
    es = N.nvmlEventSetCreate()
    N.nvmlDeviceRegisterEvents(gpus[0], N.nvmlEventTypeXidCriticalError, es)
    with pytest.raises(N.NVMLError_Timeout):
        N.nvmlEventSetWait_v2(es, 30)
    with F.change() as st:
        st.add("event", seq=1, gpu=0, type=N.nvmlEventTypeXidCriticalError, data=79)
    e = N.nvmlEventSetWait_v2(es, 1000)
    assert e.eventData == 79
    N.nvmlEventSetFree(es)


def test_not_supported_and_quirks(gpus):
    with F.change() as st:
        st.device(0).update(util="NA", temp="NA", total="NA")
        st.all("system")[0]["v3stride"] = "32"
        for i in range(3):
            st.add("proc", gpu=2, pid=4000000 + i, bytes=(i + 1) * GiB, sticky=1)
    for call in (
        lambda: N.nvmlDeviceGetUtilizationRates(gpus[0]),
        lambda: N.nvmlDeviceGetMemoryInfo(gpus[0]),
        lambda: N.nvmlDeviceGetTemperature(gpus[0], 0),
    ):
        with pytest.raises(N.NVMLError_NotSupported):
            call()
    # drivers 535.43 to 535.86 wrote 32-byte entries for _v3; pynvml then reads nonsense
    good = [p.pid for p in N.nvmlDeviceGetComputeRunningProcesses_v2(gpus[2])]
    bad = [p.pid for p in N.nvmlDeviceGetComputeRunningProcesses_v3(gpus[2])]
    assert good == [4000000, 4000001, 4000002]
    assert bad[1:] == [0, 4294967295]


def test_threads_while_the_machine_changes(gpus):
    import threading

    stop, errors = threading.Event(), []

    def reader():
        try:
            while not stop.is_set():
                for h in gpus:
                    m = N.nvmlDeviceGetMemoryInfo(h, version=N.nvmlMemory_v2)
                    assert m.free + m.used + m.reserved == m.total
                    N.nvmlDeviceGetComputeRunningProcesses(h)
        except Exception as e:  # noqa: BLE001  shown by the assertion below
            errors.append(e)

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for t in threads:
        t.start()
    for i in range(150):
        with F.change() as st:
            st.device(0)["base"] = str(i * MiB)
            st.add("proc", gpu=0, pid=4000000 + i, bytes=MiB, sticky=1)
    stop.set()
    for t in threads:
        t.join()
    assert not errors


def test_abi_against_nvidias_header():
    import importlib.util
    import pathlib

    spec = importlib.util.find_spec("nvidia")
    inc = [
        p for d in (spec.submodule_search_locations if spec else []) for p in pathlib.Path(d).glob("*/include/nvml.h")
    ]
    if not inc:
        pytest.skip("nvidia-nvml-dev is not installed")
    subprocess.run(["make", "-s", "-C", HERE, "abicheck", f"NVML_INC={inc[0].parent}"], check=True)


def test_no_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_STATE", str(tmp_path / "none"))
    with pytest.raises(N.NVMLError_DriverNotLoaded):
        N.nvmlInit()


def test_many_jobs_never_overfill(gpus):
    """Allocations exclude each other: eight jobs race for room for five."""
    jobs = [job("--alloc", "7G", "--hold", "60") for _ in range(8)]

    def used():
        return N.nvmlDeviceGetMemoryInfo(gpus[0], version=N.nvmlMemory_v2).used

    wait_for(lambda: used() <= 40 * GiB - 512 * MiB and sum(p.poll() == 1 for p in jobs) == 3, 30)
    assert sum(p.poll() is None for p in jobs) == 5
    wait_for(lambda: used() == 5 * (7 * GiB + 420 * MiB))
    for p in jobs:
        p.terminate()
        p.communicate()
