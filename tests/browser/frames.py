"""A host of a test's own making for the page: it answers the browser with whatever the test says is so.

For what a real host on this machine cannot show: lost cards, strangers on a card, other users, no card at all.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pages import Page
from routes import routes


def gpu(index: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{index}", "index": index, "name": "NVIDIA RTX 4090", "parent_uuid": None, "total_mib": 24564,
        "reserved_mib": 400, "used_mib": 8192, "free_mib": 15972, "promised_mib": 0, "foreign_mib": 0,
        "available_mib": 15700, "utilization_pct": 37.0, "temperature_c": 61.0, "power_w": 210.0,
        "compute_mode": "default", "simulated": False,
        "health": {"status": "ok", "cause": None, "since": None, "by": None},
        "sampled_at": 1.7e9, "holders": [], "unattributed_mib": None, "device_file": None, "opened_by": [],
        "reservations": [],
    } | more  # fmt: skip


def holder(**more: Any) -> dict[str, Any]:
    return {
        "kind": "job", "state": "held", "job_id": None, "user": "bob", "pid": None, "vram_mib": 4096,
        "estimated": False, "promised_mib": 4096, "since": 1.7e9, "notebook": None, "mine": False,
    } | more  # fmt: skip


def job(job_id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": job_id, "kind": "cell", "name": job_id, "user": "ann", "phase": "running", "reason": None,
        "message": None, "waiting": None, "position": None, "in_line": True, "estimated_start": None,
        "estimated_start_range": None, "vram_mib": 4096,
        "gpus_requested": 1, "gpus": [], "cpus": None, "memory_mib": None, "priority": "normal",
        "submitted_at": 1.7e9, "started_at": 1.7e9, "ended_at": None, "exit_code": None, "signal": None,
        "used_vram_mib": None, "peak_vram_mib": None, "overuse_mib": None, "cap": None, "peak_rss_mib": None,
        "progress": None, "advice": None,
        "attempts": [], "notebook": None, "parent_id": None, "array_id": None, "tags": [], "simulated": False,
        "held": None, "after": [], "array_index": None, "sweep": None,
    } | more  # fmt: skip


def alert(alert_id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": alert_id, "kind": "driver", "message": "The driver does not answer.", "since": 1.7e9, "gpu_uuid": None,
        "gpu_index": None, "job_id": None, "user": None, "hint": None, "severity": "error",
    } | more  # fmt: skip


class Host:
    """Answers the page's WebSocket and REST; ``page`` is not loaded yet."""

    def __init__(
        self,
        page: Any,
        *,
        gpus: Any = (),
        jobs: Any = (),
        alerts: Any = (),
        cause: str | None = None,
        notices: Any = (),
        kind: str = "daemon",
        admin: bool = False,
        unseen: str | None = None,
    ) -> None:
        self._snapshot = {
            "type": "snapshot", "seq": 1, "gpus": list(gpus), "jobs": list(jobs), "alerts": list(alerts),
            "connected": True,
        }  # fmt: skip
        self._health = {
            "gpu_cause": cause, "notices": list(notices), "kind": kind, "pid": 4242, "version": "0.1.0",
            "state_dir": "/var/lib/jupyter-gpusched", "user": "ann", "admin": admin,
            "unseen": unseen,
        }  # fmt: skip
        self._sockets: list[Any] = []
        self.arrays: dict[str, Any] = {}  # the answers to GET arrays/ID
        self.ended: list[dict[str, Any]] = []  # the newest of the jobs that have ended
        if isinstance(page, Page):
            page = page.be_told()
        routes(page).add(re.compile(r"/gpusched/api/v1/"), self._answer)
        page.route_web_socket(re.compile(r"/gpusched/api/v1/stream"), self._begin)

    def send(self, frame: dict[str, Any]) -> None:
        for socket in self._sockets:
            socket.send(json.dumps(frame))

    def become(self, kind: str) -> None:
        """Another host takes over: the page has to connect again, and asks who it is."""
        self._health["kind"] = kind
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            socket.close()

    def _begin(self, socket: Any) -> None:
        self._sockets.append(socket)
        socket.send(json.dumps(self._snapshot))

    def _answer(self, route: Any) -> None:
        path, _, _ = route.request.url.partition("/gpusched/api/v1/")[2].partition("?")
        if path == "jobs":
            ended = self.ended if "ended=1" in route.request.url else []
            route.fulfill(json={"items": ended, "next_cursor": None})
        elif path.removeprefix("arrays/") in self.arrays:
            route.fulfill(json=self.arrays[path.removeprefix("arrays/")])
        elif path == "health":
            route.fulfill(json=self._health)
        else:
            route.fulfill(status=404, json={"error": {"code": "x", "message": "no", "field": None, "hint": None}})
