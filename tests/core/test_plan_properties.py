"""What holds for every plan, whatever the queue and the cards (DESIGN 6)."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

from exploring import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpusched.core.explain import STARTS, waiting, waiting_all
from jupyter_gpusched.core.facts import Facts
from jupyter_gpusched.core.kept import kept_room
from jupyter_gpusched.core.ledger import read_books
from jupyter_gpusched.core.messages import Claimed, Exited, Placed, Started, Submitted
from jupyter_gpusched.core.model import Phase, Priority
from jupyter_gpusched.core.policy import plan
from jupyter_gpusched.core.room import find, without_claim
from jupyter_gpusched.core.schedule import next_wakeup, schedule
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import FIRM, SETTINGS, G, World, card, job, record

NOW = 1000.0

requests = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([0, 1, 1, 1, 2, 3]),
        "vram": st.sampled_from([None, G, 4 * G, 10 * G, 20 * G, 24 * G]),
        "cpus": st.sampled_from([None, None, 1, 8]),
        "memory": st.sampled_from([None, None, 30 * G]),
        "exclusive": st.sampled_from([False, False, False, True]),
        "gpu_model": st.sampled_from([None, None, "24g", "absent"]),
        "preferred_gpus": st.sampled_from([(), ("0",), ("GPU-2",)]),
    }
).map(lambda asked: {**asked, "vram": None} if asked["gpus"] == 0 else asked)


@st.composite
def cards(draw):
    def one(index):
        total = draw(st.sampled_from([8 * G, 24 * G, 24564]))
        more = draw(
            st.sampled_from(
                [{}, {}, {}, {"health": "lost"}, {"at": NOW - 60}, {"free": None, "used": None}, {"simulated": False}]
            )
        )
        used = draw(st.sampled_from([0, 0, 300, 6 * G]))
        busy = draw(st.sampled_from([None, None, 40.0, 100.0]))
        return card(index, **{"total": total, "used": used, "at": NOW, "utilization_pct": busy, **more})

    return [one(index) for index in range(draw(st.integers(0, 3)))]


@st.composite
def jobs(draw, prefix):
    made = []
    for number, asked in enumerate(draw(st.lists(requests, max_size=8))):
        at = draw(st.sampled_from([0.0, 500.0, 900.0, NOW]))
        one = job(f"{prefix}{number:07d}", at=at, priority=draw(st.sampled_from(list(Priority))), **asked)
        owner = draw(st.sampled_from(["ann", "ann", "bob", "eve"]))
        made.append(replace(one, owner=owner, not_before=draw(st.sampled_from([None, None, None, NOW - 1, NOW + 50]))))
    return tuple(made)


@st.composite
def states(draw, chosen=None):
    """A state as it may come about: some jobs run since an earlier pass, some memory is being released."""
    state = State.begin(draw(st.sampled_from([SETTINGS, FIRM])) if chosen is None else chosen, gpus=draw(cards()))
    state = apply(state, Submitted(draw(jobs("r"))), NOW - 200).state
    state = schedule(state, NOW - draw(st.sampled_from([1.0, 400.0]))).state
    for running in [one for one in state.jobs.values() if one.phase is Phase.STARTING]:
        state = apply(state, Started(running.id, 1, NOW - 100), NOW - 100).state
    return apply(state, Submitted(draw(jobs("q"))), NOW).state


def promised(state):
    total = Counter()
    for one in state.jobs.values():
        for held in one.grants:
            total[held.gpu] += held.promised
    return total


@given(states())
def test_no_card_is_ever_over_committed(state):
    after = schedule(state, NOW).state
    for uuid, seen in read_books(after, NOW).cards.items():
        before = read_books(state, NOW).cards[uuid]
        assert seen.promised == before.promised or seen.available >= 0
        assert seen.promised <= seen.usable
    ledger = read_books(after, NOW)
    assert ledger.cpus >= 0
    assert ledger.memory >= 0


@given(states())
def test_gangs_are_placed_whole_on_different_cards_of_the_right_kind(state):
    for decision in plan(state, NOW):
        if isinstance(decision, Placed):
            asked = state.jobs[decision.job_id].request
            chosen = [state.gpus[held.gpu] for held in decision.grants]
            assert len({gpu.uuid for gpu in chosen}) == len(chosen) == asked.gpus
            assert all(gpu.health == "ok" and NOW - gpu.sampled_at <= SETTINGS.stale_after_s for gpu in chosen)
            assert all((asked.gpu_model or "").casefold() in gpu.name.casefold() for gpu in chosen)
            assert all(held.promised == asked.vram or asked.vram is None for held in decision.grants)


@given(states())
def test_an_exclusive_job_is_alone_on_its_cards(state):
    held = defaultdict(set)
    alone = set()
    for one in schedule(state, NOW).state.jobs.values():
        for given_ in one.grants:
            held[given_.gpu].add(one.id)
            if one.request.exclusive or one.request.whole_cards:
                alone.add(given_.gpu)
    assert all(len(held[gpu]) == 1 for gpu in alone)


@given(states())
def test_no_fitting_job_is_left_behind_without_a_claim(state):
    after = schedule(state, NOW).state
    for one in after.jobs.values():
        if one.phase is Phase.QUEUED and not (one.not_before and one.not_before > NOW):
            room = kept_room(after, NOW, apart_from=one.id)
            ends_at = NOW + Facts(after, NOW).expected_s(one)
            assert find(room, one.request, ends_at=ends_at) is None
            if find(without_claim(room), one.request) is not None:
                assert after.claimants - {one.id}


@given(states())
def test_a_job_that_rests_after_a_failure_is_not_placed(state):
    placed = {decision.job_id for decision in plan(state, NOW) if isinstance(decision, Placed)}
    assert not [job_id for job_id in placed if (state.jobs[job_id].not_before or 0) > NOW]


@given(states(), st.randoms(use_true_random=False))
def test_the_same_state_gives_the_same_plan_however_it_came_about(state, shuffler):
    mixed, gpus = list(state.jobs.values()), list(state.gpus.values())
    shuffler.shuffle(mixed)
    shuffler.shuffle(gpus)
    assert plan(State.begin(state.settings, mixed, gpus, past=state.past), NOW) == plan(state, NOW)


@given(states())
def test_a_second_pass_finds_nothing_left_to_do(state):
    assert plan(schedule(state, NOW).state, NOW) == ()


def test_no_cards_are_cleared_for_an_urgent_job_that_lacks_something_else_than_memory():
    busy = job("r0000001", gpus=0, cpus=SETTINGS.cpus)
    state = apply(State.begin(SETTINGS, gpus=[card(at=NOW)]), Submitted((busy,)), NOW - 10).state
    state = schedule(state, NOW - 5).state
    urgent = job("q0000001", at=NOW, priority=Priority.HIGH, cpus=1)
    assert plan(apply(state, Submitted((urgent,)), NOW).state, NOW) == ()


@given(states())
def test_only_who_has_waited_long_enough_gets_a_claim_and_only_one_at_a_time(state):
    """Beside the cards that are being cleared by evictions, which need no patience."""
    made = [decision for decision in plan(state, NOW) if isinstance(decision, Claimed) and decision.claim]
    given_ = [decision for decision in made if not decision.claim.evicting]
    assert len(given_) <= 1
    for decision in given_:
        one = state.jobs[decision.job_id]
        assert one.since + state.settings.claim_after_s <= NOW
        assert len(decision.claim.gpus) == one.request.gpus


@given(states(FIRM), st.booleans())
def test_what_starts_after_a_claim_leaves_the_claimant_its_place(state, young):
    """Beside all that starts from then on, and beside foreign use, the claimed amount fits on its cards."""
    kept = replace(state.settings, claim_after_s=0.0 if young else FIRM.claim_after_s)
    state = State.begin(kept, state.jobs.values(), state.gpus.values())
    held = state.claimant
    claimant, claim, fresh = (held.id, held.claim, Counter()) if held else (None, None, Counter())
    for decision in plan(state, NOW):
        if isinstance(decision, Claimed):
            claimant, claim, fresh = decision.job_id, decision.claim, Counter()
        elif claim is not None and decision.job_id != claimant:
            fresh.update({held.gpu: held.promised for held in decision.grants})
            asked = state.jobs[claimant].request
            for uuid in set(claim.gpus) & {held.gpu for held in decision.grants}:
                seen = read_books(state, NOW).cards[uuid]
                assert asked.vram is not None
                assert not asked.exclusive
                assert asked.vram + fresh[uuid] + seen.foreign <= seen.usable


@given(states())
def test_every_waiting_job_has_a_sentence_and_one_that_would_start_says_so(state):
    placed = {decision.job_id for decision in plan(state, NOW) if isinstance(decision, Placed)}
    together = waiting_all(state, NOW)
    for one in state.jobs.values():
        said = waiting(state, one, NOW)
        assert (said is None) == (one.phase is not Phase.QUEUED)
        assert together.get(one.id) == said
        if said is not None and said != STARTS:
            assert one.id not in placed
    after = schedule(state, NOW).state
    assert STARTS not in waiting_all(after, NOW).values()


@given(states())
def test_the_next_wakeup_is_always_ahead(state):
    for moment in (NOW, NOW + 50, NOW + 300):
        due = next_wakeup(schedule(state, moment).state, moment)
        assert due is None or due > moment


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32), st.sampled_from([(2, 20 * G), (1, 22 * G), (3, None), (2, 24 * G)]))
def test_a_wide_job_waits_no_longer_than_its_claim_and_the_jobs_that_ran_then(seed, shape):
    """Small jobs come without end and each runs at most 60 s, so the wide one starts in bounded time."""
    dice = random.Random(seed)
    world = World(*[card(index) for index in range(3)], settings=FIRM)
    ends = {}
    world.submit(*[job(f"old{number}", vram=8 * G) for number in range(9)])
    world.submit(job("wide", gpus=shape[0], vram=shape[1]))
    for number in range(130):
        world.submit(job(f"new{number:05d}", vram=dice.choice([G, 4 * G, 8 * G, 12 * G])))
        for job_id in world.running():
            ends.setdefault(job_id, world.now + dice.uniform(5, 60))
        world.sleep(5.0, tick=5.0)
        for job_id in sorted(world.running() - {"wide"}):
            if ends.get(job_id, world.now + 1) <= world.now:
                world.end(job_id)
        if "wide" in world.started_at:
            break
    assert world.started_at["wide"] <= FIRM.claim_after_s + 60 + 3 * 5


def test_a_grant_being_released_counts_until_it_is_gone():
    world = World(card())
    world.submit(job("a", vram=20 * G), job("b", vram=20 * G))
    world.tell(Exited("a", 1, record(at=world.now)))
    assert world.running() == set()
    assert promised(world.state) == {"GPU-0": 20 * G}
    world.sleep(1.0)
    assert world.running() == {"b"}


def test_ten_thousand_jobs_that_do_not_fit_cost_one_look():
    state = State.begin(SETTINGS, gpus=[card(used=22 * G, at=NOW)])
    crowd = tuple(job(f"{number:08d}", at=NOW - 1, vram=20 * G) for number in range(10_000))
    state = apply(state, Submitted((*crowd, job("zz", at=NOW, vram=G))), NOW).state
    looks = _CountedJobs(state.jobs)
    assert [decision.job_id for decision in plan(replace(state, jobs=looks), NOW)] == ["zz"]
    assert looks.number < 10


class _CountedJobs(dict):
    number = 0

    def __getitem__(self, key):
        self.number += 1
        return super().__getitem__(key)
