"""Spellings of losses inside a model, in microbatches and on meshes, against training in NumPy."""

import pathlib
import tempfile
import unittest

import numpy as np

import losses_variants as variants
import onnxbuild
import onnxwire
import support
from support import CLEAVE

SEEDS, STEPS, BOUND = 500 if support.ALL else 10, 2, 1e-6
MESHES = [[], ["mesh.data=2"], ["mesh.pipeline=2"], ["mesh.data=2", "mesh.pipeline=2"]]
# The batch contains all data, so the order of samples does not matter.
KEYS = ["train.loss=output:loss", f"dims.batch={variants.BATCH}", "data.validation=0", "train.clip_norm=0",
        "train.weight_decay=0", "train.schedule=constant", "train.optimizer=sgd", "train.momentum=0"]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Variants(unittest.TestCase):
    def test_random_spellings(self):
        for seed in range(SEEDS):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as folder:
                self.check(pathlib.Path(folder), seed)

    def test_factors_that_are_numbers_of_samples(self):
        """A batch of 12, or microbatches of 6: adds before and after the sum over samples."""
        rng = np.random.default_rng(3)
        x, w = (rng.normal(size=s).astype(np.float32) for s in ((12, 3), (3, 2)))
        for inside, outside, mean in (([6, 12], [], False), ([12, 6], [], False), ([], [12], True), ([], [24, 6], True)):
            b = onnxbuild.Builder()
            batch = b.input("x", np.float32, ["batch", 3])
            y = b.op("MatMul", batch, b.parameter("w", w))
            y = b.op("Mul", y, y)
            number = lambda v: b.op("Constant", value=np.asarray(v, np.float32))
            for factor in inside:
                y = b.op("Mul", y, number(factor))
            if not mean:
                y = b.op("Div", y, b.op("Cast", b.op("Shape", batch, start=0, end=1), to=1))
            y = b.op("ReduceMean" if mean else "ReduceSum", y, keepdims=0)
            for factor in outside:
                y = b.op("Div", y, number(factor))
            b.op("Identity", y, out="loss")
            b.output("loss", np.float32, [])
            right = ((x.astype(np.float64) @ w) ** 2).sum() / (24 if mean else 12) * np.prod(inside) / np.prod(outside)
            with self.subTest(inside=inside, outside=outside), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                onnxwire.save(b.model(18), folder / "m.onnx")
                np.savez(folder / "data.npz", x=x)
                keys = [*KEYS, "dims.batch=12", "train.microbatches=2", "train.lr=0"]
                support.succeed(CLEAVE, "train", folder / "m.onnx", "--data", folder / "data.npz", "--steps", 1, "--out",
                                folder / "run", *[word for key in keys for word in ("--set", key)])
                found = [line["loss"] for line in support.read_log(folder / "run") if "loss" in line]
                np.testing.assert_allclose(found, [right], rtol=BOUND)

    def check(self, folder, seed):
        m, words = variants.generate(seed)
        onnxwire.save(m.b.model(18), folder / "m.onnx")
        np.savez(folder / "data.npz", **{n: m.data[n] for n in ("x", "target", "label", "mask")})
        microbatches, mesh = (3, 1, 3, 2)[seed % 4], MESHES[seed // 3 % 4]
        losses, moves, weights, rate = variants.train(m, STEPS)
        keys = [*KEYS, f"train.lr={rate}", f"train.microbatches={microbatches}", *mesh]
        where = f"{words}: {microbatches} microbatches, {mesh}"
        done = support.run(CLEAVE, "train", folder / "m.onnx", "--data", folder / "data.npz", "--steps", STEPS,
                           "--out", folder / "run", "--cache", folder / "cache",
                           *[word for key in keys for word in ("--set", key)])
        if "root of mean" in words and microbatches > 1:  # not a sum over samples
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"not known to add up over train.microbatches = {microbatches}", done.stderr)
            return
        self.assertEqual(done.returncode, 0, f"{where}: {done.stderr}")
        found = [line["loss"] for line in support.read_log(folder / "run") if "loss" in line]
        # The terms of a loss may cancel, and the initial parameters are already float32.
        moves[0] = 0
        for step, (loss, right, move) in enumerate(zip(found, losses, moves, strict=True)):
            self.assertLessEqual(abs(loss - right), BOUND * (1 + abs(right)) + move, f"{where}: step {step + 1}")
        after = support.read_safetensors(folder / "run" / f"checkpoint-{STEPS:06d}" / "model.safetensors")
        for name, right in weights.items():
            self.assertLessEqual(np.abs(after[name] - right).max(), BOUND * max(1, np.abs(right).max()),
                                 f"{where}: {name}")


if __name__ == "__main__":
    unittest.main()
