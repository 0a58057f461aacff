"""Running ``async`` tests against pytest-jupyter's server.

pytest-jupyter is not loaded as a plugin: its hooks and automatic fixtures would then hold for
every test of the session, also for those that run loops of their own. The modules that want
its fixtures import them.
"""

from __future__ import annotations

import asyncio

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.funcargs["jp_asyncio_loop"].run_until_complete(pyfuncitem.obj(**arguments))
    return True
