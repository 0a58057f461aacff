"""Two users of one Hub, one queue: each with their own jobs, run as themselves, found without being told where."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.hub


def test_jobs_of_two_users_run_as_themselves_through_one_service(ann, bob):
    for user in (ann, bob):
        view = user.wait(user.submit("sh", "-c", "id -un; umask; echo $HOME; pwd"))
        assert view["phase"] == "succeeded", view
        assert user.log(view["id"]).split() == [user.name, "0077", user.account.pw_dir, user.account.pw_dir]
