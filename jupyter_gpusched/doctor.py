"""``jupyter gpusched doctor``: looks at everything that must be right, and says what to do where it is not.

Only looks: makes no folder, starts no host, changes no file; what it tries is gone afterwards. Each
check stands alone, so that one that fails hides none of the others.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from . import places
from .client import Client, HostUnreachable
from .core.model import GpuSchedError
from .core.quantities import show_mib
from .find_host import find_host, sign_of_a_service
from .gpus import parse_simulation, probe
from .hub_address import HubAddress
from .launch.means import probe as means_here
from .neighbours import told_of, unseen
from .store import StoreUnavailable, filesystem, network_filesystem, try_out
from .store.opening import connect, version_of

DATABASE = "gpusched.sqlite"
DEPENDENCIES = ("jupyter-gpusched", "jupyter-server", "jupyterlab", "ipython", "ipykernel", "msgspec", "tornado")
DEPENDENCIES_OF_JOBS = ("cloudpickle", "nbformat", "nvidia-ml-py")

SERVICES = ("system", "hub")
"""Kinds of hosts that work for several users, in a place of their own."""

_LONGEST_SOCKET_PATH = 107
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True, slots=True)
class Check:
    """What was found. ``warning`` = it works, but a person should know; ``hint`` = what to do."""

    name: str
    ok: bool
    summary: str
    hint: str | None = None
    warning: bool = False


def main(*, as_json: bool) -> int:
    """Print what was found; 1 if something must be repaired."""
    found = checks()
    healthy = all(check.ok for check in found)
    if as_json:
        text = json.dumps({"ok": healthy, "checks": [asdict(check) for check in found]}, indent=2)
    else:
        text = "\n".join(_lines(found))
    sys.stdout.write(text + "\n")
    return 0 if healthy else 1


def checks(environ: Mapping[str, str] = os.environ) -> list[Check]:
    state = places.state_folder(dict(environ))
    host, reached = _host(environ)
    own_places: list[tuple[str, Callable[[], Check]]] = [
        ("state folder", lambda: _state_folder(state)),
        ("database", lambda: _database(state / DATABASE)),
        ("socket", lambda: _socket(places.socket_path(state, dict(environ)))),
    ]
    asked: list[tuple[str, Callable[[], Check]]] = [
        ("python", _python),
        ("platform", _platform),
        ("packages", _packages),
        ("kernel features", _kernel_features),
        *([] if _is_service(reached) else own_places),  # whoever uses a service has none
        ("host", lambda: host),
        ("gpus", lambda: _gpus(reached, environ)),
        ("promises", lambda: _promises(reached, environ)),
        ("ending jobs", lambda: _ending(reached, state, environ)),
        ("alerts", lambda: _alerts(reached)),
        ("server extension", _server_extension),
    ]
    try:
        return [_guarded(name, look) for name, look in asked]
    finally:
        if reached is not None:
            reached.close()


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except Exception as error:  # noqa: BLE001  whatever is wrong with one thing, the others are still told
        return Check(name, False, f"could not be looked at: {type(error).__name__}: {error}", "Please report this.")


def _lines(found: list[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in found)
    for check in found:
        sign = "warn" if check.ok and check.warning else "ok" if check.ok else "FAIL"
        yield f"{sign:4}  {check.name:{width}}  {check.summary}"
        if check.hint:
            yield f"{'':4}  {'':{width}}  -> {check.hint}"
    failed = sum(not check.ok for check in found)
    yield ""
    yield "Everything that is needed works." if not failed else f"{failed} of {len(found)} checks failed."


# --- this environment ---------------------------------------------------------------------


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < (3, 10):  # noqa: UP036  a copied checkout can be run by any Python
        return Check("python", False, f"{version} is too old", "Use Python 3.10 or newer.")
    return Check("python", True, f"{version} ({sys.executable})")


def _platform() -> Check:
    summary = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform != "linux":
        return Check("platform", False, summary, "Hosts run on Linux; use this package there (WSL2 is fine).")
    return Check("platform", True, summary)


def _packages() -> Check:
    found = {name: _version(name) for name in DEPENDENCIES + DEPENDENCIES_OF_JOBS}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return Check("packages", False, f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return Check("packages", True, ", ".join(f"{name} {version}" for name, version in found.items()))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kernel_features() -> Check:
    """Jobs are signalled through pidfds, and their orphans are collected by a subreaper."""
    missing = [name for name, works in (("pidfd", _pidfd), ("child subreaper", _subreaper)) if not works()]
    if missing:
        return Check(
            "kernel features",
            False,
            f"not available here: {', '.join(missing)}",
            "Use a kernel of Linux 5.4 or newer; in a sandbox, allow pidfd_open, pidfd_send_signal and prctl.",
        )
    return Check("kernel features", True, "pidfd and child subreaper work")


def _pidfd() -> bool:
    try:
        descriptor = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    try:
        signal.pidfd_send_signal(descriptor, 0)  # signal 0 only asks whether it could be sent
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _subreaper() -> bool:
    answer = ctypes.c_int()
    failed: int = ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return failed == 0


def _server_extension() -> Check:
    """Whether a Jupyter server started from this environment loads our extension."""
    from jupyter_core.paths import jupyter_config_path

    for folder in map(Path, jupyter_config_path()):  # the folder that overrides the others comes first
        for file in [folder / "jupyter_server_config.json", *sorted(folder.glob("jupyter_server_config.d/*.json"))]:
            enabled = _enabled_in(file)
            if enabled:
                return Check("server extension", True, f"enabled by {file}")
            if enabled is False:
                return Check("server extension", True, f"disabled by {file}", _ENABLE, warning=True)
    return Check("server extension", True, "not enabled; magics and terminal work without it", _ENABLE, warning=True)


_ENABLE = "`jupyter server extension enable jupyter_gpusched` (an ordinary `pip install` does it)."


def _enabled_in(file: Path) -> bool | None:
    try:
        extensions = json.loads(file.read_text())["ServerApp"]["jpserver_extensions"]
        return bool(extensions["jupyter_gpusched"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- where things lie ---------------------------------------------------------------------


def _state_folder(state: Path) -> Check:
    name = "state folder"
    if (network := network_filesystem(state)) is not None:
        return Check(
            name,
            False,
            f"{state} lies on a network file system ({network}), where the database cannot work safely",
            "Set GPUSCHED_HOME to a folder on a local disk of this machine.",
        )
    where = f"{state} ({filesystem(state)})"
    if not state.exists():
        return _to_be_made(name, state, where)
    if (trouble := _unusable(state)) is not None:
        return Check(name, False, f"{where} {trouble}", "Set GPUSCHED_HOME to a folder of your own.")
    if (ground := _ground(state)) is not None:
        return ground
    if mode := stat.S_IMODE(state.stat().st_mode) & 0o077:
        hint = f"`chmod 700 {state}`; a host does it when it starts."
        return Check(name, True, f"{where} is open to others (mode {mode:03o} for them)", hint, warning=True)
    return Check(name, True, where)


def _ground(state: Path) -> Check | None:
    """What does not work in the folder although its file system is not known for it; the trial leaves nothing there."""
    hint = "Set GPUSCHED_HOME to a folder on a local disk of this machine."
    try:
        ground = try_out(state)
    except OSError as error:
        return Check("state folder", False, f"{state}: no file can be made there: {error.strerror}", hint)
    if ground.locks is not None:
        return Check("state folder", False, f"{state}: {ground.locks}; no database can lie there", hint)
    if ground.shared_memory is not None:
        slower = f"{state}: {ground.shared_memory}; the database works with a slower journal"
        return Check("state folder", True, slower, hint, warning=True)
    return None


def _to_be_made(name: str, state: Path, where: str) -> Check:
    parent = next(folder for folder in state.parents if folder.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        return Check(name, True, f"{where} will be made when it is needed")
    return Check(name, False, f"{where} cannot be made in {parent}", "Set GPUSCHED_HOME to a folder of your own.")


def _unusable(folder: Path) -> str | None:
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode):
        return "is not a folder"
    if info.st_uid != os.geteuid():
        return f"belongs to uid {info.st_uid}"
    return None if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "cannot be written"


def _database(path: Path) -> Check:
    if not path.exists():
        return Check("database", True, f"{path} will be made by the first host")
    try:
        with closing(connect(path, timeout_s=1.0, read_only=True)) as connection:
            version = version_of(connection, path)
            jobs = connection.execute("SELECT count(*) FROM job").fetchone()[0] if version else 0
    except StoreUnavailable as error:
        return Check("database", False, error.message, error.hint)
    except sqlite3.Error as error:
        return Check("database", False, f"{path} cannot be read: {error}", "Move it away, or restore a copy of it.")
    return Check("database", True, f"{path}: schema {version}, {jobs} job{'' if jobs == 1 else 's'}")


def _socket(path: Path) -> Check:
    if (length := len(os.fsencode(path))) > _LONGEST_SOCKET_PATH:
        return Check("socket", False, f"{path} is too long ({length} bytes)", "Set XDG_RUNTIME_DIR to a shorter path.")
    trouble = _unusable(path.parent) if path.parent.exists() else None
    if trouble:
        hint = f"Remove {path.parent}, or set XDG_RUNTIME_DIR to a folder of your own."
        return Check("socket", False, f"{path.parent} {trouble}", hint)
    return Check("socket", True, str(path))


# --- the host and its cards ---------------------------------------------------------------


def _host(environ: Mapping[str, str]) -> tuple[Check, Client | None]:
    try:
        client = Client.connect(environ=environ)
    except HostUnreachable as error:
        # Having none is the ordinary state before the first job, unless one was named or should be there.
        named = environ.get("GPUSCHED_SOCKET") or environ.get("GPUSCHED_SERVICE_URL")
        expected = bool(named) or _published_alive(environ) or sign_of_a_service(environ) is not None
        summary = error.message if expected else "none is running; submitting a job starts one"
        return Check("host", not expected, summary, error.hint if expected else None), None
    except GpuSchedError as error:
        return Check("host", False, error.message, error.hint), None
    try:
        return _describe_host(client.health(), find_host(environ, start=False)), client
    except GpuSchedError as error:
        client.close()
        return Check("host", False, error.message, error.hint), None


def _is_service(host: Client | None) -> bool:
    try:
        return host is not None and host.health().get("kind") in SERVICES
    except GpuSchedError:  # the check of the host says so
        return False


def _published_alive(environ: Mapping[str, str]) -> bool:
    record = places.read_host_record(places.state_folder(dict(environ)))
    return record is not None and places.host_alive(record)


def _describe_host(health: Mapping[str, Any], where: str | HubAddress) -> Check:
    parts = [
        f"{health.get('kind')} in process {health.get('pid')}",
        f"version {health.get('version')}",
        f"API {health.get('api')}",
        f"epoch {health.get('epoch')}",
        f"address {where}" if isinstance(where, HubAddress) else f"socket {health.get('socket')}",
    ]
    if health.get("kind") == "system":
        parts.append("for all users, whose jobs run as their owner")
    if health.get("kind") in SERVICES:
        parts.append(f"administrators: {health.get('administrators') or 'unknown'}")
        parts.append(f"isolation of jobs: {health.get('isolation', 'none')}")
        limited = health.get("host_limits") == "limited"
        parts.append(f"host memory and CPUs of jobs: {'limited' if limited else 'counted, not limited'}")
    if health.get("simulated"):
        parts.append(f"SIMULATED cards {health['simulated']}")
    causes = " ".join(health.get("causes") or [])
    degraded = health.get("status") != "ok"
    return Check("host", True, ", ".join(parts), causes or None, warning=degraded)


def _ending(host: Client | None, state: Path, environ: Mapping[str, str]) -> Check:
    """How jobs are ended, and whether they end with the server: as the host found, else as tried here."""
    if host is not None:
        health = host.health()
        how, notices = str(health.get("ending") or "unknown"), list(health.get("notices") or [])
    else:
        means = means_here(state if state.is_dir() else Path(tempfile.gettempdir()), environ)
        how, notices = means.ending, means.notices
        if means.no_cgroups is not None:
            how += f"; {means.no_cgroups}"
    return Check("ending jobs", True, how, " ".join(notices) or None, warning=bool(notices))


def _gpus(host: Client | None, environ: Mapping[str, str]) -> Check:
    if host is not None:
        cards = host.gpus()
        if cards:
            return _describe_cards(cards)
        return _no_cards(host.health().get("gpu_cause") or probe() or "The host has not seen the GPUs yet.")
    if text := environ.get("GPUSCHED_SIMULATE"):
        return _simulated(text)
    cause = probe()
    return _no_cards(cause) if cause else Check("gpus", True, "the NVIDIA driver and its GPUs can be used")


def _promises(host: Client | None, environ: Mapping[str, str]) -> Check:
    """Whether one scheduler knows of all that is promised on the cards."""
    real = host is None and not environ.get("GPUSCHED_SIMULATE") and probe() is None
    found = host.health().get("unseen") if host is not None else unseen(environ=environ) if real else None
    return Check("promises", True, *told_of(found), warning=found is not None)


def _alerts(host: Client | None) -> Check:
    standing = host.alerts() if host is not None else []
    if not standing:
        return Check("alerts", True, "nothing needs attention" if host is not None else "only a host knows of any")
    told = " ".join(alert["message"] for alert in standing)
    return Check(
        "alerts", True, told, " ".join(alert["hint"] or "" for alert in standing).strip() or None, warning=True
    )


def _describe_cards(cards: list[dict[str, Any]]) -> Check:
    shown = [f"GPU {card['index']} {card['name']} {show_mib(card['total_mib'])}" for card in cards]
    ill = [f"GPU {card['index']}: {card['health']['cause']}" for card in cards if card["health"]["status"] != "ok"]
    mark = " (SIMULATED)" if any(card["simulated"] for card in cards) else ""
    return Check("gpus", True, ", ".join(shown) + mark, "; ".join(ill) or None, warning=bool(ill))


def _simulated(text: str) -> Check:
    try:
        sizes = parse_simulation(text)
    except GpuSchedError as error:
        return Check("gpus", False, error.message, error.hint)
    return Check("gpus", True, f"SIMULATED: {', '.join(map(show_mib, sizes))} (GPUSCHED_SIMULATE={text})")


def _no_cards(cause: str) -> Check:
    hint = "Jobs with --gpus 0 run. To try the rest on simulated cards, set GPUSCHED_SIMULATE=2x24G."
    return Check("gpus", True, cause, hint, warning=True)
