"""Functions as jobs, at a real host: what comes back, and what is refused before anything is queued."""

import base64
import threading
from textwrap import dedent

import cloudpickle
import pytest

import jupyter_gpusched as gs
from jupyter_gpusched import calls, travel
from jupyter_gpusched.core.model import BadRequest
from jupyter_gpusched.results import RemoteTraceback

pytestmark = pytest.mark.usefixtures("host")


def defined(source):
    """The names of a notebook whose cells have run."""
    names = {"__name__": "__main__"}
    exec(dedent(source), names)
    return names


def test_the_value_of_a_function_is_the_result_of_its_job():
    names = defined("""
        offset = 10
        def helper(x): return x + offset
        def train(x, scale=1):
            print("training")
            return {"loss": helper(x) * scale}
    """)
    job = gs.submit(names["train"], 2, kwargs={"scale": 3}, vram="1G")
    assert job.result() == {"loss": 36}
    assert job.logs() == "training\n"
    assert (job.view["kind"], job.view["name"]) == ("function", "train")


def test_a_function_sees_its_card_and_the_submitters_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    look = defined("def look():\n    import os\n    return os.environ['CUDA_VISIBLE_DEVICES'][:4], os.getcwd()")["look"]
    assert gs.submit(look, vram="1G").result() == ("GPU-", str(tmp_path))


def test_nothing_returned_is_none():
    assert gs.submit(defined("def f(): pass")["f"], vram="1G").result() is None


def test_a_coroutine_function_is_awaited():
    assert gs.submit(defined("async def f(x): return x")["f"], 5, vram="1G").result() == 5


def test_what_the_function_raised_is_the_cause_with_its_traceback():
    job = gs.submit(defined("def bad(x):\n    return 1 / x")["bad"], 0, vram="1G")
    with pytest.raises(gs.JobFailed, match="ZeroDivisionError: division by zero") as failed:
        job.result()
    cause = failed.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert isinstance(cause.__cause__, RemoteTraceback)
    assert "in bad" in str(cause.__cause__)


def test_an_exception_that_cannot_be_made_again_is_told_by_its_text():
    names = defined("""
        class Picky(Exception):
            def __init__(self, a, b): super().__init__(a)
        def bad(): raise Picky(1, 2)
    """)
    with pytest.raises(gs.JobFailed) as failed:
        gs.submit(names["bad"], vram="1G").result()
    assert isinstance(failed.value.__cause__, RemoteTraceback)
    assert "Picky: 1" in failed.value.__cause__.text


def test_a_killed_function_has_no_cause():
    kill = defined("def f():\n    import os\n    os.kill(os.getpid(), 9)")["f"]
    with pytest.raises(gs.JobFailed, match="signal 9") as failed:
        gs.submit(kill, vram="1G").result()
    assert failed.value.__cause__ is None


def test_the_exception_of_an_earlier_attempt_is_not_taken_for_the_last_ones(tmp_path):
    source = """
        def f(mark):
            import os
            if os.path.exists(mark): os.kill(os.getpid(), 9)
            open(mark, "w").close()
            raise ValueError("first")
    """
    job = gs.submit(defined(source)["f"], str(tmp_path / "mark"), vram="1G", retries=1)
    with pytest.raises(gs.JobFailed, match="signal 9") as failed:
        job.result()
    assert failed.value.__cause__ is None


def test_a_value_that_cannot_travel_fails_the_job_and_says_the_way_out():
    lock = defined("def f():\n    import threading\n    return threading.Lock()")["f"]
    job = gs.submit(lock, vram="1G").wait()
    assert job.status == "failed"
    assert "the returned value (_thread.lock) cannot be pickled" in job.view["message"]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (([threading.Lock()],), {}, "`data` (list) cannot travel to the job: `data[0]`"),
        ((1,), {"more": (x for x in [])}, "`more` (generator)"),
    ],
)
def test_what_cannot_travel_is_refused_by_the_arguments_name(client, args, kwargs, words):
    function = defined("def f(data, more=None): pass")["f"]
    with pytest.raises(BadRequest) as refused:
        gs.submit(function, *args, kwargs=kwargs, vram="1G")
    assert words in refused.value.message
    assert "inside the function" in refused.value.hint or "list(more)" in refused.value.hint
    assert client.jobs() == []


def test_too_much_data_is_refused_with_the_largest_arguments(client, monkeypatch):
    for module in (calls, travel):
        monkeypatch.setattr(module, "LARGEST_PAYLOAD", 2**20)
    with pytest.raises(BadRequest, match=r"at most 1 MiB. The largest: `data` \(bytearray, 3 MiB\)"):
        gs.submit(defined("def f(data): pass")["f"], bytearray(3 * 2**20), vram="1G")
    assert client.jobs() == []


def test_a_function_that_uses_what_cannot_travel_is_refused(client):
    names = defined("import threading\nlock = threading.Lock()\ndef f():\n    with lock: pass")
    with pytest.raises(BadRequest, match=r"`f` .*`lock` used by `f` is a _thread.lock"):
        gs.submit(names["f"], vram="1G")
    assert client.jobs() == []


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"kwargs": {"y": 2}}, "'y'"),
        ((1,), {"lr": 0.1}, "no option 'lr'"),
    ],
)
def test_a_call_that_cannot_work_is_refused_with_the_way_to_give_arguments(client, args, options, words):
    with pytest.raises(BadRequest) as refused:
        gs.submit(defined("def f(x): pass")["f"], *args, vram="1G", **options)
    assert words in refused.value.message
    assert "kwargs={" in refused.value.hint
    assert client.jobs() == []


def test_map_queues_a_job_for_each_item_in_their_order():
    jobs = gs.map(
        defined("def square(x, plus=0): return x * x + plus")["square"], range(3), kwargs={"plus": 1}, vram="1G"
    )
    assert [job.result() for job in jobs] == [1, 2, 5]
    assert [job.view["name"] for job in jobs] == ["square"] * 3
    assert [job.view["array_index"] for job in jobs] == [0, 1, 2]


def test_map_queues_all_or_none(client):
    function = defined("def f(x): pass")["f"]
    with pytest.raises(BadRequest):
        gs.map(function, [1, threading.Lock()], vram="1G")
    with pytest.raises(BadRequest):
        gs.map(function, [1, 2], vram="99G")
    assert gs.map(function, [], vram="1G") == []
    assert client.jobs() == []


def test_the_same_key_maps_only_once(client):
    function = defined("def f(x): return x")["f"]
    first = gs.map(function, [1, 2], vram="1G", idempotency_key="sweep")
    assert gs.map(function, [1, 2], vram="1G", idempotency_key="sweep") == first
    assert len(client.jobs()) == 2


def test_calls_of_a_decorated_function_are_jobs_and_local_runs_it_here():
    function = gs.job(vram="1G")(defined("def double(x):\n    'Twice.'\n    return 2 * x")["double"])
    job = function(x=4)
    assert (job.result(), job.view["vram_mib"], job.view["name"]) == (8, 1024, "double")
    assert function.local(5) == 10
    assert function.options(vram="2G")(1).view["vram_mib"] == 2048
    assert [job.result() for job in function.map([1, 2])] == [2, 4]
    assert (function.__name__, function.__doc__) == ("double", "Twice.")


def test_a_decorated_method_brings_its_object_along():
    names = defined("""
        import jupyter_gpusched as gs
        class Model:
            def __init__(self, w): self.w = w
            @gs.job(vram="1G")
            def predict(self, x): return self.w * x
    """)
    assert names["Model"](3).predict(5).result() == 15


def test_a_bad_option_of_a_decorator_is_refused_where_it_stands():
    with pytest.raises(BadRequest, match="no option 'vrma'"):
        gs.job(vrma="4G")(print)


@pytest.mark.parametrize("make", [lambda f: f, lambda f: (f, (), {}), lambda f: (f,), lambda f: {"function": f}])
def test_a_plain_cloudpickle_of_a_function_is_taken_over_rest(client, tmp_path, make):
    payload = base64.b64encode(cloudpickle.dumps(make(defined("def f(): return 42")["f"]))).decode()
    job = gs.job(client.submit({"payload": payload, "vram": "1G", "cwd": str(tmp_path)}))
    assert job.result() == 42


def test_a_payload_that_is_no_function_fails_with_what_to_send(client, tmp_path):
    payload = base64.b64encode(cloudpickle.dumps({"x": 1})).decode()
    job = gs.job(client.submit({"kind": "function", "payload": payload, "vram": "1G", "cwd": str(tmp_path)}))
    assert "cloudpickle.dumps((function, args, kwargs))" in job.wait().view["message"]


def test_more_items_than_an_array_may_have_are_refused_without_drawing_them_all(client):
    with pytest.raises(BadRequest, match="more than the 10000"):
        gs.map(str, range(10**12), vram="1G")
    assert client.jobs() == []
