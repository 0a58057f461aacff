"""Jobs as seen from Python: the handle of a job, and the functions behind ``import jupyter_gpusched as gs``.

A handle knows only the job's id; all else is asked of the host when it is needed, so that it
stays true after restarts of kernel and host. Never keeps a job alive and never ends one unasked.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from . import card, describe, request, results
from .core.model import BadRequest, GpuSchedError
from .outputs import bounded, fold, inert
from .session import host
from .terminal import render

if TYPE_CHECKING:
    from .client import Client
    from .functions import JobFunction
    from .widgets import JobWidget

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_TAIL_LINES = 10
_TAIL_BYTES = 8192
_SHOWN_BYTES = 8 * 2**20
_ASYNC_WAIT_S = 2.0


class JobFailed(GpuSchedError):
    """The job did not succeed. ``view`` is its record, ``tail`` the end of its log."""

    code = "job_failed"

    def __init__(self, view: describe.View, tail: str = "") -> None:
        how = describe.ending(view)
        ended = describe.ENDED.get(view["phase"], f"is {view['phase']}")
        message = f"Job {view['id']} ({describe.one_line(view['name'])}) {ended}" + (f": {how}" if how else "")
        log = "\nThe end of its log:\n" + "\n".join(f"  {line}" for line in tail.splitlines()) if tail else ""
        hint = f"%gpulogs {view['id']} shows its whole log."
        if view["kind"] == "notebook":
            hint += f'\njupyter_gpusched.job("{view["id"]}").notebook() has its cells with their outputs.'
        super().__init__(message + log, hint=hint)
        self.view = view
        self.tail = tail
        self.phase: str = view["phase"]
        self.exit_code: int | None = view["exit_code"]


class Job:
    """One job, by its id; at the host of this process unless a client is given.

    Awaitable: ``await job`` waits for its end without holding up the event loop.
    """

    def __init__(self, job_id: str, client: Client | None = None) -> None:
        self._id = job_id
        self._client = client
        self._last: describe.View | None = None

    @property
    def _host(self) -> Client:
        return self._client or host()

    @property
    def id(self) -> str:
        return self._id

    @property
    def view(self) -> describe.View:
        """The job's record, fresh from the host."""
        return self._keep(self._host.job(self._id))

    @property
    def status(self) -> str:
        """The phase: queued, starting, running, stopping, succeeded, failed, cancelled, timeout or lost."""
        return str(self.view["phase"])

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, however it ended, or for ``timeout`` seconds; returns the job.

        Interrupting ends the waiting only; the job goes on.
        """
        self._keep(self._host.wait(self._id, timeout))
        return self

    def result(self) -> Any:
        """Wait, then give back what the job left: of a function its value, of a notebook the notebook with its
        outputs, else the variables named by ``--out`` (a fresh copy), or None without ``--out``.

        Raises ``JobFailed`` when the job did not succeed; its cause is what the function raised. Raises
        ``NotAllowed`` for values of another user's job, which would run code of that user.
        """
        view = self._keep(self._host.wait(self._id, None))
        if view["phase"] != "succeeded":
            cause = results.exception_of(self._host, view) if view["kind"] == "function" else None
            raise JobFailed(view, self.tail()) from cause
        if view["kind"] == "function":
            return results.value_of(self._host, view, results.RETURNED)
        if view["kind"] == "notebook":
            return self.notebook()
        names = self._host.spec(self._id).get("outputs") or []
        return {name: results.value_of(self._host, view, name) for name in names} if names else None

    def notebook(self) -> results.OutputNotebook:
        """The notebook of a notebook job with its outputs so far, also while it runs and when it failed."""
        return results.notebook_of(self._host, self._id)

    def logs(self, raw: bool = False) -> str:
        """What the job has printed so far: as a terminal shows it in the end, or ``raw``, as it was written.

        Of a log too long to be shown its newest 8 MiB, unless it is wanted raw.
        """
        if raw:
            return b"".join(self._host.whole_log(self._id)).decode("utf-8", "replace")
        return render(newest_text(self._host, self._id, _SHOWN_BYTES)[0])

    def show(self) -> None:
        """Display the job's outputs: text, tables, plots and errors, in their order.

        Of another user's job only text and pictures: what could act in a page would act as whoever looks.
        """
        rest = f'jupyter_gpusched.job("{self._id}").logs() has all of the text'
        foreign = self.view["user"] != self._host.me()
        for output in bounded(fold(self._output_lines()), how_to_get_the_rest=rest):
            _display(inert(output) if foreign else output)

    def cancel(self, grace: str | None = None) -> Job:
        """End the job; ``grace`` (``"10s"``) is the time it gets to clean up. Harmless when it has ended."""
        self._keep(self._host.cancel(self._id, grace))
        return self

    def hold(self, cause: str | None = None) -> Job:
        """A job that waits does not start until ``release``. Raises ``WrongPhase`` for one that has started."""
        self._keep(self._host.hold(self._id, cause))
        return self

    def release(self) -> Job:
        """Let it go on, if it is held."""
        self._keep(self._host.release_job(self._id))
        return self

    def amend(self, **changes: Any) -> Job:
        """Change a job that waits, by the options' JSON names: ``priority="low"``; None stands for a default."""
        self._keep(self._host.amend(self._id, changes))
        return self

    def resubmit(self, **changes: Any) -> Job:
        """Queue the same work again as a new job, with the captured values it was submitted with.

        changes  options to be given anew, by their JSON names: ``vram="8G"``, ``env={...}`` (laid over the old one).
        """
        old = self._host.spec(self._id) if changes.get("env") else {}
        return Job(self._host.resubmit(self._id, request.changes(changes, changes.get("env") or {}, old)), self._client)

    def __await__(self) -> Generator[Any, None, Job]:
        return self._ended().__await__()

    async def _ended(self) -> Job:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, self.wait, _ASYNC_WAIT_S)
            if self._last is not None and self._last["phase"] in describe.FINAL:
                return self

    def _keep(self, view: describe.View) -> describe.View:
        self._last = view
        return view

    def tail(self) -> str:
        """The last lines of the log, as they would be shown."""
        try:
            text = _log_tail(self._host, self._id).decode("utf-8", "replace")
        except GpuSchedError:  # the failure itself matters more than its log
            return ""
        return "\n".join(render(text).rstrip().splitlines()[-_TAIL_LINES:])

    def _output_lines(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        cursor = 0
        while True:
            more, following, _ = self._host.outputs(self._id, after=cursor)
            lines += more
            if not more or following <= cursor:
                return lines
            cursor = following

    def __repr__(self) -> str:
        return f"<Job {self._id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __reduce__(self) -> tuple[type[Job], tuple[str]]:
        return Job, (self._id,)

    def widget(self) -> JobWidget:
        """A live view of the job for front ends that know ipywidgets. JupyterLab's own card needs none."""
        from .widgets import JobWidget

        return JobWidget(self._id, self._host.job, lambda job_id: _log_tail(self._host, job_id))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> card.Bundle:  # noqa: ARG002 - IPython's
        try:
            if not needs_widgets(os.environ):
                return card.job_bundle(self.view)
            return without_card(card.job_bundle(self.view), os.environ) | self.widget().mime()
        except GpuSchedError:
            if self._last is None:
                return {"text/plain": repr(self)}
            return card.job_bundle(self._last, stale=True)


def needs_widgets(environ: Mapping[str, str]) -> bool:
    """Whether this kernel's front end draws widgets but not our live job card: VS Code, Colab and Voilà."""
    in_vs_code = any(name in environ for name in ("VSCODE_PID", "VSCODE_CWD", "VSCODE_IPC_HOOK_CLI"))
    return ("JPY_PARENT_PID" not in environ and in_vs_code) or "google.colab" in sys.modules or _in_voila(environ)


def without_card(bundle: card.Bundle, environ: Mapping[str, str]) -> card.Bundle:
    """What is shown beside a widget. Voilà would draw our card first, but its server answers no card."""
    return {mime: data for mime, data in bundle.items() if mime != card.MIME or not _in_voila(environ)}


def _in_voila(environ: Mapping[str, str]) -> bool:
    return environ.get("SERVER_SOFTWARE", "").startswith("voila/")


class QuietJob(Job):
    """A job that shows nothing while the cell that submitted it runs; afterwards like any other."""

    def __init__(self, job_id: str, quiet_now: Callable[[], bool]) -> None:
        super().__init__(job_id)
        self._quiet_now = quiet_now

    def _ipython_display_(self) -> None:
        if not self._quiet_now():
            raise NotImplementedError  # tells IPython to show it in the ordinary way


def _log_tail(client: Client, job_id: str) -> bytes:
    return client.log_tail(job_id, _TAIL_BYTES)


def newest_text(client: Client, job_id: str, most: int) -> tuple[str, bool]:
    """The log, or the newest part of a long one with a line that says so; and whether it is all of it."""
    raw = client.log_tail(job_id, most)
    if len(raw) < most:
        return raw.decode("utf-8", "replace"), True
    note = f"[only the newest {most >> 20} MiB are shown; `jupyter gpusched logs {job_id}` has the whole log]\n"
    return note + raw.partition(b"\n")[2].decode("utf-8", "replace"), False


def _display(output: dict[str, Any]) -> None:
    """Show one output. Text stays text: streams and tracebacks are written, never sent as HTML."""
    kind = output["output_type"]
    if kind == "stream":
        _stream(output["name"]).write(output["text"])
    elif kind == "error":
        sys.stderr.write("\n".join(output["traceback"] or [f"{output['ename']}: {output['evalue']}"]) + "\n")
    else:
        _display_rich(dict(output["data"]), dict(output.get("metadata") or {}))


def _stream(name: str) -> Any:
    return sys.stderr if name == "stderr" else sys.stdout


def _display_rich(data: dict[str, Any], metadata: dict[str, Any]) -> None:
    from IPython.core.getipython import get_ipython
    from IPython.display import publish_display_data

    if len(data) > 1:  # a widget's model lived in the job and is gone
        data.pop("application/vnd.jupyter.widget-view+json", None)
    if get_ipython() is None:
        sys.stdout.write(f"{data.get('text/plain', '')}\n")
    else:
        publish_display_data(data, metadata)  # type: ignore[no-untyped-call, unused-ignore]


def submit(
    what: str | os.PathLike[str] | Sequence[str] | Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Job:
    """Queue a function, a command, a script or a notebook and return its job.

    what    a function, an argument list (``["python", "train.py"]``), one string for the shell, or the path of a
            script or a notebook.
    args    further arguments.
    kwargs  arguments of a function by name: every other keyword is an option of the job.
    spec    the options by their JSON names: ``vram="4G"``, ``gpus=2``, ``time_limit="2h"``, ``env={...}``.
    Raises ``BadRequest`` at once for anything that cannot be run.
    """
    if callable(what):
        from .functions import submit_call

        return submit_call(what, args, kwargs or {}, spec)
    return send(complete_words(what, args, kwargs, spec))


def complete_words(
    what: str | os.PathLike[str] | Sequence[str], args: Sequence[str], kwargs: Mapping[str, Any] | None, spec: Any
) -> request.Spec:
    """The whole submission of a command, a script or a notebook."""
    if kwargs is not None:
        raise BadRequest("kwargs: only a function takes arguments by name.", field="kwargs")
    options = dict(spec)
    env = options.pop("env", None) or {}
    return request.complete(_what_runs(what, args), options, env)


def send(spec: request.Spec) -> Job:
    """Queue a complete submission."""
    return Job(host().submit(spec))


def _what_runs(what: str | os.PathLike[str] | Sequence[str], args: Sequence[str]) -> request.Spec:
    if isinstance(what, os.PathLike):
        what = [os.fspath(what)]
    if isinstance(what, str):
        is_path = what.endswith((".py", ".ipynb")) and not any(c.isspace() for c in what)
        if not args and not is_path:
            return request.of_shell_line(what)
        what = [what]
    words = [*what, *args]
    if not all(isinstance(word, str) for word in words):
        raise BadRequest("argv: every argument must be a text.", field="argv", hint='For example ["seq", "3"].')
    return request.of_words(words)


def jobs(*, phase: str | None = None, name: str | None = None, limit: int | None = None) -> list[Job]:
    """Your jobs, newest first."""
    views = host().jobs(phase=phase, name=name, limit=limit)
    return [_known(view) for view in views]


def _known(view: describe.View) -> Job:
    job = Job(view["id"])
    job._keep(view)
    return job


@overload
def job(job_id: str, /) -> Job: ...
@overload
def job(function: Callable[Parameters, Result], /) -> JobFunction[Parameters, Result]: ...
@overload
def job(**spec: Any) -> Callable[[Callable[Parameters, Result]], JobFunction[Parameters, Result]]: ...
def job(what: Any = None, /, **spec: Any) -> Any:
    """The job with this id; raises ``UnknownJob``. As a decorator: calls of the function are jobs.

    ``@gs.job(vram="4G")`` above a function: calling it queues a job with these options and returns it;
    ``.local(...)`` runs it here.
    """
    from .functions import JobFunction

    if isinstance(what, str) and not spec:
        return _known(host().job(what))
    if what is None:
        return lambda function: JobFunction(function, spec)
    if not callable(what) or spec:
        raise BadRequest(
            "gs.job takes a job's id, or options as a decorator.",
            field="id",
            hint='gs.job("abcd1234"), or @gs.job(vram="4G").',
        )
    return JobFunction(what, spec)


def gpus() -> list[dict[str, Any]]:
    """The cards of this machine and who uses them."""
    return host().gpus()


def readable(error: GpuSchedError) -> list[str]:
    """The lines that a person needs: what is wrong and what to do."""
    lines = [f"{type(error).__name__}: {error.message}"]
    return lines + [f"  {line}" for line in (error.hint or "").splitlines()]


# IPython asks an exception for its traceback: ours are messages to the user, and the lines of
# our own code would only hide them. It is set here, since the core knows nothing of IPython.
setattr(GpuSchedError, "_render_traceback_", readable)  # noqa: B010 - no such attribute is declared there
