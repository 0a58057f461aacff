"""JupyterLab set to Simplified Chinese shows our card and forms in that language."""

# ruff: noqa: RUF001  (Chinese has marks of its own)

from __future__ import annotations

import json

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from importlib.metadata import entry_points

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


def test_the_card_and_the_form_speak_chinese(lab, page):
    page.open(lab.notebook("zhongwen.ipynb", "%load_ext jupyter_gpusched", "print('你好')"))
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
