"""Queue notebook cells, functions, notebooks, scripts and commands on GPUs by the memory they need.

``import jupyter_gpusched as gs`` is the Python API, ``%load_ext jupyter_gpusched`` gives the
magics. Everything is imported when it is first used, so that the command line stays quick.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .arrays import JobArray, array, sweep
    from .executor import Executor
    from .functions import map  # noqa: A004
    from .jobs import Job, JobFailed, gpus, job, jobs, submit
    from .widgets import GpuMonitor, JobQueue

_HOMES = {
    "BadRequest": ".core.model",
    "GpuSchedError": ".core.model",
    "NeverFits": ".core.model",
    "NotAvailable": ".core.model",
    "UnknownJob": ".core.model",
    "Executor": ".executor",
    "GpuMonitor": ".widgets",
    "Job": ".jobs",
    "JobArray": ".arrays",
    "JobFailed": ".jobs",
    "JobQueue": ".widgets",
    "array": ".arrays",
    "gpus": ".jobs",
    "job": ".jobs",
    "jobs": ".jobs",
    "map": ".functions",
    "submit": ".jobs",
    "sweep": ".arrays",
}

__all__ = [
    "Executor",
    "GpuMonitor",
    "Job",
    "JobArray",
    "JobFailed",
    "JobQueue",
    "__version__",
    "array",
    "gpus",
    "job",
    "jobs",
    "map",
    "submit",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext jupyter_gpusched``: give this shell the magics."""
    from .magics import GpuMagics

    shell.register_magics(GpuMagics)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Where Jupyter servers find the extension; enabled by the installation."""
    from .hosts.server_extension import GpuSchedExtension

    return [{"module": "jupyter_gpusched", "app": GpuSchedExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """What ``jupyter-builder develop`` links while one works on the front end."""
    return [{"src": "labextension", "dest": "jupyter-gpusched"}]


class _Package(types.ModuleType):
    """Keeps ``gs.gpus`` and ``gs.jobs`` the functions of the API: importing a submodule of the same
    name would otherwise put the module in their place. Use ``from jupyter_gpusched.gpus import ...``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
