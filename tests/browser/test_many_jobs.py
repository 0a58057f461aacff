"""Two thousand jobs in the queue: the panel stays quick. With a server of its own, which ends with them."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for, within

OWN_LAB = True
MANY = 2000
SMOOTH_S = 1.0
"""A user who scrolls or searches sees the new rows within this time."""

expect.set_options(timeout=60_000)

TOLD = """target => new Promise(done => {
  const list = document.querySelector('[data-testid=gpusched-list]');
  const begun = performance.now();
  list.scrollTop = target === 'end' ? list.scrollHeight : target;
  const look = () => {
    const box = list.getBoundingClientRect();
    const rows = [...list.querySelectorAll('[data-testid=gpusched-entry]')].map(row => row.getBoundingClientRect());
    const covered = rows.some(row => row.top < box.top + box.height / 2 && row.bottom > box.top + box.height / 2);
    covered ? done((performance.now() - begun) / 1000) : requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""


def test_two_thousand_jobs_are_scrolled_searched_and_followed_without_delay(lab, page):
    first = lab.submit({"argv": ["sleep", "600"], "gpus": 2, "vram": "24G", "name": "busy", "grace": "0s"})
    wait_for(lambda: lab.ask(f"jobs/{first}")["phase"] == "running", "the job does not start")
    jobs = [{"argv": ["true"], "vram": "20G", "name": f"sweep {number}"} for number in range(MANY)]
    ids = [job_id for at in range(0, MANY, 500) for job_id in lab.ask("jobs", {"jobs": jobs[at : at + 500]})["ids"]]
    page.open_lab(lab)
    page.show_panel()
    panel = page.find("panel")
    expect(panel.get_by_role("rowheader", name=f"Waiting {MANY}")).to_be_visible()
    assert panel.get_by_test_id("gpusched-entry").count() < 60
    expect(page.find("list")).to_have_attribute("aria-rowcount", str(MANY + 3))

    for target in ("end", 50_000, 0):
        assert page.page.evaluate(TOLD, target) < within(SMOOTH_S)
    page.page.evaluate(TOLD, "end")
    expect(panel.get_by_test_id("gpusched-entry").filter(has_text=f"sweep {MANY - 1}")).to_be_visible()

    begun = time.monotonic()
    page.find("search").fill("sweep 1234")
    expect(panel.get_by_test_id("gpusched-entry")).to_have_count(1)
    assert time.monotonic() - begun < within(3 * SMOOTH_S)
    expect(panel.get_by_test_id("gpusched-entry")).to_contain_text("number 1235 in the queue")

    lab.ask(f"jobs/{ids[0]}/cancel", {})
    expect(panel.get_by_test_id("gpusched-entry")).to_contain_text("number 1234 in the queue")
    page.find("search").fill("")
    page.page.evaluate(TOLD, 0)
    entry = panel.get_by_test_id("gpusched-entry").filter(has_text="sweep 1").first
    entry.focus()
    page.page.keyboard.press("End")
    expect(panel.get_by_test_id("gpusched-entry").filter(has_text="cancelled")).to_be_focused()
