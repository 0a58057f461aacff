"""Calls the function of one attempt; what it returns, or raises, is kept for whoever asks for the result.

It prints, plots and shows tables as a cell does. IPython is used where the job's Python has it,
and not needed.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
import types
from typing import Any

from . import snapshot, values, worker
from .job import Place, code_of, find_working_folder
from .journal import Journal
from .unattended import refuse_input


def run_function(work: dict[str, Any], place: Place, journal: Journal) -> int:
    main = types.ModuleType("__main__")
    shell = _shell(journal, main)
    find_working_folder()
    main.__file__ = worker.main_file(place.attempt_folder, place.here, payload=place.payload, source=None)
    sys.argv = [main.__file__]
    snapshot.hook(lambda: None)
    call = values.load_call(place.payload, main.__dict__, item=work.get("item"), given=work.get("sweep"))
    try:
        value, code = _called(call), 0
    except SystemExit as exit_:
        value, code = None, code_of(exit_)
    except BaseException as error:  # noqa: BLE001  whatever a user's function raises is how the job ended
        return _failed(error, place, journal, shell)
    if shell is not None:
        _settle(shell)
    if code == 0:
        way_out = "return plain data, or save it to a file in the function"
        values.save_value(place.results, "value", value, what="the returned value", way_out=way_out)
    return code


def _shell(journal: Journal, main: types.ModuleType) -> Any:
    """An IPython shell, so that the function can display; None where the job's Python has no IPython."""
    try:
        from .shell import new_shell
    except ImportError:
        sys.modules["__main__"] = main
        if "inline" in os.environ.get("MPLBACKEND", ""):
            os.environ["MPLBACKEND"] = "Agg"
        refuse_input()
        return None
    return new_shell(journal, main)


def _called(call: values.Call) -> Any:
    function, args, kwargs = call
    value = function(*args, **kwargs)
    if not inspect.isawaitable(value):
        return value
    import asyncio

    return asyncio.run(_awaited(value))


async def _awaited(value: Any) -> Any:
    return await value


def _settle(shell: Any) -> None:
    """As at the end of a cell: figures that were not shown yet are, and widgets in words."""
    shell.events.trigger("post_execute")
    shell.display_pub.settle_widgets()


def _failed(error: BaseException, place: Place, journal: Journal, shell: Any) -> int:
    kind, trace = type(error), _own_frames(error)
    text = "".join(traceback.format_exception(kind, error, trace))
    if shell is not None:
        _settle(shell)
        shell.showtraceback((kind, error, trace))
    else:
        output = {"output_type": "error", "ename": kind.__name__, "evalue": str(error)}
        journal.rich({**output, "traceback": text.splitlines()}, text)
    with contextlib.suppress(OSError):  # a full disk: the log has the traceback
        values.save_exception(place.results, error, text, attempt=place.attempt)
    return 1


def _own_frames(error: BaseException) -> types.TracebackType | None:
    """The traceback without our frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
