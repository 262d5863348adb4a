"""Sliding windows, packed documents and soft-capped scores: models against NumPy, on
one rank and on a mesh, and `cleave check`."""

import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

import support
import training
import onnxbuild
import onnxwire

BATCH, LENGTH, HEADS, WIDTH = 3, 11, 2, 8


def attend(q, k, v, seen, cap=None):
    """Heads [b, n, s, d] and a mask that broadcasts to [b, n, s, t]."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if cap:
        scores = cap * np.tanh(scores / cap)
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total != 0) @ v


class Standard(unittest.TestCase):
    """The operator Attention, whose attributes replace explicit masks."""

    def build(self, folder, mask=None, **attributes):
        b = onnxbuild.Builder()
        shape = [BATCH, HEADS, LENGTH, WIDTH]
        inputs = [b.input(name, np.float32, shape) for name in "qkv"]
        if mask is not None:
            inputs.append(b.parameter("mask", mask))
        b.op("Attention", *inputs, out="y", **attributes)
        b.output("y", np.float32, shape)
        model = b.model(25)
        onnxwire.save(model, folder / "a.onnx")

    def compare(self, seen, cap=None, **attributes):
        rng = np.random.default_rng(1)
        arrays = {name: rng.standard_normal((BATCH, HEADS, LENGTH, WIDTH)).astype(np.float32)
                  for name in "qkv"}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            self.build(folder, **attributes)
            np.savez(folder / "in.npz", **arrays)
            support.succeed(support.CLEAVE, "infer", folder / "a.onnx", "--inputs",
                            folder / "in.npz", "--outputs", folder / "out.npz", "--cache",
                            folder / "cache")
            got = np.load(folder / "out.npz")["y"]
        wanted = attend(*(arrays[n].astype(float) for n in "qkv"), seen, cap)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)

    def test_attributes(self):
        ahead = np.arange(LENGTH)[None, :] - np.arange(LENGTH)[:, None]
        for left, right, causal in support.some([(2, 1, 0), (2, 2, 0), (3, -1, 1), (3, 2, 1),
                                                 (-1, 2, 0), (2, -1, 0), (0, 0, 0)], 4):
            seen = ((ahead >= -left) | (left < 0)) & ((ahead <= right) | (right < 0))
            if causal:
                seen &= ahead <= 0
            with self.subTest(left=left, right=right, causal=causal):
                self.compare(seen, cap=1.5, left_window_size=left, right_window_size=right,
                             is_causal=causal, softcap=1.5)

    def test_bad_attributes(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            self.build(folder, softcap=-1.0)
            np.savez(folder / "in.npz")
            done = support.run(support.CLEAVE, "infer", folder / "a.onnx", "--inputs",
                               folder / "in.npz", "--outputs", folder / "out.npz")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("softcap must be at least 0", done.stderr)


class Models(unittest.TestCase):
    """Whole models, generated with each kind of attention."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        for family in ("gpt2", "llama"):
            support.succeed(sys.executable, support.MODELS / "generate.py",
                            cls.folder / f"{family}.onnx", "--family", family, "--layers", 1,
                            "--batch", 4, "--sequence", 14, "--window", 4, "--softcap", 3,
                            "--documents")

    def flags(self, family):
        return [self.folder / f"{family}.onnx", "--config", self.folder / f"{family}.toml"]

    def test_no_bias_is_left(self):
        for family in ("gpt2", "llama"):
            out = self.folder / "import.mlir"
            support.succeed(support.CLEAVE, "compile", *self.flags(family), "--emit", "import",
                            "-o", out)
            line = next(l for l in out.read_text().splitlines() if "nn.attention" in l)
            for word in ("segments(%", "causal", "window = 4", "softcap = 3.0"):
                self.assertIn(word, line)
            self.assertNotIn("bias(", line)
            self.assertNotIn("positions(", line)

    def test_check(self):
        for family in ("gpt2", "llama"):
            for flags in support.some(reversed(support.MESHES.values()), 1):
                with self.subTest(family=family, flags=flags):
                    report = json.loads(support.succeed(
                        support.CLEAVE, "check", "--json", "--steps", 2, *self.flags(family),
                        *flags))
                    self.assertTrue(report["pass"])
                    self.assertLessEqual(report["max_rel_error"], 1e-9)


class Flops(unittest.TestCase):
    """The attention operations that `explain` models and that a run counts: blocks of 48
    queries and 96 keys with any visible pair."""

    def check(self, length, seen, mesh="", ranks=1, **sizes):
        """`seen`: the average number of keys that a query attends to."""
        model = training.generated(family="llama", layers=1, batch=2, sequence=length, **sizes)
        explained = training.explain(model, mesh)["per_rank"]
        with tempfile.TemporaryDirectory() as name:
            _, counters = training.train(pathlib.Path(name) / "run", model, mesh, "--steps", 1)
        counted = [rank["attention_flops"] for rank in counters["ranks"]]
        self.assertEqual(len(counted), ranks)
        # 8 heads of size 16: two products per pair forward, five backward.
        pairs = 2 // ranks * 8 * length * seen
        for rank, count in zip(explained, counted):
            self.assertEqual(rank["attention_flops"], pairs * 2 * 7 * 16)
            # The edges of blocks add up to 48 + 96 keys that a query does not attend to.
            self.assertGreaterEqual(count, rank["attention_flops"])
            self.assertLess(count, rank["attention_flops"] * (seen + 144) / seen)

    def test_causal(self):
        self.check(400, 401 / 2)
        self.check(400, 401 / 2, "data=2", ranks=2)

    def test_window(self):
        self.check(400, 64 - 64 * 63 / 2 / 400, window=64)


if __name__ == "__main__":
    unittest.main()
