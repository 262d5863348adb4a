"""`.mlir` programs with sharding annotations, as input of `cleave check` and `cleave explain`."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import support
import test_mpi
from support import CLEAVE, run

# In each row, the last logarithm but one is NaN, and the one before it is the largest.
NOT_A_NUMBER = """
dist.mesh @m <["x"=%d]>
func.func @main(%%x: tensor<2x10xf32>) -> (tensor<2xi64>, tensor<2x2xf32>, tensor<2x2xi64>) {
  %%i = nn.iota dim = 1 : tensor<2x10xf32>
  %%n = arith.constant dense<8.5> : tensor<2x10xf32>
  %%d = arith.subf %%n, %%i : tensor<2x10xf32>
  %%l = math.log %%d : tensor<2x10xf32>
  %%s = dist.constrain %%l <@m, [{}, {"x"}]> : tensor<2x10xf32>
  %%a = nn.argmax %%s dim = 1 : tensor<2x10xf32> -> tensor<2xi64>
  %%v, %%k = nn.top_k %%s k = 2 : tensor<2x10xf32> -> tensor<2x2xf32>, tensor<2x2xi64>
  %%f = arith.sitofp %%k : tensor<2x2xi64> to tensor<2x2xf32>
  return %%a, %%f, %%k : tensor<2xi64>, tensor<2x2xf32>, tensor<2x2xi64>
}
"""

INTEGERS = """
dist.mesh @m <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x4xi64> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>},
                %b: tensor<8x4xi1> {dist.sharding = #dist.sharding<@m, [{"x", "y"}, {}]>})
    -> (tensor<8x4xi64> {dist.sharding = #dist.sharding<@m, [{}, {}]>},
        tensor<8x4xi1> {dist.sharding = #dist.sharding<@m, [{}, {}]>}) {
  return %a, %b : tensor<8x4xi64>, tensor<8x4xi1>
}
"""

PART_OF_AN_AXIS = """
dist.mesh @m <["x"=4]>
func.func @main(%a: tensor<4x8xf32>)
    -> (tensor<4x8xf32> {dist.sharding = #dist.sharding<@m, [{"x":(2)2}, {"x":(1)2}]>}) {
  return %a : tensor<4x8xf32>
}
"""

# The last rank of y has no element; its reversed tile would begin before the tensor.
MORE_RANKS_THAN_ELEMENTS = """
dist.mesh @m <["x"=2, "y"=2]>
func.func @main(%a: tensor<7x7x1xi64>)
    -> (tensor<7x6x1xi64> {dist.sharding = #dist.sharding<@m, [{}, {}, {"y"}]>}) {
  %0 = nn.slice %a [0, 0, 0] [7, 6, 1] [1, 1, -1] : tensor<7x7x1xi64> -> tensor<7x6x1xi64>
  %1 = dist.constrain %0 <@m, [{}, {}, {"y"}], partial = sum{"x"}> : tensor<7x6x1xi64>
  return %1 : tensor<7x6x1xi64>
}
"""

EXPONENTIAL = """
dist.mesh @m <["x"=2, "y"=2]>
func.func @main(%a: tensor<10x6xf32> {dist.sharding = #dist.sharding<@m, [{"x"}, {}]>})
    -> (tensor<10x6xf32> {dist.sharding = #dist.sharding<@m, [{}, {"y"}]>}) {
  %0 = math.exp %a : tensor<10x6xf32>
  return %0 : tensor<10x6xf32>
}
"""


class Sharded(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.file = pathlib.Path(scratch.name) / "model.mlir"

    def check(self, text, *flags):
        self.file.write_text(text)
        return run(CLEAVE, "check", self.file, *flags)

    def passes(self, text, *flags):
        done = self.check(text, "--json", *flags)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(json.loads(done.stdout)["pass"])

    def test_nan_is_the_largest(self):
        for ranks in (1, 3, 4):
            for flags in ([], ["--interpret"], ["--against", "interpreter"]):
                with self.subTest(ranks=ranks, flags=flags):
                    self.passes(NOT_A_NUMBER % ranks, *flags)

    def test_integers_show_faults(self):
        self.passes(INTEGERS)
        for index in (0, 1):
            done = self.check(INTEGERS, "--inject", "swapped-axes", "--inject-index", index)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    def test_parts_of_axes_run_compiled(self):
        self.passes(PART_OF_AN_AXIS)

    def test_more_ranks_than_elements(self):
        self.passes(MORE_RANKS_THAN_ELEMENTS)

    def test_the_mesh_of_the_file_counts(self):
        self.passes(PART_OF_AN_AXIS, "--ranks", "4")
        for command in (["check"], ["explain"], ["compile", "-o", self.file.with_suffix(".out")]):
            done = run(CLEAVE, *command, self.file, "--ranks", "3")
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("has a dist.mesh of 4 ranks (x=4), but there are 3", done.stderr)

    @unittest.skipUnless(test_mpi.HAS_MPI, "no mpirun")
    def test_under_mpi(self):
        self.file.write_text(PART_OF_AN_AXIS)
        done = test_mpi.mpirun(4, CLEAVE, "check", self.file)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("pass:"), 1)

    def infer(self, started):
        self.file.write_text(EXPONENTIAL)
        values = np.linspace(-1, 1, 10 * 6, dtype=np.float32).reshape(10, 6)
        inputs, outputs = self.file.with_suffix(".in.npz"), self.file.with_suffix(".out.npz")
        np.savez(inputs, argument0=values)
        done = started(CLEAVE, "infer", self.file, "--inputs", inputs, "--outputs", outputs,
                       "--cache", self.file.with_suffix(".cache"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        np.testing.assert_allclose(np.load(outputs)["result0"], np.exp(values), rtol=1e-6)

    def test_infer_takes_the_mesh_of_the_file(self):
        self.infer(run)
        self.infer(lambda *command: run(*command, "--ranks", "4"))
        done = run(CLEAVE, "infer", self.file, "--inputs", self.file.with_suffix(".in.npz"),
                   "--outputs", self.file.with_suffix(".out.npz"), "--ranks", "3")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("has a dist.mesh of 4 ranks (x=2, y=2), but there are 3", done.stderr)

    @unittest.skipUnless(test_mpi.HAS_MPI, "no mpirun")
    def test_infer_under_mpi(self):
        self.infer(lambda *command: test_mpi.mpirun(4, *command))


class Ties(unittest.TestCase):
    def test_compile_ties_what_is_stored_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            support.succeed(CLEAVE, "compile", support.MODELS / "gpt2.ts17.onnx", "--config",
                            support.MODELS / "gpt2.ts17.toml", "-o", folder)
            manifest = json.loads((pathlib.Path(folder) / "manifest.json").read_text())
        tied = [tensor["name"] for tensor in manifest["tensors"] if tensor.get("aliases")]
        self.assertEqual(len(tied), 1, tied)


if __name__ == "__main__":
    unittest.main()
