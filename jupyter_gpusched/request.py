"""Makes submissions: what runs, and the surroundings of whoever asks.

Checks what can be checked without the host, so that a refusal is immediate and starts
nothing. Never talks to the host.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import sweeps
from .core.model import BadRequest

Spec = dict[str, Any]

_AMOUNT = re.compile(r"\d+(?:\.\d+)?(?:([MGT])(?:i?B)?|[smhd])", re.IGNORECASE)
"""Of memory or of time: what would be an option's value."""


def of_words(words: Sequence[str]) -> Spec:
    """What an argument list runs: ``*.py`` first makes a script, ``*.ipynb`` a notebook, all else a command."""
    if not words:
        raise BadRequest(
            "There is nothing to run.",
            field="argv",
            hint="Give a script (`train.py --epochs 3`) or a command after the options.",
        )
    first, *rest = words
    if first.endswith(".py"):
        return {"kind": "script", "path": first, "args": rest}
    if first.endswith(".ipynb"):
        if rest:
            raise BadRequest(
                f"A notebook takes no arguments, but {' '.join(rest)!r} follows {first}.",
                field="parameters",
                hint="Give its parameters before its name: --param epochs=3.",
            )
        return {"kind": "notebook", "path": first}
    if (amount := _AMOUNT.fullmatch(first)) and shutil.which(first) is None:
        option = "--vram" if amount[1] else "--time"
        raise BadRequest(
            f"There is no program {first!r}; an amount belongs to an option.",
            field="argv",
            hint=f"Write {option} {first}, and what is to run after the options.",
        )
    return {"kind": "command", "argv": [first, *rest]}


def of_shell_line(text: str) -> Spec:
    """A shell line; given to ``sh -c`` as one string, and the record says so."""
    if not text.strip():
        raise BadRequest("The shell line is empty.", field="argv", hint="For example: ! nvidia-smi")
    return {"kind": "command", "argv": text.strip()}


def of_cell(source: str, payload: bytes | None) -> Spec:
    spec: Spec = {"kind": "cell", "source": source}
    if payload is not None:
        spec["payload"] = base64.b64encode(payload).decode("ascii")
    return spec


def of_call(name: str, payload: bytes) -> Spec:
    """A function with its arguments; ``name`` is what the job is called unless the options say otherwise."""
    return {"kind": "function", "name": name, "payload": base64.b64encode(payload).decode("ascii")}


def complete(what: Spec, fields: Mapping[str, Any], env: Mapping[str, str], *, python: str | None = None) -> Spec:
    """Add the options and the submitter's folder, environment, interpreter and notebook; checked as a whole.

    python  the interpreter when the options name none (default: the one that runs this).
    """
    from .core.environment import submitted
    from .texts import is_text

    spec = {**what, **fields}
    spec["cwd"] = _folder(fields.get("cwd"))
    spec["env"] = {**_own_variables(submitted(os.environ)), **env}
    spec["python"] = _interpreter(fields.get("python")) or python or sys.executable
    spec.setdefault("idempotency_key", uuid.uuid4().hex)
    if (notebook := os.environ.get("JPY_SESSION_NAME")) and is_text(notebook):
        spec.setdefault("notebook", notebook)
    check(spec)
    return spec


def elements(spec: Spec, swept: Mapping[str, Sequence[Any]]) -> tuple[Spec, list[Spec]]:
    """What the elements of a sweep have in common, and what each has of its own; checked as a whole."""
    common = {field: value for field, value in spec.items() if field != "idempotency_key"}
    key = spec["idempotency_key"]
    own = [
        {"sweep": values, "idempotency_key": f"{key}-{number}"}
        for number, values in enumerate(sweeps.combinations(swept))
    ]
    check({**common, **own[0]})
    return common, own


def changes(fields: Mapping[str, Any], env: Mapping[str, str], old: Mapping[str, Any]) -> Spec:
    """What a resubmission asks for anew; folders and interpreters are meant as seen from here.

    env  variables to lay over those of the old submission.
    """
    from .texts import refuse_what_is_no_text

    spec = dict(fields)
    for field, value in (*spec.items(), ("env", dict(env))):
        refuse_what_is_no_text(field, value)
    if spec.get("cwd") is not None:
        spec["cwd"] = _folder(spec["cwd"])
    if spec.get("python") is not None:
        spec["python"] = _interpreter(spec["python"])
    if env:
        spec["env"] = {**(old.get("env") or {}), **env}
    spec.setdefault("idempotency_key", uuid.uuid4().hex)
    return spec


def check(spec: Spec) -> None:
    """Read the submission as the host will. Raises ``BadRequest`` naming the field."""
    from .submission import read_job

    light = {**spec, **({"payload": "eA=="} if "payload" in spec else {})}  # it is large, and right already
    read_job(light, job_id="", owner="", now=0.0, home=os.sep)


def _own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Without those that are not UTF-8, which JSON cannot carry; their names are told."""
    from .texts import is_text

    dropped = [name for name, value in environ.items() if not (is_text(name) and is_text(value))]
    if dropped:
        names = ", ".join(ascii(name)[1:-1] for name in dropped)
        sys.stderr.write(f"gpusched: left out of the job's environment, since not in UTF-8: {names}\n")
    return {name: value for name, value in environ.items() if name not in dropped}


def _folder(wish: str | None) -> str:
    try:
        given = None if wish is None else Path(wish).expanduser()
    except RuntimeError as error:  # ~somebody who is not there
        raise BadRequest(f"cwd: {error}", field="cwd", hint="Give the full path.") from None
    if given is not None and given.is_absolute():
        return str(given)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise BadRequest(
            "The current folder does not exist any more.",
            field="cwd",
            hint="Change to a folder that exists (`%cd`), or give --cwd.",
        ) from None
    return str(here if given is None else here / given)


def _interpreter(wish: str | None) -> str | None:
    if wish is None:
        return None
    path = Path(wish).expanduser()
    found = shutil.which(str(path.absolute()) if os.sep in wish else wish)
    if found is None:
        raise BadRequest(
            f"--python: there is no program {wish!r} that can be run.",
            field="python",
            hint="Give the path of a Python interpreter, for example .venv/bin/python.",
        )
    return found
