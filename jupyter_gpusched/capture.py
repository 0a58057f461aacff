"""What a cell brings along: checks its code and pickles the values that it takes from the notebook.

Everything is decided at submission; a cell that cannot run or a value that cannot travel is
refused here, by name. Never runs the cell and never changes a value.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import warnings as python_warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import culprits
from .cellnames import CellNames, Magic, Transform, read
from .core.model import BadRequest
from .travel import TooLarge, envelope, pickled, search_path, show_size, size_of, sources_of, travels
from .wire import LARGEST_PAYLOAD

_NEVER = re.compile(r"In|Out|get_ipython|exit|quit|_+|_\d+|_i+|_i\d+|_[iod]h|__\w+__|_exit_code")
_NEEDS_A_PERSON = frozenset({"debug", "pdb", "gui"})


@dataclass(frozen=True)
class Captured:
    """What travels with the cell.

    payload   bytes of the payload file, or None when the cell needs nothing.
    names     the variables in it.
    warnings  sentences for the person who submits.
    """

    payload: bytes | None
    names: tuple[str, ...]
    warnings: tuple[str, ...]


def capture(
    source: str,
    namespace: Mapping[str, Any],
    shell: Any,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    given: Sequence[str] = (),
    automatic: bool = True,
) -> Captured:
    """Check a cell and pickle what it needs.

    shell      the IPython shell whose syntax the cell uses; None = plain IPython syntax.
    inputs     variables to bring along in any case.
    outputs    variables the user wants back: the cell must bind or bring them.
    given      variables that the job gets in another way: those of a sweep.
    automatic  whether free names are found and brought along.
    Raises ``BadRequest`` for a cell that cannot be run and for what cannot travel.
    """
    transform = _transform(shell)
    names = _names(source, transform)
    _refuse_what_needs_a_person(names.magics, source)
    hard = [name for name in _present(inputs, namespace) if name not in given]
    soft: list[str] = []
    if automatic:
        namespace = {name: value for name, value in namespace.items() if name not in given}
        hard += [name for name in names.hard if name not in hard and _belongs_to_notebook(name, namespace)]
        soft = [name for name in names.soft if name not in hard and _belongs_to_notebook(name, namespace)]
    kept, values = _pickle({name: namespace[name] for name in hard + soft}, set(soft))
    _check_outputs(outputs, names, [*kept, *given])
    extras = search_path()
    brought = {name: namespace[name] for name in kept}
    payload = envelope(values, extras, sources_of(brought.values())) if kept or (extras and automatic) else None
    needed = [name for name in names.needed if name not in given]
    unknown = [name for name in needed if _is_unknown(name, namespace)] if automatic else []
    return Captured(payload, tuple(kept), (*_warnings(brought), *_of_unknown(unknown)))


def _transform(shell: Any) -> Transform:
    if shell is not None:
        return shell.transform_cell  # type: ignore[no-any-return]
    from IPython.core.inputtransformer2 import TransformerManager

    transform: Transform = TransformerManager().transform_cell  # type: ignore[no-untyped-call, unused-ignore]
    return transform


def _names(source: str, transform: Transform) -> CellNames:
    try:
        python = transform(source)
        _compile(python)
        names = read(python, transform)
    except SyntaxError as error:
        raise _syntax_refusal(error, source) from None
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte; an expression without end
        raise BadRequest(f"The cell cannot be compiled: {error}.", field="source") from None
    if not ast.parse(python).body:
        raise BadRequest(
            "The cell is empty: there is nothing to run.",
            field="source",
            hint="Put the code of the job below the magic's line.",
        )
    return names


def _compile(python: str) -> None:
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")
        compile(python, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def _syntax_refusal(error: SyntaxError, source: str) -> BadRequest:
    lines = source.splitlines()
    line = error.lineno or 0
    shown = lines[line - 1].strip() if 0 < line <= len(lines) else (error.text or "").strip()
    return BadRequest(
        f"Line {line} of the cell is not valid: {error.msg}: `{shown}`"
        if line
        else f"The cell is not valid: {error.msg}",
        field="source",
        hint="Lines are counted from the first line of code, below the magic's own line.",
    )


def _refuse_what_needs_a_person(magics: Iterable[Magic], source: str) -> None:
    for magic in magics:
        if magic.name in _NEEDS_A_PERSON:
            line = _line_of(magic, source)
            raise BadRequest(
                f"Line {line} of the cell: %{magic.name} needs a person at the keyboard and cannot work in a job.",
                field="source",
                hint=f"Take %{magic.name} out, or run this cell in the notebook itself.",
            )


def _line_of(magic: Magic, source: str) -> int:
    """The line as typed; IPython's translation may have joined lines before it."""
    typed = re.compile(rf"(?:^|=)\s*%%?{magic.name}\b")
    lines = [number for number, text in enumerate(source.splitlines(), 1) if typed.search(text)]
    return magic.line if magic.line in lines or not lines else lines[0]


def _present(inputs: Sequence[str], namespace: Mapping[str, Any]) -> list[str]:
    for name in inputs:
        if name not in namespace:
            raise BadRequest(
                f"--in {name}: there is no variable `{name}` in this notebook.",
                field="inputs",
                hint="Run the cell that defines it first, or take it out of --in.",
            )
    return list(dict.fromkeys(inputs))


def _belongs_to_notebook(name: str, namespace: Mapping[str, Any]) -> bool:
    """Whether a name is the user's own and not one that IPython puts everywhere."""
    if name not in namespace or (_NEVER.fullmatch(name) and name != "__main__"):
        return False
    made_by = getattr(namespace[name], "__module__", None)
    return not (name in ("display", "open") and isinstance(made_by, str) and made_by.startswith("IPython"))


def _is_unknown(name: str, namespace: Mapping[str, Any]) -> bool:
    return not (name in namespace or hasattr(builtins, name) or name == "display" or _NEVER.fullmatch(name))


def _of_unknown(names: Sequence[str]) -> Iterable[str]:
    if names:
        yield f"not found in this notebook: {', '.join(names)}. Run the cells that define them, and submit this again."


def _check_outputs(outputs: Sequence[str], names: CellNames, kept: Sequence[str]) -> None:
    for name in outputs:
        if not (names.any_bound or name in names.bound or name in kept):
            raise BadRequest(
                f"--out {name}: the cell never assigns `{name}`.",
                field="outputs",
                hint=f"Assign `{name}` at the top level of the cell, or take it out of --out.",
            )


def _pickle(values: dict[str, Any], soft: set[str]) -> tuple[list[str], bytes]:
    """Pickle all values together, so that what they share stays shared; soft ones may be left out."""
    try:
        return list(values), pickled(values)
    except TooLarge:
        raise _too_large(values) from None
    except Exception:  # noqa: BLE001 - see travels; the culprit is looked for next
        failures = {name: error for name, value in values.items() if (error := travels(value)) is not None}
    refused = [culprits.find(name, values[name], failures[name], travels) for name in failures if name not in soft]
    if refused or not failures:
        raise _refusal(refused)
    return _pickle({name: value for name, value in values.items() if name not in failures}, soft)


def _refusal(refused: list[culprits.Culprit]) -> BadRequest:
    if not refused:
        return BadRequest(
            "The variables of the cell cannot travel to the job together.",
            field="inputs",
            hint="Name those it needs with --in and use --no-capture.",
        )
    sentences = ". ".join(culprit.sentence() for culprit in refused)
    ways_out = " ".join(dict.fromkeys(culprit.way_out() for culprit in refused))
    return BadRequest(f"{sentences}. Nothing was queued.", field="inputs", hint=ways_out)


def _too_large(values: dict[str, Any]) -> BadRequest:
    sizes = sorted(((size_of(value), name) for name, value in values.items()), reverse=True)
    largest = ", ".join(f"`{name}` ({culprits.type_name(values[name])}, {show_size(size)})" for size, name in sizes[:3])
    return BadRequest(
        f"The variables of the cell are too much to travel with it: {show_size(sum(size for size, _ in sizes))}, "
        f"at most {show_size(LARGEST_PAYLOAD)}. The largest: {largest}. Nothing was queued.",
        field="inputs",
        hint="Save large data to a file and read it inside the cell, or create it there.",
    )


def _warnings(values: dict[str, Any]) -> Iterable[str]:
    for name, value in values.items():
        if isinstance(value, io.TextIOBase) and not isinstance(value, io.StringIO):
            yield f"`{name}` is an open file: the job gets a private copy of what it holds now."
