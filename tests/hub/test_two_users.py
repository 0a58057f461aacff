"""Two users of one Hub, one queue: each with their own jobs, run as themselves, found without being told where."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.hub


def test_jobs_of_two_users_run_as_themselves_through_one_service(ann, bob):
    for user in (ann, bob):
        view = user.wait(user.submit("sh", "-c", "id -un; umask; echo $HOME; pwd"))
        assert view["phase"] == "succeeded", view
        assert user.log(view["id"]).split() == [user.name, "0077", user.account.pw_dir, user.account.pw_dir]


def test_a_terminal_of_the_server_finds_the_service_and_doctor_is_content(ann):
    told = ann.kernel.run("!python -m jupyter_gpusched.cli submit --wait --vram 1G -- sh -c 'echo from a terminal'")
    assert ann.log(told.split()[-1]) == "from a terminal\n"
    health = ann.kernel.run("!python -m jupyter_gpusched.cli doctor; echo exit $?")
    assert "exit 0" in health, health
    assert ann.hub.service_url in health, health
