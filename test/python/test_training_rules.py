"""Rules of training runs: microbatches, losses without labels, non-finite gradients, frozen
parameters, damaged files."""

import json
import pathlib
import shutil
import tempfile
import unittest

import numpy as np

import support
import onnxbuild
from support import CLEAVE, RUN


class Rules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rng = np.random.default_rng(0)

    def random(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def save(self, builder, name="m.onnx"):
        path = self.folder / name
        path.write_bytes(builder.model(18).bytes())
        return path

    def regression(self):
        self.a, self.b = self.random(6, 5), self.random(5, 3)
        b = onnxbuild.Builder()
        hidden = b.op("Tanh", b.op("MatMul", b.input("x", np.float32, ["batch", 6]),
                                   b.parameter("A", self.a)))
        b.op("MatMul", hidden, b.parameter("B", self.b), out="y")
        b.output("y", np.float32, ["batch", 3])
        return self.save(b)

    def command(self, model, out, *flags, batch=8, loss="mse"):
        if loss == "mse":  # the other losses are in the model, which may read no labels
            flags = ["--set", 'data.labels="z"', *flags]
        return [CLEAVE, "train", model, "--data", self.folder / "data.npz", "--out",
                self.folder / out, "--cache", self.folder / "cache", "--set", f"dims.batch={batch}",
                "--set", f'train.loss="{loss}"', *flags]

    def train(self, model, out, *flags, **keys):
        printed = support.succeed(*self.command(model, out, *flags, **keys))
        return support.read_log(self.folder / out), printed

    def data(self, rows=50):
        self.x, self.z = self.random(rows, 6), self.random(rows, 3)
        np.savez(self.folder / "data.npz", x=self.x, z=self.z)

    def test_parameters_that_the_loss_does_not_reach(self):
        """Parameters that the loss does not read have no gradient and do not decay, and a warning names them."""
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, ["batch", 6])
        first, second = self.random(6, 3), self.random(6, 3)
        for out, name, weight in (("y", "first", first), ("other", "second", second)):
            b.op("MatMul", x, b.parameter(name, weight), out=out)
            b.output(out, np.float32, ["batch", 3])
        model = self.save(b)
        self.data()
        for mesh in ([], ["mesh.data=2", "parallel.data.zero=3"]):
            with self.subTest(mesh=mesh):
                out = f"run{len(mesh)}"
                done = support.run(*self.command(model, out, "--steps", 3), *[w for key in (
                    *mesh, "train.logits=y", "train.weight_decay=0.5", "train.lr=0.1") for w in ("--set", key)])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("the loss does not depend on 1 parameter ('second'), which stay", done.stderr)
                found = support.read_safetensors(self.folder / out / "checkpoint-000003" / "model.safetensors")
                np.testing.assert_array_equal(found["second"], second)
                self.assertGreater(np.abs(found["first"] - first).min(), 0)

    def test_norms_of_zeros(self):
        """The derivative of a norm at zero is zero, as in PyTorch, so that a sample of zeros stops no run."""
        b = onnxbuild.Builder()
        weight = self.random(6, 3)
        y = b.op("MatMul", b.input("x", np.float32, ["batch", 6]), b.parameter("w", weight))
        norm = b.op("ReduceL2", y, b.constant([1]), keepdims=1)
        y = b.op("Div", y, b.op("Clip", norm, b.op("Constant", value=np.asarray(1e-12, np.float32))))  # F.normalize
        b.op("ReduceMean", b.op("Mul", y, b.op("Constant", value=np.asarray([[1, 2, 3]], np.float32))), out="loss", keepdims=0)
        b.output("loss", np.float32, [])
        model = self.save(b)
        x = self.random(8, 6)
        x[3] = 0
        np.savez(self.folder / "data.npz", x=x)
        self.train(model, "run", "--steps", 1, *[word for key in (
            "data.validation=0", "train.optimizer=sgd", "train.momentum=0", "train.weight_decay=0",
            "train.clip_norm=0", "train.schedule=constant", "train.lr=0.5") for word in ("--set", key)],
            loss="output:loss")
        found = support.read_safetensors(self.folder / "run" / "checkpoint-000001" / "model.safetensors")["w"]
        rows = x[np.arange(8) != 3].astype(np.float64)
        z = rows @ weight.astype(np.float64)
        size = np.linalg.norm(z, axis=1, keepdims=True)
        g = np.array([[1, 2, 3]]) / 24
        dz = (g - z / size * (g * z / size).sum(1, keepdims=True)) / size
        np.testing.assert_allclose(found, weight - 0.5 * (rows.T @ dz), rtol=1e-6, atol=1e-7)

    def test_microbatches(self):
        """Loss and gradient norm are those of the whole step, however it is split."""
        model = self.regression()
        self.data()
        want = None
        for count in (1, 2, 4):
            log, _ = self.train(model, f"m{count}", "--steps", 5, "--set",
                                f"train.microbatches={count}", "--set", "data.validation=0")
            found = np.array([[line["loss"], line["grad_norm"]] for line in log])
            want = found if want is None else want
            self.assertLess(np.abs(found / want - 1).max(), 1e-5, f"{count} microbatches")

    def test_microbatches_of_a_counted_mean(self):
        """A loss that is a sum over a count of its inputs: rows have unequal weights."""
        a, b = self.random(6, 4), onnxbuild.Builder()
        x, m = b.input("x", np.float32, ["batch", 6]), b.input("m", np.float32, ["batch", 4])
        y = b.op("Tanh", b.op("MatMul", x, b.parameter("A", a)))
        total = b.op("ReduceSum", b.op("Mul", b.op("Mul", y, y), m), keepdims=0)
        b.op("Div", total, b.op("ReduceSum", m, keepdims=0), out="loss")
        b.output("loss", np.float32, [])
        model = self.save(b)
        x, m = self.random(16, 6), (self.rng.random((16, 4)) < 0.3).astype(np.float32)
        np.savez(self.folder / "data.npz", x=x, m=m)
        want = None
        for flags in (["train.microbatches=1"], ["train.microbatches=4"],
                      ["train.microbatches=2", "mesh.data=2"]):
            log, _ = self.train(model, "".join(flags), "--steps", 3, "--set", "data.validation=0",
                                *(part for flag in flags for part in ("--set", flag)),
                                loss="output:loss")
            found = np.array([[line["loss"], line["grad_norm"]] for line in log])
            want = found if want is None else want
            self.assertLess(np.abs(found / want - 1).max(), 1e-5, flags)

    def test_signs_of_a_mean(self):
        """sum / n, and -(-sum / n), -sum / -n, -sum * (-1 / n)."""
        a, x = self.random(6, 4), self.random(16, 6)
        np.savez(self.folder / "data.npz", x=x)
        logs = []
        for form in range(4):
            b = onnxbuild.Builder()
            y = b.op("MatMul", b.input("x", np.float32, ["batch", 6]), b.parameter("A", a))
            total = b.op("ReduceSum", b.op("Mul", y, y), keepdims=0)
            if form:
                total = b.op("Neg", total)
            n = b.constant(-32.0 if form == 2 else 32.0, np.float32)
            if form == 3:
                b.op("Mul", total, b.constant(-1 / 32, np.float32), out="loss")
            elif form == 1:
                b.op("Neg", b.op("Div", total, n), out="loss")
            else:
                b.op("Div", total, n, out="loss")
            b.output("loss", np.float32, [])
            log, _ = self.train(self.save(b), f"s{form}", "--steps", 5, "--set",
                                "data.validation=0", "--set", "train.lr=0.05", batch=16,
                                loss="output:loss")
            logs.append([[line["loss"], line["grad_norm"]] for line in log])
        self.assertLess(logs[0][-1][0], logs[0][0][0])
        for log in logs[1:]:
            np.testing.assert_allclose(log, logs[0], rtol=1e-6)

    def test_indices_beyond_a_table(self):
        """Indices from any integer input are checked, not only tokens; the smallest table counts."""
        b = onnxbuild.Builder()
        kind = b.input("kind", np.int64, ["batch"])
        x = b.op("Add", b.op("Gather", b.parameter("big", self.random(9, 4)), kind),
                 b.op("Gather", b.parameter("small", self.random(2, 4)), kind))
        b.op("Mul", x, b.input("x", np.float32, ["batch", 4]), out="y")
        b.output("y", np.float32, ["batch", 4])
        model = self.save(b)
        for value, code in ((1, 0), (2, 2), (-1, 2)):
            arrays = {"kind": np.full(16, value, np.int64), "x": self.random(16, 4)}
            np.savez(self.folder / "data.npz", z=self.random(16, 4), **arrays)
            np.savez(self.folder / "in.npz", **arrays)
            for command in (self.command(model, f"k{value}", "--steps", 1),
                            [CLEAVE, "infer", model, "--inputs", self.folder / "in.npz",
                             "--outputs", self.folder / "out.npz"]):
                done = support.run(*command)
                self.assertEqual(done.returncode, code, done.stderr)
                if code:
                    self.assertIn(f"is {value}, beyond the rows of its table, 2 (input 'kind')",
                                  done.stderr)

    def test_held_out_loss_of_whole_microbatches(self):
        model = self.regression()
        self.data()
        log, printed = self.train(model, "v", "--steps", 1, "--set", "train.lr=0", "--set",
                                  "train.weight_decay=0", "--set", "data.validation=0.26", "--set",
                                  "data.shuffle_split=false")
        x, z = self.x[-13:][:8], self.z[-13:][:8]  # 13 are held out, 8 fit into a batch
        want = np.square(np.tanh(x @ self.a) @ self.b - z).mean()
        self.assertAlmostEqual(log[-1]["val_loss"], want, delta=1e-5)
        self.assertEqual(log[-1]["val_samples"], 8)
        self.assertIn("val_loss is of 8 of the 13 held-out samples", printed)

    def nan_gradient(self):
        """sqrt(x^2) has a finite value and a NaN gradient at 0."""
        table, head = self.random(9, 4), self.random(4, 5)
        head[:, 0] = 0
        b = onnxbuild.Builder()
        e = b.op("Gather", b.parameter("E", table), b.input("ids", np.int64, ["batch", "sequence"]))
        x = b.op("MatMul", e, b.parameter("W", head))
        b.op("Sqrt", b.op("Mul", x, x), out="logits")
        b.output("logits", np.float32, ["batch", "sequence", 5])
        np.save(self.folder / "tokens.npy", self.rng.integers(0, 5, 200).astype(np.int32))
        return self.save(b), table, head

    def test_a_nan_gradient_is_left_out(self):
        model, table, head = self.nan_gradient()
        for mesh in ([], ["--set", "mesh.data=2", "--set", "parallel.data.zero=1"]):
            for optimizer in ("adamw", "sgd"):
                out = self.folder / f"skip{len(mesh)}{optimizer}"
                flags = ["--data", self.folder / "tokens.npy", "--steps", 3, "--cache",
                         self.folder / "cache", "--set", "dims.batch=4", "--set",
                         "dims.sequence=6", "--set", f'train.optimizer="{optimizer}"', *mesh]
                printed = support.succeed(CLEAVE, "train", model, *flags, "--out", out, "--set",
                                          'train.on_nan="skip"')
                self.assertIn("step 1: left out, the gradient is not finite", printed)
                saved = out / "checkpoint-000003"
                weights = support.read_safetensors(saved / "model.safetensors")
                np.testing.assert_array_equal(weights["E"], table)
                np.testing.assert_array_equal(weights["W"], head)
                for state in support.read_safetensors(saved / "optimizer.safetensors").values():
                    self.assertFalse(state.any())
        done = support.run(CLEAVE, "train", model, *flags, "--out", self.folder / "stop")
        self.assertEqual(done.returncode, 3)
        self.assertIn("the first non-finite tensor is gradient of '", done.stderr)

    def test_data_that_is_not_finite(self):
        """The error names the first bad sample of the step, together with the tensor it affects."""
        model = self.regression()
        for value, called, what in ((np.nan, "NaN", "loss"), (np.inf, "infinite", "gradient norm")):
            self.data(rows=8)  # all rows are in the first step
            self.x[5, 2] = self.x[6, 0] = value
            np.savez(self.folder / "data.npz", x=self.x, z=self.z)
            done = support.run(*self.command(model, called, "--steps", 2, "--set", "data.validation=0"))
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"step 1: the {what} is not finite; nor is the data: {self.folder}/data.npz, "
                          f"array 'x', sample 5, element 2, is {called}; the first non-finite tensor "
                          "is", done.stderr)

    def test_skipping_changes_nothing_else(self):
        model = self.regression()
        self.data()
        logs = [self.train(model, name, "--steps", 5, "--set", f'train.on_nan="{name}"')[0]
                for name in ("stop", "skip")]
        self.assertEqual(*[[line["loss"] for line in log] for log in logs])

    def test_frozen_parameters_are_of_the_model(self):
        model = self.regression()
        self.data()
        self.train(model, "f", "--steps", 2, "--set", 'train.frozen=["A"]')
        saved = self.folder / "f" / "checkpoint-000002"
        weights = support.read_safetensors(saved / "model.safetensors")
        np.testing.assert_array_equal(weights["A"], self.a)
        self.assertTrue((weights["B"] != self.b).any())
        np.savez(self.folder / "in.npz", x=self.x)
        support.succeed(CLEAVE, "infer", model, "--inputs", self.folder / "in.npz", "--outputs",
                        self.folder / "out.npz", "--weights", saved, "--cache",
                        self.folder / "cache", "--set", "dims.batch=8")
        found = np.load(self.folder / "out.npz")["y"]
        self.assertLess(np.abs(found - np.tanh(self.x @ self.a) @ weights["B"]).max(), 1e-5)
        # A run may also resume with other parameters frozen.
        _, printed = self.train(model, "g", "--resume", saved, "--set",
                                "train.steps=4", "--set", 'train.frozen=["B"]')
        self.assertIn("has no optimizer state", printed)
        again = support.read_safetensors(self.folder / "g" / "checkpoint-000004" /
                                         "model.safetensors")
        np.testing.assert_array_equal(again["B"], weights["B"])
        self.assertTrue((again["A"] != self.a).any())

    def test_a_trained_program_infers_without_labels(self):
        model = self.regression()
        program = self.folder / "program"
        support.succeed(CLEAVE, "compile", model, "-o", program, "--set", "dims.batch=8", "--set",
                        'train.loss="mse"', "--set", 'data.labels="z"')
        x = self.random(8, 6)
        np.savez(self.folder / "in.npz", x=x)
        support.succeed(RUN, program, "infer", "--inputs", self.folder / "in.npz", "--outputs",
                        self.folder / "out.npz")
        found = np.load(self.folder / "out.npz")["y"]
        self.assertLess(np.abs(found - np.tanh(x @ self.a) @ self.b).max(), 1e-5)

    def test_damaged_artifacts_are_refused(self):
        model = self.regression()
        for name in ("a", "b"):
            support.succeed(CLEAVE, "compile", model, "-o", self.folder / name, "--set",
                            "dims.batch=8")
        for file in ("manifest.json", "program.bin", "kernels.so"):
            self.assertEqual((self.folder / "a" / file).read_bytes(),
                             (self.folder / "b" / file).read_bytes())
        np.savez(self.folder / "in.npz", x=self.random(8, 6))
        for file in ("program.bin", "kernels.so"):
            data = (self.folder / "a" / file).read_bytes()
            flipped = bytearray(data)
            flipped[len(data) // 2] ^= 4
            for damaged in (data[:len(data) // 2], b"", bytes(flipped), data + b"x", None):
                copy = self.folder / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(self.folder / "a", copy)
                (copy / file).unlink()
                if damaged is not None:
                    (copy / file).write_bytes(damaged)
                done = support.run(RUN, copy, "infer", "--inputs", self.folder / "in.npz",
                                   "--outputs", self.folder / "out.npz")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(file, done.stderr)
        manifest = json.loads((self.folder / "a" / "manifest.json").read_text())
        self.assertEqual([f["name"] for f in manifest["files"]], ["program.bin", "kernels.so"])


if __name__ == "__main__":
    unittest.main()
