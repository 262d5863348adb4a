"""Helpers shared by the training tests: models on meshes, a text, runs and their logs."""

import json
import pathlib
import tempfile

import support
from support import BUILD, CLEAVE, MODELS, read_log

IS_BUILT = CLEAVE.exists() and (BUILD / "bin" / "cleave-run").exists()
LICENCES = pathlib.Path("/usr/share/common-licenses")

_shared = None


def shared():
    """A folder shared by all tests of this process, for compiled models and data."""
    global _shared
    if _shared is None:
        _shared = tempfile.TemporaryDirectory()
    return pathlib.Path(_shared.name)


def text():
    """A real text of 90 KB."""
    path = shared() / "text.txt"
    if not path.exists():
        files = [LICENCES / name for name in ("Apache-2.0", "GPL-3", "LGPL-2.1", "Artistic")]
        path.write_bytes(b"".join(file.read_bytes() for file in files if file.exists())[:90000])
    return path


def generated(**sizes):
    """Generates a model with test/models/generate.py, with its configuration."""
    path = shared() / ("-".join(f"{k}{v}" for k, v in sizes.items()) + ".onnx")
    if not path.exists():
        flags = []
        for key, value in sizes.items():
            flags += ["--no-weights"] if key == "weights" else ["--" + key.replace("_", "-"), value]
        support.succeed(MODELS / "generate.py", path, *flags)
    return path


def small(family, **sizes):
    """A model of two layers of small dimensions, which no two or three ranks divide evenly: for
    what is the same in models of any size."""
    return generated(family=family, **{"layers": 2, "hidden": 36, "heads": 6, "kv_heads": 3,
                                       "intermediate": 50, "positions": 32, "batch": 8,
                                       "sequence": 16, **sizes})


def flags(model, mesh="", **keys):
    """Flags for a model (of test/models, or a file) on a mesh like "data=2,tensor=2"; keys have
    two underscores in place of each dot."""
    path = model if isinstance(model, pathlib.Path) else MODELS / f"{model}.onnx"
    sets = [f"mesh.{axis}" for axis in mesh.split(",") if axis]
    sets += [f"{key.replace('__', '.')}={value}" for key, value in keys.items()]
    return [path, "--config", path.with_suffix(".toml"),
            *(word for value in sets for word in ("--set", value))]


def explain(model, mesh="", **keys):
    return json.loads(support.succeed(CLEAVE, "explain", *flags(model, mesh, **keys), "--json"))


def command(out, model, mesh="", *more, **keys):
    cache = () if "--cache" in more else ("--cache", shared() / "cache")
    return [CLEAVE, "train", *flags(model, mesh, **keys), "--data", text(), "--out", out,
            *cache, "--eval-every", 0, *more]


def train(out, model, mesh="", *more, **keys):
    """Trains, and returns the lines of the log and the counters."""
    support.succeed(*command(out, model, mesh, *more, **keys))
    return read_log(out), json.loads((out / "counters.json").read_text())


def losses(out):
    return [line["loss"] for line in read_log(out)]
