"""Why there is no usable GPU, in one sentence, from the real NVML bindings."""

import subprocess
import sys
import threading

import pynvml
import pytest

from jupyter_gpusched.gpus import probe
from jupyter_gpusched.gpus.causes import card_cause, driver_cause
from jupyter_gpusched.gpus.driver import DriverError, _bindings, trouble_of


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "libnvidia-ml.so.1 is not installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_UNKNOWN, "unknown error"),
        (pynvml.NVML_ERROR_IRQ_ISSUE, "cannot be used"),
    ],
)
def test_each_cause_has_its_sentence(code, words):
    sentence = driver_cause(trouble_of(pynvml.NVMLError(code)))
    assert words in sentence
    assert sentence.endswith(".")


def test_the_words_for_a_card_fit_behind_its_name():
    for code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_IRQ_ISSUE):
        assert not card_cause(trouble_of(pynvml.NVMLError(code))).endswith(".")


def test_an_error_that_is_not_of_nvml_is_told_too():
    assert "too old" in driver_cause(trouble_of(RuntimeError("too old")))


def test_a_function_that_the_driver_lacks_is_no_stranger():
    assert trouble_of(pynvml.NVMLLibraryMismatchError("old")).name == "FUNCTION_NOT_FOUND"
    assert trouble_of(pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)).name == "FUNCTION_NOT_FOUND"


def asked(*environment):
    """The probe in a process of its own, which may load what it likes."""
    code = "from jupyter_gpusched.gpus import probe; print(probe())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_cards_that_can_be_used_have_no_cause(machine):
    assert asked() == "None"


def test_a_driver_without_cards_says_so(machine):
    machine.write()
    assert asked() == "The NVIDIA driver is loaded but finds no GPU."


def test_a_driver_that_is_not_loaded_says_so(machine):
    machine.path.unlink()
    assert "not loaded" in asked()


def test_missing_bindings_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    _bindings.cache_clear()
    try:
        assert "pip install nvidia-ml-py" in probe()
        with pytest.raises(DriverError):
            _bindings()
    finally:
        _bindings.cache_clear()


def test_a_driver_that_hangs_is_left_after_the_deadline(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlInit", released.wait)
    try:
        assert "did not answer" in probe(deadline_s=0.05)
    finally:
        released.set()
