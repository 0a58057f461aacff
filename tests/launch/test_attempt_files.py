"""The files of an attempt: who wins the claim, and what a host makes of what it finds."""

import json
import multiprocessing
import os

import msgspec
import pytest

from jupyter_gpusched.core.model import ExitRecord, Kind
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch.ends import exit_record
from jupyter_gpusched.launch.logs import log_tail
from jupyter_gpusched.runner.records import read_stop_file, take_claim


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "attempt-1"
    place.mkdir()
    return place


def contend(folder, rounds, who, gate, results):
    won = []
    for number in range(1, rounds + 1):
        os.makedirs(folder / f"attempt-{number}", exist_ok=True)
        gate.wait()
        if who == "host":
            taken = files.claim_void(folder, number, at=0.0, why="cancelled")
        else:
            taken = take_claim(str(folder / f"attempt-{number}"), {"by": "supervisor", "pid": os.getpid()})
        record = files.read_claim(folder, number)
        assert record is not None  # complete for whoever lost
        won.append((taken, record["by"]))
    results.put((who, won))


def test_a_claim_has_exactly_one_winner_however_close_the_race(tmp_path):
    context = multiprocessing.get_context("spawn")
    gate, results, rounds = context.Barrier(3), context.Queue(), 300
    contenders = ["host", "supervisor", "supervisor"]
    processes = [context.Process(target=contend, args=(tmp_path, rounds, who, gate, results)) for who in contenders]
    try:
        for process in processes:
            process.start()
        found = [results.get(timeout=60) for _ in processes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    for outcome in zip(*(won for _, won in found), strict=True):
        assert sum(taken for taken, _ in outcome) == 1
        assert len({by for _, by in outcome}) == 1


def test_a_void_claim_says_who_and_why(tmp_path):
    assert files.claim_void(tmp_path / "job", 2, at=5.0, why="cancelled")
    assert not files.claim_void(tmp_path / "job", 2, at=6.0, why="again")
    record = files.read_claim(tmp_path / "job", 2)
    assert (record["by"], record["void"], record["why"], record["at"]) == ("host", True, "cancelled", 5.0)


def test_the_first_reason_for_a_stop_stands(tmp_path, place):
    files.write_stop(tmp_path, 1, "timeout", 30.0)
    files.write_stop(tmp_path, 1, "cancelled", 60.0)
    assert (place / "stop").read_text() == "timeout\ngrace 30.0\n"


def test_another_reason_can_shorten_the_grace_of_the_first(tmp_path, place):
    files.write_stop(tmp_path, 1, "timeout", 30.0)
    files.write_stop(tmp_path, 1, "cancelled", 0.0)
    assert (place / "stop").read_text() == "timeout\ngrace 0.0\n"


@pytest.mark.parametrize("trick", ["link", "folder", "fifo", "linked attempt", "nothing"])
def test_only_regular_files_are_read_and_no_link_is_followed(tmp_path, place, trick):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "log").write_text("secret")
    if trick == "link":
        (place / "log").symlink_to(secret / "log")
    elif trick == "folder":
        (place / "log").mkdir()
    elif trick == "fifo":
        os.mkfifo(place / "log")
    elif trick == "linked attempt":
        place.rmdir()
        place.symlink_to(secret)
    assert files.read_log(tmp_path, 1, 0, 100) == b""
    assert files.log_size(tmp_path, 1) == 0


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00"])
def test_a_record_that_is_none_counts_as_missing(tmp_path, place, text):
    (place / "exit.json").write_text(text)
    assert files.read_exit(tmp_path, 1) is None


def test_a_log_is_read_by_offset_and_limit(tmp_path, place):
    (place / "log").write_bytes(b"0123456789")
    assert files.read_log(tmp_path, 1, 3, 4) == b"3456"
    assert files.read_log(tmp_path, 1, 10, 4) == b""
    assert log_tail(tmp_path, 1, 4) == b"6789"


def test_the_log_of_a_command_is_one_stream_whose_cursor_is_a_place_in_it(tmp_path, place):
    whole = "é中x".encode()
    (place / "log").write_bytes(whole[:4])
    items, cursor = files.outputs(tmp_path, 1, 0, final=False)
    assert (items, cursor) == ([{"output_type": "stream", "name": "stdout", "text": "é"}], 2)
    (place / "log").write_bytes(whole)
    items, cursor = files.outputs(tmp_path, 1, cursor, final=True)
    assert (items[0]["text"], cursor) == ("中x", len(whole))
    assert files.outputs(tmp_path, 1, cursor, final=True) == ([], len(whole))


def journal(place, *lines, torn=b""):
    (place / "outputs.jsonl").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines) + torn)


def stream(text, log_end, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text, "log_end": log_end}


def test_the_outputs_of_a_cell_are_its_journal_from_a_cursor_on(tmp_path, place):
    journal(place, stream("a", 1), {"output_type": "clear_output", "wait": False, "log_end": 1}, torn=b'{"output')
    items, cursor = files.outputs(tmp_path, 1, 1, final=False)
    assert (items, cursor) == ([{"output_type": "clear_output", "wait": False}], 2)
    assert files.outputs(tmp_path, 1, 2, final=False) == ([], 2)


def test_what_the_journal_missed_comes_once_the_attempt_is_final(tmp_path, place):
    (place / "log").write_bytes(b"abc")
    journal(place, stream("a", 1), torn=b'{"outp')
    items, cursor = files.outputs(tmp_path, 1, 0, final=True)
    assert [item["text"] for item in items] == ["a", "bc"]
    assert files.outputs(tmp_path, 1, cursor, final=True) == ([], cursor)


def test_a_final_cell_without_a_gap_gets_no_further_item(tmp_path, place):
    (place / "log").write_bytes(b"a")
    journal(place, stream("a", 1))
    assert len(files.outputs(tmp_path, 1, 0, final=True)[0]) == 1


def test_a_long_gap_is_shown_by_its_end(tmp_path, place):
    (place / "log").write_bytes(b"x" * 100_000 + b"\n" + b"y\n" * 1000)
    journal(place)
    text = files.outputs(tmp_path, 1, 0, final=True)[0][0]["text"]
    assert "bytes are left out here" in text
    assert text.endswith("y\ny\n")
    assert len(text) < files.TAIL_BYTES + 100


def test_an_attempt_without_files_has_no_outputs(tmp_path):
    assert files.outputs(tmp_path, 1, 0, final=True) == ([], 0)


HUGE = "9" * 4000
SPOILT_ENDS = [
    '{"code": "\\ud800", "signal": "x", "reason": "\\ud800", "message": "\\ud800"}',
    f'{{"code": {HUGE}, "signal": -{HUGE}, "peak_rss_mib": {HUGE}, "started_at": {HUGE}, "ended_at": {HUGE}}}',
    '{"code": 1e400, "started_at": NaN, "ended_at": -Infinity, "stopped": "\\udcff", "stragglers": -3}',
    '{"survivors": ["\\ud800", {"a": []}], "message": "' + "x" * 100_000 + '", "reason": "r"}',
    '{"code": true, "survivors": 7, "ended_at": 1e15}',
    "{}",
]


@pytest.mark.parametrize("text", SPOILT_ENDS, ids=range(len(SPOILT_ENDS)))
def test_whatever_a_job_writes_as_its_end_can_be_written_down_and_read_again(tmp_path, place, text):
    (place / "exit.json").write_text(text)
    record = exit_record(files.read_exit(tmp_path, 1), b"\xff tail", Kind.COMMAND, now=1000.0)
    again = msgspec.json.decode(msgspec.json.encode(record), type=ExitRecord)
    assert again == record
    assert again.ended_at == 1000.0
    assert len(record.message) < 5000


@pytest.mark.parametrize(
    "text", ["{}", '{"pid": "x"}', '{"pid": 7}', f'{{"pid": {HUGE}, "start_time": 1}}', "[" * 9999], ids=range(5)
)
def test_a_claim_that_names_no_process_is_taken_by_nobody_knows_whom(tmp_path, place, text):
    (place / "claim").write_text(text)
    assert files.read_claim(tmp_path, 1)["pid"] is None
    (place / "started").write_text(text)
    assert files.read_started(tmp_path, 1) is None


def test_outputs_that_are_no_text_can_be_sent(tmp_path, place):
    (place / "outputs.jsonl").write_text('{"output_type": "stream", "text": "a\\ud800"}\n' + "[" * 9999 + "\n")
    items, _ = files.outputs(tmp_path, 1, 0, final=True)
    assert msgspec.json.decode(msgspec.json.encode(items))[0]["text"] == "a\\ud800"


@pytest.mark.parametrize("text", ["cancelled\ngrace x", "cancelled\ngrace nan", "\x00", "x" * 9999, "a\ngrace -1\n"])
def test_a_stop_file_that_makes_no_sense_leaves_the_jobs_own_grace(tmp_path, place, text):
    (place / "stop").write_text(text)
    try:
        reason, grace_s = read_stop_file(str(place), 7.0)
    except ValueError:  # the supervisor bears it
        return
    assert (len(reason) <= 100, grace_s) == (True, 7.0)


def test_the_same_reason_again_can_shorten_the_grace_and_never_lengthen_it(tmp_path, place):
    for grace_s, stands in ((30.0, "30.0"), (2.0, "2.0"), (9.0, "2.0")):
        files.write_stop(tmp_path, 1, "cancelled", grace_s)
        assert (place / "stop").read_text() == f"cancelled\ngrace {stands}\n"


def test_a_claim_taken_while_it_is_looked_for_is_read_whole(tmp_path, monkeypatch):
    """A supervisor that claims between two looks of a recovering host has not spoilt its record."""
    looks = files._is_there

    def claimed_meanwhile(folder, attempt, name):
        take_claim(str(folder / f"attempt-{attempt}"), {"pid": 4711, "start_time": 5, "boot_id": "b", "marker": "a"})
        return looks(folder, attempt, name)

    (tmp_path / "attempt-1").mkdir()
    monkeypatch.setattr(files, "_is_there", claimed_meanwhile)
    assert files.read_claim(tmp_path, 1)["pid"] == 4711


def newest(tmp_path, after, size):
    """How many outputs come, the cursor, and whether some were left out."""
    items, cursor, left_out = files.newest_outputs(tmp_path, 1, after, final=False, newest=size)
    return len(items), cursor, left_out


def test_of_a_long_journal_the_newest_outputs_can_be_had_alone(tmp_path, place):
    journal(place, *(stream("x" * 1000, n) for n in range(10)))
    assert newest(tmp_path, 0, 3500) == (3, 10, True)
    assert newest(tmp_path, 9, 3500) == (1, 10, False)
    assert newest(tmp_path, 11, 3500) == (0, 11, False)
    assert newest(tmp_path, 0, 10**9) == (10, 10, False)
    assert newest(tmp_path, 0, 1) == (1, 10, True)  # one that is larger is not withheld


def test_of_a_long_log_the_newest_lines_can_be_had_alone(tmp_path, place):
    (place / "log").write_bytes(b"first\nsecond\nthird\n")
    items, cursor, left_out = files.newest_outputs(tmp_path, 1, 0, final=False, newest=8)
    assert (items[0]["text"], cursor, left_out) == ("third\n", 19, True)
    assert newest(tmp_path, 0, 1000) == (1, 19, False)
    assert newest(tmp_path, 17, 8) == (1, 19, False)
