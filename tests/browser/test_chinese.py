"""JupyterLab set to Simplified Chinese shows our card and forms in that language."""

# ruff: noqa: RUF001  (Chinese has marks of its own)

from __future__ import annotations

import json

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from importlib.metadata import entry_points

from frames import Host, alert, gpu, job
from playwright.sync_api import expect

expect.set_options(timeout=30_000)

pytestmark = pytest.mark.skipif(
    not entry_points(group="jupyterlab.locale", name="jupyter_gpusched"),
    reason="the installation does not know our translations yet: pip install -e .",
)


def prepare(home):
    folder = home / "settings" / "@jupyterlab" / "translation-extension"
    folder.mkdir(parents=True)
    (folder / "plugin.jupyterlab-settings").write_text(json.dumps({"locale": "zh_CN"}))


UNTIL_ENDED = "import time; print('你好', flush=True); time.sleep(600)"


def test_the_card_and_the_form_speak_chinese(lab, page):
    page.open(lab.notebook("zhongwen.ipynb", "%load_ext jupyter_gpusched", UNTIL_ENDED))
    page.run(0)
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    page.page.evaluate("() => { window.jupyterapp.commands.execute('gpusched:run-cell'); }")
    expect(page.page.locator(".jp-Dialog-header")).to_contain_text("将单元格作为 GPU 作业运行")
    expect(page.find("form")).to_contain_text("每块 GPU 的显存")
    page.find("term-vram").fill("4")
    page.page.keyboard.press("Enter")
    expect(page.find("form").get_by_role("alert")).to_have_text("显存：请填写数量，例如 4G 或 512M。")
    page.find("term-vram").fill("4G")
    page.page.keyboard.press("Enter")
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-log")).to_have_text("你好")
    expect(card.get_by_test_id("gpusched-memory")).to_contain_text("已承诺 4.0G")
    card.get_by_test_id("gpusched-resubmit").click()
    expect(card.get_by_test_id("gpusched-again")).to_contain_text("再次运行：")


def test_the_settings_speak_chinese(lab, page):
    page.open_lab(lab)
    page.command("settingeditor:open", query="GPU")
    settings = page.page.locator(".jp-SettingsPanel")
    expect(settings).to_contain_text("浏览器通知")
    expect(settings).to_contain_text("哪些作业结束时通知您。")
    expect(settings.get_by_role("option", name="仅未成功的作业")).to_be_attached()


def test_what_the_scheduler_says_is_said_in_chinese_also_where_it_counts(lab, page):
    waits = (
        "needs 20.0G on 1 GPU; best is GPU 0: 15.0G free, 9.0G promised to 1 job; "
        "jobs before it come first, whatever fits"
    )
    ill = {"status": "quarantined", "cause": "by ann: fan is loud", "since": 1.7e9, "by": "ann"}
    jobs = [
        job("wait0001", phase="queued", started_at=None, position=2, waiting=waits),
        job("fail0001", phase="failed", ended_at=1.7e9 + 9, exit_code=1, message="exit code 1: ValueError: needs more"),
    ]
    words = "GPU 0 (NVIDIA RTX 4090) is quarantined: by ann: fan is loud."
    Host(page, gpus=[gpu(health=ill)], jobs=jobs, alerts=[alert("a", kind="quarantined", message=words)])
    page.open_lab(lab)
    page.show_panel()
    panel = page.find("panel")
    expect(panel.get_by_test_id("gpusched-why").first).to_have_text(
        "需要 1 张 GPU 上的 20.0G；最合适的是 GPU 0：空闲 15.0G，已承诺 9.0G 给 1 个作业；"
        "排在前面的作业优先，即使它放得下（队列中第 2 位）"
    )
    expect(panel.get_by_test_id("gpusched-why").nth(1)).to_have_text("退出码 1：ValueError: needs more")
    expect(page.find("alert")).to_contain_text("GPU 0 (NVIDIA RTX 4090) 已隔离：由 ann：fan is loud。")
    expect(panel).to_contain_text("1 块 GPU，每块 4.0G")
    expect(page.find("status")).to_contain_text("1 条警报")
    page.command("gpusched:open-job", id="fail0001")
    expect(page.find("details")).to_contain_text("单元格")
    expect(page.find("details")).to_contain_text("普通")
