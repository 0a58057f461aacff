"""Submissions as they become jobs: each is checked against the machine, with all that it brings along.

Looks at folders and files, with the rights of the user as whom a job will run, and at the cards
as last seen; queues nothing and writes nothing.
Blocks, so that whoever has many of them to read does it beside the loop.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .belongings import NOTEBOOK, PAYLOAD, Content, Folder, Kept, notebook_of
from .callers import Caller
from .core.asked import Member
from .core.ledger import check_fits
from .core.model import BadRequest, Job, JobId, Kind, Work
from .core.quota import check_terms, longest_time_s
from .core.state import State
from .launch.acting import acting_as
from .launch.owners import Owner
from .learning import code_of, learned
from .named_files import kernels_own
from .notebooks import read_notebook
from .ports import GpuProvider, Store
from .submission import read_job
from .texts import is_text

_FIRST = string.ascii_lowercase
_REST = string.ascii_lowercase + string.digits

PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"

BATCH_STEP_S = 1e-6
"""Jobs of a batch are submitted this far apart, so that they queue in the order in which they were given."""

Hides = Callable[[str], str | None]

PLACEHOLDER = "eA=="
"""Stands in a submission for a payload that is not in it: what several have in common, or what lies on disk."""


def new_id() -> JobId:
    """Eight lower-case letters and digits; the first is a letter, so that no tool reads it as a number."""
    return secrets.choice(_FIRST) + "".join(secrets.choice(_REST) for _ in range(7))


@dataclass(frozen=True)
class Raw:
    """A submission as it came, or as it is made of an earlier job.

    payload  what its ``PLACEHOLDER`` stands for.
    parent   the job that it repeats: it runs the notebook that was kept for that.
    number   of an element of an array.
    """

    spec: object
    payload: Content | None = None
    parent: Job | None = None
    number: int | None = None


@dataclass(frozen=True)
class Draft:
    """A job that may be queued, what it runs, and the file that it brings along."""

    job: Job
    work: Work
    kept: Kept | None


@dataclass
class Reader:
    """Reads the submissions of one request, which are of one moment and one owner.

    runs_as  the unix user that the owner is; None = as the host itself.
    hides    why jobs do not see a path, as the end of a sentence; None for one that they see.
    """

    state: State
    store: Store
    gpus: GpuProvider
    folder_of: Folder
    by: Caller
    runs_as: Owner | None
    now: float
    hides: Hides = lambda _: None

    def __post_init__(self) -> None:
        self._surroundings = _surroundings(self.by.user, self.by.home, self.runs_as)
        self._codes: dict[tuple[str, str | None], str | None] = {}  # of scripts that were read already

    def read(self, raws: Sequence[Raw], *, array: bool, throttle: int | None) -> list[Draft]:
        """All of them. Raises ``BadRequest`` (its kinds) naming the field; of several also the submission's number."""
        batch_id = new_id() if array or len(raws) > 1 else None
        drafts = []
        for place, raw in enumerate(raws):
            number = place if raw.number is None else raw.number
            member = None if batch_id is None else Member(batch_id, number if array else None, throttle)
            try:
                drafts.append(self._read(raw, self.now + place * BATCH_STEP_S, member))
            except BadRequest as error:
                raise _numbered(error, place, len(raws)) from None
            except (OSError, ValueError, RecursionError) as error:  # what the file system makes of strange names
                raise _numbered(BadRequest(f"The job cannot be checked: {error}."), place, len(raws)) from None
        return drafts

    def _read(self, raw: Raw, at: float, member: Member | None) -> Draft:
        job, work, payload = read_job(
            raw.spec, job_id=new_id(), owner=self.by.user, now=at, home=self.by.home, surroundings=self._surroundings
        )
        repeated = notebook_of(raw.parent, self.folder_of)
        kept: Kept | None = None
        notebook = None
        with acting_as(self.runs_as):
            _check_work(work)
            refuse_hidden(work, self.hides)
            if work.kind is Kind.NOTEBOOK:
                notebook = read_notebook(work, repeated)
        if notebook is not None:
            kept = NOTEBOOK, notebook
        elif payload is not None:
            kept = PAYLOAD, payload if raw.payload is None else raw.payload
        job = replace(job, member=member, parent_id=raw.parent.id if raw.parent else None, groups=self.by.groups)
        job = self._known_again(job, work, notebook)
        check_fits(job.request, self.state.gpus.values(), self.state.settings, cause=self.gpus.cause)
        check_terms(job, self.state)
        if job.time_limit_s is None:
            job = replace(job, time_limit_s=longest_time_s(job, self.state))
        return Draft(job, work, kept)

    def _known_again(self, job: Job, work: Work, notebook: bytes | None) -> Job:
        """The job with a name for what it runs, and with the amount that was learned where it asks for that."""
        place = work.cwd, work.path
        if work.kind is not Kind.SCRIPT or place not in self._codes:
            with acting_as(self.runs_as):
                self._codes[place] = code_of(work, name=job.name, notebook=notebook)
        job = replace(job, code=self._codes[place])
        if job.learned is None:
            return job
        vram, words = learned(job, self.store, self.state, simulated=self.gpus.simulated)
        return replace(job, request=replace(job.request, vram=vram), learned=words)


def _check_work(work: Work) -> None:
    _check_folder(work)
    if work.kind is Kind.SCRIPT:
        _check_script(work)
    elif work.kind is Kind.NOTEBOOK:
        _refuse_kernels_own("path", Path(work.cwd, work.path or ""))
    if work.python is not None:
        _check_python(work.python, work)


def refuse_hidden(work: Work, hides: Hides) -> None:
    """What the job would not find, although it is there."""
    script = [("path", str(Path(work.cwd, work.path or "")))] if work.kind is Kind.SCRIPT else []
    for field, path in (("cwd", work.cwd), *script):
        if (why := hides(path)) is not None:
            raise BadRequest(
                f"{field}: {path!r} {why}.", field=field, hint="Use a folder elsewhere, such as one in your home."
            )


def _check_python(python: str, work: Work) -> None:
    found = shutil.which(python, path=work.env.get("PATH"))
    if found is None:
        raise BadRequest(
            f"python: there is no interpreter {python!r}.",
            field="python",
            hint="Give the full path of a Python, for example ~/venv/bin/python.",
        )
    _refuse_kernels_own("python", Path(work.cwd, found))


def _refuse_kernels_own(field: str, path: Path | str) -> None:
    """What cannot be checked for the job, since there the same name is something else."""
    if (place := kernels_own(path)) is not None:
        raise BadRequest(
            f"{field}: {str(path)!r} leads to {place!r}, which is no place for files of jobs.",
            field=field,
            hint="What lies in /proc, /sys and /dev is the kernel's, and another thing for each process: "
            "name a file or folder on a disk, or in /dev/shm.",
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
    _refuse_kernels_own("cwd", work.cwd)
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
    _refuse_kernels_own("path", script)
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


def _numbered(error: BadRequest, number: int, count: int) -> BadRequest:
    if count == 1:
        return error
    return type(error)(f"Job {number} of the batch: {error.message}", field=error.field, hint=error.hint)
