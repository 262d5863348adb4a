"""Trains a model for devices on the recorder, and on one rank of this CPU.

The recorder stands in for the driver and ends a run whose streams are not in order or whose
commands leave their arenas. Losses tell whether the partitioned program is the same model.
"""

import atexit
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

STEPS = 2  # the second one is captured as a graph, and replayed
STEP = re.compile(r"^step \d+/\d+ +loss (\S+) .*grad_norm (\S+)", re.M)
# Losses have four decimals, and a step of AdamW enlarges what rounding makes of small gradients.
# Norms have three digits.
TOLERANCE, OF_NORMS = 3e-4, 0.011
# What an unpartitioned program computes depends on, of the keys of a cell.
OF_THE_MODEL = ("dims.", "train.", "parallel.expert.capacity")


def toolkit(build):
    """Variables that name a CUDA toolkit whose ptxas assembles nothing, a third of the time of a
    test: the recorder runs no machine code, and others ask ptxas each day (test_cuda_artifacts)."""
    home = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "nvvm" / "libdevice").mkdir(parents=True)
    (home / "bin").mkdir()
    found = re.search(r"^CLEAVE_LIBDEVICE:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    (home / "nvvm" / "libdevice" / "libdevice.10.bc").symlink_to(found[1])
    ptxas = home / "bin" / "ptxas"
    ptxas.write_text('#!/bin/sh\nwhile [ "$#" -gt 1 ]; do [ "$1" = -o ] && echo none > "$2"; shift; done\n')
    ptxas.chmod(0o755)
    return {"CUDA_HOME": str(home)}


def write_samples(cleave, model, dims, path):
    """Samples of all inputs of a model with the dimensions `dims` (flags): tokens that every
    vocabulary of the matrix has. They are in order, so that they may be numbers of documents."""
    import numpy as np
    command = [str(c) for c in (cleave, "import", *model, *dims, "--summary")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    inputs = re.findall(r"^  (\S+) +i64\[\d+, (\d+)\]  (input|tokens)$", said, re.M)
    draw = np.random.default_rng(1)
    arrays = {name: np.sort(draw.integers(0, 5, (200, int(length))))
              for name, length, _ in inputs}
    arrays["labels"] = draw.integers(0, 5, [(200, int(length)) for _, length, what in inputs
                                            if what == "tokens"][0])
    np.savez(path, **arrays)
    return path


def train(cleave, model, flags, data, recorder=None, variables=None):
    """Exit code, loss and norm of the gradients of each step, and what was said last; `variables`
    are further ones of the environment."""
    command = [cleave, "train", *model, *flags, "--steps", STEPS, "--data", data,
               "--eval-every", 0, "--eval-samples", 1]
    environment = os.environ | (variables or {})
    if recorder:
        command += ["--set", "target.kind=cuda", "--set", 'target.architectures=["sm_90"]']
        environment |= {"LD_LIBRARY_PATH": str(recorder), "CLEAVE_HOST_KERNELS": "1",
                        "CLEAVE_RECORDER_DEVICES": "16"}
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        done = subprocess.run([str(c) for c in (*command, "--out", place / "run", "--cache",
                                                place / "cache")],
                              capture_output=True, text=True, env=environment)
    found = [line for line in done.stderr.splitlines() if line.startswith("recorder: ")]
    if found:
        return done.returncode or 99, [], found[0]
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    steps = [(float(loss), float(norm)) for loss, norm in STEP.findall(done.stdout)]
    return done.returncode, steps, (lines or [""])[-1]


def near(steps, want):
    return len(steps) == STEPS and all(
        abs(loss - other) <= TOLERANCE and abs(norm - of_other) <= OF_NORMS * of_other
        for (loss, norm), (other, of_other) in zip(steps, want))


def words(steps):
    return " ".join(f"{loss:.4f} ({norm:.3g})" for loss, norm in steps)


class Recorded:
    """The cells of the matrix: a partitioned model on the recorder against one rank. With `sparing`
    ptxas assembles every eighth of them alone."""

    def __init__(self, cleave, folder, sparing=False):
        self.cleave, self.recorder = cleave, cleave.parent.parent / "recorder"
        self.spared = toolkit(cleave.parent.parent) if sparing else {}
        self.assembled = []
        self.folder, self.data, self.references = folder, {}, {}

    @staticmethod
    def of_the_model(flags, keys=OF_THE_MODEL):
        """The flags that an unpartitioned program has, too."""
        return [word for key in flags if key.startswith(keys) for word in ("--set", key)]

    def samples(self, model, flags):
        """The samples of a model whose dimensions are those of `flags`."""
        dims = self.of_the_model(flags, ("dims.",))
        path = self.data.get((*model, *dims))
        if not path:
            path = write_samples(self.cleave, model, dims,
                                 self.folder / f"samples-{len(self.data)}.npz")
            self.data[(*model, *dims)] = path
        return path

    def prepare(self, cells):
        """Trains on one rank what the cells of a table are compared with. Models of another table
        may have the same names."""
        self.data, self.references = {}, {}
        self.assembled = [(cell.model, cell.flags) for cell in cells[::8]]
        for _, _, _, model, flags in cells:
            samples, own = self.samples(model, flags), self.of_the_model(flags)
            if (*model, *own) not in self.references:
                self.references[(*model, *own)] = train(self.cleave, model, own, samples)

    def check(self, model, flags):
        """Exit code and what to say: 0 where losses and norms are those of one rank."""
        code, want, said = self.references[(*model, *self.of_the_model(flags))]
        if code or len(want) != STEPS:
            return code or 1, f"one rank: {said}"
        code, steps, said = train(self.cleave, model, flags, self.samples(model, flags), self.recorder,
                                  {} if (model, flags) in self.assembled else self.spared)
        if code:
            return code, said
        if near(steps, want):
            return 0, f"losses and norms {words(steps)}"
        return 1, f"losses and norms {words(steps)}, expected {words(want)}"
