"""Case 40 as a browser sees it: behind a prefix, with a cookie for a login and XSRF checked, as a Hub has it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from playwright.sync_api import expect

expect.set_options(timeout=30_000)

BASE = "/user/ann%40x.org"


@pytest.fixture
def behind(page):
    """The page's requests carry no token, only what a browser sends by itself and the front end adds for XSRF."""

    def without_token(route):
        headers = {name: value for name, value in route.request.headers.items() if name != "authorization"}
        route.continue_(headers=headers)

    page.route(re.compile("/gpusched/api/v1/"), without_token)
    return page


def test_card_and_panel_work_behind_a_prefix_with_cookie_and_xsrf(lab, behind):
    page = behind
    page.open(lab.notebook("prefix.ipynb", "%load_ext jupyter_gpusched", "%gpujob --vram 24G --name held ! sleep 600"))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("running")
    page.show_panel()
    expect(page.find("gpu")).to_have_count(2)
    expect(page.find("host")).to_contain_text("Scheduler: ")
    page.find("entry").get_by_role("button", name="held", exact=True).click()
    details = page.find("details")
    details.get_by_test_id("gpusched-tab-source").click()
    expect(details.get_by_test_id("gpusched-source")).to_contain_text("sleep 600")
    details.get_by_test_id("gpusched-resubmit").click()
    expect(page.find("entry").filter(has_text="held")).to_have_count(2)
    details.get_by_test_id("gpusched-cancel").click()
    expect(details.get_by_test_id("gpusched-phase")).to_have_text("cancelled")
    lab.cancel_all()
    ours = [url for url in [*page.requests, *page.sockets] if "gpusched/api" in url]
    assert ours
    assert all(f"{BASE}/gpusched/api/v1/" in url for url in ours)
    assert not [url for url in ours if "token=" in url]


def test_without_the_xsrf_token_nothing_is_changed(lab, page):
    page.open_lab(lab)
    status = page.page.evaluate(
        """async url => (await fetch(url, { method: 'POST', body: '{"argv": ["true"], "gpus": 0}' })).status""",
        f"{lab.url}/gpusched/api/v1/jobs",
    )
    assert status == 403
    assert not [job for job in lab.ask("jobs")["items"] if job["gpus_requested"] == 0]
