"""The options of a job, defined once for the magics and the command line.

Turns words such as ``--vram 4G --out model`` into the JSON fields of a submission and checks
units at once, so that a typing error is answered before anything is captured or started.
Never decides what runs: whatever follows the options is handed back untouched.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import sweeps
from .core.asked import NOTICE_FORM, read_notice
from .core.model import BadRequest, NotAvailable
from .core.quantities import parse_mib, parse_seconds

SWEEP = "--sweep"


@dataclass(frozen=True)
class Parsed:
    """What the options said.

    fields  JSON fields of the submission, only those that were given.
    env     variables of ``--env``, to be laid over the submitter's environment.
    own     the asking surface's own switches (``wait``, ``quiet``, ...).
    rest    the words after the options, untouched.
    """

    fields: dict[str, Any]
    env: dict[str, str]
    own: dict[str, Any]
    rest: list[str] = field(default_factory=list)


class OptionParser(argparse.ArgumentParser):
    """An argparse parser that raises ``BadRequest`` with a suggestion instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise BadRequest(f"{message[:1].upper()}{message[1:]}.", hint=f"`{self.prog} --help` lists the options.")

    def actions_by_option(self) -> dict[str, argparse.Action]:
        return self._option_string_actions

    def takes_value(self, word: str) -> bool:
        """Whether the option consumes the word after it. Raises ``BadRequest`` for an unknown option."""
        name = word.partition("=")[0]
        action = self.actions_by_option().get(name)
        if action is None:
            self.refuse_unknown(name)
        return "=" not in word and action.nargs != 0

    def refuse_unknown(self, name: str) -> NoReturn:
        near = difflib.get_close_matches(name, list(self.actions_by_option()), n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "Known: " + ", ".join(self.long_options()) + "."
        raise BadRequest(f"There is no option {name}.", field=name.lstrip("-"), hint=hint)

    def long_options(self) -> list[str]:
        return [name for name in self.actions_by_option() if name.startswith("--") and name != "--help"]


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser every option of a job; all default to "not given"."""
    from .wire import NOT_BUILT

    group = parser.add_argument_group("what the job asks for")

    def option(name: str, field: str, help: str, **more: Any) -> None:  # noqa: A002 - argparse's own word
        shown = argparse.SUPPRESS if field in NOT_BUILT else help  # it is known, and refused with the reason
        group.add_argument(name, dest=field, default=argparse.SUPPRESS, help=shown, **more)

    option("--name", "name", "a name to find it by", metavar="TEXT")
    option(
        "--vram",
        "vram",
        "memory on each GPU: 4G, 512M, or auto (learned from earlier runs); without it whole GPUs",
        metavar="AMOUNT",
    )
    option("--gpus", "gpus", "how many GPUs (default 1; 0 = none)", metavar="N")
    option("--cpus", "cpus", "CPUs to count against the machine", metavar="N")
    option("--mem", "memory", "host memory to count against the machine: 16G", metavar="AMOUNT")
    option("--exclusive", "exclusive", "share its GPUs with no other job", action="store_true")
    option("--gpu-model", "gpu_model", "only GPUs whose name holds this text", metavar="TEXT")
    option("--prefer", "preferred_gpus", "GPUs it would rather have: 0,1 or UUIDs", metavar="LIST", action="append")
    option("--priority", "priority", "low, normal or high", choices=["low", "normal", "high"])
    option("--time", "time_limit", "end it after this time: 90s, 15m, 2h", metavar="SPAN")
    option("--retries", "retries", "how often to run it again after a failure", metavar="N")
    option(
        "--on-oom",
        "on_oom",
        "when the GPU has no memory left: fail (default), or retry with more",
        choices=["fail", "retry"],
    )
    option("--no-cap", "cap", "do not ask frameworks to stay within --vram (cooperative caps)", action="store_false")
    option("--after", "after", "start after these jobs: ID,ID", metavar="LIST", action="append")
    option("--after-when", "after_when", "when they have", choices=["succeeded", "finished"])
    option(
        "--preemptible",
        "preemptible",
        "may be stopped and queued again for a more urgent job (default: if its priority is low)",
        action=argparse.BooleanOptionalAction,
    )
    option("--signal", "signal", "send this signal so long before --time is over: USR1@60s", metavar="SIGNAL@SPAN")
    option("--grace", "grace", "time to clean up when it is ended (default 30s)", metavar="SPAN")
    option("--in", "inputs", "variables to bring along: a,b (cells)", metavar="NAMES", action="append")
    option("--out", "outputs", "variables to bring back: a,b (cells)", metavar="NAMES", action="append")
    option(
        "--param", "parameters", "a parameter of a notebook: epochs=3 (may be repeated)", metavar="K=V", action="append"
    )
    option("--env", "env", "set a variable: KEY=VALUE (may be repeated)", metavar="K=V", action="append")
    option("--cwd", "cwd", "the folder in which it runs", metavar="FOLDER")
    option("--python", "python", "the interpreter that runs it", metavar="PATH")
    option("--tag", "tags", "a tag (may be repeated)", metavar="TEXT", action="append")
    option("--notify", "notify", "whom to tell when it ends", metavar="WHOM")
    option("--key", "idempotency_key", "a key of your own: the same key never queues a second job", metavar="TEXT")


def add_array_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that make an array of a submission."""
    group = parser.add_argument_group("many at once")
    group.add_argument(
        SWEEP,
        dest="sweep",
        default=[],
        action="append",
        metavar="NAME=VALUES",
        help="a job for each combination: lr=0.1,0.01 seed=1..5; {lr} stands for the value in the words of a script",
    )
    group.add_argument(
        "--throttle", dest="throttle", default=None, metavar="N", help="at most so many of them run at a time"
    )


def read_array(own: dict[str, Any]) -> tuple[dict[str, list[Any]], int | None]:
    """The swept variables with their values, if any, and the throttle. Raises ``BadRequest``."""
    swept = sweeps.read(own["sweep"])
    if own["throttle"] is None:
        return swept, None
    if not swept:
        raise BadRequest("--throttle: it is for sweeps; a single job takes no turns.", field="throttle")
    return swept, _count("throttle", own["throttle"])


_OPTION_OF = {
    "memory": "--mem",
    "gpu_model": "--gpu-model",
    "preferred_gpus": "--prefer",
    "time_limit": "--time",
    "on_oom": "--on-oom",
    "cap": "--no-cap",
    "after_when": "--after-when",
    "inputs": "--in",
    "outputs": "--out",
    "tags": "--tag",
    "idempotency_key": "--key",
    "parameters": "--param",
}
_AMOUNTS = ("vram", "memory")
_SPANS = ("time_limit", "grace")
_COUNTS = {"gpus": (0, 1024), "cpus": (1, 65536), "retries": (0, 100), "throttle": (1, 1_000_000)}
_LISTS = ("preferred_gpus", "after", "inputs", "outputs", "tags")
_NAMES = ("inputs", "outputs")
_WORDS = (
    "name",
    "signal",
    "gpu_model",
    "priority",
    "on_oom",
    "after_when",
    "cwd",
    "python",
    "notify",
    "idempotency_key",
)
_FLAGS = ("exclusive", "preemptible", "cap")
_FIELDS = frozenset({*_AMOUNTS, *_SPANS, *_COUNTS, *_LISTS, *_WORDS, *_FLAGS, "parameters"}) - {"throttle"}


def option_of(field: str) -> str:
    """The option by which a person gives this field."""
    return _OPTION_OF.get(field, "--" + field)


def goes_on(option: str, word: str) -> bool:
    """Whether a word belongs to the option before it: ``--sweep`` takes all that look like ``NAME=VALUES``."""
    return option == SWEEP and sweeps.WORD.match(word) is not None


def head_length(words: Sequence[str], parser: OptionParser) -> int:
    """How many of the words are options with their values; the first other word ends them, as does ``--``."""
    position, option = 0, ""
    while position < len(words):
        word = words[position]
        if goes_on(option, word):
            position += 1
            continue
        option = word.partition("=")[0]
        if word == "--" or not word.startswith("-") or word == "-":
            return position
        position += 2 if parser.takes_value(word) else 1
    return len(words)


def parse(words: Sequence[str], parser: OptionParser) -> Parsed:
    """Read options up to the first word that is none. Raises ``BadRequest`` naming the option."""
    length = head_length(words, parser)
    given = vars(parser.parse_args(_joined(list(words[:length]), parser)))
    rest = list(words[length:])
    return _checked(given, rest[1:] if rest[:1] == ["--"] else rest)


def _joined(words: list[str], parser: OptionParser) -> list[str]:
    """Write ``--opt value`` as ``--opt=value``: argparse would take a value like ``-1G`` for an option."""
    joined: list[str] = []
    option = ""
    while words:
        word = words.pop(0)
        if goes_on(option, word):
            joined.append(f"{option}={word}")
            continue
        option = word.partition("=")[0]
        if parser.takes_value(word) and word.startswith("--"):
            if not words:
                raise BadRequest(f"{word} needs a value.", field=word.lstrip("-"))
            word = f"{word}={words.pop(0)}"
        joined.append(word)
    return joined


def _checked(given: dict[str, Any], rest: list[str]) -> Parsed:
    fields = {name: _value(name, value) for name, value in given.items() if name in _FIELDS}
    refuse_not_built(fields)
    own = {name: value for name, value in given.items() if name not in _FIELDS and name != "env"}
    return Parsed(fields=fields, env=_env(given.get("env", [])), own=own, rest=rest)


def refuse_not_built(fields: dict[str, Any]) -> None:
    """A known option of a later version is refused, never ignored."""
    from .wire import NOT_BUILT

    for name, why in NOT_BUILT.items():
        if fields.get(name):
            raise NotAvailable(f"{option_of(name)}: {why}.", field=name)


def _value(name: str, value: Any) -> Any:
    if name in _AMOUNTS:
        return _amount(name, value)
    if name in _SPANS:
        return _span(name, value)
    if name in _COUNTS:
        return _count(name, value)
    if name == "signal":
        return _signal(value)
    if name in _LISTS:
        return _list(name, value)
    return _parameters(value) if name == "parameters" else value


def _amount(name: str, text: str) -> str:
    if not (name == "vram" and text == "auto"):
        try:
            parse_mib(text)
        except ValueError as error:
            raise _refusal(name, str(error), f"For example {option_of(name)} 4G.") from None
    return text


def _span(name: str, text: str) -> str:
    try:
        parse_seconds(text, zero=name == "grace")
    except ValueError as error:
        raise _refusal(name, str(error), f"For example {option_of(name)} 15m.") from None
    return text


def _count(name: str, text: str) -> int:
    least, most = _COUNTS[name]
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise _refusal(name, f"{text!r} is not a whole number from {least} to {most}", None)
    return int(text)


def _signal(text: str) -> str:
    try:
        read_notice(text)
    except ValueError as error:
        raise _refusal("signal", str(error), NOTICE_FORM) from None
    return text


def _list(name: str, texts: list[str]) -> list[str]:
    items = [item.strip() for text in texts for item in text.split(",") if item.strip()]
    for item in items if name in _NAMES else ():
        if not item.isidentifier():
            raise _refusal(name, f"{item!r} is not a variable name", f"For example {option_of(name)} model,loss.")
    return list(dict.fromkeys(items))


def _env(texts: list[str]) -> dict[str, str]:
    return _pairs("env", texts, "For example --env STAGE=test.")


def _parameters(texts: list[str]) -> dict[str, Any]:
    """Values are read as JSON where they are JSON, also ``True``, ``False`` and ``None``; all else is text."""
    pairs = _pairs("parameters", texts, "For example --param epochs=3.")
    return {name: _literal(value) for name, value in pairs.items()}


def _literal(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text, parse_constant=str)  # JSON has no NaN
    except ValueError:
        return text


def _pairs(name: str, texts: list[str], example: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise _refusal(name, f"{text!r} is not KEY=VALUE", example)
        pairs[key] = value
    return pairs


def _refusal(name: str, what: str, hint: str | None) -> BadRequest:
    return BadRequest(f"{option_of(name)}: {what}.", field=name, hint=hint)
