#!/usr/bin/python3
"""Sequences of tensors: writes models and compares `cleave infer` with NumPy.

    sequences.py FOLDER           the valid model
    sequences.py FOLDER refused   one model for each unsupported use
"""

import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "lib"))
import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

F32 = np.float32
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
X = np.sin(np.arange(42, dtype=F32)).reshape(2, 7, 3)


def start():
    b = onnxbuild.Builder()
    return b, b.input("x", F32, [2, 7, 3])


def works():
    b, x = start()
    right = {}

    def out(name, value, node):
        b.output(name, F32, value.shape)
        right[name] = value
        return node

    # As torch's exporter writes x.split([3, 4], dim=1), x.split(3, dim=1), unbind.
    listed = b.op("SplitToSequence", x, b.constant([3, 4]), axis=1)
    out("first", X[:, :3], b.op("SequenceAt", listed, b.constant(0), out="first"))
    out("last", X[:, 3:], b.op("SequenceAt", listed, b.constant(-1), out="last"))
    chunks = b.op("SplitToSequence", x, b.constant(3), axis=-2)
    out("rest", X[:, 6:], b.op("SequenceAt", chunks, b.constant(2), out="rest"))
    single = b.op("SplitToSequence", x, axis=2, keepdims=0)
    out("column", X[:, :, 1], b.op("SequenceAt", single, b.constant(1), out="column"))
    kept = b.op("SplitToSequence", x, axis=2)
    out("kept", X[:, :, 2:], b.op("SequenceAt", kept, b.constant(2), out="kept"))
    out("whole", X, b.op("ConcatFromSequence", chunks, axis=1, out="whole"))
    out("stacked", np.stack([X[:, :, i] for i in range(3)]),
        b.op("ConcatFromSequence", b.op("Identity", single), axis=0, new_axis=1, out="stacked"))
    made = b.op("SequenceConstruct", x, b.op("Neg", x))
    length = b.op("Cast", b.op("SequenceLength", made), to=1)
    out("times", -2 * X, b.op("Mul", b.op("SequenceAt", made, b.constant(1)), length, out="times"))
    onnxwire.save(b.model(18), folder / "sequences.onnx")
    np.savez(folder / "in.npz", x=X)
    subprocess.run(["cleave", "infer", folder / "sequences.onnx", "--inputs", folder / "in.npz",
                    "--outputs", folder / "out.npz"], check=True, stdout=subprocess.DEVNULL)
    found = np.load(folder / "out.npz")
    assert set(found.files) == set(right)
    for name, value in right.items():
        np.testing.assert_array_equal(found[name], value, name)


def refused():
    b, x = start()
    parts = b.op("SplitToSequence", x, b.constant([3, 4]), axis=1)
    b.op("SplitToSequence", x, b.constant([3, 3]), axis=1, out="sizes")
    b.op("SequenceAt", "sizes", b.constant(0), out="y0")
    b.op("SequenceAt", parts, b.constant(2), out="y1")
    b.op("Relu", parts, out="y2")
    b.op("SequenceAt", x, b.constant(0), out="y3")
    b.op("ConcatFromSequence", parts, axis=0, out="y4")
    b.op("Identity", parts, out="y5")
    for i in range(6):
        b.output(f"y{i}", F32, [])
    onnxwire.save(b.model(18), folder / "refused.onnx")


refused() if sys.argv[2:] == ["refused"] else works()
