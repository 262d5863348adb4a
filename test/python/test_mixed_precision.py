"""bf16 computation with f32 sums and master weights (train.precision = "bf16"): curves of losses,
cleave check under every parallelism, and what is sent."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

import support
import training
from support import CLEAVE

# Everything that splits a model, by what of it crosses ranks in which type.
MESHES = {
    "gpt2": [
        ("", {}),
        ("data=2", {}),
        ("data=2", {"parallel__data__zero": 3}),
        ("data=3", {"train__microbatches": 2}),
        ("tensor=2", {}),
        ("tensor=2", {"parallel__sequence": '[{kind="megatron",axis="tensor"}]'}),
        ("pipeline=2,data=2,tensor=2", {"train__microbatches": 2}),
    ],
    "llama": [
        ("data=2", {"parallel__data__zero": 3, "train__microbatches": 2}),
        ("sequence=2", {"parallel__sequence": '[{kind="ulysses",axis="sequence"}]'}),
        ("sequence=2", {"parallel__sequence": '[{kind="ring",axis="sequence"}]'}),
        ("sequence=3",
         {"parallel__sequence": '[{kind="ring",axis="sequence",plan="gather",order="plain"}]'}),
        ("pipeline=2", {"train__microbatches": 4, "parallel__pipeline__schedule": "zb-h1"}),
    ],
    "mixtral": [("", {}), ("expert=2", {}), ("data=2,expert=2", {})],
    "t5": [("data=2", {})],
}


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class MixedPrecision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def train(self, name, model, mesh="", *more, **keys):
        return training.train(self.folder / name, model, mesh, *more, **keys)

    def test_losses_stay_within_a_percent_of_fp32(self):
        for model in ("gpt2", "llama"):
            curves = []
            for precision in ("fp32", "bf16"):
                log, _ = self.train(f"{model}-{precision}", model, "", "--steps", 200,
                                    train__precision=precision)
                curves.append(np.array([line["loss"] for line in log]))
            single, mixed = curves
            with self.subTest(model=model):
                self.assertEqual(len(single), 200)
                self.assertLess(single[-1], 0.7 * single[0]) # it learns
                self.assertFalse((single == mixed).all())    # and is not fp32
                self.assertLess((abs(mixed - single) / single).max(), 0.01)

    def test_check(self):
        """The exact part in f64; rounding within 4 times that of the unsharded program."""
        for model, meshes in MESHES.items():
            for mesh, keys in meshes:
                with self.subTest(model=model, mesh=mesh, **keys):
                    said = json.loads(support.succeed(
                        CLEAVE, "check", *training.flags(model, mesh, train__precision="bf16",
                                                         **keys), "--json"))
                    self.assertTrue(said["pass"])
                    parts = {part: [t for t in said["tensors"] if t["part"] == part]
                             for part in ("exact", "rounding")}
                    self.assertLess(max(t["rel_error"] for t in parts["exact"]), 1e-9)
                    gradients = [t["rel_error"] for t in parts["rounding"] if t["kind"] == "gradient"]
                    # That of bf16, not of f32.
                    self.assertGreater(max(gradients), 1e-4)

    def test_faults_are_found(self):
        for kind, mesh in (("drop-collective", "tensor=2"),
                           ("sum-for-mean", "data=2"), ("wrong-group", "data=2,tensor=2")):
            with self.subTest(kind=kind):
                done = support.run(CLEAVE, "check",
                                   *training.flags("gpt2", mesh, train__precision="bf16"),
                                   "--inject", kind)
                self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
