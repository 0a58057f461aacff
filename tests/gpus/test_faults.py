"""What cards report about themselves, through the fake driver: unknown is not ill, and ill is said in words."""

from types import SimpleNamespace

import pynvml
import pytest

from jupyter_gpusched.gpus.faults import fault

MIB = 2**20
WELL = {"ecc": 1, "remapunc": 0, "retiredpending": 0, "fi230": 0}


def cards(machine, *each):
    machine.write(*({"total": 24564 * MIB, "reserved": 0, **values} for values in each))


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ({"remapunc": 1, "remapfailed": 1}, "could not be replaced"),
        ({"remapunc": 1, "remappending": 1}, "rows of its memory are to be replaced at the next reset"),
        ({"retiredpending": 1}, "pages of its memory are to be retired"),
        ({"ecc": 1, "eccunc": 1}, "1 uncorrectable memory error since the driver was loaded"),
        ({"ecc": 1, "eccunc": 3}, "3 uncorrectable memory errors since"),
        ({"fi230": 1}, "its driver asks for a reset of the card"),
        ({"fi230": 9}, "its driver asks for recovery action 9"),
    ],
)
def test_a_card_that_needs_a_person_says_so_and_the_other_is_well(watch, machine, reports, words):
    cards(machine, WELL | reports, WELL)

    async def body(watcher):
        ill, well = await watcher.until(bool)
        assert words in ill.fault
        assert well.fault is None
        assert (ill.health, well.health) == ("ok", "ok"), "what follows from it is the core's"

    watch(body)


def test_a_card_that_tells_nothing_of_it_is_not_ill(watch, machine):
    cards(machine, {})

    async def body(watcher):
        (card,) = await watcher.until(bool)
        assert card.fault is None

    watch(body)


def test_what_comes_while_it_is_watched_is_seen(watch, machine):
    cards(machine, WELL)

    async def body(watcher):
        await watcher.until(bool)
        machine.set(0, fi230=2)
        (card,) = await watcher.until(lambda cards: cards[0].fault)
        assert card.fault == "its driver asks for a reboot of the machine"

    watch(body)


def test_the_instances_of_an_ill_card_are_ill(watch, machine):
    with machine.change() as state:
        state.device(0).update({"mig": "1", "remapunc": "1", "remapfailed": "1"})
        state.add("mig", gpu=0, index=0, uuid="MIG-a", total=9856 * MIB, gi=1, ci=0)

    async def body(watcher):
        found = await watcher.until(lambda cards: any(card.uuid == "MIG-a" for card in cards))
        assert "could not be replaced" in next(card for card in found if card.uuid == "MIG-a").fault

    watch(body)


def test_an_error_of_one_value_is_not_taken_for_its_value(machine):
    value = SimpleNamespace(nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED, valueType=3)
    asked = {"nvmlDeviceGetFieldValues": [value]}
    assert fault(lambda name, *_: asked.get(name)) is None
