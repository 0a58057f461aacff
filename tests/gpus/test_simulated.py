"""Simulated cards: read from text, deterministic, and full exactly as long as their jobs live."""

import asyncio
import tracemalloc

import pytest

from jupyter_gpusched.core.model import BadRequest, Grant, GrantState
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.gpus import SimulatedGpus, open_provider, parse_simulation
from jupyter_gpusched.ports import ActiveGrant


def sample(gpus, *grants, now=5.0):
    return asyncio.run(gpus.sample(grants, now=now))


def use(gpu, job_id, promised, *, alive=True, attempt=1, state=GrantState.HELD):
    grant = Grant(job_id, attempt, gpu.uuid, gpu.index, gpu.name, Mib(promised), False, state, 1.0)
    return ActiveGrant(grant, alive=alive, pids=frozenset())


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1x8G", [8192]),
        ("2x24G", [24576, 24576]),
        ("1x24564M,1x48G", [24564, 49152]),
        (" 1x4GiB , 2x0.5G ", [4096, 512, 512]),
    ],
)
def test_count_and_size_are_read(text, sizes):
    assert parse_simulation(text) == sizes


@pytest.mark.parametrize(
    "text", ["", "24G", "2x24", "x24G", "0x24G", "-1x24G", "2x0G", "2x24G,", "2 x 24G", "two", "1e3x1G"]
)
def test_bad_text_is_refused_with_the_accepted_form(text):
    with pytest.raises(BadRequest, match=r"2x24G") as refusal:
        parse_simulation(text)
    assert refusal.value.field == "GPUSCHED_SIMULATE"


def test_more_cards_than_anybody_has_are_refused():
    with pytest.raises(BadRequest, match=r"at most 256"):
        parse_simulation("257x1G")


def test_an_idle_card_is_free_and_marked_as_simulated():
    (card,) = sample(SimulatedGpus("1x24G"))
    assert (card.total, card.used, card.free, card.sampled_at) == (24576, 0, 24576, 5.0)
    assert card.simulated
    assert card.name == "Simulated 24G"
    assert card.health == "ok"


def test_uuids_look_real_differ_and_stay_over_restarts():
    uuids = [card.uuid for card in sample(SimulatedGpus("3x24G"))]
    assert all(uuid.startswith("GPU-") for uuid in uuids)
    assert len(set(uuids)) == 3
    assert uuids == [card.uuid for card in sample(SimulatedGpus("3x24G"))]


def test_a_living_job_uses_what_it_promised():
    gpus = SimulatedGpus("2x24G")
    first, _ = sample(gpus)
    first, second = sample(gpus, use(first, "aaaaaaaa", 4096), use(first, "bbbbbbbb", 1024))
    assert (first.used, first.free) == (5120, 19456)
    assert first.used_by_job == {"aaaaaaaa": 4096, "bbbbbbbb": 1024}
    assert second.used == 0


def test_a_job_that_is_gone_uses_nothing_while_its_grant_is_being_released():
    gpus = SimulatedGpus("1x24G")
    (card,) = sample(gpus)
    (card,) = sample(gpus, use(card, "aaaaaaaa", 4096, alive=False, state=GrantState.RELEASING))
    assert card.used == 0
    assert card.used_by_job == {}


def test_a_card_never_shows_more_used_than_it_has():
    gpus = SimulatedGpus("1x1G")
    (card,) = sample(gpus)
    (card,) = sample(gpus, use(card, "aaaaaaaa", 1000), use(card, "bbbbbbbb", 1000))
    assert (card.used, card.free) == (1024, 0)


def test_the_provider_says_what_it_simulates():
    provider = open_provider("2x24G")
    assert provider.simulated
    assert provider.description == "2x24G"
    assert provider.cause is None


def test_what_a_request_names_is_not_counted_out_in_memory():
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest, match="at most 256"):
            parse_simulation(",".join(["9999x1M"] * 8000))
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()
