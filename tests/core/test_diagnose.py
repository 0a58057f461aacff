import pytest

from jupyter_gpusched.core.diagnose import NO_STDIN, diagnose
from jupyter_gpusched.core.model import Kind


def told(tail="", *, code=1, signal=None, stopped=None, kind=Kind.SCRIPT):
    return diagnose(code=None if signal else code, signal=signal, stopped=stopped, tail=tail, kind=kind)


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ZeroDivisionError: division by zero
"""

IPYTHON = """\x1b[31m---------------------------------------------------------------------------\x1b[39m
\x1b[31mKeyError\x1b[39m                                  Traceback (most recent call last)
\x1b[36mCell\x1b[39m\x1b[36m \x1b[39m\x1b[32mIn[1]\x1b[39m\x1b[32m, line 1\x1b[39m
\x1b[32m----> \x1b[39m\x1b[32m1\x1b[39m {}[\x1b[33m'a'\x1b[39m]

\x1b[31mKeyError\x1b[39m: 'a'
"""


def test_a_job_that_ended_well_says_so():
    assert told("CUDA out of memory, but we went on\n", code=0) == ("exit", "ended well")


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (TRACEBACK, "ZeroDivisionError: division by zero"),
        ("step 4 " + TRACEBACK, "ZeroDivisionError: division by zero"),
        (TRACEBACK + "cleaning up\n", "ZeroDivisionError: division by zero"),
        (IPYTHON, "KeyError: 'a'"),
        (TRACEBACK.replace("ZeroDivisionError: division by zero", "my.Oops"), "my.Oops"),
        ("Traceback (most recent call last):\n  File\nE: two\nlines\n", "E: two"),
        (TRACEBACK + "\nDuring handling of the above exception, another exception occurred:\n\n"
         "Traceback (most recent call last):\n  File\nValueError: last\n", "ValueError: last"),
    ],
)  # fmt: skip
def test_an_uncaught_python_error_is_told_in_its_own_words(tail, message):
    assert told(tail) == ("exit", message)


def test_an_error_that_was_caught_and_logged_is_not_taken_for_the_cause():
    assert told(TRACEBACK + "giving up\n", code=7) == ("exit", "exit code 7: giving up")


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("reading\nno such column\n\n", "exit code 2: no such column"),
        ("10%\r50%\r100% done\n", "exit code 2: 100% done"),
        ("\x1b[1;31mred\x1b[0m\x07\n", "exit code 2: red"),
        ("x" * 400, "exit code 2: " + "x" * 297 + "..."),
    ],
)
def test_any_other_failure_is_told_by_its_code_and_last_line(tail, message):
    assert told(tail, code=2) == ("exit", message)


def test_a_command_that_failed_without_a_word_may_have_wanted_input():
    reason, message = told("", code=7, kind=Kind.COMMAND)
    assert reason == "exit"
    assert message == f"exit code 7; it printed nothing; if it asked for something: {NO_STDIN}"
    assert NO_STDIN not in told("", code=7, kind=Kind.CELL)[1]


@pytest.mark.parametrize(
    "tail",
    [
        'name? Traceback (most recent call last):\n  File "<s>", line 1\nEOFError: EOF when reading a line\n',
        (
            'Traceback (most recent call last):\n  File "/lib/getpass.py", line 148, in _raw_input\n'
            "    raise EOFError\nEOFError\n"
        ),
        "(Pdb) \nTraceback (most recent call last):\n  File\n    if self.quitting: raise BdbQuit\nbdb.BdbQuit\n",
        "StdinNotImplementedError: raw_input was called, but this frontend does not support input requests.\n",
    ],
)
def test_a_job_that_wanted_to_read_input_is_told_that_it_cannot(tail):
    reason, message = told(tail, kind=Kind.CELL)
    assert reason == "stdin"
    assert message.startswith(NO_STDIN + ": ")


def test_our_own_words_about_input_are_not_said_twice():
    assert told(f"RuntimeError: {NO_STDIN}\n") == ("stdin", f"RuntimeError: {NO_STDIN}")


@pytest.mark.parametrize("line", ["EOFError: Ran out of input", "EOFError"])
def test_the_end_of_some_other_file_is_not_taken_for_missing_input(line):
    assert told(f"Traceback (most recent call last):\n  File\n{line}\n") == ("exit", line)


@pytest.mark.parametrize(
    ("line", "amounts"),
    [
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of "
                "23.69 GiB of which 3.20 GiB is free. Process 7 has 20.00 GiB memory in use."
            ),
            " (asked for 8.00 GiB, free 3.20 GiB)",
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)",
            " (asked for 20.00 MiB)",
        ),
        (
            (
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
                "17179869184 bytes."
            ),
            " (asked for 17179869184 bytes)",
        ),
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape[64,1024] and type float",
            " (asked for a tensor of shape [64,1024])",
        ),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes (allocated so far: 0)",
            " (asked for 8,000,000,000 bytes)",
        ),
        ("terminate called: cudaErrorMemoryAllocation", ""),
        ("ggml: cudaMalloc failed: out of memory", ""),
    ],
)
def test_running_out_of_gpu_memory_is_recognised_with_the_amounts_printed(line, amounts):
    reason, message = told(f"epoch 1\nTraceback (most recent call last):\n  File\n{line}\n")
    assert (reason, message) == (
        "cuda_oom",
        f"the GPU ran out of memory{amounts}; ask for more with --vram, or use smaller batches",
    )


@pytest.mark.parametrize(
    "line", ["RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "MemoryError"]
)
def test_running_out_of_host_memory_is_not_taken_for_the_gpu(line):
    assert told(f"Traceback (most recent call last):\n  File\n{line}\n")[0] == "exit"


def test_a_kill_is_explained_by_host_memory():
    reason, message = told("epoch 3\n", signal=9)
    assert reason == "signal_9"
    assert "host memory" in message


@pytest.mark.parametrize(("signal", "name"), [(11, "SIGSEGV"), (15, "SIGTERM"), (40, "a real-time signal")])
def test_other_signals_are_named(signal, name):
    assert told("", signal=signal) == (f"signal_{signal}", f"ended by signal {signal} ({name})")


SURVIVED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB\n"


@pytest.mark.parametrize(
    ("tail", "how"),
    [
        (SURVIVED + "batch size 16\n" + TRACEBACK, {}),
        ("Traceback (most recent call last):\n  File\n" + SURVIVED + IPYTHON, {}),
        (SURVIVED + "step\n" * 30 + "no space left\n", {"code": 2}),
        ("Traceback (most recent call last):\n  File\n" + SURVIVED + "step\n" * 30 + "gone\n", {"code": 2}),
        (SURVIVED + "step\n" * 30, {"signal": 11}),
    ],
)
def test_running_out_of_gpu_memory_and_going_on_is_not_taken_for_the_cause(tail, how):
    assert told(tail, **how)[0] != "cuda_oom"


def test_running_out_of_gpu_memory_in_a_process_that_a_launcher_started_is_the_cause():
    child = "Traceback (most recent call last):\n  File\n" + SURVIVED
    launcher = "Traceback (most recent call last):\n  File\ntorch.distributed.elastic.ChildFailedError:\ntrain.py\n"
    assert told(child + launcher)[0] == "cuda_oom"


def test_an_abort_after_running_out_of_gpu_memory_keeps_that_reason():
    assert told("CUDA error: out of memory\nAborted\n", signal=6)[0] == "cuda_oom"


@pytest.mark.parametrize("reason", ["cancelled", "timeout", "preempted"])
def test_a_job_that_was_being_ended_is_explained_by_that(reason):
    assert told(TRACEBACK, signal=15, stopped=reason)[0] == reason


def test_stragglers_do_not_explain_how_the_main_process_ended():
    assert told(TRACEBACK, stopped="stragglers") == ("exit", "ZeroDivisionError: division by zero")


def test_an_ending_of_which_nothing_is_known_says_so():
    assert diagnose(code=None, signal=None, stopped=None, tail="", kind=Kind.CELL) == (
        "exit",
        "its exit code is unknown; it printed nothing",
    )


def test_a_failed_notebook_is_told_by_its_cell():
    tail = "E  Traceback (most recent call last)\nE: x\ngpusched: code cell 3 of 7 failed: x\n"
    assert told(tail, kind=Kind.NOTEBOOK) == ("exit", "code cell 3 of 7 failed: x")


def test_what_a_kernel_complains_of_while_it_is_shut_down_hides_neither_cell_nor_cause():
    noise = "Traceback (most recent call last):\n  File x\nzmq.error.ZMQError: Socket operation on non-socket\n"
    verdict = "gpusched: code cell 2 of 3 failed: ZeroDivisionError: division by zero\n"
    assert told(TRACEBACK + verdict + noise, kind=Kind.NOTEBOOK) == (
        "exit",
        "code cell 2 of 3 failed: ZeroDivisionError: division by zero",
    )
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    reason, _ = told(f"{TRACEBACK}{oom}\ngpusched: code cell 1 of 1 failed: {oom}\n{noise}", kind=Kind.NOTEBOOK)
    assert reason == "cuda_oom"
