"""The widgets where our own renderer is absent: JupyterLab with the extension switched off stands for them all."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for

expect.set_options(timeout=30_000)

LOAD = "%load_ext jupyter_gpusched"


def prepare(home):
    path = home / "config" / "labconfig" / "page_config.json"
    config = json.loads(path.read_text())
    config["disabledExtensions"]["jupyter-gpusched"] = True
    path.write_text(json.dumps(config))


def gated(name: str) -> str:
    return (
        f"%%gpujob --vram 9G --grace 5s --time 1h --name {name}\n"
        "import os, pathlib, sys\n"
        "sys.stderr.write('\\rtrain:  40%|####      | 4/10 [00:04<00:06,  1.0it/s]'); sys.stderr.flush()\n"
        f"os.mkfifo('{name}.gate')\npathlib.Path('{name}.gate').read_text()\nprint('the end')"
    )


def test_without_our_renderer_a_job_is_a_readable_snapshot(lab, page):
    page.open(lab.notebook("plain.ipynb", LOAD, "%gpujob --vram 1G --name plain ! true"))
    page.run(0)
    page.run(1)
    shown = page.page.locator(".jp-RenderedHTML .gpusched-job")
    expect(shown).to_contain_text("plain")
    expect(shown).to_contain_text("%gpulogs")
    expect(page.find("card")).to_have_count(0)


def test_cards_queue_and_job_are_live_side_by_side_and_act_through_the_kernel(lab, page):
    layout = (
        "import ipywidgets, jupyter_gpusched as gs\n"
        "queue, monitor = gs.JobQueue(), gs.GpuMonitor()\n"
        "chosen = ipywidgets.Text()\n"
        "ipywidgets.link((queue, 'selected'), (chosen, 'value'))\n"
        "ipywidgets.VBox([ipywidgets.HBox([monitor, queue]), chosen])"
    )
    page.open(lab.notebook("live.ipynb", LOAD, gated("first"), gated("second"), layout, "_3.widget()"))
    for cell in range(5):
        page.run(cell)
    monitor, queue, job = (page.page.locator(".gpusched-w-box").nth(n) for n in range(3))
    expect(monitor.get_by_role("img", name=re.compile("your jobs 18.0G"))).to_have_count(1)
    expect(monitor.locator(".gpusched-w-legend")).to_contain_text("your jobs")
    row = queue.locator(".gpusched-w-row").filter(has_text="first")
    expect(row).to_contain_text("40 % · train: 4/10 · about 6s to go")
    expect(row).to_contain_text("left of 1h00m")
    row.click()
    expect(row).to_have_attribute("aria-current", "true")
    job_id = row.get_attribute("data-key")
    expect(page.page.locator(".widget-text input")).to_have_value(job_id)
    cancel = row.get_by_role("button")
    cancel.click()
    expect(cancel).to_contain_text("Undo")
    cancel.click()
    expect(cancel).to_have_text("Cancel")
    cancel.click()
    expect(row).to_contain_text("cancelled")
    row.get_by_role("button", name="again").click()
    expect(queue.locator(".gpusched-w-row").filter(has_text="first")).to_have_count(2)
    expect(job).to_contain_text("second")
    (lab.root / "second.gate").write_text("")
    expect(job).to_contain_text("succeeded")
    expect(job.locator(".gpusched-w-text")).to_contain_text("the end")
    assert lab.ask(f"jobs/{job_id}")["phase"] == "cancelled"


def test_an_array_is_one_row_of_the_queue_that_opens_and_acts_by_keys(lab, page):
    sweep = "%%gpujob --gpus 0 --name sweep --sweep lr=0.1,0.2\nassert lr < 0.2, 'too high'"
    page.open(lab.notebook("array.ipynb", LOAD, sweep, "import jupyter_gpusched as gs\nqueue = gs.JobQueue(); queue"))
    for cell in range(3):
        page.run(cell)
    queue = page.page.locator(".gpusched-w-box")
    array = queue.locator(".gpusched-w-row").filter(has=page.page.locator(".gpusched-w-opener"))
    expect(array).to_contain_text("1 succeeded · 1 failed")
    expect(array).to_contain_text("failed: #1, lr=0.2 (")
    opener = array.get_by_role("button", name="sweep")
    expect(opener).to_have_attribute("aria-expanded", "false")
    opener.focus()
    page.page.keyboard.press("Enter")
    elements = queue.locator("[data-element=true]")
    expect(elements).to_have_count(2)
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(opener).to_be_focused()
    expect(elements.nth(1)).to_contain_text("#1, lr=0.2")
    array.get_by_role("button", name=re.compile("^Run what failed of array")).click()
    expect(queue.locator("[data-element=false]").filter(has_text="sweep")).to_have_count(2)


def test_a_closed_widget_is_gone_and_its_thread_with_it(lab, page):
    threads = "import threading; [t.name for t in threading.enumerate() if t.name == 'jupyter-gpusched-live']"
    show = "import jupyter_gpusched as gs\nmonitor = gs.GpuMonitor(); monitor"
    wait = (
        "monitor.close()\nimport threading\n"
        "for t in threading.enumerate():\n    if t.name == 'jupyter-gpusched-live': t.join(30)"
    )
    page.open(lab.notebook("closed.ipynb", show, wait, threads))
    page.run(0)
    expect(page.page.locator(".gpusched-w-box")).to_be_visible()
    page.run(1)
    expect(page.page.locator(".gpusched-w-box")).to_have_count(0)
    page.run(2)
    wait_for(lambda: page.page.locator(".jp-OutputArea-output").last.inner_text().strip() == "[]", "it goes on")
