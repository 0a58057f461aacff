"""A job that 'uses' VRAM of the fake machine, for tests and demonstrations.

    python fake_gpu_job.py --alloc 2G --grow 1G --every 0.5 --max 6G --hold 3

It leaves through the exit status: 0 done, 1 out of memory (with a traceback whose
last line reads like torch's), 143 after SIGTERM.  After kill -9 nothing has to be
cleaned up: the library drops processes that are gone.
"""

import argparse
import re
import signal
import sys
import time

from fakegpu import Allocation, GiB


def size(text: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+)([KMGT]?)(?:i?B)?", text, re.IGNORECASE).groups()
    return int(float(number) * 1024 ** " KMGT".index(unit.upper() or " "))


def main() -> int:
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", type=int, default=0, help="index among the visible devices")
    ap.add_argument("--context", type=size, default=size("420M"))
    ap.add_argument("--alloc", type=size, default=GiB)
    ap.add_argument("--grow", type=size, default=0)
    ap.add_argument("--every", type=float, default=0.2)
    ap.add_argument("--max", type=size, default=0)
    ap.add_argument("--limit", type=size, help="refuse to go over this, as a framework's own cap does")
    ap.add_argument("--hold", type=float, default=1.0, help="seconds to stay after the last step")
    ap.add_argument("--term-delay", type=float, default=0.0, help="seconds of clean-up on SIGTERM")
    a = ap.parse_args()

    def stop(*_):
        time.sleep(a.term_delay)
        sys.exit(143)

    signal.signal(signal.SIGTERM, stop)

    mem = Allocation(a.device, a.context)
    mem.limit = a.limit
    try:
        mem.grow(a.alloc)
        held = a.alloc
        while a.grow and held + a.grow <= (a.max or 1 << 62):
            time.sleep(a.every)
            mem.grow(a.grow)
            held += a.grow
            print(f"holding {held / GiB:.2f} GiB", flush=True)
        time.sleep(a.hold)
    finally:
        mem.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
