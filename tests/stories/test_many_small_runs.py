"""Story 2, many small runs on cards that others use too: a batch, and a colleague who asks nobody."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from many_users import OutsideUse, lab
from waiting import wait_for

from jupyter_gpusched.core.model import Foreign

G = 1024
RUNS = 120
"""Of the five hundred, as many as a small machine starts in a test."""
INTERVAL_S = 0.2

BY_HAND = Foreign(4711, 20 * G, "bob", 1.0)

RUN = r"""
n=$1; marks=$2
[ -e "$marks/go" ] || { touch "$marks/waits-$n"; while [ ! -e "$marks/go" ]; do sleep 0.1; done; }
if [ $((n % 40)) = 7 ] && [ ! -e "$marks/oom-$n" ]; then
    touch "$marks/oom-$n"
    echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.'
    exit 1
fi
[ $((n % 60)) = 11 ] && exit 3
exit 0
"""


@pytest.fixture
def cards(own_environment, tmp_path):
    settings = {"simulate": "4x24564M", "sample_interval_s": INTERVAL_S, "cpus": 64}
    with lab(own_environment, tmp_path, **settings) as running:
        yield running


def jobs(cards, query=""):
    return cards.ask("ann", "GET", f"jobs?limit=1000{query}").json["items"]


def phases(cards):
    return Counter(job["phase"] for job in jobs(cards))


def test_a_batch_runs_beside_a_colleagues_process_and_every_run_is_accounted_for(cards, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(RUN)
    outside = OutsideUse(cards)
    outside.on[3] = BY_HAND
    wait_for(lambda: cards.ask("ann", "GET", "gpus").json["items"][3]["holders"], "the process is not seen")

    # 1: one answer with all ids
    spec = {"gpus": 1, "vram": "4G", "retries": 3, "on_oom": "retry"}
    batch = [
        spec | {"argv": ["sh", str(script), str(number), str(tmp_path)], "name": f"run-{number:03}"}
        for number in range(RUNS)
    ]
    answer = cards.ask("ann", "POST", "jobs", {"jobs": batch, "array": {}})
    assert answer.status == 201
    ids = answer.json["ids"]
    assert len(set(ids)) == RUNS
    refused = cards.ask("ann", "POST", "jobs", {"jobs": [*batch[:3], {"argv": ["true"], "vram": "99G"}]})
    assert refused.status == 422
    assert len(jobs(cards)) == RUNS, "all or none"

    # 2, 3: packed by what they ask for, and none on the card that is used by hand
    wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 3 * 5, "they are not packed")
    shown = cards.ask("ann", "GET", "gpus").json["items"]
    held = [len([one for one in card["holders"] if one["kind"] == "job"]) for card in shown]
    assert held == [5, 5, 5, 0], "20G are used by hand: there is no room for 4G"
    assert [(one["user"], one["vram_mib"]) for one in shown[3]["holders"] if one["kind"] == "foreign"] == [
        ("bob", 20 * G)
    ]

    # 4: why one waits, and where it stands
    last = cards.ask("ann", "GET", f"jobs/{ids[-1]}").json
    assert last["position"] == RUNS - 15
    assert "4.0G" in last["waiting"]

    # 6: 40 of them are cancelled by the pattern of their names, of one's own only
    assert cards.ask("new", "POST", "jobs/cancel", {"name": "run-*"}).json["ids"] == []
    cancelled = []
    for pattern in ("run-08?", "run-09?", "run-10?", "run-11?"):
        cancelled += cards.ask("ann", "POST", "jobs/cancel", {"name": pattern}).json["ids"]
    assert len(cancelled) == 40
    assert sum(phases(cards).values()) == RUNS

    # 7: the colleague's process ends, and the card is used again without any call
    outside.on.clear()
    ended = time.monotonic()
    wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 4 * 5, "the card is not used again")
    assert time.monotonic() - ended < 2 * INTERVAL_S + 10, "two intervals, and four starts on a loaded machine"

    # 5, 8: those that ran out of memory are tried again, the others are told apart, and only failures run again
    (tmp_path / "go").touch()
    going = {"queued", "starting", "running", "stopping"}
    wait_for(lambda: not phases(cards).keys() & going, "they do not end", deadline_s=120)
    assert phases(cards) == {"succeeded": RUNS - 40 - 2, "cancelled": 40, "failed": 2}
    assert not [one for number in range(80, RUNS) for one in tmp_path.glob(f"*-{number}")], "none of the 40 ever ran"
    table = {job["name"]: job for job in jobs(cards)}
    short = [job for job in table.values() if job["attempts"] and job["attempts"][0]["reason"] == "cuda_oom"]
    assert {(job["name"], job["phase"], len(job["attempts"])) for job in short} == {
        ("run-007", "succeeded", 2),
        ("run-047", "succeeded", 2),
    }
    assert {name: job["exit_code"] for name, job in table.items() if job["phase"] == "failed"} == {
        "run-011": 3,
        "run-071": 3,
    }
    assert all(job["started_at"] and job["ended_at"] for job in table.values() if job["phase"] == "succeeded")
    more = cards.ask("ann", "POST", f"jobs/{answer.json['array_id']}/resubmit", {})
    assert more.status == 201
    assert len(more.json["ids"]) == 2 + 40, "what has not succeeded, and no success"
