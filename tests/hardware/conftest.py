"""Every test in this folder needs a real card; elsewhere it is skipped, with the command for a machine that has one."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    mine = [item for item in items if HERE in Path(item.path).parents]
    if not mine:
        return
    from jupyter_gpusched.gpus import probe

    cause = probe()
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        if cause is not None:
            item.add_marker(pytest.mark.skip(f"{cause} With a card: python tests/hardware/run.py"))
