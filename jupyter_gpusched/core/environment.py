"""What a job finds in its environment: the submitter's variables, and what each attempt adds.

Pure: environments come in and go out as mappings. Two decisions live here: which variables of
a kernel or terminal travel with a submission, and which every attempt is given (DESIGN 4).
Secrets that belong to the Jupyter server or the Hub never travel.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from .model import Grant, Job, Kind, Work

PASSED_ON = (
    "GPUSCHED_HOME",
    "GPUSCHED_SOCKET",
    "GPUSCHED_SERVICE_URL",
    "GPUSCHED_SIMULATE",
    "GPUSCHED_AUTOSTART",
)
"""Where a job finds the host that runs it, unless the submitter said otherwise."""

MARKER = "GPUSCHED_MARKER"
"""Unique for each attempt: by it the processes of an attempt are found that left its tree."""

CAP, OFF = "GPUSCHED_CAP", "off"
"""Shares of the visible cards that PyTorch is asked to keep to; the user's ``off`` forbids it."""

PER_ATTEMPT = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "GPUSCHED_JOB_ID",
        "GPUSCHED_ATTEMPT",
        "GPUSCHED_VRAM_MIB",
        "GPUSCHED_GPUS",
        "GPUSCHED_CHECKPOINT_DIR",
        "GPUSCHED_STOP_FILE",
        "GPUSCHED_ARRAY_ID",
        "GPUSCHED_ARRAY_INDEX",
        MARKER,
    }
)

_VARYING = PER_ATTEMPT | {CAP, "CUPY_GPU_MEMORY_LIMIT", "XLA_CLIENT_MEM_FRACTION", "MASTER_ADDR", "MASTER_PORT"}

_SECRETS = frozenset(
    {
        "CONFIGPROXY_AUTH_TOKEN",
        "JPY_API_TOKEN",
        "JUPYTERHUB_API_TOKEN",
        "JUPYTERHUB_COOKIE_SECRET",
        "JUPYTERHUB_CRYPT_KEY",
        "JUPYTER_PASSWORD",
        "JUPYTER_TOKEN",
    }
)
_OF_THE_KERNEL = frozenset({"CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"})
_OF_THE_KERNEL_PREFIXES = ("JPY_", "PYDEVD_")
SWEEP = "GPUSCHED_SWEEP_"
"""Before the name of a variable of the sweep, in upper case."""
_OF_THE_PROCESS = frozenset(
    {"_", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET", "OLDPWD"}
)
_NOTEBOOK_BACKENDS = ("module://matplotlib_inline", "module://ipykernel.pylab", "inline", "module://ipympl")
_INLINE = "module://matplotlib_inline.backend_inline"
_SHOW_FIGURES = frozenset({Kind.CELL, Kind.FUNCTION, Kind.NOTEBOOK})

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_FIRST_PORT, _PORTS = 20000, 12000  # below the range from which Linux picks ports for outgoing connections
_CONTEXT_MIB = 512
"""What a CUDA context takes of a promise and no framework counts (``facts/nvml.md`` 4.2)."""


def submitted(environ: Mapping[str, str]) -> dict[str, str]:
    """What a client sends of its own environment, and a host believes of what it was sent."""
    return {name: value for name, value in environ.items() if _travels(name, value)}


def varies(name: str) -> bool:
    """Whether a variable may differ between attempts of the same code; no program reads these before that code runs."""
    return name in _VARYING or name.startswith(SWEEP)


def _travels(name: str, value: str) -> bool:
    if name == "MPLBACKEND":
        return not value.startswith(_NOTEBOOK_BACKENDS)
    dropped = name in PER_ATTEMPT or name in _SECRETS or name in _OF_THE_KERNEL or name in _OF_THE_PROCESS
    return not dropped and not name.startswith((*_OF_THE_KERNEL_PREFIXES, SWEEP))


def attempt_environment(
    job: Job,
    work: Work,
    attempt: int,
    folder: str,
    *,
    passed_on: Mapping[str, str],
    marker: str,
    python: str | None,
    hook: str | None = None,
) -> dict[str, str]:
    """The whole environment of one attempt, set before its process starts.

    folder     the job's folder.
    passed_on  the host's own environment, of which only ``PASSED_ON`` is used.
    python     the job's interpreter, whose folder comes first on PATH; None leaves PATH alone.
    hook       the folder of the sitecustomize by which PyTorch is asked to stay within the promise.
    """
    grants = _grants(job, attempt)
    env = {name: passed_on[name] for name in PASSED_ON if name in passed_on}
    env.update(submitted(work.env))
    _spoken_as_utf8(env)
    env.update(
        PWD=work.cwd,
        PATH=_path(env.get("PATH") or _DEFAULT_PATH, python),
        PYTHONUNBUFFERED="1",
        GPUSCHED_JOB_ID=job.id,
        GPUSCHED_ATTEMPT=str(attempt),
        GPUSCHED_CHECKPOINT_DIR=f"{folder}/checkpoint",
        GPUSCHED_STOP_FILE=f"{folder}/attempt-{attempt}/stop",
        GPUSCHED_MARKER=marker,
    )
    env.update(_element(job))
    env.setdefault("MPLBACKEND", _INLINE if work.kind in _SHOW_FIGURES else "Agg")
    env.update(_cards(grants))
    if env.get("XLA_CLIENT_MEM_FRACTION") in env.get(CAP, "").split(","):  # of the job that submitted this one
        env.pop("XLA_CLIENT_MEM_FRACTION", None)
    for name, value in (_caps(job, grants, env) | _rendezvous(job, grants)).items():
        env.setdefault(name, value)
    _cap_of_torch(job, grants, env, hook)
    return env


def _element(job: Job) -> dict[str, str]:
    """Which element of which array it is, and its values."""
    told = {f"{SWEEP}{name.upper()}": str(value) for name, value in job.sweep}
    if job.array_id is not None:
        told |= {"GPUSCHED_ARRAY_ID": job.array_id, "GPUSCHED_ARRAY_INDEX": str(job.array_index)}
    return told


def _grants(job: Job, attempt: int) -> tuple[Grant, ...]:
    return next((known.gpus for known in job.attempts if known.number == attempt), ())


def _cards(grants: tuple[Grant, ...]) -> dict[str, str]:
    """Which cards the attempt may see, by UUID, in the order of the PCI bus."""
    if not grants:
        return {
            "CUDA_VISIBLE_DEVICES": "",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "NVIDIA_VISIBLE_DEVICES": "void",
            "GPUSCHED_GPUS": "0",
        }
    uuids = ",".join(grant.gpu for grant in sorted(grants, key=lambda grant: grant.index))
    return {
        "CUDA_VISIBLE_DEVICES": uuids,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": uuids,
        "GPUSCHED_GPUS": str(len(grants)),
        "GPUSCHED_VRAM_MIB": str(min(grant.promised for grant in grants)),
    }


def _caps(job: Job, grants: tuple[Grant, ...], env: Mapping[str, str]) -> dict[str, str]:
    """Cooperative limits on a shared card: frameworks that would take all of it grow within the promise.

    A whole card is left alone, and so is whoever wants no cap.
    """
    if not _capped(job, grants, env):
        return {}
    pool_mib = min(grant.promised for grant in grants) - _CONTEXT_MIB
    limit = {"CUPY_GPU_MEMORY_LIMIT": str(pool_mib * 2**20)} if pool_mib > 0 else {}
    shares = _shares(grants)
    if shares and not env.get("XLA_PYTHON_CLIENT_MEM_FRACTION"):  # JAX refuses both names of it together
        limit["XLA_CLIENT_MEM_FRACTION"] = min(shares)
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true", **limit}


def _cap_of_torch(job: Job, grants: tuple[Grant, ...], env: dict[str, str], hook: str | None) -> None:
    """PyTorch takes its limit by a call only: ``hook`` is the folder of the sitecustomize that makes it.

    A number that was inherited is another job's; only ``off`` is the user's word.
    """
    inherited = env.pop(CAP, None)
    shares = _shares(grants)
    if inherited == OFF or not job.cap:
        env[CAP] = OFF
    elif hook is not None and shares and _capped(job, grants, env):
        env[CAP] = ",".join(shares)
        env["PYTHONPATH"] = ":".join([hook, *_without(env.get("PYTHONPATH"), hook)])


def _without(path: str | None, hook: str) -> list[str]:
    """The user's own places, also empty ones, which mean the current folder."""
    return [place for place in path.split(":") if place != hook] if path else []


def _capped(job: Job, grants: tuple[Grant, ...], env: Mapping[str, str]) -> bool:
    return bool(grants) and job.cap and not job.request.whole_cards and env.get(CAP) != OFF


def _shares(grants: tuple[Grant, ...]) -> list[str]:
    """The promise without what a context takes, as a share of each visible card; empty where it is not known."""
    shares = [
        None if not grant.total else max(0, grant.promised - _CONTEXT_MIB) / grant.total
        for grant in sorted(grants, key=lambda grant: grant.index)
    ]
    known = [f"{min(1.0, share):.4f}" for share in shares if share]
    return known if len(known) == len(grants) else []


def _rendezvous(job: Job, grants: tuple[Grant, ...]) -> dict[str, str]:
    """Where the processes of a job with several cards meet; the port follows from the job's id."""
    if len(grants) < 2:
        return {}
    port = _FIRST_PORT + zlib.crc32(job.id.encode()) % _PORTS
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _path(path: str, python: str | None) -> str:
    folders = path.split(":")
    home = str(PurePosixPath(python).parent) if python and "/" in python else None
    if home is None or folders[0] == home:
        return path
    return ":".join([home, *(folder for folder in folders if folder != home)])


def _spoken_as_utf8(env: dict[str, str]) -> None:
    """Text is UTF-8 whatever the locale: a service started without one must not lose a job's words."""
    if not env.get("PYTHONIOENCODING", "").lower().replace("-", "").startswith("utf8"):
        env["PYTHONIOENCODING"] = "utf-8"
    effective = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or "C"
    if "utf8" in effective.lower().replace("-", ""):
        return
    replaced = env.pop("LC_ALL", None)
    if replaced:
        env.setdefault("LANG", replaced)
    env["LC_CTYPE"] = "C.UTF-8"
    env["PYTHONUTF8"] = "1"
