"""Pages of a journal that its owner filled with anything: bounded in time and memory, and still right."""

import json
import tracemalloc

import pytest

from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch import pages


@pytest.fixture
def journal(tmp_path):
    (tmp_path / "attempt-1").mkdir()
    return tmp_path / "attempt-1" / "outputs.jsonl"


def line(number):
    return json.dumps({"output_type": "stream", "name": "stdout", "text": "x" * (number % 7), "log_end": number})


@pytest.mark.parametrize("block", [1, 3, 64, 2**20])
def test_every_cursor_leads_to_the_lines_after_it(tmp_path, journal, monkeypatch, block):
    monkeypatch.setattr(pages, "_BLOCK", block)
    lines = [line(number) for number in range(30)]
    journal.write_text("\n".join(lines) + '\n{"torn')
    for after in range(30):
        items, cursor = files.outputs(tmp_path, 1, after, final=False)
        assert (len(items), cursor) == (30 - after, 30)
        assert len(items[0]["text"]) == after % 7
    assert files.outputs(tmp_path, 1, 30, final=True) == ([], 31)
    assert files.outputs(tmp_path, 1, 99, final=True) == ([], 99)


@pytest.mark.parametrize("block", [1, 3, 64, 2**20])
def test_the_newest_bytes_are_the_last_whole_lines_that_fit(tmp_path, journal, monkeypatch, block):
    monkeypatch.setattr(pages, "_BLOCK", block)
    lines = [line(number) + "\n" for number in range(30)]
    journal.write_text("".join(lines) + '{"torn')
    for newest in range(0, 500, 7):
        fitting = next(n for n in range(30, -1, -1) if sum(map(len, lines[30 - n :])) <= newest)
        items, cursor, left_out = files.newest_outputs(tmp_path, 1, 0, final=False, newest=newest)
        assert (len(items), cursor, left_out) == (max(1, fitting), 30, True)


def test_what_the_log_has_beyond_the_journal_is_found_behind_lines_that_do_not_say_so(tmp_path, journal):
    (tmp_path / "attempt-1" / "log").write_bytes(b"abcde")
    mute = json.dumps({"output_type": "display_data", "data": {"text/plain": '"log_end": 5}'}}) + "\n"
    journal.write_text(line(3) + "\n" + mute * 40_000)
    items, cursor = files.outputs(tmp_path, 1, 40_001, final=True)
    assert ([item["text"] for item in items], cursor) == (["de"], 40_002)


def test_a_journal_of_line_ends_is_read_in_pages_and_costs_no_memory(tmp_path, journal):
    journal.write_bytes(b"\n" * (16 * 2**20))
    tracemalloc.start()
    try:
        beyond = files.outputs(tmp_path, 1, 99_999_999_999, final=False)
        page = files.outputs(tmp_path, 1, 5, final=False)
        newest = files.newest_outputs(tmp_path, 1, 0, final=False, newest=1000)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert beyond == ([], 99_999_999_999)
    assert page == ([], 5 + files.OUTPUTS_PAGE_LINES)
    assert newest == ([], 16 * 2**20, True)
    assert most < 8 * 2**20


def test_of_a_journal_that_no_runner_writes_only_a_beginning_is_looked_at(tmp_path, journal, monkeypatch):
    monkeypatch.setattr(pages, "MOST_BYTES", 3 * len(line(7)) + 5)
    journal.write_text("\n".join([line(7)] * 10) + "\n")
    assert files.outputs(tmp_path, 1, 1, final=False)[1] == 3
    assert files.outputs(tmp_path, 1, 7, final=False) == ([], 7)


@pytest.mark.parametrize("part", ["[],", "{},", "1,"])
def test_an_output_of_very_many_parts_is_told_of_and_not_decoded(tmp_path, journal, part):
    many = '{"output_type": "display_data", "data": {"x": [' + part * files.MOST_PARTS + "1]}}"
    journal.write_text(f"{many}\n{line(1)}\n")
    items, cursor = files.outputs(tmp_path, 1, 0, final=False)
    assert "left out here" in items[0]["text"]
    assert (items[0]["output_type"], len(items), cursor) == ("stream", 2, 2)


def test_a_long_output_of_few_parts_is_served_whole(tmp_path, journal):
    picture = {"output_type": "display_data", "data": {"image/png": "A" * (12 * 2**20)}}
    journal.write_text(json.dumps(picture) + "\n")
    assert files.outputs(tmp_path, 1, 0, final=False) == ([picture], 1)


def test_of_a_journal_without_end_only_a_beginning_is_counted_while_its_job_runs(tmp_path, journal, monkeypatch):
    """All streams wait for that look: each of a user's jobs may have such a file."""
    monkeypatch.setattr(pages, "MOST_BYTES", 100)
    with journal.open("wb") as file:
        file.truncate(2**40)
    assert files.journaled_since(tmp_path, 1, 0) == (100, 0)
    assert files.journaled_since(tmp_path, 1, 100) == (100, 0)
