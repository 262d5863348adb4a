"""The job that the endurance scripts disturb: a perceptron on two ranks, with optimizer state split over them."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import support  # finds the others
from support import CLEAVE, RUN

import left_out

SETS = ["data.labels=y", "data.validation=0", "train.optimizer=adamw", "train.keep=0", "mesh.data=2",
        "parallel.data.zero=2"]


class Job:
    def __init__(self, folder, steps, save_every, *sets):
        self.folder, self.steps, self.save_every = folder, steps, save_every
        self.sets = [*SETS, f"train.steps={steps}", *sets]
        x, y = left_out.clean(16)
        np.savez(folder / "data.npz", x=x, y=y)
        support.write_safetensors(folder / "w.safetensors", left_out.weights())
        (folder / "m.mlir").write_text(left_out.model(left_out.BATCH))
        self.program = folder / "program"
        support.succeed(CLEAVE, "compile", folder / "m.mlir", "-o", self.program, *self.flags())

    def flags(self):
        return [word for value in self.sets for word in ("--set", value)]

    def train(self, out, *more):
        """The compiled program, as a supervisor starts it."""
        return list(map(str, [RUN, self.program, "train", "--data", self.folder / "data.npz", "--weights",
                              self.folder / "w.safetensors", "--out", out, "--save-every", self.save_every,
                              "--resume", "auto", *more]))

    def train_model(self, out, cache, *more):
        """The model, which is compiled first unless the cache has it."""
        return list(map(str, [CLEAVE, "train", self.folder / "m.mlir", "--data", self.folder / "data.npz", "--weights",
                              self.folder / "w.safetensors", "--out", out, "--save-every", self.save_every,
                              "--resume", "auto", "--cache", cache, *self.flags(), *more]))

    def result(self, out):
        """All bytes that a finished run leaves, but times."""
        log = [{key: line[key] for key in ("step", "loss", "lr", "grad_norm")} for line in support.read_log(out)]
        files = {}
        for path in sorted(out.glob("checkpoint-*/*")):
            content = path.read_bytes()
            if path.name == "state.json":
                state = json.loads(content)
                for key in ("config", "digest", "version_of_cleave"):
                    state.pop(key, None)
                content = json.dumps(state, sort_keys=True).encode()
            files[f"{path.parent.name}/{path.name}"] = content
        return log, files


def start(command, log):
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=support.environment(),
                            start_new_session=True)


def leftovers(*folders):
    """What stands in these folders under a temporary name of a process of this machine."""
    host = socket.gethostname()
    return [str(path) for folder in folders if folder.exists() for path in folder.rglob(".*")
            if f"-{host}-" in path.name or path.name.endswith(".lock")]
