"""Idempotency keys of submissions: which job had a key first, also while it is being written down.

A key belongs to an owner. The journal knows those on disk; here are those on their way there,
so that two submissions of the same moment cannot both be the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import anyio
import anyio.to_thread

from .core.model import Job, JobId
from .ports import Store

Key = tuple[str, str]
"""An owner and an idempotency key of theirs."""


class Keys:
    """Used from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[Key, asyncio.Future[None]] = {}
        self._ids: dict[Key, JobId] = {}

    async def known(self, jobs: Sequence[Job]) -> dict[JobId, JobId | None]:
        """For each job the one that has its key already, be it an earlier one of the same batch; None for a first."""
        keys = {key for job in jobs if (key := _key(job)) is not None}
        taken: dict[Key, JobId] = {}
        while keys:
            taken |= await self._being_written(keys)
            taken |= await anyio.to_thread.run_sync(self._written, keys - taken.keys())
            if not (keys - taken.keys()) & self._pending.keys():  # nobody else brought one of them while we looked
                break
        known: dict[JobId, JobId | None] = {}
        for job in jobs:
            key = _key(job)
            first = job.id if key is None else taken.setdefault(key, job.id)
            known[job.id] = None if first == job.id else first
        return known

    def bring(self, jobs: Sequence[Job], done: asyncio.Future[None]) -> None:
        """These jobs bring their keys; ``done`` is set once they are written down, or could not be."""
        brought = {key: job.id for job in jobs if (key := _key(job)) is not None}
        self._pending.update(dict.fromkeys(brought, done))
        self._ids.update(brought)
        done.add_done_callback(lambda _written: self._forget(brought, done))

    async def _being_written(self, keys: set[Key]) -> dict[Key, JobId]:
        """Keys that another submission brought a moment ago, once it is on disk."""
        found: dict[Key, JobId] = {}
        for key in keys & self._pending.keys():
            if (pending := self._pending.get(key)) is not None:
                found[key] = self._ids[key]
                await asyncio.shield(pending)
        return found

    def _written(self, keys: set[Key]) -> dict[Key, JobId]:
        """Keys that the journal knows; one look for all, beside the loop."""
        return {key: job_id for key in keys if (job_id := self._store.find_key(*key)) is not None}

    def _forget(self, keys: dict[Key, JobId], done: asyncio.Future[None]) -> None:
        for key in keys:
            if self._pending.get(key) is done:  # else somebody has brought it anew meanwhile
                del self._pending[key]
                del self._ids[key]


def _key(job: Job) -> Key | None:
    return None if job.idempotency_key is None else (job.owner, job.idempotency_key)
