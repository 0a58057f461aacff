"""Arrays as one row that can be opened, and jobs that are held and released, by mouse and by keys."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, gpu, job
from playwright.sync_api import expect
from waiting import wait_for

expect.set_options(timeout=30_000)

HELD = {"by": "ann", "cause": "three of them failed alike", "since": 1.7e9}


def element(index, **more):
    fields = {"name": f"sweep [{index}]", "array_id": "array001", "array_index": index}
    return job(f"elem000{index}", **(fields | more))


def queued(position, **more):
    return {"phase": "queued", "started_at": None, "position": position, "waiting": "needs 4.0G"} | more


class Acts:
    """What the page asks to be done with jobs; each is answered with the job as ``after`` makes it."""

    def __init__(self, page, jobs, after):
        self.asked = []
        self._jobs, self._after = {view["id"]: view for view in jobs}, after
        page.route(re.compile(r"/jobs/\w+/(hold|release|cancel)\b"), self._answer)

    def _answer(self, route):
        job_id, act = re.search(r"/jobs/(\w+)/(\w+)", route.request.url).groups()
        self.asked.append((act, job_id))
        route.fulfill(json=self._jobs[job_id] | self._after(act))


@pytest.fixture
def array(lab, page):
    jobs = [
        element(0, phase="failed", ended_at=1.7e9 + 5, exit_code=1),
        element(1),
        element(2, **queued(1)),
        element(3, **queued(2, held=HELD, waiting="held by ann: three of them failed alike")),
        job("alone001", name="alone", **queued(3)),
    ]
    Host(page, gpus=[gpu()], jobs=jobs)
    ended = {"phase": "cancelled", "ended_at": 1.7e9 + 9, "held": None}
    page.acts = Acts(page, jobs, lambda act: ended if act == "cancel" else {"held": HELD if act == "hold" else None})
    page.open_lab(lab)
    page.show_panel()
    return page.find("array")


def test_an_array_is_one_row_that_tells_how_its_elements_stand_and_opens(page, array):
    expect(array).to_have_count(1)
    expect(array).to_contain_text("4 jobs")
    expect(array).to_contain_text("1 failed · 1 running · 1 queued · 1 held")
    entries = page.find("panel").get_by_test_id("gpusched-entry")
    expect(entries).to_have_count(1)
    opener = array.get_by_role("button", name="sweep", exact=False).first
    expect(opener).to_have_attribute("aria-expanded", "false")
    opener.click()
    expect(entries.locator(".gpusched-name")).to_have_text([*(f"sweep [{index}]" for index in range(4)), "alone"])
    opener.click()
    expect(entries).to_have_count(1)


def test_an_array_is_opened_and_chosen_by_keys(page, array):
    array.focus()
    page.page.keyboard.press("ArrowRight")
    expect(page.find("entry")).to_have_count(5)
    page.page.keyboard.press("Space")
    expect(page.find("chosen")).to_contain_text("4 jobs chosen")
    page.page.keyboard.press("ArrowLeft")
    expect(page.find("entry")).to_have_count(1)
    expect(array).to_be_focused()


def test_a_held_job_wears_a_badge_with_its_cause_and_is_released(page, array):
    array.get_by_role("button").first.click()
    row = page.find("entry").filter(has_text="sweep [3]")
    expect(row.get_by_test_id("gpusched-held")).to_have_attribute("title", HELD["cause"])
    row.locator("input").check()
    expect(page.find("hold-chosen")).to_have_count(0)
    page.find("release-chosen").click()
    expect(row.get_by_test_id("gpusched-held")).to_have_count(0)
    assert page.acts.asked == [("release", "elem0003")]


def test_the_menu_of_a_row_holds_and_releases_its_job(page, array):
    row = page.find("entry").filter(has_text="alone")
    for item, held, wanted in (("Hold", 1, "hold"), ("Release", 0, "release")):
        row.click(button="right")
        page.page.locator(".lm-Menu-item").get_by_text(item, exact=True).click()
        expect(row.get_by_test_id("gpusched-held")).to_have_count(held)
        assert page.acts.asked[-1] == (wanted, "alone001")


def test_the_menu_of_an_array_holds_all_of_it_that_waits(page, array):
    array.click(button="right")
    page.page.locator(".lm-Menu-item").get_by_text("Hold", exact=True).click()
    wait_for(lambda: page.page.wait_for_timeout(10) or page.acts.asked == [("hold", "elem0002")], "it is not asked for")
    expect(array).to_contain_text("2 held")


def test_a_held_job_is_released_by_keys_alone(page, array):
    array.focus()
    page.page.keyboard.press("ArrowRight")
    row = page.find("entry").filter(has_text="sweep [3]")
    for _ in range(4):
        page.page.keyboard.press("ArrowDown")
    expect(row).to_be_focused()
    page.page.keyboard.press("Space")
    release = page.find("release-chosen")
    expect(release).to_be_visible()
    for _ in range(5):
        page.page.keyboard.press("Shift+Tab")
        if release.evaluate("node => node === document.activeElement"):
            break
    page.page.keyboard.press("Enter")
    expect(row.get_by_test_id("gpusched-held")).to_have_count(0)
    assert page.acts.asked == [("release", "elem0003")]


def test_an_array_tells_what_failed_and_what_is_left_of_it_is_cancelled(page, array):
    expect(array.get_by_test_id("gpusched-failed")).to_have_text("failed: #0 (exit code 1)")
    array.focus()
    page.page.keyboard.press("Delete")
    dialog = page.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Cancel the array sweep (3 jobs)?")
    expect(dialog).to_contain_text("1 has started: what it has not saved is lost.")
    dialog.get_by_role("button", name="Cancel jobs").click()
    cancelled = {("cancel", f"elem000{index}") for index in (1, 2, 3)}
    wait_for(lambda: page.page.wait_for_timeout(10) or set(page.acts.asked) == cancelled, "they are not cancelled")
    expect(array).to_contain_text("1 failed · 3 cancelled")
    expect(array.get_by_role("button", name="Run 4 again: sweep")).to_have_count(1)


def test_a_real_array_is_held_released_and_runs_to_its_end(lab, page):
    first = lab.submit({"argv": ["sleep", "600"], "gpus": 2, "vram": "24G", "name": "busy", "grace": "0s"})
    specs = [{"argv": ["true"], "vram": "2G", "name": "real", "sweep": {"lr": value}} for value in (0.1, 0.2, 0.3)]
    made = lab.ask("jobs", {"jobs": specs, "array": {}})
    page.open_lab(lab)
    page.show_panel()
    row = page.find("array").filter(has_text="real")
    expect(row).to_contain_text("3 queued")
    row.locator("input").check()
    page.find("hold-chosen").click()
    expect(row).to_contain_text("3 held")
    lab.ask(f"jobs/{first}/cancel", {"grace": "0s"})
    wait_for(lambda: lab.ask(f"jobs/{first}")["phase"] == "cancelled", "the job before them does not end")
    assert {lab.ask(f"jobs/{job_id}")["phase"] for job_id in made["ids"]} == {"queued"}
    page.find("release-chosen").click()
    expect(row).to_contain_text("3 succeeded")
    row.get_by_role("button").first.click()
    expect(page.find("entry").filter(has_text="#1, lr=0.2")).to_have_count(1)


def test_of_an_array_of_which_only_the_newest_are_known_all_are_counted_and_run_again(lab, page):
    """The page is told of the newest 200 that have ended; what it says and does is meant of all."""
    known = [element(n, id=f"elem0{n}", phase="cancelled", ended_at=1.7e9 + n) for n in range(300, 500)]
    host = Host(page, gpus=[gpu()])
    host.ended = known
    host.arrays["array001"] = {
        "id": "array001", "name": "sweep", "user": "ann", "kind": "cell", "count": 500, "held": 0, "throttle": None,
        "phases": {"succeeded": 53, "failed": 2, "cancelled": 445}, "submitted_at": 1.7e9,
    }  # fmt: skip
    asked = []

    def again(route):
        asked.append((route.request.method, route.request.url.rpartition("/v1/")[2].partition("?")[0]))
        route.fulfill(status=201, json={"ids": ["elem9999"], "array_id": "array002"})

    page.route(re.compile(r"/resubmit\b"), again)
    page.open_lab(lab)
    page.show_panel()
    array = page.find("array")
    expect(array).to_contain_text("500 jobs")
    expect(array).to_contain_text("2 failed · 53 succeeded · 445 cancelled")
    heading = page.find("panel").get_by_role("row").filter(has_text="Finished earlier")
    expect(heading).to_contain_text("200+")
    expect(page.find("older")).to_have_text("the newest; jupyter gpusched ls has all")
    array.get_by_role("button").first.click()
    expect(array).to_contain_text("200 of 500 are listed")
    page.find("search").fill("elem0301")
    expect(page.find("entry")).to_have_count(1)
    page.find("search").fill("elem0001")
    expect(page.find("no-jobs")).to_contain_text("None of the newest jobs is like that; jupyter gpusched ls has all.")
    page.find("search").fill("")
    array.get_by_role("button", name="Run 447 again").click()
    wait_for(lambda: page.page.wait_for_timeout(10) or asked, "nothing is asked for")
    assert asked == [("POST", "jobs/array001/resubmit")]
