"""JupyterLab as a user sees it: the card below the cell, the panel, and what both live through."""

from __future__ import annotations

import re

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)

LOAD = "%load_ext jupyter_gpusched"


def gated(name: str) -> str:
    """A cell job that prints, waits until the test opens its gate, and prints again."""
    return (
        f"%%gpujob --vram 9G --grace 5s --name {name}\n"
        "import os, pathlib\n"
        r"print('\x1b[31mred words\x1b[0m <b>not bold</b>\r', end='', flush=True)"
        "\n"
        "print('first')\n"
        f"gate = pathlib.Path('{name}.gate')\n"
        "if not gate.exists():\n"
        "    os.mkfifo(gate)\n"
        "gate.read_text()\n"
        "print('second')"
    )


def open_gate(lab, name):
    (lab.root / f"{name}.gate").write_text("")


def test_a_cell_job_is_seen_live_in_its_card_and_in_the_panel(lab, page):
    page.open(lab.notebook("seen.ipynb", LOAD, gated("seen")))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("running")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("first")
    expect(card).to_contain_text("9.0G on 1 GPU")
    expect(card).to_contain_text("SIMULATED")
    page.show_panel()
    panel = page.find("panel")
    expect(panel.get_by_test_id("gpusched-gpu")).to_have_count(2)
    expect(panel.get_by_role("button", name=re.compile("your job .* 9.0G"))).to_have_count(1)
    entry = panel.get_by_test_id("gpusched-entry").filter(has_text="seen")
    expect(entry.get_by_test_id("gpusched-phase")).to_have_text("running")
    open_gate(lab, "seen")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("second")
    expect(entry.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    expect(panel.get_by_role("button", name=re.compile("your job .* 9.0G"))).to_have_count(0)


def test_what_a_job_prints_is_text_with_carriage_returns_and_colours_applied(lab, page):
    page.open(lab.notebook("text.ipynb", LOAD, gated("text")))
    page.run(0)
    page.run(1)
    log = page.find("log")
    expect(log).to_contain_text("firstords <b>not bold</b>")
    expect(log.locator("b")).to_have_count(0)
    expect(log.locator(".ansi-red-fg")).to_have_text("ords")
    open_gate(lab, "text")
    expect(page.find("card").get_by_test_id("gpusched-phase")).to_have_text("succeeded")


def test_a_card_stays_live_while_the_kernel_is_busy_restarts_and_the_page_is_reloaded(lab, page):
    page.open(lab.notebook("stays.ipynb", LOAD, gated("stays"), "import time; time.sleep(600)"))
    page.run(0)
    page.run(1)
    phase = page.find("card").get_by_test_id("gpusched-phase")
    expect(phase).to_have_text("running")
    page.command("docmanager:save")
    page.begin(2)
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.page.reload()
    page.page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    expect(phase).to_have_text("running")
    open_gate(lab, "stays")
    expect(phase).to_have_text("succeeded")
    expect(page.find("log")).to_contain_text("second")


def test_a_waiting_job_says_what_it_waits_for_and_leaves_at_one_click(lab, page):
    page.open(lab.notebook("waits.ipynb", LOAD, gated("one"), "%gpujob --gpus 2 --name stands-behind ! true"))
    for cell in range(3):
        page.run(cell)
    page.show_panel()
    waiting = page.find("panel").get_by_test_id("gpusched-entry").filter(has_text="stands-behind")
    expect(waiting).to_contain_text("number 1 in the queue")
    waiting.get_by_test_id("gpusched-cancel").click()
    expect(waiting.get_by_test_id("gpusched-phase")).to_have_text("cancelled")
    open_gate(lab, "one")
    expect(page.find("card").first.get_by_test_id("gpusched-phase")).to_have_text("succeeded")


@pytest.mark.own_page
def test_all_cards_and_the_panel_of_a_tab_share_one_websocket(lab, page):
    page.open(lab.notebook("shared.ipynb", LOAD, *["%gpujob --vram 1G ! true"] * 3))
    for cell in range(4):
        page.run(cell)
    page.show_panel()
    expect(page.find("card")).to_have_count(3)
    expect(page.find("gpu")).to_have_count(2)
    assert len([url for url in page.sockets if "gpusched" in url]) == 1


def test_a_stranger_s_notebook_is_shown_as_text_and_reaches_no_other_address(lab, page):
    view = {
        "id": "zzzzzzzz", "name": "<img src=x onerror=alert(1)>", "phase": "succeeded", "kind": "cell",
        "gpus_requested": 1, "vram_mib": 1024, "peak_vram_mib": None, "started_at": 1.0, "ended_at": 2.0,
        "exit_code": 0, "signal": None, "waiting": None, "message": None, "reason": None, "simulated": False,
        "gpus": [], "attempts": [],
    }  # fmt: skip
    saved = [
        {"id": "../evil", "view": view},
        {"id": "zzzzzzzz", "view": view},
        {"id": "yyyyyyyy", "view": {"id": 1}},
        7,
    ]
    outputs = [nbformat.v4.new_output("display_data", {MIME: data}) for data in saved]
    page.open(lab.saved("stranger.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    cards = page.find("card")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text("<img src=x onerror=alert(1)>")
    expect(cards.first.get_by_test_id("gpusched-standing")).to_contain_text("does not know the job")
    expect(page.page.get_by_text("does not name a job")).to_have_count(2)
    assert not [url for url in page.requests if "evil" in url]


def test_card_and_panel_say_that_the_server_is_gone_and_go_on_with_the_next(lab, page):
    page.open(lab.notebook("gone.ipynb", LOAD, gated("gone")))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("first")
    page.show_panel()
    lab.kill()
    expect(card.get_by_test_id("gpusched-standing")).to_contain_text("Reconnecting")
    expect(page.find("unconnected")).to_contain_text("Reconnecting")
    open_gate(lab, "gone")
    lab.start()
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("second")
    expect(card.get_by_test_id("gpusched-standing")).to_have_count(0)
    expect(page.find("unconnected")).to_have_count(0)
    wait_for(lab.answers, "JupyterLab does not start again")


def test_notebook_7_draws_the_same_card(lab, page):
    pytest.importorskip("notebook", reason="needs Notebook 7: pip install notebook")
    page.open(lab.notebook("seven.ipynb", LOAD, gated("seven"), app="notebooks"))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("first")
    open_gate(lab, "seven")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("succeeded")


def test_widgets_are_drawn_and_tell_the_kernel_what_was_selected(lab, page):
    layout = (
        "import jupyter_gpusched as gs, ipywidgets\n"
        "monitor = gs.GpuMonitor()\n"
        "ipywidgets.HBox([monitor, gs.JobQueue()])"
    )
    watch = "monitor.observe(lambda change: pathlib.Path('selected').write_text(change.new), 'selected')"
    page.open(lab.notebook("widgets.ipynb", LOAD, gated("drawn"), layout, f"import pathlib\n{watch}", "_2.widget()"))
    for cell in range(5):
        page.run(cell)
    rows = page.page.locator(".gpusched-w-row")
    expect(rows.filter(has_text="GPU 1")).to_contain_text("24.0G")
    expect(page.page.get_by_role("img", name="your jobs 9.0G")).to_have_count(1)
    job = rows.filter(has_text="drawn")
    expect(job.first).to_contain_text("running")
    rows.filter(has_text="GPU 1").click()
    wait_for((lab.root / "selected").exists, "the kernel does not hear of it")
    open_gate(lab, "drawn")
    expect(job.first).to_contain_text("succeeded")
    expect(page.page.locator(".gpusched-w-text").last).to_contain_text("second")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_the_words_of_card_and_panel_stand_out_from_their_ground(lab, page, theme, tmp_path):
    page.open(lab.notebook("themes.ipynb", LOAD, "%gpujob --vram 1G ! echo shown"))
    page.command("apputils:change-theme", theme=theme)
    page.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.run(0)
    page.run(1)
    page.show_panel()
    expect(page.find("card").get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    page.page.screenshot(path=tmp_path / "theme.png")
    for part in ("facts", "phase", "log"):
        assert contrast(page.find(part).first) >= 4.5, part


def contrast(element) -> float:
    """The WCAG contrast of an element's text with the nearest opaque ground behind it."""
    fore, ground = element.evaluate(
        """node => {
          const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
          const ground = n => parse(getComputedStyle(n).backgroundColor);
          const opaque = n => ground(n).length === 3 ? ground(n) : null;
          let behind = node;
          while (behind && !opaque(behind)) behind = behind.parentElement;
          return [parse(getComputedStyle(node).color).slice(0, 3), behind ? opaque(behind) : [255, 255, 255]];
        }"""
    )
    light, dark = sorted((_luminance(fore), _luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour) -> float:
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (c / 255 for c in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
