"""The command line, before a host that is only a dictionary."""

import json
import os
import subprocess
import sys

import pytest

from jupyter_gpusched import cli
from jupyter_gpusched.client import Client
from jupyter_gpusched.find_host import HostUnreachable


def run(capsys, *words):
    """Exit code, standard output and error of one command."""
    try:
        code = cli.main(words)
    except SystemExit as end:
        code = end.code
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_submit_prints_the_id_alone_as_its_last_line(fake_host, capsys):
    code, out, _ = run(capsys, "submit", "--vram", "4G", "train.py", "--epochs", "3")
    assert (code, out.splitlines()[-1]) == (0, "job00000")
    assert fake_host.specs[0]["path"] == "train.py"
    assert fake_host.specs[0]["args"] == ["--epochs", "3"]
    assert fake_host.starts == [True]


def test_an_argument_list_reaches_the_job_as_it_is(fake_host, capsys):
    argv = ["python", "-c", "x", "My File.txt", 'Mc\'L "x"', "$HOME", "*", "", "é 中"]
    run(capsys, "submit", "--vram", "1G", "--", *argv)
    assert fake_host.specs[0]["argv"] == argv


def test_a_shell_line_is_one_text(fake_host, capsys):
    run(capsys, "submit", "--vram", "1G", "--shell", "echo $HOME | cat")
    assert fake_host.specs[0]["argv"] == "echo $HOME | cat"


def test_the_interpreter_of_the_active_environment_runs_the_job(fake_host, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    run(capsys, "submit", "true")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    run(capsys, "submit", "true")
    assert [spec["python"] for spec in fake_host.specs] == [sys.executable, str(python)]


def test_submit_and_wait_ends_with_one_when_the_job_did_not_succeed(fake_host, capsys):
    assert run(capsys, "submit", "--wait", "true")[0] == 0
    fake_host.ending = {"phase": "failed", "exit_code": 3, "message": "exit code 3"}
    code, out, err = run(capsys, "submit", "--wait", "false")
    assert code == 1
    assert out.splitlines()[-1] == "job00001"
    assert "failed: exit code 3" in err


def test_submit_prints_one_json_object(fake_host, capsys):
    assert json.loads(run(capsys, "submit", "--json", "true")[1])["id"] == "job00000"
    assert json.loads(run(capsys, "submit", "--json", "--wait", "true")[1])["phase"] == "succeeded"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit"], "nothing to run"),
        (["submit", "--vram", "4", "true"], "--vram"),
        (["submit", "--vramm", "4G", "true"], "Did you mean --vram?"),
        (["submit", "--notify", "x", "true"], "not available"),
        (["submit", "note.ipynb", "epochs=3"], "--param"),
        (["submit", "--shell", "x", "y"], "--shell"),
        (["submit", "--in", "x", "true"], "only a cell job"),
        (["ls", "--limit", "0"], "whole number"),
        (["show", "zzzz9999"], "zzzz9999"),
        (["logs", "zzzz9999"], "zzzz9999"),
        (["cancel", "zzzz9999"], "zzzz9999"),
        (["resubmit", "--vram", "4"], "--vram"),
        (["resubmit", "--vram", "4G"], "one job id"),
        (["resubmit", "abcd1234", "efgh5678"], "one job id"),
        (["resubmit", "zzzz9999"], "zzzz9999"),
        (["simulate", "trace.csv", "--gpus", "4"], "--vram"),
        (["simulate", "absent.csv", "--gpus", "4", "--vram", "1000", "--out", "o"], "absent.csv"),
        (["no-such-command"], "no-such-command"),
        ([], "COMMAND"),
    ],
)
def test_bad_usage_ends_with_two_and_says_what_is_wrong(fake_host, capsys, words, said):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert said in err
    assert out == ""
    assert fake_host.specs == []


def test_without_a_host_the_exit_code_is_three(capsys, monkeypatch):
    def nobody(cls, *, start=False, environ=None):
        raise HostUnreachable("there is no host", hint="start one")

    monkeypatch.setattr(Client, "connect", classmethod(nobody))
    for words in (["ls"], ["gpus"], ["show", "abcd1234"], ["cancel", "abcd1234"], ["submit", "true"]):
        code, _, err = run(capsys, *words)
        assert (code, "start one" in err) == (3, True)


def test_only_submit_starts_a_host(fake_host, capsys, a_view):
    fake_host.views["abcd1234"] = a_view()
    for words in (["ls"], ["gpus"], ["show", "abcd1234"], ["logs", "abcd1234"], ["cancel", "abcd1234"]):
        assert run(capsys, *words)[0] == 0
    assert fake_host.starts == [False] * 5


def test_ls_prints_plain_lines_and_json(fake_host, capsys, a_view):
    fake_host.views = {"aaaa1111": a_view("aaaa1111"), "bbbb2222": a_view("bbbb2222", phase="running")}
    _code, out, _ = run(capsys, "ls")
    assert [line.split()[0] for line in out.splitlines()] == ["ID", "bbbb2222", "aaaa1111"]
    assert "\x1b" not in out
    assert [view["id"] for view in json.loads(run(capsys, "ls", "--json")[1])] == ["bbbb2222", "aaaa1111"]
    assert len(json.loads(run(capsys, "ls", "--json", "--limit", "1")[1])) == 1
    assert json.loads(run(capsys, "ls", "--json", "--phase", "failed")[1]) == []


def test_show_tells_everything_or_why_it_waits(fake_host, capsys, a_view):
    fake_host.views["abcd1234"] = a_view()
    assert "best is GPU 0" in run(capsys, "show", "abcd1234")[1]
    assert run(capsys, "show", "abcd1234", "--explain")[1].startswith("needs 6.0G")
    assert json.loads(run(capsys, "show", "abcd1234", "--json")[1])["id"] == "abcd1234"


def test_show_explain_of_an_array_tells_each_reason_once_with_the_elements_it_holds_for(fake_host, capsys, a_view):
    for number in range(4):
        words = "waits for its turn" if number else "no card has room"
        fake_host.views[f"elem000{number}"] = a_view(
            f"elem000{number}", array_id="array001", array_index=number, waiting=words, position=number + 1
        )
    fake_host.views["elem0002"] |= {"held": {"by": "ann", "cause": "later", "since": 1.0}}
    assert run(capsys, "show", "array001", "--explain")[1].splitlines()[1:] == [
        "1 queued ([0]): no card has room",
        "2 queued ([1,3]): waits for its turn",
        "1 queued ([2]): held by ann: later; `jupyter gpusched release array001` lets it go on",
    ]


def test_logs_are_the_bytes_and_nothing_else(fake_host, capfdbinary, a_view):
    raw = b"\xff\xfe 1%\r100%\n" + b"x" * 3_000_000
    fake_host.views["abcd1234"] = a_view()
    fake_host.logs["abcd1234"] = raw
    assert cli.main(["logs", "abcd1234"]) == 0
    assert capfdbinary.readouterr().out == raw
    fake_host.logs["abcd1234"] = raw[:100]
    assert cli.main(["logs", "-f", "abcd1234"]) == 0
    assert capfdbinary.readouterr().out == raw[:100]


def test_cancel_goes_on_after_an_unknown_id(fake_host, capsys, a_view):
    fake_host.views["abcd1234"] = a_view()
    code, out, err = run(capsys, "cancel", "--grace", "2s", "zzzz9999", "abcd1234")
    assert code == 2
    assert out == "abcd1234 cancelled\n"
    assert "zzzz9999" in err


def test_gpus_are_listed_or_the_cause_is_told(fake_host, capsys):
    assert "SIMULATED" in run(capsys, "gpus")[1]
    assert json.loads(run(capsys, "gpus", "--json")[1])[0]["uuid"] == "GPU-0"
    fake_host.cards = []
    assert "no driver is loaded" in run(capsys, "gpus")[1]
    assert json.loads(run(capsys, "gpus", "--json")[1]) == []


AN_ALERT = {"severity": "warning", "message": "GPU 0 is ill\x1b[2J.", "hint": "See to it.", "id": "quarantined:GPU-0"}


def test_alerts_stand_below_the_gpus_and_are_listed_with_what_to_do(fake_host, capsys):
    assert run(capsys, "alerts")[1] == "Nothing needs attention.\n"
    fake_host.standing = [AN_ALERT]
    assert run(capsys, "alerts")[1] == "warning: GPU 0 is ill [2J.\n  -> See to it.\n"
    assert json.loads(run(capsys, "alerts", "--json")[1])[0]["id"] == "quarantined:GPU-0"
    assert "GPU 0 is ill" in run(capsys, "gpus")[1]


def test_a_card_is_taken_out_of_use_and_given_back(fake_host, capsys):
    code, out, _ = run(capsys, "quarantine", "0", "--cause", "it smells")
    assert (code, "quarantined (it smells)" in out) == (0, True)
    code, out, _ = run(capsys, "release", "GPU-0", "--cause", "cleaned", "--json")
    assert (code, json.loads(out)["uuid"]) == (0, "GPU-0")
    assert fake_host.orders == [("quarantine", "0", "it smells"), ("release", "GPU-0", "cleaned")]


def test_a_machine_is_drained_and_resumed(fake_host, capsys):
    assert "Nothing new starts here: new disks (by ann)" in run(capsys, "drain", "--cause", "new disks")[1]
    assert run(capsys, "resume")[1] == "Jobs start again.\n"
    assert json.loads(run(capsys, "resume", "--json")[1]) == {"drained": None}


def test_serve_becomes_the_host_itself(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(os, "execv", lambda path, argv: calls.append((path, argv)) or sys.exit(0))
    run(capsys, "serve", "--idle-exit", "5", "--simulate", "2x24G")
    path, argv = calls[0]
    assert path == argv[0] == sys.executable
    assert argv[-4:] == ["-m", "jupyter_gpusched.hosts.daemon", "--idle-exit=5", "--simulate=2x24G"]


def test_a_socket_without_system_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("a host was started"))
    code, _, err = run(capsys, "serve", "--socket=/run/x.sock")
    assert code == 2
    assert "needs --system" in err


def test_help_is_printed_for_the_whole_and_for_each_command(capsys):
    for words in (["--help"], ["submit", "--help"], ["ls", "-h"], ["serve", "--help"]):
        code, out, _ = run(capsys, *words)
        assert code == 0
        assert "usage" in out


def test_a_reader_that_stops_reading_is_no_error(fake_host, capfd, monkeypatch):
    def broken(*_):
        raise BrokenPipeError

    monkeypatch.setattr(cli, "_ls", broken)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert run(capfd, "ls")[0] == 0


def test_listing_jobs_loads_neither_jupyter_nor_ipython():
    heavy = ["IPython", "tornado", "jupyter_server", "cloudpickle", "asyncio", "traitlets"]
    code = (
        "import sys; from jupyter_gpusched import cli; code = cli.main(['ls'])\n"
        f"print(code, [m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3 []"


def test_resubmit_takes_options_on_both_sides_of_the_id(fake_host, capsys, a_view, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fake_host.views["abcd1234"] = a_view()
    code, out, _ = run(capsys, "resubmit", "--vram", "8G", "abcd1234", "--priority", "high", "--cwd", ".")
    assert (code, out) == (0, "again000\n")
    job_id, changes = fake_host.resubmissions[0]
    assert (job_id, changes.pop("idempotency_key") != "") == ("abcd1234", True)
    assert changes == {"vram": "8G", "priority": "high", "cwd": str(tmp_path)}


def test_resubmit_lays_variables_over_those_of_the_old_job_and_can_wait(fake_host, capsys, a_view, monkeypatch):
    fake_host.views["abcd1234"] = a_view()
    monkeypatch.setattr(fake_host, "spec", lambda _id: {"env": {"A": "1", "B": "2"}})
    code, out, _ = run(capsys, "resubmit", "abcd1234", "--env", "B=3", "--wait", "--json")
    assert code == 0
    assert fake_host.resubmissions[0][1]["env"] == {"A": "1", "B": "3"}
    assert json.loads(out)["phase"] == "succeeded"


def test_show_explain_tells_what_became_of_each_attempt(fake_host, capsys, a_view):
    ended = {"phase": "failed", "exit_code": 1, "message": "exit code 1", "position": None}
    attempts = [
        {"number": 1, "message": "signal 9: killed", "reason": "signal_9"},
        {"number": 2, "message": "exit code 1", "reason": "exit"},
    ]
    fake_host.views["abcd1234"] = a_view(**ended, attempts=attempts)
    told = run(capsys, "show", "abcd1234", "--explain")[1]
    assert told == "exit code 1\nattempt 1: signal 9: killed\nattempt 2: exit code 1\n"


def test_a_job_that_takes_more_than_it_asked_for_is_told_so_once(fake_host, capsys, a_view):
    over = "uses 9.0G on GPU 0, 5.0G more than the 4.0G it asked for: ask for 10.0G next time"
    fake_host.views["abcd1234"] = a_view(phase="running", started_at=1.0, overuse_mib=5120, advice=over)
    for how in ((), ("--explain",)):
        assert run(capsys, "show", "abcd1234", *how)[1].count(over) == 1


def test_show_explain_tells_who_held_what_before_the_memory_ran_out(fake_host, capsys, a_view):
    gpu = {"uuid": "GPU-a", "index": 3, "name": "Card"}
    attempt = {"number": 1, "message": "the GPU ran out of memory", "reason": "cuda_oom", "ended_at": 100.0}
    fake_host.views["abcd1234"] = a_view(id="abcd1234", phase="queued", attempts=[attempt | {"gpus": [gpu]}])
    mine = {"kind": "job", "user": "ann", "job_id": "abcd1234", "vram_mib": 2048, "promised_mib": 4096}
    other = {"kind": "job", "user": "bob", "job_id": None, "vram_mib": 1024, "promised_mib": 8192}
    stranger = {"kind": "foreign", "user": "e\x1bve", "job_id": None, "vram_mib": None, "promised_mib": None}
    row = {"at": 40.0, "gpu_uuid": "GPU-a", "free_mib": 9216, "holders": [mine, other]}
    fake_host.timelines["abcd1234", 1] = [row, row | {"at": 99.0, "free_mib": None, "holders": [mine, stranger]}]
    told = run(capsys, "show", "abcd1234", "--explain")[1]
    assert told.splitlines()[-3:] == [
        "GPU 3 before attempt 1 ran out of memory:",
        "  -1m00s 9.0G free, this job 2.0G of 4.0G, bob 1.0G of 8.0G",
        "  -1s    n/a free, this job 2.0G of 4.0G, outside the queue (e ve) n/a",
    ]


def test_the_amount_that_auto_comes_to_is_told_at_submission(fake_host, capsys):
    words = "vram auto: 3072 MiB (3.0G), from the peak of the last run"
    fake_host.advice = words
    code, out, err = run(capsys, "submit", "--vram", "auto", "true")
    assert (code, words in err, words in out) == (0, True, False)


NOT_UTF8 = os.fsdecode(b"caf\xe9")


def test_a_variable_that_is_not_utf8_is_left_out_and_told(fake_host, capsys, monkeypatch):
    monkeypatch.setenv("ODD", NOT_UTF8)
    assert cli.main(["submit", "--gpus", "0", "true"]) == 0
    assert "ODD" not in fake_host.specs[0]["env"]
    assert "ODD" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "field"),
    [(["true", NOT_UTF8], "argv"), ([f"{NOT_UTF8}.py"], "path"), (["--cwd", f"/{NOT_UTF8}", "true"], "cwd"),
     (["--name", NOT_UTF8, "true"], "name"), (["--env", f"A={NOT_UTF8}", "true"], "env")],
)  # fmt: skip
def test_words_that_are_not_utf8_are_refused_by_their_field(fake_host, capsys, words, field):
    assert cli.main(["submit", "--gpus", "0", *words]) == 2
    assert f"{field}: " in capsys.readouterr().err
    assert fake_host.specs == []


def test_a_folder_that_is_given_is_enough_when_the_current_one_is_gone(fake_host, capsys, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.main(["submit", "--gpus", "0", "--cwd", "/tmp", "true"]) == 0
    assert fake_host.specs[0]["cwd"] == "/tmp"
    assert cli.main(["submit", "--gpus", "0", "true"]) == 2
