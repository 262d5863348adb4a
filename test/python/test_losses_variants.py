"""Spellings of losses inside a model, in microbatches and on meshes: as NumPy trains by them."""

import pathlib
import tempfile
import unittest

import numpy as np

import losses_variants as variants
import onnxwire
import support
from support import CLEAVE

SEEDS, STEPS, BOUND = 500 if support.ALL else 10, 2, 1e-6
MESHES = [[], ["mesh.data=2"], ["mesh.pipeline=2"], ["mesh.data=2", "mesh.pipeline=2"]]
# The batch is all of the data, so the order of samples is no matter.
KEYS = ["train.loss=output:loss", f"dims.batch={variants.BATCH}", "data.validation=0", "train.clip_norm=0",
        "train.weight_decay=0", "train.schedule=constant", "train.optimizer=sgd", "train.momentum=0",
        f"train.lr={variants.LEARNING_RATE}"]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Variants(unittest.TestCase):
    def test_random_spellings(self):
        for seed in range(SEEDS):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as folder:
                self.check(pathlib.Path(folder), seed)

    def check(self, folder, seed):
        m, words = variants.generate(seed)
        onnxwire.save(m.b.model(18), folder / "m.onnx")
        np.savez(folder / "data.npz", **{n: m.data[n] for n in ("x", "target", "label", "mask")})
        microbatches, mesh = (3, 1, 3, 2)[seed % 4], MESHES[seed // 3 % 4]
        keys = [*KEYS, f"train.microbatches={microbatches}", *mesh]
        where = f"{words}: {microbatches} microbatches, {mesh}"
        done = support.run(CLEAVE, "train", folder / "m.onnx", "--data", folder / "data.npz", "--steps", STEPS,
                           "--out", folder / "run", "--cache", folder / "cache",
                           *[word for key in keys for word in ("--set", key)])
        if "root of mean" in words and microbatches > 1:  # no sum over samples
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"not known to add up over train.microbatches = {microbatches}", done.stderr)
            return
        self.assertEqual(done.returncode, 0, f"{where}: {done.stderr}")
        losses, weights = variants.train(m, STEPS)
        found = [line["loss"] for line in support.read_log(folder / "run") if "loss" in line]
        # The terms of a loss may cancel.
        np.testing.assert_allclose(found, losses, rtol=BOUND, atol=BOUND, err_msg=where)
        after = support.read_safetensors(folder / "run" / f"checkpoint-{STEPS:06d}" / "model.safetensors")
        for name, right in weights.items():
            self.assertLessEqual(np.abs(after[name] - right).max(), BOUND * max(1, np.abs(right).max()),
                                 f"{where}: {name}")


if __name__ == "__main__":
    unittest.main()
