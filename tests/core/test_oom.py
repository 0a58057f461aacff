"""Case 37 in the core: out of memory is tried again only under other conditions, and not for ever."""

from dataclasses import replace
from itertools import pairwise

import pytest

from jupyter_gpusched.core.diagnose import diagnose, shortage
from jupyter_gpusched.core.explain import waiting
from jupyter_gpusched.core.messages import Amended, Exited
from jupyter_gpusched.core.model import ExitRecord, Kind, Outcome, Phase, Priority, Request, Shortage, Terms
from jupyter_gpusched.core.oom import MOST_RAISES
from jupyter_gpusched.core.persistent import Map
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import State
from tests.core.conftest import G, World, card, job


def out_of_memory(world, job_id, **amounts):
    record = ExitRecord(1, None, None, world.now, "cuda_oom", "the GPU ran out of memory", shortage=Shortage(**amounts))
    world.tell(Exited(job_id, world.state.jobs[job_id].attempt, record))


def fail(world, job_id, times=1, rest=400.0, **amounts):
    for _ in range(times):
        out_of_memory(world, job_id, **amounts)
        world.sleep(rest)


def of(world, job_id):
    return world.state.jobs.get(job_id) or world.final[job_id]


def ask(job_id, **more):
    on_oom = more.pop("on_oom", "fail")
    return replace(job(job_id, **more), on_oom=on_oom)


def test_a_retry_waits_until_more_is_available_than_at_the_failure_and_delays_nobody():
    world = World(card())
    world.submit(job("busy", vram=20 * G))
    world.submit(job("hungry", vram=2 * G, retries=3))
    world.submit(job("behind1", vram=2 * G), job("behind2", vram=2 * G))
    assert world.running() == {"busy", "hungry", "behind1"}
    world.end("behind1")
    out_of_memory(world, "hungry")
    assert of(world, "hungry").phase is Phase.QUEUED
    world.sleep(400.0)
    assert world.running() == {"busy", "behind2"}
    said = waiting(world.state, of(world, "hungry"), world.now)
    assert said == (
        "needs 2.0G on 1 GPU; best is GPU 0: 2.0G free, 22.0G promised to 2 jobs; "
        "it ran out of memory on GPU 0 with 2.0G available, so it waits for another GPU or for more there"
    )
    assert world.state.claimant is None, "nothing is kept for what no claim can give"
    for foreign in (G, 0):
        world.foreign = {0: foreign}
        world.sleep(5.0)
    assert of(world, "hungry").phase is Phase.QUEUED, "2.0G are available again, and that was not enough"
    world.end("behind2")
    world.sleep(1.0)
    assert of(world, "hungry").phase is Phase.RUNNING


def test_another_card_is_another_condition():
    world = World(card(0), card(1))
    world.submit(job("busy", vram=20 * G), job("hungry", vram=2 * G, retries=1))
    assert world.on_card(0) == {"busy", "hungry"}
    out_of_memory(world, "hungry")
    said = waiting(world.state, of(world, "hungry"), world.now)
    assert said == "attempt 1 of 2 ran out of GPU memory; it is tried again in 5s at the earliest"
    world.sleep(6.0)
    assert world.on_card(1) == {"hungry"}


def test_where_nothing_can_change_it_is_not_tried_again():
    world = World(card())
    world.submit(job("hungry", vram=2 * G, retries=3))
    out_of_memory(world, "hungry")
    ended = world.final["hungry"]
    assert (ended.phase, ended.reason, len(ended.attempts)) == (Phase.FAILED, "cuda_oom", 1)
    assert ended.message.endswith("; it is not tried again, since no GPU here can have more available than there was")


def test_without_retries_it_fails_at_once():
    world = World(card(0), card(1))
    world.submit(job("hungry", vram=2 * G))
    out_of_memory(world, "hungry")
    assert world.final["hungry"].message == "the GPU ran out of memory"


def test_retries_stop_at_their_limit_and_back_off():
    world = World(*[card(index) for index in range(6)])
    world.submit(job("hungry", vram=2 * G, retries=3))
    starts = []
    while "hungry" not in world.final:
        starts.append(world.started_at["hungry"])
        fail(world, "hungry")
    assert [attempt.outcome for attempt in world.final["hungry"].attempts] == [Outcome.FAILED] * 4
    assert world.final["hungry"].message.endswith("; that was attempt 4 of 4")
    assert [later - first for first, later in pairwise(starts)] >= [5.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("vram", "asked", "raised"),
    [(4 * G, None, 5 * G), (4 * G, 8 * G, 13.5 * G), (2 * G, 100, 2.5 * G), (20 * G, 8 * G, 24 * G)],
)
def test_on_oom_retry_raises_the_promise_by_a_quarter_or_to_what_was_wanted(vram, asked, raised):
    world = World(card())
    world.submit(ask("hungry", vram=vram, on_oom="retry"))
    world.sample()
    out_of_memory(world, "hungry", asked=asked)
    one = of(world, "hungry")
    assert one.request.vram == raised
    said = waiting(world.state, one, world.now)
    assert said.startswith("attempt 1 ran out of GPU memory; it is tried again in 5s at the earliest with ")
    world.sleep(6.0)
    assert of(world, "hungry").grants[-1].promised == raised
    assert of(world, "hungry").attempts[0].message.count("it is tried again with") == 1


def test_on_oom_retry_stops_after_three_raises_or_at_the_largest_card():
    world = World(card())
    world.submit(ask("hungry", vram=G, on_oom="retry"))
    fail(world, "hungry", times=MOST_RAISES + 1)
    asked = [attempt.gpus[0].promised for attempt in world.final["hungry"].attempts]
    assert asked == [G, 1.5 * G, 2 * G, 2.5 * G]
    world = World(card())
    world.submit(ask("large", vram=24 * G, on_oom="retry"))
    fail(world, "large")
    assert len(world.final["large"].attempts) == 1


def test_a_job_whose_promise_others_took_is_tried_again_with_the_same_one():
    world = World(card())
    world.submit(ask("hungry", vram=8 * G, on_oom="retry"))
    world.foreign = {0: 22 * G}
    world.sample()
    hungry = of(world, "hungry")
    jobs = {"hungry": replace(hungry, attempts=(replace(hungry.attempts[0], peak_vram_mib=2 * G),))}
    world.state = replace(
        world.state,
        jobs=Map(jobs),
        busy=jobs,
    )
    out_of_memory(world, "hungry", asked=4 * G, free=G)
    one = of(world, "hungry")
    assert (one.request.vram, one.phase) == (8 * G, Phase.QUEUED)
    assert "others had taken what it was promised" in one.attempts[0].message
    world.sleep(60.0)
    assert of(world, "hungry").phase is Phase.QUEUED
    world.foreign = {}
    world.sleep(2.0)
    assert of(world, "hungry").phase is Phase.RUNNING


def test_the_history_and_what_it_waits_for_survive_a_restart():
    world = World(card())
    world.submit(job("busy", vram=20 * G), job("hungry", vram=2 * G, retries=3))
    out_of_memory(world, "hungry")
    again = State.begin(world.state.settings, world.state.jobs.values(), world.state.gpus.values())
    later = schedule(again, world.now + 9.0).state
    assert later.jobs["hungry"].phase is Phase.QUEUED
    assert later.jobs["hungry"].request.floors == ((("GPU-0"), 4 * G),)


def test_another_amount_or_an_owners_new_wish_is_another_condition():
    world = World(card())
    world.submit(job("busy", vram=20 * G), job("hungry", vram=2 * G, retries=3))
    out_of_memory(world, "hungry")
    same = Terms("hungry", Request(vram=2 * G), Priority.HIGH, None, 30.0, 3, ())
    world.tell(Amended("hungry", "ann", same))
    assert of(world, "hungry").request.floors
    world.tell(Amended("hungry", "ann", replace(same, request=Request(vram=3 * G))))
    world.sleep(6.0)
    assert of(world, "hungry").phase is Phase.RUNNING


def test_a_gang_goes_where_enough_cards_are_others_or_have_more():
    world = World(*[card(index) for index in range(4)])
    world.submit(job("gang", gpus=2, vram=4 * G, retries=1))
    assert world.on_card(0) == world.on_card(1) == {"gang"}
    out_of_memory(world, "gang")
    world.sleep(6.0)
    assert {held.index for held in of(world, "gang").attempts[-1].gpus} == {2, 3}


def test_a_retry_for_another_reason_needs_no_other_condition():
    world = World(card())
    world.submit(job("a", vram=2 * G, retries=1))
    world.end("a", code=1)
    world.sleep(6.0)
    assert of(world, "a").phase is Phase.RUNNING


TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.99 GiB "
    "of which 2.50 GiB is free. Including non-PyTorch memory, this process has 3.25 GiB memory in use. Of the allocated"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TORCH, Shortage(8 * G, 2560, 3328)),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", Shortage(8 * G)),
        ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated", Shortage(8 * G)),
        ("CUDA out of memory. Tried to allocate 20.00 MiB", Shortage(20)),
        ("OOM when allocating tensor with shape[2,3]", None),
        ("CUDA out of memory. Tried to allocate 17179869184.00 GiB", None),
        ("all is well", None),
    ],
)
def test_the_amounts_are_read_from_what_the_frameworks_print(text, found):
    assert shortage(f"some line\n{text}\n") == found
    if found:
        reason, _ = diagnose(code=1, signal=None, stopped=None, tail=f"some line\n{text}\n", kind=Kind.SCRIPT)
        assert reason == "cuda_oom"


def test_a_job_without_a_card_that_prints_such_words_is_not_tried_again():
    world = World(card())
    world.submit(job("a", gpus=0, cpus=1, retries=2))
    out_of_memory(world, "a")
    assert world.phase("a") is Phase.FAILED
