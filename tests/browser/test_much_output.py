"""Cases 13 and 15 as a browser sees them: output without a reader, and more of it than a page can hold."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for, within

expect.set_options(timeout=60_000)

LOAD = "%load_ext jupyter_gpusched"
SMOOTH_S = 1.0
"""The longest time for which a page may show nothing new to its user."""

WATCH_FRAMES = """() => {
  window.longest = 0;
  let last = performance.now();
  const look = () => {
    const now = performance.now();
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


def test_what_is_printed_while_no_tab_is_open_is_all_there_once_in_another_browser(lab, page, chromium):
    code = (
        "import pathlib, os\nos.mkfifo('alone.gate')\n"
        "for i in range(1, 6): print('line', i, flush=True)\n"
        "pathlib.Path('alone.gate').read_text()\n"
        "for i in range(6, 21): print('line', i, flush=True)"
    )
    url = lab.notebook("alone.ipynb", LOAD, f"%%gpujob --vram 1G --name alone\n{code}")
    page.open(url)
    page.run(0)
    page.run(1)
    expect(page.find("log")).to_contain_text("line 5")
    job_id = page.find("card").get_attribute("data-job-id")
    page.command("docmanager:save")
    page.page.goto("about:blank")
    (lab.root / "alone.gate").write_text("")
    wait_for(lambda: lab.ask(f"jobs/{job_id}")["phase"] == "succeeded", "the job does not end")
    context = chromium.new_context()
    try:
        other = context.new_page()
        other.goto(url)
        log = other.get_by_test_id("gpusched-log")
        expect(log).to_contain_text("line 20")
        assert re.findall(r"line (\d+)", log.inner_text()) == [str(number) for number in range(1, 21)]
    finally:
        context.close()


def test_a_chatty_job_neither_freezes_the_page_nor_fills_the_notebook(lab, page):
    lines = 300_000
    page.open(
        lab.notebook("chatty.ipynb", LOAD, f"%%gpujob --vram 1G --name chatty\nfor i in range({lines}): print(i)")
    )
    page.run(0)
    page.page.evaluate(WATCH_FRAMES)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    log = card.get_by_test_id("gpusched-log")
    expect(log).to_contain_text(str(lines - 1))
    assert page.page.evaluate("() => window.longest") / 1000 < within(SMOOTH_S)
    assert len(log.inner_text()) < 500_000
    assert log.locator("*").count() < 5_000
    page.command("docmanager:save")
    assert (lab.root / "chatty.ipynb").stat().st_size < 200 * 1024
