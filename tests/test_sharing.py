"""Tests that share something are run by one worker, whatever pytest-xdist makes of its own groups."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sharing import group_of

HERE = Path(__file__).parent

SHARING = """
import os, pytest
@pytest.fixture(scope="module")
def shared(): return os.getpid()
@pytest.mark.parametrize("n", range(6))
def test_shares(shared, record_property, n): record_property("pid", os.getpid())
"""
ALONE = """
import os, pytest
@pytest.mark.parametrize("n", range(20))
def test_shares_nothing(record_property, n): record_property("pid", os.getpid())
"""


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("browser/test_card.py", "browser"),
        ("system/test_attacks.py", "machine"),
        ("hub/test_names.py", "machine"),
        ("api/test_relay.py", "test_relay"),
        ("core/test_core_machine.py", None),
    ],
)
def test_where_a_test_lies_and_what_it_shares_says_with_which_others_it_runs(path, group):
    assert group_of(HERE / path) == group


def test_what_shares_is_run_by_one_worker_and_the_rest_by_all(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = tests\n")
    (tests / "sharing.py").write_text((HERE / "sharing.py").read_text())
    (tests / "conftest.py").write_text(
        "import pytest\nfrom sharing import Sharing, keep_together\n"
        "def pytest_xdist_make_scheduler(config, log): return Sharing(config, log)\n"
        "def pytest_runtest_setup(item): keep_together(item)\n"
    )
    (tests / "test_shared.py").write_text(SHARING)
    (tests / "test_alone.py").write_text(ALONE)
    report = tmp_path / "report.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", f"--junitxml={report}", "tests"],
        cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    workers = defaultdict(set)
    for case in ElementTree.parse(report).iter("testcase"):
        workers[case.get("classname").rpartition(".")[2]] |= {one.get("value") for one in case.iter("property")}
    assert len(workers["test_shared"]) == 1
    assert len(workers["test_alone"]) == 2
