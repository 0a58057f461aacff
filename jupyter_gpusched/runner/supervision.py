"""The supervisor of one attempt: it starts it, ends its whole tree, and writes down how it ended.

It outlives the host and talks to it through files and signals only. It never signals a process
that is not of its attempt, and never runs user code without having won the claim. Standard
library only, and little of it: ``signal`` and ``json`` alone would double its time to start.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # ``signal`` itself imports enum: 7 ms
import marshal
import os
import sys
import time

from . import cgroup
from .becoming import Order, become_job
from .born import fork_into
from .logcap import GROWN, LogCap
from .records import (
    leave_stop_file,
    make_durable,
    make_folder,
    put_file,
    read_all,
    read_stop_file,
    take_claim,
    to_json,
    write_claim,
    write_file,
)
from .tree import adopt_orphans, boot_id, catches, name_of, parent, read_file, send_all, start_time, tree

TYPE_CHECKING = False  # ``typing`` itself would be a slow import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from .unborn import Unborn

STRAGGLERS_GRACE_S = 5.0
"""What an ended main process left behind gets at most to end by itself."""

UNKILLABLE_AFTER_S = 15.0
"""Processes still there so long after SIGKILL hang in the kernel: they are named and left."""

MOST_TOLD = 32768
"""Bytes of a record that are told to the host; a longer one only becomes a file."""

SOON_S = 0.05
"""So long after it got ready an attempt may begin, without being said to begin later than that."""

LOOK_AGAIN_S = 0.25
WATCHED = (signal.SIGCHLD, signal.SIGTERM, GROWN)
MUTED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
BLOCKED = (*WATCHED, *MUTED)


class CannotLaunch(Exception):
    """The attempt could not be started; no user code ran. ``reason`` is for machines."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def main() -> None:
    supervise(sys.argv[1], adopting=adopt_orphans())


def supervise(
    folder: str,
    *,
    adopting: bool,
    content: int = 0,
    unborn: Unborn | None = None,
    may_go: Callable[[], bool] = lambda: True,
) -> NoReturn:
    """Read the order, take the attempt and see it through.

    adopting  whether we become the parent of every descendant whose own parent ends.
    content   the file in which the order is; by default standard input.
    unborn    the child that waits to be the job; None = it is forked once we have the attempt.
    may_go    waits for the word that the attempt is to be taken; until then nothing has happened but that we are ready.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would hide the ends of children
    umask = os.umask(0o077)
    for path in (os.path.dirname(folder), folder):
        make_folder(path)
    log = None
    if unborn is not None:
        try:
            log = open_log(folder)
            unborn.give(content, log)
        except OSError:  # whoever is started singly after us can say why
            unborn.discard()
            raise
    order = marshal.loads(read_all(content))  # noqa: S302  from the host, in its own interpreter
    order["umask"] = umask  # ours is for our files only
    if content == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    else:
        os.close(content)
    me = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
    home = cgroup_of(order) if unborn is None else unborn.home
    identity = {"boot_id": boot_id(), "marker": order["marker"], "cgroup": home, "at": time.time()}
    claim = {"by": "supervisor", **me, **identity}
    written = None
    if unborn is not None:  # then the claim says all that the start has to say: one file less is made
        claim |= {"supervisor": me, "main": {"pid": unborn.pid, "start_time": unborn.start_time}}
        written = write_claim(folder, claim)  # while the host writes its journal; then one name is all that is missing
        make_folders(folder, order)
    attempt = Attempt(folder, order, {"supervisor": me, **identity}, home, log, adopting=adopting, unborn=unborn)
    if not may_go():
        if unborn is not None and written is not None:
            unborn.discard()
            os.unlink(written)
        os._exit(0)
    if written is not None and time.time() - float(str(claim["at"])) > SOON_S:  # that is no time of a start
        os.unlink(written)
        claim["at"] = time.time()
        written = write_claim(folder, claim)
    if take_claim(folder, claim, written=written, kept_as=None if unborn is None else ".started"):
        attempt.identity["at"] = claim["at"]
        attempt.run()
    elif unborn is not None:
        unborn.discard()
    os._exit(0)  # nothing of ours is left to finalise, and the host waits


def make_folders(folder: str, order: Order) -> None:
    """Those that the job finds beside its attempts."""
    job = os.path.dirname(folder)
    for name in order["folders"]:  # type: ignore[attr-defined]
        make_folder(f"{job}/{name}")


def open_log(folder: str) -> int:
    return os.open(f"{folder}/log", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def cgroup_of(order: Order) -> str | None:
    """Where the attempt's cgroup will be; None where the host has found that there can be none."""
    wanted = order.get("cgroup")  # not told by the host of an earlier version
    if is_given(order):
        return str(wanted["path"])  # type: ignore[index]  # made by root, and we are in it
    own = None if wanted is None else cgroup.own_cgroup(wanted["mount"], wanted["root"])  # type: ignore[index]
    return None if own is None else f"{own}/{wanted['name']}"  # type: ignore[index]


def is_given(order: Order) -> bool:
    """Whether the host has made the cgroup, and put us into it."""
    wanted = order.get("cgroup")
    return wanted is not None and "path" in wanted  # type: ignore[operator]


class Attempt:
    """One claimed attempt, from its launch to its exit record."""

    def __init__(
        self,
        folder: str,
        order: Order,
        identity: dict[str, object],
        home: str | None,
        log: int | None,
        *,
        adopting: bool,
        unborn: Unborn | None,
    ) -> None:
        self.folder = folder
        self.order = order
        self.identity = identity
        self.home = home  # its cgroup, if any
        self.log = log  # open already where a child has waited for it
        self.adopting = adopting
        self.unborn = unborn
        self.unheard = False  # no host listens any more
        self.childless = False
        self.marker = b"GPUSCHED_MARKER=" + str(order["marker"]).encode()
        self.main = 0 if unborn is None else unborn.pid
        self.status: int | None = None  # of the main process, once it has ended
        self.started_at: float | None = None
        self.ended_at = 0.0
        self.limit_at: float | None = None  # monotonic
        self.notice_at: float | None = None  # monotonic; when the job is warned of its limit
        self.cap = LogCap(folder, 2, None, 0.0)  # until the job runs
        self.kill_at: float | None = None  # monotonic; set once the tree is being ended
        self.told: set[int] = set()  # who got SIGTERM
        self.told_at = 0  # in clock ticks since boot
        self.oom_kills: dict[str, int] = {}  # as counted when the job began
        self.stopped: str | None = None
        self.stragglers = 0
        self.peak_rss_kib = 0

    def run(self) -> None:
        try:
            self.launch()
        except CannotLaunch as error:
            self.discard()
            self.write_exit([], {"reason": error.reason, "message": error.message})
            return
        survivors = self.watch()
        self.cap.finish()
        self.write_exit(survivors, {})
        if self.home is not None:
            cgroup.remove(self.home)

    def discard(self) -> None:
        """Take away the child that could not become the job, and what was made for it."""
        if self.main:
            os.kill(self.main, signal.SIGKILL)  # not reaped yet: it is our child and nobody else
            os.waitpid(self.main, 0)
        if self.home is not None:
            cgroup.remove(self.home)

    # Starting

    def launch(self) -> None:
        try:
            log = self.lay_out()
            go, word = self.fork(log)
        except OSError as error:
            raise CannotLaunch("launch_failed", f"the attempt could not be prepared: {described(error)}") from None
        self.prepare_started()  # while the child finds its place
        self.expect(word, ready=b"R")
        self.write_started()
        os.write(go, b"g")
        self.expect(word, ready=b"")
        for end in {go, word}:
            os.close(end)
        self.begin_watch(log)

    def lay_out(self) -> int:
        """Write the files of the order; return the log, opened to append."""
        job = os.path.dirname(self.folder)
        if self.unborn is None:
            make_folders(self.folder, self.order)
        for name, content in self.order["files"].items():  # type: ignore[attr-defined]
            write_file(f"{job}/{name}", content)
        return open_log(self.folder) if self.log is None else self.log

    def fork(self, log: int) -> tuple[int, int]:
        """Start the child up to its gate, unless it is there; return the gate and the pipe of its word to us."""
        if self.unborn is not None:
            line = self.unborn.line.detach()
            return line, line
        if self.home is not None and not (is_given(self.order) or cgroup.make(self.home)):
            self.home = None
        gate, go = os.pipe()
        word, back = os.pipe()
        born_inside = None if self.home is None else fork_into(self.home)
        self.main = os.fork() if born_inside is None else born_inside
        if self.main == 0:
            os.close(go)
            become_job(self.order, log, gate, back, self.home if born_inside is None else None)
        os.close(gate)
        os.close(back)
        return go, word

    def expect(self, word: int, *, ready: bytes) -> None:
        """Take the child's word; anything but ``ready`` says at which step it failed, and why."""
        try:
            said = os.read(word, 64)
        except ConnectionResetError:  # killed before it had read that it may go: its end will be seen
            said = b""
        if said[:1] in (b"D", b"X"):
            self.started_at = None
            raise self.refusal(said[:1], int(said[1:]))
        if said != ready and said:
            raise CannotLaunch("launch_failed", f"the child answered {said!r}")

    def refusal(self, step: bytes, number: int) -> CannotLaunch:
        why = os.strerror(number)
        if step == b"D":
            folder = shown(self.order["cwd"])
            hint = "make it again, or submit the job from a folder that exists"
            return CannotLaunch("cwd_missing", f"its working folder {folder} cannot be entered: {why}; {hint}")
        program = shown(self.order["argv"][0])  # type: ignore[index]
        hint = "check the program's name and the PATH that the job was given"
        return CannotLaunch("launch_failed", f"{program} could not be started: {why}; {hint}")

    def prepare_started(self) -> None:
        if self.unborn is not None:  # it is the claim
            self.started_at = float(self.identity["at"])  # type: ignore[arg-type]
            return
        self.started_at = time.time()
        main = {"pid": self.main, "start_time": start_time(self.main)}
        content = to_json({**self.identity, "main": main, "at": self.started_at})
        write_file(f"{self.folder}/.started", content.encode())

    def write_started(self) -> None:
        os.rename(f"{self.folder}/.started", f"{self.folder}/started")

    def begin_watch(self, log: int) -> None:
        """The job runs. A NUL on the pipe to the host is the sign to look; its end will be the second one."""
        limit = self.order["time_limit_s"]
        self.limit_at = None if limit is None else time.monotonic() + float(limit)  # type: ignore[arg-type]
        notice = self.order.get("notice")
        if notice is not None and self.limit_at is not None:
            self.notice_at = self.limit_at - notice[1]  # type: ignore[index]
        os.dup2(log, 2)
        os.close(log)
        try:
            os.write(1, b"\0")
        except OSError:  # the host has gone; the next one looks by itself
            self.unheard = True
            os.dup2(0, 1)
        self.oom_kills = oom_kills(self.order.get("oom_counters", ()))
        self.cap = LogCap(self.folder, 2, self.order.get("log_limit"), time.monotonic())  # type: ignore[arg-type]

    # Watching and ending

    def watch(self) -> list[str]:
        """Wait until nothing of the attempt is left; return the names of what could not be ended."""
        while True:
            arrived = self.sleep()
            self.reap()
            if arrived == signal.SIGTERM:
                self.stop_requested()
            elif self.limit_at is not None and time.monotonic() >= self.limit_at:
                self.time_out()
            if self.notice_at is not None and time.monotonic() >= self.notice_at:
                self.give_notice()
            if arrived == GROWN:
                self.cap.noticed(time.monotonic())
            self.cap.look(time.monotonic())
            if self.status is not None or self.kill_at is not None:
                left = {} if self.is_alone() else self.living()
                if not left and self.status is not None:
                    return []
                if self.kill_at is None:
                    self.stragglers = len(left)
                    self.begin_ending(min(self.grace_s, STRAGGLERS_GRACE_S), left)
                elif time.monotonic() >= self.kill_at + UNKILLABLE_AFTER_S:
                    return [name_of(pid) for pid in left]
                elif time.monotonic() >= self.kill_at:
                    self.kill(left)
                else:
                    self.tell_newcomers(left)

    @property
    def grace_s(self) -> float:
        return float(self.order["grace_s"])  # type: ignore[arg-type]

    def sleep(self) -> int | None:
        """Wait for a signal or the next deadline; the signal that came, if any."""
        now = time.monotonic()
        waits = [at - now for at in (self.cap.look_at, self.limit_at, self.notice_at) if at is not None]
        if self.kill_at is not None:
            waits.append(LOOK_AGAIN_S / 5 if now >= self.kill_at else min(LOOK_AGAIN_S, self.kill_at - now))
        if not waits:
            return int(signal.sigwaitinfo(WATCHED).si_signo)
        info = signal.sigtimedwait(WATCHED, min(max(0.0, min(waits)), 86400.0))
        return None if info is None else int(info.si_signo)

    def reap(self) -> None:
        """Collect every ended child, adopted orphans too; note how the main process ended."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            self.peak_rss_kib = max(self.peak_rss_kib, usage.ru_maxrss)
            if pid == self.main:
                self.status = status
                self.ended_at = time.time()

    def stop_requested(self) -> None:
        """SIGTERM: somebody wants the attempt ended. A second request can only make the end come sooner."""
        if self.kill_at is None:
            self.begin_stop("shutdown")
            return
        try:
            _reason, grace_s = read_stop_file(self.folder, self.grace_s)
        except (OSError, ValueError):
            return
        self.kill_at = min(self.kill_at, time.monotonic() + grace_s)

    def time_out(self) -> None:
        self.limit_at = None
        if self.kill_at is None and self.status is None:
            self.begin_stop("timeout")

    def give_notice(self) -> None:
        """Warn those that wait for this signal; for all others it would be the end."""
        self.notice_at = None
        if self.kill_at is None and self.status is None:
            number = int(self.order["notice"][0])  # type: ignore[index]
            waiting = {pid: started for pid, started in self.living().items() if catches(pid, number)}
            send_all(waiting, number)

    def begin_stop(self, reason: str) -> None:
        """The stop file decides, whoever wrote it first; the signal goes to all processes."""
        try:
            leave_stop_file(self.folder, f"{reason}\ngrace {self.grace_s}\n")
            self.stopped, grace_s = read_stop_file(self.folder, self.grace_s)
        except (OSError, ValueError):  # neither a full disk nor what the job wrote there keeps anything alive
            self.stopped, grace_s = reason, self.grace_s
        self.begin_ending(grace_s, self.living())

    def is_alone(self) -> bool:
        """Whether an attempt that ends by itself has left nothing: the kernel's word spares a search of all processes.

        Orphans come to us, so that what descends from us shows as a child of ours or of another one.
        """
        alone = self.kill_at is None and self.childless and self.adopting
        return alone and (self.home is None or not cgroup.members(self.home))

    def living(self) -> dict[int, int]:
        return tree(self.marker, cgroup.members(self.home) if self.home is not None else ())

    def begin_ending(self, grace_s: float, left: dict[int, int]) -> None:
        self.kill_at = time.monotonic() + grace_s
        if grace_s <= 0:
            self.kill(left)
            return
        self.told.update(left)
        ask_to_end(left)
        self.told_at = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))

    def tell_newcomers(self, left: dict[int, int]) -> None:
        """SIGTERM to whoever was being forked while it was sent, by a parent that it then ended.

        Only to those: what a parent that lives on starts now may be its way to save its work.
        """
        missed = {
            pid: started
            for pid, started in left.items()
            if pid not in self.told and started <= self.told_at + 1 and parent(pid) not in left
        }
        self.told.update(missed)
        ask_to_end(missed)

    def kill(self, left: dict[int, int]) -> None:
        """Parents first: one that sees its child killed might exit with a code that hides the signal."""
        send_all(left, signal.SIGKILL)
        if self.home is not None:
            cgroup.kill(self.home)

    # Writing it down

    def write_exit(self, survivors: list[str], refusal: dict[str, object]) -> None:
        content = to_json({**self.exit_record(survivors), **refusal}).encode()
        told = self.tell(content)
        for _ in range(60):  # a full disk may be freed; the exit code is worth a minute's wait
            try:
                put_file(self.folder, "exit.json", content)
                os.dup2(0, 1)  # the end of the pipe: the record is there for whoever has not been told
                told = True
                make_durable(self.folder, "exit.json")
            except FileNotFoundError:  # noqa: PERF203  the job has removed its own folder, or who was told has
                if told or not self.made_folder_anew():
                    return
            except (
                PermissionError,
                NotADirectoryError,
                IsADirectoryError,
            ):  # the job has put something else in its place
                return
            except OSError:
                time.sleep(1)
            else:
                return

    def tell(self, record: bytes) -> bool:
        """To the host that waits, before all else: it has a journal of its own. False where there is none."""
        if self.unheard or self.started_at is None or len(record) > MOST_TOLD:
            return False
        try:
            return os.write(1, record + b"\n") > len(record)
        except OSError:
            return False

    def made_folder_anew(self) -> bool:
        try:
            for path in (os.path.dirname(self.folder), self.folder):
                make_folder(path)
        except OSError:
            return False  # the whole state folder is gone, and nobody is left to tell
        return True

    def counted_kills(self) -> dict[str, int]:
        """What those counters have gone up by since the job began."""
        now = oom_kills(self.order.get("oom_counters", ()))
        return {path: count - self.oom_kills.get(path, count) for path, count in now.items()}

    def exit_record(self, survivors: list[str]) -> dict[str, object]:
        known = self.status is not None and self.started_at is not None
        code = os.waitstatus_to_exitcode(self.status) if known and self.status is not None else None
        return {
            "code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "stopped": self.stopped,
            "started_at": self.started_at,
            "ended_at": self.ended_at
            if self.ended_at and self.stopped is None
            else time.time(),  # a stop ends it whole
            "peak_rss_mib": -(-self.peak_rss_kib // 1024) or None,
            "oom_kills": self.counted_kills() if code == -signal.SIGKILL else {},
            "stragglers": self.stragglers,
            "survivors": survivors,
        }


# What the kernel counts


def oom_kills(paths: object) -> dict[str, int]:
    """How many processes were ended for lack of host memory, by each of these counters."""
    counted = {}
    for path in paths:  # type: ignore[attr-defined]
        lines = read_file(path).split(b"\n")
        found = [line.split()[1] for line in lines if line.startswith(b"oom_kill ")]
        if found:
            counted[path] = int(found[0])
    return counted


def ask_to_end(processes: dict[int, int]) -> None:
    """SIGTERM; one that was stopped (SIGSTOP, a debugger) must go on to take it."""
    send_all(processes, signal.SIGTERM)
    send_all(processes, signal.SIGCONT)


# What a person is told


def shown(raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)


def described(error: OSError) -> str:
    return f"{error.strerror or error}" + (f": {shown(error.filename)}" if error.filename else "")
