"""Earlier runs of the same work are found by an index, also in a file of the first schema."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from jupyter_gpusched.core.messages import Change
from jupyter_gpusched.core.model import Phase
from jupyter_gpusched.store import SqliteStore
from jupyter_gpusched.store.opening import APPLICATION_ID
from jupyter_gpusched.store.queries import SQL

FIRST_SCHEMA = Path(__file__).with_name("schema_1.sql").read_text()
LATER = ("on_oom", "cap", "code", "learned", "overuse")


def ended(make_job, job_id, **fields):
    return replace(make_job(job_id, at=float(ord(job_id[0])), phase=Phase.SUCCEEDED), **fields)


def test_runs_are_found_by_what_they_ran_or_by_name_newest_first(store, epoch, submit, make_job):
    submit(
        store,
        epoch,
        ended(make_job, "a1111111", code="x"),
        ended(make_job, "b1111111", code="x", name="other"),
        ended(make_job, "c1111111", code="y"),
        ended(make_job, "d1111111", code="x", owner="bob"),
        replace(make_job("e1111111", at=500.0), code="x"),
        replace(make_job("f1111111", at=501.0, phase=Phase.CANCELLED), code="x"),
    )
    assert [run.id for run in store.runs(owner="ada", code="x", limit=9)] == ["b1111111", "a1111111"]
    assert [run.id for run in store.runs(owner="ada", name="train", limit=9)] == ["c1111111", "a1111111"]
    assert [run.id for run in store.runs(owner="ada", name="train", limit=1)] == ["c1111111"]


@pytest.mark.parametrize("query", ["runs_of_code", "runs_of_name", "events_of_job"])
def test_no_lookup_goes_through_all_rows(store, path, query):
    with closing(sqlite3.connect(path)) as connection:
        plan = [row[-1] for row in connection.execute("EXPLAIN QUERY PLAN " + SQL[query], ("ada", "x", 1))]
    assert all("USING INDEX" in step for step in plan), plan


def test_what_happened_to_a_job_is_told_page_by_page(store, epoch, submit, make_job):
    one, other = make_job("aaaaaaaa"), make_job("bbbbbbbb")
    submit(store, epoch, one, other)
    store.record([Change(one, "placed", 2.0, {"gpus": ["GPU-0"]})], {}, epoch=epoch)
    first = store.events_of("aaaaaaaa", after=0, limit=1)
    assert [(event.kind, event.job.id) for event in first] == [("submitted", "aaaaaaaa")]
    rest = store.events_of("aaaaaaaa", after=first[0].seq, limit=9)
    assert [(event.kind, event.detail) for event in rest] == [("placed", {"gpus": ["GPU-0"]})]


def test_a_file_of_the_first_schema_keeps_its_jobs_and_events(path, make_job):
    state = msgspec.to_builtins(make_job(phase=Phase.SUCCEEDED))
    old = json.dumps({name: value for name, value in state.items() if name not in LATER})
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST_SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        row = ("aaaaaaaa", "ada", "succeeded", "train", 1.0, 0, None, old)
        connection.execute("INSERT INTO job VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO event VALUES (7, 1.0, 'aaaaaaaa', 'submitted', '{}', ?)", (old,))
        connection.commit()
    store = SqliteStore(path)
    try:
        assert [run.id for run in store.runs(owner="ada", name="train", limit=9)] == ["aaaaaaaa"]
        assert [event.seq for event in store.events_of("aaaaaaaa", after=0, limit=9)] == [7]
        assert store.last_seq() == 7
    finally:
        store.close()
