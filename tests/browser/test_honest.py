"""The page says no more than is so: what is free is free for a job, old figures are called old, the unseen rests."""

from __future__ import annotations

import json
import re
import time

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, gpu, holder, job
from playwright.sync_api import expect
from waiting import wait_for

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)


def parts(card):
    return card.get_by_test_id("gpusched-part").evaluate_all("nodes => nodes.map(node => node.dataset.kind)")


def test_only_what_a_job_could_get_is_called_free_and_the_rest_says_why_not(lab, page):
    ill = {"status": "quarantined", "cause": "by ann: fan is loud", "since": time.time() - 60, "by": "ann"}
    held = [holder(job_id="mine0001", mine=True, promised_mib=8192, vram_mib=8192)]
    Host(page, gpus=[gpu(0, available_mib=15000, holders=held), gpu(1, health=ill)])
    page.open_lab(lab)
    page.show_panel()
    cards = page.find("gpu")
    expect(cards).to_have_count(2)
    assert parts(cards.nth(0)) == ["own", "kept", "free"]
    assert parts(cards.nth(1)) == ["kept"]
    cards.nth(0).locator("[data-kind=free]").hover()
    expect(cards.nth(0)).to_contain_text("free: 14.6G")
    cards.nth(0).locator("[data-kind=kept]").hover()
    expect(cards.nth(0)).to_contain_text("(for the driver and as headroom)")
    cards.nth(1).locator("[data-kind=kept]").hover()
    expect(cards.nth(1)).to_contain_text("kept back: 24.0G (this card gets no jobs)")
    expect(cards.nth(1).get_by_test_id("gpusched-health")).to_contain_text(re.compile(r"fan is loud · since \d+:\d\d"))


def test_figures_that_are_no_longer_renewed_say_how_old_they_are_until_they_are_again(lab, page):
    host = Host(page, gpus=[gpu(0, sampled_at=time.time())])
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("age")).to_have_text(re.compile(r"^as of \d+s ago$"))
    host.send({"type": "gpus", "gpus": [gpu(0, sampled_at=time.time())]})
    expect(page.find("age")).to_have_count(0)


def test_a_card_in_a_tab_behind_another_rests_and_is_right_again_when_it_is_seen(lab, page):
    host = Host(page, gpus=[gpu()], jobs=[job("mine0001", name="first name")])
    output = nbformat.v4.new_output("display_data", {MIME: {"id": "mine0001"}, "text/plain": "a job"})
    page.open(lab.saved("rests.ipynb", [nbformat.v4.new_code_cell("1", outputs=[output])]))
    card = page.page.locator('[data-job-id="mine0001"].gpusched-card')
    expect(card).to_contain_text("first name")
    notebook = page.page.evaluate("() => window.jupyterapp.shell.currentWidget.id")
    page.command("launcher:create")
    expect(card).to_be_hidden()
    host.send({"type": "job", "seq": 2, "event": "amended", "job": job("mine0001", name="second name")})
    page.show_panel()
    expect(page.find("panel")).to_contain_text("second name")
    assert "first name" in card.text_content()
    page.page.evaluate("id => window.jupyterapp.shell.activateById(id)", notebook)
    expect(card).to_contain_text("second name")


def test_an_array_goes_past_a_job_as_a_whole(lab, page):
    def waits(job_id, position, **more):
        return job(job_id, phase="queued", started_at=None, position=position, waiting="needs 4.0G", **more)

    sweep = [
        waits(f"elem000{n}", 5 + n, name=f"sweep [{n}]", array_id="array001", array_index=n) for n in range(3)
    ]  # fmt: skip
    jobs = [waits("alone001", 3, name="alone"), *sweep]
    Host(page, gpus=[gpu()], jobs=jobs)
    asked = []

    def acted(route):
        if route.request.method != "PATCH":
            route.fallback()
            return
        asked.append((re.search(r"/jobs/(\w+)", route.request.url)[1], json.loads(route.request.post_data)))
        moved = next(view for view in jobs if view["id"] == asked[-1][0])
        route.fulfill(json=moved | {"position": 2 + len(asked)})

    page.route(re.compile(r"/jobs/\w+\b"), acted)
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("others")).to_have_text("and 3 of others")
    page.find("array").focus()
    page.page.keyboard.press("Alt+ArrowUp")
    expect(page.find("said")).to_have_text("sweep is now number 3 in the queue.")
    assert asked == [
        ("elem0000", {"before": "alone001"}),
        ("elem0001", {"after": "elem0000"}),
        ("elem0002", {"after": "elem0001"}),
    ]
    wait_for(lambda: page.find("entry").count() == 1, "the list is not there any more")


def test_the_details_of_a_job_take_its_end_back_for_a_moment_and_copy_its_id(lab, page):
    Host(page, gpus=[gpu()], jobs=[job("mine0001", name="train")])
    page.open_lab(lab)
    page.command("gpusched:open-job", id="mine0001")
    details = page.find("details")
    details.get_by_test_id("gpusched-cancel").click()
    undo = details.get_by_role("button", name="Undo: do not cancel job mine0001")
    undo.click()
    expect(details.get_by_role("button", name="Cancel job mine0001")).to_be_visible()
    page.page.evaluate(
        """() => {
          Object.defineProperty(navigator, 'clipboard', { value: undefined }); // as over http
          document.addEventListener('copy', event => { window.copied = document.activeElement?.value ?? ''; }, true);
        }"""
    )
    details.get_by_role("button", name="Copy id").click()
    page.page.wait_for_function("() => window.copied !== undefined")
