"""The fake driver against unmodified pynvml, in a process of its own: a library once loaded stays loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def child(machine, *argv):
    environ = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return subprocess.run([sys.executable, *argv], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler: apt-get install -y gcc make")
def test_unmodified_pynvml_cannot_tell_the_fake_from_a_driver(machine):
    ended = child(
        machine, "-m", "pytest", "-q", str(HERE / "checks.py"),
        "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull, "--rootdir", str(HERE),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "passed" in ended.stdout


def test_a_machine_that_was_captured_reads_as_the_one_it_was_taken_from(machine):
    machine.write({"total": 24564 * machine.MIB, "util": 12, "power": "NA", "base": 300 * machine.MIB}, {"mig": 1})
    with machine.change() as state:
        state.add("proc", gpu=0, pid=4100000, bytes=2**30, sticky=1)
    first = child(machine, str(HERE / "capture.py"))
    assert first.returncode == 0, first.stderr
    machine.path.write_text(first.stdout)
    assert child(machine, str(HERE / "capture.py")).stdout == first.stdout
    assert "util=12" in first.stdout
    assert "power=NA" in first.stdout
    assert "4000000" in first.stdout


def test_the_little_nvidia_smi_lists_cards_and_processes(machine):
    machine.write({"name": "NVIDIA Test Card"})
    assert "NVIDIA Test Card" in child(machine, str(HERE / "nvidia_smi.py"), "-L").stdout
