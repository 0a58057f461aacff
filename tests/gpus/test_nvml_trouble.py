"""Bad drivers and bad cards, through the whole path: the rest goes on, one sentence says why, and it comes back."""

import asyncio
import logging
import os
import signal

import pynvml

from jupyter_gpusched.gpus import open_provider
from tests.gpus.conftest import sampler_pids

QUICK = {"broken": 0.1, "first_pause": 0.05, "longest": 0.2, "absent": 0.1, "card": 0.2, "answer": 0.1, "start": 3.0}


def statuses(cards):
    return [card.health for card in cards]


def test_without_a_driver_there_is_no_card_and_a_cause_until_one_appears(watch, machine):
    text = machine.path.read_text()
    machine.path.unlink()

    async def body(watcher):
        assert await watcher.look() == ()
        assert "not loaded" in watcher.gpus.cause
        machine.path.write_text(text)
        assert len(await watcher.until(bool)) == 2
        assert watcher.gpus.cause is None

    watch(body, **QUICK)


def test_a_machine_without_a_card_is_not_broken(watch, machine):
    machine.write()

    async def body(watcher):
        assert await watcher.look() == ()
        assert watcher.gpus.cause == "The NVIDIA driver is loaded but finds no GPU."
        assert watcher.gpus.fault is None

    watch(body)


def test_a_missing_library_is_a_cause_and_no_fault(watch, machine, monkeypatch, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    async def body(watcher):
        assert await watcher.look() == ()
        assert "No NVIDIA driver was found" in watcher.gpus.cause
        assert watcher.gpus.fault is None

    watch(body)


def test_a_mismatch_keeps_the_last_figures_with_their_age_and_passes(watch, machine, caplog):
    """Case 27."""
    caplog.set_level(logging.WARNING)
    machine.hold(1024)

    async def body(watcher):
        before = await watcher.until(bool)
        machine.fail(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        broken = await watcher.until(lambda cards: statuses(cards) == ["unknown"] * 2 and watcher.gpus.cause)
        assert "reboot, or reload" in watcher.gpus.cause
        assert watcher.gpus.fault == watcher.gpus.cause
        assert (broken[0].used, broken[0].free) == (before[0].used, before[0].free)
        for _ in range(10):
            again = await watcher.look()
            await asyncio.sleep(0.05)
        assert again[0].sampled_at == broken[0].sampled_at
        machine.heal()
        after = await watcher.until(lambda cards: statuses(cards) == ["ok"] * 2)
        assert after[0].sampled_at > broken[0].sampled_at
        assert watcher.gpus.cause is None

    watch(body, **QUICK)
    assert len([one for one in caplog.messages if one.startswith("The NVIDIA driver was upgraded")]) == 1


def test_a_mismatch_shows_within_two_samples_and_is_said_once_in_an_hour(watch, machine, caplog):
    """Case 27: two intervals, whatever their length."""
    caplog.set_level(logging.WARNING)

    async def body(watcher):
        await watcher.until(lambda cards: statuses(cards) == ["ok"] * 2)
        machine.fail(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        looks = [await watcher.look() for _ in range(2)]
        assert statuses(looks[-1]) == ["unknown"] * 2
        assert "reboot, or reload" in looks[-1][0].health_cause
        machine.heal()
        await watcher.until(lambda cards: statuses(cards) == ["ok"] * 2)
        machine.fail(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        await watcher.until(lambda cards: statuses(cards) == ["unknown"] * 2)

    watch(body, start=10.0, answer=10.0, broken=60.0)
    assert len([one for one in caplog.messages if one.startswith("GPU 0: ")]) == 1


def test_unknown_errors_of_all_cards_are_a_fault_of_the_driver_too(watch, machine):
    async def body(watcher):
        await watcher.until(bool)
        machine.fail(pynvml.NVML_ERROR_UNKNOWN)
        await watcher.until(lambda cards: statuses(cards) == ["unknown"] * 2 and watcher.gpus.fault)
        machine.heal()
        await watcher.until(lambda cards: statuses(cards) == ["ok"] * 2)

    watch(body, **QUICK)


def test_a_lost_card_is_lost_and_the_others_go_on(watch, machine):
    """Case 28."""
    machine.write({}, {}, {}, {})

    async def body(watcher):
        await watcher.until(bool)
        machine.set(2, lost=1)
        cards = await watcher.until(lambda cards: "lost" in statuses(cards))
        assert statuses(cards) == ["ok", "ok", "lost", "ok"]
        assert "fell off the bus" in cards[2].health_cause
        assert cards[2].health_since > 1e9
        assert watcher.gpus.cause is None
        later = await watcher.until(lambda now: now[3].sampled_at > cards[3].sampled_at)
        assert later[2].sampled_at == cards[2].sampled_at

    watch(body, **QUICK)


def test_a_lost_card_that_comes_back_is_read_again(watch, machine):
    async def body(watcher):
        await watcher.until(bool)
        machine.set(1, lost=1)
        await watcher.until(lambda cards: statuses(cards) == ["ok", "lost"])
        machine.heal()
        await watcher.until(lambda cards: statuses(cards) == ["ok", "ok"])

    watch(body, **QUICK, renew=0.1)


def test_a_host_that_starts_with_a_lost_card_still_knows_its_name(watch, machine):
    """Case 28: restart in this state."""
    names = []

    async def first(watcher):
        names.extend(card.uuid for card in await watcher.until(bool))

    async def second(watcher):
        cards = await watcher.until(lambda cards: len(cards) == 2)
        assert {card.uuid: card.health for card in cards} == dict(zip(names, ["lost", "ok"], strict=True))
        assert {card.total for card in cards} == {24564}

    watch(first)
    machine.set(0, lost=1)
    watch(second)
    watch(second)  # what is on disk still has the name


def test_a_lost_card_without_a_name_is_a_fault_in_words(watch, machine):
    machine.set(0, lost=1)

    async def body(watcher):
        (card,) = await watcher.until(bool)
        assert card.index == 1
        assert watcher.gpus.fault == "GPU 0: the card fell off the bus; reset it or reboot the machine."

    watch(body)


def test_a_stuck_call_makes_its_card_unknown_and_stops_nothing_else(watch, machine):
    """Case 31: a call that does not return."""

    async def body(watcher):
        await watcher.until(bool)
        machine.hang(0)
        cards = await watcher.until(lambda cards: statuses(cards) == ["unknown", "ok"])
        assert "does not answer" in cards[0].health_cause
        later = await watcher.until(lambda now: now[1].sampled_at > cards[1].sampled_at)
        assert later[0].sampled_at == cards[0].sampled_at
        machine.heal()
        await watcher.until(lambda cards: statuses(cards) == ["ok", "ok"])

    watch(body, **QUICK, renew=0.3)


def test_a_driver_that_hangs_altogether_is_left_with_its_process_and_a_new_one_comes(watch, machine):
    async def body(watcher):
        await watcher.until(bool)
        machine.hang(0)
        machine.hang(1)
        await watcher.until(lambda cards: watcher.gpus.fault is not None)
        machine.heal()
        await watcher.until(lambda cards: statuses(cards) == ["ok", "ok"])

    watch(body, **QUICK)


def test_a_driver_that_does_not_even_open_is_given_its_time_and_then_left(watch, machine):
    with machine.change() as state:
        state.add("delay", fn="nvmlInit", us=600_000_000)

    async def body(watcher):
        assert await watcher.look() == ()
        assert "does not answer" in watcher.gpus.cause
        machine.heal()
        await watcher.until(bool)

    watch(body, **(QUICK | {"start": 0.1, "hello": 3.0}))


def test_a_sampler_that_is_killed_is_replaced(watch, machine):
    async def body(watcher):
        await watcher.until(bool)
        (pid,) = sampler_pids()
        os.kill(pid, signal.SIGKILL)
        await watcher.until(lambda cards: sampler_pids() not in ([], [pid]))
        await watcher.until(lambda cards: statuses(cards) == ["ok", "ok"])

    watch(body, **QUICK)


def test_a_closed_provider_leaves_no_process_behind(watch, machine):
    async def body(watcher):
        await watcher.until(bool)
        assert len(sampler_pids()) == 1

    watch(body)
    assert sampler_pids() == []


def test_real_cards_are_what_a_host_without_simulation_opens():
    provider = open_provider(None)
    assert (provider.simulated, provider.description) == (False, "nvml")
