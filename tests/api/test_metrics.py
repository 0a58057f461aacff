"""What monitoring is told: figures that agree with the cards and the queue, and nobody's name."""

from __future__ import annotations

import pytest
from many_users import Loads, OutsideUse, lab
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_for

from jupyter_gpusched.core.model import Foreign, Phase
from jupyter_gpusched.core.state import State
from jupyter_gpusched.telemetry import WAITS_S, Counts, Machine, exposition
from tests.core.conftest import SETTINGS

SECRET = "secret-of-ann"
MIB = 2**20


@pytest.fixture
def queue(own_environment, tmp_path):
    with lab(own_environment, tmp_path) as running:
        yield running


class Told:
    """Samples by name and labels."""

    def __init__(self, text):
        families = list(text_string_to_metric_families(text))
        self.kinds = {family.name: family.type for family in families}
        self.samples = [sample for family in families for sample in family.samples]

    def __call__(self, name, /, **labels):
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return found[0] if found else None

    def all(self, name, /, **labels):
        return [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]


def metrics(queue, user="bob"):
    reply = queue.ask(user, "GET", "metrics")
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return Told(reply.body.decode())


def phase_of(queue, user, job):
    return queue.ask(user, "GET", f"jobs/{job}").json["phase"]


def test_of_each_card_is_told_what_the_list_of_cards_says(queue):
    Loads(queue).pct = 30.0
    job = queue.submit("ann", "sleep", "600", gpus=1, vram="2G")
    wait_for(lambda: phase_of(queue, "ann", job) == "running", "it does not start")
    wait_for(lambda: metrics(queue).all("gpusched_gpu_utilization_ratio") == [0.3, 0.3], "there is no look")
    told, cards = metrics(queue), queue.ask("bob", "GET", "gpus").json["items"]
    assert sorted(told.all("gpusched_gpu_memory_promised_bytes")) == [0, 2048 * MIB]
    for card in cards:
        labels = {"gpu": str(card["index"]), "uuid": card["uuid"], "name": card["name"]}
        for figure in ("total", "used", "free", "promised", "foreign", "available"):
            assert told(f"gpusched_gpu_memory_{figure}_bytes", **labels) == card[f"{figure}_mib"] * MIB, figure
        assert told("gpusched_gpu_health", status="ok", **labels) == 1
        assert told("gpusched_gpu_health", status="lost", **labels) == 0
    assert told.all("gpusched_gpu_temperature_celsius") == [], "what is not known is left out"


def test_jobs_are_counted_by_phase_and_each_end_once(queue):
    running = queue.submit("ann", "sleep", "600", gpus=2, vram="20G")
    wait_for(lambda: phase_of(queue, "ann", running) == "running", "it does not start")
    waiting = queue.submit("ann", "true", gpus=2)
    held = queue.submit("bob", "true", gpus=2)
    assert queue.ask("bob", "POST", f"jobs/{held}/hold", {}).status == 200
    told = metrics(queue)
    assert [told("gpusched_jobs", phase=phase) for phase in ("queued", "running", "stopping")] == [2, 1, 0]
    assert told("gpusched_jobs_set_aside") == 1
    assert 0 <= told("gpusched_longest_wait_seconds") < 600
    assert told("gpusched_wait_seconds_count") == told("gpusched_wait_seconds_bucket", le="+Inf") == 1
    queue.ask("ann", "POST", f"jobs/{waiting}/cancel", {})
    queue.ask("ann", "POST", f"jobs/{running}/cancel", {"grace": "0s"})
    done = queue.submit("ann", "true", gpus=1, vram="1G")
    wait_for(lambda: phase_of(queue, "ann", done) == "succeeded", "it does not end")
    wait_for(lambda: not metrics(queue)("gpusched_jobs", phase="stopping"), "it does not end")
    wait_for(lambda: queue.ask("ann", "DELETE", f"jobs/{done}").status == 204, "its memory is not freed")
    told = metrics(queue)
    ends = {phase: told("gpusched_jobs_ended_total", phase=phase) for phase in ("succeeded", "cancelled", "failed")}
    assert ends == {"succeeded": 1, "cancelled": 2, "failed": 0}, "to let go of memory, or to be deleted, is no end"
    assert told("gpusched_longest_wait_seconds") is None, "nobody waits who could start"
    assert told("gpusched_wait_seconds_count") == 2
    assert told.kinds["gpusched_jobs_ended"] == "counter"
    assert told.kinds["gpusched_wait_seconds"] == "histogram"


def test_no_label_names_anybody_or_anything_of_theirs(queue):
    """Nor to administrators: what they may know is not for whoever reads the monitoring."""
    outside = OutsideUse(queue)
    outside.on[1] = Foreign(4711, 2048, "zoe", 1.0, kernel=True, notebook=f"/home/zoe/{SECRET}.ipynb")
    mine = {"name": SECRET, "env": {"WORD": SECRET}, "tags": [SECRET]}
    job = queue.submit("ann", "sh", "-c", f": {SECRET}; sleep 600", gpus=1, vram="1G", **mine)
    wait_for(lambda: phase_of(queue, "ann", job) == "running", "it does not start")
    wait_for(lambda: 2048 * MIB in metrics(queue).all("gpusched_gpu_memory_foreign_bytes"), "it is not seen")
    queue.ask("root2", "POST", "admin/drain", {"cause": SECRET})
    queue.ask("root2", "POST", "admin/quarantine", {"gpu": 1, "cause": SECRET})
    for user in ("ann", "bob", "root2"):
        told = metrics(queue, user)
        assert told("gpusched_drained") == 1
        assert told("gpusched_alerts", kind="quarantined", severity="warning") == 1
        labels = {name for one in told.samples for name in one.labels}
        assert labels <= {"gpu", "uuid", "name", "status", "phase", "kind", "severity", "le", "version", "simulated"}
        text = queue.ask(user, "GET", "metrics").body.decode()
        assert [word for word in (SECRET, job, "ann", "zoe", "root2", "4711", "/") if word in text] == []


def test_without_cards_and_jobs_there_is_still_an_answer():
    nothing = Machine(State.begin(SETTINGS), 0.0, [], [], Counts(), simulated=False, writable=False)
    told = Told(exposition(nothing).decode())
    assert told("gpusched_journal_writable") == 0
    assert told.all("gpusched_gpu_memory_used_bytes") == []
    assert len(told.all("gpusched_wait_seconds_bucket")) == len(WAITS_S) + 1
    assert sum(told.all("gpusched_jobs")) == 0
    assert len(told.all("gpusched_jobs")) == sum(not phase.final for phase in Phase)
