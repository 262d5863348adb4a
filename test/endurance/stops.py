#!/usr/bin/env python3
"""Processes of a run under mpirun that are killed, stopped, or stopped and continued, each rank in turn, and ranks as
threads that fail or fall silent. The other ranks end within the watchdog's timeout plus five seconds, with code 3 and a
reason; a rank that is continued in time does no harm.

usage: stops.py [--times N]    (default 3: for each rank, at different instants)"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from jobs import Job, LargeJob, start, support

from test_mpi import processes_of

WATCHDOG = 5  # seconds
MPIRUN = support.ROOT / "test" / "mpirun.sh"
RANKS = 4


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def attempt(job, out, rank, kind, draw):
    """An error in how the run ended; None: no error."""
    log = open(out.with_suffix(".log"), "w+")
    process = start([str(MPIRUN), str(RANKS), *job.train(out, "--watchdog", WATCHDOG)], log)
    pids = {}
    try:
        until = time.monotonic() + 60
        while not (out / "log.jsonl").exists() or not (out / "log.jsonl").stat().st_size:
            if process.poll() is not None or time.monotonic() > until:
                return "did not begin"
            time.sleep(0.01)
        pids = processes_of(str(out))
        if sorted(pids) != list(range(RANKS)):
            return f"has processes {pids}"
        time.sleep(draw.uniform(0, 1))
        if kind == "continued":
            os.kill(pids[rank], signal.SIGSTOP)
            time.sleep(WATCHDOG / 2)
            os.kill(pids[rank], signal.SIGCONT)
            time.sleep(2)
            return None if process.poll() is None else "ended, though its process went on in time"
        others = [pid for r, pid in pids.items() if r != rank]
        os.kill(pids[rank], signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        begin = time.monotonic()
        while any(map(alive, others)) and time.monotonic() - begin < WATCHDOG + 20:
            time.sleep(0.05)
        took = time.monotonic() - begin
        if took > WATCHDOG + 5:
            return f"the others took {took:.1f} s to end"
        log.seek(0)
        said = [line for line in log.read().splitlines() if "cleave-run: error: " in line]
        if not said or not any(f"rank {rank}" in line or f"ranks: {rank}" in line for line in said):
            return f"said {said}"
        return None
    finally:
        send([*pids.values()], signal.SIGCONT)
        send([*pids.values()], signal.SIGKILL)
        try:
            process.wait(timeout=30)
        except Exception:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def on_threads(job, out, rank, silent):
    begin = time.monotonic()
    done = support.run(*job.train(out, "--watchdog", WATCHDOG, "--inject-failure",
                                  f"{rank},50,1" + (",1" if silent else "")), timeout=120)
    took = time.monotonic() - begin
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    if done.returncode != 3 or len(errors) != 1 or f"{rank}" not in errors[0]:
        return f"ended with {done.returncode}: {done.stderr}"
    return f"took {took:.1f} s" if took > WATCHDOG + 5 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    draw, faults, tried = random.Random(0), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job = Job(folder, 10_000_000, 1000, "mesh.data=4", "train.keep=2")

        def note(what, fault):
            nonlocal faults, tried
            tried += 1
            if fault:
                faults += 1
                print(f"{what}: {fault}", flush=True)
        for turn in range(times):
            for rank in range(RANKS):
                for kind in ("killed", "stopped", "continued"):
                    note(f"rank {rank} {kind}", attempt(job, folder / f"{kind}{rank}-{turn}", rank, kind, draw))
                for silent in (False, True):
                    note(f"on threads, rank {rank}, {'silent' if silent else 'failed'}",
                         on_threads(job, folder / f"threads{rank}-{silent}-{turn}", rank, silent))
        (folder / "large").mkdir()
        job = LargeJob(folder / "large", 10_000_000, 1, "mesh.data=4", "train.keep=1")
        for turn in range(4 * times):
            for rank in (0, turn % (RANKS - 1) + 1):
                note(f"rank {rank} stopped while it saves much", attempt(job, folder / f"large{rank}-{turn}", rank, "stopped", draw))
                shutil.rmtree(folder / f"large{rank}-{turn}")
    print(f"{tried} tried, {faults} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
