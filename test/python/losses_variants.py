"""Losses inside a model, drawn by seed: spellings of means and sums, with counts, weights and
labels that are uneven among the samples. NumPy computes each in double; its gradient is the
imaginary part of the loss at a parameter with a tiny imaginary step (complex-step method)."""

import numpy as np

import onnxbuild

# Batch and microbatch sizes deliberately coincide with other sizes and factors.
BATCH, WIDTH, HIDDEN = 6, 4, 5
STEP = 1e-30
# How the losses of the samples are combined.
GATHERINGS = ["mean", "sum", "by size", "by mask", "by clamped mask", "by class weights", "root of mean", "of squares"]
VALUES = ["squares", "distances", "entropy", "smoothed", "elements"]


def magnitude(x):
    return np.where(x.real < 0, -x, x)


def log_softmax(y):
    y = y - y.real.max(-1, keepdims=True)
    return y - np.log(np.exp(y).sum(-1, keepdims=True))


class Model:
    """Adds nodes to a model, and records the NumPy function of each."""

    def __init__(self, rng):
        self.rng, self.b = rng, onnxbuild.Builder()
        self.data, self.weights, self.list = {}, {}, []
        self.classes = int(rng.choice([2, 3, 6, 7]))

    def input(self, name, array, *dims):
        self.data[name] = array
        return self.b.input(name, array.dtype, ["batch", *dims])

    def weight(self, name, *shape):
        self.weights[name] = self.rng.normal(size=shape).astype(np.float32)
        return self.b.parameter(name, self.weights[name])

    def number(self, value):
        array = np.asarray(value, np.float32)
        name = self.b.op("Constant", value=array)  # an initializer could become a parameter
        self.data[name] = array
        return name

    def op(self, kind, function, *inputs, extra=(), **attributes):
        """`extra`: operands of the node that the NumPy function does not take."""
        out = self.b.op(kind, *inputs, *extra, **attributes)
        self.list.append((function, inputs, out))
        return out

    def add(self, a, b):
        return self.op("Add", lambda x, y: x + y, a, b)

    def sub(self, a, b):
        return self.op("Sub", lambda x, y: x - y, a, b)

    def mul(self, a, b):
        pair = (a, b) if self.rng.random() < 0.5 else (b, a)
        return self.op("Mul", lambda x, y: x * y, *pair)

    def div(self, a, b):
        return self.op("Div", lambda x, y: x / y, a, b)

    def total(self, a, kind="ReduceSum"):
        """Reduces over all dimensions, with or without keeping them, to a scalar."""
        function = (lambda x: x.sum()) if kind == "ReduceSum" else (lambda x: x.mean())
        if self.rng.random() < 0.7:
            return self.op(kind, function, a, keepdims=0)
        kept = self.b.op(kind, a, keepdims=1)
        out = self.b.op("Reshape", kept, self.b.constant(np.zeros(0, np.int64)))
        self.list.append((function, (a,), out))
        return out

    def rows(self, a, kind):
        function = (lambda x: x.sum(1)) if kind == "ReduceSum" else (lambda x: x.mean(1))
        return self.op(kind, function, a, extra=[self.b.constant([1])], keepdims=0)

    def loss(self, weights, name):
        values = {n: a if a.dtype.kind == "i" else a.astype(np.float64) for n, a in self.data.items()}
        values |= weights
        for function, inputs, out in self.list:
            values[out] = function(*(values[i] for i in inputs))
        return values[name]


def value(m, kind, y):
    """The loss of each sample [batch], or of each element of a sample."""
    if kind in ("entropy", "smoothed"):
        logs = m.op("LogSoftmax", log_softmax, y, axis=-1)
        target = m.op("OneHot", lambda i: np.eye(m.classes)[i], "label",
                      extra=[m.b.constant(m.classes), m.number([0, 1])], axis=-1)
        if kind == "smoothed":
            target = m.add(m.mul(target, m.number(0.75)), m.number(0.25 / m.classes))
        return m.op("Neg", lambda x: -x, m.rows(m.mul(target, logs), "ReduceSum"))
    error = m.sub(y, "target")
    if kind == "distances":
        return m.rows(m.op("Abs", magnitude, error), m.rng.choice(["ReduceMean", "ReduceSum"]))
    squares = m.mul(error, error)
    return squares if kind == "elements" else m.rows(squares, "ReduceMean")


def gather(m, kind, v, is_wide):
    if kind == "mean":
        return m.total(v, "ReduceMean")
    if kind == "sum":
        return m.total(v)
    if kind == "of squares":
        return m.total(m.mul(v, v), "ReduceMean")
    if kind == "root of mean":
        return m.op("Sqrt", np.sqrt, m.total(v, "ReduceMean"))
    if kind == "by size":
        size = m.b.op("Cast", m.b.op("Shape", "x", start=0, end=1), to=1)
        size = m.b.op("Reshape", size, m.b.constant(np.zeros(0, np.int64)))
        m.data[size] = np.asarray(BATCH, np.float32)
        return m.div(m.total(v), size)
    if is_wide:
        v = m.rows(v, "ReduceSum")
    if kind == "by class weights":
        table = np.linspace(0.5, 2, m.classes)
        weight = m.op("Gather", lambda t, i: t[i], m.number(table), "label", axis=0)
    else:
        weight = "mask"
    count = m.total(weight)
    if kind == "by clamped mask":
        low = float(m.rng.choice([1, 4]))
        count = m.op("Max", lambda a: np.maximum(a, low), count, extra=[m.number(low)])
    return m.div(m.total(m.mul(v, weight)), count)


def generate(seed):
    """(model, description of the spelling); its output `loss` is the loss."""
    rng = np.random.default_rng(seed)
    m = Model(rng)
    x = m.input("x", rng.normal(size=(BATCH, WIDTH)).astype(np.float32), WIDTH)
    m.input("target", rng.normal(size=(BATCH, m.classes)).astype(np.float32), m.classes)
    m.input("label", rng.integers(0, m.classes, BATCH))
    mask = (rng.random(BATCH) < 0.5).astype(np.float32)
    mask[rng.integers(BATCH)] = 1  # an empty mask has no mean
    m.input("mask", mask)
    h = m.op("Tanh", np.tanh, m.op("MatMul", lambda a, b: a @ b, x, m.weight("first", WIDTH, HIDDEN)))
    y = m.op("MatMul", lambda a, b: a @ b, h, m.weight("second", HIDDEN, m.classes))
    loss, words = None, []
    for index in range(int(rng.integers(1, 4))):
        kind = VALUES[(seed + index) % len(VALUES)] if index == 0 else str(rng.choice(VALUES))
        way = GATHERINGS[seed % len(GATHERINGS)] if index == 0 else str(rng.choice(GATHERINGS))
        term = gather(m, way, value(m, kind, y), kind == "elements")
        scale = str(rng.choice(["none", "times", "over"]))
        factor = float(rng.choice([0.5, 0.3, 2.0, 3.0, 6.0, 12.0]))
        if scale != "none":
            term = (m.mul if scale == "times" else m.div)(term, m.number(factor))
        if seed % 4 == 3:  # accumulated in double
            term = m.op("Cast", lambda a: a, term, to=11)
        words.append(f"{kind} {way}" + (f" {scale} {factor}" if scale != "none" else ""))
        loss = term if loss is None else (m.add if rng.random() < 0.7 else m.sub)(loss, term)
    if seed % 4 == 3:
        loss = m.op("Cast", lambda a: a, loss, to=1)
        words.append("in doubles")
    m.b.op("Identity", loss, out="loss")
    m.list.append((lambda a: a, (loss,), "loss"))
    m.b.output("loss", np.float32, [])
    return m, "; ".join(words)


def train(m, steps):
    """(losses, tolerance of each for rounding all parameters to float32, the parameters after
    as many steps of gradient descent, the learning rate). With this rate the first step changes
    some element by about 0.1."""
    rate, weights = None, {name: array.astype(np.float64) for name, array in m.weights.items()}
    losses, moves = [], []
    for _ in range(steps):
        losses.append(float(m.loss(weights, "loss")))
        gradients = {}
        for name, array in weights.items():
            gradients[name] = np.zeros_like(array)
            for at in np.ndindex(array.shape):
                moved = array.astype(np.complex128)
                moved[at] += 1j * STEP
                gradients[name][at] = m.loss(weights | {name: moved}, "loss").imag / STEP
        moves.append(sum(np.abs(gradients[name] * array).sum() for name, array in weights.items()) * 2.0**-24)
        rate = rate or 2.0 ** round(np.log2(0.1 / max(np.abs(g).max() for g in gradients.values())))
        weights = {name: array - rate * gradients[name] for name, array in weights.items()}
    return losses, moves, weights, rate
