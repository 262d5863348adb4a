"""Loss, logits and gradients of compiled programs agree with PyTorch's in float64
(test/models/*.npz), for every committed model, on one rank and on four.

Gradients are derived from one step of `cleave train` with plain SGD: w - w' = lr g.
The learning rate is so large that rounding w' only affects lr g.
"""

import pathlib
import tempfile
import unittest

import numpy as np

import support
import reference

RATE = 1e6
TOLERANCE = 1e-4
SGD = ["--steps", 1, "--set", "train.optimizer=sgd", "--set", f"train.lr={RATE}",
       "--set", "train.momentum=0.0", "--set", "train.weight_decay=0.0",
       "--set", "train.clip_norm=0.0", "--set", "train.schedule=constant",
       "--set", "data.labels=labels", "--set", "data.validation=0.0"]


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Gradients(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def each(self, check, first):
        """By default models take turns on the meshes."""
        for turn, name in enumerate(support.NAMES, first):
            for number, (mesh, flags) in enumerate(support.MESHES.items()):
                if not support.ALL and number != turn % len(support.MESHES):
                    continue
                with self.subTest(model=name, mesh=mesh):
                    check(name, self.folder / f"{name}-{number}",
                          [*support.model_flags(name), *flags, "--cache", self.folder / "cache"])

    def test_loss_and_gradients(self):
        self.each(self.check_gradients, 0)

    def check_gradients(self, name, out, flags):
        want = reference.load(name)
        data = self.folder / "data.npz"
        np.savez(data, input_ids=want["input_ids"], labels=want["labels"])
        support.succeed(support.CLEAVE, "train", *flags, *SGD, "--data", data, "--out", out)
        self.assertLess(abs(support.read_log(out)[0]["loss"] - want["loss"]), 1e-5)

        before = support.initializers(support.MODELS / f"{name}.onnx")
        after = support.read_safetensors(out / "checkpoint-000001" / "model.safetensors")
        gradients = {k[5:]: v for k, v in want.items() if k.startswith("grad/")}
        self.assertEqual(set(after), set(gradients))
        largest = max(np.abs(gradient).max() for gradient in gradients.values())
        for parameter, gradient in gradients.items():
            step = before[parameter].astype(np.float64) - after[parameter]
            error = reference.relative_error(step / RATE, gradient, largest)
            self.assertLess(error, TOLERANCE, parameter)

    def test_logits(self):
        self.each(self.check_logits, 1)

    def check_logits(self, name, out, flags):
        want = reference.load(name)
        inputs, outputs = self.folder / "in.npz", self.folder / "out.npz"
        np.savez(inputs, input_ids=want["input_ids"])
        support.succeed(support.CLEAVE, "infer", *flags, "--inputs", inputs, "--outputs", outputs)
        found = np.load(outputs)
        self.assertEqual(found.files, ["logits"])
        self.assertEqual(found["logits"].dtype, np.float32)
        self.assertEqual(found["logits"].shape, (8, 96, 257))
        count = len(want["logits"])
        error = np.abs(found["logits"][:count] - want["logits"]).max()
        self.assertLess(error / np.abs(want["logits"]).max(), TOLERANCE)


if __name__ == "__main__":
    unittest.main()
