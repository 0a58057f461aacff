"""``jupyter gpusched submit`` and ``resubmit``: whose own options end where the job's words begin.

The id, or the job as JSON, is all that goes to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .core.model import BadRequest
from .exits import DONE, FAILED

if TYPE_CHECKING:
    from .client import Client
    from .options import OptionParser

Connect = Callable[[], "Client"]


def submit(words: Sequence[str], connect: Connect) -> int:
    """``connect`` makes a client, and starts a host where there is none."""
    from .options import parse, read_array
    from .request import complete

    parser = submit_parser()
    asked = parse(list(words), parser)
    if asked.own["help"]:
        print(parser.format_help(), end="")
        return DONE
    _note_options_of_the_job(asked.rest, parser.long_options())
    spec = complete(_what_runs(asked.own["shell"], asked.rest), asked.fields, asked.env, python=_own_python())
    swept, throttle = read_array(asked.own)
    client = connect()
    if swept:
        from .jobcommands import submit_sweep

        return submit_sweep(client, spec, swept, throttle, wait=asked.own["wait"], as_json=asked.own["json"])
    job_id = client.submit(spec)
    if spec.get("vram") == "auto" and (why := client.job(job_id)["advice"]):
        print(why, file=sys.stderr)
    return _submitted(client, job_id, wait=asked.own["wait"], as_json=asked.own["json"])


def resubmit(words: Sequence[str], connect: Connect) -> int:
    from .options import parse
    from .request import changes

    parser = resubmit_parser()
    if {"-h", "--help"} & set(words):
        print(parser.format_help(), end="")
        return DONE
    front = parse(list(words), parser)
    ids = front.rest[:1]
    asked = parse([*words[: len(words) - len(front.rest)], *front.rest[1:]], parser)  # options may follow the id
    if not ids or asked.rest:
        raise BadRequest("resubmit takes one job id.", field="id", hint="`jupyter gpusched ls` lists ids.")
    client = connect()
    anew = changes(asked.fields, asked.env, client.spec(ids[0]) if asked.env else {})
    answer = client.resubmit_any(ids[0], anew)
    if "id" not in answer:
        from .jobcommands import array_submitted

        return array_submitted(
            client, answer["array_id"], answer["ids"], wait=asked.own["wait"], as_json=asked.own["json"]
        )
    return _submitted(client, answer["id"], wait=asked.own["wait"], as_json=asked.own["json"])


def submit_parser() -> OptionParser:
    from .options import OptionParser, add_array_options, add_job_options

    parser = OptionParser(
        prog="jupyter gpusched submit",
        usage="%(prog)s [options] [--wait] [--] ARGV...",
        description="Queue a script (*.py first), a notebook (*.ipynb) or a command. The id is the last line printed.",
        add_help=False,
        allow_abbrev=False,
    )
    add_job_options(parser)
    add_array_options(parser)
    parser.add_argument("--shell", metavar="TEXT", help="a shell line instead of ARGV")
    _add_submit_switches(parser)
    return parser


def resubmit_parser() -> OptionParser:
    from .options import OptionParser, add_job_options

    parser = OptionParser(
        prog="jupyter gpusched resubmit",
        usage="%(prog)s [options] [--wait] ID",
        description="Queue the work of a job again, as a new job. The new id is the last line printed.",
        add_help=False,
        allow_abbrev=False,
    )
    add_job_options(parser)
    _add_submit_switches(parser)
    return parser


def _add_submit_switches(parser: OptionParser) -> None:
    parser.add_argument("--wait", action="store_true", help="wait for the end; exit 1 unless it succeeded")
    parser.add_argument("--json", action="store_true", help="print the job as JSON")
    parser.add_argument("-h", "--help", action="store_true", help="show this")


def _note_options_of_the_job(words: list[str], ours: list[str]) -> None:
    """What follows the script is the script's, also where it looks like an option of ours: better said now."""
    if words[:1] != ["--"] and (taken := [word for word in words if word.partition("=")[0] in ours]):
        name = words[0]
        print(
            f"jupyter gpusched: {' '.join(taken)} goes to {name}, since it stands after it; "
            f"options of the job stand before {name}",
            file=sys.stderr,
        )


def _what_runs(shell: str | None, words: list[str]) -> dict[str, Any]:
    from .request import of_shell_line, of_words

    if shell is None:
        return of_words(words)
    if words:
        raise BadRequest("--shell takes the whole line as one text; nothing may follow it.", field="argv")
    return of_shell_line(shell)


def _own_python() -> str | None:
    """The interpreter of the environment that is active in this terminal, if one is."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = os.path.join(os.environ.get(name) or os.devnull, "bin", "python")  # noqa: PTH118 - pathlib is slow to start
        if os.access(python, os.X_OK):
            return python
    return None


def _submitted(client: Client, job_id: str, *, wait: bool, as_json: bool) -> int:
    view = _waited(client, job_id) if wait else None
    if as_json:
        print(json.dumps(view or client.job(job_id), ensure_ascii=False))
    else:
        print(job_id, flush=True)
    if view is None or view["phase"] == "succeeded":
        return DONE
    from .describe import ENDED, ending

    how = f"{ENDED.get(view['phase'], view['phase'])}: {ending(view) or 'no more is known'}"
    print(f"jupyter gpusched: job {job_id} {how}\n  Its output: jupyter gpusched logs {job_id}", file=sys.stderr)
    return FAILED


def _waited(client: Client, job_id: str) -> dict[str, Any]:
    print(f"job {job_id} is queued; waiting for its end", file=sys.stderr)
    try:
        return client.wait(job_id)
    except KeyboardInterrupt:
        print(f"\njob {job_id} goes on; `jupyter gpusched cancel {job_id}` ends it", file=sys.stderr)
        raise
