"""What administrators see and do in the panel, and nobody else: the machine, everybody's jobs, the report."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, gpu, holder, job
from playwright.sync_api import expect
from waiting import wait_for

expect.set_options(timeout=30_000)


def administer(lab, page):
    page.open_lab(lab)
    page.show_panel()
    page.find("administer").click()
    return page.find("administration")


def give_cause(page, cause):
    dialog = page.page.locator(".jp-Dialog")
    dialog.locator("input").fill(cause)
    dialog.locator(".jp-mod-accept").click()


def test_the_machine_is_drained_and_resumed_and_a_card_taken_out_of_use_and_given_back(lab, page):
    tab = administer(lab, page)
    expect(tab.get_by_test_id("gpusched-drain")).to_contain_text("as soon as they fit")
    tab.get_by_role("button", name="Drain…").click()
    give_cause(page, "new disks")
    expect(tab.get_by_test_id("gpusched-drain")).to_contain_text("has drained this machine: new disks.")
    expect(page.find("panel").get_by_test_id("gpusched-alert")).to_contain_text("new disks")
    tab.get_by_role("button", name="Resume").click()
    expect(tab.get_by_role("button", name="Drain…")).to_be_visible()
    tab.get_by_role("button", name="Quarantine… GPU 1").click()
    give_cause(page, "a fan is loud")
    row = tab.get_by_test_id("gpusched-cards").get_by_role("row").nth(2)
    expect(row).to_contain_text("quarantined · a fan is loud, by ")
    row.get_by_role("button").click()
    expect(row).to_contain_text("gets jobs")
    assert [gpu["health"]["status"] for gpu in lab.ask("gpus")["items"]] == ["ok", "ok"]


def test_anybodys_job_is_found_and_ended_and_the_report_counts_it(lab, page):
    job_id = lab.submit({"argv": ["sleep", "600"], "vram": "2G", "name": "endless", "grace": "0s"})
    tab = administer(lab, page)
    tab.get_by_test_id("gpusched-tab-jobs").click()
    row = tab.get_by_test_id("gpusched-everybody").get_by_role("row").filter(has_text="endless")
    expect(row).to_contain_text("running")
    row.get_by_role("button", name=f"Cancel job {job_id}").click()
    page.page.locator(".jp-Dialog").get_by_role("button", name="Cancel job", exact=True).click()
    expect(tab).to_contain_text("Nobody has a job that runs or waits.")
    assert lab.ask(f"jobs/{job_id}")["phase"] == "cancelled"
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.get_by_test_id("gpusched-tab-report").click()
    (user,) = lab.ask("admin/report?since=0")["items"]
    line = tab.get_by_test_id("gpusched-report").get_by_role("row").nth(1)
    expect(line.get_by_role("cell")).to_have_text(
        [user["user"], re.compile(r"\d\.\d"), re.compile(r"n/a|%"), str(user["jobs"]), str(user["failed"]), "0", "0",
         re.compile(r"\ds"), re.compile(r"\ds")]
    )  # fmt: skip
    tab.get_by_test_id("gpusched-report-copy").click()
    expect(tab.get_by_test_id("gpusched-report-copy")).to_have_text("Copied")
    copied = page.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.splitlines()[0] == "User,GPU hours,Idle,Jobs,Failed,Running,Waiting,Mean wait,Longest wait"
    assert copied.splitlines()[1].startswith(f"{user['user']},")


USERS = [
    {"user": name, "jobs": jobs, "queued": 0, "running": 1, "succeeded": 0, "failed": 2, "cancelled": 0, "timeout": 1,
     "lost": 0, "gpu_hours": hours, "idle_share": None, "mean_wait_s": wait, "longest_wait_s": wait}
    for name, jobs, hours, wait in (("ann", 12, 3.25, 61.0), ("bob", 5, 40.0, None), ("eve", 90, 0.5, 7200.0))
]  # fmt: skip


def test_the_report_is_sorted_by_any_column_and_asked_for_other_spans(lab, page):
    Host(page, gpus=[gpu()], admin=True)
    spans = []

    def answer(route):
        since = float(re.search(r"since=(\d+)", route.request.url)[1])
        now = page.page.evaluate("() => Date.now() / 1000")
        spans.append(round((now - since) / 86400))
        route.fulfill(json={"since": since, "until": now, "items": USERS, "next_cursor": None})

    page.route(re.compile(r"/admin/report"), answer)
    tab = administer(lab, page)
    tab.get_by_test_id("gpusched-tab-report").click()
    names = tab.get_by_test_id("gpusched-report").locator("tbody tr td:first-child")
    expect(names).to_have_text(["bob", "ann", "eve"])
    for column, order in (("Jobs", ["eve", "ann", "bob"]), ("Mean wait", ["eve", "ann", "bob"])):
        tab.get_by_role("button", name=column).click()
        expect(names).to_have_text(order)
    expect(tab.get_by_role("columnheader", name="Mean wait")).to_have_attribute("aria-sort", "descending")
    tab.get_by_role("button", name="Mean wait").press("Enter")
    expect(names).to_have_text(["ann", "eve", "bob"])
    tab.get_by_test_id("gpusched-report-span").select_option("Last month")
    wait_for(lambda: page.page.wait_for_timeout(10) or spans == [7, 30], "it is not asked for anew")


def test_an_administrator_sees_whose_jobs_are_on_a_card_and_they_are_not_the_own_ones(lab, page):
    his = job("hisjob01", user="bob", name="bob's training")
    card = gpu(holders=[holder(job_id="hisjob01"), holder(job_id="myjob001", user="ann", mine=True)])
    Host(page, gpus=[card], jobs=[job("myjob001", name="own work")], admin=True)
    answers = iter([his])
    ended = his | {"phase": "cancelled", "ended_at": 1.7e9}
    page.route(re.compile(r"/jobs/hisjob01(\?|$)"), lambda route: route.fulfill(json=next(answers, ended)))
    page.open_lab(lab)
    page.show_panel()
    parts = page.find("panel").get_by_test_id("gpusched-part")
    expect(parts.first).to_have_attribute("data-kind", "own")
    expect(parts.nth(1)).to_have_attribute("aria-label", re.compile("^a job of bob · hisjob01 · 4.0G"))
    parts.nth(1).click()
    expect(page.find("details")).to_contain_text("bob's training")
    expect(page.find("details")).to_contain_text("cancelled")  # nothing tells of it: it was asked for again
    expect(page.find("entry")).to_have_count(1)
    expect(page.find("status")).to_contain_text("1 running")
    expect(page.page.locator(".Toastify__toast")).to_have_count(0)


@pytest.mark.parametrize(("unseen", "words"), [("containers", "This container"), ("hosts", "Another user")])
def test_the_panel_says_whose_promises_are_not_seen_here(lab, page, unseen, words):
    Host(page, gpus=[gpu()], unseen=unseen)
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("unseen")).to_contain_text(words)


def test_who_is_no_administrator_is_not_offered_any_of_it(lab, page):
    Host(page, gpus=[gpu()])
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("host")).to_be_visible()
    expect(page.find("administer")).to_have_count(0)
    page.command("gpusched:administer")  # as a saved layout may do
    expect(page.find("administration")).to_have_text("Only administrators run this machine.")
