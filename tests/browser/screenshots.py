"""Pictures for README and docs: ``python tests/browser/screenshots.py`` writes all of docs/images/*.png.

Real jobs on simulated cards in a real JupyterLab, looked at by a headless Chromium, in light and dark.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import conftest
from PIL import Image  # it comes with Matplotlib
from playwright.sync_api import sync_playwright
from waiting import wait_for

IMAGES = Path(__file__).parents[2] / "docs" / "images"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

SOURCE = """import time
for step in range(400):
    print(f'step {step:3}  loss {2.5 / (1 + step):.4f}', flush=True)
    time.sleep(0.5)
"""


TRAIN = """%%gpujob --vram 9G --time 15m --name 'fit the model'
import os, pathlib, sys
import matplotlib.pyplot as plt
import pandas as pd
from tqdm import tqdm

print("\\x1b[32mloaded\\x1b[0m 48,000 pictures of 12 kinds")
losses = [2.2 * 0.9**n + 0.08 * (n % 4) for n in range(30)]
plt.figure(figsize=(5, 2.2))
plt.plot(losses)
plt.title("loss")
plt.show()
display(pd.DataFrame({"epoch": [10, 20], "loss": [0.86, 0.31], "accuracy": [0.71, 0.88]}))
for n in tqdm(range(40), desc="epoch 21", ncols=60, mininterval=0):
    if n == 26:
        pathlib.Path("half").write_text("")
        os.path.exists("go") or os.mkfifo("go")
        open("go").read()
"""
FAILS = """%%gpujob --vram 2G --name 'evaluate'
def accuracy(right, of):
    return right / of

print("evaluating")
accuracy(3, 0)
"""
SWEEP = """%%gpujob --vram 1G --name 'sweep' --sweep lr=0.01,0.1,1,3
import time
time.sleep(600 if lr == 0.01 else 0)
assert lr < 1, "the loss is nan"
"""
WIDGETS = """import ipywidgets, jupyter_gpusched as gs
ipywidgets.HBox([gs.GpuMonitor(), gs.JobQueue()])"""
WAITS = "%gpujob --gpus 2 --name 'all cards' ! true"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for subject in (panel, cards):
        with_lab(subject)
    for image in IMAGES.glob("*.png"):  # few colours: a third of the size
        Image.open(image).convert("RGB").quantize(128).save(image, optimize=True)


def with_lab(take: Callable[[conftest.Lab, Any], None]) -> None:
    """In a JupyterLab and a browser of its own."""
    home = Path(tempfile.mkdtemp(prefix="gs-pictures-"))
    runtime = tempfile.mkdtemp(prefix="gs-")
    lab = conftest.Lab(home, runtime, quiet)
    try:
        wait_for(lab.answers, "JupyterLab does not start", deadline_s=90)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=conftest.ARGUMENTS)
            take(lab, browser)
            browser.close()
    finally:
        lab.end()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


def quiet(home: Path) -> None:
    """No notifications, which would cover what is shown."""
    folder = home / "settings" / "jupyter-gpusched"
    folder.mkdir(parents=True)
    (folder / "plugin.jupyterlab-settings").write_text(json.dumps({"notify": "none"}))


def wear(page: conftest.Page, theme: str) -> None:
    page.command("apputils:change-theme", theme=theme)
    page.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.page.locator("#jupyterlab-splash").wait_for(state="detached")  # it dims the page while themes change


def jobs() -> list[dict[str, Any]]:
    """A day in a small lab: what runs, what waits for it, and what has ended."""
    cell = {"kind": "cell", "source": SOURCE, "grace": "1s"}
    ended = [
        {"argv": ["true"], "vram": "2G", "name": "preprocess images"},
        {"argv": "echo 'no such file: weights.pt' >&2; exit 3", "vram": "4G", "name": "evaluate checkpoint"},
    ]
    running = [
        cell | {"vram": "9G", "name": "train resnet50", "tags": ["vision"]},
        cell | {"vram": "14G", "name": "finetune llama-7b"},
        cell | {"vram": "6G", "name": "embed corpus"},
    ]
    waiting = [
        cell | {"gpus": 2, "vram": "20G", "name": "distributed baseline"},
        cell | {"vram": "16G", "name": "sweep lr=3e-4"},
        cell | {"vram": "16G", "name": "sweep lr=1e-4"},
        cell | {"vram": "22G", "name": "full evaluation", "priority": "low"},
    ]
    return [*ended, *running, *waiting]


def panel(lab: conftest.Lab, browser: Any) -> None:
    """The panel with the output of a running job beside it, and the form of a new job."""
    for spec in jobs():
        lab.submit(spec | {"cwd": str(lab.root), "env": dict(os.environ)})
    for name, theme in THEMES.items():
        page = conftest.Page.of(browser.new_page(viewport={"width": 1120, "height": 800}))
        page.open_lab(lab)
        wear(page, theme)
        page.show_panel()
        page.find("entry").filter(has_text="finetune").locator("button.gpusched-name").click()
        page.find("tab-output").click()
        page.page.wait_for_function(
            "() => document.querySelectorAll('.gpusched-sparkline-line').length >= 2"
            " && document.querySelector('[data-testid=gpusched-log]')?.textContent.includes('step')"
        )
        page.page.screenshot(path=IMAGES / f"panel-{name}.png")
        page.page.evaluate("() => { jupyterapp.commands.execute('gpusched:submit-command'); }")
        form = page.page.locator(".jp-Dialog-content")
        form.wait_for()
        form.locator('input[name="command"]').fill("python train.py --epochs 30")
        form.locator('input[name="vram"]').fill("9G")
        form.screenshot(path=IMAGES / f"dialog-job-{name}.png")
        page.page.keyboard.press("Escape")
        report(page, name)
        page.page.close()


USERS = [("ann", 41, 112.4, 3, 84.0, 610.0), ("bob", 6, 38.5, 0, 412.0, 2950.0), ("eve", 290, 9.1, 17, 12.0, 95.0)]


def report(page: conftest.Page, name: str) -> None:
    """What an administrator of a machine with several users sees; this one has but one user, so figures are given."""
    items = [
        {"user": user, "jobs": jobs, "gpu_hours": hours, "failed": failed, "mean_wait_s": mean,
         "longest_wait_s": longest, "queued": 1, "running": 2, "succeeded": jobs - failed, "cancelled": 0, "timeout": 0,
         "lost": 0}
        for user, jobs, hours, failed, mean, longest in USERS
    ]  # fmt: skip
    page.route(re.compile(r"/admin/report"), lambda route: route.fulfill(
        json={"since": 0, "until": 0, "items": items, "next_cursor": None}
    ))  # fmt: skip
    page.command("gpusched:administer")
    tab = page.find("administration")
    tab.get_by_test_id("gpusched-tab-report").click()
    tab.get_by_text("ann", exact=True).wait_for()
    page.page.mouse.move(0, 0)
    box = tab.bounding_box()
    page.page.screenshot(path=IMAGES / f"report-{name}.png", clip=box | {"height": 330})


def cards(lab: conftest.Lab, browser: Any) -> None:
    """Cards that run, wait and have failed, the widgets, and the form; in one page, since the job waits for us."""
    context = browser.new_context(viewport={"width": 1100, "height": 1400}, device_scale_factor=1.5)
    page = conftest.Page.of(context.new_page())
    cells = ["%load_ext jupyter_gpusched", TRAIN, WAITS, FAILS, SWEEP, WIDGETS]
    page.open(lab.notebook("pictures.ipynb", *cells, "fit(epochs=20)"))
    page.page.evaluate("() => jupyterapp.shell.collapseLeft()")
    for cell in range(len(cells)):
        page.run(cell)
    shown = page.find("card")
    shown.nth(2).get_by_text("ZeroDivisionError").first.wait_for()
    shown.nth(0).locator("img").wait_for()
    wait_for((lab.root / "half").exists, "the job does not come to its half")
    shown.nth(0).get_by_test_id("gpusched-progress").wait_for()
    shown.nth(0).get_by_test_id("gpusched-memory").wait_for()
    array = page.find("array-card")
    array.get_by_text("2 failed · 1 running · 1 succeeded").wait_for()
    array.get_by_test_id("gpusched-open-array").click()
    page.page.locator(".gpusched-w-row").filter(has_text="fit the model").click()
    for name, theme in THEMES.items():
        wear(page, theme)
        for number, what in enumerate(("running", "waiting", "failed")):
            if what == "failed":
                shown.nth(number).get_by_test_id("gpusched-resubmit").click()
                shown.nth(number).get_by_test_id("gpusched-edit").click()
            page.page.mouse.move(0, 0)
            shown.nth(number).screenshot(path=IMAGES / f"card-{what}-{name}.png")
            if what == "failed":
                shown.nth(number).get_by_test_id("gpusched-resubmit").click()
        array.screenshot(path=IMAGES / f"card-array-{name}.png")
        page.page.locator(".widget-hbox").screenshot(path=IMAGES / f"card-widgets-{name}.png")
        page.page.evaluate("() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 6; }")
        page.page.evaluate("() => { jupyterapp.commands.execute('gpusched:run-cell'); }")
        form = page.page.locator(".jp-Dialog-content")
        form.wait_for()
        page.find("term-vram").fill("9G")
        page.find("term-time").fill("2h")
        form.screenshot(path=IMAGES / f"card-form-{name}.png")
        page.page.keyboard.press("Escape")
        form.wait_for(state="detached")
    (lab.root / "go").write_text("")
    page.page.get_by_text("100%").first.wait_for()
    context.close()


if __name__ == "__main__":
    main()
