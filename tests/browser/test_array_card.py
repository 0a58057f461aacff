"""The card of an array below its cell: live without the kernel, with each of its elements a click away."""

from __future__ import annotations

import re

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, gpu, job
from playwright.sync_api import expect

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)

LOAD = "%load_ext jupyter_gpusched"
SWEEP = """%%gpujob --vram 1G --grace 0s --name sweep --sweep lr=0.1,0.2,0.3
import os
gate = f"gate-{lr}"
os.mkfifo(gate)
print("at", lr)
word = open(gate).read()
assert word != "fail", "as it was told to"
"""


def test_the_card_of_an_array_is_live_and_shows_its_elements_with_their_output(lab, page):
    page.open(lab.notebook("array.ipynb", LOAD, SWEEP))
    page.run(0)
    page.run(1)
    card = page.find("array-card")
    expect(card).to_have_count(1)
    expect(card.get_by_test_id("gpusched-facts").first).to_contain_text("3 running")
    card.get_by_test_id("gpusched-open-array").click()
    rows = card.get_by_test_id("gpusched-entry")
    expect(rows).to_have_count(3)
    rows.get_by_role("button", name="#1, lr=0.2").click()
    element = card.get_by_test_id("gpusched-card")
    expect(element.get_by_test_id("gpusched-log")).to_contain_text("at 0.2")
    (lab.root / "gate-0.2").write_text("fail")
    expect(element.get_by_test_id("gpusched-phase")).to_have_text("failed")
    expect(card).to_contain_text("1 failed · 2 running")
    expect(card.get_by_test_id("gpusched-failed")).to_contain_text("failed: #1, lr=0.2 (")
    (lab.root / "gate-0.1").write_text("go")
    expect(card).to_contain_text("2 of 3 done")
    card.get_by_test_id("gpusched-cancel-array").click()
    page.page.locator(".jp-Dialog").get_by_role("button", name="Cancel job", exact=True).click()
    expect(card.get_by_test_id("gpusched-facts").first).to_contain_text("1 failed · 1 succeeded · 1 cancelled")
    page.command("docmanager:save")
    page.page.reload()
    expect(card.get_by_test_id("gpusched-facts").first).to_contain_text("1 failed · 1 succeeded · 1 cancelled")
    card.get_by_test_id("gpusched-resubmit-array").click()
    expect(card).to_have_count(2)
    expect(card.nth(1)).to_contain_text("2 jobs")
    lab.cancel_all()


def saved(lab, name, array, array_id="array001"):
    bundle = {MIME: {"id": array_id, "array": array}, "text/plain": "an array"}
    outputs = [nbformat.v4.new_output("display_data", bundle)]
    return lab.saved(name, [nbformat.v4.new_code_cell("1", outputs=outputs)])


WHOLE = {"name": "sweep", "count": 5000, "phases": {"running": 1, "queued": 4939, "failed": 60}, "held": 4900}


def test_a_long_array_is_counted_by_its_host(lab, page):
    jobs = [job(f"elem000{n}", name="sweep", array_id="array001", array_index=n, phase="running") for n in range(2)]
    host = Host(page, gpus=[gpu()], jobs=jobs)
    host.arrays["array001"] = WHOLE | {"id": "array001", "user": "ann", "kind": "cell", "throttle": None}
    page.page.goto(saved(lab, "long.ipynb", WHOLE | {"phases": {"queued": 5000}}))
    card = page.find("array-card")
    expect(card).to_contain_text("60 failed · 1 running · 39 queued · 4900 held")
    host.arrays["array001"] |= {"phases": {"running": 2, "queued": 4938, "failed": 60}}
    host.send({"type": "job", "seq": 2, "event": "started", "at": 0, "job": jobs[0]})
    expect(card).to_contain_text("2 running · 38 queued")
    card.get_by_test_id("gpusched-open-array").click()
    expect(card).to_contain_text("2 of 5000 are listed")


def test_an_array_that_nobody_knows_is_as_its_notebook_has_it_and_bad_data_do_no_harm(lab, page):
    Host(page, gpus=[gpu()])
    page.page.goto(saved(lab, "unknown.ipynb", WHOLE))
    card = page.find("array-card")
    expect(card).to_contain_text("5000 jobs")
    expect(card.get_by_test_id("gpusched-standing")).to_contain_text("does not know")
    evil = {"name": {"x": 1}, "count": "<img src=x onerror=alert(1)>", "phases": [], "held": None}
    page.page.goto(saved(lab, "evil.ipynb", evil))
    expect(card).to_have_text(re.compile("^array001This server does not know"))
