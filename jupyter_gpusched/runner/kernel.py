"""A kernel without a front end: started over ipc in a folder that only its owner can enter.

No network port is opened, and nobody can be asked for input. What the kernel says is read
straight from its channels, so that outputs come while a cell runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager

from .values import CannotTravel

LOOK_S = 0.5
"""How often it is looked whether a silent kernel still lives."""

REPLY_S = 10.0
READY_S = 120.0
_LONGEST_SOCKET = 107 - len("/ipc-12345678/kernel-10")
_LAST_WORDS_S = 0.2

Message = dict[str, Any]


class KernelDied(Exception):
    """The kernel is gone. ``code`` is how its process ended, as Python has it; None if that is unknown."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class JobKernels(KernelSpecManager):
    """Kernels of the job's own Python: ``python3`` is always that very interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        if kernel_name != NATIVE_KERNEL_NAME:
            return super().get_kernel_spec(kernel_name)
        options = ["--HistoryManager.enabled=False"]
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", *options]
        return KernelSpec(argv=argv, language="python", display_name="Python of the job")


def kernel_for(name: str | None, language: str) -> str:
    """The notebook's kernel where the job's Python knows it, else ``python3``.

    Raises ``CannotTravel`` for another language whose kernel is not there.
    """
    try:
        JobKernels().get_kernel_spec(name or NATIVE_KERNEL_NAME)
    except NoSuchKernel:
        if language not in ("python", "python3", "ipython"):
            raise CannotTravel(
                f"the notebook's kernel {name!r} ({language}) is not installed for {sys.executable}; "
                "install it there, or choose another interpreter with --python"
            ) from None
        return NATIVE_KERNEL_NAME
    return name or NATIVE_KERNEL_NAME


class Kernel:
    """One running kernel, and the conversation with it."""

    def __init__(self, manager: AsyncKernelManager, folder: str) -> None:
        self._manager = manager
        self._folder = folder
        self._client = manager.client()
        self._client.start_channels(stdin=False, hb=False)

    @classmethod
    async def start(cls, name: str, *, attempt_folder: str, session: str) -> Kernel:
        """Start it in this process's folder. Raises ``CannotTravel`` when it does not come up."""
        logging.getLogger("traitlets").setLevel(logging.CRITICAL)
        folder = _private_folder(attempt_folder)
        manager = AsyncKernelManager(kernel_name=name, transport="ipc", kernel_spec_manager=JobKernels())
        manager.ip, manager.connection_file = f"{folder}/kernel", f"{folder}/kernel.json"
        env = {**os.environ, "JPY_SESSION_NAME": session, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        try:
            await manager.start_kernel(env=env, cwd=os.getcwd())
            kernel = cls(manager, folder)
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise CannotTravel(f"the kernel {name!r} could not be started ({error}); check its kernel spec") from error
        await kernel._ready(name)
        return kernel

    async def _ready(self, name: str) -> None:
        try:
            await self._client.wait_for_ready(timeout=READY_S)
        except RuntimeError as error:
            await self.end()
            raise CannotTravel(
                f"the kernel {name!r} does not come up ({error}); its words are above. "
                f"Is ipykernel installed? {sys.executable} -m pip install ipykernel"
            ) from None

    def execute(self, code: str) -> str:
        """Hand over a cell; returns the id that its messages bear."""
        return str(self._client.execute(code, allow_stdin=False, stop_on_error=False))

    async def messages(self) -> AsyncIterator[Message]:
        """What the kernel publishes, as it comes. Raises ``KernelDied`` once nothing more can come."""
        while True:
            try:
                yield await self._client.get_iopub_msg(timeout=LOOK_S)
            except queue.Empty:  # noqa: PERF203  silence is the usual thing
                if await self._manager.is_alive():
                    continue
                with contextlib.suppress(queue.Empty):
                    while True:
                        yield await self._client.get_iopub_msg(timeout=_LAST_WORDS_S)
                raise KernelDied(self._exit_code()) from None

    async def described(self, widgets: dict[str, str]) -> dict[str, dict[str, Any]]:
        """How the kernel itself shows these widgets now. ``widgets`` holds the ids of their models, by any keys."""
        known = "__import__('ipywidgets').widgets.widget._instances"
        asked = {key: f"{known}[{model!r}]" for key, model in widgets.items()}
        request = self._client.execute("", silent=True, user_expressions=asked, allow_stdin=False)
        answers = (await self.reply(str(request))).get("user_expressions", {})
        return {key: answer["data"] for key, answer in answers.items() if answer.get("status") == "ok"}

    async def reply(self, request: str) -> Message:
        """The answer to ``execute``; empty when the kernel ends without one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REPLY_S
        while loop.time() < deadline:
            with contextlib.suppress(queue.Empty):
                message = await self._client.get_shell_msg(timeout=LOOK_S)
                if message["parent_header"].get("msg_id") == request:
                    return dict(message["content"])
        return {}

    async def end(self) -> None:
        """End the kernel: it is asked first, and killed when it does not go."""
        self._client.stop_channels()
        with contextlib.suppress(Exception):  # whatever is left of it, the supervisor ends
            await self._manager.shutdown_kernel(now=not await self._manager.is_alive())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _exit_code(self) -> int | None:
        process = getattr(self._manager.provisioner, "process", None)
        code = None if process is None else process.poll()
        return code if isinstance(code, int) else None


def _private_folder(attempt_folder: str) -> str:
    """Where the sockets lie: with the attempt where their paths are short enough for a socket."""
    places = (attempt_folder, os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir())
    fitting = [place for place in places if place and len(place.encode()) <= _LONGEST_SOCKET and os.path.isdir(place)]
    return tempfile.mkdtemp(prefix="ipc-", dir=fitting[0] if fitting else None)
