"""The example of README.md works unchanged: its Python exports a model, and its command
trains it on 2 x 2 ranks, starting from PyTorch's loss."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", ROOT / "build")).resolve()
STEPS = 3


class Readme(unittest.TestCase):
    def test_from_pytorch_to_four_ranks(self):
        section = re.search(r"^## From PyTorch.*?(?=^## )", (ROOT / "README.md").read_text(),
                            re.M | re.S)[0]
        script = re.search(r"```python\n(.*?)```", section, re.S)[1]
        command = re.search(r"^    (build/bin/cleave train .*?[^\\])\n", section, re.M | re.S)[1]
        words = shlex.split(command.replace("\\\n", " "))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            corpus = bytes(range(32, 127)) * 40
            (folder / "corpus.txt").write_bytes(corpus)
            # Also saves the weights, so that the loss can be compared.
            (folder / "export.py").write_text(
                script + '\ntorch.save(model, "model.pt")\n')
            subprocess.run([sys.executable, "export.py"], cwd=folder, check=True,
                           capture_output=True)
            words[words.index("--steps") + 1] = str(STEPS)
            done = subprocess.run([BUILD / "bin" / "cleave", *words[1:], "--set", "data.validation=0"],
                                  cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            log = [json.loads(line) for line in
                   (folder / "runs" / "model-1" / "log.jsonl").read_text().splitlines()]
            losses = [row["loss"] for row in log if "loss" in row]
            self.assertEqual(len(losses), STEPS)
            # The loss of any sample is nearly that of all: the text repeats.
            model = torch.load(folder / "model.pt", weights_only=False)
            tokens = torch.from_numpy(np.frombuffer(corpus, np.uint8)[:65 * 32].astype(np.int64))
            tokens = tokens.reshape(32, 65)
            with torch.no_grad():
                logits = model(tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            self.assertLess(abs(losses[0] - float(loss)), 0.05)
            self.assertLess(losses[-1], losses[0])
            # Names in checkpoints are PyTorch's.
            raw = (folder / "runs" / "model-1" / f"checkpoint-{STEPS:06d}" /
                   "model.safetensors").read_bytes()
            names = set(json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")]))
            self.assertLessEqual(names - {"__metadata__"}, set(model.state_dict()))
            self.assertGreater(len(names), 50)


if __name__ == "__main__":
    unittest.main()
