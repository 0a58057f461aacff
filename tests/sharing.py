"""Which tests share something, so that one worker runs them all, one after another.

pytest-xdist has groups of its own (``--dist loadgroup``), which it writes into the names of tests; pytest 9.2 does not
let it, and then every test is handed out by itself without a word: each worker starts its own JupyterLab for each file.
So tests are handed out here by where they are, and ``keep_together`` fails what two workers share none the less.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
OF_THE_MACHINE = ("hub", "system", "hardware")


@cache
def group_of(path: Path) -> str | None:
    """Browsers are heavy, so that there is one at a time; users, services and the card are the whole machine's."""
    folder = path.relative_to(HERE).parts[0]
    if folder == "browser":
        return folder
    if folder in OF_THE_MACHINE:
        return "machine"
    return path.stem if 'scope="module"' in path.read_text() else None


class Sharing(LoadScopeScheduling):
    """Hands out whole groups, the largest first, and what shares nothing test by test."""

    def _split_scope(self, nodeid: str) -> str:
        path = Path(self.config.rootpath, nodeid.partition("::")[0])
        inside = path.is_relative_to(HERE)
        return (group_of(path) if inside else None) or nodeid


def keep_together(item: pytest.Item) -> None:
    """Fail a test whose group another worker has begun, or which shares without being in a group."""
    worker = getattr(item.config, "workerinput", None)
    if worker is None or not item.path.is_relative_to(HERE):
        return
    group = group_of(item.path)
    shares = any(defs[-1].scope == "module" for defs in item._fixtureinfo.name2fixturedefs.values())
    assert group or not shares, f"{item.path} shares a fixture, and no group is found for it"
    if group:
        folder = item.config._tmp_path_factory.getbasetemp().parent / "groups"
        folder.mkdir(exist_ok=True)
        owner = folder / f"{group}-{worker['testrunuid']}"
        try:
            owner.open("x").write(worker["workerid"])
        except FileExistsError:
            found = owner.read_text()
            assert found == worker["workerid"], f"{found} and {worker['workerid']} both run tests of the group {group}"
