"""Case 28 in the core: a lost card ends the jobs on it, with the reason, and they are tried elsewhere if asked for."""

from dataclasses import replace

from jupyter_gpusched.core.ledger import read_books
from jupyter_gpusched.core.messages import CancelRequested, Exited, Placed, Sampled, Started, Submitted
from jupyter_gpusched.core.messages import StopAttempt as Ends
from jupyter_gpusched.core.model import Foreign, Phase
from jupyter_gpusched.core.policy import plan
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, grant, job, record

LOST = {"health": "lost", "health_cause": "the card fell off the bus"}


def begun(state, one, *cards):
    state = apply(state, Submitted((one,)), 1.0).state
    state = apply(state, Placed(one.id, tuple(grant(one, index) for index in cards)), 1.0).state
    return apply(state, Started(one.id, 1, 2.0), 2.0).state


def machine(*jobs, cards=4):
    state = State.begin(SETTINGS, gpus=[card(index) for index in range(cards)])
    for one, at in jobs:
        state = begun(state, one, *at)
    return state


def lose(state, *lost, cards=4):
    seen = [card(index, at=3.0, **(LOST if index in lost else {})) for index in range(cards)]
    return apply(state, Sampled(tuple(seen)), 3.0)


def test_only_the_job_on_the_lost_card_is_ended():
    step = lose(machine((job("a"), [1]), (job("b"), [2])), 2)
    assert step.instructions == (Ends("b", 1, "gpu_lost", 30.0),)
    assert (step.state.jobs["a"].phase, step.state.jobs["b"].phase) == (Phase.RUNNING, Phase.STOPPING)
    assert step.changes[-1].kind == "gpu_lost"


def test_a_wide_job_that_loses_two_cards_is_ended_once_and_a_second_sample_changes_nothing():
    step = lose(machine((job("a", gpus=2), [0, 1])), 0, 1)
    assert len(step.instructions) == 1
    assert lose(step.state, 0, 1).instructions == ()


def ended(retries=0, code=143, *, cancelled=False):
    step = lose(machine((job("a", retries=retries), [2])), 2)
    state = step.state
    if cancelled:
        state = apply(state, CancelRequested("a", "bob"), 3.5).state
    moved = apply(state, Exited("a", 1, record(code, stopped="gpu_lost")), 4.0)
    return moved.changes[-1].job, moved.state


def test_its_end_is_a_failure_that_names_the_card():
    one, _ = ended()
    assert (one.phase, one.reason) == (Phase.FAILED, "gpu_lost")
    assert one.message == "ended because it had lost its card: GPU 2, the card fell off the bus"


def test_even_an_orderly_exit_is_a_failure_since_the_work_was_not_done():
    assert ended(code=0)[0].reason == "gpu_lost"


def test_a_job_with_retries_is_tried_on_another_card():
    one, state = ended(retries=1)
    assert one.phase is Phase.QUEUED
    placed = [event for event in plan(state, one.not_before) if isinstance(event, Placed)]
    assert [event.grants[0].index for event in placed] != [2]


def test_a_cancel_meanwhile_prevents_another_try():
    assert ended(retries=1, cancelled=True)[0].phase is Phase.CANCELLED


def test_a_card_that_is_only_unknown_ends_nothing():
    state = machine((job("a"), [2]))
    step = apply(state, Sampled((card(2, at=3.0, health="unknown", health_cause="mismatch"),)), 3.0)
    assert step.instructions == ()


def test_in_prohibited_mode_a_card_gets_nothing():
    books = read_books(State.begin(SETTINGS, gpus=[card(compute_mode="prohibited")]), 0.0)
    assert "prohibited" in books.cards["GPU-0"].obstacle


def test_in_exclusive_process_mode_a_card_gets_one_process():
    free = card(compute_mode="exclusive_process")
    taken = replace(free, foreign=(Foreign(7, 100 * G),))
    assert not read_books(State.begin(SETTINGS, gpus=[free]), 0.0).cards["GPU-0"].exclusive
    assert read_books(State.begin(SETTINGS, gpus=[taken]), 0.0).cards["GPU-0"].exclusive
