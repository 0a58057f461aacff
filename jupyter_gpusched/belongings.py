"""What a job brings along: the files that lie in its folder before it starts.

They are on disk before the job is acknowledged. What several jobs of an array bring along
together is stored once, and each has a link to it. Never unpickles anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from .core.model import BadRequest, Job, JobId, Kind
from .launch.door import as_owner_of, opened_in
from .launch.folders import get_file, lay_folder, put_file, remove_folder
from .launch.owners import Owner
from .notebooks import LARGEST_NOTEBOOK
from .wire import LARGEST_PAYLOAD

PAYLOAD, NOTEBOOK = "payload.pkl", "notebook.ipynb"
"""The values it brings along, or the notebook as it was submitted."""

Content = bytes | Path
"""What to write, or the file of another job that is to be this one's too."""

Kept = tuple[str, Content]
"""A file of the job's folder: its name and content."""

Folder = Callable[[JobId], Path]


def write(kept: Mapping[JobId, Kept], folder_of: Folder, owner: Owner | None) -> None:
    """Put the files into the folders, which are made for their owner. Raises ``OSError``; then some may be there."""
    written: dict[int, Path] = {}
    for job_id, (name, content) in kept.items():
        folder = folder_of(job_id)
        source = content if isinstance(content, Path) else written.get(id(content))
        if source is not None:
            _link(source, folder, owner, name)
        elif isinstance(content, bytes):
            put_file(folder, owner, name, content)
            written[id(content)] = folder / name


def _link(source: Path, folder: Path, owner: Owner | None, name: str) -> None:
    """With the owner's rights, who could link as much by hand."""
    lay_folder(folder, owner)
    try:
        with as_owner_of(folder):
            os.link(source, folder / name, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # another owner's, a file system without links, or too many of one file
        put_file(folder, owner, name, get_file(source.parent, source.name, most=LARGEST_PAYLOAD))


def drop(job_ids: Iterable[JobId], folder_of: Folder) -> None:
    """Take the folders of jobs away that are not queued after all."""
    for job_id in job_ids:
        remove_folder(folder_of(job_id))


def payload_of(job: Job, folder_of: Folder) -> Path:
    """The captured values of an earlier job. Raises ``BadRequest`` when they are gone."""
    folder = folder_of(job.id)
    try:
        with opened_in(folder, folder, PAYLOAD):
            return folder / PAYLOAD
    except OSError as error:
        raise BadRequest(
            f"payload: the captured values of job {job.id} are gone ({error.strerror or error}).",
            field="payload",
            hint="Submit it again from its notebook.",
        ) from None


def notebook_of(job: Job | None, folder_of: Folder) -> bytes | None:
    """The notebook that was kept for an earlier job; None where there is none."""
    if job is not None and job.kind is Kind.NOTEBOOK:
        with suppress(OSError):
            return get_file(folder_of(job.id), NOTEBOOK, most=LARGEST_NOTEBOOK)
    return None
