"""A policy by its name in the configuration, one of your own, and what is said when there is none."""

import re
import sys
from pathlib import Path

import pytest
from traitlets.config import Config

from jupyter_gpusched.core.model import BadRequest
from jupyter_gpusched.core.policies import NAMED, Backfill, Fair, Fifo, Hybrid
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.trace import read_trace
from jupyter_gpusched.policy_choice import choose_policy
from jupyter_gpusched.settings import GpuSched

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
