"""A JupyterLab that knows of no simulation, on the fake driver: no card, cards that are used, a lost one, a stuck one.

One server and one page for all of it, as on a machine whose day this is.
"""

from __future__ import annotations

import re

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from fake_nvml.machine import Machine, built_driver
from playwright.sync_api import expect
from waiting import wait_for

from jupyter_gpusched.card import MIME

__all__ = ["built_driver"]

expect.set_options(timeout=60_000)

G = Machine.GIB
CARDS = [{"name": "NVIDIA Fake 24G", "total": 24564 * Machine.MIB, "reserved": 0}] * 2
SAMPLES = 3


@pytest.fixture(scope="module")
def machine(built_driver, tmp_path_factory):
    """Without a card at first."""
    folder = tmp_path_factory.mktemp("machine")
    machine = Machine(folder / "machine")
    machine.write()
    machine.calls = folder / "calls"
    machine.calls.touch()
    return machine


@pytest.fixture(scope="module")
def environ(machine, built_driver):
    return {
        "GPUSCHED_SIMULATE": "",
        "FAKE_NVML_STATE": str(machine.path),
        "FAKE_NVML_CALLS": str(machine.calls),
        "LD_LIBRARY_PATH": str(built_driver),
    }


@pytest.fixture(scope="module")
def opened(lab, another_page):
    page = another_page()
    page.open_lab(lab)
    page.show_panel()
    return page


@pytest.fixture
def page(opened):
    """The same page for all tests; what the browser says of it is looked at after each."""
    yield opened
    opened.end_test()


def submit(lab, machine, name, vram, *, hold="600"):
    """A job that takes memory of the cards for so many seconds; its id."""
    environ = {name: value for name, value in lab.environ.items() if name != "GPUSCHED_SIMULATE"}
    spec = {"argv": machine.job("--alloc", "2G", "--hold", hold), "vram": vram, "name": name, "grace": "0s"}
    return lab.submit(spec | {"cwd": str(lab.root), "env": environ})


def looks(lab, machine, number):
    """How often the driver is called while it is looked at so many times."""

    def looked():
        return max(gpu["sampled_at"] for gpu in lab.ask("gpus")["items"])

    def next_look():
        before = looked()
        wait_for(lambda: looked() > before, "nobody looks at the cards")
        return machine.calls.stat().st_size

    first = next_look()
    for _ in range(number - 1):
        next_look()
    return next_look() - first


def test_without_a_card_a_sentence_says_why_and_once_there_are_some_they_are_shown(lab, machine, page):
    expect(page.find("no-gpu")).to_have_text("No GPU can be used here: The NVIDIA driver is loaded but finds no GPU.")
    expect(page.find("gpu")).to_have_count(0)
    expect(page.find("status")).to_contain_text("no GPU")
    page.page.goto("about:blank")
    lab.kill()
    machine.write(*CARDS)
    lab.start()
    wait_for(lab.answers, "JupyterLab does not start again", deadline_s=90)
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("gpu")).to_have_count(2)
    expect(page.find("gpu").first).to_contain_text("Fake 24G")
    expect(page.find("gpu").first).not_to_contain_text("SIMULATED")
    expect(page.find("no-gpu")).to_have_count(0)
    expect(page.find("status")).not_to_contain_text("no GPU")


def test_what_a_job_takes_is_drawn_as_it_changes_with_its_peak_in_card_and_details(lab, machine, page):
    job = submit(lab, machine, "grows", "6G")
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": job}, "text/plain": "a job"})]
    lab.saved("grows.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)])
    page.command("docmanager:open", path="grows.ipynb")
    memory = page.find("memory")
    expect(memory).to_contain_text("6.0G promised · 2.4G used · peak 2.4G")
    for used, words in ((5, "5.0G used · peak 5.0G"), (3, "3.0G used · peak 5.0G")):
        with machine.change() as state:
            (process,) = state.all("proc")
            process["bytes"] = str(used * G)
        expect(memory).to_contain_text(words)
    ticks = memory.locator(".gpusched-tick").evaluate_all("ticks => ticks.map(tick => parseFloat(tick.style.left))")
    assert ticks == [pytest.approx(100 * 5 / 6, abs=0.1)]
    assert rises_and_falls(memory.get_by_role("img", name="Memory over time"))
    expect(page.find("gpu").first.locator("[data-kind=own]")).to_have_attribute("aria-label", re.compile("uses 3.0G"))

    page.command("gpusched:open-job", id=job)
    details = page.find("details")
    details.get_by_test_id("gpusched-tab-events").click()
    rows = details.get_by_test_id("gpusched-page-events").locator("tbody tr")
    kinds = [event["kind"] for event in lab.ask(f"jobs/{job}/events")["items"]]
    assert {"submitted", "started"} <= set(kinds)
    expect(rows.locator("td:nth-child(2)")).to_have_text(kinds)
    details.get_by_test_id("gpusched-tab-memory").click()
    curve = details.get_by_test_id("gpusched-page-memory")
    expect(curve.locator("figcaption")).to_have_text(re.compile(r"at most 5\.0G in .* · promised: 6\.0G"))
    assert rises_and_falls(curve.get_by_role("img"))
    lab.cancel_all()
    expect(page.find("gpu").first.locator("[data-kind=own]")).to_have_count(0)


def rises_and_falls(line):
    """Whether the line goes up and then down again; what is higher has the smaller number."""
    drawn = line.locator("path.gpusched-sparkline-line").first.get_attribute("d")
    heights = [float(point.split()[1]) for point in re.split("[ML]", drawn)[1:]]
    return min(heights) < heights[0] and heights[-1] > min(heights)


MORE_TABS = """url => Promise.all(Array.from({ length: 30 }, () => new Promise((seen, gone) => {
  const socket = new WebSocket(url);
  socket.onmessage = seen;
  socket.onerror = gone;
})))"""


def test_however_many_look_the_driver_is_asked_as_often_as_for_one(lab, machine, page):
    """Case 31."""
    alone = looks(lab, machine, SAMPLES)
    (stream,) = {url.partition("?")[0] for url in page.sockets if "gpusched" in url}
    page.page.evaluate(MORE_TABS, stream)
    assert looks(lab, machine, SAMPLES) < 2 * alone  # not thirty times; a look may slip by between two questions


def test_a_lost_card_says_so_and_the_other_one_works(lab, machine, page):
    machine.set(0, lost=1)
    lost, other = page.find("gpu").all()
    expect(lost.get_by_test_id("gpusched-health")).to_contain_text("Lost: the card fell off the bus")
    expect(lost.get_by_test_id("gpusched-part")).to_have_count(0)
    expect(other.get_by_test_id("gpusched-health")).to_have_count(0)
    submit(lab, machine, "on the other", "20G", hold="0")
    row = page.find("entry").filter(has_text="on the other")
    expect(row.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    expect(row).to_contain_text("GPU 1")
    lab.cancel_all()  # it is seen that its memory is back, which a card without an answer would not show


def test_a_card_that_does_not_answer_has_its_last_figures_with_their_age_and_all_else_goes_on(lab, machine, page):
    """Case 31."""
    card = page.find("gpu").nth(1)
    machine.hang(1)
    expect(card.get_by_test_id("gpusched-age")).to_have_text(re.compile(r"^as of \d+s ago$"))
    expect(card.get_by_test_id("gpusched-health")).to_contain_text("State unknown: the NVIDIA driver does not answer")
    expect(card).to_contain_text("24.0G")
    lab.submit({"argv": ["true"], "gpus": 0, "name": "meanwhile"})
    row = page.find("entry").filter(has_text="meanwhile")
    expect(row.get_by_test_id("gpusched-phase")).to_have_text("succeeded")
    waits = submit(lab, machine, "placed nowhere", "4G")
    expect(page.find("entry").filter(has_text="placed nowhere").get_by_test_id("gpusched-why")).to_contain_text(
        "does not answer"
    )
    assert lab.ask(f"jobs/{waits}")["phase"] == "queued"
    lab.cancel_all()
