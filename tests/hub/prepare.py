"""What the tests of JupyterHub stand on: run with a FOLDER, then give GPUSCHED_TEST_HUB=FOLDER to pytest.

Puts a virtual environment with JupyterHub and its proxy into the folder. Other users must be able to execute it:
it is made from the system's Python, and the folder must lie where they can go.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_THE_BED = ["jupyterhub>=5", "jupyterhub-idle-culler>=1.4"]
PROXY = "configurable-http-proxy@^5"


def dependencies() -> list[str]:
    """Those of the package itself; its code is copied before each run."""
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    return re.findall(r'"(.+?)"', listed[1])


def python_for_all() -> str:
    """A Python that is not in somebody's private folder."""
    for path in (
        "/usr/bin/python3",
        "/usr/local/bin/python3",
        *(shutil.which(f"python3.{n}") for n in range(20, 9, -1)),
    ):
        if path and Path(path).exists() and _reachable(Path(path).resolve()):
            return path
    sys.exit(
        "There is no Python that other users can execute: install the system's, such as apt-get install python3-venv"
    )


def _reachable(path: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (path, *path.parents))


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(mode=0o755, exist_ok=True)
    if not _reachable(folder):
        sys.exit(f"{folder} cannot be entered by other users: choose a folder such as /tmp/gpusched-hub")
    os.umask(0o022)
    subprocess.run([python_for_all(), "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *OF_THE_BED, *dependencies()], check=True)
    quiet = ["--no-audit", "--no-fund", "--silent"]
    subprocess.run(["npm", "install", "--prefix", folder, *quiet, PROXY], check=True)


if __name__ == "__main__":
    main()
