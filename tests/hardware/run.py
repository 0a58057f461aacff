"""Runs the hardware tests on a machine with a card, Python and pynvml, where nothing can be installed.

    python tests/hardware/run.py [--packages FOLDER] [WORD ...]

Needs no pytest and no network; with pytest, ``pytest -m gpu tests/hardware`` does the same.
Tests with PyTorch jobs need torch; the last ones need what a host needs (msgspec, anyio,
tornado, traitlets, jupyter_core) and are skipped without. Bring these along with
``pip install --target FOLDER ...`` from a machine of the same Python, and ``--packages FOLDER``.
Takes less than five minutes. WORD picks tests by name; ``--capture FILE`` writes the machine
down for the fake driver.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from unittest import SkipTest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = ("test_card", "test_jobs_on_card", "test_whole_host")
LIMIT_S = 180.0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--packages", type=Path, help="folder with more packages")
    arguments.add_argument("--without", action="append", default=[], help="do as if this module were not there")
    arguments.add_argument("--capture", type=Path, help="file for the machine as the fake driver reads it")
    arguments.add_argument("words", nargs="*", help="parts of names of tests")
    chosen = arguments.parse_args()
    for module in chosen.without:
        sys.modules[module] = None  # type: ignore[assignment]
    prepare(chosen.packages)
    if (cause := whats_missing()) is not None:
        print(f"Nothing was tested: {cause}")
        return 2
    if chosen.capture:
        with chosen.capture.open("w") as file:
            subprocess.run([sys.executable, str(ROOT / "tests/fake_nvml/capture.py")], stdout=file, check=True)
    return report(run(chosen.words))


def prepare(packages: Path | None) -> None:
    """Let this process and all that it starts find the checkout, and a state folder of their own."""
    paths = [str(ROOT), *([str(packages.resolve())] if packages else [])]
    sys.path[:0] = [*paths, str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    for name in [name for name in os.environ if name.startswith(("GPUSCHED_", "CUDA_VISIBLE"))]:
        del os.environ[name]
    os.environ["GPUSCHED_HOME"] = tempfile.mkdtemp(prefix="gs-hw-home-")


def whats_missing() -> str | None:
    try:
        importlib.import_module("pynvml")
    except ImportError:
        return "pynvml is missing (pip install nvidia-ml-py)."
    from jupyter_gpusched.gpus.probe import probe

    return probe()


def run(words: list[str]) -> list[tuple[str, str, str]]:
    """Name, verdict and words of each test, printed as they come."""
    found = []
    for module_name in MODULES:
        module = importlib.import_module(f"hardware.{module_name}")
        for name, test in list(vars(module).items()):
            if name.startswith("test_") and callable(test) and (not words or any(word in name for word in words)):
                start = time.monotonic()
                verdict, text = verdict_of(test)
                print(f"{verdict:4}  {name}  ({time.monotonic() - start:.1f} s)", flush=True)
                if text:
                    print("      " + text.replace("\n", "\n      "), flush=True)
                found.append((name, verdict, text))
    return found


def verdict_of(test) -> tuple[str, str]:
    """One test on a thread of its own, so that a call that hangs in the driver fails this one only."""
    told = ["FAIL", f"it did not end within {LIMIT_S:.0f} s"]

    def body() -> None:
        try:
            test()
            told[:] = ["ok", ""]
        except SkipTest as reason:
            told[:] = ["skip", str(reason)]
        except BaseException:  # noqa: BLE001  whatever it was, the next test goes on
            told[:] = ["FAIL", traceback.format_exc().rstrip()]

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return told[0], told[1]


def report(found: list[tuple[str, str, str]]) -> int:
    from hardware.card import FIGURES

    counts = {verdict: sum(one[1] == verdict for one in found) for verdict in ("ok", "FAIL", "skip")}
    print()
    for name, value in FIGURES.items():
        print(f"{name}: {value}")
    print(f"\n{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] or not counts["ok"] else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a thread that hangs in the driver would keep us here
