"""A two-layer perceptron in nn IR trains equally on four ranks and on one."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

from support import ROOT

CLEAVE = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", ROOT / "build")) / "bin" / "cleave"
MODEL = ROOT / "test" / "Inputs" / "mlp.mlir"
RATES = {"adamw": 0.03, "sgd": 0.2}  # learning rates
MESHES = {"data=2": ["mesh.data=2"], "tensor=2": ["mesh.tensor=2"],
          "data=2 x tensor=2": ["mesh.data=2", "mesh.tensor=2"],
          "data=3 (uneven batch)": ["mesh.data=3"],
          "data=2 x tensor=2, ZeRO-1": ["mesh.data=2", "mesh.tensor=2", "parallel.data.zero=1"]}


class Perceptron(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
        np.savez(self.folder / "data.npz", x=x, labels=x[:, :5].argmax(1).astype(np.int32))

    def losses(self, name, settings, optimizer):
        out = self.folder / f"{name}-{optimizer}"
        settings = ["data.labels=labels", "data.validation=0", f"train.lr={RATES[optimizer]}",
                    f"train.optimizer={optimizer}", *settings]
        done = subprocess.run(
            [CLEAVE, "train", MODEL, "--data", self.folder / "data.npz", "--steps", "20",
             "--out", out, "--cache", self.folder / "cache",
             *[f"--set={setting}" for setting in settings]], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]

    def test_meshes(self):
        for optimizer in RATES:
            want = self.losses("one", [], optimizer)
            self.assertEqual(len(want), 20)
            self.assertLess(want[-1], want[0] - 0.1, "one rank does not learn")
            for number, (mesh, settings) in enumerate(MESHES.items()):
                with self.subTest(mesh=mesh, optimizer=optimizer):
                    found = self.losses(str(number), settings, optimizer)
                    self.assertLess(np.abs(np.subtract(found, want)).max(), 1e-5)

    def train(self, *flags):
        return subprocess.run(
            [CLEAVE, "train", MODEL, "--data", self.folder / "data.npz", "--steps", "2",
             "--set", "data.labels=labels", "--out", self.folder / "out", "--cache",
             self.folder / "cache", *flags], capture_output=True, text=True)

    def test_a_classifier_has_classes_and_samples(self):
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" samples/s", done.stdout)
        self.assertNotIn("tokens/s", done.stdout)
        np.savez(self.folder / "data.npz", x=np.zeros((64, 6), np.float32), labels=np.arange(64))
        done = self.train()
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("data.npz, array 'labels': the label at position 5 is 5, beyond the "
                      "model's number of classes, 5", done.stderr)

    def test_a_mesh_that_no_process_can_have(self):
        for command in (["check"], ["train", "--data", self.folder / "data.npz"]):
            done = subprocess.run([CLEAVE, command[0], MODEL, *command[1:], "--set",
                                   "mesh.tensor=1000000"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("the mesh has 1000000 ranks, but without a launcher all run as threads "
                          "of this process, at most 4096", done.stderr)
        done = subprocess.run([CLEAVE, "explain", MODEL, "--set", "mesh.tensor=3072"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
