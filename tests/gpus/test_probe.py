"""Why there is no usable GPU, in one sentence, from the real NVML bindings."""

import asyncio
import sys
import threading

import pynvml
import pytest

from jupyter_gpusched.gpus import nvml, open_provider


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
    sentence = nvml.cause_of(pynvml.NVMLError(code))
    assert words in sentence
    assert sentence.endswith(".")


def test_an_error_that_is_not_of_nvml_is_told_too():
    assert "too old" in nvml.cause_of(RuntimeError("too old"))


def test_the_real_machine_gets_one_sentence():
    sentence = nvml.probe()
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_missing_bindings_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in nvml.probe()


def test_a_driver_without_cards_says_so(monkeypatch):
    driver(monkeypatch, cards=0)
    assert nvml.probe() == "The NVIDIA driver is loaded but finds no GPU."


def test_real_cards_are_admitted_and_honestly_declined(monkeypatch):
    driver(monkeypatch, cards=2)
    assert "2 NVIDIA GPUs" in nvml.probe()
    assert "only simulated cards" in nvml.probe()


def test_a_driver_that_hangs_is_left_after_the_deadline(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlInit", released.wait)
    try:
        assert "did not answer" in nvml.probe(deadline_s=0.05)
    finally:
        released.set()


def test_without_a_usable_card_the_provider_has_none_and_a_cause():
    provider = open_provider(None)
    assert asyncio.run(provider.sample([], now=1.0)) == ()
    assert provider.cause
    assert not provider.simulated


def driver(monkeypatch, *, cards):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: cards)
