#!/usr/bin/env python3
"""Runs that hit a limit: disk space, file size, memory, write permission; and 64 ranks. Each ends with one
message and code 2 or 3, earlier checkpoints stay intact, and a run resumes from them once there is space again.

usage: limits.py    (as root, or where user namespaces may mount)"""

import itertools
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

from jobs import Job, support

CODES = (2, 3)


def limited(what, amount):
    return lambda: resource.setrlimit(what, (amount, amount))


def refused(done, words=""):
    """An error in how a command ended; None: no error."""
    errors = [line for line in done.stderr.splitlines() if ": error: " in line]
    if done.returncode not in CODES or len(errors) != 1 or words not in errors[0]:
        return f"ended with {done.returncode}: {done.stdout[-300:]}{done.stderr[-700:]}"
    return None


def run(command, prepare=None, mounts=""):
    if mounts:
        command = ["unshare", "-r", "-m", "sh", "-c", f"{mounts} && exec \"$@\"", "sh", *command]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, preexec_fn=prepare, timeout=300,
                          env=support.environment())


def whole(out):
    """The steps of the readable checkpoints."""
    return [path.name for path in sorted(out.glob("checkpoint-*")) if (path / "state.json").exists()]


def disk(job, folder):
    """Tries many disk sizes, so that the disk is full at different points."""
    for kib in (4, 8, 12, 20, 28, 36, 44, 52, 60, 400):
        out = folder / f"full{kib}"
        out.mkdir()
        script = f"mount -t tmpfs -o size={kib}k tmpfs {out}"
        done = run(job.train(out / "run"), mounts=script)
        yield f"a disk of {kib} KiB", (refused(done, "no space left on the device") if kib < 400 else
                                       None if done.returncode == 0 else done.stderr)


def sizes(job, folder):
    for kib in (0, 1, 2):
        out = folder / f"size{kib}"
        yield f"files of {kib} KiB", refused(run(job.train(out), limited(resource.RLIMIT_FSIZE, kib * 1024)))
        support.succeed(*job.train(out))
        yield f"files of {kib} KiB, went on", None if whole(out) else "has no checkpoint"


def memory(job, folder):
    for mib in (16, 64, 128, 192, 256, 320, 400):
        out = folder / f"memory{mib}"
        done = run(job.train(out), limited(resource.RLIMIT_AS, mib << 20))
        # Below some size the dynamic loader itself fails, with code 127.
        yield f"{mib} MiB of address space", (None if done.returncode == 0 or
                                              (done.returncode == 127 and "error while loading" in done.stderr)
                                              else refused(done))


def descriptors(job, folder):
    for count in (4, 6, 8, 12, 20):
        done = run(job.train(folder / f"files{count}"), limited(resource.RLIMIT_NOFILE, count))
        yield f"{count} descriptors", (None if done.returncode == 0 or
                                       (done.returncode == 127 and "error while loading" in done.stderr)
                                       else refused(done))


def read_only(job, folder):
    out = folder / "fixed"
    support.succeed(*job.train(out))
    for checkpoint in sorted(out.glob("checkpoint-*"))[2:]:
        shutil.rmtree(checkpoint)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    script = f"mount --bind {out} {out} && mount -o remount,ro,bind {out}"
    yield "a folder that cannot be written", refused(run(job.train(out), mounts=script), "ead-only")
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    yield "its files", None if before == after else "have changed"
    support.succeed(*job.train(out))


def many_ranks(folder):
    job = Job(folder, 8, 4, "mesh.data=4", "mesh.tensor=16", "parallel.data.zero=2")
    done = run(job.train(folder / "run64"))
    yield "64 ranks", None if done.returncode == 0 else done.stderr


def main():
    faults = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job = Job(folder, 8, 2)
        (folder / "many").mkdir()
        for what, fault in itertools.chain(disk(job, folder), sizes(job, folder), memory(job, folder), descriptors(job, folder),
                                           read_only(job, folder), many_ranks(folder / "many")):
            tried += 1
            if fault:
                faults += 1
                print(f"{what}: {fault}", flush=True)
    print(f"{tried} tried, {faults} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
