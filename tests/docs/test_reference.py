"""The documentation says what the code does: generated where it can be, run where it has commands."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpusched import magics, options, wire
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.openapi import OPERATIONS
from jupyter_gpusched.refusals import STATUS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*DOCS.rglob("*.md"), ROOT / "README.md"]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_reference", DOCS / "generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference():
    return (DOCS / "reference.md").read_text()


def test_the_reference_is_what_the_code_says(generator, reference):
    assert generator.reference() == reference, "run: python docs/generate_reference.py"


def test_every_option_magic_command_setting_and_address_is_in_the_reference(generator, reference):
    parser = options.OptionParser(add_help=False)
    options.add_job_options(parser)
    wanted = [*parser.long_options(), *magics._job_parser().long_options(), *generator.settings()]
    wanted += [f"%{name}" for name in vars(magics.GpuMagics) if name.startswith("gpu")]
    wanted += [f"`{name}" for name, _, _ in generator.commands()]
    wanted += [f"{operation.method.upper()} {operation.path}" for operation in OPERATIONS]
    wanted += [f"`{name}`" for name, _, _ in generator.metrics()]
    wanted += [f"`{field}`" for field in wire.JobSpec.__struct_fields__]
    assert [word for word in wanted if word not in reference] == []


def test_every_environment_variable_of_ours_is_in_the_reference(generator):
    source = "".join(file.read_text() for file in (ROOT / "jupyter_gpusched").rglob("*.py"))
    used = set(re.findall(r"GPUSCHED_[A-Z_]*[A-Z]", source)) - {"GPUSCHED_SWEEP"}
    told = ", ".join([*generator.VARIABLES, *generator.IN_THE_JOB]).split(", ")
    assert used == {name for name in told if name.startswith("GPUSCHED_")} - {"GPUSCHED_SWEEP_NAME"}


def test_every_error_code_of_the_host_is_in_the_reference_with_its_status(generator):
    def kinds(kind):
        return [kind, *(below for one in kind.__subclasses__() for below in kinds(one))]

    for kind in kinds(GpuSchedError):
        status = next((STATUS[base] for base in kind.__mro__ if base in STATUS), None)
        internal = kind.code in ("illegal_transition", "no_host")
        if status is not None and not internal and kind.__module__.startswith("jupyter_gpusched"):
            assert generator.ERRORS[kind.code][0] == status, kind


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        if linked.name in ("figures.md", "demo.svg"):  # made by the tools in tests/bench
            continue
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def blocks(page: str, *, until: str) -> str:
    """The shell commands of a page, as one script that stops at the first failure."""
    text = (DOCS / page).read_text().partition(until)[0]
    return "set -euo pipefail\n" + "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))


def test_the_commands_of_the_curl_page_work_as_they_stand(host):
    done = subprocess.run(
        ["bash", "-c", blocks("how-to/rest-with-curl.md", until="## Through a Jupyter server")],
        check=False, capture_output=True, text=True, timeout=60, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"error"' not in done.stdout
    assert "hello from " in done.stdout


def test_the_commands_of_the_tutorial_work_as_they_stand(tmp_path, monkeypatch):
    gate = tmp_path / "gate"  # for which the job waits that takes both cards, until it was shown who waits for it
    script = blocks("tutorial.md", until="## The same in a notebook")
    script = script.replace("sleep 60", f"sh -c 'until test -e {gate}; do sleep 0.1; done'")
    script = script.replace("show $big --explain", f"show $big --explain; touch {gate}")
    assert script.count(str(gate)) == 2
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    script = script.replace("$(mktemp -d)", os.environ["GPUSCHED_HOME"])
    done = subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, text=True, timeout=200, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "my card is GPU-" in done.stdout
    assert "needs 12.0G on 1 GPU" in done.stdout
