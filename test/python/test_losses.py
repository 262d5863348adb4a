"""Losses that are part of the model, with microbatches: equal to those of one batch in PyTorch
(test/models/losses.npz, in double, by export_losses.py), or rejected."""

import itertools
import json
import pathlib
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support
from support import CLEAVE, MODELS

SPELLINGS = ("scaled", "clamped", "root", "classes", "smoothed", "two_means", "weights_first",
             "per_sample", "summed")
MESHES = {"one rank": [], "data": ["mesh.data=2"], "pipeline": ["mesh.pipeline=2"],
          "both": ["mesh.data=2", "mesh.pipeline=2"]}
OPTIMIZERS = {"sgd": (["train.optimizer=sgd", "train.lr=0.1", "train.momentum=0.9"], 1e-6),
              "adamw": (["train.optimizer=adamw", "train.lr=0.01"], 5e-6)}
# The batch contains all data, so the order of samples does not matter.
PLAIN = ["dims.batch=6", "data.validation=0", "train.clip_norm=0", "train.weight_decay=0",
         "train.schedule=constant", "data.tokens=ids",
         'data.inputs={y="y", target="target"}']


def flags(keys):
    return [word for key in keys for word in ("--set", key)]


class Losses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.want = np.load(MODELS / "losses.npz")
        np.savez(cls.folder / "data.npz", **{n: cls.want[n] for n in ("ids", "y", "target")})
        cls.model = MODELS / "losses.onnx"

    def command(self, name, spelling, *keys):
        return [CLEAVE, "train", self.model, "--data", self.folder / "data.npz", "--steps", 4,
                "--out", self.folder / name, "--cache", self.folder / "cache",
                *flags([*PLAIN, f"train.loss=output:{spelling}", *keys])]

    def compare(self, spelling, microbatches, mesh, optimizer):
        keys, bound = OPTIMIZERS[optimizer]
        name = f"{spelling}-{microbatches}-{mesh}-{optimizer}".replace(" ", "")
        support.succeed(*self.command(name, spelling, f"train.microbatches={microbatches}", *keys,
                                      *MESHES[mesh]))
        want = {key.split("/")[-1]: value for key, value in self.want.items()
                if key.startswith(f"{optimizer}/{spelling}/")}
        losses = [line["loss"] for line in support.read_log(self.folder / name) if "loss" in line]
        np.testing.assert_allclose(losses, want.pop("losses"), rtol=bound)
        weights = support.read_safetensors(
            self.folder / name / "checkpoint-000004" / "model.safetensors")
        for key, value in want.items():
            self.assertLessEqual(np.abs(weights[key] - value).max(),
                                 bound * max(1, np.abs(value).max()), key)

    def test_as_pytorch(self):
        cells = list(itertools.product(SPELLINGS, (1, 3), MESHES, OPTIMIZERS))
        if not support.ALL:
            # Each spelling in microbatches, on one mesh each, with one optimizer each.
            cells = [(spelling, 3, list(MESHES)[i % 4], list(OPTIMIZERS)[i // 2 % 2])
                     for i, spelling in enumerate(SPELLINGS)]
        for cell in cells:
            with self.subTest(cell=cell):
                self.compare(*cell)

    def test_one_sample_in_a_microbatch(self):
        """One sample per microbatch: the batch dimension disappears from the graph."""
        for spelling in support.some([s for s in SPELLINGS if s != "per_sample"], 2):
            with self.subTest(spelling=spelling):
                self.compare(spelling, 6, "one rank", "sgd")
        # With one sample the loss has the value of another output but comes from another node.
        # The compiler does not know that they are equal, and reports this.
        done = support.run(*self.command("merged", "per_sample", "train.microbatches=6"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("'per_sample' is not known to add up over train.microbatches = 6", done.stderr)

    def test_losses_that_mix_samples(self):
        for spelling, reason in (("contrastive", "mixes"), ("variance", "sum over samples")):
            with self.subTest(spelling=spelling):
                done = support.run(*self.command(spelling, spelling, "train.microbatches=3"))
                self.assertEqual(done.returncode, 2, done.stderr)
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                self.assertEqual(len(errors), 1, done.stderr)
                self.assertIn("train.microbatches = 3", errors[0])
        # One microbatch is the whole batch, on every mesh.
        logs = []
        for mesh in support.some(MESHES, 2):
            support.succeed(*self.command(f"whole-{mesh}", "contrastive", *MESHES[mesh]))
            logs.append([line["loss"] for line in support.read_log(self.folder / f"whole-{mesh}")])
        for log in logs[1:]:
            np.testing.assert_allclose(log, logs[0], rtol=1e-5)

    def test_losses_whose_samples_are_placed_by_number(self):
        """Losses that select samples by index, or view elements of several samples together, are rejected."""
        def picked(b, x, y):
            at = b.op("ArgMax", b.op("ReduceSum", x, b.constant([1]), keepdims=0), axis=0, keepdims=0)
            return b.op("Gather", b.op("ReduceSum", y, b.constant([1]), keepdims=0), at, axis=0)

        def viewed(b, x, y):
            batch = b.op("Shape", x, start=0, end=1)
            view = b.op("Reshape", y, b.op("Concat", b.constant([8]), batch, axis=0))
            return b.op("Mul", b.op("Softmax", view, axis=1), b.op("Tanh", view))

        weights = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
        for make, reason in ((picked, "'nn.gather' depends on several samples"),
                             (viewed, "has another layout of samples")):
            with self.subTest(loss=make.__name__):
                b = onnxbuild.Builder()
                x = b.input("x", np.float32, ["batch", 3])
                y = b.op("MatMul", x, b.parameter("w", weights))
                b.op("ReduceSum", make(b, x, y), out="loss", keepdims=0)
                b.output("loss", np.float32, [])
                model = self.folder / f"{make.__name__}.onnx"
                onnxwire.save(b.model(18), model)
                done = support.run(CLEAVE, "compile", model, "--emit", "train", "-o",
                                   self.folder / "out.mlir", "--set", "train.loss=output:loss",
                                   "--set", "dims.batch=4", "--set", "train.microbatches=2")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("'loss' is not known to add up over train.microbatches = 2", done.stderr)
                self.assertIn(reason, done.stderr)

    def test_held_out_samples_by_whole_batches(self):
        """In validation, too, a loss divides by the count of its own batch."""
        rows = np.arange(18) % 6
        np.savez(self.folder / "more.npz", **{n: self.want[n][rows] for n in ("ids", "y", "target")})
        command = self.command("held", "two_means", "train.microbatches=3", "data.validation=0.4",
                               "data.shuffle_split=false",
                               "train.lr=0", "train.optimizer=sgd")
        command[command.index(self.folder / "data.npz")] = self.folder / "more.npz"
        printed = support.succeed(*command)
        self.assertIn("val_loss is of 6 of the 7 held-out samples", printed)
        last = support.read_log(self.folder / "held")[-1]
        # Rows 11 to 16 contain each of the six samples once.
        self.assertAlmostEqual(last["val_loss"] / self.want["sgd/two_means/losses"][0], 1, delta=1e-6)

    def test_check_feeds_whole_steps(self):
        for mesh in support.some(MESHES, 2):
            with self.subTest(mesh=mesh):
                done = support.run(CLEAVE, "check", self.model, "--interpret", "--json", "--steps", 2,
                                   *flags([*PLAIN, "train.loss=output:two_means",
                                           "train.microbatches=3", *MESHES[mesh]]))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(json.loads(done.stdout)["pass"])


if __name__ == "__main__":
    unittest.main()
