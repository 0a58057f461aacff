"""Events that belong to no job, retention, and what a journal of the first version becomes."""

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpusched.core.messages import Change, MachineChange
from jupyter_gpusched.core.model import Phase
from jupyter_gpusched.core.operations import Alert, Drain, Operations, Quarantine
from jupyter_gpusched.ports import Fenced
from jupyter_gpusched.store import SqliteStore
from jupyter_gpusched.store.opening import Schema

DRAINED = Operations(
    drain=Drain(5.0, "ada", "new disks"),
    quarantines={"GPU-1": Quarantine("lost", "it fell off the bus", 4.0, "gpusched")},
    alerts={"driver": Alert("driver", "driver", "The driver is broken.", 3.0, "error")},
)
FIRST = Schema(version=1, script=Path(__file__).with_name("schema_1.sql").read_text(), migrations={})


def drain(at=5.0):
    return MachineChange(DRAINED, "drained", at, {"by": "ada", "cause": "new disks"})


def kinds(store):
    return [(event.seq, event.kind) for event in store.events(after=0, limit=100)]


def test_a_host_that_takes_over_leaves_an_event_with_its_name(store, epoch):
    (event,) = store.events(after=0, limit=9)
    assert (event.kind, event.job, event.detail) == ("took_over", None, {"host": "first", "epoch": epoch})


def test_a_decision_about_the_machine_stands_between_events_of_jobs_and_is_kept(path, store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    ended = replace(make_job(), phase=Phase.CANCELLED)
    recorded = store.record([drain(), Change(ended, "cancel_requested", 6.0, {})], {}, epoch=epoch)
    assert [(one.seq, one.kind, one.job) for one in recorded] == [(3, "drained", None), (4, "cancel_requested", ended)]
    assert store.events(after=2, limit=9) == recorded
    assert store.operations() == DRAINED
    store.close()
    reopened = SqliteStore(path)
    assert reopened.operations() == DRAINED
    reopened.close()


def test_nothing_was_decided_in_a_new_journal(store):
    assert store.operations() == Operations()


def test_a_decision_that_cannot_be_written_with_its_batch_is_not_kept(store, epoch):
    with pytest.raises(Fenced):
        store.record([drain()], {}, epoch=epoch + 1)
    assert store.operations() == Operations()


# --- retention --------------------------------------------------------------------------


def a_journal(store, epoch, submit, make_job):
    """Events 2 and 4 of a live job, 3 and 5 of one that has ended, 6 of the machine."""
    live, ended = make_job("aaaaaaaa"), make_job("bbbbbbbb")
    submit(store, epoch, live, ended)
    store.record(
        [
            Change(replace(live, phase=Phase.STARTING), "placed", 10.0, {}),
            Change(replace(ended, phase=Phase.CANCELLED), "cancel_requested", 20.0, {}),
            drain(at=30.0),
        ],
        {},
        epoch=epoch,
    )


def test_old_events_go_but_never_those_of_live_jobs(store, epoch, submit, make_job):
    a_journal(store, epoch, submit, make_job)
    assert store.prune(before=25.0, most=1000, limit=100, epoch=epoch) == 3
    assert kinds(store) == [(2, "submitted"), (4, "placed"), (6, "drained")]
    assert store.pruned_to() == 5
    assert store.prune(before=25.0, most=1000, limit=100, epoch=epoch) == 0


def test_of_more_events_than_wanted_the_oldest_go(store, epoch, submit, make_job):
    a_journal(store, epoch, submit, make_job)
    assert store.prune(before=0.0, most=2, limit=100, epoch=epoch) == 2
    assert kinds(store) == [(2, "submitted"), (4, "placed"), (5, "cancel_requested"), (6, "drained")]


def test_pruning_goes_in_small_steps_and_goes_on_where_it_stopped(store, epoch, submit, make_job):
    a_journal(store, epoch, submit, make_job)
    assert [store.prune(before=99.0, most=0, limit=1, epoch=epoch) for _ in range(5)] == [1, 1, 1, 1, 0]
    assert kinds(store) == [(2, "submitted"), (4, "placed")]
    assert store.pruned_to() == 6


def test_what_was_pruned_gives_its_numbers_to_nobody(store, epoch, submit, make_job):
    submit(store, epoch, make_job(phase=Phase.CANCELLED))
    store.prune(before=99.0, most=0, limit=9, epoch=epoch)
    assert submit(store, epoch, make_job("bbbbbbbb"))[0].seq == 3


def test_a_fenced_host_prunes_nothing(store, epoch, submit, make_job):
    a_journal(store, epoch, submit, make_job)
    with pytest.raises(Fenced):
        store.prune(before=99.0, most=0, limit=9, epoch=epoch - 1)
    assert store.pruned_to() == 0


def test_deleting_a_job_looks_at_its_own_events_only(store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    plan = store._writer.execute("EXPLAIN QUERY PLAN DELETE FROM event WHERE job_id = 'aaaaaaaa'").fetchall()
    assert "event_of_job" in str(plan)


# --- journals of the first version --------------------------------------------------------


@pytest.fixture
def first_version(path):
    """What version 1 left behind: two events of a job, and numbers up to 7 given out."""
    SqliteStore(path, schema=FIRST).close()
    with closing(sqlite3.connect(path)) as old:
        old.execute("INSERT INTO event VALUES (3, 1.0, 'aaaaaaaa', 'deleted', '{}', ?)", (_JOB,))
        old.execute("INSERT INTO event VALUES (7, 2.0, 'bbbbbbbb', 'deleted', '{}', ?)", (_JOB,))
        old.execute("DELETE FROM event WHERE seq = 7")
        old.commit()
    return path


_JOB = (
    '{"id":"aaaaaaaa","owner":"ada","kind":"command","name":"","request":{},"priority":"normal","submitted_at":1.0,'
    '"since":1.0}'
)


def test_a_journal_of_version_1_keeps_its_events_and_their_numbers(first_version):
    store = SqliteStore(first_version)
    try:
        assert [(event.seq, event.kind, event.job.owner) for event in store.events(after=0, limit=9)] == [
            (3, "deleted", "ada")
        ]
        epoch = store.take_over(at=time.time(), host="new")
        assert kinds(store)[1:] == [(8, "took_over")]
        store.record([drain()], {}, epoch=epoch)
        assert store.operations() == DRAINED
    finally:
        store.close()
    assert first_version.with_name(first_version.name + ".v1.bak").exists()


def test_an_empty_journal_of_version_1_begins_at_one(path):
    SqliteStore(path, schema=FIRST).close()
    store = SqliteStore(path)
    store.take_over(at=1.0, host="new")
    assert kinds(store) == [(1, "took_over")]
    store.close()
