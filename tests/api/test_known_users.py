"""Whom a host knows: who could be a caller of it, and so have jobs for which cards are kept."""

from __future__ import annotations

import os
import pwd

import anyio
import pytest

from jupyter_gpusched.callers import ByPeer, OwnerOnly

OWN = pwd.getpwuid(os.geteuid()).pw_name


def test_a_host_for_one_user_knows_its_owner_alone():
    others = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != os.geteuid()]
    assert anyio.run(OwnerOnly().knows, OWN)
    assert not anyio.run(OwnerOnly().knows, others[0])


@pytest.mark.parametrize("name", ["nobody-of-this-name", "", "x\0y", "../root"])
def test_a_service_knows_the_users_of_its_machine_and_nobody_else(name):
    assert anyio.run(ByPeer().knows, OWN)
    assert not anyio.run(ByPeer().knows, name)
