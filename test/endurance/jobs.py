"""The job that the endurance scripts disturb: a perceptron on two ranks with sharded optimizer state."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import support  # extends sys.path
from support import CLEAVE, RUN

import left_out

SETS = ["data.labels=y", "data.validation=0", "train.optimizer=adamw", "train.keep=0", "mesh.data=2",
        "parallel.data.zero=2"]


class Job:
    def __init__(self, folder, steps, save_every, *sets):
        self.folder, self.steps, self.save_every = folder, steps, save_every
        self.sets = [*SETS, f"train.steps={steps}", *sets]
        self.write()
        self.program = folder / "program"
        support.succeed(CLEAVE, "compile", folder / "m.mlir", "-o", self.program, *self.flags())

    def write(self):
        x, y = left_out.clean(16)
        np.savez(self.folder / "data.npz", x=x, y=y)
        support.write_safetensors(self.folder / "w.safetensors", left_out.weights())
        (self.folder / "m.mlir").write_text(left_out.model(left_out.BATCH))

    def flags(self):
        return [word for value in self.sets for word in ("--set", value)]

    def train(self, out, *more):
        """The command that starts the compiled program."""
        return list(map(str, [RUN, self.program, "train", "--data", self.folder / "data.npz", "--weights",
                              self.folder / "w.safetensors", "--out", out, "--save-every", self.save_every,
                              "--resume", "auto", *more]))

    def train_model(self, out, cache, *more):
        """The command that trains the model, compiling it first unless it is cached."""
        return list(map(str, [CLEAVE, "train", self.folder / "m.mlir", "--data", self.folder / "data.npz", "--weights",
                              self.folder / "w.safetensors", "--out", out, "--save-every", self.save_every,
                              "--resume", "auto", "--cache", cache, *self.flags(), *more]))

    def result(self, out):
        """All bytes that a finished run writes, except times."""
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


class LargeJob(Job):
    """A model with 64 MB of weights, so that saving takes much of the time."""

    def write(self):
        width, layers = 2000, 4
        rng = np.random.default_rng(0)
        np.savez(self.folder / "data.npz", x=rng.standard_normal((64, width)).astype(np.float32),
                 y=rng.integers(0, width, 64).astype(np.int32))
        weights = {f"w{i}": rng.standard_normal((width, width)).astype(np.float32) / width for i in range(layers)}
        support.write_safetensors(self.folder / "w.safetensors", weights)
        size = f"{width}x{width}xf32"
        arguments = ", ".join(f'%w{i}: tensor<{size}> {{nn.name = "w{i}", nn.role = #nn.role<parameter>}}' for i in range(layers))
        body = "\n".join(f'  %h{i + 1} = nn.einsum "bi,ij->bj" %h{i}, %w{i} : tensor<8x{width}xf32>, tensor<{size}> -> '
                         f"tensor<8x{width}xf32>" for i in range(layers))
        (self.folder / "m.mlir").write_text(f"""
func.func @forward(%h0: tensor<8x{width}xf32> {{nn.name = "x", nn.role = #nn.role<input>}}, {arguments})
    -> (tensor<8x{width}xf32> {{nn.name = "logits", nn.role = #nn.role<output>}}) {{
{body}
  return %h{layers} : tensor<8x{width}xf32>
}}
""")


def start(command, log):
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=support.environment(),
                            start_new_session=True)


def leftovers(*folders):
    """Files in these folders with temporary names of processes of this machine."""
    host = socket.gethostname()
    return [str(path) for folder in folders if folder.exists() for path in folder.rglob(".*")
            if f"-{host}-" in path.name or path.name.endswith(".lock")]
