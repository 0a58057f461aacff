"""Starts attempts as processes on this machine, and watches them through their supervisors.

Event-driven inside the engine's loop: the end of a pipe says that an attempt has started,
process descriptors say that its main process or its supervisor has ended, and the files of
``launch/attempt.py`` say what happened. Each attempt gets exactly one last event. Watching
can stop at any time; the attempts go on. A service that runs as root starts each as its owner,
and signals no process but that owner's, whatever is written in the owner's folder.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpusched.core.messages import Event, Exited, LaunchFailed, MainEnded, Started, Vanished, Voided
from jupyter_gpusched.core.model import Job, JobId, Phase
from jupyter_gpusched.ports import Clock, LaunchOrder, Report
from jupyter_gpusched.runner import cgroup

from . import attempt as files
from . import processes
from .ends import exit_record
from .fence import Fence
from .homes import Homes, clear
from .logs import log_tail
from .means import Means
from .nursery import of_supervisors
from .orders import PLAIN
from .owners import NoSuchOwner, Owners, ourselves
from .prepared import PreparedCells
from .spawn import last_words
from .starts import Starter
from .values import as_text
from .watch import Watch, Whose, home_of

log = logging.getLogger(__name__)

ORDINARY_END_S = 0.2
"""So long after its main process an attempt ends without having left anything behind."""

SWEEP_S = 10.0
"""So long SIGKILL is repeated on what a dead supervisor left, before it is named and let go."""

ENFORCED_S = 20.0
"""So long after its grace, or after its end was told, another user's attempt may still end by its supervisor's hand."""

ECHOES = 10_000
"""So many ended attempts are remembered; an echo comes within a batch of the engine, not thousands later."""

STARTED = b"\0"
"""What a supervisor says once its job runs."""

_KILLED = "lost: its supervisor was killed, so nobody knows how it ended"
_START_GONE = "lost: the record of its start is gone from the job's folder, so nobody knows how it ended"
_SPOILT = "lost: the record of who runs it was spoilt in the job's folder, so nobody knows how it ended"

_NOT_SEEN_TO_START = frozenset({Phase.STARTING, Phase.STOPPING})


class LocalLauncher:
    """The ``Launcher`` of ``ports.py`` for this machine; its methods are called inside the engine's loop.

    spares    so many supervisors are kept ready once the first attempt was started.
    prepared  for so many kinds of cells a process is kept prepared once the first of its kind was started.
    owners    finds the unix user as whom the jobs of an owner run.
    homes     makes cgroups for what runs as others.
    fence     hides from what runs as others what is not theirs.
    """

    def __init__(
        self,
        report: Report,
        *,
        clock: Clock = time.time,
        environ: Mapping[str, str] = os.environ,
        log_limit: int | None = None,
        means: Means = PLAIN,
        spares: int = 0,
        prepared: int = 0,
        owners: Owners = ourselves,
        homes: Homes | None = None,
        fence: Fence | None = None,
    ) -> None:
        self._report = report
        self._means = means
        self._whose = Whose(owners)
        self._clock = clock
        self.nursery = of_supervisors(environ, spares, means.cgroups)
        self.prepared = PreparedCells(prepared, means.cgroups)
        self._homes = homes
        self._starter = Starter(self.nursery, self.prepared, environ, log_limit, homes, fence)
        self._watches: dict[tuple[JobId, int], Watch] = {}
        self._settled: dict[tuple[JobId, int], None] = {}  # whose last event was reported: a later stop is an echo

    # What the engine asks for

    def prepare(self, order: LaunchOrder) -> None:
        if self._means.scope is None:
            with suppress(OSError, ValueError, NoSuchOwner):  # the launch will say why
                if self._whose.owner(order.job) is None:
                    self._starter.prepare(order, self._means)

    def go(self, job_id: JobId, attempt: int) -> None:
        self._starter.go(job_id, attempt)

    def give_up(self, job_id: JobId, attempt: int) -> None:
        self._starter.give_up(job_id, attempt)

    def launch(self, order: LaunchOrder) -> None:
        watch = self._follow(order.job, order.attempt, order.folder)
        watch.marker = secrets.token_hex(16)
        watch.order = order
        self._spawn(watch, order, watch.marker, spare=self._means.scope is None)

    def _spawn(self, watch: Watch, order: LaunchOrder, marker: str, *, spare: bool = False) -> None:
        watch.means = self._means
        try:
            self._starter.start(watch, order, marker, self._whose.owner(order.job), spare=spare)
        except NoSuchOwner as error:
            self._unlaunched(watch, f"it cannot be run: {error}; ask the administrator of this machine")
            return
        except (OSError, ValueError) as error:
            self._unlaunched(watch, f"it could not be started on this machine: {error}")
            return
        assert watch.child is not None
        assert watch.wake is not None
        watch.supervisor = {"pid": watch.child, "start_time": watch.spare_since}
        self._loop.add_reader(watch.wake, self._heard, watch)
        self._on_end(watch, watch.child, watch.spare_since, self._supervisor_ended)

    def _spawn_again(self, watch: Watch, order: LaunchOrder, marker: str) -> None:
        """It ended before it had the attempt. A spare may have been killed while it waited: start one singly.

        Otherwise the way out of this server's service has closed since it was tried: start it inside, and all others.
        """
        if watch.spare_since is None:
            log.warning("jobs end with this server from now on: %s", last_words(watch.said))
            self._means = replace(self._means, scope=None)
        self._hang_up(watch)
        watch.said, watch.reaped, watch.spare_since = b"", False, None
        self._spawn(watch, order, marker)

    def stop(self, job: Job, attempt: int, reason: str, grace_s: float, folder: Path) -> None:
        if (job.id, attempt) in self._settled:
            return
        watch = self._watches.get((job.id, attempt)) or self._watch(job, attempt, folder)
        try:
            if not watch.started and self._claim_void(watch, reason):
                self._settle_void(watch)
                return
            with suppress(OSError):  # without its file the supervisor still ends it, with the job's own grace
                files.write_stop(folder, attempt, reason, grace_s)
        except OSError as error:
            log.warning("job %s: cannot be stopped yet, trying again in a second: %s", job.id, error)
            watch.timers.append(self._loop.call_later(1.0, self.stop, job, attempt, reason, grace_s, folder))
            return
        claim = files.read_claim(folder, attempt)
        if not watch.started and (claim is None or claim.get("void")):
            self._settle_void(watch)
            return
        if watch.uid is not None and watch.key in self._watches:
            watch.timers.append(self._loop.call_later(grace_s + ENFORCED_S, self._enforce, watch))
        spoilt = claim is None or claim["pid"] is None or watch.uid is not None
        if spoilt and watch.child is not None:  # whatever became of its claim, we know our own child
            if not watch.reaped:
                with suppress(ProcessLookupError):
                    processes.ask_to_end(watch.child, watch.spare_since)
            return
        supervisor = watch.supervisor if claim is None or claim["pid"] is None else claim
        if not (supervisor and processes.terminate(supervisor, watch.uid)) and watch.key not in self._watches:
            self.adopt(job, attempt, folder)

    def _enforce(self, watch: Watch) -> None:
        """The owner's supervisor should have ended it by now: it may be no supervisor any more."""
        if not watch.settled:
            self._end_all(watch)

    def _end_all(self, watch: Watch) -> None:
        log.warning("job %s: its supervisor does not end it, so that all of it is killed", watch.job.id)
        main = None if watch.child is None or watch.reaped else processes.identity(watch.child)
        processes.kill_left(watch.marker, main or watch.supervisor, watch.home, uid=watch.uid)

    def _clear(self, watch: Watch, tries: int = 50) -> None:
        """Take away the cgroup that we made, with whatever the attempt has left in it."""
        if watch.uid is not None and watch.home is not None and not clear(watch.home) and tries:
            self._loop.call_later(0.1, self._clear, watch, tries - 1)

    def adopt(self, job: Job, attempt: int, folder: Path) -> None:
        if (job.id, attempt) in self._watches or (job.id, attempt) in self._settled:
            return
        watch = self._follow(job, attempt, folder)
        watch.started = bool(job.attempts) and job.attempts[-1].started_at is not None
        self._take_up(watch)

    def _take_up(self, watch: Watch) -> None:
        """Find out from its files how an attempt stands that another host has started."""
        job, attempt, folder = watch.job, watch.attempt, watch.folder
        claim = files.read_claim(folder, attempt)
        if watch.uid is not None:
            watch.home = home_of(watch, self._homes, {}, None)
        if files.read_exit(folder, attempt) is not None:
            self._clear(watch)
            self._conclude(watch)
        elif claim is None or claim.get("void"):
            self._adopt_unclaimed(watch)
        elif claim["pid"] is None:
            self._sweep(watch, self._loop.time() + SWEEP_S, _SPOILT)
        elif not processes.of_this_boot(claim) and self._may_be_of_another_boot(watch):
            self._settle(watch, Vanished(job.id, attempt, "lost: the machine was restarted while it ran"))
        elif not processes.of_this_boot(claim):
            self._sweep(watch, self._loop.time() + SWEEP_S, _SPOILT)
        else:
            watch.supervisor = claim
            self._look_for_start(watch)
            self._on_end(watch, claim["pid"], claim["start_time"], self._supervisor_ended)

    def _may_be_of_another_boot(self, watch: Watch) -> bool:
        """Whether an attempt's record may say so: our own user's may, another's unless we know better."""
        return watch.uid is None or (watch.home is None and watch.job.since < processes.booted_at())

    def alive(self, job_id: JobId, attempt: int) -> bool:
        watch = self._watches.get((job_id, attempt))
        return watch is not None and not watch.settled

    def pids(self, job_id: JobId, attempt: int) -> frozenset[int]:
        watch = self._watches.get((job_id, attempt))
        if watch is None or watch.settled or watch.supervisor is None:
            return frozenset()
        inside = cgroup.members(watch.home) if watch.home is not None else {}
        found = processes.descendants(watch.supervisor["pid"]) | frozenset(inside)
        return frozenset(pid for pid in found if processes.belongs_to(pid, watch.uid))

    async def close(self) -> None:
        for watch in list(self._watches.values()):
            self._let_go(watch)
        self._watches.clear()
        self._starter.close()
        self.nursery.close()
        self.prepared.close()

    # Starting

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _follow(self, job: Job, attempt: int, folder: Path) -> Watch:
        watch = self._watches[job.id, attempt] = self._watch(job, attempt, folder)
        return watch

    def _watch(self, job: Job, attempt: int, folder: Path) -> Watch:
        return Watch(job, attempt, folder, self._whose.uid(job, folder))

    def _claim_void(self, watch: Watch, why: str) -> bool:
        owner = self._whose.known_owner(watch.job)
        return files.claim_void(watch.folder, watch.attempt, at=self._clock(), why=why, owner=owner)

    def _heard(self, watch: Watch) -> None:
        """The supervisor's pipe: text is its last words before the job ran; a NUL says to look; a line is its record.

        That comes before the record is a file, since a card waits for it. At the pipe's end it is there as well.
        """
        assert watch.wake is not None
        with suppress(BlockingIOError):
            text = os.read(watch.wake, 65536)
            watch.said = (watch.said + text)[-65536:]
            if not text:
                self._hang_up(watch)
            if STARTED in text:
                self._look_for_start(watch)
            if watch.settled:
                return
            record = _record_of(watch.said)
            if record is not None:
                self._conclude(watch, record)
            elif not text and files.read_exit(watch.folder, watch.attempt) is not None:
                self._conclude(watch)

    def _hang_up(self, watch: Watch) -> None:
        if watch.wake is not None:
            self._loop.remove_reader(watch.wake)
            os.close(watch.wake)
            watch.wake = None

    def _look_for_start(self, watch: Watch) -> None:
        """Report the start once it is written down; an adopted supervisor that is still starting is asked again."""
        if watch.settled or files.read_exit(watch.folder, watch.attempt) is not None:
            return
        started = files.read_started(watch.folder, watch.attempt)
        if started is None:
            if watch.child is None:
                watch.timers.append(self._loop.call_later(1.0, self._look_for_start, watch))
            return
        watch.home = watch.home or home_of(watch, self._homes, started, watch.marker or started["marker"])
        if not watch.started:
            watch.started = True
            self._report(Started(watch.job.id, watch.attempt, started["at"]))
        if watch.main_followed:  # who speaks on the pipe may say it as often as he likes
            return
        watch.main_followed = True
        main = started["main"]
        if main.get("start_time") is None:
            self._main_ended(watch)
        else:
            self._on_end(watch, main["pid"], main["start_time"], self._main_ended)

    # Ends

    def _on_end(self, watch: Watch, pid: int, started: int | None, then: Callable[[Watch], None]) -> None:
        """Call ``then`` when a process has ended, at once (but not before we return) if it is gone."""
        if pid in watch.held:
            return
        try:
            ours = started is None and pid == watch.child
            held = processes.hold(pid, started, ours=ours, uid=watch.uid)
        except NotImplementedError:
            watch.timers.append(self._loop.call_later(0.25, self._poll_end, watch, pid, started, then))
            return
        if held is None:
            watch.timers.append(self._loop.call_later(0, then, watch))
            return
        watch.held[pid] = held
        self._loop.add_reader(held, self._ended, watch, pid, then)

    def _poll_end(self, watch: Watch, pid: int, started: int | None, then: Callable[[Watch], None]) -> None:
        if processes.ended(pid, started, watch.uid):
            then(watch)
        else:
            watch.timers.append(self._loop.call_later(0.25, self._poll_end, watch, pid, started, then))

    def _ended(self, watch: Watch, pid: int, then: Callable[[Watch], None]) -> None:
        held = watch.held.pop(pid)
        self._loop.remove_reader(held)
        os.close(held)
        then(watch)

    def _main_ended(self, watch: Watch) -> None:
        watch.timers.append(self._loop.call_later(ORDINARY_END_S, self._still_ending, watch))

    def _still_ending(self, watch: Watch) -> None:
        if not watch.settled:
            self._report(MainEnded(watch.job.id, watch.attempt, self._clock()))

    def _supervisor_ended(self, watch: Watch) -> None:
        if watch.child is not None:
            if watch.spare_since is None:
                with suppress(ChildProcessError):
                    os.waitpid(watch.child, os.WNOHANG)
            watch.reaped = True
        if watch.wake is not None:
            with suppress(BlockingIOError):
                watch.said += os.read(watch.wake, 65536)
        self._clear(watch)
        if watch.settled:
            self._forget(watch)
        else:
            self._conclude(watch)

    def _conclude(self, watch: Watch, told: dict[str, Any] | None = None) -> None:
        """The supervisor has ended it: take what it told or wrote, or find out that it wrote nothing."""
        job_id, attempt = watch.key
        raw = files.read_exit(watch.folder, attempt) if told is None else told
        claim = files.read_claim(watch.folder, attempt) if raw is None else None
        if raw is not None and raw.get("reason") and not watch.started:
            reason, message = as_text(raw["reason"], most=100), as_text(raw.get("message") or "it could not be started")
            self._settle(watch, LaunchFailed(job_id, attempt, reason, message))
        elif raw is not None:
            tail = b"" if raw.get("code") == 0 else log_tail(watch.folder, attempt)  # nothing is to be explained
            self._settle(watch, Exited(job_id, attempt, exit_record(raw, tail, watch.job.kind, now=self._clock())))
        elif watch.started:
            self._sweep(watch, self._loop.time() + SWEEP_S, _KILLED)
        elif claim is None and watch.may_start_again and watch.order is not None and watch.marker is not None:
            self._spawn_again(watch, watch.order, watch.marker)
        elif claim is None:
            self._unlaunched(watch, last_words(watch.said))
        elif claim.get("void"):
            self._settle(watch, Voided(job_id, attempt))
        elif watch.child is not None and claim["pid"] not in (None, watch.child):
            self._adopt_other(watch)
        elif files.read_started(watch.folder, attempt) is None:
            self._settle(watch, LaunchFailed(job_id, attempt, "launch_failed", last_words(watch.said)))
        else:
            self._sweep(watch, self._loop.time() + SWEEP_S, _KILLED)

    def _sweep(self, watch: Watch, until: float, message: str) -> None:
        """Nobody knows how the attempt ended; what is left of it is ended before that is said."""
        started = files.read_started(watch.folder, watch.attempt) or {}
        claim = files.read_claim(watch.folder, watch.attempt) or {}
        main = started.get("main") if processes.of_this_boot(started) else None
        marker = watch.marker or claim.get("marker") or started.get("marker")
        home = watch.home or home_of(watch, self._homes, claim, marker)
        left = processes.kill_left(marker, main, home, uid=watch.uid)
        if left and self._loop.time() < until:
            watch.timers.append(self._loop.call_later(0.05, self._sweep, watch, until, message))
            return
        known = main is not None or marker is not None or home is not None
        gone = "nothing of it runs any more" if known else "what of it still runs cannot be told, and is left alone"
        rest = f"; still there: {', '.join(map(str, left))}" if left else f"; {gone}"
        self._settle(watch, Vanished(watch.job.id, watch.attempt, message + rest))

    def _unlaunched(self, watch: Watch, why: str) -> None:
        """There is no claim; take it, so that ``no user code ran`` stays true, then say why."""
        self._clear(watch)
        try:
            ours = self._claim_void(watch, "launch_failed")
        except OSError:
            ours = True  # the folder cannot even be written: nothing can start from it
        if ours:
            self._settle(watch, LaunchFailed(watch.job.id, watch.attempt, "launch_failed", why))
        else:
            self._adopt_other(watch)

    def _adopt_other(self, watch: Watch) -> None:
        """Somebody else's supervisor has the attempt: follow that one."""
        self._forget(watch)
        self.adopt(watch.job, watch.attempt, watch.folder)

    def _adopt_unclaimed(self, watch: Watch) -> None:
        """An attempt of an earlier host that nobody claimed never ran; unless power was lost, and the claim with it."""
        try:
            ours = self._claim_void(watch, "adopted")
        except OSError as error:
            log.warning("job %s: its folder cannot be used, trying again in a second: %s", watch.job.id, error)
            watch.timers.append(self._loop.call_later(1.0, self._take_up, watch))
            return
        claim = files.read_claim(watch.folder, watch.attempt) or {}
        if not ours and not claim.get("void"):
            watch.timers.append(self._loop.call_later(0, self._adopt_other, watch))
        elif watch.started or watch.job.phase not in _NOT_SEEN_TO_START:
            self._sweep(watch, self._loop.time() + SWEEP_S, _START_GONE)
        elif watch.job.attempts and watch.job.since < processes.booted_at():
            message = "lost: the machine was restarted while it was being started"
            self._settle(watch, Vanished(watch.job.id, watch.attempt, message))
        else:
            self._settle_void(watch)

    def _settle_void(self, watch: Watch) -> None:
        """Nothing of it ran, and if its owner only made the claim say so, nothing of it goes on."""
        if watch.uid is not None and watch.child is None:
            watch.home = home_of(watch, self._homes, {}, None)
            self._clear(watch)
        self._settle(watch, Voided(*watch.key))

    def _settle(self, watch: Watch, event: Event) -> None:
        """Report the attempt's last event. A supervisor of ours that still ends is followed, to be reaped.

        One of another user may have been made to tell an end that is none: what goes on then is killed.
        """
        watch.settled = True
        self._settled[watch.key] = None
        if len(self._settled) > ECHOES:
            del self._settled[next(iter(self._settled))]
        if watch.child is None or watch.reaped:
            self._forget(watch)
        elif watch.uid is not None:
            watch.timers.append(self._loop.call_later(ENFORCED_S, self._end_all, watch))
        self._report(event)

    def _forget(self, watch: Watch) -> None:
        self._let_go(watch)
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]

    def _let_go(self, watch: Watch) -> None:
        self._hang_up(watch)
        for held in watch.held.values():
            self._loop.remove_reader(held)
            os.close(held)
        watch.held.clear()
        for timer in watch.timers:
            timer.cancel()
        watch.timers.clear()


def _record_of(said: bytes) -> dict[str, Any] | None:
    """The record of an attempt's end, once a supervisor has told all of it."""
    _, started, told = said.partition(STARTED)
    if not started or not told.endswith(b"\n"):
        return None
    try:
        record = json.loads(told)
    except (ValueError, RecursionError):  # the job can write there as well: then the file must do
        return None
    return record if isinstance(record, dict) else None
