#!/usr/bin/python3
"""Writes indices.onnx into a folder: tables read at indices of seven kinds."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "lib"))
import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

b = onnxbuild.Builder()
x = b.input("x", np.int64, [2, 3])
table = b.parameter("table", np.arange(20, dtype=np.float32).reshape(5, 4))
indices = {
    "given": x,
    "moved": b.op("Slice", x, b.constant([1]), b.constant([3]), b.constant([1])),
    "computed": b.op("Add", x, b.constant(1)),
    "clipped": b.op("Clip", b.op("Add", x, b.constant(1)), b.constant(0), b.constant(4)),
    # Bounds computed naively would be wrong for both: -(-2^63) wraps to itself, and a
    # cast drops bits.
    "negated": b.op("Min", b.op("Sub", b.constant(0), b.op("Min", x, b.constant(5))), b.constant(3)),
    "cast": b.op("Cast", b.op("Min", b.op("Cast", b.op("Max", x, b.constant(0)), to=6),
                              b.constant(4, np.int32)), to=7),
    "from_the_end": b.op("Clip", b.op("Neg", x), b.constant(-5), b.constant(-1)),
}
for name, index in indices.items():
    b.op("Gather", table, index, out=name)
    b.output(name, np.float32, [2, 2 if name == "moved" else 3, 4])
onnxwire.save(b.model(18), pathlib.Path(sys.argv[1]) / "indices.onnx")
