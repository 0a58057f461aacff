"""What a deep queue costs others: who looks at it, and who waits while many jobs are decided at once."""

import gc
import threading
from types import SimpleNamespace

import anyio
import pytest

from jupyter_gpusched import batches, standings
from jupyter_gpusched import engine as engine_module
from jupyter_gpusched.batches import HEAVY
from jupyter_gpusched.core.messages import Submitted
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.events import batched
from jupyter_gpusched.hosts import heap
from jupyter_gpusched.keys import Keys
from jupyter_gpusched.standings import Standings
from tests.core.conftest import World, card, job

from .test_group_commit import WORK, a_job, with_engine  # noqa: F401  a fixture


def test_what_is_about_many_jobs_is_decided_beside_the_loop(with_engine, monkeypatch):  # noqa: F811
    entered, gate, apply = threading.Event(), threading.Event(), batches.apply

    def slow(state, event, now):
        if isinstance(event, Submitted):
            entered.set()
            gate.wait(20)
        return apply(state, event, now)

    async def body(engine):
        monkeypatch.setattr(batches, "apply", slow)
        jobs = [a_job(f"j{number:07}") for number in range(HEAVY + 1)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.submit, jobs, {job.id: WORK for job in jobs})
            while not entered.is_set():  # noqa: ASYNC110  the core does not know of loops
                await anyio.sleep(0.005)
            assert not engine.state.jobs  # all or nothing, and others are answered
            gate.set()
        assert len(engine.state.jobs) == len(engine.store.live()) == HEAVY + 1

    with_engine(body)


def test_who_was_to_wait_for_many_is_told_that_the_host_stops(with_engine, monkeypatch):  # noqa: F811
    def broken(state, event, now):
        raise RuntimeError("a fault of the core")

    async def body(engine):
        jobs = [a_job(f"j{number:07}") for number in range(HEAVY + 1)]
        monkeypatch.setattr(batches, "apply", broken)
        with pytest.raises(engine_module.Unavailable):
            await engine.submit(jobs, {job.id: WORK for job in jobs})

    with pytest.raises(BaseException, match=r"fault|unhandled|sub-exception"):
        with_engine(body)


def test_the_end_of_a_job_and_the_start_of_the_next_are_one_transaction(with_engine):  # noqa: F811
    async def body(engine):
        written, record = [], engine.store.record

        def recording(changes, works, **more):
            written.append([(change.job.id, change.kind) for change in changes if hasattr(change, "job")])
            return record(changes, works, **more)

        engine.store.record = recording
        first, second = (_whole_card(job_id) for job_id in ("aaaaaaaa", "bbbbbbbb"))
        await engine.submit([first, second], {first.id: WORK, second.id: WORK})
        with anyio.fail_after(30):
            while "bbbbbbbb" in engine.state.jobs:
                changed = engine.watch(None)
                await changed.wait()
        (ending,) = [changes for changes in written if ("bbbbbbbb", "placed") in changes]
        assert "aaaaaaaa" in {job_id for job_id, _ in ending}
        assert "submitted" not in {kind for _, kind in ending}

    with_engine(body)


def _whole_card(job_id):
    job = a_job(job_id)
    return engine_module.replace(job, request=engine_module.replace(job.request, gpus=1, vram=Mib(8000)))


async def _known(keys, jobs):
    return await keys.known(jobs)


def test_for_jobs_without_a_key_nobody_looks_into_the_journal():
    assert anyio.run(_known, Keys(None), [a_job("aaaaaaaa")]) == {"aaaaaaaa": None}


# --- looking at it ------------------------------------------------------------------------


def waiting(count):
    world = World(card(health="lost"))
    world.submit(*(job(f"waits{number:03}") for number in range(count)))
    return world


def test_a_short_queue_is_put_in_order_for_each_change(monkeypatch):
    monkeypatch.setattr(standings, "QUICK_S", 60.0)
    world, kept = waiting(3), Standings()
    before = kept.at(world.state, world.now)
    assert kept.at(world.state, world.now) is before
    world.submit(job("another0"))
    assert kept.at(world.state, world.now) is not before


def test_the_order_of_a_deep_one_serves_all_who_look_a_moment_later(monkeypatch):
    monkeypatch.setattr(standings, "QUICK_S", 0.0)
    monkeypatch.setattr(standings, "SHARE", 1e-9)
    world, kept = waiting(3), Standings()
    before = kept.at(world.state, world.now)
    world.submit(job("another0"))
    assert kept.at(world.state, world.now) is before
    assert before.position(world.state.jobs["another0"]) in (1, 2, 3, 4)
    assert kept.at(world.state, world.now + 2 * standings.LONGEST_S) is not before


def test_it_is_not_shown_once_its_owner_has_put_it_in_another_order(monkeypatch):
    monkeypatch.setattr(standings, "QUICK_S", 0.0)
    monkeypatch.setattr(standings, "SHARE", 1e-9)
    world, kept = waiting(3), Standings()
    before = kept.at(world.state, world.now)
    after = engine_module.replace(world.state, by_hand={"ann": frozenset({"waits001"})})
    assert kept.at(after, world.now) is not before


def test_pieces_are_whole_and_in_order():
    assert [list(part) for part in batched(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_host_of_its_own_looks_no_more_at_what_many_changes_have_left():
    thresholds = gc.get_threshold()
    desk = SimpleNamespace(engine=SimpleNamespace(observers=[]))
    try:
        heap.tend(desk)
        (observe,) = desk.engine.observers
        kept = gc.get_freeze_count()
        fresh = [[] for _ in range(1000)]
        observe([None] * heap.MANY, None, sampled=False)
        assert gc.get_freeze_count() <= kept
        observe([None] * (heap.MANY + 1), None, sampled=False)
        assert gc.get_freeze_count() >= kept + len(fresh)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
