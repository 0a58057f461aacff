"""The Python API: the handle of a job and ``gs.*``."""

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpusched as gs
from jupyter_gpusched.core.model import BadRequest, NotAvailable, UnknownJob


def test_an_argument_list_is_sent_as_it_is(fake_host):
    argv = ["python", "-c", "pass", "My File.txt", 'Mc\'L "x"', "$HOME", "*", "", "é 中"]
    gs.submit(argv, vram="1G")
    assert fake_host.specs[0]["argv"] == argv
    assert fake_host.specs[0]["kind"] == "command"
    assert fake_host.starts == [True]


def test_one_string_is_a_shell_line(fake_host):
    gs.submit("nvidia-smi | head", vram="1G")
    assert fake_host.specs[0]["argv"] == "nvidia-smi | head"


@pytest.mark.parametrize("what", [["train.py", "--epochs", "3"], "train.py", Path("train.py")])
def test_a_python_file_is_a_script(fake_host, what):
    gs.submit(what, vram="1G")
    assert fake_host.specs[0]["kind"] == "script"
    assert fake_host.specs[0]["path"] == "train.py"


def test_folder_interpreter_and_environment_of_the_submitter_go_along(fake_host, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STAGE", "one")
    gs.submit(["true"], env={"MORE": "two"})
    spec = fake_host.specs[0]
    assert spec["cwd"] == str(tmp_path)
    assert spec["python"] == sys.executable
    assert spec["env"]["STAGE"] == "one"
    assert spec["env"]["MORE"] == "two"


def test_the_notebook_is_named(fake_host, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "work/nb.ipynb")
    gs.submit(["true"])
    assert fake_host.specs[0]["notebook"] == "work/nb.ipynb"


@pytest.mark.parametrize(
    ("what", "spec", "field"),
    [
        (["true"], {"vram": "4"}, "vram"),
        (["true"], {"vramm": "4G"}, "vramm"),
        (["true"], {"vram": "1G", "gpus": 0}, "vram"),
        (["true"], {"gpus": "2"}, "gpus"),
        ([], {}, "argv"),
        ("  ", {}, "argv"),
        ([1], {}, "argv"),
        (["true"], {"python": "no-such-python"}, "python"),
    ],
)
def test_a_bad_submission_is_refused_at_once_naming_the_field(fake_host, what, spec, field):
    with pytest.raises(BadRequest) as caught:
        gs.submit(what, **spec)
    assert caught.value.field == field
    assert fake_host.specs == []
    assert fake_host.starts == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda: gs.submit(["true"], notify="me"),
    ],
)
def test_what_is_not_built_is_refused_as_not_available(fake_host, ask):
    with pytest.raises(NotAvailable):
        ask()
    assert fake_host.specs == []


def test_a_job_tells_its_phase_as_plain_text(fake_host):
    job = gs.submit(["true"])
    assert type(job.status) is str
    assert job.status == "queued"
    assert job.wait() is job
    assert job.status == "succeeded"


def test_waiting_with_a_timeout_returns_the_job_too(fake_host):
    job = gs.submit(["true"])
    assert job.wait(timeout=0.1).status == "queued"


def test_waiting_for_a_failed_job_does_not_raise(fake_host):
    fake_host.ending = {"phase": "failed", "exit_code": 3, "message": "exit code 3"}
    assert gs.submit(["false"]).wait().status == "failed"


def test_the_result_of_a_job_without_out_is_none(fake_host):
    assert gs.submit(["true"]).result() is None


def test_out_variables_come_back_as_fresh_copies(fake_host, a_view, a_result):
    fake_host.views["abcd1234"] = a_view(outputs=["x"])
    fake_host.results["abcd1234", "x"] = a_result([1, 2])
    job = gs.job("abcd1234")
    first, second = job.result(), job.result()
    assert first == second == {"x": [1, 2]}
    assert first["x"] is not second["x"]


def test_a_result_of_another_python_is_refused_with_both_versions(fake_host, a_view, a_result):
    fake_host.views["abcd1234"] = a_view(outputs=["x"])
    fake_host.results["abcd1234", "x"] = a_result(1, python=[3, 7])
    with pytest.raises(BadRequest, match=r"Python 3\.7"):
        gs.job("abcd1234").result()


def test_the_result_of_a_failed_job_raises_with_code_message_and_last_lines(fake_host):
    fake_host.ending = {"phase": "failed", "exit_code": 1, "reason": "exit", "message": "ValueError: boom"}
    job = gs.submit(["false"])
    fake_host.logs[job.id] = b"".join(b"line %d\n" % n for n in range(5000)) + b"ValueError: boom\n"
    with pytest.raises(gs.JobFailed) as caught:
        job.result()
    error = caught.value
    assert (error.phase, error.exit_code) == ("failed", 1)
    assert "exit code 1: ValueError: boom" in str(error)
    assert "line 4999" in str(error)
    assert "line 1000\n" not in str(error)


def test_logs_are_shown_as_a_terminal_would_and_raw_on_request(fake_host):
    job = gs.submit(["true"])
    fake_host.logs[job.id] = "10%\r100%\n\x1b[31mré\x1b[0m\n".encode()
    assert job.logs() == "100%\nré\n"
    assert job.logs(raw=True) == "10%\r100%\n\x1b[31mré\x1b[0m\n"


def test_show_writes_text_as_text_and_in_order(fake_host, capsys):
    job = gs.submit(["true"])
    fake_host.lines[job.id] = [
        {"output_type": "stream", "name": "stdout", "text": "<b>one</b>\n"},
        {"output_type": "execute_result", "data": {"text/plain": "two"}, "metadata": {}, "execution_count": 1},
        {"output_type": "stream", "name": "stdout", "text": "three\n"},
        {"output_type": "error", "ename": "E", "evalue": "boom", "traceback": ["line 1: boom"]},
    ]
    job.show()
    shown = capsys.readouterr()
    assert shown.out == "<b>one</b>\ntwo\nthree\n"
    assert shown.err == "line 1: boom\n"


def test_cancelling_returns_the_job(fake_host):
    job = gs.submit(["true"])
    assert job.cancel("2s") is job
    assert fake_host.views[job.id]["message"] == "2s"


def test_a_job_can_be_awaited(fake_host):
    async def main():
        return await gs.submit(["true"])

    assert asyncio.run(main()).status == "succeeded"


def test_jobs_are_listed_newest_first(fake_host):
    ids = [gs.submit(["true"]).id for _ in range(3)]
    assert [job.id for job in gs.jobs()] == ids[::-1]
    assert [job.id for job in gs.jobs(limit=1)] == ids[:1:-1]


def test_an_unknown_id_raises_at_once(fake_host):
    with pytest.raises(UnknownJob):
        gs.job("zzzz9999")


def test_a_job_can_be_pickled_and_compared(fake_host):
    job = gs.submit(["true"])
    assert pickle.loads(pickle.dumps(job)) == job


def test_importing_the_subpackage_does_not_replace_the_function(fake_host):
    import jupyter_gpusched.gpus.simulated
    import jupyter_gpusched.jobs  # noqa: F401

    assert gs.gpus() == fake_host.cards
    assert gs.jobs() == []


def test_the_card_shows_the_last_known_state_when_the_host_is_gone(fake_host, monkeypatch):
    job = gs.submit(["true"])
    assert "queued" in job._repr_mimebundle_()["text/plain"]

    def gone(job_id):
        raise gs.GpuSchedError("the host is gone")

    monkeypatch.setattr(fake_host, "job", gone)
    assert "last known" in job._repr_mimebundle_()["text/plain"]


def test_importing_the_package_loads_nothing_heavy():
    heavy = ["IPython", "tornado", "msgspec", "cloudpickle", "jupyter_server", "asyncio"]
    code = f"import sys, jupyter_gpusched; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


def test_a_job_can_be_submitted_again_with_changes(fake_host, a_view, monkeypatch):
    fake_host.views["abcd1234"] = a_view()
    monkeypatch.setattr(fake_host, "spec", lambda _id: {"env": {"A": "1"}})
    again = gs.job("abcd1234").resubmit(vram="8G", env={"B": "2"})
    assert again.view["parent_id"] == "abcd1234"
    assert fake_host.resubmissions[0][1]["env"] == {"A": "1", "B": "2"}
    assert fake_host.resubmissions[0][1]["vram"] == "8G"
