"""All kernels of whole models: generated for GPUs, interpreted on random data and compared with
the reference, and compiled to PTX."""

import pathlib
import re
import tempfile
import unittest

import support

OPT = support.BUILD / "bin" / "cleave-opt"
UNIT = support.BUILD / "bin" / "cleave-unit-codegen"


class GpuKernels(unittest.TestCase):
    def kernels(self, folder, model):
        """A module with the kernels of one rank."""
        sharded, formed = folder / "shard.mlir", folder / "kernels.mlir"
        support.succeed(support.CLEAVE, "compile", *support.model_flags(model), "--emit", "shard", "-o", sharded)
        support.succeed(OPT, "-nn-kernels-pipeline=device=cuda", sharded, "-o", formed)
        return formed

    def check(self, model):
        with tempfile.TemporaryDirectory() as name:
            formed = self.kernels(pathlib.Path(name), model)
            said = support.succeed(UNIT, "--gtest_filter=GpuKernel.OfAFile", env={"CLEAVE_TEST_KERNELS": str(formed)})
            self.assertIn("[  PASSED  ] 1 test", said)
            ptx = support.succeed(OPT, "-kernels-to-gpu=arch=sm_90", formed)
            count = formed.read_text().count("nn.kernel")
            self.assertEqual(ptx.count(".visible .entry"), count)
            # LLVM reads larger tables 16 bytes at a time.
            for alignment, size in re.findall(r"\.align (\d+) \.b8 \S*table\d+\[(\d+)\]", ptx):
                self.assertTrue(int(size) <= 16 or int(alignment) % 16 == 0, (alignment, size))

    def test_deepseek(self):
        self.check("deepseek")

    def test_t5(self):
        self.check("t5")

    def test_mixtral(self):
        self.check("mixtral")


if __name__ == "__main__":
    unittest.main()
