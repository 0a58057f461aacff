"""A card while its job runs: beside a busy kernel, in bounded height, followed or not, and all by keys."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect

expect.set_options(timeout=30_000)

LOAD = "%load_ext jupyter_gpusched"
STEP = (
    "import os, pathlib, sys\n"
    "os.path.exists('work.gate') or os.mkfifo('work.gate')\n"
    "def step(name, percent):\n"
    "    print(*(f'{name} {n}' for n in range(100)), sep='\\n')\n"
    "    print(f'\\rtrain: {percent}%|###   | {percent // 10}/10 [00:04<00:06,  1.0it/s]', end='', file=sys.stderr)\n"
    "    sys.stdout.flush(); sys.stderr.flush()\n"
    "    pathlib.Path('work.gate').read_text()\n"
)
JOB = f"%%gpujob --vram 2G --grace 5s --name work\n{STEP}step('first', 20)\nstep('second', 40)\nstep('third', 60)\n"
BUSY = "import os, pathlib\nos.mkfifo('kernel.gate')\npathlib.Path('kernel.gate').read_text()"
READY = """() => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  return kernel.status === 'idle' && kernel.connectionStatus === 'connected';
}"""
AT_END = "log => log.scrollHeight - log.scrollTop - log.clientHeight"


def open_gate(lab, name):
    (lab.root / f"{name}.gate").write_text("")


def test_a_card_goes_on_while_another_cell_computes_in_bounded_height_and_is_followed_as_wished(lab, page):
    page.open(lab.notebook("work.ipynb", LOAD, JOB, BUSY))
    page.run(0)
    page.run(1)
    card = page.find("card")
    log = card.get_by_test_id("gpusched-log")
    expect(log).to_contain_text("first 99")
    page.begin(2)
    page.page.wait_for_function("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'")
    page.page.emulate_media(reduced_motion="reduce")
    fill = card.get_by_test_id("gpusched-progress").locator(".gpusched-fill")
    assert fill.evaluate("fill => getComputedStyle(fill).transitionDuration") == "0s"
    page.page.emulate_media(reduced_motion="no-preference")
    assert fill.evaluate("fill => getComputedStyle(fill).transitionDuration") == "0.3s"

    # As high as it may be, and at its end.
    high, line = log.evaluate("log => [log.clientHeight, parseFloat(getComputedStyle(log).fontSize)]")
    assert high <= 24 * line + 1
    assert log.evaluate("log => log.scrollHeight") > 2 * high
    assert log.evaluate(AT_END) < 8
    open_gate(lab, "work")
    expect(log).to_contain_text("second 99")
    expect(card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    assert log.evaluate("log => log.clientHeight") == high
    assert log.evaluate(AT_END) < 8

    # Who has scrolled up stays there, until the end is wanted again.
    follow = card.get_by_test_id("gpusched-follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    log.evaluate("log => { log.scrollTop = 10; }")
    expect(follow).to_have_attribute("aria-pressed", "false")
    open_gate(lab, "work")
    expect(log).to_contain_text("third 99")
    assert log.evaluate("log => log.scrollTop") == 10
    follow.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    assert log.evaluate(AT_END) < 8
    open_gate(lab, "work")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    assert page.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status") == "busy"
    open_gate(lab, "kernel")


def test_a_job_is_run_again_from_its_card_by_keys_alone(lab, page):
    page.open(lab.notebook("keys.ipynb", LOAD, "%%gpujob --vram 2G --name 'by keys'\nprint('ran')"))
    page.run(0)
    page.run(1)
    press = page.page.keyboard.press
    cards = page.find("card")
    expect(cards.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    again = cards.first.get_by_test_id("gpusched-resubmit")
    again.focus()
    press("Enter")
    form = cards.first.get_by_test_id("gpusched-again")
    expect(form.get_by_role("button", name="Same")).to_be_focused()
    press("Escape")
    expect(form).to_have_count(0)
    expect(again).to_be_focused()
    press("Enter")
    press("Tab")
    expect(form.get_by_test_id("gpusched-more")).to_be_focused()
    press("Tab")
    press("Enter")
    expect(form.get_by_test_id("gpusched-term-vram")).to_be_focused()
    press("Control+a")
    page.page.keyboard.type("3G")
    press("Enter")
    expect(cards).to_have_count(2)
    expect(cards.nth(1)).to_contain_text("3.0G on 1 GPU")
    expect(again).to_be_focused()
    expect(cards.nth(1).get_by_test_id("gpusched-phase")).to_have_text("succeeded")


def test_a_quiet_notebook_says_the_same_each_time_it_is_run(lab, page):
    """Case 16."""
    quiet = "%%gpujob --quiet --vram 1G --out n\nn = 6 * 7\nprint('ran')"
    cells = [LOAD, quiet, "job = _\njob.wait().status", "print(job.logs(), job.result()['n'])"]
    page.open(lab.notebook("quiet.ipynb", *cells))
    said = []
    for _ in range(2):
        page.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
        page.page.wait_for_function(READY)
        page.command("notebook:run-all-cells")
        page.command("docmanager:save")
        saved = json.loads((lab.root / "quiet.ipynb").read_text())["cells"]
        said.append([[output | {"execution_count": None} for output in cell["outputs"]] for cell in saved])
    assert said[0] == said[1]
    assert said[0][0] == said[0][1] == []
    assert said[0][2][0]["data"] == {"text/plain": ["'succeeded'"]}
    assert "".join(said[0][3][0]["text"]).split() == ["ran", "42"]
    assert page.find("card").count() == 0
