"""A policy by its name in the configuration, one of your own, and what is said when there is none."""

import gzip
import math
import re
import sys
from itertools import islice
from pathlib import Path

import pytest
from traitlets.config import Config

from jupyter_gpusched.core.model import BadRequest
from jupyter_gpusched.core.policies import NAMED, Backfill, Earlier, Fair, Fifo, Hybrid
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.trace import read_trace
from jupyter_gpusched.policy_choice import choose_policy
from jupyter_gpusched.settings import GpuSched

TRACES = Path(__file__).resolve().parents[1] / "bench" / "traces"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "scheduling.md"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module that can be imported; returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def made(source, name="policy_of_ours"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return made


def configured(policy):
    return GpuSched(config=Config({"GpuSched": {"policy": policy}})).settings().policy


@pytest.mark.parametrize(
    ("name", "kind"), [("default", Hybrid), ("fifo", Fifo), ("backfill", Backfill), ("fair", Fair)]
)
def test_the_configuration_names_one_of_four_policies(name, kind):
    assert type(configured(name)) is kind
    assert configured(name) == NAMED[name]
    assert set(NAMED) == {"default", "fifo", "backfill", "fair"}


def test_the_policy_that_the_documentation_shows_decides_as_it_says(module):
    """The shortest by its estimate goes first, whatever came first."""
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "(Policy)" in text)
    name = module(block, "documented_policy")
    policy = configured(f"{name}:ShortestFirst")
    head = "job_id,user,name,submit_s,duration_s,gpus,vram_mib,priority,preemptible,est_s\n"
    jobs = "first,a,x,0,50,1,900,1,0,9000\nlong,a,y,1,50,1,900,1,0,9000\nshort,b,z,2,50,1,900,1,0,60\n"
    runs = simulate(read_trace((head + jobs).splitlines(keepends=True)), gpus=1, vram=1000, policy=policy)
    assert [run.job_id for run in sorted(runs, key=lambda run: run.start_s)] == ["first", "short", "long"]


def test_a_factory_may_be_any_callable_that_makes_a_policy(module):
    name = module("from jupyter_gpusched.core.policies import Hybrid\ndef make():\n    return Hybrid(slip=2.0)\n")
    assert configured(f"{name}:make") == Hybrid(slip=2.0)


@pytest.mark.parametrize("name", ["fastest", "policy_of_ours:", ":make", ""])
def test_a_name_that_there_is_not_is_refused_with_those_that_there_are(name):
    with pytest.raises(BadRequest) as refused:
        choose_policy(name)
    assert repr(name) in str(refused.value)
    assert all(known in refused.value.hint for known in (*NAMED, "module:factory"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module_at_all", "no_such_module_at_all"),
        ("made = 1", "has no attribute 'make'"),
        ("def make(needed): ...", "needed"),
        ("def make():\n    raise ValueError('slip must be above 0')", "slip must be above 0"),
        ("def make(:", "invalid syntax"),
        ("def make():\n    return {}['slip']", "slip"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_refused_with_what_its_module_said(module, source, said):
    name = module(source)
    with pytest.raises(BadRequest, match="policy_of_ours:make cannot be loaded") as refused:
        choose_policy(f"{name}:make")
    assert said in str(refused.value)
    assert refused.value.field == "policy"


def test_what_is_no_policy_is_refused_with_what_it_must_be(module):
    name = module("def make():\n    return 'shortest'")
    with pytest.raises(BadRequest, match="returns a str") as refused:
        choose_policy(f"{name}:make")
    assert "subclass of jupyter_gpusched.core.policies.Policy" in refused.value.hint


TRACE = "job_id,user,name,submit_s,duration_s,gpus,vram_mib,priority,preemptible,est_s\n" + "".join(
    f"j{n},ann,x{n},{n},50,1,900,1,0,60\n" for n in range(4)
)
OWN = """
from jupyter_gpusched.core.policies import Policy

class Mine(Policy):
    def order(self, job):
        {order}
    def patience_s(self, job, claim_after_s):
        return {patience}
    def least_patience_s(self, claim_after_s):
        return 0.0
    def bounds(self):
        return {bound}
"""


@pytest.mark.parametrize(
    ("order", "patience", "bound", "said"),
    [
        ("return (1 / 0,)", "1.0", "None", r"ZeroDivisionError: division by zero \(policy_of_ours.py:6\)"),
        ("return (1.0,) if job.waited_s < 30 else {}['late']", "1e9", "None", r"KeyError: 'late'"),
        ("return 'x'", "1.0", "None", "'x', which is no tuple of numbers"),
        ("return (float('nan'),)", "1.0", "None", "no tuple of numbers"),
        ("return (job.submitted_at,)", "None", "None", "patience of None"),
        ("return (job.submitted_at,)", "-1.0", "None", "patience of -1.0"),
        ("return (job.submitted_at,)", "1.0", "{}['bound']", "KeyError: 'bound'"),
    ],
)
def test_a_policy_that_fails_is_not_asked_again_and_all_jobs_run_by_the_default(
    module, caplog, order, patience, bound, said
):
    name = module(OWN.format(order=order, patience=patience, bound=bound))
    policy = configured(f"{name}:Mine")
    runs = simulate(read_trace(TRACE.splitlines(keepends=True)), gpus=1, vram=1000, policy=policy)
    assert {run.job_id for run in runs} == {"j0", "j1", "j2", "j3"}
    assert re.search(said, policy.fault)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "policy_of_ours:Mine failed" in record.getMessage()


def test_a_bound_that_fails_leaves_nobody_out(module):
    policy = configured(module(OWN.format(order="return (1.0,)", patience="1.0", bound="(lambda *_: {}[0])")) + ":Mine")
    earlier = Earlier((5.0,), at=0.0, share=0.0, waited_s=0.0, backlog_s=0.0)
    bound = policy.bounds()
    assert [bound(earlier, 1.0, 0.0), bound(earlier, 2.0, 0.0)] == [(-math.inf,), (-math.inf,)]
    assert policy.fault.startswith("KeyError: 0")


def test_a_policy_that_does_well_decides_under_watch_as_it_does_alone(module):
    name = module(
        "from jupyter_gpusched.core.policies import Hybrid\nclass Mine(Hybrid):\n    __slots__ = ()\n"
        "def make():\n    return Mine(slip=3.0)\n"
    )
    policy = configured(f"{name}:make")
    assert (policy.slip, policy.fault) == (3.0, None)
    with gzip.open(TRACES / "lab-L095-s1.csv.gz", "rt") as lines:
        traced = read_trace(islice(lines, 200))
    watched, alone = (simulate(traced, gpus=4, vram=81920, policy=one) for one in (policy, Hybrid(slip=3.0)))
    assert list(watched) == list(alone)
