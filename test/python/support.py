"""Paths and helpers that the Python tests share."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", ROOT / "build")).resolve()
CLEAVE, RUN = BUILD / "bin" / "cleave", BUILD / "bin" / "cleave-run"
MODELS = ROOT / "test" / "models"
NAMES = ["gpt2", "gpt2.ts17", "gpt2.dynamo18", "gpt2.dynamo23",
         "llama", "llama.ts17", "llama.dynamo18", "llama.dynamo23"]

for folder in (ROOT / "tools" / "lib", MODELS, ROOT / "test"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


# Meshes with which every command is tested.
MESHES = {
    "one rank": [],
    "data=2, tensor=2": ["--set", "mesh.data=2", "--set", "mesh.tensor=2",
                         "--set", "parallel.data.zero=1"],
}


# Whether all cases run, however long it takes (tools/check --all).
ALL = "CLEAVE_TEST_ALL" in os.environ


def some(cases, count):
    """The cases that run by default: `count` of them, including the first, the last and others
    spaced evenly between; all cases for tools/check --all. Cases that must always run are
    placed at the ends."""
    cases = list(cases)
    if ALL or count >= len(cases):
        return cases
    return [cases[round(i * (len(cases) - 1) / max(count - 1, 1))] for i in range(count)]


class Turns:
    """Makes checks of one kind take turns: by default every `period`-th is compiled and the
    others are interpreted, in a fifth of the time; tools/check --all compiles all."""

    def __init__(self, period):
        self.period, self.count = period, 0

    def flags(self):
        self.count += 1
        return [] if ALL or self.count % self.period == 0 else ["--interpret"]


def environment():
    """The environment without a launcher's variables for ranks."""
    launcher = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    return {k: v for k, v in os.environ.items() if k not in launcher}


def run(*command, cwd=None, env=None, timeout=900):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd,
                          timeout=timeout, env=environment() | (env or {}))


def model_flags(name):
    """The command-line arguments MODEL and its configuration."""
    return [MODELS / f"{name}.onnx", "--config", MODELS / f"{name}.toml"]


def succeed(*command, **options):
    """The output of a command; raises an error if the command fails."""
    done = run(*command, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                             f"{done.stdout}{done.stderr}")
    return done.stdout


def write_old_state(path, state):
    """Writes a state.json of version 1, which has no digest of itself."""
    pathlib.Path(path).write_text(json.dumps({key: value for key, value in state.items() if key != "digest"} |
                                             {"version": 1}))


def generate(model, **sizes):
    """Generates a model of these sizes; returns the arguments that name it."""
    flags = [word for key, value in sizes.items()
             for word in (f"--{key.replace('_', '-')}", *([] if value is True else [value]))]
    succeed(sys.executable, MODELS / "generate.py", model, *flags)
    return [model, "--config", model.with_suffix(".toml")]


def read_log(out, events=False):
    """The log's lines for steps, or its lines for events."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if ("event" in line) == events]


def read_safetensors(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
    arrays = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(raw[8 + size:][begin:end], types[entry["dtype"]]).reshape(
            entry["shape"])
    return arrays


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        kind = {"f4": "F32", "i8": "I64", "f8": "F64"}[array.dtype.str[1:]]
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def initializers(path):
    """The floating-point initializers of a model, by name."""
    import onnxwire
    return {t.name: t.array() for t in onnxwire.load(path).graph.initializers
            if t.data_type == 1}


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def meaning(model):
    """A hash per graph output that depends on operators, attributes, weights and their
    connections, but not on names or on the order of nodes."""
    graph = model.graph
    values = {"": ""}
    for i, value in enumerate(graph.inputs):
        values[value.name] = digest("input", i, value.shape)
    for tensor in graph.initializers:
        content = [bytes(v) for v in tensor.all(9)] or sorted(tensor.external.items())
        values[tensor.name] = digest("weight", tensor.dims, tensor.data_type, content)

    def attributes(node):
        # Subgraphs refer to names, and these models have none.
        assert not node.subgraphs
        return sorted(a.bytes() for a in node.attributes)

    for node in graph.nodes:
        inputs = [values[name] for name in node.inputs]  # a KeyError: not topological
        for i, name in enumerate(node.outputs):
            values[name] = digest(node.op_type, node.domain, attributes(node), inputs, i)
    return [values[value.name] for value in graph.outputs]
