"""Who stands where in the queue at one moment, and where somebody would stand who has come since.

To put a deep queue in order takes as long as thousands of decisions, and many look at it: what was
worked out a moment ago serves them too. Nothing is decided here.
"""

from __future__ import annotations

from bisect import bisect_left

from .facts import Facts, placed
from .model import Job, JobId, Priority
from .state import State


class Standing:
    """Of the queued jobs of a state, at ``now``."""

    def __init__(self, state: State, now: float) -> None:
        self.state, self.now = state, now
        self._facts = Facts(state, now)
        self._places = placed(state, self._facts)
        self._ranks: dict[JobId, int] = {job_id: at for at, (_, job_id) in enumerate(self._places, start=1)}
        aside = enumerate((job_id for _, job_id in state.asides.waiting), start=len(self._places) + 1)
        self._aside: dict[JobId, int] = {job_id: at for at, job_id in aside}

    def position(self, job: Job) -> int:
        """From 1, in the order in which jobs are looked at; those that are set aside come last, by age."""
        if job.set_aside:
            return self._aside.get(job.id) or len(self._places) + len(self._aside) + 1
        rank = self._ranks.get(job.id)
        if rank is not None:
            return rank
        facts = self._facts
        place = facts.place(job, facts.expected_s(job), facts.part(job.request))
        return bisect_left(self._places, (place, job.id)) + 1

    def positions(self) -> dict[JobId, int]:
        """Of everybody who waited then."""
        return self._ranks | self._aside

    def words(self, job: Job) -> str:
        """Its place, and who is before it, without saying whose jobs they are."""
        at = self.position(job)
        known = (self.state.jobs.get(job_id) for _, job_id in self._places[: at - 1])
        before = [other for other in known if other is not None]
        urgent = sum(other.priority is Priority.HIGH for other in before)
        own = sum(other.owner == job.owner for other in before)
        parts = [f"{urgent} urgent" if urgent else "", f"{own} of the same owner" if own else ""]
        those = ", ".join(part for part in parts if part)
        waiting = len(self._places) + (job.id not in self._ranks)
        return f"number {at} of {waiting} in the queue" + (f"; before it {those}" if those else "")
