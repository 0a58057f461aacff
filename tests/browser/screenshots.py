"""Pictures of the panel for README and docs: ``python tests/browser/screenshots.py`` writes docs/images/*.png.

A real JupyterLab with real jobs on simulated cards, looked at by a headless Chromium, in light and dark.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from waiting import wait_for  # noqa: E402

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SOURCE = """import time
for step in range(400):
    print(f'step {step:3}  loss {2.5 / (1 + step):.4f}', flush=True)
    time.sleep(0.5)
"""


def _fixtures() -> Any:
    spec = importlib.util.spec_from_file_location("browser_conftest", HERE / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE.parents[1] / "docs" / "images")
    into = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    fixtures = _fixtures()
    from playwright.sync_api import sync_playwright

    home, runtime = Path(tempfile.mkdtemp()), tempfile.mkdtemp(prefix="gs-")
    lab = fixtures.Lab(home, runtime)
    try:
        wait_for(lab.answers, "JupyterLab does not start", deadline_s=90)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=fixtures.ARGUMENTS)
            for spec in jobs():
                lab.submit(spec | {"cwd": str(lab.root), "env": dict(os.environ)})
            for name, theme in THEMES.items():
                page = fixtures.Page(browser.new_page(viewport={"width": 1120, "height": 700}))
                picture(lab, page, theme, into / f"panel-{name}.png")
            browser.close()
    finally:
        lab.end()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


def picture(lab: Any, page: Any, theme: str, target: Path) -> None:
    page.open_lab(lab)
    page.command("apputils:change-theme", theme=theme)
    page.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.show_panel()
    page.find("entry").filter(has_text="finetune").locator("button.gpusched-name").click()
    page.find("tab-output").click()
    page.page.wait_for_function(
        "() => document.querySelectorAll('.gpusched-sparkline-line').length >= 2"
        " && document.querySelector('[data-testid=gpusched-log]')?.textContent.includes('step')"
    )
    page.page.screenshot(path=target)
    page.page.close()


if __name__ == "__main__":
    main()
