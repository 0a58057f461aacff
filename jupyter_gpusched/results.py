"""What a job left behind, as values of this process: variables, return values, exceptions, notebooks.

Unpickles only what the user's own job wrote: to unpickle is to run what somebody wrote, and an
administrator may ask for anybody's jobs. A pickle of another Python is refused, not tried.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .core.model import BadRequest, GpuSchedError, NotAllowed

if TYPE_CHECKING:
    from .client import Client

RETURNED, RAISED = "value", "exception"
"""Names of the results of a function job."""


class RemoteTraceback(Exception):
    """The traceback of an exception that was raised in a job, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text.rstrip()}"


def refuse_foreign(client: Client, view: dict[str, Any]) -> None:
    """Raises ``NotAllowed`` unless the job is this user's own: nothing of another's is made into values here."""
    if view["user"] != client.me():
        raise NotAllowed(
            f"Job {view['id']} is {view['user']}'s: to read the values that it left would run {view['user']}'s code "
            f"as {client.me()}.",
            field="id",
            hint="Look at its outputs and its log, or let its owner write the value to a file of a neutral format.",
        )


def value_of(client: Client, view: dict[str, Any], name: str) -> Any:
    """A result of this name. Raises ``BadRequest`` for another Python's, ``NotAllowed`` for another user's."""
    refuse_foreign(client, view)
    envelope = pickle.loads(client.result(view["id"], name))  # noqa: S301 - see the module's docstring
    if not _of_this_python(envelope):
        theirs, ours = ".".join(map(str, envelope["python"])), ".".join(map(str, sys.version_info[:2]))
        raise BadRequest(
            f"`{name}` ({envelope['type']}) was written by Python {theirs} and cannot be read by Python {ours}.",
            field="python",
            hint="Write it to a file of a neutral format in the job, or run the job with this kernel's Python.",
        )
    return pickle.loads(envelope["value"])  # noqa: S301 - see above


def exception_of(client: Client, view: dict[str, Any]) -> BaseException | None:
    """What the function of a failed job raised: the exception itself, else its traceback's text.

    None when the job ended otherwise (killed, timed out), or is another user's.
    """
    if view["user"] != client.me():
        return None
    try:
        envelope = pickle.loads(client.result(view["id"], RAISED))  # noqa: S301 - see above
    except GpuSchedError:
        return None
    if not view["attempts"] or envelope["attempt"] != view["attempts"][-1]["number"]:
        return None  # an earlier attempt's
    told = RemoteTraceback(envelope["text"])
    raised = _unpickled(envelope)
    if raised is None:
        return told
    if raised.__cause__ is None:
        raised.__cause__ = told
    return raised


def _unpickled(envelope: dict[str, Any]) -> BaseException | None:
    if envelope["value"] is None or not _of_this_python(envelope):
        return None
    try:
        raised = pickle.loads(envelope["value"])  # noqa: S301 - see above
    except Exception:  # noqa: BLE001 - many exceptions can be pickled and not made again; the text will do
        return None
    return raised if isinstance(raised, BaseException) else None


def _of_this_python(envelope: dict[str, Any]) -> bool:
    return list(envelope["python"]) == list(sys.version_info[:2])


class OutputNotebook:
    """The notebook that a job left, with its outputs so far.

    path  where it lies, in the job's folder on the host's machine.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text

    @property
    def content(self) -> Any:
        """As nbformat has it, to read or change; a fresh copy each time."""
        import nbformat

        return nbformat.reads(self._text, as_version=4)  # type: ignore[no-untyped-call, unused-ignore]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a copy of your own; returns its path."""
        target = Path(path)
        target.write_text(self._text, encoding="utf-8")
        return target.absolute()

    def __repr__(self) -> str:
        cells = [cell for cell in json.loads(self._text)["cells"] if cell["cell_type"] == "code"]
        run = sum(cell.get("execution_count") is not None for cell in cells)
        return f"<notebook {self.path}: {run} of {len(cells)} code cells run>"


def notebook_of(client: Client, job_id: str) -> OutputNotebook:
    """The output notebook of a notebook job, whatever its phase. Raises ``BadRequest`` when there is none yet."""
    spec = client.spec(job_id)
    if spec.get("kind") != "notebook":
        raise BadRequest(f"Job {job_id} is no notebook job.", field="id", hint="job.show() displays its outputs.")
    name = Path(spec["path"]).name
    try:
        text = client.result(job_id, name).decode("utf-8", "replace")
    except GpuSchedError as error:
        if error.code != "unknown_result":
            raise
        raise BadRequest(
            f"Job {job_id} is {client.job(job_id)['phase']}: it has no output notebook yet.",
            field="id",
            hint="It is there from the start of the first cell on; job.wait() waits for the end.",
        ) from None
    return OutputNotebook(str(Path(client.health()["state_dir"], "jobs", job_id, "results", name)), text)
