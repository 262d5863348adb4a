#!/usr/bin/env python3
"""kill -9 at random instants: a run that is resumed afterwards has bit-identical results to one that was never killed,
and the next start leaves no files of the killed process.

usage: kills.py [--count N] [--saving N] [--compiling N] [--seed N]

--count: kills before the run's end (default 100), of which --saving (default 40) hit a process while it writes a
checkpoint, and --compiling (default 20) one that may still compile, with an empty cache."""

import argparse
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

from jobs import Job, leftovers, start, support


def waited(process, out, draw, kind, duration):
    """Waits until the instant of the kill; returns whether the process still ran then."""
    begin, until = time.monotonic(), draw.uniform(0, duration)
    while time.monotonic() - begin < (60 if kind == "saving" else until):
        if process.poll() is not None:
            return False
        if kind == "saving" and time.monotonic() - begin > until and any(out.glob(".checkpoint-*")):
            return True
        time.sleep(0 if kind == "saving" else 0.001)
    return True


def attempt(job, folder, kind, seed, duration, right):
    """An error of a run that was killed once (None: no error), and whether the kill hit."""
    draw = random.Random(f"{kind} {seed}")
    out, cache = folder / f"{kind}{seed}", folder / f"cache-{kind}{seed}"
    command = job.train_model(out, cache) if kind == "compiling" else job.train(out)
    with open(folder / f"{kind}{seed}.log", "w+") as log:
        process = start(command, log)
        hit = waited(process, out, draw, kind, duration)
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
        code = start(command, log).wait()
        log.seek(0)
        said = log.read()
    where = f"{kind}, seed {seed}"
    if code:
        return hit, f"{where}: went on with {code}: {said[-500:]}"
    if left := leftovers(out, cache):
        return hit, f"{where}: left {left}"
    if job.result(out) != right:
        return hit, f"{where}: other bits than those of a run that was not killed"
    return hit, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--saving", type=int, default=40)
    parser.add_argument("--compiling", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job = Job(folder, steps=2000, save_every=50)
        durations = []
        for name in ("whole", "again", "warm"):  # the first run reads everything from the disk
            begin = time.monotonic()
            support.succeed(*job.train(folder / name))
            durations.append(time.monotonic() - begin)
        duration = min(durations)
        right, faults, hits = job.result(folder / "whole"), [], 0
        assert job.result(folder / "whole")[1], "the run saves"
        wanted = {"saving": args.saving, "compiling": args.compiling,
                  "training": args.count - args.saving - args.compiling}
        tried = 0
        for kind, count in wanted.items():
            found = 0
            # A kill that comes too late is not counted.
            for seed in range(args.seed, args.seed + 4 * count):
                hit, fault = attempt(job, folder, kind, seed, 1.0 if kind == "compiling" else 0.9 * duration, right)
                found += hit
                tried += 1
                if fault:
                    print(fault, flush=True)
                    faults.append(fault)
                if found == count:
                    break
            hits += found
            print(f"{kind}: {found} of {count} kills hit", flush=True)
        print(f"{tried} kills of runs of {duration:.2f} s, {hits} before the end; {len(faults)} faults")
        sys.exit(bool(faults) or hits < args.count)


if __name__ == "__main__":
    main()
