"""Models that need too many resources or are malformed, ten of each kind."""

import numpy as np

import onnxbuild
import onnxwire
from onnxwire import Message

LARGE = [2 ** 31, 2 ** 33, 2 ** 36, 2 ** 40, 2 ** 44, 2 ** 48, 2 ** 52, 2 ** 58, 2 ** 62, 2 ** 63 - 1]


def finished(b, value, shape=None):
    b.op("Identity", value, out="y")
    b.output("y", np.float32, shape or [4])
    return b.model(18)


def start():
    b = onnxbuild.Builder()
    return b, b.input("x", np.float32, [4, 4])


def call(op, inputs, outputs, domain="", **attributes):
    node = onnxwire.Node()
    for name in inputs:
        node.add(1, name)
    for name in outputs:
        node.add(2, name)
    node.add(4, op).add(7, domain)
    for name, value in attributes.items():
        node.add(5, onnxbuild.attribute(name, value))
    return node


def without_outputs(i):
    b, x = start()
    op = ["Add", "Relu", "MatMul", "Split", "Concat", "Constant", "If", "Dropout", "TopK", "own"][i]
    b.nodes.append(call(op, [x] * (i % 3), [], "own" if op == "own" else ""))
    return finished(b, x, [4, 4])


def negative_splits(i):
    b, x = start()
    sizes = [[-1, 5], [5, -1], [-4, 8], [0, -4], [2, 3], [4], [1, 1], [2 ** 62, 2 ** 62], [-2 ** 63, 4], [2, 2, 0, 1]][i]
    parts = b.op("Split", x, b.constant(sizes), outputs=2, axis=i % 2)
    return finished(b, parts[0], [4, 4])


def repeated_letters(i):
    b, x = start()
    equation = ["ij->ii", "...i->iii", "ij->ijj", "ii->ii...", "ij,jk->ikk", "->", "ij", "ij->k", "ij,->ijk", "i j - > i i"][i]
    return finished(b, b.op("Einsum", *[x] * (equation.split("->")[0].count(",") + 1), equation=equation))


def nested(i):
    """Nested subgraphs."""
    b, x = start()
    inner = onnxwire.Graph().add(1, call("Identity", [x], ["o"])).add(2, "g").add(12, onnxbuild.value_info("o", np.float32, [4, 4])).bytes()
    for level in range([3, 20, 30, 32, 33, 40, 50, 60, 99, 400][i]):
        node = call(["If", "Loop", "Scan"][level % 3], ["c"], ["o"])
        node.add(5, onnxwire.Attribute().add(1, "then_branch").add(6, inner).add(20, 5))
        inner = onnxwire.Graph().add(1, node).add(2, "g").add(12, onnxbuild.value_info("o", np.float32, [4, 4])).bytes()
    node = call("If", ["c"], ["z"])
    for name in ("then_branch", "else_branch"):
        node.add(5, onnxwire.Attribute().add(1, name).add(6, inner).add(20, 5))
    b.nodes.append(node)
    return finished(b, "z", [4, 4])


def large_values(i):
    """A constant with more elements than fit into memory, whose values are needed at import."""
    b, x = start()
    shape = b.constant([LARGE[i] >> 20, 2 ** 20] if i % 2 else [LARGE[i]])
    fill = b.op("ConstantOfShape", shape, value=np.ones(1, np.int64))
    op = ["NonZero", "ReduceSum", "CumSum", "ArgMax", "TopK", "Unique", "Range", "OneHot", "NonZero", "ReduceMax"][i]
    more = {"CumSum": [b.constant(0)], "TopK": [b.constant([2 ** 40])], "Range": [b.constant(LARGE[i]), b.constant(1)],
            "OneHot": [b.constant(LARGE[i]), b.constant([0, 1])]}.get(op, [])
    first = b.constant(0) if op == "Range" else fill
    seen = b.op(op, first, *more, outputs=2 if op == "TopK" else 1)
    seen = seen[0] if op == "TopK" else seen
    total = b.op("Cast", b.op("ReduceSum", seen, keepdims=0), to=1)
    return finished(b, b.op("Add", x, total), [4, 4])


def calls_of_calls(i):
    """Functions that call functions several times; one that is called as often but is empty; one that calls itself."""
    b, x = start()
    ways, levels = [(2, 30), (3, 20), (10, 20), (10, 60), (64, 10), (1, 63), (1, 70), (2, 18), (10, 20), (2, 5)][i]
    b.nodes.append(call(f"f{levels - 1}", [x], ["z"], "own"))
    model = finished(b, "z", [4, 4]).add(8, Message().add(1, "own").add(2, 1))
    for level in range(levels):
        function = onnxwire.Function().add(1, f"f{level}").add(4, "a").add(5, "c")
        if i == 8 and level == 0:
            nodes = []  # an empty function
        elif level == 0:
            nodes = [call("Relu", ["a"], ["c"])]
        else:
            below = level if i == 9 else level - 1
            nodes = [call(f"f{below}", ["a"], ["c" if way == ways - 1 else f"v{way}"], "own") for way in range(ways)]
        for node in nodes:
            function.add(7, node)
        model.add(25, function.add(9, Message().add(1, "").add(2, 18)).add(9, Message().add(1, "own").add(2, 1)).add(10, "own"))
    return model


def doubled(i):
    """Tensors that are doubled repeatedly."""
    b, x = start()
    op = ["Concat", "Tile", "Expand", "Add", "Pad", "Gather", "Where", "Concat", "Tile", "Concat"][i]
    value, size = b.constant([1, 2] if i < 7 else [1.5, 2.5], np.int64 if i < 7 else np.float32), 2
    for _ in range(40):
        size *= 2
        if op == "Concat":
            value = b.op("Concat", value, value, axis=0)
        elif op == "Tile":
            value = b.op("Tile", value, b.constant([2]))
        elif op == "Expand":
            value = b.op("Reshape", b.op("Expand", b.op("Unsqueeze", value, b.constant([0])), b.constant([2, size // 2])),
                         b.constant([-1]))
        elif op == "Add":
            value = b.op("Reshape", b.op("Add", b.op("Unsqueeze", value, b.constant([1])), b.constant([0, 1])), b.constant([-1]))
        elif op == "Pad":
            value = b.op("Pad", value, b.constant([0, size // 2]))
        elif op == "Gather":
            value = b.op("Gather", value, b.op("Concat", value, value, axis=0), axis=0)
        else:
            wide = b.op("Concat", value, value, axis=0)
            value = b.op("Where", b.op("Equal", wide, b.constant(1)), wide, b.constant(2))
    total = b.op("Cast", b.op("ReduceMax", value, keepdims=0), to=1)
    return finished(b, b.op("Add", x, total), [4, 4])


def many_copies(i):
    b, x = start()
    repeats = b.constant([LARGE[i], 1] if i % 2 else [1, LARGE[i]])
    kind = i % 3
    value = (b.op("Tile", x, repeats) if kind == 0 else b.op("Expand", b.op("Slice", x, b.constant([0]), b.constant([1]),
                                                                               b.constant([i % 2 == 0])), repeats)
             if kind == 1 else b.op("Pad", x, b.constant([0, 0, LARGE[i], 0])))
    return finished(b, b.op("ReduceSum", value, keepdims=0), [])


def long_work(i):
    """The largest number of elements that import evaluates, sorted or summed repeatedly."""
    b, x = start()
    value = b.op("Range", b.constant(0), b.constant(2 ** 24 - i), b.constant(1))
    value = b.op("Mod", b.op("Mul", value, b.constant(7919)), b.constant(2 ** 24 - 3))
    for turn in range([1, 1, 2, 4, 8, 16, 40, 1, 3, 100][i]):
        op = ["TopK", "CumSum", "Neg", "ArgMax", "Not"][(i + turn) % 5]
        if op == "TopK":
            value = b.op("TopK", value, b.constant([2 ** 20]), outputs=2)[0]
        elif op == "CumSum":
            value = b.op("CumSum", value, b.constant(0))
        elif op == "ArgMax":
            value = b.op("Add", value, b.op("ArgMax", value, axis=0))
        else:
            value = b.op("Sub", b.constant(turn), value)
    total = b.op("Cast", b.op("ReduceMax", value, keepdims=0), to=1)
    return finished(b, b.op("Add", x, total), [4, 4])


def strange_names(i):
    b = onnxbuild.Builder()
    name = ["\x1b[2J", "\n", "\r\ncleave: error: x", "\x00", "a" * 100_000, "\u202e", "", "\x7f", "../../x", "'\"`$(x)"][i]
    b.input(name or "x", np.float32, [4])
    b.parameter(f"w{name}", np.ones(4, np.float32))
    b.nodes.append(call("Mul" if i != 4 else "Mist", [name or "x", f"w{name}"], [f"y{name}"]).add(3, name))
    b.output(f"y{name}", np.float32, [4])
    return b.model(18)


KINDS = [without_outputs, negative_splits, repeated_letters, nested, large_values, calls_of_calls, doubled, many_copies,
         long_work, strange_names]


def names():
    """All (kind, index) pairs."""
    return [(kind, i) for i in range(10) for kind in KINDS]


def content(kind, i):
    return kind(i).bytes()
