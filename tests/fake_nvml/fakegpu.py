"""The machine behind the fake NVML: write it, change it live, allocate on it.

The state is one small text file (see fake_nvml.c for its records).  Readers need
no lock, because a writer puts a whole new file in place with os.replace();
writers exclude each other with flock() on a file beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shlex
import subprocess
import time

GiB = 1 << 30
MiB = 1 << 20
HERE = pathlib.Path(__file__).parent


def build(out: pathlib.Path) -> pathlib.Path:
    """Compile the library into out/ and return that folder, for LD_LIBRARY_PATH."""
    subprocess.run(["make", "-s", "-C", str(HERE), f"OUT={out}"], check=True)
    return out


def process_start(pid: int) -> int | None:
    """Start time in clock ticks since boot; None for a process that is gone or a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class OutOfMemory(RuntimeError):
    """What a real allocation on a full card raises (the message follows torch's)."""


class Record(dict):
    def __init__(self, kind: str, **values):
        super().__init__({k: str(v) for k, v in values.items()})
        self.kind = kind

    def num(self, key: str, default: int = 0) -> int:
        value = self.get(key, default)
        return default if value == "NA" else int(value)

    def line(self) -> str:
        def quote(v: str) -> str:
            return f'"{v}"' if " " in v or not v else v

        return " ".join([self.kind, *(f"{k}={quote(v)}" for k, v in self.items())])


class State:
    def __init__(self, text: str = ""):
        self.records: list[Record] = []
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words:
                self.records.append(Record(words[0], **dict(w.split("=", 1) for w in words[1:])))

    def text(self) -> str:
        return "".join(r.line() + "\n" for r in self.records)

    def add(self, kind: str, **values) -> Record:
        self.records.append(Record(kind, **values))
        return self.records[-1]

    def all(self, kind: str, **want) -> list[Record]:
        return [r for r in self.records if r.kind == kind and all(r.get(k) == str(v) for k, v in want.items())]

    def remove(self, kind: str, **want) -> None:
        gone = {id(r) for r in self.all(kind, **want)}
        self.records = [r for r in self.records if id(r) not in gone]

    # -- the driver's view ---------------------------------------------------
    @staticmethod
    def alive(proc: Record) -> bool:
        if proc.num("sticky"):
            return True
        start = process_start(proc.num("pid"))
        return start is not None and proc.num("start", start) == start

    def device(self, gpu: int, mig: int | None = None) -> Record:
        found = self.all("gpu", index=gpu) if mig is None else self.all("mig", gpu=gpu, index=mig)
        if not found:
            raise LookupError(f"no fake device {gpu}/{mig}")
        return found[0]

    def free(self, gpu: int, mig: int | None = None) -> int:
        dev = self.device(gpu, mig)
        where = {"gpu": gpu} if mig is None else {"gpu": gpu, "mig": mig}
        held = sum(p.num("real", p.num("bytes")) for p in self.all("proc", **where) if self.alive(p))
        return max(0, dev.num("total") - dev.num("reserved") - dev.num("base") - held)


def machine(*gpus: dict, **system) -> State:
    """A machine of the given cards; every key is a key of a gpu record."""
    st = State()
    st.add("system", **{"driver": "580.82.07", "nvml": "13.580.82.07", "cuda": 13000, **system})
    for i, g in enumerate(gpus):
        st.add(
            "gpu",
            **{
                "index": i,
                "name": "NVIDIA A100-SXM4-40GB",
                "uuid": f"GPU-0000000{i}-fa4e-0000-0000-00000000000{i}",
                "total": 40 * GiB,
                "reserved": 512 * MiB,
                "base": 0,
                **g,
            },
        )
    return st


def state_path() -> pathlib.Path:
    return pathlib.Path(os.environ["FAKE_NVML_STATE"])


def read(path=None) -> State:
    return State(pathlib.Path(path or state_path()).read_text())


def write(st: State, path=None) -> None:
    path = pathlib.Path(path or state_path())
    tmp = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    tmp.write_text(st.text())
    os.replace(tmp, path)


@contextlib.contextmanager
def change(path=None):
    """Edit the state; nothing else writes meanwhile, and readers see all or nothing."""
    path = pathlib.Path(path or state_path())
    with open(f"{path}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        st = read(path)
        yield st
        st.records = [r for r in st.records if r.kind != "proc" or st.alive(r)]
        write(st, path)


def visible() -> list[tuple[int, int | None]]:
    """The devices this process may use, by CUDA_VISIBLE_DEVICES (indices, GPU- and MIG- UUIDs).

    As in CUDA, the first entry that names nothing ends the list.
    """
    st = read()
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return [(r.num("index"), None) for r in st.all("gpu")]
    out: list[tuple[int, int | None]] = []
    for word in filter(None, (w.strip() for w in asked.split(","))):
        gpus = [
            g for g in st.all("gpu") if g["index"] == word or (word.startswith("GPU-") and g["uuid"].startswith(word))
        ]
        migs = [m for m in st.all("mig") if m.get("uuid") == word]
        if not gpus and not migs:
            break
        out.append((gpus[0].num("index"), None) if gpus else (migs[0].num("gpu"), migs[0].num("index")))
    return out


def gib(n: float) -> str:
    return f"{n / GiB:.2f} GiB"


class Allocation:
    """Memory of this process on one device; the first use also pays for the CUDA context."""

    def __init__(self, device: int = 0, context: int = 420 * MiB):
        self.gpu, self.mig = visible()[device]
        self.device, self.pid, self.bytes = device, os.getpid(), 0
        self.limit: int | None = None  # like set_per_process_memory_fraction
        self.grow(context)

    def _where(self) -> dict:
        return {"gpu": self.gpu, "pid": self.pid, **({} if self.mig is None else {"mig": self.mig})}

    def grow(self, amount: int) -> None:
        if self.limit is not None and self.bytes + amount > self.limit:
            raise OutOfMemory(
                f"CUDA out of memory. Tried to allocate {gib(amount)}. GPU {self.device} {gib(self.limit)} allowed"
            )
        with change() as st:
            free = st.free(self.gpu, self.mig)
            if amount > free:
                total = st.device(self.gpu, self.mig).num("total")
                raise OutOfMemory(
                    f"CUDA out of memory. Tried to allocate {gib(amount)}. GPU {self.device} has a "
                    f"total capacity of {gib(total)} of which {gib(free)} is free."
                )
            mine = st.all("proc", **self._where())
            rec = mine[0] if mine else st.add("proc", **self._where(), start=process_start(self.pid), bytes=0, type="C")
            self.bytes += amount
            rec["bytes"] = str(self.bytes)
            acct = st.all("acct", gpu=self.gpu, pid=self.pid)
            a = (
                acct[0]
                if acct
                else st.add(
                    "acct", gpu=self.gpu, pid=self.pid, start=rec["start"], max=0, started=int(time.time() * 1e6)
                )
            )
            a["max"] = str(max(a.num("max"), self.bytes))

    def shrink(self, amount: int) -> None:
        with change() as st:
            self.bytes = max(0, self.bytes - amount)
            for rec in st.all("proc", **self._where()):
                rec["bytes"] = str(self.bytes)

    def close(self) -> None:
        with change() as st:
            st.remove("proc", **self._where())
