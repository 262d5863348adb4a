"""Random nets whose weights are shared, copied, frozen and merged, for test_parameters."""

import numpy as np

import support  # finds the others
from numpy_training import Net


class Case:
    """A net that is drawn from a seed, and what is said of it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.net = Net(stored=("f32", "bf16", "f32", "f16")[seed % 4])
        self.frozen, self.untied, self.count = [], [], 0
        # Each is a line of warning that must be there, or must not.
        self.said = {"to keep": [], "are tied, one parameter": [], "by several nodes": []}
        self.batch = 2 * int(self.rng.integers(3, 6))
        h, self.width = self.tokens() if seed % 2 else self.dense()
        for kind in self.rng.permutation(["experts", "copy", "single", "identity", "merged"])[:3]:
            h = getattr(self, kind)(h)
        self.output = self.head(h, seed)

    def draw(self, *shape):
        return (self.rng.standard_normal(shape) * 0.5).astype(np.float32)

    def weight(self, *shape, name="w"):
        self.count += 1
        return self.net.weight(f"{name}.{self.count}", self.draw(*shape))

    def dense(self):
        """Normalised by what may be frozen, or shift and scale that train."""
        n, k = self.rng.integers(3, 7, 2)
        self.data = {"x": self.draw(self.batch, n)}
        x = self.net.input("x", self.data["x"], ["batch", int(n)])
        if self.rng.random() < 0.7:
            mean = self.net.weight("mean", self.draw(n))
            std = self.net.weight("std", np.abs(self.draw(1, n)) + 1)
            x = self.net.op("Div", self.net.op("Sub", x, mean), std)
            if self.rng.random() < 0.5:
                self.frozen += ["mean", "std"]
            else:
                self.said["to keep"] = ["mean", "std"]
        self.shape = ["batch"]
        return self.net.op("Tanh", self.net.op("Gemm", x, self.weight(n, k),
                                               self.weight(k))), int(k)

    def tokens(self):
        """A table that a head may score, tied or not; beside a frozen copy of both, maybe."""
        vocabulary, k = self.rng.integers(5, 9), self.rng.integers(3, 6)
        self.table = self.draw(vocabulary, k)
        self.data = {"ids": self.rng.integers(0, vocabulary, (self.batch, 4))}
        self.ids = self.net.input("ids", self.data["ids"], ["batch", "sequence"])
        self.net.weight("table", self.table)
        self.shape = ["batch", "sequence"]
        return self.net.op("Gather", "table", self.ids), int(k)

    def experts(self, h):
        """Copies of one layer, of which a router takes different amounts."""
        start = self.draw(self.width, self.width)
        self.count += 1
        total = h
        for i in range(int(self.rng.integers(2, 4))):
            layer = self.net.weight(f"experts.{self.count}.{i}", start)
            gate = self.net.op("Tanh", self.net.op("MatMul", h, self.weight(self.width, 1)))
            total = self.net.op("Add", total, self.net.op("Mul", gate, self.net.op("MatMul", h, layer)))
        return total

    def copy(self, h):
        start = self.draw(self.width, self.width)
        policy = self.net.op("MatMul", h, self.net.weight("policy", start))
        reference = self.net.op("MatMul", h, self.net.weight("reference", start))
        self.frozen.append("reference")
        return self.net.op("Sub", policy, self.net.op("Mul", reference, self.net.number(0.3)))

    def single(self, h):
        """A temperature and a shift; and a number."""
        scale = self.net.weight("temperature", np.full((1,) * int(self.rng.integers(1, 3)), 1.3))
        h = self.net.op(self.rng.choice(["Mul", "Div"]), h, scale)
        h = self.net.op("Mul", h, self.net.number(0.9))
        return self.net.op(self.rng.choice(["Add", "Sub"]), h, self.net.weight("a.shift", np.array([0.2])))

    def identity(self, h):
        for i in range(2):
            h = self.net.op("Tanh", self.net.op("MatMul", h, self.net.weight(f"i.{i}", np.eye(self.width))))
        return h

    def merged(self, h):
        """One tensor for two gains, which train apart if they are to."""
        gain = self.net.weight("gain", np.ones(self.width))
        apart = self.rng.random() < 0.5
        if apart:
            self.untied.append("gain")
            self.net.weights["gain.use2"] = self.net.weights["gain"].copy()
        else:
            self.said["by several nodes"] = ["gain"]
        h = self.net.op("Mul", h, gain)
        h = self.net.op("Tanh", self.net.op("MatMul", h, self.weight(self.width, self.width)))
        return self.net.op("Mul", h, gain, reads=(h, "gain.use2") if apart else None)

    def head(self, h, seed):
        if self.net.values.get("ids") is None:
            self.loss = "mse" if seed % 3 else "cross_entropy"
            size = 1 if self.loss == "mse" else 3
            return self.net.op("Gemm", h, self.weight(self.width, size), self.weight(size, name="bias")), size
        self.loss, size = "cross_entropy", len(self.table)
        if self.rng.random() < 0.3:  # of its own, though equal at the start
            self.untied.append("head")
            self.net.weight("head", np.ascontiguousarray(self.net.weights["table"].T))
        else:
            self.net.tie("head", "table")
            self.said["are tied, one parameter"].append("head")
        y = self.net.op("MatMul", h, "head")
        if self.rng.random() < 0.5:
            self.net.weight("ref.table", self.table)
            self.net.tie("ref.head", "ref.table")
            self.said["are tied, one parameter"].append("ref.head")
            self.frozen += ["ref.table", "ref.head"]
            far = self.net.op("MatMul", self.net.op("Tanh", self.net.op("Gather", "ref.table", self.ids)),
                              "ref.head")
            y = self.net.op("Sub", y, self.net.op("Mul", far, self.net.number(0.3)))
        return y, size

    def labels(self):
        rows = (self.batch,) if self.loss == "mse" else self.data.get("ids", np.zeros(self.batch)).shape
        if self.loss == "mse":
            return self.draw(self.batch, 1)
        return self.rng.integers(0, self.output[1], rows)
