"""What is learned of run times, and what is made of it."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.history import PRIOR_S, History, Kin
from jupyter_gpusched.core.model import Attempt, Outcome
from jupyter_gpusched.core.past import Past
from jupyter_gpusched.core.usage import HALF_LIFE_S, HEAD_START_S, Holding, Usage, at_once
from tests.core.conftest import SETTINGS, G, card, grant, job

ANN = Kin("ann", "train", 1, None)


def after(runs, *, kin=ANN, compute=None):
    history = History()
    for seconds in runs:
        history = history.with_run(kin, seconds, compute=compute)
    return history


def test_of_a_stranger_the_prior_is_expected_and_half_of_a_limit():
    assert History().expected_s(ANN) == PRIOR_S
    assert History().expected_s(ANN._replace(limit_s=1000.0)) == 500.0


def test_two_runs_of_a_name_say_more_than_anything_else():
    history = after([9000.0] * 8, kin=ANN._replace(name="other"))
    assert history.expected_s(ANN) == pytest.approx(9000.0)
    history = history.with_run(ANN, 100.0, compute=None).with_run(ANN, 100.0, compute=None)
    assert history.knows("ann", "train")
    assert history.expected_s(ANN) == pytest.approx(100.0)


def test_somebody_new_is_judged_by_all():
    history = after([400.0] * 4)
    assert history.expected_s(Kin("bob", "new", 2, None)) == pytest.approx(400.0)


def test_a_users_limits_are_read_as_they_turned_out():
    generous = ANN._replace(limit_s=1000.0)
    history = after([100.0] * 6, kin=generous)
    unknown = Kin("ann", "something else", 4, 5000.0)
    assert 100.0 < history.expected_s(unknown) < 600.0


def test_what_is_left_is_told_given_what_has_passed():
    history = after([100.0] * 8 + [1000.0] * 8)
    assert history.remaining_s(ANN, 0.0, 0.25) == 100.0
    assert history.remaining_s(ANN, 200.0, 0.25) == 800.0
    assert history.remaining_s(ANN, 5000.0, 0.25) == 2500.0


def test_a_run_of_one_user_changes_nothing_that_was_worked_out_for_another_who_is_known():
    bob = Kin("bob", "train", 1, None)
    history = after([50.0] * 4, kin=bob)
    before = history.expected_s(bob)
    history = history.with_run(ANN, 1.0, compute=None)
    assert history.expected_s(bob) == before
    assert history.expected_s(ANN) != before


def test_old_runs_are_forgotten():
    history = after([1.0] * 40 + [500.0] * 32)
    assert history.expected_s(ANN) == pytest.approx(500.0)


def test_the_use_of_processors_is_learned_by_name():
    history = after([10.0] * 2, compute=0.4)
    assert history.compute("ann", "train") == pytest.approx(0.4)
    assert history.compute("ann", "other") == pytest.approx(0.4)
    assert history.compute("bob", "train") is None


def test_a_share_grows_while_something_runs_and_halves_after_a_half_life():
    usage = Usage().with_end("ann", 1.0, 0.0, HALF_LIFE_S)
    nothing = Holding.of([])
    assert usage.share("ann", nothing, HALF_LIFE_S) == pytest.approx(0.5)
    assert usage.share("ann", nothing, 2 * HALF_LIFE_S) == pytest.approx(0.25)
    half = Holding.of([(0.5, 2 * HALF_LIFE_S)])  # which counts at once, as if held for a while
    assert usage.share("ann", half, 2 * HALF_LIFE_S) == pytest.approx(0.25 + at_once(0.5))
    later = 3 * HALF_LIFE_S - HEAD_START_S
    assert usage.share("ann", half, later) - usage.share("ann", nothing, later) == pytest.approx(0.25)
    assert usage.share("bob", nothing, 0.0) == 0.0


def test_a_share_of_several_holdings_is_the_sum_of_what_each_has_gained():
    held = [(0.25, 0.0), (0.125, HALF_LIFE_S), (0.5, 2 * HALF_LIFE_S)]
    now = 3 * HALF_LIFE_S
    each = sum(Usage().share("ann", Holding.of([one]), now) for one in held)
    assert Usage().share("ann", Holding.of(held), now) == pytest.approx(each)


def test_two_accounts_of_who_used_how_much_are_as_good_as_one():
    ends = [("ann", 0.5, 0.0, 3600.0), ("bob", 1.0, 3600.0, 4000.0), ("ann", 0.25, 4000.0, 9000.0)]
    together = Usage()
    for end in ends:
        together = together.with_end(*end)
    for apart in ((0,), (1,), (2,), (0, 1), ()):
        some, rest = Usage(), Usage()
        for number, end in enumerate(ends):
            some, rest = (some.with_end(*end), rest) if number in apart else (some, rest.with_end(*end))
        for who in ("ann", "bob", "eve"):
            expected = together.share(who, Holding(), 10000.0)
            assert some.joined(rest).share(who, Holding(), 10000.0) == pytest.approx(expected, abs=1e-6), apart
    assert Usage({"ann": (0.5, 0.0)}).joined(Usage({"bob": (0.5, 100 * HALF_LIFE_S)})).ended.keys() == {"bob"}


def test_who_had_how_much_is_learned_while_no_card_answers_and_is_never_more_than_all():
    one = job(vram=6 * G)
    held = replace(grant(one, since=0.0), total=24 * G)
    for gpus, part in (((), 0.25), ((card(), card(1)), 0.125), ((card(total=4 * G),), 1.0)):
        ended = replace(one, attempts=(Attempt(1, (held,), 0.0, HALF_LIFE_S, Outcome.SUCCEEDED),))
        past = Past.of([ended], gpus, SETTINGS)
        assert past.usage.share("ann", Holding(), HALF_LIFE_S) == pytest.approx(part / 2)
