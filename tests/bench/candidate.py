"""A process that is ready to host the state folder: what a Jupyter server does for us, without the rest of it."""

from __future__ import annotations

import os
import pathlib
import signal

from jupyter_gpusched.hosts.host_thread import HostThread
from jupyter_gpusched.settings import GpuSched

if __name__ == "__main__":
    HostThread(pathlib.Path(os.environ["GPUSCHED_HOME"]), GpuSched()).start()
    signal.pause()
