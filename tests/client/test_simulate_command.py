"""`jupyter gpusched simulate`: from a trace in a file to a schedule in a file, without any host."""

import csv
import gzip
import sys

import pytest

from jupyter_gpusched import cli
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.trace import read_trace, schedule_lines

TRACE = (
    "job_id,user,name,submit_s,duration_s,gpus,vram_mib,priority,preemptible,est_s,sm_pct\n"
    "a,ann,x,0,100,1,600,1,0,,100\n"
    "b,bob,y,1,50,2,800,1,0,,100\n"
    "c,ann,x,2,10,1,300,1,0,60,100\n"
    "d,cid,z,3,40,1,900,0,1,,100\n"
)
MACHINE = ("--gpus", "2", "--vram", "1000")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def run(capsys, *words):
    code = cli.main(["simulate", *map(str, words)])
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    return shown.out


def starts(path):
    with path.open() as lines:
        return {row["job_id"]: (float(row["start_s"]), float(row["end_s"])) for row in csv.DictReader(lines)}


def test_the_schedule_is_written_and_nothing_is_said(capsys, trace, tmp_path):
    out = tmp_path / "schedule.csv"
    assert run(capsys, trace, *MACHINE, "--out", out) == ""
    decided = simulate(read_trace(TRACE.splitlines(keepends=True)), gpus=2, vram=1000)
    assert out.read_text() == "".join(schedule_lines(decided))
    assert starts(out)["c"] == (2.0, 12.0)  # it is brief and passes b, which needs both cards


def test_memory_is_given_as_everywhere_else_or_in_mib(capsys, trace, tmp_path):
    for amount, out in (("1024", "mib.csv"), ("1G", "amount.csv")):
        run(capsys, trace, "--gpus", 2, "--vram", amount, "--out", tmp_path / out)
    assert (tmp_path / "mib.csv").read_text() == (tmp_path / "amount.csv").read_text()


def test_a_policy_of_the_current_folder_is_found(capsys, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "policy_lying_here.py").write_text("from jupyter_gpusched.core.policies import Fifo\n")
    out = tmp_path / "schedule.csv"
    run(capsys, trace, *MACHINE, "--policy", "policy_lying_here:Fifo", "--out", out)
    assert starts(out)["c"][0] > 50.0


def test_a_summary_says_in_numbers_how_good_it_is(capsys, trace, tmp_path):
    lines = run(capsys, trace, *MACHINE, "--out", tmp_path / "s.csv", "--summary").splitlines()
    told = {name: float(value) for name, value in (line.rsplit(None, 1) for line in lines)}
    ends = [starts(tmp_path / "s.csv")[one][1] for one in "abcd"]
    assert (sum(ends) - (0 + 1 + 2 + 3)) / 4 == pytest.approx(told["mean completion time, s"], abs=0.001)


@pytest.mark.parametrize("policy", NAMED)
def test_the_policy_is_the_one_that_was_named(capsys, trace, tmp_path, policy):
    out = tmp_path / "schedule.csv"
    run(capsys, trace, *MACHINE, "--policy", policy, "--out", out)
    decided = simulate(read_trace(TRACE.splitlines(keepends=True)), gpus=2, vram=1000, policy=NAMED[policy])
    assert out.read_text() == "".join(schedule_lines(decided))
    assert (starts(out)["c"][0] > 50.0) == (policy == "fifo")


def test_with_contention_who_shares_a_card_runs_longer(capsys, trace, tmp_path):
    run(capsys, trace, *MACHINE, "--out", tmp_path / "alone.csv")
    run(capsys, trace, *MACHINE, "--contention", "--out", tmp_path / "shared.csv")
    alone, shared = starts(tmp_path / "alone.csv"), starts(tmp_path / "shared.csv")
    lasted = {one: (alone[one][1] - alone[one][0], shared[one][1] - shared[one][0]) for one in "abcd"}
    assert all(together >= by_itself - 0.01 for by_itself, together in lasted.values())
    assert any(together > 1.2 * by_itself for by_itself, together in lasted.values())


def test_compressed_files_are_read_and_written_with_the_same_bytes_each_time(capsys, trace, tmp_path):
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(TRACE.encode()))
    plain, first, second = tmp_path / "plain.csv", tmp_path / "first.csv.gz", tmp_path / "second.csv.gz"
    run(capsys, trace, *MACHINE, "--out", plain)
    for out in (first, second):
        run(capsys, packed, *MACHINE, "--out", out)
    assert gzip.decompress(first.read_bytes()) == plain.read_bytes()
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[4:8] == bytes(4)  # no time of writing


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (TRACE.splitlines()[0] + "\n", (), "has no jobs"),
        (TRACE.replace("1,0,,100", "9,0,,100", 1), (), "Line 2 of the trace cannot be read: priority '9' is none of 0"),
        (TRACE.replace("0,100,1,600", "0,-5,1,600"), (), "Line 2 of the trace cannot be read: duration_s is -5"),
        (TRACE.replace("1,50,2,800", "1,nan,2,800"), (), "Line 3 of the trace cannot be read: duration_s is nan"),
        (TRACE, ("--policy", "fastest"), "Known: default, fifo, backfill, fair"),
        (TRACE, ("--out", "/proc/no/such/place.csv"), "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said_and_ends_with_two(capsys, tmp_path, text, words, said):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert cli.main(["simulate", str(path), *MACHINE, "--out", str(tmp_path / "s.csv"), *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


def test_a_policy_that_fails_is_named_with_its_line_and_no_schedule_is_written(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "policy_that_fails.py").write_text(
        "from jupyter_gpusched.core.policies import Policy\n"
        "class Mine(Policy):\n    def order(self, job):\n        return (1 / 0,)\n"
    )
    out = tmp_path / "out.csv"
    words = ["simulate", str(trace), *MACHINE, "--policy", "policy_that_fails:Mine", "--out", str(out)]
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert "policy_that_fails:Mine failed: ZeroDivisionError: division by zero (policy_that_fails.py:4)" in said
    assert not out.exists()
