"""Where one comes in: launcher, menus, palette, the browser of files; and what the settings take away."""

from __future__ import annotations

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect
from waiting import wait_for

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def opened(lab, another_page):
    page = another_page()
    page.open_lab(lab)
    expect(page.find("status")).to_contain_text("free")
    return page


@pytest.fixture
def page(lab, opened):
    """One page for all of them; the settings that a test has made are gone after it."""
    yield opened
    (lab.home / "settings" / "jupyter-gpusched" / "plugin.jupyterlab-settings").unlink(missing_ok=True)
    opened.end_test()


def asked_for_a_command(page):
    """The form of a new job is open, and left by its own key."""
    command = page.page.locator('.jp-Dialog input[name="command"]')
    expect(command).to_be_focused()
    command.press("Escape")
    expect(page.page.locator(".jp-Dialog")).to_have_count(0)


def choose_from_menu(page, menu, item):
    page.page.get_by_role("menuitem", name=menu, exact=True).click()
    page.page.locator(".lm-Menu").get_by_text(item, exact=True).click()


def test_a_job_is_begun_from_launcher_menu_and_palette_and_the_panel_is_shown_from_menu_and_palette(page):
    page.page.locator(".jp-LauncherCard", has_text="GPU Job").click()
    asked_for_a_command(page)
    choose_from_menu(page, "Run", "New GPU Job…")
    asked_for_a_command(page)
    panel = page.find("panel")
    choose_from_menu(page, "View", "Show GPUs and Jobs")
    expect(panel).to_be_visible()
    for entry, came in (
        ("New GPU Job", lambda: asked_for_a_command(page)),
        ("Show GPUs and Jobs", lambda: expect(panel).to_be_visible()),
    ):
        page.page.evaluate("() => { jupyterapp.shell.activateById('filebrowser'); }")
        expect(panel).to_be_hidden()
        page.command("apputils:activate-command-palette")
        page.page.locator(".lm-CommandPalette-input").fill(entry)
        item = page.page.locator(".lm-CommandPalette-item", has_text=entry)
        expect(item).to_have_count(1)
        item.click()
        came()


def test_a_notebook_is_submitted_from_the_browser_of_files_and_other_files_are_not(lab, page):
    cells = [nbformat.v4.new_code_cell("print('from the menu')")]
    lab.saved("from_menu.ipynb", cells)
    (lab.root / "from_menu.txt").write_text("words")
    page.page.evaluate("() => { jupyterapp.shell.activateById('filebrowser'); }")
    page.command("filebrowser:refresh")
    files = page.page.locator(".jp-DirListing-item")
    submit = page.page.locator(".lm-Menu").get_by_text("Submit as GPU Job…")
    files.filter(has_text="from_menu.txt").click(button="right")
    expect(page.page.locator(".lm-Menu").get_by_text("Rename")).to_be_visible()
    expect(submit).to_be_hidden()
    page.page.keyboard.press("Escape")
    files.filter(has_text="from_menu.ipynb").click(button="right")
    submit.click()
    form = page.page.locator(".jp-Dialog")
    form.locator('input[name="vram"]').fill("3G")
    form.locator('input[name="vram"]').press("Enter")
    wait_for(
        lambda: any(
            (job["name"], job["kind"], job["phase"], job["vram_mib"])
            == ("from_menu.ipynb", "notebook", "succeeded", 3072)
            for job in lab.ask("jobs")["items"]
        ),
        "the notebook does not run",
    )


def test_without_the_status_item_the_sidebar_is_left_and_ends_are_told_as_they_are_wished(lab, page):
    page.command("settingeditor:open", query="GPU Jobs")
    settings = page.page.locator(".jp-SettingsPanel")
    settings.get_by_label("Status bar").uncheck()
    expect(page.find("status")).to_have_count(0)
    page.page.get_by_role("tab", name="GPUs and jobs").click()
    expect(page.find("panel")).to_be_visible()

    told = page.page.locator(".Toastify__toast")
    wishes = settings.locator("select").filter(has_text="Only those that did not succeed")

    def end(name, command):
        lab.submit({"argv": command, "gpus": 0, "name": name})
        row = page.find("entry").filter(has_text=name)
        expect(row.get_by_test_id("gpusched-phase")).to_have_text("failed" if "exit" in command else "succeeded")

    def wish(label):
        """The page takes a setting in when it has read back what it saved."""
        with page.page.expect_response(
            lambda answer: "jupyter-gpusched" in answer.url and "/api/settings/" in answer.url
            and answer.request.method == "GET"
        ) as read:  # fmt: skip
            wishes.select_option(label=label)
        read.value.finished()

    wish("None")
    end("ends unheard", "exit 4")
    wish("Only those that did not succeed")
    end("ends well", "true")
    end("ends badly", "exit 3")
    expect(told.filter(has_text="ends badly")).to_have_count(1)
    expect(told.filter(has_text="ends well")).to_have_count(0)
    expect(told.filter(has_text="ends unheard")).to_have_count(0)
    settings.get_by_label("Status bar").check()
    expect(page.find("status")).to_contain_text("free")
