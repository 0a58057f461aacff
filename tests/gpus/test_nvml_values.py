"""What a card says, through the whole path: fake driver, unmodified pynvml, sampler process, provider."""

import os

import pynvml
import pytest

from tests.gpus.conftest import use

G = 1024


def cards_of(watch, *grants):
    """One sample of the machine as it is."""
    seen = []

    async def body(watcher):
        seen.extend(await watcher.until(bool, *grants))

    watch(body)
    return seen


def test_a_card_is_read_with_all_its_values(watch, machine):
    machine.write({"name": "NVIDIA A100", "util": 37, "temp": 61, "power": 212500, "computemode": 3})
    (card,) = cards_of(watch)
    assert (card.name, card.index, card.uuid[:4]) == ("NVIDIA A100", 0, "GPU-")
    assert (card.total, card.reserved, card.used, card.free) == (40 * G, 512, 0, 40 * G - 512)
    assert (card.utilization_pct, card.temperature_c, card.power_w) == (37, 61, 212.5)
    assert (card.compute_mode, card.health, card.simulated) == ("exclusive_process", "ok", False)


def test_what_one_card_does_not_have_is_missing_there_and_not_nought(watch, machine):
    """Case 26."""
    machine.write({"util": "NA", "temp": "NA", "power": "NA"}, {"util": 5})
    first, second = cards_of(watch)
    assert (first.utilization_pct, first.temperature_c, first.power_w) == (None, None, None)
    assert first.health == "ok"
    assert second.utilization_pct == 5


def test_memory_that_the_driver_keeps_is_reserved_and_nobodys_use(watch, machine):
    machine.write({"reserved": 308 * machine.MIB})
    (card,) = cards_of(watch)
    assert (card.reserved, card.used, card.foreign) == (308, 0, ())


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN])
def test_an_old_driver_is_asked_for_the_first_version_of_memory(watch, machine, code):
    machine.write({"reserved": 308 * machine.MIB})
    machine.fail(code, fn="nvmlDeviceGetMemoryInfo_v2")
    (card,) = cards_of(watch)
    assert (card.used, card.reserved, card.free) == (308, 0, 40 * G - 308)


def test_a_driver_with_another_layout_of_lists_is_read_right(watch, machine):
    """Case 29: 535.43 to 535.86."""
    machine.write({}, v3stride=32)
    for number in range(3):
        machine.hold((number + 1) * G, pid=4100000 + number)
    (card,) = cards_of(watch)
    assert [(one.pid, one.vram) for one in card.foreign] == [(4100000, G), (4100001, 2 * G), (4100002, 3 * G)]


@pytest.mark.parametrize("missing", ["ComputeRunningProcesses_v3", "GraphicsRunningProcesses_v3"])
def test_a_driver_without_the_newest_lists_is_read_too(watch, machine, missing):
    machine.fail(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, fn=f"nvmlDeviceGet{missing}")
    machine.hold(G)
    assert cards_of(watch)[0].foreign[0].vram == G


def test_impossible_processes_are_left_out_and_unknown_sizes_stay_unknown(watch, machine):
    """Case 29: its input."""
    machine.write({"base": 6000 * machine.MIB})
    machine.hold(0, pid=4294967295)
    with machine.change() as state:
        state.add("proc", gpu=0, pid=1234, bytes=int(18e15), real=0, sticky=1)
        state.add("proc", gpu=0, pid=os.getpid(), bytes="NA", real=0, sticky=1)
        state.add("proc", gpu=0, pid=4100003, bytes=50 * machine.MIB)
    (card,) = cards_of(watch)
    assert [(one.pid, one.vram) for one in card.foreign] == [(os.getpid(), None)]
    assert card.used == 6000
    assert card.free == 40 * G - 512 - 6000


def test_one_process_in_several_lists_counts_once(watch, machine):
    machine.hold(G)
    machine.hold(2 * G, type="G")
    (mine,) = cards_of(watch)[0].foreign
    assert mine.vram == 2 * G


def test_a_stranger_has_user_and_age_where_they_can_be_known(watch, machine):
    machine.hold(G)
    machine.hold(G, pid=71234567 % 4194304)
    seen = {one.pid: one for one in cards_of(watch)[0].foreign}
    assert seen[os.getpid()].user
    assert seen[os.getpid()].since > 1e9
    elsewhere = seen[71234567 % 4194304]
    assert (elsewhere.user, elsewhere.since, elsewhere.vram) == (None, None, G)


def test_the_memory_of_a_job_is_attributed_to_it(watch, machine):
    machine.hold(3 * G)
    seen = []

    async def body(watcher):
        (card, _) = await watcher.until(bool)
        seen.extend(await watcher.look(use(card.uuid, pids={os.getpid()})))

    watch(body)
    assert seen[0].used_by_job == {"aaaaaaaa": 3 * G}
    assert seen[0].foreign == ()
    assert seen[1].used_by_job == {}


def test_each_mig_instance_is_a_device_with_its_own_size_and_parent(watch, machine):
    """Case 2."""
    machine.write({"mig": 1}, {})
    with machine.change() as state:
        for number, size in enumerate((20096, 9856)):
            state.add("mig", gpu=0, index=number, gi=7 + number, ci=0, uuid=f"MIG-{number}", reserved=0,
                      total=size * machine.MIB)  # fmt: skip
        state.add("proc", gpu=0, mig=1, pid=4100000, bytes=2**30, sticky=1)
    parent, other, first, second = sorted(cards_of(watch), key=lambda card: (len(card.uuid) < 10, card.index))
    assert (first.uuid, first.total, first.parent_uuid) == ("MIG-0", 20096, parent.uuid)
    assert (second.total, second.used, second.foreign[0].vram) == (9856, G, G)
    assert (first.utilization_pct, parent.utilization_pct) == (None, None)
    assert (parent.index, first.index, second.index, other.index) == (0, 0, 0, 1)
    assert parent.foreign == ()


def test_a_mig_instance_that_is_taken_apart_is_no_device_any_more(watch, machine):
    machine.write({"mig": 1})
    with machine.change() as state:
        state.add("mig", gpu=0, index=3, gi=7, ci=0, uuid="MIG-x", total=2**30, reserved=0)

    async def body(watcher):
        await watcher.until(lambda cards: len(cards) == 2)
        with machine.change() as state:
            state.remove("mig")
        (parent,) = await watcher.until(lambda cards: len(cards) == 1)
        assert parent.health == "quarantined"
        assert "no instances" in parent.health_cause

    watch(body)


def test_a_chip_that_shares_the_hosts_memory_has_that(watch, machine):
    machine.write({"name": "NVIDIA GB10", "total": "NA"})
    (card,) = cards_of(watch)
    assert card.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert 0 < card.free < card.total


def test_a_broken_card_is_not_given_the_hosts_memory(watch, machine):
    machine.write({"total": "NA"})
    (card,) = cards_of(watch)
    assert (card.total, card.free, card.used) == (0, None, None)
