"""A kernel that a real Jupyter server started is traced from its pid to its notebook."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from waiting import wait_for

from jupyter_gpusched.gpus.kernels import Kernel, kernel_of
from tests.api.test_activity import serve

__all__ = ["serve"]


def ask(url, body=None, method=None):
    headers = {"Authorization": "token secret", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data=data, headers=headers, method=method)) as answer:
        return json.loads(answer.read() or b"null")


def pids_with(text):
    """Processes of this test's kernel, by its connection file."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:  # noqa: PERF203  it has ended
            continue
    return found


@pytest.mark.parametrize("folder", ["", "deep/er"])
def test_the_notebook_of_a_session_is_known_from_the_pid_of_its_kernel(serve, tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    server = serve()
    notebook = {"path": f"{folder}/train.ipynb".lstrip("/"), "name": "train.ipynb", "type": "notebook"}
    session = ask(server.url + "api/sessions", {**notebook, "kernel": {"name": "python3"}})
    try:
        (pid,) = wait_for(lambda: pids_with(f"kernel-{session['kernel']['id']}.json"), "the kernel does not start")
        assert wait_for(lambda: kernel_of(pid).kernel, "it is not taken for a kernel")
        assert kernel_of(pid) == Kernel(kernel=True, notebook=os.fspath(tmp_path / folder / "train.ipynb"))
    finally:
        ask(server.url + f"api/sessions/{session['id']}", method="DELETE")
