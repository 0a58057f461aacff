"""Makes the pictures of job card and forms for the documentation: ``python tests/browser/screenshots_card.py``.

Real jobs on simulated cards in a real JupyterLab, looked at by a headless Chromium, light and dark.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import conftest  # noqa: E402
from PIL import Image  # noqa: E402  (it comes with Matplotlib)
from playwright.sync_api import sync_playwright  # noqa: E402
from waiting import wait_for  # noqa: E402

IMAGES = Path(__file__).parents[2] / "docs" / "images"

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
WIDGETS = """import ipywidgets, jupyter_gpusched as gs
ipywidgets.HBox([gs.GpuMonitor(), gs.JobQueue()])"""
WAITS = "%gpujob --gpus 2 --name 'all cards' ! true"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="gs-pictures-"))
    runtime = tempfile.mkdtemp(prefix="gs-")
    lab = conftest.Lab(home, runtime)
    try:
        wait_for(lab.answers, "JupyterLab does not start")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=conftest.ARGUMENTS)
            take(lab, browser)
            browser.close()
    finally:
        lab.end()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


def take(lab: conftest.Lab, browser: object) -> None:
    context = browser.new_context(viewport={"width": 1100, "height": 1400}, device_scale_factor=1.5)
    page = conftest.Page(context.new_page())
    page.open(
        lab.notebook("pictures.ipynb", "%load_ext jupyter_gpusched", TRAIN, WAITS, FAILS, WIDGETS, "fit(epochs=20)")
    )
    page.page.evaluate("() => jupyterapp.shell.collapseLeft()")
    for cell in range(5):
        page.run(cell)
    cards = page.find("card")
    cards.nth(2).get_by_text("ZeroDivisionError").first.wait_for()
    cards.nth(0).locator("img").wait_for()
    wait_for((lab.root / "half").exists, "the job does not come to its half")
    cards.nth(0).get_by_test_id("gpusched-progress").wait_for()
    cards.nth(0).get_by_test_id("gpusched-memory").wait_for()
    page.page.locator(".gpusched-w-row").filter(has_text="fit the model").click()
    for theme, name in (("JupyterLab Light", "light"), ("JupyterLab Dark", "dark")):
        page.command("apputils:change-theme", theme=theme)
        page.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        for number, what in enumerate(("running", "waiting", "failed")):
            if what == "failed":
                cards.nth(number).get_by_test_id("gpusched-resubmit").click()
                cards.nth(number).get_by_test_id("gpusched-edit").click()
            page.page.mouse.move(0, 0)
            cards.nth(number).screenshot(path=IMAGES / f"card-{what}-{name}.png")
            if what == "failed":
                cards.nth(number).get_by_test_id("gpusched-resubmit").click()
        page.page.locator(".widget-hbox").screenshot(path=IMAGES / f"card-widgets-{name}.png")
        page.page.evaluate("() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 5; }")
        page.page.evaluate("() => { jupyterapp.commands.execute('gpusched:run-cell'); }")
        form = page.page.locator(".jp-Dialog-content")
        form.wait_for()
        page.find("term-vram").fill("9G")
        page.find("term-time").fill("2h")
        form.screenshot(path=IMAGES / f"card-form-{name}.png")
        page.page.keyboard.press("Escape")
        form.wait_for(state="detached")
    for image in IMAGES.glob("card-*.png"):  # few colours: a third of the size
        Image.open(image).convert("RGB").quantize(128).save(image, optimize=True)
    (lab.root / "go").write_text("")
    page.page.get_by_text("100%").first.wait_for()
    context.close()


if __name__ == "__main__":
    main()
