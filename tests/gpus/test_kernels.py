"""From a pid to its kernel and notebook, and to who has a card's device file open: with real processes."""

import os
import subprocess
import sys

import pytest

from jupyter_gpusched.gpus.kernels import Kernel, kernel_of
from jupyter_gpusched.gpus.openers import openers


@pytest.fixture
def start():
    started = []

    def run(*words, **more):
        process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **more,
        )
        started.append(process)
        process.stdout.readline()
        return process.pid

    yield run
    for process in started:
        process.kill()
        process.communicate()


def environ(**more):
    return {key: value for key, value in os.environ.items() if key != "JPY_SESSION_NAME"} | more


def test_a_kernel_of_a_jupyter_server_is_known_with_its_notebook(start):
    pid = start("-f", "/run/kernel-1b2c.json", env=environ(JPY_SESSION_NAME="/home/ann/train.ipynb"))
    assert kernel_of(pid) == Kernel(kernel=True, notebook="/home/ann/train.ipynb")


def test_what_a_kernel_started_belongs_to_its_notebook(start):
    pid = start(env=environ(JPY_SESSION_NAME="/home/ann/train.ipynb"))
    assert kernel_of(pid).notebook == "/home/ann/train.ipynb"


@pytest.mark.parametrize("words", [["-f", "/run/user/1/kernel-1b2c.json"], ["--f=/run/kernel-v3a_b.json"]])
def test_a_kernel_that_an_editor_started_is_known_without_its_notebook(start, words):
    assert kernel_of(start(*words, env=environ())) == Kernel(kernel=True)


def test_a_stranger_is_no_kernel_and_a_pid_that_is_gone_is_no_error(start):
    assert kernel_of(start("train.py", "--kernel-size", "3", env=environ())) == Kernel()
    assert kernel_of(2**22 - 1) == Kernel()


def test_whoever_has_the_device_open_is_found_by_name(start, tmp_path):
    device = tmp_path / "nvidia0"
    device.touch()
    (tmp_path / "nvidia01").touch()
    with device.open() as held, (tmp_path / "nvidia01").open() as other:
        inherits = start(pass_fds=(held.fileno(),))
        start(pass_fds=(other.fileno(),))
        found = openers(str(device), without={os.getpid()})
    assert [(one.pid, one.program.startswith("python")) for one in found] == [(inherits, True)]
    assert found[0].user


def test_memory_that_no_process_admits_to_is_told_with_who_has_the_device_open(machine, start, tmp_path):
    """Through the provider: the driver says used, and lists nobody."""
    import asyncio

    from jupyter_gpusched.gpus.nvml import NvmlGpus
    from tests.gpus.conftest import Watcher

    device = tmp_path / "nvidia1"
    device.touch()
    with device.open() as held:
        inherits = start(pass_fds=(held.fileno(),))
    machine.set(1, base=3000 * machine.MIB)

    async def whole():
        gpus = NvmlGpus(device_files=str(tmp_path / "nvidia"))
        gpus._own_namespace = False  # here the pids are those of the machine
        try:
            seen = await Watcher(gpus).until(lambda cards: cards and cards[1].opened_by)
        finally:
            await gpus.close()
        return seen

    first, second = asyncio.run(whole())
    assert (first.unattributed, first.opened_by) == (0, ())
    assert second.unattributed == 3000
    assert (second.device_file, [one.pid for one in second.opened_by]) == (str(device), [inherits])
