"""One prepared environment and its unix users for all tests of the Hub, and the reason where there is none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bed import Bed, Hub, User

PREPARED = os.environ.get("GPUSCHED_TEST_HUB", "")
_COMMAND = (
    "python tests/hub/prepare.py /tmp/gpusched-hub, then GPUSCHED_TEST_SYSTEM=1 GPUSCHED_TEST_HUB=/tmp/gpusched-hub"
)


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "unix users are added by root only"
    if os.environ.get("GPUSCHED_TEST_SYSTEM") != "1":
        return "unix users are added only when that is allowed"
    if not (PREPARED and (Path(PREPARED) / "node_modules/.bin/configurable-http-proxy").exists()):
        return "there is no prepared JupyterHub"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = _missing()
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("hub"):
            item.add_marker(pytest.mark.timeout(600))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{missing}: as root, {_COMMAND} pytest tests/hub"))


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    bed = Bed(Path(PREPARED))
    try:
        yield bed
    finally:
        bed.close()


@pytest.fixture(scope="session")
def people(bed: Bed) -> dict[str, str]:
    """Names of unix users, by their part in a test."""
    return {part: bed.add_user(f"gs{os.getpid()}{part}") for part in ("ann", "bob", "adm", "eve")}


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that all users can enter, for the files of Hubs."""
    with tempfile.TemporaryDirectory(prefix="gpusched-hub-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def hub(bed: Bed, people: dict[str, str], place: Path) -> Iterator[Hub]:
    """A Hub with our service on two simulated cards, as `configure` makes it."""
    users = (people["ann"], people["bob"], people["eve"])
    hub = Hub(bed, place / "hub", users, admins=(people["adm"],), options=("--GpuSched.cpus=8",))
    try:
        hub.wait_for_service()
        yield hub
    finally:
        hub.close()


@pytest.fixture(scope="session")
def ann(hub: Hub, people: dict[str, str]) -> User:
    return hub.start_server(people["ann"])


@pytest.fixture(scope="session")
def bob(hub: Hub, people: dict[str, str]) -> User:
    return hub.start_server(people["bob"])


@pytest.fixture(scope="session")
def adm(hub: Hub, people: dict[str, str]) -> User:
    return hub.start_server(people["adm"])
