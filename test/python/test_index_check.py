"""An index out of range of its table is an error, whether it is in the data or computed by the model;
zeros are never returned. On one rank, on meshes that split samples or the table, in a pipeline, and interpreted."""

import pathlib
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support
from support import CLEAVE

BATCH, LENGTH, ROWS, WIDTH = 3, 6, 5, 4
MESHES = {
    "one rank": [],
    "samples": ["mesh.data=2"],  # 3 samples: one rank has padding
    "table": ["mesh.tensor=2", 'shard=[{match="table",dims=[["tensor"],[]]}]'],
    "stages": ["mesh.pipeline=2"],
}


def computed(path, depth=2):
    """table[9 - x] and vector[9 - x]: valid for x from 5 to 9, and from the end for 10 to 14."""
    rng = np.random.default_rng(0)
    b = onnxbuild.Builder()
    table = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    vector = rng.normal(size=ROWS).astype(np.float32)
    x = b.input("x", np.int64, ["batch", LENGTH])
    index = b.op("Sub", b.constant(9), x)
    y = b.op("Gather", b.parameter("table", table), index)
    z = b.op("Gather", b.parameter("vector", vector), index)
    y = b.op("Add", y, b.op("Unsqueeze", z, b.constant([2])))
    for _ in range(depth):
        y = b.op("Tanh", b.op("MatMul", y, b.parameter(f"w{b.count}", np.eye(WIDTH, dtype=np.float32))))
    b.op("Identity", y, out="y")
    b.output("y", np.float32, ["batch", LENGTH, WIDTH])
    b.op("ReduceMean", b.op("Mul", y, y), out="loss", keepdims=0)
    b.output("loss", np.float32, [])
    onnxwire.save(b.model(18), path)

    def right(x):
        y = table[9 - x] + vector[9 - x][..., None]
        for _ in range(depth):
            y = np.tanh(y)
        return y
    return right


def columns(path):
    """Each column of an array indexes its own table."""
    b = onnxbuild.Builder()
    x = b.input("x", np.int64, ["batch", 3])
    parts = []
    for column, rows in enumerate((3, 11, 7)):
        at = b.op("Gather", x, b.constant(column), axis=1)
        parts.append(b.op("Gather", b.parameter(f"table{column}", np.ones((rows, 2), np.float32)), at))
    b.op("Concat", *parts, out="y", axis=1)
    b.output("y", np.float32, ["batch", 6])
    onnxwire.save(b.model(18), path)


NARROW = """
func.func @forward(%table: tensor<200x4xf32> {nn.name = "table", nn.role = #nn.role<parameter>},
                   %x: tensor<2x3xi64> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<2x3x4xf32> {nn.batch_dim = 0 : i64, nn.name = "y", nn.role = #nn.role<output>}) {
  %narrow = arith.trunci %x : tensor<2x3xi64> to tensor<2x3xi8>
  %index = arith.extsi %narrow : tensor<2x3xi8> to tensor<2x3xi64>
  %y = nn.gather %table, %index dim = 0 : tensor<200x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}
"""


def flags(settings):
    return [flag for setting in settings for flag in ("--set", setting)]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class IndexCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.right = staticmethod(computed(cls.folder / "m.onnx"))
        columns(cls.folder / "columns.onnx")
        cls.good = np.random.default_rng(1).integers(5, 15, (BATCH, LENGTH))

    def infer(self, model, x, settings=()):
        np.savez(self.folder / "in.npz", x=x)
        return support.run(CLEAVE, "infer", self.folder / model, "--inputs", self.folder / "in.npz", "--outputs",
                           self.folder / "out.npz", "--cache", self.folder / "cache", *flags(settings))

    def refused(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("cleave: error:")]
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def test_computed_indices(self):
        for what, settings in MESHES.items():
            with self.subTest(mesh=what):
                settings = [f"dims.batch={BATCH}", *settings]
                done = self.infer("m.onnx", self.good, settings)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"], self.right(self.good), 1e-5, 1e-6)
                for value, index in ((4, 5), (15, -1), (2 ** 40, 14 - 2 ** 40)):
                    bad = self.good.copy()
                    bad[2, 5] = value
                    self.refused(self.infer("m.onnx", bad, settings), 3, f"index {index} ", f"{ROWS} rows",
                                 "n1, which reads table 'table' by input 'x'")

    def test_training(self):
        x = np.concatenate([self.good] * 2)
        for bad, code in ((False, 0), (True, 3)):
            x[4, 3] = 3 if bad else 7
            np.savez(self.folder / "data.npz", x=x)
            done = support.run(CLEAVE, "train", self.folder / "m.onnx", "--data", self.folder / "data.npz", "--steps", 2,
                               "--out", self.folder / f"run{code}", "--cache", self.folder / "cache",
                               *flags(["train.loss=output:loss", f"dims.batch={2 * BATCH}", "data.validation=0",
                                       "mesh.data=2"]))
            if bad:
                self.refused(done, code, "n1, which reads table 'table' by input 'x'", "index 6 ", f"{ROWS} rows")
            else:
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_interpreted(self):
        for bad in (False, True):
            x = self.good.copy()
            x[0, 0] = 4 if bad else 6
            np.savez(self.folder / "in.npz", x=x)
            for mesh in ("samples", "table"):
                done = support.run(CLEAVE, "check", self.folder / "m.onnx", "--inputs", self.folder / "in.npz",
                                   "--interpret", *flags(["train.loss=output:loss", f"dims.batch={BATCH}",
                                                          *MESHES[mesh]]))
                if bad:
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(f"n1, which reads table 'table' by input 'x': index 5 is beyond the {ROWS} rows",
                                  done.stderr)
                else:
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_narrowed(self):
        """Ids that the model casts to a narrower type are checked after the cast: 200 is -56 in 8 bits."""
        (self.folder / "narrow.mlir").write_text(NARROW)
        for value, code in ((127, 0), (300, 0), (2 ** 40 + 3, 0), (128, 2), (200, 2), (-1, 2)):
            with self.subTest(value=value):
                x = np.array([[1, 2, value], [0, 3, 4]])
                done = self.infer("narrow.mlir", x)
                if code:
                    read = "" if value == -1 else f", which the model reads as {value - 256}"
                    self.refused(done, code, f"the element at [0, 2] is {value}{read}", "200 rows", "table 'table'")
                    continue
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                found = np.load(self.folder / "out.npz")["y"]
                self.assertEqual(self.infer("narrow.mlir", x.astype(np.int8).astype(np.int64)).returncode, 0)
                np.testing.assert_array_equal(found, np.load(self.folder / "out.npz")["y"])
                self.assertTrue(np.all(np.any(found != 0, -1)))

    def test_cast_ids(self):
        """Ids that a file casts to i32 are checked before anything runs."""
        b = onnxbuild.Builder()
        ids = b.op("Cast", b.input("x", np.int64, ["batch", LENGTH]), to=6)
        b.op("Gather", b.parameter("table", np.ones((15, WIDTH), np.float32)), ids, out="y")
        b.output("y", np.float32, ["batch", LENGTH, WIDTH])
        onnxwire.save(b.model(18), self.folder / "cast.onnx")
        self.assertEqual(self.infer("cast.onnx", self.good).returncode, 0)
        for value in (15, -1):
            bad = self.good.copy()
            bad[2, 5] = value
            self.refused(self.infer("cast.onnx", bad), 2, f"the element at [2, 5] is {value}", "15 rows")

    def test_columns(self):
        good = np.array([[2, 10, 6], [0, 0, 0]])
        done = self.infer("columns.onnx", good)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for place, value, rows in (((1, 0), 3, 3), ((0, 1), 11, 11), ((1, 2), 7, 7), ((0, 0), -4, 3)):
            bad = good.copy()
            bad[place] = value
            self.refused(self.infer("columns.onnx", bad), 2, f"[{place[0]}, {place[1]}] is {value}", f"{rows} rows",
                         f"table '{'table' + str(place[1])}'")


if __name__ == "__main__":
    unittest.main()
