from dataclasses import replace

import pytest

from jupyter_gpusched.core.ledger import check_fits, devices, headroom, largest_request, read_books
from jupyter_gpusched.core.messages import Placed, Submitted
from jupyter_gpusched.core.model import BadRequest, NeverFits, Request
from jupyter_gpusched.core.quantities import parse_mib
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, grant, job

REAL = [card(index, total=24564, simulated=False, name="NVIDIA GeForce RTX 3090") for index in (0, 1)]


def books(*placed, **of_card):
    """The books of one card on which these (job, promise) pairs are placed."""
    state = State.begin(SETTINGS, gpus=[card(**of_card)])
    for one, promise in placed:
        state = apply(state, Submitted((one,)), 0.0).state
        state = apply(state, Placed(one.id, (grant(one, promised=promise),)), 0.0).state
    return read_books(state, 0.0)


def only(ledger):
    return ledger.cards["GPU-0"]


def test_a_promise_that_is_not_used_yet_is_not_available():
    seen = only(books((job("a"), 4 * G), (job("b"), 3 * G), used=3 * G, used_by_job={"a": 3 * G}))
    assert (seen.available, seen.promised, seen.foreign) == (24 * G - 7 * G, 7 * G, 0)


def test_a_job_counts_as_much_as_it_uses_once_that_is_more_than_its_promise():
    assert only(books((job("a"), 4 * G), used=6 * G, used_by_job={"a": 6 * G})).available == 18 * G


def test_use_outside_the_queue_is_not_available():
    seen = only(books((job("a"), 4 * G), used=12 * G, used_by_job={"a": 2 * G, "stranger": 5 * G}))
    assert (seen.available, seen.foreign) == (10 * G, 10 * G)


def test_what_is_missing_is_unknown_and_never_nought():
    assert only(books(free=None, used=None)).available is None
    assert only(books(free=None)).foreign == 0
    assert only(books(free=None, used=None)).foreign is None
    assert only(books(free=20 * G, used=None)).foreign == 4 * G


@pytest.mark.parametrize(
    ("total", "simulated", "setting", "kept"),
    [(24564, False, None, 256), (81559, False, None, 816), (24564, True, None, 0), (24564, True, 100, 100)],
)
def test_the_headroom_is_256_mib_or_a_hundredth_on_real_cards_and_nothing_on_simulated(total, simulated, setting, kept):
    assert headroom(card(total=total, simulated=simulated), replace(SETTINGS, headroom=setting)) == kept


def test_cpus_and_memory_count_for_the_jobs_that_ask_for_them():
    ledger = books((job("a", cpus=3, memory=2 * G), 4 * G), (job("b"), 4 * G))
    assert (ledger.cpus, ledger.memory) == (13, 62 * G)


def test_a_card_that_is_ill_or_was_not_read_lately_has_an_obstacle():
    assert only(books()).obstacle is None
    assert only(books(health="quarantined", health_cause="Xid 79")).obstacle == "is quarantined (Xid 79)"
    assert only(books(at=-11.0)).obstacle == "could not be read for 11s"
    assert "free" in only(books(free=None)).obstacle


def test_the_parent_of_mig_instances_is_no_device():
    mig = [card(0), card(1, parent_uuid="GPU-0"), card(2, parent_uuid="GPU-0")]
    assert [gpu.index for gpu in devices(mig)] == [1, 2]


# --- case 33 ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["24G", "24GB", "23.9G", "99G"])
def test_what_no_real_card_can_hold_is_refused_with_the_largest_amount(text):
    with pytest.raises(NeverFits) as refusal:
        check_fits(Request(vram=parse_mib(text)), REAL, SETTINGS)
    assert refusal.value.field == "vram"
    assert "24308 MiB (23.7G)" in refusal.value.hint


def test_what_a_real_card_can_hold_is_accepted():
    check_fits(Request(vram=parse_mib("23.7G")), REAL, SETTINGS)
    check_fits(Request(vram=24308), REAL, SETTINGS)
    assert largest_request(REAL, SETTINGS) == 24308


def test_a_simulated_card_can_be_used_to_the_last_mib():
    simulated = [card(total=24564)]
    check_fits(Request(vram=24564), simulated, SETTINGS)
    with pytest.raises(NeverFits, match="24576 MiB"):
        check_fits(Request(vram=parse_mib("24G")), simulated, SETTINGS)


@pytest.mark.parametrize("wish", ["7", "GPU-7", "00"])
def test_a_wish_for_a_card_that_there_is_not_is_refused_with_those_that_there_are(wish):
    check_fits(Request(vram=1024, preferred_gpus=("1", "GPU-0")), REAL, SETTINGS)
    with pytest.raises(BadRequest, match=f"there is no GPU '{wish}'") as refusal:
        check_fits(Request(vram=1024, preferred_gpus=("1", wish)), REAL, SETTINGS)
    assert refusal.value.field == "preferred_gpus"
    assert refusal.value.hint == "There are: 0 (GPU-0), 1 (GPU-1)."


def test_the_amount_in_the_hint_fits_in_its_short_form_too():
    with pytest.raises(NeverFits) as refusal:
        check_fits(Request(vram=parse_mib("99G")), [card(total=24330)], SETTINGS)
    assert "24330 MiB (23.7G)" in refusal.value.hint
    check_fits(Request(vram=parse_mib("23.7G")), [card(total=24330)], SETTINGS)


def test_memory_that_the_driver_reserves_is_not_usable():
    assert largest_request([card(total=24564, reserved=300)], SETTINGS) == 24264


def test_a_wide_job_must_fit_on_all_its_cards():
    mixed = [card(0, total=48 * G), card(1, total=24 * G)]
    check_fits(Request(vram=40 * G), mixed, SETTINGS)
    with pytest.raises(NeverFits) as refusal:
        check_fits(Request(gpus=2, vram=40 * G), mixed, SETTINGS)
    assert "24576 MiB" in refusal.value.hint


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (Request(gpus=3, vram=G), "gpus"),
        (Request(gpu_model="H100"), "gpu_model"),
        (Request(gpus=0, cpus=17), "cpus"),
        (Request(gpus=0, memory=65537), "memory"),
    ],
)
def test_what_the_machine_cannot_hold_is_refused_by_its_field(request_, field):
    with pytest.raises(NeverFits) as refusal:
        check_fits(request_, REAL, SETTINGS)
    assert refusal.value.field == field
    assert refusal.value.hint


def test_the_model_is_a_part_of_the_name_whatever_its_case():
    check_fits(Request(gpu_model="rtx 30"), REAL, SETTINGS)


def test_a_job_for_two_gpus_cannot_take_mig_instances():
    mig = [card(0), card(1, parent_uuid="GPU-0"), card(2, parent_uuid="GPU-0")]
    check_fits(Request(vram=G), mig, SETTINGS)
    with pytest.raises(NeverFits, match="MIG"):
        check_fits(Request(gpus=2, vram=G), mig, SETTINGS)


def test_without_a_card_a_job_is_refused_with_the_cause_and_one_without_gpus_is_not():
    with pytest.raises(BadRequest, match="The NVIDIA driver is not loaded") as refusal:
        check_fits(Request(vram=G), [], SETTINGS, cause="The NVIDIA driver is not loaded.")
    assert (refusal.value.field, refusal.value.code) == ("vram", "bad_request")
    check_fits(Request(gpus=0, cpus=1), [], SETTINGS)
