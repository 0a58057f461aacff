"""What a submission runs: of which kind it is, how it is called, and what it brings along.

Checks what can be checked without the machine; what a job asks for is ``submission``'s.
"""

from __future__ import annotations

import base64
import binascii
import keyword
import os
import re
from typing import Any

from .core.model import BadRequest, Kind
from .wire import LARGEST_PAYLOAD, JobSpec

_RUNS = {
    Kind.COMMAND: "argv",
    Kind.SCRIPT: "path",
    Kind.NOTEBOOK: "path",
    Kind.CELL: "source",
    Kind.FUNCTION: "payload",
}
"""The field that says what a job of this kind runs."""

_COMMENT = re.compile(r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\s*#.*""")
"""A comment, or the text in quotation marks in which there is none."""

_ONLY_OF = {
    "inputs": (Kind.CELL,),
    "outputs": (Kind.CELL,),
    "payload": (Kind.CELL, Kind.FUNCTION),
    "parameters": (Kind.NOTEBOOK,),
    "item": (Kind.FUNCTION,),
}

_PIECE = 2**20  # a multiple of 4; other threads go on between two pieces


def kind_of(spec: JobSpec) -> Kind:
    """The kind, given or told by the one field that says what runs."""
    given = [field for field in ("argv", "path", "source") if getattr(spec, field) is not None]
    kind = spec.kind or _told_by(given, spec)
    if kind is None:
        raise BadRequest(
            "The job does not say what to run.",
            field="argv",
            hint="Give one of `argv` (a command), `path` (a Python script or a notebook), `source` (a cell) "
            "or `payload` (a function).",
        )
    needed = _RUNS[kind]
    if given != [needed] and not (kind is Kind.FUNCTION and not given):
        raise BadRequest(f"A {kind.value} job takes `{needed}` and none of the others.", field=needed)
    _refuse_empty(spec, kind)
    for field, kinds in _ONLY_OF.items():
        if getattr(spec, field) not in (None, [], {}, "") and kind not in kinds:
            takers = " or ".join(f"a {kind.value}" for kind in kinds)
            raise BadRequest(f"{field}: only {takers} job takes it.", field=field)
    if spec.args and kind is not Kind.SCRIPT:
        raise BadRequest("args: only a script job takes it; a command has all in `argv`.", field="args")
    return kind


def _told_by(given: list[str], spec: JobSpec) -> Kind | None:
    if given == ["path"]:
        return Kind.NOTEBOOK if (spec.path or "").endswith(".ipynb") else Kind.SCRIPT
    if not given and spec.payload is not None:
        return Kind.FUNCTION
    return {"argv": Kind.COMMAND, "source": Kind.CELL}.get(given[0]) if len(given) == 1 else None


def _refuse_empty(spec: JobSpec, kind: Kind) -> None:
    if kind is Kind.COMMAND and not (spec.argv.strip() if isinstance(spec.argv, str) else spec.argv and spec.argv[0]):
        raise BadRequest("argv: the command is empty.", field="argv", hint='For example ["python", "train.py"].')
    if kind is Kind.SCRIPT and not spec.path:
        raise BadRequest("path: the script's name is empty.", field="path")
    if kind is Kind.NOTEBOOK and not (spec.path or "").endswith(".ipynb"):
        raise BadRequest(f"path: {spec.path!r} is no notebook; its name must end with .ipynb.", field="path")
    if kind is Kind.CELL and not (spec.source or "").strip():
        raise BadRequest("source: the cell is empty.", field="source", hint="Put the code to run below the magic line.")
    if kind is Kind.FUNCTION and not spec.payload:
        raise BadRequest(
            "payload: there is no function in it.",
            field="payload",
            hint="Give base64 of cloudpickle.dumps((function, args, kwargs)).",
        )


def name_of(spec: JobSpec, kind: Kind) -> str:
    """The user's name for the job, or one told by what it runs; one line of at most 80 characters."""
    if spec.name is not None:
        if not spec.name.strip() or len(spec.name) > 200 or not spec.name.isprintable():
            raise BadRequest("name: a name is one line of 1 to 200 printable characters.", field="name")
        return spec.name
    if kind in (Kind.SCRIPT, Kind.NOTEBOOK):
        text = os.path.basename(spec.path or "")  # noqa: PTH119 - it need not be a path of this machine
    elif kind is Kind.CELL:
        lines = (line.strip() for line in (spec.source or "").splitlines())
        text = next((line for line in lines if line and not line.startswith(("#", "import ", "from "))), "cell")
        text = text if text.startswith(("!", "%")) else _COMMENT.sub(lambda found: found["text"] or "", text)
    elif kind is Kind.FUNCTION:
        text = kind.value
    else:
        text = spec.argv if isinstance(spec.argv, str) else " ".join(spec.argv or [])
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (shown if len(shown) <= 60 else shown[:57] + "...") or kind.value


def variables(names: list[str], field: str) -> tuple[str, ...]:
    for name in names:
        if not name.isidentifier():
            raise BadRequest(
                f"{field}: {name!r} is not a variable name.", field=field, hint="For example `--out model,loss`."
            )
    return tuple(names)


def environment(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not name or "=" in name:
            raise BadRequest(f"env: {name!r} cannot be an environment variable.", field="env")
    return env


def parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    for name in parameters:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise BadRequest(
                f"parameters: {name!r} is not a variable name.",
                field="parameters",
                hint='For example {"epochs": 3}, or --param epochs=3.',
            )
    return parameters


def read_payload(text: str) -> bytes:
    """The bytes of captured values. Raises ``BadRequest``."""
    try:
        payload = b"".join(map(_decoded, (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))))
    except (binascii.Error, ValueError):
        raise BadRequest("payload: it is not base64.", field="payload") from None
    if len(payload) != len(text) // 4 * 3 - text[-2:].count("="):  # a piece before the last had padding
        raise BadRequest("payload: it is not base64.", field="payload")
    if len(payload) > LARGEST_PAYLOAD:
        raise BadRequest(
            f"payload: {len(payload) / 2**20:.0f} MiB of values are too much; "
            f"at most {LARGEST_PAYLOAD // 2**20} MiB travel with a job.",
            field="payload",
            hint="Save large data to a file and read it in the job.",
        )
    return payload


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
