"""The committed reference results equal those of PyTorch and ONNX Runtime."""

import unittest

import numpy as np
import onnxruntime
import torch

import torch_models

NAMES = [f"{family}{variant}" for family in ("gpt2", "llama")
         for variant in ("", ".ts17", ".dynamo18", ".dynamo23")]


class References(unittest.TestCase):
    def test_loss_and_gradients_with_torch(self):
        for name in ("gpt2", "llama"):
            stored = np.load(torch_models.MODELS / f"{name}.npz")
            parameters = torch_models.load_parameters(name, torch.float64)
            loss = torch_models.loss(name, parameters, stored["input_ids"], stored["labels"])
            loss.backward()
            with self.subTest(model=name):
                self.assertAlmostEqual(float(loss.detach()), float(stored["loss"]), places=6)
            largest = max(float(p.grad.abs().max()) for p in parameters.values())
            for parameter, value in parameters.items():
                with self.subTest(model=name, parameter=parameter):
                    want, found = stored["grad/" + parameter], value.grad.numpy()
                    floor = max(np.abs(want).max(), 1e-3 * largest)
                    self.assertLess(np.abs(found - want).max() / floor, 1e-5)

    def test_logits_with_onnxruntime(self):
        for name in NAMES:
            with self.subTest(model=name):
                stored = np.load(torch_models.MODELS / torch_models.names_of(name)["reference"])
                session = onnxruntime.InferenceSession(torch_models.MODELS / f"{name}.onnx")
                # One sample at a time: some exports broadcast a cache of batch 1.
                for sample, want in enumerate(stored["logits"]):
                    ids = stored["input_ids"][sample : sample + 1]
                    feeds = {i.name: ids if i.name == "input_ids" else np.ones_like(ids)
                             for i in session.get_inputs()}
                    found = session.run(None, feeds)[0][0]
                    self.assertLess(np.abs(found - want).max() / np.abs(want).max(), 1e-4)


if __name__ == "__main__":
    unittest.main()
