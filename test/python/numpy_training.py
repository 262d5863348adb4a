"""Training in NumPy, in float64: the reference for cleave's runs.

A Net is built operation by operation, both as an ONNX model and as a differentiable list, so
that a test draws a model and gets its expected values at the same time:

    net = Net()
    x = net.input("x", data, ["batch", 5])
    y = net.op("MatMul", x, net.weight("w", array))
    model = net.save(path, y)
    losses, weights = net.train(y, labels, loss="mse", steps=4, lr=0.1)
"""

import numpy as np

import support  # extends sys.path
import onnxbuild
import onnxwire


def bf16(array):
    """Rounds to bfloat16, ties to even, returned as float32."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).reshape(np.shape(array))


STORED = {"f32": lambda a: np.asarray(a, np.float32), "bf16": bf16,
          "f16": lambda a: np.asarray(a, np.float16).astype(np.float32)}
CODES = {"f32": 1, "f16": 10, "bf16": 16}


def tensor_of(name, array, kind):
    """An initializer, also in bfloat16, which NumPy lacks."""
    if kind == "bf16":
        out = onnxbuild.tensor(name, (bf16(array).view(np.uint32) >> 16).astype(np.uint16))
        out.drop(2)
        return out.add(2, CODES[kind])
    return onnxbuild.tensor(name, np.asarray(array, np.float16 if kind == "f16" else np.float32))


def bf16_initializers(path):
    """The bfloat16 initializers of a file, as float32."""
    return {t.name: (np.frombuffer(bytes(t.all(9)[-1]), np.uint16).astype(np.uint32) << 16).view(np.float32)
            .reshape(t.dims) for t in onnxwire.load(path).graph.initializers if t.data_type == 16}


def reduced(gradient, shape):
    """Sums the gradient of a value that was broadcast to that value's shape."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    wide = tuple(i for i, size in enumerate(shape) if size == 1 and gradient.shape[i] != 1)
    return gradient.sum(wide, keepdims=True) if wide else gradient


# Each returns the result, and a function that maps its gradient to those of the operands.
OPS = {
    "Add": lambda a, b: (a + b, lambda g: (g, g)),
    "Sub": lambda a, b: (a - b, lambda g: (g, -g)),
    "Mul": lambda a, b: (a * b, lambda g: (g * b, g * a)),
    "Div": lambda a, b: (a / b, lambda g: (g / b, -g * a / b ** 2)),
    "Tanh": lambda a: (np.tanh(a), lambda g: (g * (1 - np.tanh(a) ** 2),)),
    "Exp": lambda a: (np.exp(a), lambda g: (g * np.exp(a),)),
    "Identity": lambda a: (a, lambda g: (g,)),
    "Transpose": lambda a: (a.T, lambda g: (g.T,)),
}


def matmul(a, b):
    def back(g):
        flat = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
        return g @ b.T, flat[0].T @ flat[1]
    return a @ b, back


def gather(table, ids):
    def back(g):
        out = np.zeros_like(table)
        np.add.at(out, ids, g)
        return out, None
    return table[ids], back


def padded(row):
    """A gather whose row `row` gets no gradient."""
    def op(table, ids):
        value, back = gather(table, ids)
        return value, lambda g: back(np.where((ids == row)[..., None], 0, g))
    return op


def gemm(a, b, c):
    return a @ b + c, lambda g: (g @ b.T, a.T @ g, g)


OPS |= {"MatMul": matmul, "Gather": gather, "Gemm": gemm}


class Net:
    def __init__(self, stored="f32"):
        self.b = onnxbuild.Builder()
        self.stored = stored
        self.values, self.weights, self.list = {}, {}, []
        self.tied = {}  # names that are one parameter: name -> (name, transposed)

    def input(self, name, data, dims):
        integer = np.issubdtype(data.dtype, np.integer)
        self.values[name] = data if integer else data.astype(np.float64)
        return self.b.input(name, np.int64 if integer else np.float32, dims)

    def weight(self, name, array, kind=None):
        kind = kind or self.stored
        self.weights[name] = STORED[kind](array).astype(np.float64)
        self.b.initializers.append(tensor_of(name, array, kind))
        return name

    def tie(self, name, to):
        """Adds a tied weight: the file holds the transpose of `to` a second time."""
        self.weight(name, np.ascontiguousarray(self.weights[to].T))
        del self.weights[name]
        self.tied[name] = to
        return name

    def number(self, value):
        name = self.b.constant(value, np.float32)
        self.values[name] = np.asarray(value, np.float64)
        return name

    def op(self, kind, *inputs, out=None, reads=None):
        """`reads`: the parameters that replace the inputs in the reference, if the file has
        merged them with others."""
        name = self.b.op(kind, *inputs, out=out)
        self.list.append((kind, reads or inputs, name))
        return name

    def embedding(self, table, ids, row):
        """A lookup with PyTorch's padding_idx, which the exporter writes into metadata."""
        name = self.b.op("Gather", table, ids)
        call = f"%e : call_function[target=torch.ops.aten.embedding.default](args = (%p_t, %ids, {row}), kwargs = {{}})"
        self.b.nodes[-1].add(9, onnxwire.Message().add(1, "pkg.torch.onnx.fx_node").add(2, call))
        OPS[f"Gather {row}"] = padded(row)
        self.list.append((f"Gather {row}", (table, ids), name))
        return name

    def save(self, path, output, shape):
        if output != "y":
            output = self.op("Identity", output, out="y")
        self.b.output("y", np.float32, shape)
        path.write_bytes(self.b.model(18).bytes())
        return output

    def forward(self, weights):
        kind = next(iter(weights.values())).dtype
        values = {n: a if a.dtype.kind == "i" else a.astype(kind) for n, a in self.values.items()}
        backs = []
        values |= weights
        values |= {name: weights[to].T for name, to in self.tied.items()}
        for kind, inputs, name in self.list:
            values[name], back = OPS[kind](*(values[i] for i in inputs))
            backs.append(back)
        return values, backs

    def gradients(self, values, backs, output, gradient):
        found = {output: gradient}
        for (_, inputs, name), back in zip(self.list[::-1], backs[::-1]):
            if name not in found:
                continue
            for source, part in zip(inputs, back(found[name])):
                if part is not None:
                    part = reduced(part, values[source].shape)
                    found[source] = found.get(source, 0) + part
        for name, to in self.tied.items():
            if name in found:
                found[to] = found.get(to, 0) + found.pop(name).T
        return found

    def train(self, output, labels, loss, steps, lr, optimizer="sgd", frozen=(), momentum=0.9,
              decay=0.01, clip=0.5, eps=1e-4, dtype=np.float64):
        """Losses of the steps, and all weights after them, computed in `dtype`."""
        weights = {name: array.astype(dtype) for name, array in self.weights.items()}
        state = {name: [np.zeros_like(a), np.zeros_like(a)] for name, a in weights.items()}
        losses = []
        for step in range(1, steps + 1):
            values, backs = self.forward(weights)
            y = values[output]
            value, gradient = (squares if loss == "mse" else entropy)(y, labels)
            losses.append(value)
            found = self.gradients(values, backs, output, gradient)
            found = {n: found[n] for n in weights if n in found and n not in frozen}
            norm = np.sqrt(sum((g ** 2).sum() for g in found.values()))
            for name, g in found.items():
                g, (m, v) = g * min(1, clip / (norm + 1e-6)), state[name]
                fade = decay if weights[name].ndim >= 2 else 0
                if optimizer == "sgd":
                    m[...] = momentum * m + g + fade * weights[name]
                    weights[name] -= lr * m
                    continue
                weights[name] *= 1 - lr * fade
                m[...] = 0.9 * m + 0.1 * g
                v[...] = 0.999 * v + 0.001 * g * g
                weights[name] -= lr * m / (1 - 0.9 ** step) / (
                    np.sqrt(v / (1 - 0.999 ** step)) + eps)
        return losses, weights


def squares(y, labels):
    error = y - labels
    return (error ** 2).mean(), 2 * error / error.size


def entropy(y, labels):
    flat, want = y.reshape(-1, y.shape[-1]), labels.reshape(-1)
    flat = flat - flat.max(1, keepdims=True)
    logs = flat - np.log(np.exp(flat).sum(1, keepdims=True))
    gradient = np.exp(logs)
    gradient[np.arange(len(want)), want] -= 1
    return -logs[np.arange(len(want)), want].mean(), (gradient / len(want)).reshape(y.shape)
