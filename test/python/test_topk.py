"""TopK outside of routers: its values alone, anywhere, and ScatterElements at its indices, against
NumPy; also derivatives."""

import pathlib
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support
from support import CLEAVE

X = np.array([[3, -1, 2, 5], [0, 4, -2, 1], [7, 6, -5, 2.5]], np.float32)


def of_data(k=2, largest=1):
    b = onnxbuild.Builder()
    x = b.input("x", np.float32, [3, 4])
    values, indices = b.op("TopK", x, b.constant([k]), outputs=2, axis=-1, largest=largest)
    return b, values, indices


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class TopK(unittest.TestCase):
    def infer(self, b, shape, **arrays):
        b.output("y", np.float32, shape)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnxwire.save(b.model(18), folder / "m.onnx")
            np.savez(folder / "in.npz", **arrays)
            support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz",
                            "--outputs", folder / "out.npz", "--cache", folder / "cache")
            with np.load(folder / "out.npz") as found:
                return found["y"]

    def test_values_at_fixed_places(self):
        """Rows, slices and masks of the values weight data, and the indices are unread."""
        best = -np.sort(-X, axis=-1)[:, :2]
        mask = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
        data = np.linspace(1, 2, 6, dtype=np.float32).reshape(3, 2)
        for name, change, right in (
                ("gathered", lambda b, v: b.op("Gather", v, b.constant([2, 0]), axis=0), best[[2, 0]]),
                ("cut", lambda b, v: b.op("Slice", v, b.constant([1]), b.constant([3]), b.constant([0])), best[1:]),
                ("masked", lambda b, v: b.op("Mul", v, b.op("Constant", value=mask)), best * mask)):
            with self.subTest(name):
                b, values, _ = of_data()
                d = b.input("d", np.float32, list(right.shape))
                b.op("Mul", change(b, values), d, out="y")
                found = self.infer(b, list(right.shape), x=X, d=data[:len(right)])
                np.testing.assert_array_equal(found, right * data[:len(right)])

    def test_least(self):
        b, values, _ = of_data(3, largest=0)
        b.op("GatherND", values, b.constant([[2, 1], [0, 0]]), out="y")
        least = np.sort(X, axis=-1)
        np.testing.assert_array_equal(self.infer(b, [2], x=X), [least[2, 1], least[0, 0]])

    def test_scattered_at_indices(self):
        """Updates are written at the positions of the values; other elements stay, or are added to."""
        updates = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
        where = np.argsort(-X, axis=-1, kind="stable")[:, :2]
        for reduction in ("none", "add"):
            with self.subTest(reduction):
                b, _, indices = of_data()
                u = b.input("u", np.float32, [3, 2])
                b.op("ScatterElements", "x", indices, u, axis=-1, reduction=reduction, out="y")
                right = X.copy()
                old = np.take_along_axis(X, where, -1) if reduction == "add" else 0
                np.put_along_axis(right, where, old + updates, -1)
                np.testing.assert_array_equal(self.infer(b, [3, 4], x=X, u=updates), right)

    def test_derivative(self):
        """The largest of products, in rows that are fixed in the file."""
        w = np.linspace(-1, 1.5, 12).reshape(3, 4).astype(np.float32)
        b = onnxbuild.Builder()
        product = b.op("Mul", b.input("x", np.float32, [3, 4]), b.parameter("w", w))
        values, _ = b.op("TopK", product, b.constant([2]), outputs=2, axis=-1)
        rows = b.op("Gather", values, b.constant([2, 0]), axis=0)
        b.op("ReduceSum", b.op("Mul", rows, rows), out="loss", keepdims=0)
        b.output("loss", np.float32, [])
        right = np.zeros((3, 4))
        y = np.float64(X) * w
        for row in (2, 0):
            for at in np.argsort(-y[row])[:2]:
                right[row, at] = 2 * y[row, at] * X[row, at]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnxwire.save(b.model(18), folder / "m.onnx")
            np.savez(folder / "in.npz", x=X)
            support.succeed(CLEAVE, "check", folder / "m.onnx", "--inputs", folder / "in.npz", "--interpret",
                            "--set", "train.loss=output:loss", "--gradients", folder / "g.npz")
            found = np.load(folder / "g.npz")
            name = next(n for n in found.files if n.endswith("w"))
            np.testing.assert_allclose(found[name], right, 1e-6, 1e-9)


if __name__ == "__main__":
    unittest.main()
