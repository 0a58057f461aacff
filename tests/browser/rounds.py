"""Run the browser tests again and again, each round in a fresh process, and say which of them ever failed.

    python tests/browser/rounds.py 20                        # all of them, twenty times
    python tests/browser/rounds.py 50 tests/browser/test_lab.py -k dark

What follows the number is for pytest. The reports of rounds with failures are kept in a folder that is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def play(report: Path, arguments: list[str]) -> int:
    """One round; pytest's exit code."""
    told = report.with_suffix(".txt")
    with told.open("wb") as out:
        return subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
                "-p", "no:rerunfailures", f"--junitxml={report}",
                f"--basetemp={report.with_suffix('')}", *arguments,
            ],
            cwd=ROOT, stdout=out, stderr=out, check=False,
        ).returncode  # fmt: skip


def failures(report: Path) -> tuple[int, dict[str, str]]:
    """How many tests ran, and those that failed with the first line of why."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {}
    for case in cases:
        for trouble in (*case.findall("failure"), *case.findall("error")):
            where = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            failed.setdefault(where, (trouble.get("message") or "").splitlines()[0][:100])
    ran = [case for case in cases if case.find("skipped") is None]
    return len(ran), failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int)
    number, arguments = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(prefix="rounds-"))
    table: dict[str, list[tuple[int, str]]] = defaultdict(list)
    broken = 0
    for round_ in range(1, number.rounds + 1):
        report = folder / f"round-{round_}.xml"
        began = time.monotonic()
        code = play(report, arguments or ["tests/browser"])
        took = time.monotonic() - began
        if not report.exists():
            broken += 1
            print(f"round {round_}: pytest ended with {code} and no report: {report.with_suffix('.txt')}", flush=True)
            continue
        ran, failed = failures(report)
        broken += bool(code or not ran)  # nothing that ran proves nothing
        for where, why in failed.items():
            table[where].append((round_, why))
        print(f"round {round_}: {ran} tests in {took:.0f} s, {len(failed)} failed", flush=True)
    for where, times in sorted(table.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(times):3} of {number.rounds}  {where}  (rounds {', '.join(str(at) for at, _ in times)})")
        print(f"          {times[-1][1]}")
    print(f"{number.rounds - broken} of {number.rounds} rounds without a failure; reports in {folder}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
