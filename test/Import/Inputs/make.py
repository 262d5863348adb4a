#!/usr/bin/python3
"""Writes small ONNX files for the importer's tests: make.py KIND FOLDER."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "lib"))
import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402
from onnxwire import Attribute, Function, Message, Node  # noqa: E402

F32, I64 = np.float32, np.int64


def ramp(*shape):
    return np.arange(np.prod(shape), dtype=F32).reshape(shape)


def unsupported():
    """Five nodes that cannot be imported, of five kinds, among some that can."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, [2, 3])
    b.op("Det", x, out="d")                                       # no such operator
    b.op("FlashThing", x, out="f", domain="com.example")          # another domain
    b.op("Gelu", x, out="g")                                      # not in this opset
    b.op("Pad", x, b.constant([0, 1, 0, 1]), out="p", mode="reflect")
    shape = b.op("NonZero", x, out="z")                           # depends on data
    y = b.op("Relu", x, out="r")
    s = b.op("Add", y, x, out="s")
    for name in ("d", "f", "g", "p", "z", "s"):
        b.output(name, F32, [])
    b.op("Cosh", x, out="unused")                                 # needed by no output
    return b.model(18)


def windows():
    """Convolutions, pools and top-k, as exporters write them."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, [1, 4, 9, 8])
    w, bias = b.parameter("w", np.sin(ramp(6, 2, 3, 2))), b.parameter("b", ramp(6))
    y = b.op("Conv", x, w, bias, group=2, strides=[2, 1], pads=[1, 0, 1, 1])
    b.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, out="max")
    b.op("AveragePool", y, kernel_shape=[3, 3], auto_pad="SAME_UPPER", out="average")
    b.op("GlobalAveragePool", y, out="global")
    b.op("TopK", x, b.constant([2]), axis=1, largest=0, out="least")
    for name in ("max", "average", "global", "least"):
        b.output(name, F32, [])
    return b.model(18)


def external(location, length=None, offset="0"):
    b = onnxbuild.Builder()
    x = b.input("x", F32, [2, 3])
    tensor = onnxwire.Tensor()
    for dim in (3, 4):
        tensor.add(1, dim)
    tensor.add(2, 1).add(8, "w")
    entries = {"location": location, "offset": offset}
    if length is not None:
        entries["length"] = str(length)
    for key, value in entries.items():
        tensor.add(13, Message().add(1, key).add(2, value))
    tensor.add(14, 1)
    b.initializers.append(tensor)
    b.op("MatMul", x, "w", out="y")
    b.output("y", F32, [2, 4])
    return b.model(18)


def functions():
    """scale(x; alpha = 2) = x * alpha calls through an outer function; the inner call's
    alpha refers to the outer function's attribute, or has its default."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, [2, 3])
    y = b.op("outer", x, domain="test", beta=5.0)
    z = b.op("outer", y, domain="test")
    b.op("Identity", z, out="y")
    b.output("y", F32, [2, 3])
    model = b.model(18)
    model.add(8, Message().add(1, "test").add(2, 1))

    def reference(name, to):
        return Attribute().add(1, name).add(21, to).add(20, 1)

    def function(name, nodes, attributes=(), defaults=()):
        f = Function().add(1, name).add(4, "a").add(5, "r")
        for item in attributes:
            f.add(6, item)
        for item in nodes:
            f.add(7, item)
        f.add(9, Message().add(1, "").add(2, 13)).add(9, Message().add(1, "test").add(2, 1))
        f.add(10, "test")
        for item in defaults:
            f.add(11, item)
        return f

    constant = Node().add(2, "c").add(3, "constant").add(4, "Constant")
    constant.add(5, reference("value_float", "alpha"))
    times = Node().add(1, "a").add(1, "c").add(2, "r").add(3, "times").add(4, "Mul")
    inner = function("inner", [constant, times], attributes=["alpha"])
    call = Node().add(1, "a").add(2, "r").add(3, "call").add(4, "inner").add(7, "test")
    call.add(5, reference("alpha", "beta"))
    outer = function("outer", [call], defaults=[onnxbuild.attribute("beta", 3.0)])
    return model.add(25, inner).add(25, outer)


def cycle():
    b = onnxbuild.Builder()
    x = b.input("x", F32, [2])
    b.op("Add", x, "b", out="a")
    b.op("Relu", "a", out="b")
    b.output("b", F32, [2])
    return b.model(18)


def dims():
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    bias = b.input("bias", F32, ["batch", "2*heads"])
    rows = b.op("Gather", b.parameter("table", ramp(7, 6)), ids)
    b.op("Add", rows, b.op("Unsqueeze", bias, b.constant([1])), out="y")
    b.output("y", F32, ["batch", "sequence", 6])
    return b.model(18)


def half():
    b = onnxbuild.Builder()
    x = b.input("x", F32, [2, 3])
    w = b.parameter("w", ramp(3, 4).astype(np.float16))
    b.op("MatMul", x, b.op("Cast", w, to=1), out="y")
    b.output("y", F32, [2, 4])
    return b.model(18)


def ties():
    """b is a transposed copy of a; c is another matrix; gains are equal."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    table = ramp(7, 4) * 0.25 + 1
    copy = b.parameter("b", np.ascontiguousarray(table.T))
    other = b.parameter("c", ramp(4, 4) - 3)
    x = b.op("Gather", b.parameter("a", table), ids)
    for name in ("g0", "g1"):
        x = b.op("Mul", x, b.parameter(name, np.ones(4, F32)))
    x = b.op("MatMul", x, other)
    b.op("MatMul", x, copy, out="y")
    b.output("y", F32, ["batch", "sequence", 7])
    return b.model(18)


def mask():
    """A key mask as an input, a causal mask, and attention, in the plainest form."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", "sequence", 6])
    m = b.input("m", I64, ["batch", "sequence"])
    n = b.op("Gather", b.op("Shape", x), b.constant([1]))
    size = b.op("Concat", n, n, axis=0)
    ones = b.op("ConstantOfShape", size, value=np.ones(1, F32))
    lower = b.op("Cast", b.op("Trilu", ones, upper=0), to=9)
    keys = b.op("Cast", b.op("Unsqueeze", m, b.constant([1])), to=9)
    both = b.op("And", lower, keys)
    bias = b.op("Where", both, b.constant(0.0, F32), b.constant(-np.inf, F32))
    scores = b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1]))
    masked = b.op("Add", b.op("Div", scores, b.constant(2.0, F32)), bias)
    b.op("MatMul", b.op("Softmax", masked, axis=-1), x, out="y")
    b.output("y", F32, ["batch", "sequence", 6])
    return b.model(18)


def buffers():
    """Attention with masks that the file stores as floats, like module buffers:
    causal as -inf and as ones compared with 0, blocks of -1e9; and with a bias
    and a matrix of zeros and ones that are parameters."""
    b = onnxbuild.Builder()
    size = 40
    x = b.input("x", F32, ["batch", "sequence", 6])
    n = b.op("Gather", b.op("Shape", x), b.constant([1]))
    ends = b.op("Concat", n, n, axis=0)

    def cut(name, array):
        whole = b.parameter(name, np.ascontiguousarray(array, F32))
        return b.op("Slice", whole, b.constant([0, 0]), ends, b.constant([0, 1]))

    def attend(x, scores):
        return b.op("MatMul", b.op("Softmax", scores, axis=-1), x)

    def scores(x):
        return b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1]))

    later = np.triu(np.ones((size, size)), 1)
    x = attend(x, b.op("Add", scores(x), cut("infinite", np.where(later, -np.inf, 0))))
    hidden = b.op("Equal", cut("ones", 1 - later), b.constant(0.0, F32))
    x = attend(x, b.op("Where", hidden, b.constant(-np.inf, F32), scores(x)))
    blocks = np.kron(np.eye(size // 4), np.ones((4, 4)))
    x = attend(x, b.op("Add", scores(x), cut("blocks", np.where(blocks, 0, -1e9))))
    x = attend(x, b.op("Add", scores(x), cut("learned", np.sin(ramp(size, size) ** 2))))
    b.op("MatMul", x, b.parameter("matrix", np.eye(6, dtype=F32)), out="y")
    b.output("y", F32, ["batch", "sequence", 6])
    return b.model(18)


def constants():
    """Position tables that modules hold as buffers, tables that are learned, and
    constants of which two have names of parameters."""
    b = onnxbuild.Builder()
    size, width, tokens = 40, 8, 9
    ids = b.input("ids", I64, ["batch", "sequence"])
    n = b.op("Gather", b.op("Shape", ids), b.constant([1]))
    at = b.op("Range", b.constant(0), b.op("Squeeze", n), b.constant(1))
    noise = np.sin(ramp(size, width) ** 2)
    angles = np.outer(np.arange(size), 0.5 ** np.arange(width // 2))
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    padded = waves.copy()
    padded[1] = 0

    def rows(name, array):
        return b.op("Gather", b.parameter(name, np.ascontiguousarray(array, F32)), at)

    x = b.op("Gather", b.parameter("embed", np.sin(ramp(tokens, width) ** 2).astype(F32)), ids)
    whole = b.parameter("p.sliced", waves[None].astype(F32))
    x = b.op("Add", x, b.op("Slice", whole, b.constant([0]), n, b.constant([1])))
    for name, array in (("p.gathered", waves), ("p.padded", padded),
                        ("p.noisy", waves + 0.02 * noise), ("p.ones", np.ones((size, width))),
                        ("p.zeros", np.zeros((size, width))), ("p.learned", noise)):
        x = b.op("Add", x, rows(name, array))
    x = b.op("Mul", x, b.parameter("h.0.scale", np.array(1.25, F32)))
    x = b.op("Mul", x, b.parameter("h.1.scale", np.array([0.5], F32)))
    x = b.op("Mul", x, b.parameter("val_7", np.array(2, F32)))
    x = b.op("MatMul", x, b.parameter("head", np.cos(ramp(width, tokens) ** 2)), out="y")
    b.output("y", F32, ["batch", "sequence", tokens])
    return b.model(18)


def gain():
    """Norms whose ones are expanded to the input's shape, and one whose gain is learned."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", "sequence", 4])
    ones = b.op("Expand", b.constant([1.0], F32), b.op("Shape", x))
    x = b.op("RMSNormalization", x, ones, axis=-1)
    x = b.op("LayerNormalization", x, ones, axis=-1)
    b.op("RMSNormalization", x, b.parameter("learned", ramp(4)), axis=-1, out="y")
    b.output("y", F32, ["batch", "sequence", 4])
    return b.model(23)


def rows():
    """GatherElements that reads rows, as torch.gather with an expanded index is
    exported: by positions, and by input data."""
    b = onnxbuild.Builder()
    at = b.input("at", I64, ["batch", "sequence"])
    n = b.op("Gather", b.op("Shape", at), b.constant([1]))
    batch = b.op("Gather", b.op("Shape", at), b.constant([0]))
    table = b.parameter("table", np.sin(ramp(1, 9, 6) ** 2))
    steps = b.op("Range", b.constant(0), b.op("Squeeze", n), b.constant(1))
    steps = b.op("Unsqueeze", b.op("Sub", b.constant(8), steps), b.constant([0, 2]))
    one, four = b.constant([1]), b.constant([4])
    index = b.op("Expand", steps, b.op("Concat", one, n, four, axis=0))
    b.op("GatherElements", table, index, axis=1, out="known")
    wide = b.op("Expand", table, b.op("Concat", batch, one, one, axis=0))
    index = b.op("Unsqueeze", at, b.constant([2]))
    index = b.op("Expand", index, b.op("Concat", batch, n, four, axis=0))
    b.op("GatherElements", wide, index, axis=1, out="data")
    b.output("known", F32, [1, "sequence", 4])
    b.output("data", F32, ["batch", "sequence", 4])
    return b.model(18)


def narrow():
    """Tokens of 32 bits, whose ids are cast before the lookup, and three tables of 8
    positions: one gathered, one sliced, one sliced by the model itself."""
    b = onnxbuild.Builder()
    ids = b.input("ids", np.int32, ["batch", "sequence"])
    n = b.op("Gather", b.op("Shape", ids), b.constant([1]))
    at = b.op("Range", b.constant(0), b.op("Squeeze", n), b.constant(1))
    x = b.op("Gather", b.parameter("embed", ramp(9, 4)), b.op("Cast", ids, to=7))
    b.op("Add", x, b.op("Gather", b.parameter("gathered", ramp(8, 4)), at), out="a")
    rows = b.op("Slice", b.parameter("sliced", ramp(8, 4)), b.constant([0]), n)
    b.op("Add", x, b.op("Unsqueeze", rows, b.constant([0])), out="b")
    start = b.op("Max", b.op("Sub", b.constant([8]), n), b.constant([0]))
    rows = b.op("Slice", b.parameter("lines", ramp(8, 4) / 4), start, b.constant([2**63 - 1]))
    b.op("Add", x, b.op("Unsqueeze", rows, b.constant([0])), out="c")
    for name in "abc":
        b.output(name, F32, ["batch", "sequence", 4])
    return b.model(18)


def both():
    """GatherElements whose data and index vary along one dimension."""
    b = onnxbuild.Builder()
    at = b.input("at", I64, [2, 6])
    b.op("GatherElements", b.parameter("table", ramp(9, 6)), at, axis=0, out="y")
    b.output("y", F32, [2, 6])
    return b.model(18)


def hidden():
    """A sliding window, given as a mask of hidden positions."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", "sequence", 6])
    count = b.op("Squeeze", b.op("Gather", b.op("Shape", x), b.constant([1])))
    at = b.op("Range", b.constant(0), count, b.constant(1))
    key, query = b.op("Unsqueeze", at, b.constant([0])), b.op("Unsqueeze", at, b.constant([1]))
    seen = b.op("And", b.op("LessOrEqual", key, query),
                b.op("Less", b.op("Sub", query, key), b.constant(3)))
    scores = b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1]))
    masked = b.op("Where", b.op("Not", seen), b.constant(-np.inf, F32), scores)
    b.op("MatMul", b.op("Softmax", masked, axis=-1), x, out="y")
    b.output("y", F32, ["batch", "sequence", 6])
    return b.model(18)


def bidirectional():
    """A language model whose attention has no mask."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    x = b.op("Gather", b.parameter("embed", np.sin(ramp(9, 6) ** 2)), ids)
    scores = b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1]))
    x = b.op("MatMul", b.op("Softmax", scores, axis=-1), x)
    b.op("MatMul", x, b.parameter("head", np.cos(ramp(6, 9) ** 2)), out="y")
    b.output("y", F32, ["batch", "sequence", 9])
    return b.model(18)


def pooled():
    """A text classifier: unmasked attention, one answer per text."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    x = b.op("Gather", b.parameter("embed", np.sin(ramp(9, 6) ** 2)), ids)
    scores = b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1]))
    x = b.op("MatMul", b.op("Softmax", scores, axis=-1), x)
    x = b.op("ReduceMean", x, b.constant([1]), keepdims=0)
    b.op("MatMul", x, b.parameter("head", np.cos(ramp(6, 3) ** 2)), out="y")
    b.output("y", F32, ["batch", 3])
    return b.model(18)


def routed(b, x, tokens=6, hidden=4, experts=3):
    """A router's scores, the top two experts of each token, and each expert's matrix."""
    scores = b.op("Softmax", b.op("MatMul", x, b.parameter("router", np.sin(ramp(hidden, experts) ** 2))), axis=-1)
    best, ids = b.op("TopK", scores, b.constant([2]), outputs=2, axis=-1)
    matrices = [b.parameter(f"expert.{e}", np.cos(ramp(hidden, hidden) * (e + 1))) for e in range(experts)]
    return best, ids, matrices


def frozen(kind):
    """Experts whose tokens were frozen by tracing a sample: added at fixed tokens, assigned to
    fixed ranges, read and masked by them; and a loop over the experts that the sample hit."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, [6, 4])
    best, ids, matrices = routed(b, x)
    y = b.constant(np.zeros((6, 4)), F32)
    for e, matrix in enumerate(matrices):
        if kind == "missing":
            if e != 1:
                hit = b.op("Cast", b.op("Equal", ids, b.constant(e)), to=1)
                weight = b.op("ReduceSum", b.op("Mul", best, hit), b.constant([1]), keepdims=1)
                y = b.op("Add", y, b.op("Mul", b.op("MatMul", x, matrix), weight))
        elif kind == "masked":
            hit = b.constant([[e % 2, (e + t) % 2] for t in range(6)], F32)
            weight = b.op("ReduceSum", b.op("Mul", best, hit), b.constant([1]), keepdims=1)
            y = b.op("Add", y, b.op("Mul", b.op("MatMul", x, matrix), weight))
        else:
            tokens = [2 * e, 2 * e + 1] if kind == "assigned" else [e, 5 - e]
            at = b.constant([[t] for t in tokens])
            slots = b.constant([[t, e % 2] for t in tokens])
            rows = b.op("MatMul", b.op("GatherND", x, at), matrix)
            rows = b.op("Mul", rows, b.op("Unsqueeze", b.op("GatherND", best, slots), b.constant([1])))
            y = b.op("ScatterND", y, at, rows, reduction="none" if kind == "assigned" else "add")
    b.op("Identity", y, out="y")
    b.output("y", F32, [6, 4])
    return b.model(18)


def fused():
    """com.microsoft.MoE with one error each, an unsupported operator, and a router that
    chooses more experts than there are."""
    b = onnxbuild.Builder()
    x, scores = b.input("x", F32, [6, 4]), b.input("scores", F32, [6, 3])
    first, second = b.parameter("first", ramp(3, 5, 4)), b.parameter("second", ramp(3, 4, 5))

    def moe(*inputs, **attributes):
        attributes = {"k": 2, "activation_type": "silu", **attributes}
        b.op("MoE", *inputs, domain="com.microsoft", **attributes)
        b.output(b.nodes[-1].text(2), F32, [6, 4])

    moe(x, scores, first, "", second, k=4)
    moe(x, scores, first, "", second, activation_type="swiglu")
    moe(x, scores, second, "", first)
    moe(x, b.op("Transpose", scores, perm=[1, 0]), first, "", second)
    moe(x, scores, first, second, second)
    moe(x, scores, first, "", second, use_sparse_mixer=1)
    b.op("QMoE", x, scores, first, out="q", domain="com.microsoft")
    b.op("TopK", scores, b.constant([4]), out="best")
    for name in ("q", "best"):
        b.output(name, F32, [6, 4])
    model = b.model(18)
    model.add(8, Message().add(1, "com.microsoft").add(2, 1))
    return model


def merged():
    """One vector is the gain of two products."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 4])
    gain = b.parameter("gain", ramp(4))
    for name in ("w0", "w1"):
        x = b.op("MatMul", b.op("Mul", x, gain), b.parameter(name, ramp(4, 4)))
    b.op("Add", x, b.parameter("bias", ramp(4)), out="y")
    b.output("y", F32, ["batch", 4])
    return b.model(18)


def held(b, name, array, kind="", folded=""):
    """An initializer with the metadata of PyTorch's exporter."""
    b.parameter(name, array)
    info = onnxbuild.value_info(name, F32, array.shape)
    key = "pkg.torch.export.graph_signature.InputSpec.kind"
    entries = [(key, kind)] if kind else []
    if folded:
        entries.append(("pkg.onnxscript.optimizer.folded_from", f"['{folded}']"))
    for name_, value in entries:
        info.add(4, onnxwire.Message().add(1, name_).add(2, value))
    b.infos.append(info)
    return name


def scoped(b, scope, reads, *op, **attributes):
    """A node with metadata: its module and the tensors that it read."""
    out = b.op(*op, **attributes)
    for key, value in (("name_scopes", f"['', '{scope}', 'op']"),
                       ("fx_node", "%op : call_function[target=op](args = (%x, "
                                   + ", ".join("%p_" + name for name in reads) + "))")):
        b.nodes[-1].add(9, onnxwire.Message().add(1, "pkg.torch.onnx." + key).add(2, value))
    return out


def noted(b):
    model = b.model(20)
    for info in b.infos:
        model.graph.add(13, info)
    return model


def single():
    """Tensors of one element as weights, as added or scaling parameters, and as constants."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 4])
    x = b.op("Mul", x, b.parameter("raw", np.array([0.5], F32)))
    h = b.op("MatMul", x, b.parameter("w", ramp(4, 3)))
    h = b.op("Mul", h, b.parameter("temperature", np.array([1.5], F32)))
    h = b.op("Div", h, b.parameter("half", np.array(2, F32)))
    h = b.op("Mul", h, b.op("Exp", b.parameter("a.logit_scale", np.array(0.1, F32))))
    square = b.op("Sqrt", b.op("Add", b.op("Mul", h, h), b.parameter("epsilon", np.array([1e-5], F32))))
    h = b.op("Add", b.op("Div", h, square), b.parameter("a.shift", np.array(1, F32)))
    b.op("Gemm", h, b.parameter("v", ramp(3, 1)), b.parameter("bias", np.array([0.5], F32)), out="y")
    b.output("y", F32, ["batch", 1])
    return b.model(18)


def number_nodes():
    """The file has its constants in nodes: a rank-0 initializer is not a constant."""
    b = onnxbuild.Builder()
    x = b.op("MatMul", b.input("x", F32, ["batch", 4]), b.parameter("w", ramp(4, 3)))
    x = b.op("Mul", x, b.op("Constant", value=np.array(2, F32)))
    b.op("Mul", x, b.parameter("temperature", np.array(1.5, F32)), out="y")
    b.output("y", F32, ["batch", 3])
    return b.model(18)


def noted_buffers():
    """Tensors with metadata: a buffer, parameters, a constant."""
    b = onnxbuild.Builder()
    b.infos = []
    x = b.input("x", F32, ["batch", 4])
    x = b.op("Sub", x, held(b, "mean", ramp(4), "BUFFER"))
    x = b.op("Mul", x, held(b, "gain", ramp(4), "PARAMETER"))
    x = b.op("MatMul", x, held(b, "w", ramp(4, 3), "PARAMETER"))
    x = b.op("Mul", x, held(b, "t", np.array(1.5, F32), "PARAMETER"))
    x = b.op("Mul", x, held(b, "exp", np.array(1.1, F32), folded="logit_scale"))
    b.op("Mul", x, b.parameter("val_3", np.array([2], F32)), out="y")
    b.output("y", F32, ["batch", 3])
    return noted(b)


def noted_merged():
    """A gain that the exporter merged from two, and one that the file says is shared."""
    b = onnxbuild.Builder()
    b.infos = []
    x = b.input("x", F32, ["batch", 4])
    held(b, "h.0.n.weight", ramp(4), "PARAMETER")
    held(b, "s.weight", ramp(4), "PARAMETER")
    for layer in ("h.0", "h.1"):
        x = scoped(b, f"{layer}.n", [f"{layer}.n.weight".replace(".", "_")], "Mul", x,
                   "h.0.n.weight")
        x = scoped(b, f"{layer}.s", ["s_weight"], "Add", x, "s.weight")
    b.op("MatMul", x, b.parameter("w", ramp(4, 3)), out="y")
    b.output("y", F32, ["batch", 3])
    return noted(b)


def channels():
    """Per-channel gains, a product with a column, and positions."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 3, 4])
    x = b.op("MatMul", x, b.parameter("square", ramp(4, 4)))
    x = b.op("Mul", x, b.parameter("gain", ramp(3, 1)))
    x = b.op("Add", x, b.parameter("bias", ramp(1, 3, 1)))
    x = b.op("Add", x, b.parameter("row", ramp(1, 4)))
    b.op("MatMul", x, b.parameter("column", ramp(4, 1)), out="y")
    b.output("y", F32, ["batch", 3, 1])
    return b.model(18)


def copies():
    """Equal tensors that are not tied: experts, a frozen copy, an identity."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    x = b.op("Gather", b.parameter("table", ramp(6, 4)), ids)
    first = b.op("MatMul", x, b.parameter("e.0", ramp(4, 4) - 3))
    second = b.op("MatMul", x, b.parameter("e.1", ramp(4, 4) - 3))
    x = b.op("Add", b.op("Tanh", first), second)
    for name in ("i.0", "i.1"):
        x = b.op("MatMul", x, b.parameter(name, np.eye(4, dtype=F32)))
    # A table with the same elements, but no product with an equal matrix reads its lookups.
    b.op("MatMul", x, b.parameter("head", np.ascontiguousarray(ramp(4, 6))), out="y")
    other = b.op("Gather", b.parameter("copy", ramp(6, 4)), ids)
    b.op("Tanh", other, out="z")
    b.output("y", F32, ["batch", "sequence", 6])
    b.output("z", F32, ["batch", "sequence", 4])
    return b.model(18)


def tables():
    """Two equal tables, and a head that depends on lookups in both."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    table = np.sin(ramp(7, 4) ** 2).astype(F32)
    x = b.op("Add", b.op("Gather", b.parameter("policy", table), ids),
             b.op("Tanh", b.op("Gather", b.parameter("reference", table), ids)))
    b.op("MatMul", x, b.parameter("head", np.ascontiguousarray(table.T)), out="y")
    b.output("y", F32, ["batch", "sequence", 7])
    return b.model(18)


def spread():
    """Tensors computed from positions: waves in a product, differences."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 12])
    at = np.arange(12)
    waves = np.cos(np.outer(at, at) * np.pi / 12).astype(F32)
    bias = np.sin((at[:, None] - at) ** 2).astype(F32)
    x = b.op("MatMul", x, b.parameter("waves", waves))
    x = b.op("MatMul", x, b.parameter("w", np.sin(ramp(12, 12) ** 2).astype(F32)))
    b.op("MatMul", x, b.parameter("differences", bias), out="y")
    b.output("y", F32, ["batch", 12])
    return b.model(18)


def main():
    kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}.onnx"
    if kind == "external":
        onnxwire.save(external("weights.bin", 48), path)
        (folder / "weights.bin").write_bytes(ramp(3, 4).tobytes())
    elif kind == "missing":
        onnxwire.save(external("nothing.bin", 48), path)
    elif kind == "short":
        onnxwire.save(external("short.bin", 48, "16"), path)
        (folder / "short.bin").write_bytes(b"\0" * 60)
    elif kind == "parent":
        onnxwire.save(external("../weights.bin"), path)
    elif kind == "absolute":
        onnxwire.save(external("/etc/passwd"), path)
    elif kind == "link":
        onnxwire.save(external("link.bin", 48), path)
        (folder / "target.bin").write_bytes(b"\0" * 48)
        link = folder / "link.bin"
        link.unlink(missing_ok=True)
        link.symlink_to("target.bin")
    elif kind == "truncated":
        onnxwire.save(dims(), path)
        path.write_bytes(path.read_bytes()[:-30])
    elif kind.startswith("frozen-"):
        onnxwire.save(frozen(kind.removeprefix("frozen-")), path)
    else:
        onnxwire.save(globals()[kind](), path)


if __name__ == "__main__":
    main()
