"""`cleave train` takes the same steps as torch.optim.AdamW, and `cleave infer` gives
the outputs of ONNX Runtime, on one rank and on four."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
import onnxruntime
import torch

import torch_models

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLEAVE = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", ROOT / "build")) / "bin" / "cleave"
BATCH, SEQUENCE, STEPS, LR = 8, 96, 20, 1e-3
MESHES = {"one rank": [], "four ranks": ["--set", "mesh.data=2", "--set", "mesh.tensor=2",
                                         "--set", "parallel.data.zero=1"]}


def cleave(*arguments):
    done = subprocess.run([CLEAVE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"cleave {' '.join(map(str, arguments))} ended with "
                             f"{done.returncode}:\n{done.stderr}")


def torch_losses(name, tokens):
    """20 steps on one batch that contains all data, so the order of samples does not
    matter."""
    samples = np.stack([tokens[i * SEQUENCE : (i + 1) * SEQUENCE + 1] for i in range(BATCH)])
    parameters = torch_models.load_parameters(name, torch.float32)
    matrices = [p for p in parameters.values() if p.dim() >= 2]
    vectors = [p for p in parameters.values() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch_models.loss(name, parameters, samples[:, :-1], samples[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_losses_of_twenty_steps(self):
        tokens = np.random.default_rng(0).integers(0, 256, BATCH * SEQUENCE + 1)
        data = self.folder / "data.txt"
        data.write_bytes(tokens.astype(np.uint8).tobytes())
        for name in ("gpt2", "llama"):
            want = torch_losses(name, tokens)
            for mesh, flags in MESHES.items():
                with self.subTest(model=name, mesh=mesh):
                    out = self.folder / f"{name}-{mesh.replace(' ', '-')}"
                    cleave("train", torch_models.MODELS / f"{name}.onnx",
                           "--config", torch_models.MODELS / f"{name}.toml", *flags,
                           "--set", "data.validation=0", "--set", f"train.lr={LR}",
                           "--set", "train.schedule=constant",
                           "--data", data, "--steps", STEPS, "--out", out)
                    log = [json.loads(line)
                           for line in (out / "log.jsonl").read_text().splitlines()]
                    found = [line["loss"] for line in log]
                    self.assertEqual(len(found), STEPS)
                    self.assertLess(np.abs(np.subtract(found, want)).max(), 1e-4)

    def test_outputs(self):
        ids = np.random.default_rng(1).integers(0, 257, (BATCH, SEQUENCE), dtype=np.int64)
        np.savez(self.folder / "in.npz", input_ids=ids)
        for name in ("gpt2", "llama", "llama.ts17"):
            session = onnxruntime.InferenceSession(torch_models.MODELS / f"{name}.onnx")
            feeds = {i.name: ids if i.name == "input_ids" else np.ones_like(ids)
                     for i in session.get_inputs()}
            want = session.run(None, feeds)[0]
            for mesh, flags in MESHES.items():
                with self.subTest(model=name, mesh=mesh):
                    out = self.folder / "out.npz"
                    cleave("infer", torch_models.MODELS / f"{name}.onnx",
                           "--config", torch_models.MODELS / f"{name}.toml", *flags,
                           "--inputs", self.folder / "in.npz", "--outputs", out)
                    found = np.load(out)["logits"]
                    self.assertEqual(found.shape, want.shape)
                    self.assertLess(np.abs(found - want).max() / np.abs(want).max(), 1e-4)


if __name__ == "__main__":
    unittest.main()
