#!/usr/bin/env python3
"""A long run with a checkpoint and a validation every second: its memory and its number of open files do not grow
after the first tenth.

usage: soak.py [--minutes N]    (default 20)"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

from jobs import Job, start

TOLERANCE = 0.02  # of memory


def measure(pid):
    """Resident bytes and open descriptors."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0]) * 1024
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    seconds = parser.parse_args().minutes * 60
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job = Job(folder, 1_000_000_000, 5000, "data.validation=0.2", "train.keep=3", "train.schedule=\"constant\"")
        with open(folder / "log", "w") as log:
            process = start(job.train(folder / "run", "--eval-every", 5000), log)
            begin, seen = time.monotonic(), []
            while time.monotonic() - begin < seconds:
                time.sleep(min(5, seconds / 50))
                if process.poll() is not None:
                    sys.exit(f"ended with {process.returncode}: {(folder / 'log').read_text()[-500:]}")
                seen.append(measure(process.pid))
            process.terminate()
            code = process.wait(timeout=60)
        seen = seen[len(seen) // 10:]
        memory, files = zip(*seen)
        steps = sum(1 for _ in open(folder / "run" / "log.jsonl"))
        kept = len(list((folder / "run").glob("checkpoint-*")))
        print(f"{seconds:.0f} s, {steps} steps; memory {memory[0] / 2**20:.1f} to {memory[-1] / 2**20:.1f} MiB, at most "
              f"{max(memory) / 2**20:.1f}; descriptors {files[0]} to {files[-1]}, at most {max(files)}; "
              f"{kept} checkpoints, exit code {code}")
        grows = memory[-1] > memory[0] * (1 + TOLERANCE) or files[-1] > files[0]
        sys.exit(bool(grows or code or kept > 4))


if __name__ == "__main__":
    main()
