"""When waiting jobs will start, and for whom cards are kept, on card and panel."""

from __future__ import annotations

import re
import time

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, gpu, job
from playwright.sync_api import expect

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)

CLOCK = "at => new Date(at * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'})"


def words(page, at, earliest, latest):
    about, first, last = (page.page.evaluate(CLOCK, moment) for moment in (at, earliest, latest))
    return re.compile(re.escape(f"starts at about {about} ({first} to {last})").replace("\\ ", r"\s"))


@pytest.fixture
def noon(page):
    """A moment of today from which an hour either way is today as well, whenever the test runs."""
    noon = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))
    page.page.clock.set_fixed_time(noon)
    return noon


@pytest.mark.own_page
def test_the_probable_start_and_its_range_are_on_card_and_panel_and_follow_the_queue(lab, page, noon):
    waits = job(
        "waits001", phase="queued", started_at=None, position=1, waiting="needs 20.0G on 1 GPU", submitted_at=noon - 60,
        estimated_start=noon + 600, estimated_start_range=[noon + 300, noon + 1800],
    )  # fmt: skip
    host = Host(page, gpus=[gpu()], jobs=[waits])
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": "waits001", "view": waits}})]
    page.page.goto(lab.saved("waits.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    card = page.find("card")
    told = words(page, noon + 600, noon + 300, noon + 1800)
    expect(card.get_by_test_id("gpusched-why")).to_have_text(re.compile("needs 20.0G on 1 GPU"))
    expect(card.get_by_test_id("gpusched-why")).to_have_text(told)
    page.show_panel()
    row = page.find("panel").get_by_test_id("gpusched-entry")
    expect(row.locator(".gpusched-facts")).to_contain_text(told)
    later = [noon + 1200, noon + 900, noon + 2400]
    host.send(
        {"type": "queue", "places": [["waits001", 1, later[0], 0, later[1:]]], "waiting": ["needs 20.0G on 1 GPU"]}
    )
    expect(card.get_by_test_id("gpusched-why")).to_have_text(words(page, *later))
    expect(row.locator(".gpusched-facts")).to_contain_text(words(page, *later))
    host.send({"type": "queue", "places": [["waits001", 1, None, 0, None]], "waiting": ["needs 20.0G on 1 GPU"]})
    expect(card.get_by_test_id("gpusched-why")).not_to_contain_text("starts at about")


def test_a_real_reservation_stands_on_its_card_until_it_is_taken_back(lab, page):
    page.open_lab(lab)
    page.show_panel()
    cards = page.find("panel").get_by_test_id("gpusched-gpu")
    expect(cards).to_have_count(2)
    expect(page.find("reservation")).to_have_count(0)
    made = lab.ask("reservations", {"gpus": [1], "for": "2h", "zone": "UTC", "cause": "the demo"})
    told = cards.nth(1).get_by_test_id("gpusched-reservation")
    expect(told).to_have_text(re.compile(r"^Reserved for .*until .* · the demo$"))
    expect(cards.nth(0).get_by_test_id("gpusched-reservation")).to_have_count(0)
    lab.ask(f"reservations/{made['id']}", method="DELETE")
    expect(told).to_have_count(0)
