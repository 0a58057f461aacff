"""What a request asks for, in words: ``20.0G on 1 GPU``. Part of many sentences; decides nothing."""

from __future__ import annotations

from .model import Request
from .quantities import show_mib


def wish(request: Request) -> str:
    """What a job asks for: ``20.0G on 1 GPU``, ``20.0G on each of 4 GPUs``, ``2 whole GPUs``, ``4 CPUs``."""
    if request.gpus == 0:
        memory = "" if request.memory is None else f" and {show_mib(request.memory)} of host memory"
        return count(request.cpus or 0, "CPU") + memory
    model = "" if request.gpu_model is None else f" named {request.gpu_model!r}"
    if request.vram is None:
        return count(request.gpus, "whole GPU") + model
    alone = " for itself" if request.exclusive else ""
    if request.gpus == 1:
        return f"{show_mib(request.vram)} on 1 GPU{model}{alone}"
    return f"{show_mib(request.vram)} on each of {request.gpus} GPUs{model}{alone}"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
