"""The batch need not be dimension 0: inputs and outputs without a batch dimension, or with
another one, in inference and in training."""

import pathlib
import tempfile
import unittest

import numpy as np

import support
import onnxbuild
from support import CLEAVE, MESHES

BATCH, SEQUENCE, WIDTH, WORDS = 4, 7, 8, 31
DIMS = ["--set", f"dims.batch={BATCH}", "--set", f"dims.sequence={SEQUENCE}"]


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rng = np.random.default_rng(0)
        self.table = self.random(WORDS, WIDTH)
        self.head = self.random(WIDTH, WORDS)

    def random(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def tokens(self, samples):
        return self.rng.integers(0, WORDS, (samples, SEQUENCE))

    def save(self, builder, name="m.onnx"):
        path = self.folder / name
        path.write_bytes(builder.model(18).bytes())
        return path

    def language_model(self, masked=False, named=True, extra=True):
        """Logits, and outputs with the batch in dimension 1 or without one."""
        b = onnxbuild.Builder()
        batch = "batch" if named else BATCH
        length = "sequence" if named else SEQUENCE
        x = b.op("Gather", b.parameter("E", self.table), b.input("ids", np.int64, [batch, length]))
        if masked:
            x = b.op("MatMul", b.input("mask", np.float32, [length, length]), x)
        logits = b.op("MatMul", x, b.parameter("W", self.head), out="logits")
        b.output("logits", np.float32, [batch, length, WORDS])
        if extra:
            b.op("Transpose", logits, out="t", perm=[1, 0, 2])
            b.output("t", np.float32, [length, batch, WORDS])
        if extra == "sums":
            b.op("ReduceSum", x, b.constant([0, 1]), out="sums", keepdims=0)
            b.output("sums", np.float32, [WIDTH])
        return self.save(b)

    def infer(self, model, *flags, **arrays):
        np.savez(self.folder / "in.npz", **arrays)
        done = support.run(CLEAVE, "infer", model, "--inputs", self.folder / "in.npz", "--outputs",
                           self.folder / "out.npz", "--cache", self.folder / "cache", *flags)
        out = dict(np.load(self.folder / "out.npz")) if done.returncode == 0 else {}
        return done, out

    def expect(self, found, want):
        self.assertEqual(found.shape, want.shape)
        self.assertLess(np.abs(found - want).max(), 1e-4)

    def test_samples_in_another_dimension(self):
        for named in (True, False):
            model = self.language_model(named=named)
            ids = self.tokens(11)  # three calls, the last one short
            want = self.table[ids] @ self.head
            for mesh, flags in MESHES.items():
                with self.subTest(mesh=mesh, named=named):
                    done, out = self.infer(model, *DIMS, *flags, ids=ids)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.expect(out["logits"], want)
                    self.expect(out["t"], want.transpose(1, 0, 2))

    def test_open_dimensions_are_the_arrays(self):
        model = self.language_model(masked=True)
        ids, mask = self.tokens(11), self.random(SEQUENCE, SEQUENCE)
        for flags in ([], DIMS[:2]):
            done, out = self.infer(model, *flags, ids=ids, mask=mask)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.expect(out["logits"], mask @ self.table[ids] @ self.head)
        done, _ = self.infer(model, ids=ids, mask=mask[1:])
        self.assertEqual(done.returncode, 2)
        self.assertIn("array 'mask': has shape", done.stderr)
        done = support.run(CLEAVE, "check", model, "--inputs", self.folder / "in.npz")
        self.assertEqual(done.returncode, 2)
        done, _ = self.infer(model, idz=ids)
        self.assertEqual(done.returncode, 2)
        self.assertIn("in.npz: array 'idz' is no input of the model; did you mean 'ids'?",
                      done.stderr)

    def test_outputs_of_a_whole_call(self):
        model = self.language_model(extra="sums")
        ids = self.tokens(BATCH)
        for mesh, flags in MESHES.items():
            with self.subTest(mesh=mesh):
                done, out = self.infer(model, *DIMS, *flags, ids=ids)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect(out["sums"], self.table[ids].sum((0, 1)))
        for samples in (3, 5):
            done, _ = self.infer(model, *DIMS, ids=self.tokens(samples))
            self.assertEqual(done.returncode, 2)
            self.assertIn("output 'sums' of shape [8] is computed from all samples of a call "
                          f"together, and a call takes {BATCH}", done.stderr)

    def test_an_input_without_samples(self):
        model = self.language_model(masked=True)
        ids, mask = self.tokens(11), self.random(SEQUENCE, SEQUENCE)
        want = mask @ self.table[ids] @ self.head
        for batch in (BATCH, SEQUENCE):  # also if the dimensions have equal sizes
            for mesh, flags in MESHES.items():
                with self.subTest(mesh=mesh, batch=batch):
                    done, out = self.infer(model, *DIMS, *flags, "--set", f"dims.batch={batch}",
                                           ids=ids, mask=mask)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.expect(out["logits"], want)
        for wrong in (self.random(11, SEQUENCE), self.random(1, SEQUENCE)):
            done, _ = self.infer(model, *DIMS, ids=ids, mask=wrong)
            self.assertEqual(done.returncode, 2)
            self.assertIn("array 'mask': has shape", done.stderr)

    def test_training_shares_it_among_samples(self):
        model = self.language_model(masked=True, extra=False)
        np.savez(self.folder / "data.npz", ids=self.tokens(40),
                 m=np.tril(np.ones((SEQUENCE, SEQUENCE), np.float32)), bad=self.random(40, SEQUENCE))
        want = None
        for number, flags in enumerate((*MESHES.values(), ["--set", "train.microbatches=2"])):
            out = self.folder / f"run{number}"
            support.succeed(CLEAVE, "train", model, "--data", self.folder / "data.npz", "--steps",
                            4, "--out", out, "--cache", self.folder / "cache", *DIMS, *flags,
                            "--set", "data.inputs.mask=m")
            losses = [line["loss"] for line in support.read_log(out)]
            want = want or losses
            self.assertLess(np.abs(np.subtract(losses, want)).max(), 1e-5)
        done = support.run(CLEAVE, "train", model, "--data", self.folder / "data.npz", "--steps", 4,
                           "--out", self.folder / "bad", "--cache", self.folder / "cache", *DIMS,
                           "--set", "data.inputs.mask=bad")
        self.assertEqual(done.returncode, 2)
        self.assertIn("array 'bad': has shape [40, 7], expected [7, 7]: input 'mask' has no batch "
                      "dimension", done.stderr)

    def test_a_mask_that_is_given_is_an_input(self):
        """A given mask input is used, though it defaults to ones."""
        b = onnxbuild.Builder()
        x = b.op("Gather", b.parameter("E", self.table),
                 b.input("input_ids", np.int64, ["batch", "sequence"]))
        keep = b.op("Unsqueeze", b.op("Cast", b.input("attention_mask", np.int64,
                                                     ["batch", "sequence"]), to=1),
                    b.constant([2]))
        b.op("MatMul", b.op("Mul", x, keep), b.parameter("W", self.head), out="logits")
        b.output("logits", np.float32, ["batch", "sequence", WORDS])
        model = self.save(b)
        ids = self.tokens(6)
        mask = (self.rng.random(ids.shape) < 0.5).astype(np.int64)
        flags = [*DIMS, "--set", 'data.tokens="input_ids"']
        done, out = self.infer(model, *flags, input_ids=ids, attention_mask=mask)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect(out["logits"], self.table[ids] * mask[..., None] @ self.head)
        done, out = self.infer(model, *flags, input_ids=ids)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect(out["logits"], self.table[ids] @ self.head)
        np.savez(self.folder / "in.npz", input_ids=ids[:BATCH], attention_mask=mask[:BATCH])
        done = support.run(CLEAVE, "check", model, "--inputs", self.folder / "in.npz", *flags,
                           "--set", "mesh.data=2", "--steps", 1)
        self.assertEqual(done.returncode, 0, done.stderr)

        def loss(*more, **arrays):
            """The loss of the first step, and the printed output."""
            out = self.folder / f"run-{len(list(self.folder.iterdir()))}"
            np.savez(self.folder / "data.npz", input_ids=ids, **arrays)
            said = support.succeed(CLEAVE, "train", model, "--data", self.folder / "data.npz",
                                   "--steps", 1, "--out", out, "--cache", self.folder / "cache",
                                   "--set", "data.validation=0", *flags, *more)
            return support.read_log(out)[0]["loss"], said

        ones, _ = loss()
        masked, said = loss(attention_mask=mask)
        self.assertGreater(abs(masked - ones), 1e-3)
        self.assertNotIn("not read", said)
        # Data given by name, and as a folder of arrays.
        self.assertEqual(loss("--set", "data.inputs.attention_mask=m", m=mask)[0], masked)
        folder = self.folder / "arrays"
        folder.mkdir()
        np.save(folder / "input_ids.npy", ids)
        np.save(folder / "attention_mask.npy", mask)
        out = self.folder / "of-folder"
        support.succeed(CLEAVE, "train", model, "--data", folder, "--steps", 1, "--out", out,
                        "--cache", self.folder / "cache", "--set", "data.validation=0", *flags)
        self.assertEqual(support.read_log(out)[0]["loss"], masked)
        # A configured input wins, and unread arrays are reported.
        kept, said = loss("--set", "data.inputs.attention_mask=ones", attention_mask=mask, labels=ids)
        self.assertEqual(kept, ones)
        self.assertIn("not read: 'attention_mask', 'labels'", said)


if __name__ == "__main__":
    unittest.main()
