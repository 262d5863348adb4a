"""Key biases in attention that is not recognised as one operation: softmax does not depend on them, so
their gradients are exactly zero and AdamW leaves them unchanged, on every mesh."""

import pathlib
import tempfile
import unittest

import numpy as np

import support
import onnxbuild
from support import CLEAVE, read_log, read_safetensors

BATCH, SEQUENCE, WIDTH, HEADS = 4, 6, 8, 2
SPLIT = WIDTH // HEADS
MASKS = {"none": None, "lowest": np.finfo(np.float32).min, "infinite": -np.inf}
AROUND = ["train.optimizer=adamw", "train.lr=0.01", "train.weight_decay=0", "train.loss=mse",
          "train.schedule=constant", "data.labels=z", "data.validation=0"]


def attention(b, x, draw, mask, fused):
    """A layer of attention whose probabilities are scaled by a factor per head, so that it is not
    recognised as one operation."""
    def weight(name, *shape):
        return b.parameter(name, (draw.standard_normal(shape) / 2).astype(np.float32))

    def heads(value, *order):
        value = b.op("Reshape", value, b.constant([0, SEQUENCE, HEADS, SPLIT]))
        return b.op("Transpose", value, perm=list(order))

    def linear(value, name, inner, outer):
        return b.op("Add", b.op("MatMul", value, weight(f"{name}.weight", inner, outer)),
                    weight(f"{name}.bias", outer))

    if fused:
        q, k, v = b.op("Split", linear(x, "fused", WIDTH, 3 * WIDTH), outputs=3, axis=2,
                       num_outputs=3)
    else:
        q, k, v = (linear(x, name, WIDTH, WIDTH) for name in ("query", "key", "value"))
    scores = b.op("MatMul", heads(q, 0, 2, 1, 3), heads(k, 0, 2, 3, 1))
    scores = b.op("Div", scores, b.constant(SPLIT ** 0.5, np.float32))
    if MASKS[mask] is not None:
        seen = b.constant(np.tril(np.ones((SEQUENCE, SEQUENCE), bool)), np.bool_)
        scores = b.op("Where", seen, scores, b.constant(MASKS[mask], np.float32))
    weights = b.op("Mul", b.op("Softmax", scores, axis=-1), weight("gate", HEADS, 1, 1))
    found = b.op("MatMul", weights, heads(v, 0, 2, 1, 3))
    found = b.op("Reshape", b.op("Transpose", found, perm=[0, 2, 1, 3]),
                 b.constant([0, SEQUENCE, WIDTH]))
    return linear(found, "out", WIDTH, WIDTH)


def sets(*values):
    return [word for value in values for word in ("--set", value)]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class KeyBiases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        draw = np.random.default_rng(4)
        shape = (40, SEQUENCE, WIDTH)
        np.savez(cls.folder / "data.npz", x=draw.standard_normal(shape).astype(np.float32),
                 z=draw.standard_normal(shape).astype(np.float32))

    def build(self, mask="none", fused=False):
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, ["batch", SEQUENCE, WIDTH])
        y = attention(b, b.op("Tanh", x), np.random.default_rng(7), mask, fused)
        b.op("Add", x, y, out="y")
        b.output("y", np.float32, ["batch", SEQUENCE, WIDTH])
        path = self.folder / f"{mask}-{'fused' if fused else 'apart'}.onnx"
        path.write_bytes(b.model(18).bytes())
        return path

    def train(self, model, out, *flags, mesh=()):
        where = self.folder / out
        data = [] if "--resume" in flags else ["--data", self.folder / "data.npz"]
        support.succeed(CLEAVE, "train", model, *data, "--out", where, "--cache",
                        self.folder / "cache", "--save-every", 3,
                        *sets(f"dims.batch={BATCH}", *AROUND, *mesh), *flags)
        return where

    def keys_of(self, path, fused=False):
        """The key biases, and all other parameters."""
        if path.suffix == ".onnx":
            arrays = support.initializers(path)
        else:
            arrays = read_safetensors(path / "model.safetensors")
        biases = {name: value for name, value in arrays.items() if name.endswith(".bias")}
        if not fused:
            return biases.pop("key.bias"), list(biases.values())
        query, key, value = np.split(biases.pop("fused.bias"), 3)
        return key, [query, value, *biases.values()]

    def test_attention_is_spelled_out(self):
        """Checks that the attention is not recognised; otherwise the tests below would test another rule."""
        for mask in MASKS:
            out = self.folder / "import.mlir"
            support.succeed(CLEAVE, "compile", self.build(mask), *sets(f"dims.batch={BATCH}", *AROUND),
                            "--emit", "import", "-o", out)
            self.assertIn("nn.softmax", out.read_text())
            self.assertNotIn("nn.attention", out.read_text())

    def test_they_do_not_move(self):
        """On any mesh, resumed on another; losses equal those of one rank."""
        cases = [("none", False), ("lowest", True), ("infinite", False), ("none", True),
                 ("lowest", False)]
        for mask, fused in support.some(cases, 2):
            with self.subTest(mask=mask, fused=fused):
                model, name = self.build(mask, fused), f"{mask}-{fused}"
                whole = self.train(model, f"{name}-whole", "--steps", 6)
                first = self.train(model, f"{name}-first", "--steps", 3,
                                   mesh=["mesh.data=2", "mesh.tensor=2"])
                rest = self.train(model, f"{name}-rest", "--steps", 6, "--resume",
                                  first / "checkpoint-000003", mesh=["mesh.data=4", "mesh.tensor=1",
                                                                     "parallel.data.zero=1"])
                want = [line["loss"] for line in read_log(whole)]
                found = [line["loss"] for run in (first, rest) for line in read_log(run)]
                self.assertEqual(len(found), 6)
                np.testing.assert_allclose(found, want, rtol=1e-4)
                key, others = self.keys_of(model, fused)
                for run in (whole, rest):
                    moved, moved_others = self.keys_of(run / "checkpoint-000006", fused)
                    np.testing.assert_array_equal(moved, key)
                    for before, after in zip(others, moved_others):
                        self.assertTrue((before != after).all())

    def loss(self, weights, x, z, mask, fused):
        """The NumPy version of `attention`."""
        def linear(value, name):
            return value @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

        def heads(value):
            return value.reshape(len(x), SEQUENCE, HEADS, SPLIT).transpose(0, 2, 1, 3)

        h = np.tanh(x)
        q, k, v = map(heads, np.split(linear(h, "fused"), 3, 2) if fused else
                      [linear(h, name) for name in ("query", "key", "value")])
        scores = q @ k.transpose(0, 1, 3, 2) / SPLIT ** 0.5
        if mask != "none":
            scores = np.where(np.tril(np.ones((SEQUENCE, SEQUENCE), bool)), scores, MASKS[mask])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = weights["gate"] * p / p.sum(-1, keepdims=True)
        y = (p @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        return np.mean((x + linear(y, "out") - z) ** 2)

    def test_gradients(self):
        """No other gradient is set to zero: compared with finite differences in NumPy."""
        draw = np.random.default_rng(2)
        x, z = draw.standard_normal((2, 2, SEQUENCE, WIDTH))
        given, out = self.folder / "given.npz", self.folder / "gradients.npz"
        np.savez(given, x=x.astype(np.float32), labels=z.astype(np.float32))
        x, z = (a.astype(np.float32).astype(np.float64) for a in (x, z))
        for mask, fused in [("none", False), ("lowest", True), ("infinite", False)]:
            with self.subTest(mask=mask, fused=fused):
                model = self.build(mask, fused)
                support.succeed(CLEAVE, "check", model, "--interpret", "--inputs", given, *sets(
                    "dims.batch=2", "train.loss=mse", "mesh.data=2"), "--gradients", out)
                weights = {name: array.astype(np.float64) for name, array in
                           support.initializers(model).items() if array.size > 1}
                with np.load(out) as arrays:
                    self.assertAlmostEqual(float(arrays["loss"]),
                                           self.loss(weights, x, z, mask, fused), places=12)
                    found = {name: arrays[f"grad/{name}"] for name in weights}
                for name, array in weights.items():
                    for i in draw.permutation(array.size)[:12]:
                        ends = []
                        for step in (1e-5, -1e-5):
                            moved = array.copy()
                            moved.flat[i] += step
                            ends.append(self.loss(weights | {name: moved}, x, z, mask, fused))
                        self.assertAlmostEqual(found[name].flat[i], (ends[0] - ends[1]) / 2e-5,
                                               places=8, msg=f"{name}[{i}]")


if __name__ == "__main__":
    unittest.main()
