"""How an ended attempt is explained to a person: a reason and one sentence, from its log's end.

Knows the wordings of Python, of the GPU frameworks and of the shell (sources:
``facts/nvml.md`` 4.6). It never decides whether a job succeeded; exit code and signal do.
"""

from __future__ import annotations

import math
import re
import signal as signals
from collections.abc import Mapping
from typing import Any

from .model import Kind, Shortage
from .quantities import Mib

NO_STDIN = "a background job cannot read input"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LONGEST_LINE = 300
_LAST_LINES = 12
_OURS = "gpusched: "

_AMOUNT = r"[\d.,]+ ?(?:[KMGT]i?B|bytes)"
_CUDA_OOM = re.compile(
    r"(?:CUDA|HIP) out of memory"
    r"|CUDA error: out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|RESOURCE_EXHAUSTED: (?:Out of memory|OOM)"
    r"|OOM when allocating tensor"
    r"|Out of memory allocating [\d,]+ bytes|std::bad_alloc: out_of_memory"
    r"|cudaMalloc failed: out of memory|(?:failed|unable) to allocate CUDA\d* buffer"
    r"|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|Cuda failure .*out of memory"
    r"|torch(?:\.cuda)?\.OutOfMemoryError|cupy\.cuda\.memory\.OutOfMemoryError"
)
_REQUESTED = re.compile(rf"(?:[Tt]ried to allocate|trying to allocate|Out of memory allocating|allocating) ({_AMOUNT})")
_FREE = re.compile(rf"({_AMOUNT}) (?:is|are) free")
_HELD = re.compile(rf"this process has ({_AMOUNT}) memory in use")
_MIB_PER = {"bytes": 2.0**-20, "KiB": 2.0**-10, "KB": 2.0**-10, "MiB": 1.0, "MB": 1.0, "GiB": 1024.0, "GB": 1024.0,
            "TiB": 2.0**20, "TB": 2.0**20}  # fmt: skip
_ABSURD_MIB = 2.0**30
"""PyTorch prints 17179869184.00 GiB where a driver tells nothing."""
_SHAPE = re.compile(r"OOM when allocating tensor with shape ?(\[[\d,\s]*\])")

_GPU_ERROR = re.compile(
    r"uncorrectable ECC error|(?:GPU|device) (?:is lost|has fallen off the bus)|fell off the bus"
    r"|CUDA-capable device\(s\) is/are busy or unavailable|no CUDA-capable device is detected"
    r"|cudaError(?:ECCUncorrectable|DevicesUnavailable|NoDevice|HardwareStackError|SystemNotReady|InitializationError)"
    r"|CUDA_ERROR_(?:ECC_UNCORRECTABLE|DEVICE_UNAVAILABLE|NO_DEVICE|HARDWARE_STACK_ERROR|SYSTEM_NOT_READY|NOT_INITIALIZED)"
    r"|CUDA error: (?:hardware stack error|system not yet initialized|initialization error)"
)
"""What the card or its driver does wrong; an illegal access or a failed assertion in a kernel is the job's own."""

_STDIN = re.compile(
    rf"{NO_STDIN}|EOFError: EOF when reading a line|StdinNotImplementedError"
    r"|(?:^|\.)BdbQuit\b|No such device or address: '/dev/tty'",
    re.MULTILINE,
)
_BARE_EOF = re.compile(r"^EOFError$", re.MULTILINE)  # getpass says no more than this
_TRACEBACK = re.compile(r"(?:^(?P<name>[A-Za-z_][\w.]*)\s{2,})?Traceback \(most recent call last\)", re.MULTILINE)
_CHILD_FAILED = re.compile(r"\b(?:ChildFailedError|CalledProcessError)\b")
_CPU_ALLOCATION = re.compile(r"DefaultCPUAllocator")

_STOPPED = {
    "cancelled": ("cancelled", "ended because it was cancelled"),
    "timeout": ("timeout", "ended because it ran longer than its time limit"),
    "preempted": ("preempted", "ended to make room for a more urgent job"),
}


def diagnose(*, code: int | None, signal: int | None, stopped: str | None, tail: str, kind: Kind) -> tuple[str, str]:
    """Reason (a stable word) and message (one sentence) of an ended attempt.

    code, signal  how the main process ended; at most one is set.
    stopped       why the attempt was being ended, if it was.
    tail          the last few KiB of its log as text; colours are taken out here.
    """
    if stopped in _STOPPED:
        return _STOPPED[stopped]
    if code == 0:
        return "exit", "ended well"
    lines = _lines(tail)
    if kind is Kind.NOTEBOOK:
        lines = _until_ours(lines)
    text = "\n".join(lines)
    if signal is not None:
        return _by_signal(signal, lines, text)
    if (oom := _cuda_oom(_last_words(lines, text, code))) is not None:
        return "cuda_oom", oom
    if (line := _gpu_error(_last_words(lines, text, code))) is not None:
        return "gpu_error", line
    if (line := _stdin(lines, text)) is not None:
        return "stdin", line if NO_STDIN in line else f"{NO_STDIN}: {line}"
    return "exit", _failure(lines, text, code, kind)


def _by_signal(signal: int, lines: list[str], text: str) -> tuple[str, str]:
    if (oom := _cuda_oom(_last_words(lines, text))) is not None:
        return "cuda_oom", oom
    if signal == signals.SIGKILL:
        return "signal_9", (
            "killed by signal 9 (SIGKILL); most likely the machine ran out of host memory "
            "(ask for it with --mem, or use less), or somebody killed it"
        )
    return f"signal_{signal}", f"ended by signal {signal} ({_signal_name(signal)})"


def host_oom(kills: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Reason and message of a job ended by signal 9, when the kernel counted ends for lack of host memory meanwhile.

    kills  how far each of its counters rose: of a memory cgroup (of our server and its jobs), and of the machine.
    """
    rose = {str(path) for path, count in kills.items() if isinstance(count, int) and count > 0}
    if rose - {"/proc/vmstat"}:
        return "host_oom", (
            "the kernel ended it: the memory limit of the group in which jobs run was reached; "
            "use less host memory, or ask for what it needs with --mem"
        )
    if rose:
        return "signal_9", (
            "killed by signal 9 (SIGKILL), and the kernel ended processes for lack of host memory while it ran: "
            "most likely this one (ask for it with --mem, or use less)"
        )
    return None


def _signal_name(signal: int) -> str:
    try:
        return signals.Signals(signal).name
    except ValueError:
        return "a real-time signal"


def _until_ours(lines: list[str]) -> list[str]:
    """The lines up to our own verdict; what a kernel complains of while it is shut down after it explains nothing."""
    verdict = max((place for place, line in enumerate(lines, 1) if line.startswith(_OURS)), default=len(lines))
    return lines[:verdict]


def _last_words(lines: list[str], text: str, code: int | None = 1) -> str:
    """What may tell why it ended: what an uncaught error or, by any other end, its last few lines say.

    An error that was met and survived earlier is not in it.
    """
    traceback = _last_traceback(text) if code == 1 else None
    if traceback is None:
        return "\n".join(lines[-_LAST_LINES:])
    of_a_child = _CHILD_FAILED.search(text, traceback.start()) is not None
    return text if of_a_child else text[text.rfind("\n", 0, traceback.start()) + 1 :]


def _gpu_error(text: str) -> str | None:
    found = _GPU_ERROR.search(text)
    if found is None:
        return None
    line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
    return f"the GPU failed it: {line[:_LONGEST_LINE]}"


def _cuda_oom(text: str) -> str | None:
    """The sentence for a GPU that ran out of memory, with the amounts that were printed."""
    found = None
    for found in _CUDA_OOM.finditer(text):  # noqa: B007  the last one is what ended the job
        pass
    if found is None:
        return None
    start = text.rfind("\n", 0, found.start()) + 1
    context = text[start : found.end() + 600]
    if _CPU_ALLOCATION.search(context):
        return None
    amounts = [
        f"{word} {match[1]}"
        for word, match in (("asked for", _REQUESTED.search(context)), ("free", _FREE.search(context)))
        if match is not None
    ]
    if not amounts and (shape := _SHAPE.search(context)) is not None:
        amounts = [f"asked for a tensor of shape {shape[1]}"]
    told = f" ({', '.join(amounts)})" if amounts else ""
    return f"the GPU ran out of memory{told}; ask for more with --vram, or use smaller batches"


def shortage(tail: str) -> Shortage | None:
    """The amounts that a framework printed when the GPU had no memory left: the last such words of a log's end."""
    text = "\n".join(_lines(tail))
    found = list(_CUDA_OOM.finditer(text))
    if not found:
        return None
    start = text.rfind("\n", 0, found[-1].start()) + 1
    context = text[start : found[-1].end() + 600]
    amounts = Shortage(*(_mib(pattern.search(context)) for pattern in (_REQUESTED, _FREE, _HELD)))
    return None if amounts == Shortage() else amounts


def _mib(found: re.Match[str] | None) -> Mib | None:
    """An amount in the form in which frameworks print it; what makes no sense is missing."""
    if found is None:
        return None
    number = found[1].rstrip("BKMGTibytes ")
    try:
        mib = float(number.replace(",", "").rstrip(".")) * _MIB_PER[found[1][len(number) :].strip()]
    except (ValueError, KeyError):
        return None
    return Mib(math.ceil(mib)) if mib < _ABSURD_MIB else None


def _stdin(lines: list[str], text: str) -> str | None:
    """The line that shows that the job wanted to read input; it must be among its last words."""
    traceback = _last_traceback(text)
    end = "\n".join(lines[-_LAST_LINES:]) if traceback is None else text[traceback.start() :]
    found = list(_STDIN.finditer(end)) or (list(_BARE_EOF.finditer(end)) if "getpass" in end else [])
    if not found:
        return None
    start = end.rfind("\n", 0, found[-1].start()) + 1
    return _short(end[start:].partition("\n")[0].strip())


def _failure(lines: list[str], text: str, code: int | None, kind: Kind) -> str:
    """An uncaught Python error in its own words (it ends Python with code 1), else code and last line."""
    if kind is Kind.NOTEBOOK and lines and lines[-1].startswith(_OURS):
        return _short(lines[-1][len(_OURS) :])  # which cell it was
    if code == 1 and (said := _exception(text)) is not None:
        return said
    how = "its exit code is unknown" if code is None else f"exit code {code}"
    if lines:
        return f"{how}: {_short(lines[-1].strip())}"
    # A shell's `read` fails without a word; in a cell an error would have been printed.
    hint = "" if kind in (Kind.CELL, Kind.FUNCTION, Kind.NOTEBOOK) else f"; if it asked for something: {NO_STDIN}"
    return f"{how}; it printed nothing{hint}"


def _last_traceback(text: str) -> re.Match[str] | None:
    return next(reversed(list(_TRACEBACK.finditer(text))), None)


def _exception(text: str) -> str | None:
    """The exception line of the last traceback, in plain Python's or in IPython's form."""
    traceback = _last_traceback(text)
    if traceback is None:
        return None
    after = text[traceback.end() :].split("\n")[1:]
    unindented = [line for line in after if not line[0].isspace()]
    if traceback["name"] is not None:  # IPython puts the name before "Traceback" and frames at the margin
        unindented = [line for line in unindented if line.startswith(traceback["name"])][-1:]
    return _short(unindented[0]) if unindented else None


def _lines(tail: str) -> list[str]:
    """What a person would see at the end of the log: no colours, no lines overwritten by a carriage return."""
    shown = _ESCAPES.sub("", tail).replace("\r\n", "\n")
    kept = (_UNPRINTABLE.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in shown.split("\n"))
    return [line.rstrip() for line in kept if line.strip()]


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..."
