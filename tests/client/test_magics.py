"""The magics in a real IPython shell, before a host that is only a dictionary."""

import base64
import pickle
import sys
import threading

import cloudpickle
import pytest
from IPython.utils.capture import capture_output

from jupyter_gpusched.core.model import BadRequest, NotAvailable
from jupyter_gpusched.jobs import Job, JobFailed


def run(shell, text):
    """Run a cell as a notebook would; returns what it shows and IPython's result."""
    with capture_output() as shown:
        result = shell.run_cell(text, store_history=True)
    return shown, result


def job_of(shell, text):
    _, result = run(shell, text)
    result.raise_error()
    return result.result


def error_of(shell, text):
    shown, result = run(shell, text)
    assert result.error_in_exec is not None
    return result.error_in_exec, shown


def captured_values(spec):
    return cloudpickle.loads(pickle.loads(base64.b64decode(spec["payload"]))["values"])


def test_a_cell_becomes_a_job_and_the_job_is_the_last_result(shell, fake_host):
    job = job_of(shell, "%%gpujob --vram 4G --name first\nprint(1)\n")
    assert isinstance(job, Job)
    assert shell.user_ns["_"] is job
    spec = fake_host.specs[0]
    assert (spec["kind"], spec["source"], spec["vram"], spec["name"]) == ("cell", "print(1)\n", "4G", "first")
    assert spec["python"] == sys.executable


def test_the_cell_is_shown_as_a_card_with_its_id(shell, fake_host):
    shown, result = run(shell, "%%gpujob --vram 4G\nprint(1)")
    assert result.result.id in shown.stdout + "".join(o.data["text/plain"] for o in shown.outputs)


def test_the_free_names_of_the_cell_travel(shell, fake_host):
    run(shell, "import math\ndata = [1, 2]\ndef double(x):\n    return 2 * x")
    run(shell, "%%gpujob --vram 1G --out total\ntotal = double(sum(data)) + math.pi")
    values = captured_values(fake_host.specs[0])
    assert values["data"] == [1, 2]
    assert values["double"](2) == 4
    assert fake_host.specs[0]["outputs"] == ["total"]


def test_without_capture_only_named_inputs_travel(shell, fake_host):
    run(shell, "a, b = 1, 2")
    run(shell, "%%gpujob --vram 1G --no-capture --in a\nprint(a, b)")
    assert captured_values(fake_host.specs[0]) == {"a": 1}


def test_the_environment_and_folder_are_those_of_the_kernel_now(shell, fake_host, tmp_path):
    (tmp_path / "data").mkdir()
    run(shell, "%cd -q data\n%env STAGE=one")
    run(shell, "%%gpujob --vram 1G --env EXTRA=two\nprint(1)")
    spec = fake_host.specs[0]
    assert spec["cwd"] == str(tmp_path / "data")
    assert (spec["env"]["STAGE"], spec["env"]["EXTRA"]) == ("one", "two")


def test_a_variable_that_cannot_travel_queues_nothing_and_stops_run_all_without_noise(shell, fake_host):
    shell.user_ns["lock"] = threading.Lock()
    error, shown = error_of(shell, "%%gpujob --vram 1G\nlock.acquire()")
    assert isinstance(error, BadRequest)
    assert fake_host.specs == []
    text = shown.stdout + shown.stderr
    assert "`lock` (_thread.lock)" in text
    assert "Traceback" not in text
    assert "capture.py" not in text


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%gpujob --vram 4\nprint(1)", "--vram: '4'"),
        ("%%gpujob --vramm 4G\nprint(1)", "--vramm"),
        ("%%gpujob --vram 4G\nx = = 1", "Line 1"),
        ("%%gpujob --vram 4G\n\n# nothing\n", "empty"),
        ("%%gpujob --vram 4G\nx = 1\ny = 2\n%debug", "Line 3"),
        ("%%gpujob --vram 4G train.py\nprint(1)", "train.py"),
        ("%%gpujob --vram 4G --out gone\nprint(1)", "`gone`"),
        ("%%gpujob --vram 4G --name 'open\nprint(1)", "quotation"),
        ("%gpujob --vram 4G", "nothing to run"),
        ("%gpujob 4G train.py", "no program '4G'"),
        ("%gpujob --vram 4G 2h train.py", "no program '2h'"),
        ("%gpujob --vram 4G !", "shell line is empty"),
        ("%gpulogs", "one job id"),
        ("%gpujobs --limit x", "--limit"),
    ],
)
def test_bad_input_is_refused_in_words_and_queues_nothing(shell, fake_host, cell, words):
    error, _ = error_of(shell, cell)
    assert isinstance(error, BadRequest)
    assert words in error.message
    assert fake_host.specs == []


@pytest.mark.parametrize("line", ["%gpulease --vram 8G", "%gpujob --notify me train.py"])
def test_what_is_not_built_is_refused(shell, fake_host, line):
    error, _ = error_of(shell, line)
    assert isinstance(error, NotAvailable)


def test_a_notebook_is_a_job_with_its_parameters(shell, fake_host):
    shell.run_line_magic("gpujob", "--vram 1G --param n=3 --param name=ada note.ipynb")
    assert {name: fake_host.specs[0].get(name) for name in ("kind", "path", "parameters")} == {
        "kind": "notebook",
        "path": "note.ipynb",
        "parameters": {"n": 3, "name": "ada"},
    }


def test_words_after_a_notebook_are_refused_with_the_way_to_give_parameters(shell, fake_host):
    error, _ = error_of(shell, "%gpujob --vram 1G note.ipynb n=3")
    assert "--param" in error.hint
    assert fake_host.specs == []


def test_a_script_gets_all_that_follows_its_name(shell, fake_host):
    job_of(shell, "%gpujob --vram 1G train.py --epochs 3 --vram 'two words'")
    spec = fake_host.specs[0]
    assert (spec["kind"], spec["path"]) == ("script", "train.py")
    assert spec["args"] == ["--epochs", "3", "--vram", "two words"]
    assert spec["vram"] == "1G"


@pytest.mark.parametrize("line", ['! echo "it\'s" | head -1', '!echo "it\'s" | head -1'])
def test_a_shell_line_is_sent_as_one_text(shell, fake_host, line):
    job_of(shell, f"%gpujob --name 'a b' --vram 1G {line}")
    assert fake_host.specs[0]["argv"] == 'echo "it\'s" | head -1'
    assert fake_host.specs[0]["name"] == "a b"


def test_variables_in_the_line_are_expanded_by_ipython(shell, fake_host):
    run(shell, "need = '2G'\nscript = 'train.py'")
    job_of(shell, "%gpujob --vram {need} $script")
    assert (fake_host.specs[0]["vram"], fake_host.specs[0]["path"]) == ("2G", "train.py")


def test_a_job_can_be_assigned(shell, fake_host):
    run(shell, "mine = %gpujob --vram 1G ! true")
    assert isinstance(shell.user_ns["mine"], Job)


def test_the_quiet_form_shows_nothing_and_keeps_the_job(shell, fake_host):
    shown, _ = run(shell, "%%gpujob --vram 1G --quiet\nprint(1)")
    assert shown.outputs == []
    assert "job0" not in shown.stdout
    assert isinstance(shell.user_ns["_"], Job)
    later, _ = run(shell, "_")
    assert shell.user_ns["_"].id in later.stdout + "".join(o.data["text/plain"] for o in later.outputs)


def test_a_dry_run_checks_and_queues_nothing(shell, fake_host):
    run(shell, "data = [1]")
    shown, result = run(shell, "%%gpujob --vram 4G --dry-run\nprint(data)")
    assert result.result is None
    assert "4.0G on 1 GPU" in shown.stdout
    assert "data" in shown.stdout
    assert fake_host.specs == []
    assert fake_host.starts == []


def test_waiting_shows_the_outputs(shell, fake_host):
    fake_host.lines["job00000"] = [{"output_type": "stream", "name": "stdout", "text": "hello\n"}]
    shown, result = run(shell, "%%gpujob --vram 1G --wait --quiet\nprint('hello')")
    assert shown.stdout.startswith("hello\n")
    assert result.result.status == "succeeded"


def test_waiting_for_a_job_that_fails_raises_after_its_outputs(shell, fake_host):
    fake_host.ending = {"phase": "failed", "exit_code": 1, "message": "ValueError: boom"}
    fake_host.lines["job00000"] = [{"output_type": "stream", "name": "stdout", "text": "before\n"}]
    error, shown = error_of(shell, "%%gpujob --vram 1G --wait\nraise ValueError('boom')")
    assert isinstance(error, JobFailed)
    assert "exit code 1: ValueError: boom" in error.message
    assert "before\n" in shown.stdout


def test_interrupting_the_wait_leaves_the_job_alone(shell, fake_host):
    def interrupt():
        raise KeyboardInterrupt

    fake_host.on_wait = interrupt
    shown, result = run(shell, "%%gpujob --vram 1G --wait\nprint(1)")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert fake_host.views["job00000"]["phase"] == "queued"
    assert "goes on" in shown.stderr


def test_rich_outputs_are_shown_as_displays(shell, fake_host):
    fake_host.lines["job00000"] = [
        {"output_type": "display_data", "data": {"text/plain": "<Figure>", "image/png": "aGk="}, "metadata": {}}
    ]
    shown, _ = run(shell, "%%gpujob --vram 1G --wait --quiet\nprint(1)")
    assert shown.outputs[0].data["image/png"] == "aGk="


def test_logs_are_shown_rendered_and_bounded(shell, fake_host, a_view):
    fake_host.views["abcd1234"] = a_view()
    fake_host.logs["abcd1234"] = b"1%\r100%\n" + b"line\n" * 1000
    shown, _ = run(shell, "%gpulogs abcd1234")
    assert "1%" not in shown.stdout.replace("100%", "")
    assert len(shown.stdout.splitlines()) <= 200
    assert 'jupyter_gpusched.job("abcd1234").logs()' in shown.stderr


def test_of_a_log_that_is_not_read_whole_no_count_is_given_of_what_is_left_out(shell, fake_host, a_view):
    fake_host.views["abcd1234"] = a_view()
    fake_host.logs["abcd1234"] = b"line\n" * 600_000
    shown, _ = run(shell, "%gpulogs abcd1234")
    assert shown.stderr == '[earlier output left out here; jupyter_gpusched.job("abcd1234").logs() has all of it]\n'


def test_following_prints_the_bytes_as_they_come(shell, fake_host, a_view):
    fake_host.views["abcd1234"] = a_view()
    fake_host.logs["abcd1234"] = "éé 1%\r100%\n".encode()
    shown, _ = run(shell, "%gpulogs -f abcd1234")
    assert shown.stdout == "éé 1%\r100%\n"


def test_interrupting_the_following_ends_only_that(shell, fake_host, a_view, monkeypatch):
    fake_host.views["abcd1234"] = a_view(phase="running")

    def follow(job_id):
        yield b"one\n"
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_host, "follow", follow)
    shown, result = run(shell, "%gpulogs abcd1234 -f")
    assert result.success
    assert shown.stdout == "one\n"
    assert "goes on" in shown.stderr


def test_a_followed_log_never_fills_the_notebook(shell, fake_host, a_view, monkeypatch):
    fake_host.views["abcd1234"] = a_view()
    monkeypatch.setattr(fake_host, "follow", lambda job_id: iter([b"x" * 50_000 + b"\n"] * 10))
    shell.kernel = object()
    cleared = []
    monkeypatch.setattr("IPython.display.clear_output", lambda **how: cleared.append(how))
    run(shell, "%gpulogs abcd1234 -f")
    del shell.kernel
    assert len(cleared) == 9


def test_cancel_and_result_take_an_id(shell, fake_host, a_view, a_result):
    fake_host.views["abcd1234"] = a_view(outputs=["x"])
    fake_host.results["abcd1234", "x"] = a_result(5)
    assert job_of(shell, "%gpuresult abcd1234") == {"x": 5}
    assert job_of(shell, "%gpucancel abcd1234 --grace 2s").status == "cancelled"
    assert fake_host.views["abcd1234"]["message"] == "2s"


def test_jobs_and_cards_are_listed(shell, fake_host, a_view):
    fake_host.views["abcd1234"] = a_view()
    assert "abcd1234" in repr(job_of(shell, "%gpujobs"))
    assert repr(job_of(shell, "%gpujobs --phase running")).startswith("You have no jobs")
    assert "SIMULATED" in repr(job_of(shell, "%gpus"))
    fake_host.cards = []
    assert "no driver is loaded" in repr(job_of(shell, "%gpus"))


def test_a_question_mark_shows_help_with_examples(shell, fake_host):
    help_text = shell.object_inspect_text("%gpujob") if hasattr(shell, "object_inspect_text") else ""
    assert "%%gpujob --vram 4G" in help_text
    assert "--dry-run" in help_text


def test_help_is_printed_on_request(shell, fake_host):
    shown, _ = run(shell, "%gpujob --help")
    assert "--retries" in shown.stdout


def test_an_unknown_job_is_a_readable_error(shell, fake_host):
    error, shown = error_of(shell, "%gpulogs zzzz9999")
    assert "zzzz9999" in error.message
    assert "Traceback" not in shown.stdout + shown.stderr
