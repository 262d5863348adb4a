"""Operators evaluated at import and at run time: both give NumPy's results, in every type of
ONNX."""

import pathlib
import tempfile
import unittest

import numpy as np

import folding
import onnxbuild
import onnxwire
import support
from support import CLEAVE

SEEDS, CASES = (500, 100) if support.ALL else (10, 40)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Folding(unittest.TestCase):
    def test_random_graphs(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for seed in range(SEEDS):
                with self.subTest(seed=seed):
                    self.check(folder, seed)

    def check(self, folder, seed):
        g, model = folding.generate(seed, CASES)
        onnxwire.save(model, folder / "m.onnx")
        np.savez(folder / "in.npz", **g.inputs)
        support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz",
                        "--outputs", folder / "out.npz", "--cache", folder / "cache")
        with np.load(folder / "out.npz") as found:
            wrong = [f"{case.name}, {case.mode}: {'; '.join(case.trace)}: {why}"
                     for case in g.cases if (why := folding.compare(case, found[case.name]))]
        self.assertEqual(wrong, [], f"seed {seed}")

    def infer(self, folder, b, **arrays):
        onnxwire.save(b.model(18), folder / "m.onnx")
        np.savez(folder / "in.npz", **arrays)
        support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz",
                        "--outputs", folder / "out.npz", "--cache", folder / "cache")
        return np.load(folder / "out.npz")

    def test_equal_nodes(self):
        """Nodes with equal known operands but different attributes: their results are not confused."""
        b = onnxbuild.Builder()
        n = np.arange(48, dtype=np.int64).reshape(6, 8) % 7
        x, other = b.constant(n), b.constant(n + 1)
        want = {}

        def add(name, value, expected):
            b.op("Identity", value, out=name)
            b.output(name, np.int64, list(expected.shape))
            want[name] = expected
        for turn in range(2):  # each node twice, as exporters repeat them for each layer
            for axis in (0, 1):
                add(f"sum{turn}{axis}", b.op("ReduceSum", x, b.constant([axis]), keepdims=0), n.sum(axis))
                add(f"kept{turn}{axis}", b.op("ReduceSum", x, b.constant([axis]), keepdims=1), n.sum(axis, keepdims=True))
                add(f"both{turn}{axis}", b.op("Concat", x, other, axis=axis), np.concatenate([n, n + 1], axis))
                add(f"turned{turn}{axis}", b.op("Concat", other, x, axis=axis), np.concatenate([n + 1, n], axis))
            add(f"less{turn}", b.op("Sub", x, other), n - (n + 1))
            add(f"more{turn}", b.op("Sub", other, x), n + 1 - n)
            view = b.op("Slice", x, b.constant([1]), b.constant([5]), b.constant([0]))
            add(f"view{turn}", b.op("Add", view, view), 2 * n[1:5])
            for type_, kind in ((6, np.int32), (9, np.bool_)):
                add(f"cast{turn}{type_}", b.op("Cast", b.op("Cast", x, to=type_), to=7), n.astype(kind).astype(np.int64))
            values, indices = b.op("TopK", x, b.constant([2]), outputs=2, axis=1, largest=turn)
            order = np.argsort(-n if turn else n, 1, kind="stable")[:, :2]
            add(f"top{turn}", values, np.take_along_axis(n, order, 1))
            add(f"where{turn}", indices, order)
        b.input("unread", np.int64, [1])
        with tempfile.TemporaryDirectory() as folder:
            found = self.infer(pathlib.Path(folder), b, unread=np.zeros(1, np.int64))
            for name, expected in want.items():
                np.testing.assert_array_equal(found[name], expected, name)

    def test_powers_of_integers(self):
        """Powers with float exponents through doubles, as in NumPy; with integer exponents exactly."""
        by_float = [int(np.power(np.int64(v), np.float32(39)).astype(np.int64)) for v in (3, -3, 1)]
        by_int = [3 ** 39, -3 ** 39, 1]
        self.assertEqual(by_float[0], 4052555153018976256)
        b = onnxbuild.Builder()
        base = b.input("x", np.int64, [3])
        for name, x in (("run", base), ("known", b.constant([3, -3, 1]))):
            for kind in (np.float32, np.int64):
                b.op("Pow", x, b.constant(39, kind), out=f"{name}_{kind.__name__}")
                b.output(f"{name}_{kind.__name__}", np.int64, [3])
        large = b.op("Pow", b.constant([3, 1]), b.constant([2 ** 63 + 1, 2 ** 64 - 1], np.uint64))
        b.op("Identity", large, out="large")
        b.output("large", np.int64, [2])
        with tempfile.TemporaryDirectory() as folder:
            found = self.infer(pathlib.Path(folder), b, x=np.array([3, -3, 1]))
            for name in ("run", "known"):
                np.testing.assert_array_equal(found[f"{name}_float32"], by_float)
                np.testing.assert_array_equal(found[f"{name}_int64"], by_int)
            np.testing.assert_array_equal(found["large"], [3, 1])

    def test_large_integers_around_data(self):
        """Pads with integers that no double can represent, also with negative pads."""
        x = np.arange(6).reshape(2, 3)
        for value in (2 ** 53 + 1, -2 ** 63, 2 ** 63 - 1):
            with self.subTest(value), tempfile.TemporaryDirectory() as folder:
                b = onnxbuild.Builder()
                b.op("Pad", b.input("x", np.int64, [2, 3]), b.constant([1, -1, 2, 1]), b.constant(value), out="y")
                b.output("y", np.int64, [5, 3])
                found = self.infer(pathlib.Path(folder), b, x=x)["y"]
                right = np.pad(x[:, 1:], [(1, 2), (0, 1)], constant_values=value)
                np.testing.assert_array_equal(found, right)

    def test_inputs_that_nothing_reads(self):
        """Unused inputs need neither arrays nor sizes, even if one looks like tokens."""
        b = onnxbuild.Builder()
        b.input("ids", np.int64, [2, 3])
        b.input("spare", np.float32, ["n", 3])
        b.op("Neg", b.input("x", np.float32, [2]), out="y")
        b.output("y", np.float32, [2])
        with tempfile.TemporaryDirectory() as folder:
            found = self.infer(pathlib.Path(folder), b, x=np.array([1, -2], np.float32))
            np.testing.assert_array_equal(found["y"], [-1, 2])

    def test_rows_of_minus_infinity(self):
        """Rows that are all -inf: log-sum-exp is -inf, and its derivative 0."""
        w = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)
        mask = np.zeros((3, 4), np.float32)
        mask[0] = mask[1, 2] = -np.inf
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, [3, 4])
        rows = b.op("Add", b.op("Mul", x, b.parameter("w", w)), b.input("mask", np.float32, [3, 4]))
        lse = b.op("ReduceLogSumExp", rows, b.constant([1]), keepdims=0)
        counted = b.op("Greater", lse, b.constant(-1e30, np.float32))
        b.op("ReduceSum", b.op("Where", counted, lse, b.constant(0, np.float32)), out="loss", keepdims=0)
        b.op("Identity", lse, out="lse")
        b.output("loss", np.float32, [])
        b.output("lse", np.float32, [3])
        x = np.cos(np.arange(12, dtype=np.float32)).reshape(3, 4)
        with np.errstate(divide="ignore"):
            e = np.exp(np.float64(x) * w + mask)
            right = np.log(e.sum(1))
        gradient = np.where(e.sum(1, keepdims=True) > 0, x * e / np.maximum(e.sum(1, keepdims=True), 1e-300), 0)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnxwire.save(b.model(18), folder / "m.onnx")
            np.savez(folder / "in.npz", x=x, mask=mask)
            support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz",
                            "--outputs", folder / "out.npz", "--cache", folder / "cache")
            np.testing.assert_allclose(np.load(folder / "out.npz")["lse"], right, 1e-5)
            support.succeed(CLEAVE, "check", folder / "m.onnx", "--inputs", folder / "in.npz", "--interpret",
                            "--set", "train.loss=output:loss", "--gradients", folder / "g.npz")
            found = np.load(folder / "g.npz")
            name = next(n for n in found.files if n.startswith("w") or n.endswith("w"))
            np.testing.assert_allclose(found[name], gradient, 1e-6, 1e-9)


if __name__ == "__main__":
    unittest.main()
