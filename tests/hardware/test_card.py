"""What the driver says of a real card, and that we read it right: figures that add up, processes that come and go."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import pynvml
from hardware.card import CONTEXT_MIB, MIB, driver, handles, holding, listed, memory, note, roomiest, until, uuid_of

from jupyter_gpusched.core.model import Grant, GrantState
from jupyter_gpusched.core.operations import LITTLE_MIB
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.gpus.nvml import NvmlGpus, Timing
from jupyter_gpusched.ports import ActiveGrant


def sampled(*grants, count=1, **timing):
    """The cards as our provider sees them the last time, and the seconds that each look took."""

    async def look():
        gpus = NvmlGpus(timing=Timing(**timing))
        took = []
        try:
            cards = await gpus.sample(grants, now=time.time())
            for _ in range(count):
                start = time.perf_counter()
                cards = await gpus.sample(grants, now=time.time())
                took.append(time.perf_counter() - start)
            return {card.uuid: card for card in cards}, took
        finally:
            await gpus.close()

    return asyncio.run(look())


def test_memory_of_both_versions_adds_up():
    with driver():
        for handle in handles():
            # Read until nobody changes anything in between.
            for _ in range(20):
                second, first, again = memory(handle), pynvml.nvmlDeviceGetMemoryInfo(handle), memory(handle)
                if second.used == again.used:
                    break
            assert abs(second.total - second.reserved - second.used - second.free) <= 2 * MIB, second
            assert abs(first.used - second.used - second.reserved) <= 2 * MIB, (first.used, second.used)
            assert first.total == second.total
            assert abs(first.free - second.free) <= 2 * MIB
            note(f"{uuid_of(handle)[:12]} reserved by the driver", f"{second.reserved // MIB} MiB")


def test_our_figures_are_those_of_the_driver():
    with driver():
        cards, _ = sampled()
        for handle in handles():
            card, said = cards[uuid_of(handle)], memory(handle)
            assert card.total == said.total // MIB
            assert card.reserved == said.reserved // MIB
            assert abs(card.used - said.used // MIB) <= 64  # somebody may take a little meanwhile
            assert abs(card.total - card.reserved - card.used - card.free) <= 3  # each is rounded down
            assert card.health == "ok", card.health_cause
            assert card.utilization_pct is None or 0 <= card.utilization_pct <= 100
            assert card.temperature_c is None or 0 < card.temperature_c < 120
            assert card.power_w is None or 0 < card.power_w < 3000


def test_a_card_in_use_says_what_it_knows_of_itself_and_hides_no_memory():
    """Where all pids are seen, what is in use belongs to listed processes but for little."""
    devices = {str(file) for file in Path("/dev").glob("nvidia*")}
    with driver():
        cards, _ = sampled()
    for card in cards.values():
        assert card.fault is None, "this card needs a person"
        assert card.unattributed is None or card.unattributed <= LITTLE_MIB, card.opened_by
        assert card.device_file is None or not devices or card.device_file in devices  # none where they are hidden


def test_the_sampler_itself_takes_no_memory_of_a_card():
    with driver():
        handle, uuid = roomiest()
        before = memory(handle).used
        cards, _ = sampled(count=5)
        assert abs(memory(handle).used - before) < 32 * MIB
        assert uuid in cards


def test_a_context_is_listed_with_its_memory_and_gone_after_its_end():
    with driver():
        handle, uuid = roomiest()
        before = memory(handle).used
        with holding(512, uuid) as process:
            held = (memory(handle).used - before) // MIB
            assert 512 <= held < 512 + CONTEXT_MIB
            note("a context of PyTorch", f"{held - 512} MiB")
            seen = until(lambda: process.pid in listed(handle), 5.0)
            note("the driver speaks of the pids that we see", "yes" if seen is not None else "no (a container)")
            if seen is not None:
                size = listed(handle)[process.pid]
                assert size is None or abs(size // MIB - held) < 64
        took = until(lambda: memory(handle).used <= before + 64 * MIB, 30.0)
        assert took is not None, "the memory of a killed process stays on the card"
        assert process.pid not in listed(handle)
        note("memory is free after SIGKILL in", f"{took:.2f} s")


def test_a_process_is_attributed_to_its_job_or_to_nobody():
    with driver():
        handle, uuid = roomiest()
        with holding(512, uuid) as process:
            known = until(lambda: process.pid in listed(handle), 5.0) is not None
            grant = Grant("aaaaaaaa", 1, uuid, 0, "card", Mib(4096), False, GrantState.HELD, 1.0)
            cards, _ = sampled(ActiveGrant(grant, alive=True, pids=frozenset({process.pid})))
            card = cards[uuid]
            if known:
                assert 512 <= card.used_by_job["aaaaaaaa"] < 512 + CONTEXT_MIB
                assert process.pid not in {stranger.pid for stranger in card.foreign}
            else:
                assert "aaaaaaaa" not in card.used_by_job  # unknown, and never nought
            strangers, _ = sampled()
            if known:
                (stranger,) = [one for one in strangers[uuid].foreign if one.pid == process.pid]
                assert stranger.user is not None
                assert stranger.since is not None


def test_a_sample_costs_little():
    with driver():
        count = len(handles())
    _, took = sampled(count=100, least=0.0)
    median_ms = statistics.median(took) * 1000
    note(f"one sample of {count} device(s)", f"median {median_ms:.2f} ms, longest {max(took) * 1000:.1f} ms")
    assert median_ms < 100 * count
