"""What a job finds in its environment."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.environment import attempt_environment, submitted
from jupyter_gpusched.core.model import Kind, Request, Work
from jupyter_gpusched.core.quantities import Mib

from .conftest import a_grant, a_job

KERNEL = {
    "JPY_PARENT_PID": "7",
    "PYDEVD_USE_FRAME_EVAL": "NO",
    "FORCE_COLOR": "1",
    "CLICOLOR_FORCE": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


def environment(job=None, kind=Kind.COMMAND, *, python=None, passed_on=(), env=()):
    work = Work(kind=kind, cwd="/work", env={"LANG": "en_US.UTF-8", **dict(env)})
    return attempt_environment(
        job or a_job(), work, 1, "/state/jobs/aaaaaaaa", passed_on=dict(passed_on), marker="m", python=python
    )


def test_what_only_a_kernel_needs_and_secrets_of_the_server_stay_behind():
    secrets = {"JUPYTERHUB_API_TOKEN": "x", "JPY_API_TOKEN": "x", "JUPYTER_TOKEN": "x"}
    kept = {"STAGE": "one", "VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda", "HF_TOKEN": "mine"}
    assert submitted({**KERNEL, **secrets, **kept}) == kept


def test_variables_of_another_attempt_do_not_travel():
    inherited = {"GPUSCHED_MARKER": "x", "GPUSCHED_JOB_ID": "x", "GPUSCHED_VRAM_MIB": "1", "CUDA_VISIBLE_DEVICES": "3"}
    assert submitted(inherited) == {}
    assert "GPUSCHED_VRAM_MIB" not in environment(env=inherited)


def test_the_cards_are_named_by_uuid_in_bus_order():
    grants = [a_grant(gpu="GPU-b", index=1), a_grant(gpu="GPU-a", index=0, promised=3000)]
    found = environment(a_job(gpus=2, grants=grants))
    assert found["CUDA_VISIBLE_DEVICES"] == found["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert (found["CUDA_DEVICE_ORDER"], found["GPUSCHED_GPUS"]) == ("PCI_BUS_ID", "2")
    assert found["GPUSCHED_VRAM_MIB"] == "3000"


def test_a_job_without_a_card_sees_none():
    found = environment()
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert found["GPUSCHED_GPUS"] == "0"
    assert "GPUSCHED_VRAM_MIB" not in found


def test_places_of_the_attempt_are_named():
    found = environment()
    assert (found["GPUSCHED_JOB_ID"], found["GPUSCHED_ATTEMPT"], found["GPUSCHED_MARKER"]) == ("aaaaaaaa", "1", "m")
    assert found["GPUSCHED_CHECKPOINT_DIR"] == "/state/jobs/aaaaaaaa/checkpoint"
    assert found["GPUSCHED_STOP_FILE"] == "/state/jobs/aaaaaaaa/attempt-1/stop"
    assert found["PWD"] == "/work"


def test_several_cards_meet_at_a_port_that_follows_from_the_job():
    grants = [a_grant(), a_grant(gpu="GPU-a", index=0)]
    job = a_job(gpus=2, grants=grants)
    found = environment(job)
    assert found["MASTER_ADDR"] == "127.0.0.1"
    assert found["MASTER_PORT"] == environment(job)["MASTER_PORT"]
    assert 20000 <= int(found["MASTER_PORT"]) < 32000
    assert environment(job, env={"MASTER_PORT": "1"})["MASTER_PORT"] == "1"
    assert "MASTER_PORT" not in environment(a_job(gpus=1, grants=[a_grant()]))


def test_frameworks_on_a_shared_card_are_asked_to_grow_within_the_promise():
    found = environment(a_job(gpus=1, grants=[a_grant()]), env={"TF_FORCE_GPU_ALLOW_GROWTH": "false"})
    assert found["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert found["CUPY_GPU_MEMORY_LIMIT"] == str((4096 - 512) * 2**20)
    assert found["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"


def test_a_whole_card_has_no_cap():
    job = a_job(gpus=1, grants=[a_grant()], request=Request(gpus=1))
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in environment(job)


def test_the_interpreters_folder_comes_first_on_the_path_once():
    assert environment(python="/venv/bin/python", env={"PATH": "/usr/bin:/venv/bin"})["PATH"] == "/venv/bin:/usr/bin"
    assert environment(python="/venv/bin/python")["PATH"].startswith("/venv/bin:/")
    assert environment(python=None, env={"PATH": "/usr/bin"})["PATH"] == "/usr/bin"


@pytest.mark.parametrize("locale", [{"LC_ALL": "POSIX"}, {"LANG": "C"}, {"LC_CTYPE": "de_DE.ISO-8859-1"}])
def test_text_is_utf8_whatever_the_locale(locale):
    found = environment(env={"LANG": "", **locale, "PYTHONIOENCODING": "ascii"})
    assert (found["PYTHONIOENCODING"], found["PYTHONUTF8"], found["LC_CTYPE"]) == ("utf-8", "1", "C.UTF-8")
    assert "LC_ALL" not in found


def test_a_utf8_locale_is_left_as_it_is():
    found = environment(env={"LC_ALL": "de_DE.UTF-8", "PYTHONIOENCODING": "utf8:replace"})
    assert (found["LC_ALL"], found["PYTHONIOENCODING"]) == ("de_DE.UTF-8", "utf8:replace")
    assert "PYTHONUTF8" not in found


def test_plots_are_files_in_scripts_outputs_in_cells_and_the_users_choice_stands():
    assert environment(kind=Kind.SCRIPT, env=KERNEL)["MPLBACKEND"] == "Agg"
    assert environment(kind=Kind.CELL, env=KERNEL)["MPLBACKEND"] == KERNEL["MPLBACKEND"]
    assert environment(kind=Kind.SCRIPT, env={"MPLBACKEND": "svg"})["MPLBACKEND"] == "svg"


def test_a_job_finds_its_host_where_the_submitter_found_it_else_where_the_host_is():
    host = {"GPUSCHED_HOME": "/host", "GPUSCHED_SIMULATE": "1x8G", "SECRET": "x"}
    found = environment(passed_on=host, env={"GPUSCHED_HOME": "/mine"})
    assert (found["GPUSCHED_HOME"], found["GPUSCHED_SIMULATE"]) == ("/mine", "1x8G")
    assert "SECRET" not in found


def test_output_is_never_held_back():
    assert environment()["PYTHONUNBUFFERED"] == "1"


def capped(env=(), **changes):
    grants = [replace(a_grant(), total=Mib(24564)), replace(a_grant(gpu="GPU-a", index=0), total=Mib(12288))]
    job = replace(a_job(gpus=2, grants=grants), **changes)
    work = Work(kind=Kind.COMMAND, cwd="/work", env=dict(env))
    return attempt_environment(job, work, 1, "/jobs/a", passed_on={}, marker="m", python=None, hook="/hook")


def test_jax_and_torch_get_the_promise_as_a_share_of_each_visible_card():
    found = capped()
    assert (found["GPUSCHED_CAP"], found["XLA_CLIENT_MEM_FRACTION"]) == ("0.2917,0.1459", "0.1459")
    assert found["PYTHONPATH"] == "/hook"


def test_jax_is_never_given_both_names_of_its_share():
    found = capped({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"})
    assert "XLA_CLIENT_MEM_FRACTION" not in found
    assert capped({"XLA_CLIENT_MEM_FRACTION": "0.9"})["XLA_CLIENT_MEM_FRACTION"] == "0.9"


def test_the_users_path_of_modules_keeps_its_order_behind_the_hook():
    assert capped({"PYTHONPATH": "/a::/b:/hook"})["PYTHONPATH"] == "/hook:/a::/b"


def test_who_wants_no_cap_has_none_of_them():
    for found in (capped(cap=False), capped({"GPUSCHED_CAP": "off"})):
        assert found["GPUSCHED_CAP"] == "off"
        assert not {"PYTHONPATH", "XLA_CLIENT_MEM_FRACTION", "CUPY_GPU_MEMORY_LIMIT"} & found.keys()


def test_without_the_size_of_a_card_there_is_no_share_of_it():
    job = a_job(gpus=1, grants=[a_grant()])
    assert not {"GPUSCHED_CAP", "XLA_CLIENT_MEM_FRACTION"} & environment(job).keys()
