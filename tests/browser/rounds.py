"""Run the browser tests again and again, each round in a fresh process, and say which of them ever failed.

    python tests/browser/rounds.py 20                        # all of them, twenty times
    python tests/browser/rounds.py 20 --at-once 2 --table rounds.txt
    python tests/browser/rounds.py 50 tests/browser/test_lab.py -k dark

What else follows the number is for pytest. What is told goes into the table's file as well. The reports are kept in a
folder that is named, and so are the folders with the last sight of a test that failed and its server's log.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Failure:
    round: int
    why: str
    folders: list[Path]


def play(report: Path, arguments: list[str]) -> tuple[int, float]:
    """One round; pytest's exit code and the seconds it took."""
    began = time.monotonic()
    told = report.with_suffix(".txt")
    with told.open("wb") as out:
        code = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
                "-p", "no:rerunfailures", f"--junitxml={report}",
                f"--basetemp={report.with_suffix('')}", *arguments,
            ],
            cwd=ROOT, stdout=out, stderr=out, check=False,
        ).returncode  # fmt: skip
    return code, time.monotonic() - began


def left_by(test: str, base: Path) -> list[Path]:
    """Where a test that failed left what it saw; tests whose long names begin alike have folders alike."""
    stem = re.sub(r"\W", "_", test)[:30]
    return sorted(path.parent for path in base.glob(f"{stem}*/last.png") if not path.parent.is_symlink())


def failures(round_: int, report: Path) -> tuple[int, dict[str, Failure]]:
    """How many tests ran, and those that failed with the first line of why."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed: dict[str, Failure] = {}
    for case in cases:
        for trouble in (*case.findall("failure"), *case.findall("error")):
            name = case.get("name", "")
            why = (trouble.get("message") or "").partition("\n")[0][:200]
            where = f"{case.get('classname', '').rpartition('.')[2]}::{name}"
            failed.setdefault(where, Failure(round_, why, left_by(name, report.with_suffix(""))))
    ran = [case for case in cases if case.find("skipped") is None]
    return len(ran), failed


def rounds(number: int, at_once: int, folder: Path, arguments: list[str]) -> Iterator[str]:
    """Play them all; the table line by line, whose last one is empty if nothing ever failed."""
    table: dict[str, list[Failure]] = defaultdict(list)
    broken = 0
    with ThreadPoolExecutor(at_once) as pool:
        reports = {n: folder / f"round-{n}.xml" for n in range(1, number + 1)}
        playing = {pool.submit(play, report, arguments): (n, report) for n, report in reports.items()}
        for played in as_completed(playing):
            (round_, report), (code, took_s) = playing[played], played.result()
            if not report.exists():
                broken += 1
                yield f"round {round_}: pytest ended with {code} and no report: {report.with_suffix('.txt')}"
                continue
            ran, failed = failures(round_, report)
            broken += bool(code or not ran)  # nothing that ran proves nothing
            for where, failure in failed.items():
                table[where].append(failure)
            yield f"round {round_}: {ran} tests in {took_s:.0f} s, {len(failed)} failed"
    for where, times in sorted(table.items(), key=lambda entry: -len(entry[1])):
        yield f"{len(times):3} of {number}  {where}"
        for failure in sorted(times, key=lambda failure: failure.round):
            yield f"          round {failure.round}: {failure.why}"
            yield from (f"          see {folder}" for folder in failure.folders)
    yield f"{number - broken} of {number} rounds without a failure; reports in {folder}"
    yield "" if not broken else "There were failures."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="how many rounds are played at a time")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write what is told into this file as well")
    wish, arguments = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(prefix="rounds-"))
    lines = []
    for line in rounds(wish.rounds, wish.at_once, folder, arguments or ["tests/browser"]):
        lines.append(line)
        print(line, flush=True)
        if wish.table:
            wish.table.write_text("\n".join(lines) + "\n")
    return 1 if lines[-1] else 0


if __name__ == "__main__":
    sys.exit(main())
