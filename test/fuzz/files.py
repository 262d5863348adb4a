#!/usr/bin/env python3
"""Changes the files that a run depends on, one at a time, and starts the run: each change is rejected in one line,
with exit code 2 or 3, before training starts. Prints changes that were accepted, hung, crashed or gave other output.

usage: files.py [--count N] [--digits N] [--seed N] [KIND...]

KIND: manifest, state, program, kernels, weights, checkpoint. --count: arbitrary changes of each kind (default 1000);
--digits: changes in which only one digit differs (default 300)."""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import support  # extends sys.path
from support import CLEAVE, RUN

import left_out
import onnxbuild
import onnxwire

LIMIT = 20  # seconds
SETS = ["data.labels=y", "data.validation=0", "train.optimizer=adamw", "train.steps=4"]


def mutated(draw, right, digit):
    """A changed copy of `right`."""
    data = bytearray(right)
    if digit:
        at = draw.choice([i for i, byte in enumerate(data) if 48 <= byte <= 57])
        data[at] = 48 + (data[at] - 48 + draw.randrange(1, 10)) % 10
        return bytes(data)
    while bytes(data) == right:
        at, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        kind = draw.randrange(7)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at:min(end, at + 64)]
        elif kind == 2:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
        elif kind == 3:
            data[at:at] = data[at:min(end, at + 64)]
        elif kind == 4:
            data += bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
        else:
            for _ in range(draw.choice([1, 1, 1, 2, 10])):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


class Subjects:
    """A program with its weights and a checkpoint; each worker has its own."""

    def __init__(self, folder):
        self.folder = folder
        x, y = left_out.clean(4)
        np.savez(folder / "data.npz", x=x, y=y)
        self.model(folder / "m.onnx")
        flags = [word for value in SETS for word in ("--set", value)]
        support.succeed(CLEAVE, "compile", folder / "m.onnx", "-o", folder / "program", *flags)
        support.succeed(*self.train(), "--out", folder / "run", "--save-every", "2")
        self.checkpoint = next((folder / "run").glob("checkpoint-*2"))

    @staticmethod
    def model(path):
        b = onnxbuild.Builder()
        rng = np.random.default_rng(1)
        w1 = b.parameter("w1", rng.standard_normal((left_out.IN, left_out.HIDDEN)).astype(np.float32))
        w2 = b.parameter("w2", rng.standard_normal((left_out.HIDDEN, left_out.OUT)).astype(np.float32))
        x = b.input("x", np.float32, [left_out.BATCH, left_out.IN])
        b.op("MatMul", b.op("Relu", b.op("MatMul", x, w1)), w2, out="logits")
        b.output("logits", np.float32, [left_out.BATCH, left_out.OUT])
        onnxwire.save(b.model(18), path)

    def train(self):
        return [RUN, self.folder / "program", "train", "--data", self.folder / "data.npz"]

    def of(self, kind):
        """The files of a kind, and the command that reads them."""
        folder, checkpoint = self.folder, self.checkpoint
        start = [*self.train(), "--out", folder / "again"]
        resume = [*start, "--resume", checkpoint]
        return {"manifest": ([folder / "program" / "manifest.json"], start),
                "program": ([folder / "program" / "program.bin"], start),
                "kernels": ([folder / "program" / "kernels.so"], start),
                "weights": ([folder / "m.onnx"], start),
                "state": ([checkpoint / "state.json"], resume),
                "checkpoint": (sorted(checkpoint.glob("*.safetensors")), resume)}[kind]


KINDS = ["manifest", "state", "program", "kernels", "weights", "checkpoint"]


def fault(command):
    """An error in how a command rejects a file; None: no error."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, timeout=LIMIT, env=support.environment())
    except subprocess.TimeoutExpired:
        return f"did not end in {LIMIT} s"
    said = done.stderr.decode("utf-8", "replace")
    errors = [line for line in said.splitlines() if ": error: " in line]
    if done.returncode == 0:
        return "silent"
    if done.returncode not in (2, 3):
        return f"ended with {done.returncode}: {said[-300:]}"
    if len(errors) != 1 or len(said.splitlines()) != 1:
        return f"said {said[-500:]!r}"
    if any(ord(c) < 32 and c not in "\n\t" for c in said):
        return f"control bytes in {said!r}"
    return None


def attempt(subjects, kind, seed, digit):
    draw = random.Random(f"{kind} {seed} {digit}")
    files, command = subjects.of(kind)
    again = subjects.folder / "again"
    file = draw.choice(files)
    right, status = file.read_bytes(), file.stat()
    try:
        file.write_bytes(mutated(draw, right, digit))
        found = fault(command)
        if again.exists():
            found = found or "was refused, and left a folder"
            shutil.rmtree(again)
    finally:
        file.write_bytes(right)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    return found and f"{kind}{', one digit' if digit else ''}, seed {seed}, {file.name}: {found}"


def campaign(kinds, count, digits, seed=0, workers=os.cpu_count()):
    """The faults that were found, and the number of changes that were tried."""
    tasks = [(kind, seed + i, digit) for kind in kinds
             for digit, n in ((False, count), (True, digits)) for i in range(n)]

    def work(number):
        with tempfile.TemporaryDirectory() as folder:
            subjects = Subjects(pathlib.Path(folder))
            return [found for task in tasks[number::workers] if (found := attempt(subjects, *task))]
    with ThreadPoolExecutor(workers) as pool:
        return [f for found in pool.map(work, range(workers)) for f in found], len(tasks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--digits", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for kind in args.kinds:
        if kind not in KINDS:
            parser.error(f"unknown kind '{kind}'; expected {', '.join(KINDS)}")
    found, tried = campaign(args.kinds or KINDS, args.count, args.digits, args.seed)
    for line in found:
        print(line)
    print(f"{tried} changes, {len(found)} not refused as expected")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
