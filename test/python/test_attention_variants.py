"""Attention whose heads or features span several dimensions becomes one operation in every
spelling. Results equal NumPy's, and those of meshes that rely on the operation equal one rank's."""

import pathlib
import tempfile
import unittest

import numpy as np

import attention_variants as variants
import onnxwire
import support
from support import CLEAVE

SEEDS = 500 if support.ALL else 10
RING = ["mesh.sequence=2", 'parallel.sequence=[{kind="ring",axis="sequence"}]']
ULYSSES = ["mesh.sequence=2", 'parallel.sequence=[{kind="ulysses",axis="sequence"}]']
TENSOR = ["mesh.tensor=2"]


def flags(settings):
    dims = [f"dims.batch={variants.BATCH}", f"dims.sequence={variants.SEQUENCE}", "train.logits=logits"]
    return [flag for setting in dims + settings for flag in ("--set", setting)]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Variants(unittest.TestCase):
    def test_random_spellings(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(SEEDS):
                with self.subTest(seed=seed):
                    self.check(pathlib.Path(folder), seed)

    def check(self, folder, seed):
        model, tokens, outputs, kinds = variants.generate(seed, 2)
        onnxwire.save(model, folder / "m.onnx")
        np.savez(folder / "in.npz", ids=tokens)
        support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz", "--outputs",
                        folder / "out.npz", "--cache", folder / "cache", *flags([]))
        with np.load(folder / "out.npz") as found:
            for (name, right), kind in zip(outputs.items(), kinds):
                error = np.abs(found[name] - right).max() / np.abs(right).max()
                self.assertLess(error, 1e-5, kind)
        ir = support.succeed(CLEAVE, "import", folder / "m.onnx", *flags([]))
        self.assertEqual((ir.count("= nn.attention"), ir.count("= nn.softmax")), (2, 0), kinds)
        # Ulysses needs as many KV heads as ranks, or repeats them.
        mesh = (RING, TENSOR, RING, ULYSSES)[seed % 4]
        support.succeed(CLEAVE, "check", "--interpret", folder / "m.onnx", *flags(mesh))


if __name__ == "__main__":
    unittest.main()
