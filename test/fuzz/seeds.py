#!/usr/bin/env python3
"""Writes the fuzzers' seed corpora into FOLDER/<fuzzer>/: small files of every kind that
cleave reads, made by cleave itself, by NumPy and by the generator of the folding test.

usage: seeds.py FOLDER"""

import pathlib
import shutil
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import support  # extends sys.path
from support import CLEAVE

import folding
import left_out
import onnxwire

GRAPHS = 24  # random graphs
LARGEST = 100_000  # bytes of a model of test/models


def arrays(folder, work):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3)).astype(np.float32), np.arange(5)
    np.save(folder / "f32.npy", a)
    np.save(folder / "fortran.npy", np.asfortranarray(a))
    np.save(folder / "i64.npy", b)
    np.save(folder / "bool.npy", b > 2)
    np.savez(folder / "stored.npz", a=a, b=b)
    np.savez_compressed(folder / "deflated.npz", a=np.zeros((30, 30)), b=b)
    support.write_safetensors(folder / "two.safetensors", {"a": a, "b": b})


def programs(folder, work):
    """Programs of one and of several ranks, and a checkpoint."""
    support.write_safetensors(work / "w.safetensors", left_out.weights())
    x, y = left_out.clean(4)
    np.savez(work / "data.npz", x=x, y=y)
    (work / "m.mlir").write_text(left_out.model(left_out.BATCH))
    sets = ["data.labels=y", "data.validation=0", "train.optimizer=sgd"]
    for name, more in {"one": [], "zero": ["mesh.data=2", "parallel.data.zero=2", "train.optimizer=adamw"],
                       "tensor": ["mesh.tensor=2"]}.items():
        flags = [word for s in [*sets, *more] for word in ("--set", s)]
        support.succeed(CLEAVE, "compile", work / "m.mlir", "-o", work / name, *flags)
        shutil.copy(work / name / "program.bin", folder / "program" / name)
        manifest = (work / name / "manifest.json").read_bytes()
        (folder / "json" / name).write_bytes(b"1" + manifest)
    support.succeed(CLEAVE, "train", work / "m.mlir", "--weights", work / "w.safetensors", "--data", work / "data.npz",
                    "--steps", "2", "--out", work / "run", *(word for s in sets for word in ("--set", s)),
                    "--cache", work / "cache")
    state = next((work / "run").glob("*2/state.json")).read_bytes()
    (folder / "json" / "state").write_bytes(b"2" + state)


def texts(folder, work):
    (folder / "config").write_text("1" + support.succeed(CLEAVE, "config", "--set", "mesh.data=2"))
    for path in sorted(support.MODELS.glob("*.toml")):
        (folder / path.name).write_text("1" + path.read_text())
    (folder / "cluster").write_text("""2[link.0]
bandwidth = 1e9
latency = 1e-6
""")
    for name in ("gpipe", "1f1b", "interleaved"):
        table = support.succeed(CLEAVE, "schedule", "--name", name, "--stages", "2", "--microbatches", "2",
                                *(["--chunks", "1"] if name == "interleaved" else []), "--csv", "-")
        (folder / name).write_text("3" + table)


def models(folder, work):
    for seed in range(GRAPHS):
        _, model = folding.generate(seed, 6)
        onnxwire.save(model, folder / f"random{seed}.onnx")
    for path in sorted(support.MODELS.glob("*.onnx")):
        if path.stat().st_size < LARGEST:
            shutil.copy(path, folder / path.name)


def main():
    folder = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        for name in ("arrays", "json", "program", "text", "onnx"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        work = pathlib.Path(work)
        arrays(folder / "arrays", work)
        programs(folder, work)
        texts(folder / "text", work)
        models(folder / "onnx", work)


if __name__ == "__main__":
    main()
