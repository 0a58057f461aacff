"""What the journal keeps, and what it gives back."""

import os
import stat
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jupyter_gpusched.core.messages import Change
from jupyter_gpusched.core.model import Attempt, Claim, Grant, GrantState, Outcome, Phase, Stop
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.core.report import Tally
from jupyter_gpusched.core.usage import HALF_LIFE_S, Holding, Usage
from jupyter_gpusched.store import DuplicateKey, Fenced, SqliteStore
from jupyter_gpusched.store.opening import LOG_BYTES


def test_a_job_and_its_work_come_back_as_they_were_written(store, epoch, submit, make_job, work):
    grant = Grant("aaaaaaaa", 1, "GPU-1", 0, "card", Mib(4096), False, GrantState.HELD, 2.0)
    job = replace(
        make_job(),
        phase=Phase.STOPPING,
        attempts=(Attempt(1, (grant,), outcome=Outcome.LOST, peak_vram_mib=Mib(7)),),
        grants=(grant,),
        claim=Claim(("GPU-1",), 2.5),
        stop=Stop("cancelled", 3.0, 30.0),
        tags=("a", "ü"),
    )
    submit(store, epoch, job)
    assert store.job("aaaaaaaa") == job
    assert store.work("aaaaaaaa") == work


def test_an_unknown_id_is_none(store):
    assert store.job("zzzzzzzz") is None
    assert store.work("zzzzzzzz") is None


def test_everything_is_there_after_reopening(path, store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    store.close()
    reopened = SqliteStore(path)
    try:
        assert [job.id for job in reopened.live()] == ["aaaaaaaa"]
        assert reopened.last_seq() == 2
        assert reopened.take_over(at=2.0, host="second") == epoch + 1
    finally:
        reopened.close()


def test_the_file_and_its_log_are_for_their_owner_only(path, store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them(path):
    SqliteStore(path).close()
    path.chmod(0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_writer_waits_for_the_disk_at_each_commit(store):
    assert store._writer.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert store._writer.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_a_later_host_fences_the_earlier_one(path, store, epoch, submit, make_job):
    other = SqliteStore(path)
    try:
        second = other.take_over(at=2.0, host="second")
        assert second == epoch + 1
        with pytest.raises(Fenced):
            submit(store, epoch, make_job())
        assert other.live() == []
        submit(other, second, make_job())
        assert [job.id for job in store.live()] == ["aaaaaaaa"]
    finally:
        other.close()


def test_sequence_numbers_rise_strictly_over_batches(store, epoch, submit, make_job):
    first = submit(store, epoch, make_job("aaaaaaaa"), make_job("bbbbbbbb"))
    second = submit(store, epoch, make_job("cccccccc"))
    assert [record.seq for record in first + second] == [2, 3, 4]
    assert store.last_seq() == 4


def test_a_new_journal_has_no_events(store):
    assert store.last_seq() == 0
    assert store.events(after=0, limit=10) == []


def test_events_after_a_cursor_come_in_order_with_their_job_as_it_was(store, epoch, submit, make_job):
    job = make_job()
    submit(store, epoch, job)
    ended = replace(job, phase=Phase.CANCELLED)
    recorded = store.record([Change(ended, "cancel_requested", 2.0, {"by": "ada"})], {}, epoch=epoch)
    assert store.events(after=2, limit=10) == recorded
    assert [record.job.phase for record in store.events(after=1, limit=10)] == [Phase.QUEUED, Phase.CANCELLED]
    assert [record.seq for record in store.events(after=1, limit=1)] == [2]


def test_several_changes_of_one_job_in_a_batch_leave_the_last_and_journal_all(store, epoch, make_job, work):
    job = make_job()
    starting = replace(job, phase=Phase.STARTING)
    changes = [Change(job, "submitted", 1.0, {}), Change(starting, "placed", 1.0, {})]
    store.record(changes, {job.id: work}, epoch=epoch)
    assert store.job(job.id) == starting
    assert [record.kind for record in store.events(after=1, limit=10)] == ["submitted", "placed"]


def test_live_means_not_final_or_still_holding_memory(store, epoch, submit, make_job):
    grant = Grant("cccccccc", 1, "GPU-1", 0, "card", Mib(1), False, GrantState.RELEASING, 2.0)
    jobs = [
        make_job("aaaaaaaa", phase=Phase.RUNNING),
        make_job("bbbbbbbb", phase=Phase.SUCCEEDED),
        replace(make_job("cccccccc", phase=Phase.FAILED), grants=(grant,)),
    ]
    submit(store, epoch, *jobs)
    assert [job.id for job in store.live()] == ["aaaaaaaa", "cccccccc"]


def test_an_idempotency_key_is_found_by_its_owner_only(store, epoch, submit, make_job):
    submit(store, epoch, make_job(key="once"))
    assert store.find_key("ada", "once") == "aaaaaaaa"
    assert store.find_key("bob", "once") is None


def test_a_used_idempotency_key_writes_nothing_of_the_batch(store, epoch, submit, make_job):
    submit(store, epoch, make_job(key="once"))
    with pytest.raises(DuplicateKey):
        submit(store, epoch, make_job("bbbbbbbb"), make_job("cccccccc", key="once"))
    assert store.job("bbbbbbbb") is None
    assert store.last_seq() == 2


def test_two_owners_may_use_the_same_key(store, epoch, submit, make_job):
    submit(store, epoch, make_job(key="once"), make_job("bbbbbbbb", owner="bob", key="once"))
    assert store.find_key("bob", "once") == "bbbbbbbb"


def test_a_new_job_never_takes_the_place_of_an_old_one_with_its_id(store, epoch, submit, make_job):
    submit(store, epoch, make_job(name="old", phase=Phase.SUCCEEDED))
    with pytest.raises(DuplicateKey):
        submit(store, epoch, make_job(name="new"))
    assert store.job("aaaaaaaa").name == "old"


def test_pages_go_from_new_to_old_without_gap_or_repetition(store, epoch, submit, make_job):
    jobs = [make_job(f"job{number:05d}", at=float(number // 3)) for number in range(20)]
    submit(store, epoch, *jobs)
    seen, before = [], None
    while page := store.jobs(limit=7, before=before):
        seen += page
        before = (page[-1].submitted_at, page[-1].id)
    assert seen == sorted(jobs, key=lambda job: (job.submitted_at, job.id), reverse=True)


def test_a_listing_can_be_narrowed_by_owner_phase_and_name(store, epoch, submit, make_job):
    submit(
        store,
        epoch,
        make_job("aaaaaaaa"),
        make_job("bbbbbbbb", owner="bob"),
        make_job("cccccccc", phase=Phase.RUNNING, name="other"),
    )
    assert [job.id for job in store.jobs(owner="bob")] == ["bbbbbbbb"]
    assert [job.id for job in store.jobs(owner="ada", phase="running")] == ["cccccccc"]
    assert [job.id for job in store.jobs(name="train", owner="ada")] == ["aaaaaaaa"]
    assert store.jobs(limit=0) == []


def test_many_threads_may_read_while_one_writes(store, epoch, submit, make_job):
    failures = []

    def read():
        try:
            for _ in range(50):
                assert all(job.name == "train" for job in store.jobs(owner="ada"))
        except Exception as error:  # noqa: BLE001  a thread's failure is told by the test
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for number in range(50):
        submit(store, epoch, make_job(f"job{number:05d}"))
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(store.jobs()) == 50


def test_an_empty_file_left_by_a_crash_becomes_a_database(path):
    path.touch(mode=0o600)
    store = SqliteStore(path)
    assert store.live() == []
    store.close()


def test_a_forgotten_job_leaves_one_event_and_its_key_is_free_again(store, epoch, submit, make_job):
    submit(store, epoch, replace(make_job(), idempotency_key="once"))
    last = store.last_seq()
    told = store.forget(replace(make_job(), name=""), by="root2", use=Tally(), share=Usage(), at=9.0, epoch=epoch)
    assert (told.seq, told.kind) == (last + 1, "deleted")
    assert store.job("aaaaaaaa") is None
    assert store.work("aaaaaaaa") is None
    assert store.jobs() == []
    assert [(event.seq, event.kind, event.job.name) for event in store.events(after=1, limit=9)] == [
        (last + 1, "deleted", "")
    ]
    assert told.detail == store.events(after=last, limit=1)[0].detail == {"by": "root2"}
    submit(store, epoch, replace(make_job(), idempotency_key="once"))


def test_a_fenced_host_forgets_nothing(store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    with pytest.raises(Fenced):
        store.forget(make_job(), by="me", use=Tally(), share=Usage(), at=9.0, epoch=epoch - 1)
    assert store.job("aaaaaaaa") is not None
    assert store.gone_since(0.0) == []
    assert store.usage_of_gone() == Usage()


def test_what_forgotten_jobs_had_used_stays_by_owner_and_hour(store, epoch, submit, make_job):
    use = Tally({Phase.FAILED: 1}, gpu_s=60.0, waited=1, wait_s=5.0, longest_wait_s=5.0)
    for number, (owner, at) in enumerate([("ann", 7200.0), ("ann", 10799.0), ("bob", 7200.0), ("ann", 10800.0)]):
        job = replace(make_job(), id=f"aaaaaaa{number}", owner=owner, submitted_at=at)
        submit(store, epoch, job)
        store.forget(job, by=owner, use=use, share=Usage({owner: (0.25, at)}), at=2e4, epoch=epoch)
    twice = Tally({Phase.FAILED: 2}, gpu_s=120.0, waited=2, wait_s=10.0, longest_wait_s=5.0)
    assert store.gone_since(9000.0) == [("ann", twice), ("bob", use), ("ann", use)]
    assert store.gone_since(10800.0) == [("ann", use)]
    had = {who: store.usage_of_gone().share(who, Holding(), 10800.0) for who in ("ann", "bob", "eve")}
    quarter_of_an_hour = 0.25 * 0.5 ** (3600.0 / HALF_LIFE_S)
    assert had == pytest.approx({"ann": 0.5 + quarter_of_an_hour, "bob": quarter_of_an_hour, "eve": 0.0}, abs=1e-4)


def test_a_job_that_gets_another_name_is_found_by_it(store, epoch, submit, make_job):
    submit(store, epoch, make_job())
    store.record([Change(replace(make_job(), name="other"), "amended", 2.0, {})], {}, epoch=epoch)
    assert [job.name for job in store.jobs(name="other")] == ["other"]


def test_commits_overwrite_the_log_that_was_laid_out_and_never_make_it_longer(path, store, epoch, submit, make_job):
    log = path.with_name(f"{path.name}-wal")
    laid_out = log.stat().st_size
    for number in range(20):
        submit(store, epoch, make_job(f"job{number:05}"))
    assert log.stat().st_size == laid_out >= LOG_BYTES


def test_of_a_disk_that_is_nearly_full_nothing_is_taken_in_advance(path, store, submit, make_job, monkeypatch):
    real = os.fstatvfs

    def nearly_full(descriptor):
        told = real(descriptor)
        return SimpleNamespace(f_bavail=LOG_BYTES // told.f_frsize, f_frsize=told.f_frsize)

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    submit(store, store.take_over(at=1.0, host="here"), make_job())
    assert path.with_name(f"{path.name}-wal").stat().st_size < LOG_BYTES
    assert len(store.jobs()) == 1


def test_what_was_laid_out_beyond_its_frames_is_nothing_to_whoever_recovers_the_log(
    path, store, epoch, submit, make_job, tmp_path
):
    """A host that was killed leaves the log as it is."""
    submit(store, epoch, make_job())
    (left := tmp_path / "left").mkdir()
    for file in (path, path.with_name(f"{path.name}-wal")):
        (left / file.name).write_bytes(file.read_bytes())
    recovered = SqliteStore(left / path.name)
    try:
        assert recovered.job("aaaaaaaa") == make_job()
        assert recovered.take_over(at=2.0, host="second") == epoch + 1
        submit(recovered, epoch + 1, make_job("bbbbbbbb"))
        assert recovered.last_seq() == 4
    finally:
        recovered.close()
