"""What a job brings along: the files that lie in its folder before it starts.

They are on disk before the job is acknowledged. What several jobs of an array bring along
together is stored once, and each has a link to it. Never unpickles anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from .core.model import BadRequest, Job, JobId, Kind
from .places import private_folder

PAYLOAD, NOTEBOOK = "payload.pkl", "notebook.ipynb"
"""The values it brings along, or the notebook as it was submitted."""

Content = bytes | Path
"""What to write, or the file of another job that is to be this one's too."""

Kept = tuple[str, Content]
"""A file of the job's folder: its name and content."""

Folder = Callable[[JobId], Path]


def write(kept: Mapping[JobId, Kept], folder_of: Folder) -> None:
    """Put the files into the folders. Raises ``OSError`` or ``PlaceError``; then some may be there."""
    written: dict[int, Path] = {}
    for job_id, (name, content) in kept.items():
        target = private_folder(folder_of(job_id)) / name
        source = content if isinstance(content, Path) else written.get(id(content))
        if source is not None:
            _link(source, target)
        elif isinstance(content, bytes):
            _write(target, content)
            written[id(content)] = target


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links, or too many of one file
        _write(target, source.read_bytes())


def _write(target: Path, content: bytes) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def drop(job_ids: Iterable[JobId], folder_of: Folder) -> None:
    """Take the folders of jobs away that are not queued after all."""
    for job_id in job_ids:
        shutil.rmtree(folder_of(job_id), ignore_errors=True)


def payload_of(job: Job, folder_of: Folder) -> Path:
    """The captured values of an earlier job. Raises ``BadRequest`` when they are gone."""
    path = folder_of(job.id) / PAYLOAD
    if not path.is_file():
        raise BadRequest(
            f"payload: the captured values of job {job.id} are gone.",
            field="payload",
            hint="Submit it again from its notebook.",
        )
    return path


def notebook_of(job: Job | None, folder_of: Folder) -> Path | None:
    """The notebook that was kept for an earlier job; None where there is none."""
    kept = folder_of(job.id) / NOTEBOOK if job is not None and job.kind is Kind.NOTEBOOK else None
    return kept if kept is not None and kept.is_file() else None
