"""An answer that was asked for before the stream told of a job and comes after it: the newer word stands."""

from __future__ import annotations

import re

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, gpu, job
from playwright.sync_api import expect
from waiting import wait_for

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)


class Held:
    """Requests that match are not answered until the test says what with."""

    def __init__(self, page, path):
        self.page = page.page
        self.routes = []
        page.route(re.compile(path), self._hold)

    def _hold(self, route):
        self.routes.append(route)

    def wait(self):
        def come():
            self.page.wait_for_timeout(10)  # the driver of the browser hands requests over meanwhile
            return self.routes

        wait_for(come, "the page does not ask")

    def answer(self, view):
        address = self.routes[0].request.url
        with self.page.expect_response(address):
            self.routes.pop(0).fulfill(json=view)


@pytest.fixture
def card(lab, page):
    """A card whose job the page asks for, on a machine that tells of no job at first."""
    host = Host(page, gpus=[gpu()])
    held = Held(page, r"/gpusched/api/v1/jobs/mine0001\b")
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": "mine0001", "view": job("mine0001")}})]
    page.page.goto(lab.saved("late.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    held.wait()
    return host, held, page.find("card")


def test_a_card_whose_job_ended_while_it_was_asked_for_shows_the_end(page, card):
    host, held, shown = card
    host.send({"type": "job", "seq": 2, "event": "exited", "at": 0, "job": job("mine0001", phase="succeeded")})
    expect(shown.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    held.answer(job("mine0001", phase="running"))
    host.send({"type": "job", "seq": 3, "event": "submitted", "at": 0, "job": job("mine0002")})
    page.show_panel()
    expect(page.find("entry")).to_have_count(2)
    expect(shown.get_by_test_id("gpusched-phase")).to_have_text("succeeded")


@pytest.mark.parametrize("status", [403, 404])
def test_a_server_that_does_not_tell_of_the_job_is_not_waited_for(card, status):
    _host, held, shown = card
    held.routes.pop(0).fulfill(status=status, body="no")
    expect(shown.get_by_test_id("gpusched-standing")).to_contain_text("does not know the job")


def test_an_answer_that_nothing_has_overtaken_is_shown(card):
    _host, held, shown = card
    held.answer(job("mine0001", phase="failed", ended_at=1.7e9 + 1, message="no such file"))
    expect(shown.get_by_test_id("gpusched-phase")).to_have_text("failed")
