"""The panel in a browser at a real Hub: after a login by its form, filled by the service through the user's server."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import Error, Page, expect, sync_playwright

pytestmark = pytest.mark.hub

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run"]
SLOW_MS = 120_000
"""A browser, a Hub, and two servers share this machine with whatever else it does."""


class Watched:
    """A page and what it said, asked and was answered."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.asked: list[tuple[str, str, int, dict[str, str]]] = []
        page.on("pageerror", lambda error: self.errors.append(f"{error.message}\n{error.stack}"))
        page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        page.on("response", self._note)

    def _note(self, response: Any) -> None:
        request = response.request
        if "/gpusched/" in response.url:
            self.asked.append((request.method, response.url, response.status, request.headers))

    def find(self, test_id: str) -> Any:
        return self.page.get_by_test_id(f"gpusched-{test_id}")


@pytest.fixture
def watched(bed, tmp_path):
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    if not bed.has_panel():
        pytest.skip("needs the front end: cd labextension && jlpm install && jlpm build:prod")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(SLOW_MS)
        watched = Watched(context.new_page())
        yield watched
        with suppress(Error):  # a page that answers no more must not hide why
            watched.page.screenshot(path=tmp_path / "last.png")
        browser.close()


def log_in(watched, hub, user):
    page = watched.page
    page.goto(f"{hub.url}/hub/login?next=/hub/user-redirect/lab")
    page.get_by_label("Username").fill(user.name)
    page.get_by_label("Password").fill("any")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(rf"/user/{re.escape(user.name)}/lab"))
    page.wait_for_selector(".jp-Launcher")


def test_a_user_logs_in_submits_sees_whose_the_cards_are_and_cancels(watched, hub, ann, bob):
    expect.set_options(timeout=SLOW_MS)
    secret = bob.submit("sleep", "600", vram="3G", name="secret-of-bob")
    wait_for(lambda: bob.job(secret)["phase"] == "running", "the other user's job does not start")
    script = Path(ann.account.pw_dir) / "of_ann.py"
    script.write_text("import time\nprint('it runs', flush=True)\ntime.sleep(600)\n")
    os.chown(script, ann.account.pw_uid, ann.account.pw_gid)
    try:
        log_in(watched, hub, ann)
        page = watched.page
        page.locator(".jp-DirListing-item", has_text="of_ann.py").click(button="right")
        page.get_by_text("Submit as GPU Job").click()
        form = page.locator(".jp-Dialog")
        form.locator('input[name="vram"]').fill("2G")
        form.get_by_role("button", name="Submit").click()
        page.locator('[data-id="jupyter-gpusched-panel"]').click()
        panel = watched.find("panel")
        own = panel.get_by_test_id("gpusched-entry").filter(has_text="of_ann.py")
        expect(own.get_by_test_id("gpusched-phase")).to_have_text("running")
        expect(watched.find("host")).to_contain_text("Scheduler: ")
        parts = panel.get_by_test_id("gpusched-part")
        for of in (rf"^a job of {re.escape(bob.name)} · 3\.0G", "^your job "):
            expect(parts.and_(panel.get_by_label(re.compile(of)))).to_have_count(1)
        assert secret not in page.content()
        assert "secret-of-bob" not in page.content()
        own.get_by_test_id("gpusched-cancel").click()
        expect(own.get_by_test_id("gpusched-phase")).to_have_text("cancelled")
        assert bob.job(secret)["phase"] == "running"
    finally:
        bob("POST", f"jobs/{secret}/cancel", {"grace": "0s"})
        for job in ann("GET", "jobs?name=of_ann.py").json["items"]:
            ann("POST", f"jobs/{job['id']}/cancel", {"grace": "0s"})
        script.unlink()
    changes = [(url, status, headers) for method, url, status, headers in watched.asked if method == "POST"]
    assert {status for _, status, _ in changes} <= {200, 201}, changes
    assert all(headers.get("x-xsrftoken") for _, _, headers in changes), changes
    assert all(url.startswith(f"{hub.url}/user/") for url, _, _ in changes), "the browser speaks to its own server only"
    assert not watched.errors
