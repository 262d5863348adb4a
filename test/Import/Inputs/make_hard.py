#!/usr/bin/python3
"""Writes small ONNX files that could exhaust time or memory, or crash: make_hard.py FOLDER."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "lib"))
import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402
from onnxwire import Function, Message, Node  # noqa: E402

F32, I64 = np.float32, np.int64


def finish(b, y, dtype=F32):
    b.op("Identity", y, out="y")
    b.output("y", dtype, [])
    return b.model(18)


def filled(b, *shape):
    return b.op("ConstantOfShape", b.constant(list(shape)))


def tile():
    """A tensor of 2 * (2^63 - 1) elements."""
    b = onnxbuild.Builder()
    return finish(b, b.op("Tile", b.input("x", F32, [2]), b.constant([2 ** 63 - 1])))


def expand():
    """A tensor of 2^60 elements, which no file can hold."""
    b = onnxbuild.Builder()
    return finish(b, b.op("Expand", b.input("x", F32, [1]), b.constant([2 ** 60])))


def reduction():
    b = onnxbuild.Builder()
    return finish(b, b.op("ReduceSum", filled(b, 2 ** 40), b.constant([0])))


def places():
    """The indices of all of 2^40 elements."""
    b = onnxbuild.Builder()
    return finish(b, b.op("NonZero", filled(b, 2 ** 20, 2 ** 20)), I64)


def doubled():
    """A list that every node doubles in length."""
    b = onnxbuild.Builder()
    x = b.constant([1, 2])
    for _ in range(40):
        x = b.op("Concat", x, x, axis=0)
    return finish(b, x, I64)


def reshaped():
    """A shape with 2^40 entries."""
    b = onnxbuild.Builder()
    shape = b.op("Cast", filled(b, 2 ** 40), to=7)
    return finish(b, b.op("Reshape", b.input("x", F32, [2]), shape))


def negative():
    b = onnxbuild.Builder()
    parts = b.op("Split", b.input("x", F32, [4]), b.constant([-1, 5]), outputs=2)
    return finish(b, parts[1])


def diagonal():
    b = onnxbuild.Builder()
    return finish(b, b.op("Einsum", b.input("x", F32, [3]), equation="i->ii"))


def functions():
    """Twenty functions, each of which calls the next one ten times: 10^20 nodes."""
    b = onnxbuild.Builder()
    y = b.op("F0", b.input("x", F32, [2]), domain="local")
    model = finish(b, y)
    model.add(8, Message().add(1, "local").add(2, 1))
    for level in range(20):
        function = Function().add(1, f"F{level}").add(4, "x").add(5, "v10").add(10, "local")
        for call in range(10):
            node = Node().add(1, f"v{call}" if call else "x").add(2, f"v{call + 1}")
            node.add(4, f"F{level + 1}" if level < 19 else "Relu")
            function.add(7, node.add(7, "local") if level < 19 else node)
        for domain, version in (("", 18), ("local", 1)):
            function.add(9, Message().add(1, domain).add(2, version))
        model.add(25, function)
    return model


def outputless():
    b = onnxbuild.Builder()
    x = b.input("x", F32, [2])
    b.nodes.append(Node().add(1, x).add(3, "nothing").add(4, "Relu"))
    return finish(b, b.op("Relu", x))


def escapes():
    """Names with terminal escapes and a forged line."""
    b = onnxbuild.Builder()
    name = "w\x1b[31m\ncleave: error: forged\x9b1m"
    w = b.parameter(name, np.ones((4, 4), F32))
    b.op("MatMul", b.input("x\r\x7f", F32, [2, 4]), w, out="y")
    b.output("y", F32, [2, 4])
    return b.model(18)


def main():
    folder = pathlib.Path(sys.argv[1])
    for make in (tile, expand, reduction, places, doubled, reshaped, negative, diagonal, functions, outputless,
                 escapes):
        onnxwire.save(make(), folder / f"{make.__name__}.onnx")


if __name__ == "__main__":
    main()
