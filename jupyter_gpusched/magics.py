"""The magics: ``%%gpujob`` on a cell and its small companions.

Reads the line, has the cell's needs captured, and hands over; what an option means is in
``options``, what a job can do in ``jobs``. A refusal is raised, so that "run all" stops.
"""

from __future__ import annotations

import codecs
import shlex
import sys
from collections.abc import Callable
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class

from . import arrays, describe, request
from .arrays import JobArray, QuietArray
from .capture import Captured, capture
from .card import GpuTable, JobTable
from .core.model import BadRequest, NotAvailable, UnknownJob
from .jobs import Job, JobFailed, QuietJob, job, newest_text, send
from .options import OptionParser, Parsed, add_array_options, add_job_options, goes_on, parse, read_array
from .outputs import bounded
from .session import host
from .sweeps import combinations
from .terminal import render

_SHOWN_BYTES = 64 * 1024
_READ_BYTES = 2**20

_EXAMPLES = """Queue work on a GPU and go on.

    %%gpujob --vram 4G                     this cell, as a job of its own; it returns at once
    %%gpujob --vram 4G --out model,loss    afterwards job.result() is {"model": ..., "loss": ...}
    %%gpujob --vram 4G --sweep lr=0.1,0.01 seed=1..5 --throttle 4    a job for each combination; 4 at a time
    %%gpujob --gpus 0 --wait               a job without a GPU; wait and show its outputs here
    %gpujob --vram 4G train.py --epochs 3  a script: everything after its name is the script's
    %gpujob --vram 4G --param epochs=3 report.ipynb   a notebook; %gpuresult ID loads it with its outputs
    %gpujob --vram 1G ! nvidia-smi | head  a shell line
    job = %gpujob --vram 1G ! make         keep the job; it is also `_`

The names that a cell uses are brought along from the notebook. With --quiet nothing is shown
and the job is in `_`. `%gpujobs`, `%gpulogs ID -f`, `%gpucancel ID` do what they say.
"""


def _job_parser() -> OptionParser:
    parser = _parser("%%gpujob", "Queue a cell, a script, a notebook or a shell line as a job.")
    add_job_options(parser)
    add_array_options(parser)
    parser.add_argument("--wait", action="store_true", help="wait for the end and show the outputs here")
    parser.add_argument("--quiet", action="store_true", help="show nothing; the job is in `_`")
    parser.add_argument("--no-capture", action="store_true", help="bring along only what --in names (cells)")
    parser.add_argument("--dry-run", action="store_true", help="check everything, queue nothing")
    return parser


def _parser(name: str, description: str) -> OptionParser:
    parser = OptionParser(prog=name, description=description, add_help=False, allow_abbrev=False)
    parser.add_argument("--help", action="store_true", help="show this")
    return parser


def _documented(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Put examples and options where ``%gpujob?`` looks for them."""
    magic.__doc__ = f"{_EXAMPLES}\n{_job_parser().format_help()}"
    return magic


@magics_class
class GpuMagics(Magics):  # type: ignore[misc, unused-ignore]
    """The magics of jupyter_gpusched."""

    shell: InteractiveShell  # traitlets' way of saying it allows None, which a registered magic never sees

    @line_cell_magic
    @_documented
    def gpujob(self, line: str, cell: str | None = None) -> Job | JobArray | None:
        parser = _job_parser()
        words, rest = split_line(line, parser)
        asked = parse(words, parser)
        if asked.own["help"] or not (line.strip() or cell):
            print(f"{_EXAMPLES}\n{parser.format_help()}")  # noqa: T201 - help asked for
            return None
        if cell is None:
            spec, captured = _of_line(rest, asked), None
        else:
            spec, captured = self._of_cell(cell, rest, asked)
        return self._queue(spec, captured, asked)

    def _of_cell(self, cell: str, rest: str, asked: Parsed) -> tuple[request.Spec, Captured]:
        if rest:
            raise BadRequest(
                f"%%gpujob on a cell takes options only, not {rest!r}.",
                field="source",
                hint="Use %gpujob (one %) for a script or a `! command`; what follows it is then the script's.",
            )
        captured = capture(
            cell,
            self.shell.user_ns,
            self.shell,
            inputs=asked.fields.get("inputs", ()),
            outputs=asked.fields.get("outputs", ()),
            given=tuple(read_array(asked.own)[0]),
            automatic=not asked.own["no_capture"],
        )
        what = request.of_cell(cell, captured.payload)
        return request.complete(what, asked.fields, asked.env), captured

    def _queue(self, spec: request.Spec, captured: Captured | None, asked: Parsed) -> Job | JobArray | None:
        swept, throttle = read_array(asked.own)
        if asked.own["dry_run"]:
            print(_dry_run(spec, captured, swept))  # noqa: T201 - what was asked for
            return None
        for warning in captured.warnings if captured else ():
            sys.stderr.write(f"gpujob: {warning}\n")
        if swept:
            return self._queue_many(spec, swept, throttle, asked)
        queued = send(spec)
        if asked.own["wait"]:
            _wait_and_show(queued)
        return self._quiet(queued) if asked.own["quiet"] else queued

    def _queue_many(
        self, spec: request.Spec, swept: dict[str, list[Any]], throttle: int | None, asked: Parsed
    ) -> JobArray:
        queued = arrays.send(spec, swept, throttle)
        if asked.own["wait"]:
            _wait_for_all(queued)
        return self._quiet_array(queued) if asked.own["quiet"] else queued

    def _quiet_array(self, queued: JobArray) -> JobArray:
        shell, this_cell = self.shell, self.shell.execution_count
        return QuietArray(queued.id, [job.id for job in queued], lambda: bool(shell.execution_count == this_cell))

    def _quiet(self, queued: Job) -> Job:
        """Shows nothing as long as the submitting cell runs, so that the cell's text has no id and no time."""
        shell, this_cell = self.shell, self.shell.execution_count
        return QuietJob(queued.id, lambda: bool(shell.execution_count == this_cell))

    @line_magic
    def gpujobs(self, line: str) -> JobTable:
        """Your jobs, newest first: ``%gpujobs [--phase running] [--name TEXT] [--limit 20]``."""
        parser = _parser("%gpujobs", "Your jobs, newest first.")
        parser.add_argument("--phase", default=None)
        parser.add_argument("--name", default=None)
        parser.add_argument("--limit", default="50")
        asked = _plain(line, parser, words=0)[0]
        if not (asked["limit"].isdigit() and int(asked["limit"])):
            raise BadRequest(f"--limit: {asked['limit']!r} is not a whole number above 0.", field="limit")
        return JobTable(host().jobs(phase=asked["phase"], name=asked["name"], limit=int(asked["limit"])))

    @line_magic
    def gpus(self, line: str) -> GpuTable:
        """The GPUs of this machine and who uses them: ``%gpus``."""
        _plain(line, _parser("%gpus", "The GPUs of this machine."), words=0)
        cards = host().gpus()
        return GpuTable(cards, None if cards else host().health().get("gpu_cause"))

    @line_magic
    def gpulogs(self, line: str) -> None:
        """What a job printed: ``%gpulogs ID [-f]``; ``-f`` follows until it ends, interrupting ends only that."""
        parser = _parser("%gpulogs", "What a job printed.")
        parser.add_argument("-f", "--follow", action="store_true")
        asked, words = _plain(line, parser, words=1)
        if asked["follow"]:
            self._follow(words[0])
        else:
            _show_log(words[0])

    def _follow(self, job_id: str) -> None:
        """Print the log as it comes, carriage returns and colours included; a notebook keeps only the newest."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        in_notebook = hasattr(self.shell, "kernel")
        printed = 0
        try:
            for chunk in host().follow(job_id):
                text = decoder.decode(chunk)
                if in_notebook and printed + len(text) > _SHOWN_BYTES:
                    text, printed = _start_over(text, job_id), 0
                printed += len(text)
                sys.stdout.write(text)
                sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stderr.write(f"\nNo longer following; the job goes on. %gpucancel {job_id} ends it.\n")

    @line_magic
    def gpucancel(self, line: str) -> Any:
        """End a job, or what is left of an array: ``%gpucancel ID [--grace 10s]``; harmless when it has ended."""
        parser = _parser("%gpucancel", "End a job.")
        parser.add_argument("--grace", default=None)
        asked, words = _plain(line, parser, words=1)
        return _acted(words[0], host().cancel(words[0], asked["grace"]), "cancelled")

    @line_magic
    def gpuhold(self, line: str) -> Any:
        """A job that waits, or what waits of an array, does not start yet: ``%gpuhold ID [--cause TEXT]``."""
        parser = _parser("%gpuhold", "Let a waiting job not start yet.")
        parser.add_argument("--cause", default=None)
        asked, words = _plain(line, parser, words=1)
        return _acted(words[0], host().hold(words[0], asked["cause"]), "held")

    @line_magic
    def gpurelease(self, line: str) -> Any:
        """Let a held job, or what is held of an array, go on: ``%gpurelease ID``."""
        _, words = _plain(line, _parser("%gpurelease", "Let a held job go on."), words=1)
        return _acted(words[0], host().release_job(words[0]), "released")

    @line_magic
    def gpuresult(self, line: str) -> Any:
        """Wait for a job and give back what it left: ``values = %gpuresult ID``; of an array a list.

        The ``--out`` variables of a cell, the value of a function, the notebook with its outputs.
        """
        _, words = _plain(line, _parser("%gpuresult", "What a job gives back."), words=1)
        return _results(words[0])

    @line_magic
    def gpulease(self, line: str) -> None:  # noqa: ARG002 - refused whatever it says
        """Not available yet: VRAM for this kernel itself."""
        raise NotAvailable(
            "%gpulease is not available yet.",
            hint="Run the work as a job: %%gpujob --vram 8G on the cell.",
        )


def split_line(line: str, parser: OptionParser) -> tuple[list[str], str]:
    """The option words at the front of a magic's line, and the untouched text after them."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    value_follows, option = False, ""
    while True:
        start = lexer.instream.tell()  # type: ignore[attr-defined, unused-ignore]
        word = _next_word(lexer)
        if word is None:
            return words, ""
        if not value_follows and goes_on(option, word):
            words.append(word)
            continue
        if not value_follows and (not word.startswith("-") or word in ("-", "--")):
            end = lexer.instream.tell()  # type: ignore[attr-defined, unused-ignore]
            return words, line[end if word == "--" else start :].strip()
        words.append(word)
        option = option if value_follows else word.partition("=")[0]
        value_follows = not value_follows and parser.takes_value(word)


def _next_word(lexer: shlex.shlex) -> str | None:
    try:
        return lexer.get_token()
    except ValueError as error:
        raise _unbalanced(error) from None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _unbalanced(error) from None


def _unbalanced(error: ValueError) -> BadRequest:
    return BadRequest(f"The line cannot be read: {error}.", field="argv", hint="Close the quotation marks.")


def _of_line(rest: str, asked: Parsed) -> request.Spec:
    if asked.own["no_capture"]:
        raise BadRequest("--no-capture: only a cell job captures anything.", field="inputs")
    what = request.of_shell_line(rest[1:]) if rest.startswith("!") else request.of_words(_words(rest))
    return request.complete(what, asked.fields, asked.env)


def _plain(line: str, parser: OptionParser, *, words: int) -> tuple[dict[str, Any], list[str]]:
    """Options in any place, and exactly so many other words."""
    options: list[str] = []
    others: list[str] = []
    todo = _words(line)
    while todo:
        word = todo.pop(0)
        if not word.startswith("-"):
            others.append(word)
            continue
        options.append(word)
        if parser.takes_value(word):
            options += todo[:1]
            del todo[:1]
    given = vars(parser.parse_args(options))
    if len(others) != words:
        wanted = "one job id" if words else "no further words"
        raise BadRequest(
            f"{parser.prog} takes {wanted}, not {line.strip()!r}.", field="id", hint="`%gpujobs` lists ids."
        )
    return given, others


def _dry_run(spec: request.Spec, captured: Captured | None, swept: dict[str, list[Any]]) -> str:
    view = {"gpus_requested": spec.get("gpus", 1), "vram_mib": _mib(spec.get("vram"))}
    count = len(combinations(swept)) if swept else 1
    what = f"a {spec['kind']} job with" if not swept else f"{count} {spec['kind']} jobs, each with"
    lines = [f"Nothing was queued. It would be {what} {describe.wants(view)}."]
    if captured is not None:
        names = ", ".join(captured.names) or "nothing"
        lines.append(f"From this notebook it would bring along: {names} ({len(captured.payload or b''):,} bytes).")
        lines += captured.warnings
    return "\n".join(lines)


def _mib(text: str | None) -> int | None:
    from .core.quantities import parse_mib

    return None if text is None else parse_mib(text)


def _acted(named: str, answer: describe.View, done: str) -> Any:
    """The job that something was done to; of an array how many."""
    if "ids" not in answer:
        return Job(named)
    count = len(answer["ids"])
    print(f"{describe.jobs_counted(count)} {done}")  # noqa: T201 - the answer
    return None


def _results(named: str) -> Any:
    """What a job left; of an array what each of its elements left."""
    try:
        one = job(named)
    except UnknownJob as unknown:
        try:
            whole = arrays.array(named)
        except UnknownJob:
            raise unknown from None
        return whole.results()
    return one.result()


def _wait_for_all(queued: JobArray) -> None:
    try:
        queued.wait()
    except KeyboardInterrupt:
        sys.stderr.write(f"No longer waiting; the jobs go on. %gpucancel {queued.id} ends them.\n")
        raise
    for failed in queued.failed:
        raise JobFailed(failed.view, failed.tail())


def _wait_and_show(queued: Job) -> None:
    try:
        queued.wait()
    except KeyboardInterrupt:
        sys.stderr.write(f"No longer waiting; job {queued.id} goes on. %gpucancel {queued.id} ends it.\n")
        raise
    queued.show()
    view = queued.view
    if view["phase"] != "succeeded":
        raise JobFailed(view)


def _show_log(job_id: str) -> None:
    """The log as it stands, as a terminal shows it in the end; the newest part if it is long."""
    newest, whole = newest_text(host(), job_id, _READ_BYTES)
    shown = {"output_type": "stream", "name": "stdout", "text": render(newest)}
    rest = f'jupyter_gpusched.job("{job_id}").logs() has all of it'
    for output in bounded([shown], how_to_get_the_rest=rest, counted=whole):
        (sys.stderr if output["name"] == "stderr" else sys.stdout).write(output["text"])


def _start_over(text: str, job_id: str) -> str:
    """Clear what the cell shows before it grows too large for a notebook file."""
    from IPython.display import clear_output

    clear_output(wait=True)  # type: ignore[no-untyped-call, unused-ignore]
    tail = text[-_SHOWN_BYTES:]
    from_a_line_start = tail if len(tail) == len(text) else tail.partition("\n")[2] or tail
    return f'[earlier output left out here; jupyter_gpusched.job("{job_id}").logs() has all of it]\n{from_a_line_start}'
