"""Case 36 in the core: who uses more than was promised is seen, told once, and met as the administrator wishes."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.advice import advice
from jupyter_gpusched.core.alerts import settle
from jupyter_gpusched.core.explain import waiting
from jupyter_gpusched.core.ledger import read_books
from jupyter_gpusched.core.messages import Exited, Sampled, StopAttempt, Submitted
from jupyter_gpusched.core.model import Phase
from jupyter_gpusched.core.overuse import most_allowed
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, World, card, job, record


class Greedy(World):
    """Jobs use what ``uses`` says, else what they were promised."""

    def __init__(self, *cards, policy="warn", uses=None):
        self.uses = dict(uses or {})
        self.instructions = []
        super().__init__(*cards, settings=replace(SETTINGS, overuse=policy))

    def measured(self, gpu):
        seen = super().measured(gpu)
        ours = {job_id: Mib(self.uses.get(job_id, mib)) for job_id, mib in seen.used_by_job.items()}
        used = seen.used - sum(seen.used_by_job.values()) + sum(ours.values())
        return replace(seen, used=used, free=gpu.total - gpu.reserved - used, used_by_job=ours)

    def take(self, step):
        self.instructions += step.instructions
        super().take(step)

    def kinds(self, job_id):
        return [change.kind for change in self.history if change.job.id == job_id]

    def stopped(self):
        return {one.job_id: one.reason for one in self.instructions if isinstance(one, StopAttempt)}


def case_36(policy):
    """A declares 4G and takes 9G after 5 s; B 10G runs beside it; then C 8G is submitted."""
    world = Greedy(card(), policy=policy)
    world.submit(job("a", vram=4 * G), job("b", vram=10 * G))
    world.sleep(5.0)
    world.uses["a"] = 9 * G
    world.sleep(4.0)
    world.submit(job("c", vram=8 * G))
    return world


def test_an_overrun_is_told_once_and_nothing_is_placed_into_it():
    world = case_36("warn")
    assert world.running() == {"a", "b"}
    assert world.kinds("a").count("overuse") == 1
    told = next(change for change in world.history if change.kind == "overuse")
    assert told.detail == {"attempt": 1, "gpu": 0, "used_mib": 9 * G, "promised_mib": 4 * G, "policy": "warn"}
    said = waiting(world.state, world.state.jobs["c"], world.now)
    assert said == (
        "needs 8.0G on 1 GPU; best is GPU 0: 5.0G free, 19.0G promised to 2 jobs "
        "(one took 9.0G where it had asked for 4.0G)"
    )
    assert advice(world.state.jobs["a"], simulated=False) == (
        "uses 9.0G on GPU 0, 5.0G more than the 4.0G it asked for: ask for 10.0G next time"
    )
    world.sleep(60.0)
    assert (world.kinds("a").count("overuse"), world.phase("c"), world.stopped()) == (1, Phase.QUEUED, {})


def test_an_overrun_is_an_alert_while_it_lasts():
    world = case_36("warn")
    settled = settle(world.state, world.now)
    (alert,) = settled.state.operations.alerts.values()
    assert (alert.kind, alert.job_id, alert.user, alert.gpu_index) == ("overuse", "a", "ann", 0)
    assert alert.message == "Job a uses 9.0G of GPU 0, where it had asked for 4.0G."
    world.state = settled.state
    world.uses["a"] = G
    world.sleep(2.0)
    after = settle(world.state, world.now)
    assert [change.kind for change in after.changes] == ["alert_resolved"]


def test_what_was_taken_counts_as_promised_even_after_it_was_given_back():
    world = case_36("warn")
    world.uses["a"] = G
    world.sleep(2.0)
    (seen,) = read_books(world.state, world.now).cards.values()
    assert (seen.promised, world.state.jobs["a"].overuse) == (19 * G, None)
    assert world.phase("c") is Phase.QUEUED
    world.uses["a"] = 9 * G
    world.sleep(5.0)
    assert world.kinds("a").count("overuse") == 2


def test_kill_ends_the_overrunner_and_nobody_else():
    world = case_36("kill")
    assert world.stopped() == {"a": "vram_exceeded"}
    assert world.phase("a") is Phase.STOPPING
    end = Exited("a", 1, record(0, at=world.now, stopped="vram_exceeded"))
    (exited,) = apply(world.state, end, world.now).changes
    assert exited.detail["reason"] == "vram_exceeded"  # the journal says what the job says
    world.tell(end)
    world.sleep(2.0)
    ended = world.final["a"]
    assert (ended.phase, ended.reason) == (Phase.FAILED, "vram_exceeded")
    assert ended.message == (
        "ended because it used 9.0G on GPU 0, where it had asked for 4.0G; submit it with --vram 10.0G"
    )
    assert ended.attempts[-1].peak_vram_mib == 9 * G
    assert world.running() == {"b", "c"}


def test_an_overrunner_that_was_ended_is_not_tried_again():
    world = Greedy(card(), policy="kill", uses={"a": 9 * G})
    world.submit(job("a", vram=4 * G, retries=3))
    world.sleep(5.0)
    world.end("a", code=143)
    assert world.final["a"].phase is Phase.FAILED


def test_reserve_raises_the_promise_for_this_attempt_and_for_the_next():
    world = case_36("reserve")
    one = world.state.jobs["a"]
    assert (one.attempts[-1].gpus[0].promised, one.request.vram, one.overuse) == (9 * G, 9 * G, None)
    assert world.kinds("a").count("overuse") == 1
    assert "had asked" not in waiting(world.state, world.state.jobs["c"], world.now)
    assert world.stopped() == {}


def test_under_pressure_nobody_is_ended_while_nobody_suffers():
    world = Greedy(card(), policy="kill-under-pressure", uses={"a": 9 * G})
    world.submit(job("a", vram=4 * G), job("b", vram=10 * G))
    world.sleep(10.0)
    assert world.stopped() == {}
    world.submit(job("small", vram=2 * G))
    assert world.running() == {"a", "b", "small"}
    assert world.stopped() == {}


def test_under_pressure_it_is_ended_for_a_waiting_job_that_would_fit_without_the_overrun():
    world = case_36("kill-under-pressure")
    assert world.stopped() == {"a": "vram_exceeded"}
    world = Greedy(card(), policy="kill-under-pressure", uses={"a": 9 * G})
    world.submit(job("a", vram=4 * G), job("b", vram=10 * G))
    world.sleep(10.0)
    world.submit(job("large", vram=20 * G))
    assert world.stopped() == {}, "it would not fit without the overrun either"


def test_under_pressure_it_is_ended_when_a_neighbour_cannot_have_what_it_was_promised():
    world = Greedy(card(), policy="kill-under-pressure", uses={"a": 4 * G, "b": G})
    world.submit(job("a", vram=4 * G), job("b", vram=20 * G))
    world.sleep(5.0)
    world.uses["a"] = 12 * G
    world.sleep(5.0)
    assert world.stopped() == {"a": "vram_exceeded"}


@pytest.mark.parametrize(("uses", "told"), [(most_allowed(Mib(4 * G), SETTINGS), 0), (4 * G * 1.05 + 257, 1)])
def test_a_twentieth_and_256_mib_are_no_overrun(uses, told):
    world = Greedy(card(), uses={"a": int(uses)})
    world.submit(job("a", vram=4 * G))
    world.sleep(10.0)
    assert world.kinds("a").count("overuse") == told


def test_two_samples_above_are_not_enough_and_looks_in_between_do_not_count():
    world = Greedy(card(), policy="kill", uses={"a": 9 * G})
    world.submit(job("a", vram=4 * G))
    world.sample()
    world.sleep(1.0)
    world.sleep(0.2, tick=0.02)
    assert world.kinds("a").count("overuse") == 0
    world.sleep(1.0)
    assert world.stopped() == {"a": "vram_exceeded"}


def test_a_card_that_cannot_be_read_neither_ends_an_episode_nor_counts():
    world = Greedy(card(), uses={"a": 9 * G})
    world.submit(job("a", vram=4 * G))
    world.sleep(1.5)
    before = world.state.jobs["a"].overuse
    unread = replace(world.state.gpus["GPU-0"], health="unknown")
    state = apply(world.state, Sampled((unread,)), world.now + 1).state
    assert state.jobs["a"].overuse == before


def test_a_job_of_whole_cards_overruns_nothing():
    world = Greedy(card(), policy="kill", uses={"a": 30 * G})
    world.submit(job("a", vram=None))
    world.sleep(10.0)
    assert world.stopped() == {}


def test_a_restarted_host_goes_on_with_the_episode_and_tells_it_no_second_time():
    world = case_36("warn")
    again = State.begin(world.state.settings, world.state.jobs.values(), world.state.gpus.values())
    assert again.jobs["a"].overuse.told
    assert apply(again, Submitted((job("d", at=world.now),)), world.now).state.jobs["a"].overuse.told
