"""A dry run of ``tests/hardware`` on the fake driver and a fake PyTorch, so that it runs where there is a card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "hardware" / "run.py"
NOT_NEEDED = ("pytest", "msgspec", "anyio", "tornado", "traitlets", "jupyter_core", "IPython", "cloudpickle")


@pytest.fixture
def run(machine, monkeypatch):
    """Runs the suite on one card of an H200's size; its exit code and what it printed."""
    machine.write({"name": "NVIDIA H200", "total": 143771 * machine.MIB, "reserved": 621 * machine.MIB})
    monkeypatch.setenv("PYTHONPATH", str(RUN.with_name("fake_torch")))

    def running(*arguments):
        ended = subprocess.run(
            [sys.executable, str(RUN), *arguments], capture_output=True, text=True, check=False, timeout=110
        )
        return ended.returncode, ended.stdout + ended.stderr

    return running


def test_cards_and_jobs_are_tested_with_nothing_but_pynvml_and_pytorch(run):
    without = [word for module in NOT_NEEDED for word in ("--without", module)]
    code, said = run(*without)
    assert (code, said.count("FAIL")) == (0, 0), said
    assert "14 passed, 0 failed, 2 skipped" in said
    assert "needs anyio, msgspec" in said


def test_where_its_dependencies_are_a_whole_host_is_tested_too(run):
    code, said = run("through_a_host")
    assert code == 0, said
    assert "2 passed, 0 failed, 0 skipped" in said


def test_in_a_container_whose_driver_speaks_of_other_pids_the_suite_says_so_and_passes(run, machine, tmp_path):
    # Every process shows another number than it has, as the fake's ``show`` does it.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(RUN.parents[1] / 'fake_nvml')!r})\n"
        "import fakegpu\n"
        "add = fakegpu.State.add\n"
        "def shown(state, kind, **values):\n"
        "    record = add(state, kind, **values)\n"
        "    if kind == 'proc':\n"
        "        record['show'] = str(int(values['pid']) + 1000000)\n"
        "    return record\n"
        "fakegpu.State.add = shown\n"
    )
    os.environ["PYTHONPATH"] += os.pathsep + str(tmp_path)
    code, said = run("context", "attributed", "peak")
    assert code == 0, said
    assert "no (a container)" in said


def test_without_a_card_it_says_what_is_missing(run, machine):
    machine.path.unlink()
    code, said = run()
    assert code == 2
    assert "Nothing was tested: The NVIDIA driver" in said, said
