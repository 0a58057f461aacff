"""What somebody new to it sees of arrays, held jobs and reserved cards, without having to ask what it means."""

from __future__ import annotations

import re

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, alert, gpu, job
from playwright.sync_api import expect

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)

HELD = job(
    "held0001", phase="queued", started_at=None, position=4, in_line=False,
    waiting="held by ann: one of them failed before it",
    held={"by": "ann", "cause": None, "since": 1.7e9},
)  # fmt: skip


def element(index, phase):
    return job(f"elem000{index}", name=f"sweep [{index}]", array_id="array001", array_index=index, phase=phase)


def box(locator):
    found = locator.bounding_box()
    assert found is not None
    return found


def test_the_buttons_of_a_row_cover_none_of_its_words(lab, page):
    Host(page, gpus=[gpu()], jobs=[HELD, element(0, "running"), element(1, "running")])
    page.open_lab(lab)
    page.show_panel()
    for row in (page.find("entry").filter(has_text="held0001"), page.find("array")):
        row.hover()
        button = box(row.get_by_role("button", name=re.compile("^Cancel")))
        for words in row.locator(".gpusched-facts, .gpusched-why, .gpusched-held, .gpusched-count").all():
            text = box(words)
            below = text["y"] >= button["y"] + button["height"] - 2
            assert below or text["x"] + text["width"] <= button["x"], words.inner_text()
        row.get_by_role("button", name=re.compile("^Cancel")).click(trial=True)


def test_an_array_that_has_ended_is_told_of_once(lab, page):
    host = Host(page, gpus=[gpu()], jobs=[element(index, "running") for index in range(2)])
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("array")).to_contain_text("2 running")
    host.send({"type": "job", "seq": 2, "event": "exited", "at": 0, "job": element(0, "succeeded")})
    expect(page.find("array")).to_contain_text("1 running")
    page.page.wait_for_timeout(2000)  # longer than ends are gathered: nothing is told of the first
    host.send({"type": "job", "seq": 3, "event": "exited", "at": 0, "job": element(1, "succeeded")})
    told = page.page.locator(".Toastify__toast")
    expect(told).to_have_count(1)
    expect(told).to_contain_text("Array sweep: 2 jobs have ended, all succeeded")


def test_a_drained_machine_has_nothing_free(lab, page):
    Host(page, gpus=[gpu()], alerts=[alert("drained", kind="drained", severity="warning")])
    page.open_lab(lab)
    expect(page.find("status")).to_have_text(re.compile("^drained"))


def test_a_held_job_is_released_from_its_card(lab, page):
    Host(page, gpus=[gpu()], jobs=[HELD])
    page.route(re.compile(r"/jobs/held0001/release\b"), lambda route: route.fulfill(json=HELD | {"held": None}))
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": "held0001", "view": HELD}})]
    page.page.goto(lab.saved("held.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-why")).to_have_text(HELD["waiting"])
    card.get_by_test_id("gpusched-release").click()
    expect(card.get_by_test_id("gpusched-held")).to_have_count(0)
    expect(card.get_by_test_id("gpusched-release")).to_have_count(0)
