"""What an administrator is given of another user's job: to look at, and never to be run as the administrator."""

from __future__ import annotations

import pickle

import pytest

import jupyter_gpusched as gs
from jupyter_gpusched import executor
from jupyter_gpusched.core.model import NotAllowed
from jupyter_gpusched.outputs import inert


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("somebody else's bytes were unpickled",)


@pytest.fixture
def foreign(fake_host, a_view):
    """Eve's job, whose results are traps."""

    def of(**more):
        fake_host.views["abcd1234"] = a_view(user="eve", **more)
        for name in ("x", "value", "exception"):
            fake_host.results["abcd1234", name] = pickle.dumps(Trap())
        return gs.job("abcd1234")

    return of


def test_values_of_anothers_job_are_refused_before_they_are_read(foreign):
    with pytest.raises(NotAllowed, match=r"is eve's: to read the values .* would run eve's code as ada") as refusal:
        foreign(outputs=["x"]).result()
    assert "its outputs and its log" in refusal.value.hint


def test_so_is_what_a_function_returned(foreign):
    with pytest.raises(NotAllowed):
        foreign(kind="function").result()


def test_an_exception_of_anothers_job_is_not_made_again(foreign, fake_host):
    fake_host.ending = {"phase": "failed", "exit_code": 1}
    with pytest.raises(gs.JobFailed) as told:
        foreign(kind="function").result()
    assert told.value.__cause__ is None


def test_a_future_of_anothers_job_has_no_value(foreign):
    with pytest.raises(NotAllowed):
        executor._value(foreign(kind="function", phase="succeeded").view)


def test_what_could_act_in_a_page_is_not_shown_of_anothers_job(foreign, fake_host, capsys):
    job = foreign()
    script = {"text/html": "<script>alert(1)</script>", "application/javascript": "alert(1)"}
    fake_host.lines[job.id] = [
        {"output_type": "stream", "name": "stdout", "text": "one\n"},
        {"output_type": "display_data", "data": {"text/plain": "two", **script}, "metadata": {}},
        {"output_type": "display_data", "data": script, "metadata": {}},
    ]
    job.show()
    shown = capsys.readouterr().out
    assert "alert" not in shown
    assert shown.startswith("one\ntwo\n[an output of another user")


def test_pictures_and_text_are_kept_and_all_else_goes():
    data = {"image/png": "iVBO", "text/plain": "plot", "image/svg+xml": "<svg onload=alert(1)>", "text/html": "<b>"}
    assert inert({"output_type": "display_data", "data": data})["data"] == {"image/png": "iVBO", "text/plain": "plot"}
    error = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}
    assert inert(error) == error
