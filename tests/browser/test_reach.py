"""Everybody can use it: axe-core finds no serious fault in any theme, nothing moves for who wants no motion,
and with the colours of a high-contrast system all that colour and ground tell is still told."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

from frames import Host, alert, gpu, holder, job
from playwright.sync_api import expect

from jupyter_gpusched.card import MIME

expect.set_options(timeout=30_000)

HELD = {"by": "ann", "cause": None, "since": 1.7e9}
USER = {
    "user": "ann", "jobs": 3, "queued": 1, "running": 1, "succeeded": 0, "failed": 1, "cancelled": 0, "timeout": 0,
    "lost": 0, "gpu_hours": 1.5, "mean_wait_s": None, "longest_wait_s": None,
}  # fmt: skip
AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")


@pytest.fixture(scope="module")
def everything(lab, another_page):
    """A page with everything on it: all kinds of parts, alerts, rows of each kind, and the details of a job."""
    page = another_page()
    holders = [
        holder(job_id="mine0001", user="ann", mine=True),
        holder(kind="lease", promised_mib=1024),
        holder(kind="foreign", state=None, pid=4711, vram_mib=1000, promised_mib=None),
        holder(state="releasing", vram_mib=512),
    ]
    jobs = [
        job(
            "mine0001", name="train", progress={"fraction": 0.5, "text": "", "done": 1, "total": 2, "remaining_s": 3.0}
        ),
        job("mine0002", name="waits", phase="queued", waiting="needs 4.0G", position=1, started_at=None),
        job("mine0003", name="ended", phase="failed", ended_at=1.7e9 + 9, exit_code=1, message="no such file"),
    ]
    Host(
        page.page,
        gpus=[gpu(0, holders=holders), gpu(1)],
        jobs=jobs,
        alerts=[alert("a1"), alert("a2", job_id="mine0001")],
    )
    page.open_lab(lab)
    page.show_panel()
    expect(page.find("entry")).to_have_count(3)
    page.find("panel").get_by_role("checkbox").first.check()
    page.find("panel").get_by_role("button", name="train", exact=True).click()
    expect(page.find("details")).to_contain_text("train")
    return page


@pytest.fixture
def shown(everything):
    everything.find("tab-overview").click()
    yield everything
    everything.page.emulate_media(reduced_motion="null", forced_colors="null")
    everything.end_test()


def wear(page, theme):
    page.command("apputils:change-theme", theme=theme)
    page.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)


def look_for_faults(page):
    """Have axe-core in the page; without it there is nothing to test."""
    if not AXE.exists():
        pytest.skip("needs axe-core: cd labextension && jlpm install")
    page.page.add_script_tag(path=AXE)


def faults(page, *selectors):
    """Serious faults, each with the node that has it."""
    found = page.page.evaluate(
        """async selectors => {
          const result = await axe.run({ include: selectors.map(each => [each]) }, { resultTypes: ['violations'] });
          return result.violations.filter(each => ['serious', 'critical'].includes(each.impact))
            .map(each => each.id + ': ' + each.nodes.map(node => node.html.slice(0, 200)).join(' | '));
        }""",
        list(selectors),
    )
    return list(found)


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_no_serious_fault(shown, theme):
    look_for_faults(shown)
    wear(shown, theme)
    assert not faults(shown, "#jupyter-gpusched-panel", "[data-testid=gpusched-details]", ".gpusched-status")
    for tab in ("source", "output", "events", "memory"):
        shown.find(f"tab-{tab}").click()
        expect(shown.find(f"page-{tab}")).to_be_visible()
        assert not faults(shown, "[data-testid=gpusched-details]"), tab
    shown.find("cancel-chosen").click()
    shown.page.locator(".jp-Dialog").wait_for()
    assert not faults(shown, ".jp-Dialog")
    shown.page.get_by_role("button", name="Keep").click()


@pytest.fixture(scope="module")
def failed(lab, another_page):
    """A page with the card of a job that failed, and its form to run it again open."""
    page = another_page()
    failing = "%%gpujob --vram 2G --name fails\nprint('before the end')\n1 / 0"
    page.open(lab.notebook("reach.ipynb", "%load_ext jupyter_gpusched", failing, "print('a cell')"))
    page.run(0)
    page.run(1)
    card = page.find("card")
    expect(card.get_by_test_id("gpusched-phase")).to_have_text("failed")
    expect(card.get_by_test_id("gpusched-rich")).to_contain_text("ZeroDivisionError")
    card.get_by_test_id("gpusched-resubmit").click()
    card.get_by_test_id("gpusched-edit").click()
    expect(card.get_by_test_id("gpusched-term-vram")).to_be_visible()
    return page


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_no_serious_fault_in_a_card_and_the_form_for_a_cell(failed, theme):
    look_for_faults(failed)
    wear(failed, theme)
    assert not faults(failed, "[data-testid=gpusched-card]")
    failed.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2; }")
    failed.page.evaluate("() => { window.jupyterapp.commands.execute('gpusched:run-cell'); }")
    expect(failed.find("form")).to_be_visible()
    assert not faults(failed, ".jp-Dialog")
    failed.page.locator(".jp-Dialog").get_by_test_id("gpusched-term-vram").press("Escape")
    expect(failed.find("form")).to_have_count(0)
    failed.end_test()


@pytest.fixture(scope="module")
def many(lab, another_page):
    """The card of an array, and all that administrators see."""
    page = another_page()
    ends = {"phase": "failed", "ended_at": 1.7e9 + 9, "exit_code": 1, "message": "no such file"}
    held = {"phase": "queued", "started_at": None, "waiting": "held by ann", "held": HELD}
    jobs = [
        job(f"elem000{index}", name="sweep", array_id="array001", array_index=index, **more)
        for index, more in enumerate(({}, ends, held))
    ]
    Host(page, gpus=[gpu()], jobs=jobs, admin=True)
    users = {"since": 0, "until": 1, "items": [USER], "next_cursor": None}
    page.route(re.compile(r"/admin/report"), lambda route: route.fulfill(json=users))
    whole = {"name": "sweep", "count": 3, "phases": {"running": 1, "failed": 1, "queued": 1}, "held": 1}
    outputs = [nbformat.v4.new_output("display_data", {MIME: {"id": "array001", "array": whole}})]
    page.open(lab.saved("array in reach.ipynb", [nbformat.v4.new_code_cell("1", outputs=outputs)]))
    page.find("open-array").click()
    expect(page.find("array-card").get_by_test_id("gpusched-entry")).to_have_count(3)
    page.show_panel()
    return page


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_no_serious_fault_in_arrays_and_administration(many, theme):
    look_for_faults(many)
    wear(many, theme)
    many.command("docmanager:open", path="array in reach.ipynb")
    expect(many.find("array-card")).to_be_visible()
    expect(many.find("array")).to_be_visible()
    assert not faults(many, "[data-testid=gpusched-array-card]", "#jupyter-gpusched-panel")
    many.find("administer").click()
    many.find("tab-machine").click()
    expect(many.find("cards")).to_be_visible()
    assert not faults(many, "[data-testid=gpusched-administration]")
    many.find("tab-report").click()
    expect(many.find("report")).to_be_visible()
    assert not faults(many, "[data-testid=gpusched-administration]")
    many.end_test()


def test_who_wants_no_motion_gets_none(shown):
    shown.page.emulate_media(reduced_motion="reduce")
    duration = shown.find("part").first.evaluate("part => getComputedStyle(part).transitionDuration")
    assert duration == "0s"


@pytest.fixture
def forced(shown):
    shown.page.emulate_media(forced_colors="active")
    assert shown.page.evaluate("() => matchMedia('(forced-colors: active)').matches")
    return shown


def style(element, name):
    return element.evaluate("(node, name) => getComputedStyle(node)[name]", name)


def test_with_forced_colours_it_is_seen_how_far_a_job_is_and_which_one_is_chosen(forced):
    rows = forced.find("entry")
    assert style(rows.first.locator(".gpusched-row-progress"), "backgroundColor") != style(
        rows.first, "backgroundColor"
    )
    chosen, other = rows.filter(has=forced.page.locator("input:checked")), rows.last
    assert style(chosen, "borderLeftWidth") == "3px"
    assert style(other, "borderLeftWidth") == "0px"
    tab, further = forced.find("tab-overview"), forced.find("tab-source")
    assert style(tab, "borderBottomColor") != style(further, "borderBottomColor")


def test_with_forced_colours_the_parts_of_a_bar_differ(forced, tmp_path):
    parts = forced.find("gpu").first.get_by_test_id("gpusched-part")
    grounds = {(style(part, "backgroundImage"), style(part, "backgroundColor")) for part in parts.all()}
    assert len(grounds) == parts.count()
    forced.page.screenshot(path=tmp_path / "forced.png")


def test_the_foot_of_a_narrow_panel_is_one_line_without_a_cut(lab, page):
    host = Host(page, gpus=[gpu()], kind="server", admin=True)
    page.open_lab(lab)
    page.show_panel()
    foot = page.find("host")
    foot.wait_for()
    foot.evaluate("node => { node.parentElement.style.width = '226px'; }")  # what a panel of 250 pixels leaves
    for kind, words in (
        ("daemon", "daemon"),
        ("serve", "serve"),
        ("system", "system"),
        ("hub", "Hub"),
        ("server", "server"),
    ):
        host.become(kind)
        expect(foot).to_contain_text(words)
        assert foot.evaluate(
            "node => node.scrollWidth <= node.clientWidth"
            " && node.parentElement.clientHeight <= parseFloat(getComputedStyle(node).lineHeight) + 1"
        ), kind
