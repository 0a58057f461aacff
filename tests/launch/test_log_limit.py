"""A log within its limit: head and tail stay, offsets stay, and a line says what is missing."""

import json
import os
import re
import signal
import time

import pytest

from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch.logs import log_size, log_tail, read_chunk
from jupyter_gpusched.runner import logcap
from jupyter_gpusched.runner.tree import read_proc

MIB = 2**20
MARKER = re.compile(rb"\[gpusched: ([\d,]+) bytes are missing here[^\n]*\n")


def everything(folder, limit=100_000, *, attempt=1):
    """All that can be read of a log, in pieces as a client reads it."""
    parts, offset = [], 0
    while (chunk := read_chunk(folder, attempt, offset, limit)).data:
        parts.append(chunk.data)
        offset = chunk.following
    return b"".join(parts)


def missing(text):
    return sum(int(found.replace(b",", b"")) for found in MARKER.findall(text))


def on_disk(folder):
    return os.stat(folder / "attempt-1/log").st_blocks * 512


@pytest.fixture
def small(bench):
    """The workbench with a limit of 1 MiB for logs."""
    bench.launcher = bench.new_launcher(log_limit=MIB)
    return bench


# How a log with a cut is read


@pytest.fixture
def cut_log(tmp_path):
    place = tmp_path / "attempt-1"
    place.mkdir()
    (place / "log").write_bytes(b"head 1\nhead 2\n" + bytes(100) + b"tail 1\ntail 2\n")
    (place / "log.cut").write_text(json.dumps({"from": 14, "to": 114}))
    return tmp_path


@pytest.mark.parametrize("limit", [1, 3, 13, 14, 15, 50, 1000])
def test_whoever_reads_on_gets_head_one_line_and_tail(cut_log, limit):
    text = everything(cut_log, limit)
    assert MARKER.sub(b"<cut>\n", text) == b"head 1\nhead 2\n<cut>\ntail 1\ntail 2\n"
    assert missing(text) == 100


def test_a_reader_whom_the_cut_has_overtaken_is_told_what_it_misses(cut_log):
    chunk = read_chunk(cut_log, 1, 64, 1000)
    assert chunk.data.startswith(b"\n[gpusched: 50 bytes")
    assert chunk.data.endswith(b"tail 1\ntail 2\n")
    assert chunk.following == log_size(cut_log, 1) == 128


def test_the_tail_of_a_cut_log_needs_no_more_than_its_end(cut_log):
    assert log_tail(cut_log, 1, 7) == b"tail 2\n"


def test_a_stream_of_outputs_goes_on_behind_the_cut(cut_log):
    items, cursor = files.outputs(cut_log, 1, 0, final=True)
    assert [item["text"].count("\n") for item in items] == [5]
    assert cursor == 128
    assert files.outputs(cut_log, 1, cursor, final=True) == ([], 128)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"from": 9}', '{"from": 20, "to": 3}', '{"from": "x", "to": 5}'])
def test_a_marker_that_makes_no_sense_leaves_the_log_as_it_is(cut_log, text):
    (cut_log / "attempt-1/log.cut").write_text(text)
    assert len(everything(cut_log)) == 128


def test_a_log_made_shorter_than_its_cut_is_read_to_its_end(cut_log):
    (cut_log / "attempt-1/log").write_bytes(b"anew\n")
    assert everything(cut_log) == b"anew\n"


# How the supervisor cuts it


FLOOD = "for i in range({lines}): print(f'{{i:09}}')\n"


async def test_a_flood_is_kept_within_the_limit_and_the_job_runs_on(small):
    _, folder = small.python(FLOOD.format(lines=2_000_000), env={"PYTHONUNBUFFERED": ""})
    most = 0

    def ended():
        nonlocal most
        most = max(most, on_disk(folder) if (folder / "attempt-1/log").exists() else 0)
        return (folder / "attempt-1/exit.json").exists()

    await small.until(ended, timeout=150)
    end = await small.last()
    text = everything(folder)
    assert (end.exit.code, log_size(folder, 1)) == (0, 20_000_000)
    assert on_disk(folder) <= MIB + 64 * 1024
    assert len(MARKER.sub(b"", text)) + missing(text) == 20_000_000
    assert len(MARKER.findall(text)) == 1
    numbers = [int(line) for line in MARKER.sub(b"", text).split()]
    kept = MIB // 4 // 10
    assert abs(numbers.index(next(n for i, n in enumerate(numbers) if n != i)) - kept) < 10
    assert numbers[-50_000:] == list(range(2_000_000 - 50_000, 2_000_000))


async def test_a_reader_who_follows_misses_nothing_untold(small):
    """The reader is slow enough to be overtaken: all that it did not see, it was told of."""
    code = "import time\nfor k in range(30):\n    for i in range(20_000): print(f'{k:02}{i:07}')\n    time.sleep(0.1)\n"
    _, folder = small.python(code, env={"PYTHONUNBUFFERED": ""})
    pieces, offset = [], 0

    def read_on():
        nonlocal offset
        over = (folder / "attempt-1/exit.json").exists()
        chunk = read_chunk(folder, 1, offset, 100_000 if over else 5_000)
        pieces.append(chunk.data)
        passed, shown = chunk.following - offset, len(MARKER.sub(b"", chunk.data))
        put_in = shown + missing(chunk.data) - passed  # a line break, where it was overtaken within a line
        assert put_in == 0 or (put_in == 1 and chunk.data.startswith(b"\n"))
        offset = chunk.following
        return over and not chunk.data

    await small.until(read_on, timeout=150)
    seen = b"".join(pieces)
    assert missing(seen) > 0
    assert b"\0" not in seen
    assert offset == log_size(folder, 1) == 6_000_000
    whole = [line for line in MARKER.sub(b"", seen).split() if len(line) == 9]
    assert whole == sorted(whole)


async def test_a_cut_falls_between_characters_where_there_are_no_lines(small):
    small.python("import sys\nfor _ in range(400): sys.stdout.write('é中😀' * 5000)\n", env={"PYTHONUTF8": "1"})
    await small.last(timeout=150)
    folder = small.folders[0]
    text = everything(folder).decode()  # raises if a character is torn
    assert set(re.sub(r"\[gpusched[^\n]*\n", "", text)) <= set("é中😀\n")
    assert on_disk(folder) <= MIB + 64 * 1024


async def test_it_works_while_there_is_no_host(small):
    go = small.folder / "go"
    code = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n" + FLOOD.format(lines=1_000_000)
    _, folder = small.python(code, env={"PYTHONUNBUFFERED": ""})
    await small.started()
    await small.launcher.close()
    go.touch()
    await small.until((folder / "attempt-1/exit.json").exists, timeout=150)
    assert on_disk(folder) <= MIB + 64 * 1024


async def test_a_quiet_job_does_not_wake_its_supervisor(small):
    _, folder = small.start("sh", "-c", "echo once; exec sleep 600")
    await small.until(lambda: small.log(folder))
    pid = files.read_claim(folder, 1)["pid"]

    def switches():
        return [line for line in read_proc(f"{pid}/status").split(b"\n") if b"voluntary" in line]

    at_rest = {"since": time.monotonic(), "count": switches()}

    def rests():
        if switches() != at_rest["count"]:
            at_rest.update(since=time.monotonic(), count=switches())
        return time.monotonic() - at_rest["since"] > 3

    await small.until(rests, timeout=30)


@pytest.fixture
def deaf():
    """The kernel's word that something was written would end a process that does not expect it."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGIO, before)


def test_where_no_hole_can_be_punched_the_log_stays_whole(tmp_path, monkeypatch, deaf):
    monkeypatch.setattr(logcap, "can_punch", lambda _: False)
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    cap = logcap.LogCap(str(tmp_path), log, MIB, 0.0)
    os.write(log, b"x" * 3 * MIB)
    cap.noticed(1.0)
    cap.look(20.0)
    cap.finish()
    os.close(log)
    assert cap.look_at is None
    assert not (tmp_path / "log.cut").exists()
    assert (tmp_path / "log").read_bytes() == b"x" * 3 * MIB


def test_however_often_a_log_is_shortened_nothing_of_the_cut_stays_on_disk(tmp_path, deaf):
    """The block in which a cut ends is taken out by the next one."""
    place = tmp_path / "attempt-1"
    place.mkdir()
    log = os.open(place / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    cap = logcap.LogCap(str(place), log, MIB, 0.0)
    line = b"x" * 999 + b"\n"
    for moment in range(1, 200):
        os.write(log, line * 300)
        cap.noticed(20.0 * moment)
        cap.look(20.0 * moment + 15.0)
    cap.finish()
    os.close(log)
    assert json.loads((place / "log.cut").read_text())["to"] > 50 * MIB
    assert on_disk(tmp_path) <= MIB + 64 * 1024


def test_a_pipe_cannot_be_punched():
    reading, writing = os.pipe()
    assert not logcap.can_punch(writing)
    os.close(reading)
    os.close(writing)


async def test_without_a_signal_for_writes_the_log_is_looked_at_now_and_then(small, tmp_path, monkeypatch):
    """As on a kernel without F_NOTIFY: the supervisor finds a ``fcntl`` that refuses it."""
    entry = tmp_path / "supervise.py"
    runner = os.path.dirname(logcap.__file__)
    entry.write_text(
        "import sys, fcntl\ndef refuse(*_): raise OSError(22, 'no')\nfcntl.fcntl = refuse\n"
        f"sys.path.append({os.path.dirname(runner)!r})\nfrom runner.supervision import main\nmain()\n"
    )
    monkeypatch.setattr("jupyter_gpusched.launch.spawn.SUPERVISOR", str(entry))
    _, folder = small.python(FLOOD.format(lines=1_000_000), env={"PYTHONUNBUFFERED": ""})
    await small.last(timeout=150)
    assert on_disk(folder) <= MIB + 64 * 1024
