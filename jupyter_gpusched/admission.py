"""Taking in submissions and their changes: everything that is checked before a job may queue.

A submission is refused here or it is queued whole; between the two nothing is left behind.
What can be checked without the machine is ``wire.read_job``'s; here come the cards, the
folders and the files.
"""

from __future__ import annotations

import base64
import os
import pwd
import secrets
import shutil
import string
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from . import wire
from .callers import Caller
from .core.ledger import check_fits
from .core.model import (
    BadRequest,
    IllegalTransition,
    Job,
    JobId,
    Kind,
    NotAllowed,
    Phase,
    Unavailable,
    Work,
    WrongPhase,
)
from .engine import Engine
from .launch.acting import acting_as
from .launch.folders import get_file, put_file, remove_folder
from .launch.owners import NoSuchOwner, Owner, Owners, ourselves
from .learning import code_of, learned
from .notebooks import LARGEST_NOTEBOOK, read_notebook
from .parents import still_worth_waiting_for, with_parents
from .ports import GpuProvider
from .respec import spec_of
from .submission import changed, is_text, read_job, read_terms

_FIRST = string.ascii_lowercase
_REST = string.ascii_lowercase + string.digits

PAYLOAD, NOTEBOOK = "payload.pkl", "notebook.ipynb"
"""What lies in a job's folder before it starts: the values it brings along, or the notebook as it was submitted."""

Kept = tuple[str, bytes]
"""A file of the job's folder: its name and content."""

PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"

LARGE = 2**20
"""What has more bytes is decoded beside the loop, which answers others meanwhile."""

BATCH_STEP_S = 1e-6
"""Jobs of a batch are submitted this far apart, so that they queue in the order in which they were given."""


def new_id() -> JobId:
    """Eight lower-case letters and digits; the first is a letter, so that no tool reads it as a number."""
    return secrets.choice(_FIRST) + "".join(secrets.choice(_REST) for _ in range(7))


class Admission:
    """The door to the queue. What a job names is looked at with the rights of the user as whom it will run."""

    def __init__(self, engine: Engine, gpus: GpuProvider, owners: Owners = ourselves) -> None:
        self._engine = engine
        self._gpus = gpus
        self._owners = owners
        self._amending = anyio.Lock()

    async def submit(self, raws: Sequence[object], *, owner: str, home: str, parent: Job | None = None) -> list[JobId]:
        """Check submissions and queue all of them or none; returns their ids once they are on disk.

        owner  who the kernel or the Hub says the caller is, never what a request says.
        home   the owner's home, where a job without ``cwd`` runs.
        parent the job that these repeat: they run the notebook that was kept for it.
        Raises ``BadRequest`` (its kinds) naming the field; in a batch also the submission's number.
        """
        await self._engine.cards_seen()
        jobs: list[Job] = []
        works: dict[JobId, Work] = {}
        kept: dict[JobId, Kept] = {}
        codes: dict[tuple[str, str | None], str | None] = {}
        now = self._engine.clock()
        runs_as = await self._runs_as(owner)
        surroundings = _surroundings(owner, home, runs_as)
        for number, raw in enumerate(raws):
            try:
                at = now + number * BATCH_STEP_S
                read = partial(
                    read_job, raw, job_id=new_id(), owner=owner, now=at, home=home, surroundings=surroundings
                )
                large = isinstance(raw, dict) and isinstance(text := raw.get("payload"), str) and len(text) > LARGE
                job, work, payload = await anyio.to_thread.run_sync(read) if large else read()
                await anyio.to_thread.run_sync(_check_work, work, runs_as) if runs_as else _check_work(work, None)
                if work.kind is Kind.NOTEBOOK:
                    notebook = await anyio.to_thread.run_sync(self._notebook, work, runs_as, parent)
                    kept[job.id] = NOTEBOOK, notebook
                job = await self._known_again(job, work, runs_as, kept, codes)
                self._check_card(job)
            except BadRequest as error:
                raise _numbered(error, number, len(raws)) from None
            except (OSError, ValueError, RecursionError) as error:  # what the file system makes of strange names
                raise _numbered(BadRequest(f"The job cannot be checked: {error}."), number, len(raws)) from None
            jobs.append(replace(job, parent_id=parent.id if parent else None))
            works[job.id] = work
            if payload is not None:
                kept[job.id] = PAYLOAD, payload
        jobs = await with_parents(jobs, self._engine, owner=owner)
        if not kept:
            return await self._engine.submit(jobs, works)
        return await self._with_files(jobs, works, kept, runs_as)

    async def amend(self, job_id: JobId, changes: object, *, by: Caller) -> None:
        """Change a job that waits. Raises ``BadRequest``, ``UnknownJob``, or ``WrongPhase`` once it waits no more."""
        async with self._amending:  # two changes of one job at once must not undo each other
            job = await self._engine.job(job_id, by.sees)
            terms = read_terms(changes, job)
            await self._engine.cards_seen()
            try:
                if job.phase is not Phase.QUEUED:
                    raise _too_late(job)
                state = self._engine.state
                check_fits(terms.request, state.gpus.values(), state.settings, cause=self._gpus.cause)
                await self._engine.amend(job_id, terms, by=by.user)
            except IllegalTransition:
                raise _too_late(await self._engine.job(job_id, by.sees)) from None

    async def reorder(self, job_id: JobId, order: wire.JobOrder, *, by: Caller) -> None:
        """Put a waiting job right before or after another of the owner's. Raises as ``amend`` does."""
        anchor_id = order.before or order.after
        if anchor_id is None or (order.before and order.after):
            raise BadRequest(
                "Give `before` or `after`, with the id of another waiting job.",
                field="before",
                hint="Change order and terms of a job in two requests.",
            )
        jobs = [await self._engine.job(each, by.sees) for each in (job_id, anchor_id)]
        if job_id == anchor_id:
            raise BadRequest(
                f"A job cannot stand before or after itself ({job_id}).",
                field="before" if order.before else "after",
                hint="Name another of your waiting jobs.",
            )
        if jobs[0].owner != jobs[1].owner:  # only administrators can name such two
            raise BadRequest(
                f"Jobs {job_id} and {anchor_id} have different owners.",
                field="before" if order.before else "after",
                hint="An order holds among the jobs of one owner.",
            )
        for job in jobs:
            if job.phase is not Phase.QUEUED:
                raise _out_of_queue(job)
        try:
            await self._engine.reorder(job_id, anchor_id, before=bool(order.before), by=by.user)
        except IllegalTransition as error:
            raise _out_of_queue(await self._engine.job(error.job.id, by.sees)) from None

    async def resubmit(self, job: Job, changes: object, *, owner: str, home: str) -> JobId:
        """Queue the same work again, with its captured values, as a new job whose parent is this one.

        changes  fields of a submission to be given anew; null stands for the default.
        """
        if not isinstance(changes, dict):
            raise BadRequest("Changes are a JSON object.", hint='For example {"vram": "8G"}.')
        work = await anyio.to_thread.run_sync(self._engine.store.work, job.id)
        if work is None:
            raise Unavailable(f"The journal does not say what job {job.id} runs.", hint="Submit it anew.")
        spec: dict[str, Any] = msgspec.to_builtins(spec_of(job, work))
        if work.has_payload and "payload" not in changes:
            spec["payload"] = await anyio.to_thread.run_sync(self._payload_of, job)
        if job.after is not None and "after" not in changes:
            spec["after"] = await still_worth_waiting_for(job, self._engine)
            spec["after_when"] = job.after.when if spec["after"] else None
        raw = changed(spec, changes)
        return (await self.submit([raw], owner=owner, home=home, parent=job))[0]

    async def delete(self, job: Job) -> None:
        """Delete a job's record and files. Raises ``WrongPhase`` while anything of it is still going on."""
        if not job.phase.final:
            raise WrongPhase(
                f"Job {job.id} is {job.phase.value} and cannot be deleted.",
                hint="Cancel it first, and delete it when it has ended.",
            )
        if job.id in self._engine.state.jobs:
            raise WrongPhase(
                f"Job {job.id} has ended, but its memory has not been freed on the card yet.",
                hint="Try again in a moment.",
            )
        await self._engine.forget(job)
        folder = self._engine.folder(job.id)
        await anyio.to_thread.run_sync(remove_folder, folder)

    async def _runs_as(self, owner: str) -> Owner | None:
        """None = as the host itself. Raises ``NotAllowed`` for an owner who is no user of this machine."""
        try:
            if self._owners is ourselves:
                return None
            return await anyio.to_thread.run_sync(self._owners, owner)
        except NoSuchOwner as error:
            raise NotAllowed(
                f"Jobs run as their owner, but {error}.", hint="Ask the machine's administrator."
            ) from None

    def _notebook(self, work: Work, runs_as: Owner | None, parent: Job | None) -> bytes:
        """The notebook as it was submitted; that of the job that this one repeats is still as it was."""
        kept = None
        if parent is not None and parent.kind is Kind.NOTEBOOK:
            with suppress(OSError):
                kept = get_file(self._engine.folder(parent.id), NOTEBOOK, most=LARGEST_NOTEBOOK)
        with acting_as(runs_as):
            return read_notebook(work, kept)

    def _payload_of(self, job: Job) -> str:
        try:
            payload = get_file(self._engine.folder(job.id), PAYLOAD, most=wire.LARGEST_PAYLOAD)
        except OSError as error:
            raise BadRequest(
                f"payload: the captured values of job {job.id} are gone ({error.strerror or error}).",
                field="payload",
                hint="Submit it again from its notebook.",
            ) from None
        return base64.b64encode(payload).decode("ascii")

    async def _with_files(
        self, jobs: list[Job], works: dict[JobId, Work], kept: dict[JobId, Kept], runs_as: Owner | None
    ) -> list[JobId]:
        """Values and notebooks are on disk before the job is acknowledged, and gone again if it is not queued."""
        queued: list[JobId] = []
        try:
            try:
                await anyio.to_thread.run_sync(self._write, kept, runs_as)
            except OSError as error:
                why = error.strerror or str(error)
                raise Unavailable(
                    f"What the job brings along cannot be stored in {self._engine.jobs_folder}: {why}.",
                    hint="Free some space there and try again.",
                ) from error
            queued = await self._engine.submit(jobs, works)
        finally:
            for job_id in kept.keys() - set(queued):
                if job_id not in self._engine.state.jobs:
                    remove_folder(self._engine.folder(job_id))
        return queued

    def _write(self, kept: dict[JobId, Kept], runs_as: Owner | None) -> None:
        for job_id, (name, content) in kept.items():
            put_file(self._engine.folder(job_id), runs_as, name, content)

    async def _known_again(
        self,
        job: Job,
        work: Work,
        runs_as: Owner | None,
        kept: dict[JobId, Kept],
        codes: dict[tuple[str, str | None], str | None],
    ) -> Job:
        """The job with a name for what it runs, and with the amount that was learned where it asks for that.

        codes  of scripts that this batch has read already.
        """
        notebook = kept[job.id][1] if work.kind is Kind.NOTEBOOK else None

        def naming() -> str | None:
            with acting_as(runs_as):
                return code_of(work, name=job.name, notebook=notebook)

        if work.kind is Kind.SCRIPT:
            place = work.cwd, work.path
            if place not in codes:
                codes[place] = await anyio.to_thread.run_sync(naming)
            code = codes[place]
        else:
            code = naming()
        job = replace(job, code=code)
        if job.learned is None:
            return job
        engine, simulated = self._engine, self._gpus.simulated
        vram, words = await anyio.to_thread.run_sync(
            lambda: learned(job, engine.store, engine.state, simulated=simulated)
        )
        return replace(job, request=replace(job.request, vram=vram), learned=words)

    def _check_card(self, job: Job) -> None:
        state = self._engine.state
        check_fits(job.request, state.gpus.values(), state.settings, cause=self._gpus.cause)


def _check_work(work: Work, runs_as: Owner | None) -> None:
    with acting_as(runs_as):
        _check_folder(work)
        if work.kind is Kind.SCRIPT:
            _check_script(work)
        _check_python(work)


def _check_python(work: Work) -> None:
    if work.python is not None and shutil.which(work.python, path=work.env.get("PATH")) is None:
        raise BadRequest(
            f"python: there is no interpreter {work.python!r}.",
            field="python",
            hint="Give the full path of a Python, for example ~/venv/bin/python.",
        )


def _surroundings(owner: str, home: str, runs_as: Owner | None) -> dict[str, str]:
    """What every job of this owner finds in its environment, unless its submission says otherwise.

    For whoever is not ourselves nothing of it is taken from our own.
    """
    if runs_as is not None:
        env = {"HOME": runs_as.home, "USER": owner, "LOGNAME": owner, "SHELL": runs_as.shell}
        env |= {"PATH": PLAIN_PATH, "LANG": "C.UTF-8"}
        return {name: value for name, value in env.items() if is_text(value)}
    try:
        shell = pwd.getpwnam(owner).pw_shell
    except (KeyError, ValueError):
        shell = ""
    env = {"HOME": home, "USER": owner, "LOGNAME": owner, "SHELL": shell or "/bin/sh"}
    env["PATH"] = os.environ.get("PATH") or os.defpath
    env["LANG"] = os.environ.get("LANG") or "C.UTF-8"
    return {name: value for name, value in env.items() if is_text(value)}


def _check_folder(work: Work) -> None:
    if not Path(work.cwd).is_absolute():
        raise BadRequest(f"cwd: {work.cwd!r} is not a full path.", field="cwd", hint="Start it with a slash.")
    if not os.path.isdir(work.cwd):  # noqa: PTH112  pathlib raises for a name that is too long
        raise BadRequest(
            f"cwd: there is no folder {work.cwd!r} on this machine.",
            field="cwd",
            hint="Make the folder, or submit from another one.",
        )
    if not _works(lambda: os.stat(f"{work.cwd}/.")):  # noqa: PTH116  pathlib drops the dot
        raise BadRequest(f"cwd: {work.cwd!r} cannot be entered.", field="cwd", hint="Check its permissions.")


def _check_script(work: Work) -> None:
    script = Path(work.cwd, work.path or "")
    if not os.path.isfile(script):  # noqa: PTH113  see above
        raise BadRequest(
            f"path: there is no script {str(script)!r}.",
            field="path",
            hint="Check the name; it is looked up from the folder the job runs in.",
        )
    if not _works(lambda: os.close(os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))):
        raise BadRequest(f"path: {str(script)!r} cannot be read.", field="path", hint="Check its permissions.")


def _works(attempt: Callable[[], object]) -> bool:
    """Whether the kernel lets us do it; ``access`` would ask for the rights of another identity."""
    try:
        attempt()
    except OSError:
        return False
    return True


def _too_late(job: Job) -> WrongPhase:
    hint = "Resubmit it with the changes." if job.phase.final else "Cancel it and resubmit it with the changes."
    return WrongPhase(f"Job {job.id} is {job.phase.value}; only a queued job can be changed.", hint=hint)


def _out_of_queue(job: Job) -> WrongPhase:
    return WrongPhase(
        f"Job {job.id} is {job.phase.value}; only jobs that wait have an order.",
        hint="`jupyter gpusched ls --phase queued` lists those that wait.",
    )


def _numbered(error: BadRequest, number: int, count: int) -> BadRequest:
    if count == 1:
        return error
    return type(error)(f"Job {number} of the batch: {error.message}", field=error.field, hint=error.hint)
