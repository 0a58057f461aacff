"""The fake driver as fixtures: built once with gcc, and a machine of its own for each test.

Whoever is started with the test's environment (hosts, samplers, jobs) finds the fake library
in place of NVIDIA's; the test's own process never loads it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from fake_nvml import fakegpu

JOB = Path(fakegpu.__file__).with_name("fake_gpu_job.py")


class Machine:
    """The cards that the fake driver shows to the processes of this test."""

    MIB = fakegpu.MiB
    GIB = fakegpu.GiB

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, *cards: dict[str, object], **system: object) -> None:
        fakegpu.write(fakegpu.machine(*cards, **system), self.path)

    def change(self) -> AbstractContextManager[fakegpu.State]:
        return fakegpu.change(self.path)

    def hold(self, mib: int, *, card: int = 0, pid: int | None = None, **more: object) -> None:
        """Some process (this one by default) has that much on a card."""
        own = os.getpid() if pid is None else pid
        alive = fakegpu.process_start(own)
        with self.change() as state:
            life = {"sticky": 1} if alive is None else {"start": alive}
            state.add("proc", gpu=card, pid=own, bytes=mib * self.MIB, **life, **{"type": "C", **more})

    def free(self, pid: int | None = None) -> None:
        with self.change() as state:
            state.remove("proc", pid=os.getpid() if pid is None else pid)

    def set(self, card: int, **values: object) -> None:
        with self.change() as state:
            state.device(card).update({key: str(value) for key, value in values.items()})

    def fail(self, code: int, *, fn: str = "*", card: int | None = None) -> None:
        with self.change() as state:
            state.add("fail", fn=fn, code=code, **({} if card is None else {"gpu": card}))

    def hang(self, card: int, *, fn: str = "nvmlDeviceGetMemoryInfo_v2", seconds: float = 600) -> None:
        with self.change() as state:
            state.add("delay", fn=fn, gpu=card, us=int(seconds * 1e6))

    def heal(self) -> None:
        with self.change() as state:
            state.remove("fail")
            state.remove("delay")
            for card in state.all("gpu"):
                card.pop("lost", None)

    def job(self, *arguments: str) -> list[str]:
        """The command of a job that takes memory of the fake cards."""
        return [sys.executable, str(JOB), *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Such a process outside the queue; ended after the test."""
        process = subprocess.Popen(self.job(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process


@pytest.fixture(scope="session")
def built_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("gcc", "make"):
        if shutil.which(tool) is None:
            pytest.skip("the fake driver needs a compiler: apt-get install -y gcc make")
    return fakegpu.build(tmp_path_factory.mktemp("fake_nvml"))


@pytest.fixture
def machine(built_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Two cards of 24564 MiB that are free."""
    found = Machine(tmp_path / "machine")
    monkeypatch.setenv("FAKE_NVML_STATE", str(found.path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(built_driver))
    found.write(*[{"name": "NVIDIA Fake 24G", "total": 24564 * Machine.MIB, "reserved": 0}] * 2)
    yield found
    for process in found.processes:
        process.kill()
        process.communicate()
