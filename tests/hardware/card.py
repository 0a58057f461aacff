"""The card that the hardware tests work on, by pynvml itself, and what they need of the machine around it.

Standard library and pynvml only, so that it runs where nothing can be installed. A thing that
this machine lacks raises ``unittest.SkipTest``, which pytest and ``run.py`` both understand.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pynvml

MIB = 2**20
CONTEXT_MIB = 1500
"""A CUDA context with PyTorch's libraries takes less than this on any card that we know of."""

HOLD = """
import sys, torch
held = torch.empty(int(sys.argv[1]) * 2**20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("holding", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def driver() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def handles() -> list[Any]:
    """Cards and MIG instances that can be given to jobs."""
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        instances = _instances(handle)
        found += instances if instances is not None else [handle]
    return found


def _instances(handle: Any) -> list[Any] | None:
    """The instances of a divided card; None for one that is whole."""
    try:
        if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
    except pynvml.NVMLError:
        return None
    found = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(pynvml.NVMLError):
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    return found


def uuid_of(handle: Any) -> str:
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def memory(handle: Any) -> Any:
    """Memory version 2: ``used`` without what the driver reserves."""
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)


def roomiest() -> tuple[Any, str]:
    """The device with the most free memory, and its UUID."""
    handle = max(handles(), key=lambda one: memory(one).free)
    return handle, uuid_of(handle)


def listed(handle: Any) -> dict[int, int | None]:
    """Bytes by pid of the processes that compute there."""
    return {entry.pid: entry.usedGpuMemory for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}


def need_torch() -> None:
    """Raises where there is no PyTorch that can use a card; looked at in a process of its own, once."""
    if importlib.util.find_spec("torch") is None:
        raise SkipTest("needs PyTorch")
    if not _torch_works():
        raise SkipTest("needs a PyTorch that can use the card (torch.cuda.is_available() is false)")


@functools.cache
def _torch_works() -> bool:
    look = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def need(*modules: str) -> None:
    """Raises where the Python lacks something that only a whole host needs."""
    missing = [name for name in modules if sys.modules.get(name, ...) is None or importlib.util.find_spec(name) is None]
    if missing:
        raise SkipTest(f"needs {', '.join(missing)}")


@contextlib.contextmanager
def holding(mib: int, uuid: str) -> Iterator[subprocess.Popen[str]]:
    """A process of PyTorch outside any queue that holds so much of a device."""
    need_torch()
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n", "PyTorch cannot take memory of the card"
        yield process
    finally:
        process.kill()
        process.communicate()


def speaks_of_our_pids(handle: Any, uuid: str) -> bool:
    """Whether the driver lists processes under the pids that we see; in most containers it does not."""
    with holding(1, uuid) as process:
        return until(lambda: process.pid in listed(handle), 3.0) is not None


def until(what: Callable[[], Any], seconds: float) -> float | None:
    """How long it took to become true; None when it did not."""
    start = time.monotonic()
    while not what():
        if time.monotonic() - start > seconds:
            return None
        time.sleep(0.02)
    return time.monotonic() - start


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gs-hw-", ignore_cleanup_errors=True) as name:
        yield Path(name)


FIGURES: dict[str, str] = {}
"""What was measured, for the report of ``run.py``."""


def note(name: str, value: str) -> None:
    FIGURES[name] = value
