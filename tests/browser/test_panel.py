"""The panel, the details of a job and the entry points, as a user with mouse or keys meets them."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for

expect.set_options(timeout=30_000)

EVIL = "<img src=x onerror=\"document.title='evil'\">"


@pytest.fixture
def busy(lab):
    """A job that has all of both cards; whatever is left afterwards is ended."""
    first = lab.submit({"argv": ["sleep", "600"], "gpus": 2, "vram": "24G", "name": "busy"})
    wait_for(lambda: lab.ask(f"jobs/{first}")["phase"] == "running", "the job does not start")
    yield first
    lab.cancel_all()


@pytest.fixture
def panel(lab, page):
    page.open_lab(lab)
    page.show_panel()
    return page.find("panel")


def entry(page, name):
    return page.find("panel").get_by_test_id("gpusched-entry").filter(has_text=name)


def phase(row):
    return row.get_by_test_id("gpusched-phase")


def order(lab, *names):
    jobs = lab.ask("jobs?phase=queued")["items"]
    return [job["name"] for job in sorted(jobs, key=lambda job: job["position"]) if job["name"] in names]


# --- cards ------------------------------------------------------------------------------------


def test_each_part_of_a_bar_names_its_holder_to_the_mouse_and_to_the_keys(lab, busy, page, panel):
    card = panel.get_by_test_id("gpusched-gpu").first
    expect(card).to_contain_text("SIMULATED")
    part = card.get_by_test_id("gpusched-part").first
    expect(part).to_have_attribute("aria-label", re.compile(f"your job {busy} · 24.0G · .*since"))
    part.hover()
    expect(card).to_contain_text(f"your job {busy}")
    part.focus()
    page.page.keyboard.press("Enter")
    expect(page.find("details")).to_contain_text("busy")


def test_the_last_minutes_of_a_card_are_drawn(lab, page, panel):
    line = panel.get_by_role("img", name="Memory used in the last 5 minutes").first
    expect(line.locator("path").first).to_be_attached()


def test_who_schedules_stands_at_the_foot_and_a_drain_on_top_until_it_is_over(lab, page, panel):
    expect(page.find("host")).to_have_text("Scheduler: Jupyter server")
    lab.ask("admin/drain", {"cause": "new disks"})
    try:
        expect(page.find("alert").filter(has_text="drained this machine: new disks")).to_be_visible()
    finally:
        lab.ask("admin/resume", {})
    expect(page.find("alert")).to_have_count(0)


# --- the queue --------------------------------------------------------------------------------


def test_the_queue_shows_running_waiting_and_finished_jobs_and_can_be_searched(lab, busy, page, panel):
    lab.submit({"argv": ["true"], "gpus": 0, "name": "quick one", "tags": ["small"]})
    lab.submit({"argv": ["true"], "vram": "2G", "name": "patient one"})
    expect(phase(entry(page, "quick one"))).to_have_text("succeeded")
    expect(entry(page, "patient one")).to_contain_text("number 1 in the queue")
    for group in ("Running", "Waiting", "Finished today"):
        expect(panel.get_by_role("rowheader", name=group)).to_be_visible()
    page.find("search").fill("SMALL")
    expect(panel.get_by_test_id("gpusched-entry")).to_have_count(1)
    page.find("search").fill("")
    page.find("filter").select_option("waiting")
    expect(panel.get_by_test_id("gpusched-entry")).to_have_count(1)
    page.find("search").fill("nothing is called so")
    expect(page.find("no-jobs")).to_contain_text("No job is like that")


def test_several_jobs_are_chosen_cancelled_and_resubmitted(lab, busy, page, panel):
    for name in ("one", "two", "three"):
        lab.submit({"argv": ["true"], "vram": "2G", "name": f"choose {name}"})
    entry(page, "choose one").locator("input").check()
    entry(page, "choose three").locator("input").check()
    expect(page.find("chosen")).to_contain_text("2 jobs chosen")
    page.find("cancel-chosen").click()
    page.page.get_by_role("button", name="Cancel jobs").click()
    for name in ("one", "three"):
        expect(phase(entry(page, f"choose {name}"))).to_have_text("cancelled")
    expect(phase(entry(page, "choose two"))).to_have_text("queued")
    page.find("resubmit-chosen").click()
    for name in ("one", "three"):
        expect(phase(entry(page, f"choose {name}"))).to_have_text(["queued", "cancelled"])
    again = [job for job in lab.ask("jobs?phase=queued")["items"] if job["parent_id"]]
    assert sorted(job["name"] for job in again) == ["choose one", "choose three"]


def test_waiting_jobs_are_put_in_another_order_by_keys(lab, busy, page, panel):
    for name in ("a", "b", "c"):
        lab.submit({"argv": ["true"], "vram": "2G", "name": f"order {name}"})
    names = panel.get_by_test_id("gpusched-entry").filter(has_text="order ").locator(".gpusched-name")
    expect(names).to_have_text(["order a", "order b", "order c"])
    entry(page, "order c").focus()
    expect(entry(page, "order c")).to_be_focused()
    page.page.keyboard.press("Alt+ArrowUp")
    wait_for(lambda: order(lab, "order a", "order b", "order c")[1] == "order c", "the job does not move up")
    expect(page.find("said")).to_contain_text("order c is now number 2")
    expect(names).to_have_text(["order a", "order c", "order b"])
    expect(entry(page, "order c")).to_be_focused()
    page.page.keyboard.press("Alt+ArrowUp")
    wait_for(lambda: order(lab, "order a", "order b", "order c")[0] == "order c", "the job does not move up")
    expect(names).to_have_text(["order c", "order a", "order b"])
    entry(page, "order c").drag_to(entry(page, "order b"), target_position={"x": 60, "y": 70})
    wait_for(lambda: order(lab, "order a", "order b", "order c")[2] == "order c", "the job is not dragged down")
    expect(names).to_have_text(["order a", "order b", "order c"])


def test_all_is_reached_by_keys_alone(lab, busy, page):
    page.open_lab(lab)
    press = page.page.keyboard.press
    page.page.wait_for_selector(".jp-Launcher")
    press("Control+Shift+C")
    page.page.locator(".lm-CommandPalette-input:focus").wait_for()
    page.page.keyboard.type("New GPU Job")
    expect(page.page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text("New GPU Job")
    press("Enter")
    page.page.locator('input[name="command"]:focus').wait_for()
    page.page.keyboard.type("echo by keys")
    press("Tab")
    press("Control+a")
    page.page.keyboard.type("3G")
    press("Enter")
    wait_for(lambda: any(job["vram_mib"] == 3072 for job in lab.ask("jobs?phase=queued")["items"]), "nothing is queued")
    press("Alt+Shift+G")
    expect(page.find("panel")).to_be_focused()
    row = entry(page, "echo by keys")
    expect(row).to_have_count(1)
    tab_to(page, page.find("search"))
    press("Tab")
    press("Tab")
    expect(page.find("panel").get_by_test_id("gpusched-entry").first).to_be_focused()
    press("ArrowDown")
    expect(row).to_be_focused()
    press("Space")
    expect(page.find("chosen")).to_contain_text("1 job chosen")
    press("Enter")
    expect(page.find("details")).to_contain_text("echo by keys")
    press("Alt+Shift+G")
    expect(page.find("panel")).to_be_focused()
    tab_to(page, row)
    press("Delete")
    expect(page.page.locator(".jp-Dialog").get_by_role("button", name="Cancel job")).to_be_focused()
    press("Enter")
    expect(phase(row)).to_have_text("cancelled")
    expect(row).to_be_focused()
    tab_to(page, row.get_by_test_id("gpusched-resubmit"))
    press("Enter")
    expect(phase(row)).to_have_text(["queued", "cancelled"])


def tab_to(page, element):
    """Go on with the key of Tab until the focus is there."""
    for _ in range(30):
        page.page.keyboard.press("Tab")
        if element.evaluate("element => element === document.activeElement"):
            return
    expect(element).to_be_focused()


def test_what_users_write_is_shown_as_text(lab, busy, page, panel):
    spec = {"argv": EVIL, "vram": "2G", "name": EVIL, "tags": [EVIL], "notebook": EVIL}
    lab.submit(spec)
    row = entry(page, EVIL)
    row.locator("button.gpusched-name").click()
    details = page.find("details")
    expect(details.get_by_role("heading", level=1)).to_have_text(EVIL)
    for tab in ("overview", "source", "output", "events", "memory"):
        details.get_by_test_id(f"gpusched-tab-{tab}").click()
        expect(details.get_by_test_id(f"gpusched-page-{tab}")).to_be_visible()
    row.locator("input").check()
    page.find("cancel-chosen").click()
    expect(page.page.locator(".jp-Dialog")).to_contain_text(EVIL)
    page.page.get_by_role("button", name="Keep").click()
    assert not page.page.locator("img[src='x']").count()
    assert page.page.title() != "evil"


# --- details ----------------------------------------------------------------------------------


def test_the_details_tell_what_ran_what_came_of_it_and_what_it_printed(lab, page, panel):
    script = lab.root / "shown.py"
    script.write_text("import sys\nprint('words of a script')\nsys.exit(3)\n")
    lab.submit({"path": "shown.py", "cwd": str(lab.root), "args": ["--lr", "a b"], "vram": "2G", "name": "shown"})
    row = entry(page, "shown")
    expect(phase(row)).to_have_text("failed")
    row.locator("button.gpusched-name").click()
    details = page.find("details")
    expect(details).to_contain_text("exit code 3")
    expect(details.get_by_role("table")).to_contain_text("failed")
    details.get_by_test_id("gpusched-tab-source").click()
    expect(details.get_by_test_id("gpusched-source")).to_have_text("shown.py --lr 'a b'")
    details.get_by_test_id("gpusched-tab-output").click()
    expect(details.get_by_test_id("gpusched-log")).to_contain_text("words of a script")
    details.get_by_test_id("gpusched-resubmit").click()
    expect(entry(page, "shown")).to_have_count(2)
    lab.cancel_all()


# --- entry points -----------------------------------------------------------------------------


def test_the_status_bar_tells_what_is_free_and_opens_the_panel(lab, busy, page):
    page.open_lab(lab)
    lab.submit({"argv": ["true"], "vram": "2G", "name": "in the status bar"})
    item = page.find("status")
    expect(item).to_have_text("0.0G free · 1 running · 1 waiting")
    item.click()
    expect(page.find("panel")).to_be_visible()


def test_a_file_is_submitted_from_the_browser_of_files(lab, page):
    (lab.root / "from_menu.py").write_text("print('from the menu')\n")
    page.open_lab(lab)
    page.command("filebrowser:refresh")
    page.page.locator(".jp-DirListing-item", has_text="from_menu.py").click(button="right")
    page.page.get_by_text("Submit as GPU Job").click()
    form = page.page.locator(".jp-Dialog")
    form.locator('input[name="vram"]').fill("900G")
    form.get_by_role("button", name="Submit").click()
    expect(form.get_by_role("alert")).to_contain_text("vram")
    form.locator('input[name="vram"]').fill("3G")
    form.get_by_role("button", name="Submit").click()
    wait_for(
        lambda: any(
            (job["name"], job["phase"], job["vram_mib"]) == ("from_menu.py", "succeeded", 3072)
            for job in lab.ask("jobs")["items"]
        ),
        "the file does not run",
    )


def test_the_end_of_a_job_is_told_by_a_notification_that_leads_to_it(lab, page):
    page.open_lab(lab)
    expect(page.find("status")).to_contain_text("free")
    lab.submit({"argv": "exit 4", "vram": "2G", "name": "ends badly"})
    note = page.page.locator(".Toastify__toast", has_text="ends badly")
    expect(note).to_contain_text("failed (exit code 4")
    note.get_by_role("button", name="Details").click()
    expect(page.find("details")).to_contain_text("ends badly")


@pytest.mark.own_page
def test_a_tab_in_the_background_asks_for_nothing_and_is_up_to_date_when_it_comes_back(lab, page, panel):
    expect(page.find("gpu")).to_have_count(2)
    opened = len([url for url in page.sockets if "gpusched" in url])
    hidden = "hidden => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });"
    show = f"{hidden} document.dispatchEvent(new Event('visibilitychange')); }}"
    with page.page.expect_event("console", lambda message: message.text == "socket closed"):
        page.page.evaluate(
            "() => { const send = WebSocket.prototype.close;"
            " WebSocket.prototype.close = function (...args)"
            " { if (this.url.includes('gpusched')) console.log('socket closed'); return send.apply(this, args); }; }"
        )
        page.page.evaluate(show, True)
    asked = len(page.requests)
    job = lab.submit({"argv": ["true"], "gpus": 0, "name": "while away"})
    wait_for(lambda: lab.ask(f"jobs/{job}")["phase"] == "succeeded", "the job does not end")
    assert not [url for url in page.requests[asked:] if "gpusched" in url]
    assert len([url for url in page.sockets if "gpusched" in url]) == opened
    page.page.evaluate(show, False)
    expect(phase(entry(page, "while away"))).to_have_text("succeeded")


def test_the_panel_says_that_the_server_is_gone_and_goes_on_with_the_next(lab, busy, page, panel):
    expect(phase(entry(page, busy))).to_have_text("running")
    lab.kill()
    expect(page.find("unconnected")).to_contain_text("Reconnecting")
    expect(phase(entry(page, busy))).to_have_text("running")
    lab.start()
    expect(page.find("unconnected")).to_have_count(0, timeout=60_000)
    wait_for(lab.answers, "JupyterLab does not start again")
    lab.ask(f"jobs/{busy}/cancel", {"grace": "0s"})
    expect(phase(entry(page, busy))).to_have_text("cancelled")
