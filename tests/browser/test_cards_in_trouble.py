"""What the panel makes of machines that a test cannot have: no card, a lost one, strangers and other users."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, alert, gpu, holder, job
from playwright.sync_api import expect

expect.set_options(timeout=30_000)


def show(lab, page, **told):
    host = Host(page, **told)
    page.open_lab(lab)
    page.show_panel()
    return host


def parts(page):
    return page.find("panel").get_by_test_id("gpusched-part")


def test_without_a_gpu_a_sentence_says_why(lab, page):
    show(lab, page, cause="the NVIDIA driver is not loaded; load it with modprobe.")
    expect(page.find("no-gpu")).to_have_text(
        "No GPU can be used here: the NVIDIA driver is not loaded; load it with modprobe."
    )
    expect(page.find("status")).to_contain_text("no GPU")


def test_a_lost_card_says_so_and_has_no_bar_while_the_others_have(lab, page):
    lost = {"status": "lost", "cause": "it has fallen off the bus (Xid 79)", "since": 1.7e9, "by": None}
    quarantined = {"status": "quarantined", "cause": "by ann: fan is loud", "since": 1.7e9, "by": None}
    show(
        lab,
        page,
        gpus=[
            gpu(0, health=lost, used_mib=None, free_mib=None, available_mib=None, utilization_pct=None),
            gpu(1, health=quarantined),
            gpu(2),
        ],
    )
    cards = page.find("gpu")
    expect(cards).to_have_count(3)
    expect(cards.nth(0)).to_contain_text("Lost: it has fallen off the bus (Xid 79)")
    expect(cards.nth(0).get_by_test_id("gpusched-part")).to_have_count(0)
    expect(cards.nth(1)).to_contain_text("Quarantined: by ann: fan is loud")
    expect(cards.nth(2)).to_contain_text("37 %")
    expect(cards.nth(2)).to_contain_text("61 °C")
    expect(cards.nth(2)).not_to_contain_text("SIMULATED")


def test_all_that_holds_memory_has_a_part_and_others_jobs_have_no_name(lab, page):
    holders = [
        holder(job_id="mine0001", user="ann", mine=True),
        holder(user="bob", promised_mib=2048, vram_mib=1024),
        holder(kind="lease", user="eve", notebook=None, promised_mib=1024),
        holder(kind="foreign", state=None, pid=4711, vram_mib=1000, promised_mib=None, notebook="idle.ipynb"),
        holder(job_id="mine0002", mine=True, state="releasing", vram_mib=512),
    ]
    suspects = [
        {"pid": 815, "program": "python", "user": "ann"},
        {"pid": 816, "program": None, "user": "eve"},  # another's
    ]
    card = gpu(0, holders=holders, foreign_mib=3000, opened_by=suspects, unattributed_mib=2000)
    show(lab, page, gpus=[card], jobs=[job("mine0001")])
    expect(parts(page)).to_have_count(7)
    kinds = parts(page).evaluate_all("parts => parts.map(part => part.dataset.kind)")
    assert kinds == ["own", "others", "lease", "foreign", "foreign", "releasing", "free"]
    others = parts(page).nth(1)
    expect(others).to_have_attribute("aria-label", re.compile("^a job of bob · 2.0G · uses 1.0G · since"))
    assert others.evaluate("part => part.tagName") == "SPAN"
    expect(parts(page).nth(3)).to_have_attribute("aria-label", re.compile("process 4711 .*idle.ipynb"))
    nobodys = re.compile(r"no process admits to it: 2.0G; python 815 \(ann\), process 816 \(eve\) has the card open")
    expect(parts(page).nth(4)).to_have_attribute("aria-label", nobodys)
    for number in range(3):
        parts(page).nth(number).press("ArrowRight")
        expect(parts(page).nth(number + 1)).to_be_focused()
    expect(page.find("gpu").first).to_contain_text("outside the queue")


def test_alerts_come_on_top_lead_to_their_job_and_go_when_they_are_over(lab, page):
    evil = "<img src=x onerror=\"document.title='evil'\">"
    idle = alert("a1", kind="idle_job", message=evil, hint="Cancel it.", severity="info", job_id="mine0001")
    host = show(lab, page, gpus=[gpu()], jobs=[job("mine0001")], alerts=[idle])
    expect(page.find("alert")).to_have_count(1)
    host.send({"type": "alert", "event": "raised", "alert": alert("a2")})
    expect(page.find("alert")).to_have_count(2)
    expect(page.find("alert").first).to_contain_text("The driver does not answer.")
    expect(page.find("alert").last).to_contain_text(evil)
    expect(page.find("status")).to_contain_text("2 alerts")
    page.find("alert").get_by_role("button", name="Show job mine0001").click()
    expect(page.find("details")).to_contain_text("mine0001")
    for ended in (idle, alert("a2")):
        host.send({"type": "alert", "event": "resolved", "alert": ended})
    expect(page.find("alert")).to_have_count(0)
    assert page.page.title() != "evil"


def test_the_panel_says_who_schedules_and_what_is_to_be_known_of_the_machine(lab, page):
    ends = "Jobs end when this server does: it is a service."
    host = show(lab, page, gpus=[gpu()], notices=[f"{ends} More on that.", "Logs are not kept within their limit."])
    expect(page.find("host")).to_have_text("Scheduler: daemon")
    expect(page.find("notice")).to_have_count(2)
    host.send({"type": "alert", "event": "raised", "alert": alert("a1", kind="ends_with_server", message=ends)})
    expect(page.find("alert")).to_contain_text(ends)
    expect(page.find("notice")).to_have_text("Logs are not kept within their limit.")


def test_a_job_that_uses_more_than_it_asked_for_is_marked_and_its_details_say_what_to_do(lab, page):
    advice = "Asked for 4.0G and uses 5.2G; ask for 6G next time."
    over = {"used_vram_mib": 5325, "peak_vram_mib": 5325, "overuse_mib": 1229, "advice": advice, "cap": "cooperative"}
    host = show(lab, page, gpus=[gpu()], jobs=[job("mine0001", **over)])
    expect(page.find("entry").get_by_test_id("gpusched-overuse")).to_have_text("uses 1.2G more than it asked for")
    page.find("panel").get_by_role("button", name="mine0001", exact=True).click()
    details = page.find("details")
    expect(details.get_by_test_id("gpusched-overuse")).to_have_text("uses 1.2G more than it asked for")
    expect(details.get_by_test_id("gpusched-advice")).to_have_text(advice)
    expect(details).to_contain_text("cooperative: frameworks are asked, not forced")
    within = job("mine0001", advice=advice, cap="cooperative")
    host.send({"type": "job", "seq": 2, "event": "sampled", "at": 0, "job": within})
    expect(page.find("overuse")).to_have_count(0)


def test_an_older_host_that_tells_no_events_and_no_memory_is_borne(lab, page):
    card, waits = gpu(), job("mine0001", phase="queued", started_at=None)
    del card["reservations"]
    for field in ("estimated_start_range", "held", "after", "array_index", "sweep"):
        del waits[field]
    show(lab, page, gpus=[card], jobs=[waits])
    expect(page.find("gpu")).to_have_count(1)
    page.find("panel").get_by_role("button", name="mine0001", exact=True).click()
    page.find("tab-events").click()
    expect(page.find("page-events")).to_contain_text("keeps no list of events")
    page.find("tab-memory").click()
    expect(page.find("page-memory")).to_contain_text("keeps no memory curve")


def test_an_hour_of_frames_leaves_the_page_as_large_as_it_was(lab, page):
    """Fed quickly; what the browser holds afterwards is measured after it has tidied up."""
    host = show(lab, page, gpus=[gpu()])
    session = page.page.context.new_cdp_session(page.page)

    def heap() -> int:
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Runtime.getHeapUsage")
        return int(metrics["usedSize"])

    expect(page.find("gpu")).to_have_count(1)
    for second in range(300):
        host.send({"type": "gpus", "gpus": [gpu(sampled_at=1.7e9 + second)]})
    expect(page.find("panel").get_by_role("img", name="Load in the last 5 minutes")).to_be_visible()
    before = heap()
    for second in range(300, 3600):
        host.send({"type": "gpus", "gpus": [gpu(sampled_at=1.7e9 + second, utilization_pct=99.0)]})
        ended = job(f"j{second:07}", phase="succeeded", ended_at=1.7e9 + second)
        host.send({"type": "job", "seq": second, "event": "exited", "at": 0, "job": ended})
    expect(page.find("gpu").first).to_contain_text("99 %")
    expect(page.find("list")).to_have_attribute("aria-rowcount", "501")
    assert heap() - before < 15 * 2**20
