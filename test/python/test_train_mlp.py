"""A two-layer perceptron in nn IR trains on four ranks as on one."""

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


if __name__ == "__main__":
    unittest.main()
