"""``jupyter gpusched``: the same jobs from a terminal.

Prints, and turns errors into exit codes: 0 done, 1 the job or a check failed, 2 refused, 3 no
host. Imports only what the command needs, so that it answers at once; starts a host only for
``submit``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .core.model import BadRequest, GpuSchedError, UnknownJob
from .exits import DONE, INTERRUPTED, NO_HOST, REFUSED

if TYPE_CHECKING:
    from .client import Client

_DESCRIPTION = "Queue work on the GPUs of this machine by the memory it needs, and see what becomes of it."


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer."""
    try:
        return _run(list(sys.argv[1:] if words is None else words))
    except GpuSchedError as error:
        _complain(error)
        return NO_HOST if error.code == "no_host" else REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _complain(error: GpuSchedError) -> None:
    hint = "".join(f"\n  {line}" for line in (error.hint or "").splitlines())
    print(f"jupyter gpusched: {error.message}{hint}", file=sys.stderr)


def _run(words: list[str]) -> int:
    if words[:1] == ["submit"]:  # its own options end where the job's own words begin
        from .submitting import submit

        return submit(words[1:], lambda: _client(start=True))
    if words[:1] == ["resubmit"]:
        from .submitting import resubmit

        return resubmit(words[1:], _client)
    if not words:
        _parser().print_help(sys.stderr)
        return REFUSED
    asked = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = asked.run
    return command(asked)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jupyter gpusched", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("submit", help="queue a script, a notebook or a command", add_help=False)
    commands.add_parser("resubmit", help="queue the work of a job again, with other options if wanted", add_help=False)
    _reading_commands(commands)
    _machine_commands(commands)
    return parser


def _reading_commands(commands: Any) -> None:
    ls = _command(commands, "ls", _ls, "your jobs, newest first", as_json=True)
    ls.add_argument("--all-users", action="store_true", help="everybody's jobs (for administrators)")
    ls.add_argument("--phase", help="only jobs in this phase", metavar="PHASE")
    ls.add_argument("--name", help="only jobs with this name", metavar="TEXT")
    ls.add_argument("--array", help="only the elements of this array", metavar="ID")
    ls.add_argument("--limit", type=_positive, help="at most so many", metavar="N")
    show = _command(commands, "show", _show, "everything about one job, or an array as a whole", as_json=True)
    show.add_argument("id", metavar="ID")
    show.add_argument("--explain", action="store_true", help="only why it waits, or how it ended")
    logs = _command(commands, "logs", _logs, "what a job printed")
    logs.add_argument("id", metavar="ID")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    cancel = _command(commands, "cancel", _cancel, "end jobs, arrays, or some of an array: ID[0-9]")
    cancel.add_argument("--grace", help="time to clean up: 10s", metavar="SPAN")
    hold = _command(commands, "hold", _hold, "let jobs that wait not start until they are released")
    hold.add_argument("--cause", help="why, in a few words", metavar="TEXT")
    for command in (cancel, hold):
        command.add_argument("--name", help="all of yours whose name fits: 'run-*'", metavar="PATTERN")
        command.add_argument("ids", nargs="*", metavar="ID")


def _machine_commands(commands: Any) -> None:
    _command(commands, "gpus", _gpus, "the GPUs and who uses them", as_json=True)
    _command(commands, "top", _top, "GPUs and queue, live; q leaves")
    _command(commands, "alerts", _alerts, "what a person should look at now", as_json=True)
    quarantine = _command(commands, "quarantine", _operate, "give a GPU no jobs; those on it go on", as_json=True)
    quarantine.add_argument("gpu", metavar="GPU", help="its number or its UUID")
    release = _command(
        commands, "release", _release, "let held jobs go on, or give a quarantined GPU jobs again", as_json=True
    )
    release.add_argument("--name", help="all held jobs of yours whose name fits: 'run-*'", metavar="PATTERN")
    release.add_argument("ids", nargs="*", metavar="TARGET", help="a job, an array, ID[0-9]; or a GPU: number or UUID")
    drain = _command(commands, "drain", _operate, "start nothing new on this machine; what runs goes on", as_json=True)
    resume = _command(commands, "resume", _operate, "end a drain", as_json=True)
    for command in (quarantine, release, drain, resume):
        command.add_argument("--cause", help="why, in a few words; others read it", metavar="TEXT")
    _reservation_commands(commands)
    limits = _command(commands, "limits", _oversee, "what you may have at a time, and have", as_json=True)
    limits.add_argument("--all-users", action="store_true", help="the limits of all (for administrators)")
    limits.add_argument("--reload", action="store_true", help="read their file again (for administrators)")
    report = _command(commands, "report", _oversee, "what each user had (for administrators)", as_json=True)
    events = _command(commands, "events", _oversee, "who did what when (for administrators)", as_json=True)
    events.add_argument("--limit", type=_positive, default=200, help="at most so many, the newest", metavar="N")
    for command in (report, events):
        command.add_argument("--since", default="7d", help="how far back: 12h, 7d", metavar="SPAN")
    serve = _command(commands, "serve", _serve, "be the host of this machine until stopped")
    serve.add_argument("--idle-exit", help="end after so many seconds without jobs and clients", metavar="SECONDS")
    serve.add_argument("--system", action="store_true", help="serve all users of this machine (needs root)")
    serve.add_argument("--socket", help="with --system: where users find it", metavar="PATH")
    serve.add_argument("--config", help="file with settings, instead of looking for one", metavar="FILE")
    serve.add_argument("--simulate", help="simulated GPUs: 2x24G", metavar="CARDS")
    _command(commands, "doctor", _doctor, "what is right and wrong on this machine", as_json=True)
    simulate = _command(commands, "simulate", _simulate, "run a trace of jobs on a virtual clock")
    simulate.add_argument("trace", help="CSV of jobs, also compressed (.gz)", metavar="TRACE")
    simulate.add_argument("--gpus", type=_positive, required=True, help="cards of the machine", metavar="N")
    simulate.add_argument(
        "--vram", type=_mib, required=True, help="usable memory of each card: 24G, or MiB", metavar="VRAM"
    )
    simulate.add_argument("--policy", default="default", help="default, fifo, backfill, fair or module:factory")
    simulate.add_argument("--contention", action="store_true", help="jobs on one card slow each other down")
    simulate.add_argument("--out", required=True, help="where the schedule goes, as CSV", metavar="FILE")
    simulate.add_argument("--summary", action="store_true", help="print how good the schedule is")
    _command(commands, "demo", _demo, "see it work on simulated cards, in a minute")


def _reservation_commands(commands: Any) -> None:
    reserve = _command(commands, "reserve", _reserve, "keep GPUs for somebody for a while", as_json=True)
    reserve.add_argument("count", nargs="?", type=_positive, help="how many; 1 when left out", metavar="N")
    reserve.add_argument(
        "--gpu", action="append", help="this one, by number or UUID; also several times", metavar="GPU"
    )
    reserve.add_argument(
        "--from", dest="start", help="2026-12-04 13:00, or 13:00 today; now when left out", metavar="TIME"
    )
    reserve.add_argument("--to", dest="end", help="until when; of the same day without one", metavar="TIME")
    reserve.add_argument("--for", dest="length", help="or for how long: 4h", metavar="SPAN")
    reserve.add_argument("--zone", help="time zone of the times: Europe/Berlin; this machine's", metavar="ZONE")
    reserve.add_argument("--user", help="whose jobs may use them; on a machine for one user nobody's", metavar="NAME")
    reserve.add_argument("--interactive", action="store_true", help="nobody's jobs: for work outside the queue")
    reserve.add_argument("--cause", help="why, in a few words; others read it", metavar="TEXT")
    _command(commands, "reservations", _reservations, "what is reserved now and later", as_json=True)
    unreserve = _command(commands, "unreserve", _unreserve, "end reservations")
    unreserve.add_argument("ids", nargs="+", metavar="ID")


def _command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,  # noqa: A002 - argparse's own word
    *,
    as_json: bool = False,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
    parser.set_defaults(run=run)
    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _version() -> str:
    from ._version import __version__

    return f"jupyter-gpusched {__version__}"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _mib(text: str) -> int:
    """An amount as everywhere else, or what traces have: whole MiB."""
    from .core.quantities import parse_mib

    return _positive(text) if text.isdigit() else int(parse_mib(text))


def _client(*, start: bool = False) -> Client:
    from .client import Client

    return Client.connect(start=start)


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))


# --- looking ------------------------------------------------------------------------------


def _ls(asked: argparse.Namespace) -> int:
    from .jobcommands import listed

    views = listed(_client(), asked)
    if asked.json:
        _print_json(views)
    elif views or sys.stdout.isatty():
        from .describe import jobs_table

        print(jobs_table(views))
    return DONE


def _show(asked: argparse.Namespace) -> int:
    from .describe import details, explained, held_before

    client = _client()
    try:
        view = client.job(asked.id)
    except UnknownJob:
        from .jobcommands import show_array

        return show_array(client, asked.id, as_json=asked.json, explain=asked.explain)
    if asked.json:
        _print_json(view)
    elif asked.explain:
        print(explained(view))
        for attempt in view["attempts"]:
            if attempt["reason"] == "cuda_oom":
                print(held_before(view, attempt, client.timeline(asked.id, attempt=attempt["number"])), end="")
    else:
        print(details(view))
    return DONE


def _logs(asked: argparse.Namespace) -> int:
    client = _client()
    view = client.job(asked.id)
    if view["phase"] == "queued":
        print(f"jupyter gpusched: job {asked.id} is queued: {view['waiting'] or 'it has not started'}", file=sys.stderr)
    if asked.follow:
        for chunk in client.follow(asked.id):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        return DONE
    for chunk in client.whole_log(asked.id):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return DONE


def _gpus(asked: argparse.Namespace) -> int:
    client = _client()
    gpus = client.gpus()
    if asked.json:
        _print_json(gpus)
        return DONE
    from .describe import alerts_list, gpus_table

    print(gpus_table(gpus, None if gpus else client.health().get("gpu_cause")))
    if alerts := client.alerts():
        print("\n" + alerts_list(alerts))
    return DONE


def _alerts(asked: argparse.Namespace) -> int:
    alerts = _client().alerts()
    if asked.json:
        _print_json(alerts)
        return DONE
    from .describe import alerts_list

    print(alerts_list(alerts) or "Nothing needs attention.")
    return DONE


def _oversee(asked: argparse.Namespace) -> int:
    from .overview import answer

    view, text = answer(
        asked.command,
        _client(),
        since=getattr(asked, "since", "7d"),
        everybody=getattr(asked, "all_users", False),
        reread=getattr(asked, "reload", False),
        limit=min(1000, getattr(asked, "limit", 200)),
    )
    if asked.json:
        _print_json(view)
    else:
        print(text)
    return DONE


def _top(_asked: argparse.Namespace) -> int:
    from .top import main as watch

    return watch(_client())


# --- acting -------------------------------------------------------------------------------


def _cancel(asked: argparse.Namespace) -> int:
    from .jobcommands import cancel

    return cancel(_client(), asked, _complain)


def _hold(asked: argparse.Namespace) -> int:
    from .jobcommands import hold

    return hold(_client(), asked, _complain)


def _operate(asked: argparse.Namespace) -> int:
    from . import operating

    act: Callable[[Client, argparse.Namespace], int] = getattr(operating, asked.command)
    return act(_client(), asked)


def _release(asked: argparse.Namespace) -> int:
    """Held jobs go on; a single target that is a card gets jobs again."""
    from .jobcommands import is_card, release

    if len(asked.ids) == 1 and is_card(asked.ids[0]) and not asked.name:
        from .operating import release_card

        return release_card(_client(), asked.ids[0], asked)
    return release(_client(), asked, _complain)


def _reserve(asked: argparse.Namespace) -> int:
    from .reserving import reserve

    return reserve(_client(), asked)


def _reservations(asked: argparse.Namespace) -> int:
    from .reserving import reservations

    return reservations(_client(), asked)


def _unreserve(asked: argparse.Namespace) -> int:
    from .reserving import unreserve

    return unreserve(_client(), asked)


def _serve(asked: argparse.Namespace) -> int:
    """Become the host: this process is replaced, so that signals reach the host itself."""
    if asked.socket and not asked.system:
        raise BadRequest(
            "--socket is where a service for all users is found: it needs --system.",
            hint="Add --system, or leave --socket out: your own host is found without it.",
        )
    options = [f"--idle-exit={asked.idle_exit}"] if asked.idle_exit else []
    options += [f"--simulate={asked.simulate}"] if asked.simulate else []
    options += ["--system"] if asked.system else []
    options += [f"--socket={asked.socket}"] if asked.socket else []
    options += [f"--config={os.path.abspath(asked.config)}"] if asked.config else []  # noqa: PTH100
    if asked.system:
        os.chdir("/")  # settings are also looked for in the current folder, which may be somebody's
    sys.stdout.flush()
    safely = ["-P"] if sys.version_info >= (3, 11) else []  # a random.py in this folder must not be imported
    os.execv(sys.executable, [sys.executable, *safely, "-m", "jupyter_gpusched.hosts.daemon", *options])  # noqa: S606


def _doctor(asked: argparse.Namespace) -> int:
    from .doctor import main as examine

    return examine(as_json=asked.json)


def _demo(_asked: argparse.Namespace) -> int:
    from .demo import main as demonstrate

    return demonstrate()


def _simulate(asked: argparse.Namespace) -> int:
    from pathlib import Path

    from .simulation import main as simulated

    sys.path.append(str(Path.cwd()))  # where somebody tries out a policy of their own
    lines = simulated(
        Path(asked.trace),
        Path(asked.out),
        gpus=asked.gpus,
        vram=asked.vram,
        policy=asked.policy,
        contention=asked.contention,
    )
    if asked.summary:
        for line in lines:
            print(line)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
