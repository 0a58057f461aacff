"""Case 33 on cards as the driver tells them: "24 GB" on the label is 24564 MiB, and some of it is kept free."""

from __future__ import annotations

import pytest

from jupyter_gpusched.core.model import BadRequest, NeverFits


@pytest.fixture
def client(machine, start_host):
    return start_host(None).client()


def test_what_no_card_can_ever_hold_is_refused_with_the_largest_amount_and_one_unit(client, command):
    for vram in ("24G", "24GB", "24GiB", "23.9G", "99G"):
        with pytest.raises(NeverFits) as refusal:
            client.submit(command("true", vram=vram))
        assert "24308" in str(refusal.value.hint), vram
    assert client.jobs() == []
    job_id = client.submit(command("true", vram="23.7G"))
    assert client.wait(job_id)["phase"] == "succeeded"
    assert client.job(job_id)["vram_mib"] == 24269  # in whole MiB, never less than was asked for


def test_what_is_no_amount_is_refused_by_its_field_and_every_accepted_form_means_the_same(client, command):
    for vram in ("4", "4g b", "-1G", "0", "nan", "1e99G", "G", "4 T B"):
        with pytest.raises(BadRequest) as refusal:
            client.submit(command("true", vram=vram))
        assert refusal.value.field == "vram", vram
    for vram, mib in (("4G", 4096), ("4GB", 4096), ("4GiB", 4096), ("4096M", 4096), ("0.5G", 512)):
        job_id = client.submit(command("sh", "-c", "echo $GPUSCHED_VRAM_MIB", vram=vram))
        assert client.wait(job_id)["vram_mib"] == mib, vram
        assert client.log(job_id).decode().strip() == str(mib)
