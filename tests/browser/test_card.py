"""The job card and the forms as a user sees them, in a real JupyterLab with real jobs on simulated cards."""

from __future__ import annotations

import json
import re

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)

LOAD = "%load_ext jupyter_gpusched"


def gate(name: str) -> str:
    """Code that waits until the test opens the gate of this name, any number of times."""
    return (
        f"import os, pathlib\npathlib.Path('{name}.gate').exists() or os.mkfifo('{name}.gate')\n"
        f"pathlib.Path('{name}.gate').read_text()\n"
    )


def job(name: str, code: str, options: str = "--vram 2G --grace 5s") -> str:
    return f"%%gpujob {options} --name {name}\n{code}"


PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()\n"
BAR = (
    "import sys\n"
    "sys.stderr.write('\\rtrain:  40%|####      | 4/10 [00:04<00:06,  1.0it/s]'); sys.stderr.flush()\n"
)  # fmt: skip


def open_gate(lab, name):
    (lab.root / f"{name}.gate").write_text("")


def phase(card):
    return card.get_by_test_id("gpusched-phase")


def source(page, cell):
    return page.page.evaluate(
        "n => window.jupyterapp.shell.currentWidget.content.widgets[n].model.sharedModel.getSource()", cell
    )


def count_cells(page):
    return page.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")


def test_a_cell_job_is_watched_from_the_queue_through_its_plot_to_its_end(lab, page):
    watched = job(
        "watched", BAR + gate("watched") + PLOT + gate("watched") + "print('the end')", "--vram 20G --time 1h"
    )
    page.open(lab.notebook("watched.ipynb", LOAD, job("holds", gate("holds"), "--gpus 2"), watched))
    for cell in range(3):
        page.run(cell)
    card = page.find("card").nth(1)
    expect(phase(card)).to_have_text("queued")
    expect(card.get_by_test_id("gpusched-why")).to_contain_text("number 1 in the queue")
    open_gate(lab, "holds")
    expect(phase(card)).to_have_text("running")
    expect(card.get_by_test_id("gpusched-progress")).to_contain_text("40 % · train: 4/10 · about 6s to go")
    expect(card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    expect(card.get_by_test_id("gpusched-memory")).to_contain_text("20.0G promised · 20.0G used")
    expect(card.get_by_test_id("gpusched-facts").first).to_contain_text("left of 1h00m")
    expect(card.locator("img")).to_have_count(0)
    open_gate(lab, "watched")
    expect(card.locator(".jp-RenderedImage img")).to_be_visible()
    open_gate(lab, "watched")
    expect(phase(card)).to_have_text("succeeded")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("the end")
    expect(card.get_by_test_id("gpusched-progress")).to_have_count(0)


def test_text_plots_and_tables_stand_in_the_order_in_which_they_came(lab, page):
    code = (
        f"print('before')\n{PLOT}from IPython.display import HTML\ndisplay(HTML('<table><td>one</td></table>'))\n7 * 6"
    )
    page.open(lab.notebook("order.ipynb", LOAD, job("order", code)))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(phase(card)).to_have_text("succeeded")
    expect(card.locator(".jp-RenderedHTML td")).to_have_text("one")
    log = card.get_by_test_id("gpusched-log")
    expect(log).to_contain_text("42")
    kinds = log.evaluate("node => [...node.children].map(part => part.dataset.mime ?? part.textContent.trim())")
    assert kinds == ["before", "image/png", "text/html", "text/plain"]


def test_a_failure_is_drawn_with_its_traceback(lab, page):
    page.open(lab.notebook("fails.ipynb", LOAD, job("fails", "def inner():\n    1 / 0\ninner()")))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(phase(card)).to_have_text("failed")
    expect(card.get_by_test_id("gpusched-why")).to_contain_text("ZeroDivisionError: division by zero")
    expect(card.get_by_test_id("gpusched-rich")).to_contain_text("Traceback (most recent call last)")
    expect(card.get_by_test_id("gpusched-rich").locator(".ansi-green-fg").first).to_be_visible()


def test_displays_that_change_and_cleared_output_end_as_in_a_cell(lab, page):
    code = (
        "from IPython.display import clear_output\n"
        "print('gone'); clear_output()\n"
        "shown = display('first', display_id=True)\n"
        f"{gate('changes')}"
        "shown.update('second')\n"
    )
    page.open(lab.notebook("changes.ipynb", LOAD, job("changes", code)))
    page.run(0)
    page.run(1)
    log = page.find("card").get_by_test_id("gpusched-log")
    expect(log).to_contain_text("first")
    expect(log).not_to_contain_text("gone")
    open_gate(lab, "changes")
    expect(log).to_contain_text("second")
    expect(log).not_to_contain_text("first")


def test_a_notebook_job_says_which_cell_speaks_and_how_many_have_run(lab, page):
    cells = ["print('one')", gate("cells") + "print('two')", "print('three')"]
    nbformat.write(nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells))), lab.root / "work.ipynb")
    page.open(lab.notebook("cells.ipynb", LOAD, "%gpujob --vram 1G work.ipynb"))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-progress")).to_contain_text("33 % · 1 of 3 cells")
    open_gate(lab, "cells")
    expect(phase(card)).to_have_text("succeeded")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("Cell 1")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text(re.compile("Cell 2.*two.*Cell 3.*three", re.DOTALL))


def test_the_card_lives_on_through_kernel_restart_reload_and_in_a_second_browser(lab, page, chromium):
    url = lab.notebook("lives.ipynb", LOAD, job("lives", PLOT + BAR + gate("lives") + "print('the end')"))
    page.open(url)
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.locator("img")).to_be_visible()
    page.command("docmanager:save")
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.page.reload()
    page.page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    context = chromium.new_context()
    try:
        second = context.new_page()
        second.goto(url)
        for other in (card, second.get_by_test_id("gpusched-card")):
            expect(phase(other)).to_have_text("running")
            expect(other.locator("img")).to_be_visible()
            expect(other.get_by_test_id("gpusched-progress")).to_contain_text("4/10")
        open_gate(lab, "lives")
        for other in (card, second.get_by_test_id("gpusched-card")):
            expect(phase(other)).to_have_text("succeeded")
            expect(other.get_by_test_id("gpusched-log")).to_contain_text("the end")
    finally:
        context.close()


def test_after_the_server_was_killed_the_card_reconnects_and_reads_on(lab, page):
    page.open(lab.notebook("killed.ipynb", LOAD, job("killed", PLOT + BAR + gate("killed") + "print('the end')")))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.locator("img")).to_be_visible()
    lab.kill()
    expect(card.get_by_test_id("gpusched-standing")).to_contain_text("Reconnecting")
    expect(card.locator("img")).to_be_visible()
    lab.start()
    expect(card.get_by_test_id("gpusched-standing")).to_have_count(0)
    expect(phase(card)).to_have_text("running")
    wait_for(lab.answers, "JupyterLab does not start again")
    open_gate(lab, "killed")
    expect(phase(card)).to_have_text("succeeded")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("the end")
    expect(card.locator("img")).to_have_count(1)


def test_a_cancelled_job_can_be_taken_back_by_mouse_and_keys_until_the_seconds_are_over(lab, page):
    page.open(lab.notebook("undo.ipynb", LOAD, job("undo", gate("undo"))))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(phase(card)).to_have_text("running")
    button = card.get_by_test_id("gpusched-cancel")
    button.click()
    expect(button).to_have_text(re.compile(r"Undo \(\d\)"))
    button.click()
    expect(button).to_have_text("Cancel")
    expect(phase(card)).to_have_text("running")
    button.focus()
    for words in (re.compile("Undo"), "Cancel", re.compile("Undo")):
        expect(button).to_be_focused()
        page.page.keyboard.press("Enter")
        expect(button).to_have_text(words)
    expect(phase(card)).to_have_text("cancelled")


def test_a_page_that_is_closed_sends_at_once_what_could_still_be_taken_back(lab, page):
    page.open(lab.notebook("leaves.ipynb", LOAD, job("leaves", gate("leaves"))))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(phase(card)).to_have_text("running")
    job_id = card.get_attribute("data-job-id")
    card.get_by_test_id("gpusched-cancel").click()
    expect(card.get_by_test_id("gpusched-cancel")).to_contain_text("Undo")
    page.page.goto("about:blank")
    wait_for(lambda: lab.ask(f"jobs/{job_id}")["phase"] == "cancelled", "the job is not cancelled")


def test_a_job_is_run_again_with_more_memory_and_its_successor_shown_below_also_after_a_reload(lab, page):
    page.open(lab.notebook("again.ipynb", LOAD, job("again", "print('ran')", "--vram 4G")))
    page.run(0)
    page.run(1)
    cards = page.find("card")
    expect(phase(cards.first)).to_have_text("succeeded")
    cards.first.get_by_test_id("gpusched-resubmit").click()
    cards.first.get_by_test_id("gpusched-more").click()
    expect(cards).to_have_count(2)
    expect(cards.nth(1)).to_contain_text("6.0G on 1 GPU")
    expect(phase(cards.nth(1))).to_have_text("succeeded")
    expect(cards.nth(1).get_by_test_id("gpusched-log")).to_have_text("ran")
    expect(cards.first.get_by_test_id("gpusched-again")).to_have_count(0)
    page.command("docmanager:save")
    page.page.reload()
    expect(cards.nth(1)).to_contain_text("6.0G on 1 GPU")
    page.page.goto("about:blank")  # what comes back after a reload would hide the notebook that is opened next


def test_a_job_is_run_again_with_what_the_form_says_and_the_form_says_what_is_wrong(lab, page):
    page.open(lab.notebook("edit.ipynb", LOAD, job("edit", "print('ran')", "--vram 4G")))
    page.run(0)
    page.run(1)
    cards = page.find("card")
    expect(phase(cards.first)).to_have_text("succeeded")
    cards.first.get_by_test_id("gpusched-resubmit").click()
    cards.first.get_by_test_id("gpusched-edit").click()
    expect(page.find("term-vram")).to_have_value("4G")
    page.find("term-vram").fill("5")
    page.find("submit").click()
    expect(cards.first.get_by_role("alert")).to_contain_text("such as 4G")
    page.find("term-vram").fill("500G")
    page.find("submit").click()
    expect(cards.first.get_by_role("alert")).to_contain_text("24.0G")
    page.find("term-vram").fill("5G")
    page.find("term-name").fill("edited")
    page.find("term-time").fill("10m")
    page.page.keyboard.press("Enter")
    expect(cards).to_have_count(2)
    expect(cards.nth(1)).to_contain_text("edited")
    expect(cards.nth(1)).to_contain_text("5.0G on 1 GPU")
    assert lab.ask(f"jobs/{cards.nth(1).get_attribute('data-job-id')}")["time_limit_s"] == 600


def test_the_result_is_fetched_by_a_cell_and_the_log_opens_in_a_tab(lab, page):
    page.open(
        lab.notebook("result.ipynb", LOAD, job("result", "loss = 0.25\nprint('trained')", "--vram 1G --out loss"))
    )
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(phase(card)).to_have_text("succeeded")
    job_id = card.get_attribute("data-job-id")
    card.get_by_test_id("gpusched-fetch").click()
    wait_for(lambda: source(page, 2) == f"%gpuresult {job_id}", "no cell was inserted")
    page.run(2)
    expect(page.page.get_by_text("{'loss': 0.25}")).to_be_visible()
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.get_by_test_id("gpusched-copy").click()
    assert page.page.evaluate("() => navigator.clipboard.readText()") == job_id
    card.get_by_test_id("gpusched-open-log").click()
    document = page.find("document")
    expect(document.get_by_test_id("gpusched-log")).to_have_text("trained")
    with page.page.expect_download() as download:
        document.get_by_text("Download all of it").click()
    assert download.value.path().read_text() == "trained\n"


def test_the_toolbar_form_writes_the_magic_line_makes_the_magic_known_and_runs_the_cell(lab, page):
    page.open(lab.notebook("form.ipynb", "print('by form')"))
    page.page.locator(".jp-NotebookPanel-toolbar [data-jp-item-name='gpusched-run'] jp-button").click()
    form = page.find("form")
    expect(form).to_be_visible()
    page.find("term-vram").fill("3G")
    page.find("term-name").fill("it's mine")
    page.page.get_by_role("button", name="Run", exact=True).click()
    card = page.find("card")
    expect(phase(card)).to_have_text("succeeded")
    expect(card).to_contain_text("it's mine")
    assert source(page, 0) == LOAD
    written = source(page, 1)
    assert written.endswith("\nprint('by form')")
    # The line is read back into the form, and what else it says is kept.
    line, _, rest = written.partition("\n")
    page.page.evaluate(
        "text => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(text)",
        f"{line} --tag mine\n{rest}",
    )
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    page.page.evaluate("() => { window.jupyterapp.commands.execute('gpusched:run-cell'); }")
    expect(page.find("term-vram")).to_have_value("3G")
    expect(page.find("term-name")).to_have_value("it's mine")
    page.find("term-vram").fill("4G")
    page.page.keyboard.press("Enter")
    expect(card).to_contain_text("4.0G on 1 GPU")
    assert source(page, 1) == written.replace("3G", "4G").replace("\n", " --tag mine\n", 1)
    assert count_cells(page) == 2


def test_the_form_of_the_cell_toolbar_says_what_is_wrong_and_leaves_the_cell_alone_when_it_is_closed(lab, page):
    page.open(lab.notebook("wrong.ipynb", LOAD, "print(1)", "%%time\nprint(2)"))
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    page.page.locator(".jp-cell-toolbar [data-jp-item-name='gpusched-run'] jp-button").click()
    page.find("term-vram").fill("4")
    page.page.keyboard.press("Enter")
    expect(page.find("form").get_by_role("alert")).to_contain_text("such as 4G")
    expect(page.find("term-vram")).to_have_value("4")
    page.page.keyboard.press("Escape")
    expect(page.find("form")).to_have_count(0)
    assert source(page, 1) == "print(1)"
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2; }")
    page.page.evaluate("() => { window.jupyterapp.commands.execute('gpusched:run-cell'); }")
    expect(page.page.locator(".jp-Dialog")).to_contain_text("another cell magic")
    page.page.keyboard.press("Enter")


HOSTILE = (
    "from IPython.display import HTML, Javascript\n"
    "print('<img src=x onerror=window.hurt=1>')\n"
    "display(HTML('<b>kept</b><img src=x onerror=\"window.hurt=2\"><script>window.hurt=3</script>'))\n"
    "display({'application/javascript': 'window.hurt=4', 'text/plain': 'plain words'}, raw=True)\n"
    "display({'image/svg+xml': '<svg onload=\"window.hurt=5\"/>', 'text/plain': 'drawn'}, raw=True)\n"
)


def test_what_a_job_puts_out_can_do_nothing_in_a_notebook_that_nobody_trusted(lab, page):
    page.open(lab.notebook("makes.ipynb", LOAD, job("'<img src=x onerror=window.hurt=0>'", HOSTILE)))
    page.run(0)
    page.run(1)
    made = page.find("card")
    expect(phase(made)).to_have_text("succeeded")
    job_id = made.get_attribute("data-job-id")
    view = lab.ask(f"jobs/{job_id}")
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": job_id, "view": view}})]
    page.page.goto(lab.saved("untrusted.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    card = page.find("card")
    expect(card).to_contain_text("<img src=x onerror=window.hurt=0>")
    expect(card.locator("b", has_text="kept")).to_be_visible()
    expect(card).to_contain_text("plain words")
    expect(card.get_by_test_id("gpusched-log")).to_contain_text("<img src=x onerror=window.hurt=1>")
    assert card.locator("[onerror], script").count() == 0
    assert page.page.evaluate("() => window.hurt") is None


@pytest.mark.parametrize(
    "change",
    [
        {"progress": {"fraction": {"a": 1}}, "advice": {"b": 2}, "time_limit_s": "soon", "estimated_start": []},
        {"gpus": [{"index": 1, "name": "<b>x</b>"}], "tags": 7, "parent_id": {}, "attempts": [None, 3]},
    ],
)
def test_a_saved_view_of_any_shape_is_drawn_or_left_out(lab, page, change):
    view = {
        "id": "zzzzzzzz", "name": "saved", "phase": "running", "kind": "cell", "gpus_requested": 1, "vram_mib": 1024,
        "peak_vram_mib": None, "started_at": 1.0, "ended_at": None, "exit_code": None, "signal": None, "waiting": None,
        "message": None, "reason": None, "simulated": False, "gpus": [], "attempts": [],
    }  # fmt: skip
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": "zzzzzzzz", "view": view | change}})]
    page.open(lab.saved(f"shape of {min(change)}.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    expect(page.find("card")).to_contain_text("saved")
    expect(page.find("standing")).to_contain_text("does not know the job")


def test_a_job_that_shows_its_own_card_does_not_draw_it_within_itself_for_ever(lab, page):
    code = (
        "import os\n"
        f"bundle = {{'{MIME}': {{'id': os.environ['GPUSCHED_JOB_ID'], 'view': None}}, 'text/plain': 'its own card'}}\n"
        "display(bundle, raw=True)"
    )
    page.open(lab.notebook("itself.ipynb", LOAD, job("itself", code)))
    page.run(0)
    page.run(1)
    expect(page.find("card")).to_contain_text("its own card")
    expect(page.find("card")).to_have_count(1)


def test_the_saved_notebook_reads_well_without_extension_and_kernel(lab, page):
    page.open(lab.notebook("reads.ipynb", LOAD, job("reads", "print('ran')")))
    page.run(0)
    page.run(1)
    expect(phase(page.find("card"))).to_have_text("succeeded")
    page.command("docmanager:save")
    saved = json.loads((lab.root / "reads.ipynb").read_text())
    (output,) = saved["cells"][1]["outputs"]
    assert set(output["data"]) == {MIME, "text/html", "text/plain"}
    assert "reads" in "".join(output["data"]["text/html"])
    assert output["data"][MIME]["id"] in "".join(output["data"]["text/plain"])


def test_nothing_of_ours_went_wrong_in_the_server_meanwhile(lab):
    places = [line for line in lab.log.read_text().splitlines() if line.strip().startswith('File "')]
    assert [line for line in places if "jupyter_gpusched" in line] == []
