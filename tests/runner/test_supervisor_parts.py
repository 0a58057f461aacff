"""The supervisor's own parts: what it writes, and how it starts."""

import json
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpusched.runner
from jupyter_gpusched.runner.records import read_stop_file, to_json
from jupyter_gpusched.runner.tree import bearers, children, send, start_time

RUNNER = Path(jupyter_gpusched.runner.__file__).parent


@pytest.mark.parametrize(
    "value",
    [
        {"a": None, "b": [True, False, 1, -2.5, 1e300], "c": {"d": ()}},
        'quotes " and \\ and \n \x00 \x7f',
        "é 中 😀",
        [],
        {},
    ],
)
def test_its_json_is_read_back_as_what_was_written(value):
    written = to_json(value)
    assert written.isascii()
    assert json.loads(written) == json.loads(json.dumps(value))


def test_a_name_that_is_no_text_is_still_json():
    assert json.loads(to_json(os.fsdecode(b"\xff")))


def test_a_stop_file_without_a_grace_leaves_the_jobs_own(tmp_path):
    (tmp_path / "stop").write_text("preempted\n")
    assert read_stop_file(str(tmp_path), 7.0) == ("preempted", 7.0)


def test_it_needs_no_slow_import_and_gives_up_quietly_where_the_claim_is_taken(tmp_path):
    place = tmp_path / "attempt-1"
    place.mkdir()
    (place / "claim").touch()
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(RUNNER / "supervise.py"), str(place)]
    ended = subprocess.run(command, input=marshal.dumps({"marker": "m"}), capture_output=True, check=True)
    lines = ended.stderr.decode().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert all(line.startswith("import time:") for line in lines)
    assert "runner.supervision" in imported
    assert not imported & {"json", "re", "signal", "enum", "typing", "subprocess", "pathlib", "ctypes"}
    assert [path.name for path in place.iterdir()] == ["claim"]


def test_a_process_with_another_start_time_is_not_signalled():
    process = subprocess.Popen(["sleep", "600"])
    try:
        send(process.pid, start_time(process.pid) - 1, 15)
        assert process.pid in children(os.getpid())
        assert process.poll() is None
        send(process.pid, start_time(process.pid), 15)
        assert process.wait(timeout=20) == -15
    finally:
        process.kill()
        process.wait()


def test_processes_are_found_by_their_marker():
    process = subprocess.Popen(
        ["sleep", "600"], env={"GPUSCHED_MARKER": f"found-{os.getpid()}"}, start_new_session=True
    )
    try:
        assert list(bearers(f"GPUSCHED_MARKER=found-{os.getpid()}".encode())) == [process.pid]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["OLD_GPUSCHED_MARKER", "NOTE"])
def test_a_marker_inside_another_variable_marks_nothing(name):
    marker = f"GPUSCHED_MARKER=inside-{os.getpid()}"
    text = marker.partition("=")[2] if name.startswith("OLD") else f"see {marker}"
    process = subprocess.Popen(["sleep", "600"], env={name: text, "LONGER": f"{marker}0"}, start_new_session=True)
    try:
        assert bearers(marker.encode()) == {}
    finally:
        process.kill()
        process.wait()


def test_a_zombie_counts_as_gone():
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(process.pid) is None
    process.wait()


def test_without_libffi_the_marker_still_finds_what_left_the_tree(cell, tmp_path, monkeypatch):
    """An interpreter without ``_ctypes`` cannot make itself the parent of orphans."""
    entry = tmp_path / "supervise.py"
    entry.write_text(
        f"import sys\nsys.modules['_ctypes'] = None\nsys.path.append({str(RUNNER.parent)!r})\n"
        "from runner.supervision import main\nmain()\n"
    )
    monkeypatch.setattr("jupyter_gpusched.launch.spawn.SUPERVISOR", str(entry))
    ended = cell("!(setsid sleep 600 &)\nprint('main')")
    assert ended.log == "main\n"
    assert ended.exit.stragglers == 1
