"""Attention in the spellings of common modules, drawn by seed: fused projections in four layouts,
few KV heads, rotary embeddings in five spellings. One file has several of them side by side; NumPy
computes each as it is written."""

import numpy as np

import onnxbuild

BATCH, SEQUENCE, WIDTH, VOCABULARY = 2, 8, 12, 11
HEADS = [(4, 1), (6, 1), (8, 1), (16, 1), (48, 1), (8, 2), (32, 2), (4, 4), (6, 3), (12, 4), (4, 2)]
LAYOUTS = ["concat", "heads", "groups", "blocks", "apart"]
ROTARY = ["none", "half", "pairs", "stacked", "side by side", "part"]


class Value:
    def __init__(self, name, array):
        self.name, self.array = name, array


class Eager:
    """Adds nodes to a model, and computes their values."""

    def __init__(self, rng):
        self.rng, self.b, self.count = rng, onnxbuild.Builder(), 0

    def weight(self, *shape):
        self.count += 1
        array = (self.rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        return Value(self.b.parameter(f"w{self.count}", array), array)

    def node(self, op, operands, array, **attributes):
        return Value(self.b.op(op, *[o if isinstance(o, str) else o.name for o in operands], **attributes), array)

    def ints(self, values):
        return self.b.constant(values)

    def reshape(self, x, *shape):
        return self.node("Reshape", [x, self.ints(list(shape))], x.array.reshape(shape))

    def transpose(self, x, *order):
        return self.node("Transpose", [x], x.array.transpose(order), perm=list(order))

    def slice(self, x, start, stop, axis, step=1):
        index = [slice(None)] * x.array.ndim
        index[axis] = slice(start, stop, step)
        return self.node("Slice", [x] + [self.ints([v]) for v in (start, stop, axis, step)], x.array[tuple(index)])

    def concat(self, values, axis):
        return self.node("Concat", values, np.concatenate([v.array for v in values], axis), axis=axis)

    def add(self, x, y):
        return self.node("Add", [x, y], x.array + y.array)

    def mul(self, x, y):
        return self.node("Mul", [x, y], x.array * y.array)

    def negative(self, x):
        return self.node("Neg", [x], -x.array)

    def matmul(self, x, y):
        return self.node("MatMul", [x, y], x.array @ y.array)

    def unsqueeze(self, x, axis):
        return self.node("Unsqueeze", [x, self.ints([axis])], np.expand_dims(x.array, axis))

    def repeat(self, x, axis, count):
        """Adds a dimension along which x repeats."""
        shape = list(x.array.shape)
        shape.insert(axis, count)
        wide = self.unsqueeze(x, axis)
        return self.node("Expand", [wide, self.ints(shape)], np.broadcast_to(wide.array, shape))

    def angles(self, size):
        """Rotary cosines and sines [sequence, size / 2]."""
        positions = np.arange(SEQUENCE, dtype=np.float32)[:, None]
        speeds = (10.0 ** -np.linspace(0, 2, size // 2)).astype(np.float32)
        b = self.b
        grid = b.op("Range", b.constant(0), b.constant(SEQUENCE), b.constant(1))
        grid = b.op("Unsqueeze", b.op("Cast", grid, to=1), b.constant([1]))
        angle = Value(b.op("Mul", grid, b.constant(speeds, np.float32)), positions * speeds)
        return self.node("Cos", [angle], np.cos(angle.array)), self.node("Sin", [angle], np.sin(angle.array))


def split_heads(e, x, heads, groups, d, layout):
    """Queries [b, s, heads, d], keys and values [b, s, groups, d]."""
    b, s = BATCH, SEQUENCE
    if layout == "apart":
        return [e.reshape(e.matmul(x, e.weight(WIDTH, n * d)), b, s, n, d) for n in (heads, groups, groups)]
    total = heads + 2 * groups
    fused = e.add(e.matmul(x, e.weight(WIDTH, total * d)), e.weight(total * d))
    if layout == "concat":
        ends = np.cumsum([0, heads * d, groups * d, groups * d]).tolist()
        return [e.reshape(e.slice(fused, ends[i], ends[i + 1], 2), b, s, n, d)
                for i, n in enumerate((heads, groups, groups))]
    if layout == "heads":
        fused = e.reshape(fused, b, s, total, d)
        ends = [0, heads, heads + groups, total]
        return [e.slice(fused, ends[i], ends[i + 1], 2) for i in range(3)]
    if layout == "groups":
        each = heads // groups
        fused = e.reshape(fused, b, s, groups, each + 2, d)
        q = e.reshape(e.slice(fused, 0, each, 3), b, s, heads, d)
        return [q] + [e.reshape(e.slice(fused, each + i, each + i + 1, 3), b, s, groups, d) for i in range(2)]
    # As in CodeGen: blocks of features for a number of devices, each with queries, values and keys.
    blocks = 2
    local = heads * d // blocks
    fused = e.reshape(fused, b, s, blocks, 3 * local)
    q, v, k = (e.reshape(e.slice(fused, i * local, (i + 1) * local, 3), b, s, heads, d) for i in range(3))
    return [q, k, v]


def rotate(e, x, kind):
    """Applies the rotary embedding to x [b, s, heads, d]."""
    d = x.array.shape[3]
    if kind == "none":
        return x
    if kind == "part":
        kept = e.slice(x, d // 2, d, 3)
        return e.concat([rotate(e, e.slice(x, 0, d // 2, 3), "half"), kept], 3)
    cos, sin = e.angles(d)
    half = d // 2
    if kind == "half":
        wide = [e.unsqueeze(e.concat([t, t], 1), 1) for t in (cos, sin)]
        turned = e.concat([e.negative(e.slice(x, half, d, 3)), e.slice(x, 0, half, 3)], 3)
        return e.add(e.mul(x, wide[0]), e.mul(turned, wide[1]))
    cos, sin = e.unsqueeze(cos, 1), e.unsqueeze(sin, 1)
    if kind == "pairs":  # GPT-J: adjacent elements are a pair
        shape = (BATCH, SEQUENCE, x.array.shape[2], d)
        wide = [e.reshape(e.repeat(t, 3, 2), SEQUENCE, 1, d) for t in (cos, sin)]
        even, odd = e.slice(x, 0, d, 3, 2), e.slice(x, 1, d, 3, 2)
        turned = e.concat([e.unsqueeze(e.negative(odd), 4), e.unsqueeze(even, 4)], 4)
        return e.add(e.mul(x, wide[0]), e.mul(e.reshape(turned, *shape), wide[1]))
    # Real and imaginary parts are along the last of two feature dimensions, or the first.
    heads = x.array.shape[2]
    axis = 4 if kind == "stacked" else 3
    pairs = e.reshape(x, BATCH, SEQUENCE, heads, *((half, 2) if axis == 4 else (2, half)))
    shape = (BATCH, SEQUENCE, heads, half)
    real, imaginary = (e.reshape(e.slice(pairs, i, i + 1, axis), *shape) for i in range(2))
    first = e.add(e.mul(real, cos), e.negative(e.mul(imaginary, sin)))
    second = e.add(e.mul(real, sin), e.mul(imaginary, cos))
    joined = e.concat([e.unsqueeze(first, axis), e.unsqueeze(second, axis)], axis)
    return e.reshape(joined, BATCH, SEQUENCE, heads, d)


def attention(e, x, heads, groups, d, layout, rotary, shared):
    """One attention layer on x [b, s, width]."""
    b, s = BATCH, SEQUENCE
    q, k, v = split_heads(e, x, heads, groups, d, layout)
    q, k = rotate(e, q, rotary), rotate(e, k, rotary)
    if heads != groups and not (groups == 1 and shared):
        k, v = (e.reshape(e.repeat(t, 3, heads // groups), b, s, heads, d) for t in (k, v))
    q, k, v = e.transpose(q, 0, 2, 1, 3), e.transpose(k, 0, 2, 3, 1), e.transpose(v, 0, 2, 1, 3)
    scale = Value(e.b.constant(d ** -0.5, np.float32), np.float32(d ** -0.5))
    scores = e.mul(e.matmul(q, k), scale)
    seen = np.tril(np.ones((s, s), bool))
    ones = e.b.op("ConstantOfShape", e.ints([s, s]))
    mask = e.b.op("Greater", e.b.op("Trilu", e.b.op("Add", ones, e.b.constant(1, np.float32)), upper=0),
                  e.b.constant(0, np.float32))
    hidden = e.b.constant(-np.inf, np.float32)
    scores = e.node("Where", [mask, scores, hidden], np.where(seen, scores.array, -np.inf))
    weights = np.exp(scores.array - scores.array.max(-1, keepdims=True))
    weights = e.node("Softmax", [scores], weights / weights.sum(-1, keepdims=True), axis=-1)
    y = e.reshape(e.transpose(e.matmul(weights, v), 0, 2, 1, 3), b, s, heads * d)
    return e.matmul(y, e.weight(heads * d, WIDTH))


def generate(seed, count):
    """(model, tokens, outputs by name): `count` layers side by side, and the logits of their sum."""
    rng = np.random.default_rng(seed)
    e = Eager(rng)
    tokens = rng.integers(0, VOCABULARY, (BATCH, SEQUENCE))
    ids = e.b.input("ids", np.int64, ["batch", "sequence"])
    table = e.weight(VOCABULARY, WIDTH)
    x = Value(e.b.op("Gather", table.name, ids), table.array[tokens])
    total, outputs, kinds = x, {}, []
    for index in range(count):
        heads, groups = HEADS[(seed * count + index) % len(HEADS)]
        layout, rotary = (kinds_[rng.integers(len(kinds_))] for kinds_ in (LAYOUTS, ROTARY))
        if layout == "blocks":
            groups = heads = min(heads, 8)
        d = int(rng.choice([4, 8]))
        shared = bool(rng.integers(2))
        kinds.append(f"{heads}/{groups} heads of {d}, {layout}, rotary {rotary}" + (", shared" if shared else ""))
        y = attention(e, x, heads, groups, d, layout, rotary, shared)
        name = f"y{index}"
        e.b.op("Identity", y.name, out=name)
        e.b.output(name, np.float32, ["batch", "sequence", WIDTH])
        outputs[name] = y.array
        total = e.add(total, y)
    logits = e.matmul(total, e.weight(WIDTH, VOCABULARY))
    e.b.op("Identity", logits.name, out="logits")
    e.b.output("logits", np.float32, ["batch", "sequence", VOCABULARY])
    return e.b.model(18), tokens, outputs, kinds
