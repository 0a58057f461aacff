"""Jobs that ended long ago go with their folders; what somebody still needs stays."""

from __future__ import annotations

from functools import partial

import pytest
from many_users import lab
from waiting import wait_for

from jupyter_gpusched import service
from jupyter_gpusched.core.usage import Holding
from jupyter_gpusched.retention import keep_clearing
from jupyter_gpusched.tending import DAY_S


@pytest.fixture
def kept(own_environment, tmp_path, monkeypatch):
    """A host that looks all the time, with the given settings."""
    monkeypatch.setattr(service, "keep_clearing", partial(keep_clearing, first_s=0.1, every_s=0.1))
    return partial(lab, own_environment, tmp_path)


def ended(host, user, *argv, **spec):
    job = host.submit(user, *argv, **spec)
    wait_for(lambda: host.ask(user, "GET", f"jobs/{job}").json["phase"] == "succeeded", "it does not end")
    return job


def gone(host, user, job):
    return host.ask(user, "GET", f"jobs/{job}").status == 404


def test_what_ended_long_ago_is_deleted_with_its_folder_and_what_still_runs_is_not(kept):
    """Long ago is three seconds here."""
    with kept(jobs_kept_days=3 / DAY_S) as host:
        running = host.submit("ann", "sleep", "600")
        old = [ended(host, user, "echo", "old") for user in ("ann", "bob")]
        folders = [host.desk.engine.folder(job) for job in old]
        wait_for(lambda: gone(host, "ann", old[0]) and gone(host, "bob", old[1]), "what is old stays")
        wait_for(lambda: not any(folder.exists() for folder in folders), "its folder stays")
        assert host.ask("ann", "GET", f"jobs/{running}").json["phase"] == "running", "submitted before them"
        deleted = [one for one in host.ask("root2", "GET", "admin/events").json["items"] if one["kind"] == "deleted"]
        assert [one["job_id"] for one in deleted] == old, "the oldest first"


def test_to_delete_what_has_ended_gives_nobody_a_better_place_also_not_after_a_restart(kept):
    def share(host):
        """Of ann's, as it counts at this moment."""
        return host.desk.engine.state.past.usage.share("ann", Holding(), 0.0)

    with kept() as host:
        jobs = [ended(host, "ann", "sleep", "0.2", gpus=2) for _ in range(2)]
        had = share(host)
        assert had > 0
        for job in jobs:
            wait_for(lambda job=job: host.ask("ann", "DELETE", f"jobs/{job}").status == 204, "it is not let go")
    with kept() as host:
        assert gone(host, "ann", jobs[0])
        assert share(host) == pytest.approx(had, rel=1e-3)
        more = ended(host, "ann", "sleep", "0.2", gpus=2)
        had = share(host)
        wait_for(lambda: host.ask("ann", "DELETE", f"jobs/{more}").status == 204, "it is not let go")
    with kept() as host:
        assert share(host) == pytest.approx(had, rel=1e-3)


def test_a_job_after_which_another_is_to_start_stays(kept):
    with kept(jobs_kept_days=1 / DAY_S) as host:
        parent = host.submit("ann", "sleep", "2")
        child = host.submit("ann", "true", after=[parent])
        assert host.ask("ann", "POST", f"jobs/{child}/hold", {}).status == 200
        wait_for(lambda: host.ask("ann", "GET", f"jobs/{parent}").json["phase"] == "succeeded", "it does not end")
        later = ended(host, "ann", "true")
        wait_for(lambda: gone(host, "ann", later), "what is old stays")
        assert not gone(host, "ann", parent)
        assert host.ask("ann", "POST", f"jobs/{child}/release", {}).status == 200
        wait_for(lambda: gone(host, "ann", child) and gone(host, "ann", parent), "both are old now")


def test_the_newest_of_too_many_stay(kept):
    with kept(jobs_kept_days=0.0, jobs_kept=2) as host:
        jobs = [ended(host, "ann", "true") for _ in range(5)]
        wait_for(lambda: all(gone(host, "ann", job) for job in jobs[:3]), "there are too many")
        assert not any(gone(host, "ann", job) for job in jobs[3:])
