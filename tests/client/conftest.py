"""A host that is only a dictionary, for tests of what stands in front of the client."""

import pickle
import sys
import threading
from collections import Counter

import cloudpickle
import pytest

from jupyter_gpusched import session
from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import UnknownJob


def a_view(job_id="abcd1234", phase="queued", **changes):
    view = {
        "id": job_id, "kind": "cell", "name": "train()", "user": "ada", "phase": phase, "reason": None,
        "message": None, "waiting": "needs 6.0G on 1 GPU; best is GPU 0: 2.0G free" if phase == "queued" else None,
        "position": 1 if phase == "queued" else None, "in_line": phase == "queued",
        "explanation": None, "estimated_start": None, "estimated_start_range": None,
        "vram_mib": 6144, "gpus_requested": 1,
        "gpus": [], "cpus": None, "memory_mib": None, "priority": "normal", "submitted_at": 1000.0, "started_at": None,
        "ended_at": None, "exit_code": None, "signal": None, "used_vram_mib": None, "peak_vram_mib": None,
        "overuse_mib": None, "cap": None, "peak_rss_mib": None, "progress": None, "time_limit_s": None,
        "advice": None, "attempts": [], "notebook": None, "parent_id": None,
        "array_id": None, "tags": [], "simulated": True, "outputs": [],
        "held": None, "after": [], "array_index": None, "sweep": None,
    }  # fmt: skip
    return view | changes


def a_gpu(index=0, **changes):
    gpu = {
        "uuid": f"GPU-{index}", "index": index, "name": "Simulated 8G", "parent_uuid": None, "total_mib": 8192,
        "reserved_mib": 0, "used_mib": 6144, "free_mib": 2048, "promised_mib": 6144, "foreign_mib": 0,
        "available_mib": 2048, "utilization_pct": None, "temperature_c": None, "power_w": None, "compute_mode": None,
        "health": {"status": "ok", "cause": None, "since": None}, "simulated": True, "sampled_at": 1000.0,
        "holders": [],
    }  # fmt: skip
    return gpu | changes


class FakeHost:
    """Has the methods of ``Client``; ends a job when it is waited for."""

    def __init__(self):
        self.specs = []
        self.resubmissions = []
        self.listened = threading.Event()
        self.views = {}
        self.logs = {}
        self.lines = {}
        self.results = {}
        self.timelines = {}
        self.advice = None
        self.cards = [a_gpu()]
        self.ending = {"phase": "succeeded", "exit_code": 0, "started_at": 1001.0, "ended_at": 1005.0}
        self.starts = []
        self.standing, self.orders = [], []
        self.on_wait = None
        self.arrays, self.acts = [], []

    def submit(self, spec):
        job_id = f"job{len(self.specs):05d}"
        self.specs.append(spec)
        self.views[job_id] = a_view(job_id, kind=spec["kind"], outputs=spec.get("outputs", []), advice=self.advice)
        return job_id

    def submit_array(self, common, elements, *, throttle=None):
        ids = [self.submit({**common, **element}) for element in elements]
        self.arrays.append((common, elements, throttle))
        for number, job_id in enumerate(ids):
            self.views[job_id] |= {
                "array_id": "array001", "array_index": number, "sweep": elements[number].get("sweep"),
            }  # fmt: skip
        return "array001", ids

    def array(self, array_id):
        found = [view for view in self.views.values() if view["array_id"] == array_id]
        if not found:
            raise UnknownJob(array_id)
        phases = Counter(view["phase"] for view in found)
        return {
            "id": array_id, "name": found[0]["name"], "user": "ada", "kind": "script", "count": len(found),
            "phases": dict(phases), "held": 0, "throttle": None, "submitted_at": 1000.0,
        }  # fmt: skip

    def hold(self, job_id, cause=None):
        self.acts.append(("hold", job_id, cause))
        return self.job(job_id) if job_id != "array001" else {"ids": ["job00000", "job00001"]}

    def release_job(self, job_id):
        self.acts.append(("release", job_id))
        return self.job(job_id) if job_id != "array001" else {"ids": ["job00000"]}

    def act_by_name(self, act, pattern, **more):
        self.acts.append((act, pattern, more))
        return ["job00000", "job00001"]

    def resubmit_any(self, target, changes=None):
        if target == "array001":
            self.resubmissions.append((target, changes))
            return {"array_id": "array002", "ids": ["again000"]}
        return {"id": self.resubmit(target, changes)}

    def resubmit(self, job_id, changes=None):
        self.job(job_id)
        self.resubmissions.append((job_id, changes or {}))
        self.views["again000"] = a_view("again000", parent_id=job_id)
        return "again000"

    def events(self, after=None):
        yield {"type": "snapshot", "seq": 1, "jobs": list(self.views.values()), "gpus": self.cards}
        self.listened.wait(10)

    def me(self):
        return self.health()["user"]

    def health(self):
        return {"gpu_cause": "no driver is loaded", "user": "ada"}

    def gpus(self):
        return self.cards

    def alerts(self):
        return self.standing

    def quarantine(self, gpu, cause=None):
        self.orders.append(("quarantine", gpu, cause))
        return self.cards[0] | {"health": {"status": "quarantined", "cause": cause, "since": 1.0, "by": "ann"}}

    def release(self, gpu, cause=None):
        self.orders.append(("release", gpu, cause))
        return self.cards[0]

    def drain(self, cause=None):
        return {"drained": {"since": 1.0, "by": "ann", "cause": cause}}

    def resume(self, cause=None):
        return {"drained": None}

    def jobs(self, *, phase=None, name=None, array=None, limit=None, all_users=False):
        views = [v for v in self.views.values() if phase in (None, v["phase"]) and name in (None, v["name"])]
        views = [view for view in views if array in (None, view["array_id"])]
        return views[::-1][:limit]

    def job(self, job_id):
        if job_id not in self.views:
            raise UnknownJob(job_id)
        return self.views[job_id]

    def spec(self, job_id):
        outputs = self.job(job_id)["outputs"]
        return {"source": "train()"} | ({"outputs": outputs} if outputs else {})

    def wait(self, job_id, timeout=None):
        if self.on_wait is not None:
            self.on_wait()
        if timeout is None or timeout > 0.5:
            self.views[job_id] = self.job(job_id) | self.ending
        return self.job(job_id)

    def cancel(self, job_id, grace=None):
        self.views[job_id] = self.job(job_id) | {"phase": "cancelled", "reason": "cancelled", "message": grace}
        return self.views[job_id]

    def log(self, job_id, *, offset=0, limit=None, attempt=None):
        self.job(job_id)
        end = None if limit is None else offset + limit
        return self.logs.get(job_id, b"")[offset:end]

    def timeline(self, job_id, *, attempt=None):
        return self.timelines.get((job_id, attempt), [])

    def log_tail(self, job_id, most):
        return self.log(job_id)[-most:]

    def whole_log(self, job_id, *, attempt=None):
        yield self.log(job_id)

    def follow(self, job_id):
        text = self.log(job_id)
        yield from (text[at : at + 5] for at in range(0, len(text), 5))

    def outputs(self, job_id, *, after=0):
        lines = self.lines.get(job_id, [])[after : after + 2]
        return lines, after + len(lines), True

    def result(self, job_id, name):
        return self.results[job_id, name]


def a_result(value, python=None):
    """The file of one variable as a job writes it."""
    return pickle.dumps(
        {
            "__gpusched__": 1,
            "python": python or list(sys.version_info[:2]),
            "type": type(value).__name__,
            "value": cloudpickle.dumps(value),
        },
        protocol=4,
    )


@pytest.fixture(name="a_view")
def _a_view():
    return a_view


@pytest.fixture(name="a_gpu")
def _a_gpu():
    return a_gpu


@pytest.fixture(name="a_result")
def _a_result():
    return a_result


@pytest.fixture
def fake_host(monkeypatch):
    host = FakeHost()

    def connect(cls, *, start=False, environ=None):
        host.starts.append(start)
        return host

    monkeypatch.setattr(Client, "connect", classmethod(connect))
    monkeypatch.setattr(session, "_found", {})
    return host
