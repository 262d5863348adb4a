"""A resumed run needs the model that was trained: another graph, or other constants, must be accepted explicitly;
other weights in the file, other value names, sizes and meshes count as the same model."""

import pathlib
import tempfile
import unittest

import numpy as np

import support  # extends sys.path
from support import CLEAVE, RUN, write_safetensors

import left_out
import onnxbuild
import onnxwire

SETS = ["data.labels=y", "data.validation=0", "train.loss=mse", "train.optimizer=sgd", "train.lr=0.01", "train.steps=4",
        "dims.batch=4"]


class ModelChanges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.shared.name)
        draw = np.random.default_rng(5)
        np.savez(cls.folder / "d.npz", x=draw.standard_normal((24, 6), dtype=np.float32),
                 y=draw.standard_normal((24, 3), dtype=np.float32))
        cls.model(cls, "m")
        cls.began = cls.folder / "run"
        support.succeed(*cls.command(cls, "m", "--out", cls.began, "--steps", 2))
        cls.checkpoint = cls.began / "checkpoint-000002"

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def model(self, file, activation="Tanh", limit=2.0, seed=1, bias="b", name="m", swapped=False, least=-1.0,
              lengthened=""):
        """y = activation(clip(x w1)) w2 + b; one bound is an initializer, the other a node, as exporters write it."""
        folder = self.folder / file
        folder.mkdir(exist_ok=True)
        draw = np.random.default_rng(seed)
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, ["n", 6])
        w1 = b.parameter("w1", draw.standard_normal((6, 8), dtype=np.float32))
        w2 = b.parameter("w2", draw.standard_normal((8, 3), dtype=np.float32))
        bias = b.parameter(bias, draw.standard_normal(3, dtype=np.float32))
        hidden = b.op("MatMul", x, w1, out="other" if swapped else None)
        low = b.op("Constant", value=np.array(least, np.float32), out="low" + lengthened)
        hidden = b.op("Clip", hidden, low, b.constant(limit, np.float32))
        attributes = {"alpha": 0.25} if activation == "LeakyRelu" else {}
        hidden = b.op(activation, hidden, **attributes)
        product = b.op("MatMul", hidden, w2)
        b.op("Add", *((bias, product) if swapped == "operands" else (product, bias)), out="out")
        b.output("out", np.float32, ["n", 3])
        onnxwire.save(b.model(18), folder / f"{name}.onnx")

    def command(self, file, *flags, sets=()):
        model = file if isinstance(file, pathlib.Path) else self.folder / file / "m.onnx"
        return list(map(str, [CLEAVE, "train", model, "--data", self.folder / "d.npz", "--cache", self.folder / "cache",
                              *(w for s in [*SETS, *sets] for w in ("--set", s)), *flags]))

    def resume(self, file, *flags, **options):
        return self.command(file, "--resume", self.checkpoint, "--dry-run", *flags, **options)

    def refused(self, words, *command):
        done = support.run(*command)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_another_graph(self):
        self.model("sigmoid", activation="Sigmoid")
        words = (f"{self.checkpoint}: would not go on as the same run: model 'm' has another graph, or other "
                 f"constants, than when it was trained; give the model that was trained, begin a run from these weights "
                 f"with --weights {self.checkpoint}, or say that it is meant with --accept model")
        self.refused(words, *self.resume("sigmoid"))
        said = support.succeed(*self.resume("sigmoid", "--accept", "model"))
        self.assertRegex(said, r'model = "1:\w+" \(was "1:\w+" up to step 2\)')
        support.succeed(*self.command("sigmoid", "--weights", self.checkpoint, "--dry-run"))
        # A compiled program rejects it, too; once accepted, the run has the new model.
        compiled = self.folder / "program"
        support.succeed(CLEAVE, "compile", self.folder / "sigmoid" / "m.onnx", "-o", compiled,
                        *(w for s in SETS for w in ("--set", s)))
        self.refused(words, RUN, compiled, "train", "--data", self.folder / "d.npz", "--resume", self.checkpoint)
        went = self.folder / "went"
        support.succeed(RUN, compiled, "train", "--data", self.folder / "d.npz", "--resume", self.checkpoint,
                        "--accept", "model", "--steps", "3", "--out", went)
        support.succeed(RUN, compiled, "train", "--data", self.folder / "d.npz", "--resume", went)
        self.refused("has another graph", *self.command("m", "--resume", went))

    def test_what_changes_the_graph(self):
        for change in ({"activation": "LeakyRelu"}, {"limit": 1.5}, {"least": -0.75}, {"swapped": "operands"}):
            self.model("changed", **change)
            with self.subTest(change):
                self.refused("has another graph, or other constants", *self.resume("changed"))

    def test_what_does_not(self):
        self.model("again", seed=2)
        support.succeed(*self.resume("again"))
        self.model("named", swapped=True, lengthened="er" * 20)
        support.succeed(*self.resume("named"))
        support.succeed(*self.resume("m", "--accept", "dims.batch", sets=["dims.batch=8", "train.microbatches=2"]))
        for sets in (["mesh.data=2"], ["mesh.pipeline=2", "parallel.pipeline.axis=pipeline"]):
            support.succeed(*self.resume("m", sets=sets))
        # For a model of another name, the message names the trained one.
        self.model("again", activation="Relu", name="n")
        self.refused("model 'n' has another graph, or other constants, than 'm', which was; give",
                     *self.resume(self.folder / "again" / "n.onnx"))

    def test_bound_arrays(self):
        """Dimensions belong to the model, but have a key of their own."""
        b = onnxbuild.Builder()
        x, k = b.input("x", np.float32, ["n", 6]), b.input("k", np.float32, [3])
        w = b.parameter("w", np.ones((6, 3), np.float32))
        b.op("Mul", b.op("MatMul", x, w), k, out="out")
        b.output("out", np.float32, ["n", 3])
        onnxwire.save(b.model(18), self.folder / "bound.onnx")
        array = self.folder / "k.npy"
        np.save(array, np.float32([1, 2, 3]))
        bind = ["--bind", f"k={array}"]
        run = self.folder / "bound"
        command = self.command(self.folder / "bound.onnx")
        support.succeed(*command, *bind, "--steps", "2", "--out", run)
        support.succeed(*command, *bind, "--resume", run, "--dry-run")
        np.save(array, np.float32([1, 2, 4]))
        # A supervisor resumes with the folder's path.
        for again in (command, [*command, *bind]):
            again = [*again, "--resume", run, "--dry-run"]
            self.refused("the array that input 'k' is bound to has changed; bind the one that was trained with, or say that "
                         "it is meant with --accept model", *again)
            self.assertRegex(support.succeed(*again, "--accept", "model"), r'data.bind.k = "\w+" \(was "\w+" up to step 2\)')
        self.refused("data.bind.k", *command, "--resume", run, "--config", self.written('[data.bind]\nk = "2"\n'))
        support.succeed(*command, "--resume", run, "--dry-run", "--bind", "k=2")

    def written(self, text):
        (self.folder / "c.toml").write_text(text)
        return self.folder / "c.toml"

    def test_what_modules_hold(self):
        """A buffer of a state_dict belongs to the checkpoint; a constant outside of it belongs to the model."""
        kind = "pkg.torch.export.graph_signature.InputSpec.kind"
        kept = "pkg.torch.export.graph_signature.InputSpec.persistent"
        kinds = {"constant": {kind: "CONSTANT_TENSOR"}, "passing": {kind: "BUFFER", kept: "False"},
                 "buffer": {kind: "BUFFER", kept: "True"}}
        rows = np.load(self.folder / "d.npz")["x"][:4]
        np.savez(self.folder / "rows.npz", x=rows)
        for name, metadata in kinds.items():
            for value in (2, 3):
                b = onnxbuild.Builder()
                x = b.input("x", np.float32, ["n", 6])
                w = b.parameter("w", np.eye(6, 3, dtype=np.float32))
                b.parameter("t", np.full(3, value, np.float32))
                b.values = [onnxbuild.value_info("t", np.float32, [3], metadata),
                            onnxbuild.value_info("w", np.float32, [6, 3], {kind: "PARAMETER", kept: "None"})]
                b.op("Mul", b.op("MatMul", x, w), "t", out="out")
                b.output("out", np.float32, ["n", 3])
                onnxwire.save(b.model(18), self.folder / f"{name}{value}.onnx")
            run = self.folder / name
            support.succeed(*self.command(self.folder / f"{name}2.onnx", "--steps", "2", "--out", run))
            other = self.folder / f"{name}3.onnx"
            trained = support.read_safetensors(run / "checkpoint-000002" / "model.safetensors")
            support.succeed(CLEAVE, "infer", other, "--inputs", self.folder / "rows.npz", "--outputs",
                            self.folder / "out.npz", "--weights", run, "--set", "dims.batch=4")
            np.testing.assert_allclose(np.load(self.folder / "out.npz")["out"],
                                       rows @ trained["w"] * (2 if name == "buffer" else 3), rtol=1e-5, atol=1e-6)
            resume = self.command(other, "--resume", run, "--dry-run")
            if name == "buffer":
                support.succeed(*resume)
            else:
                self.refused("has another graph, or other constants", *resume)

    def test_what_is_accepted_is_a_key(self):
        self.refused("--accept modle: there is no such key; expected model, data.path, or a key of the configuration",
                     *self.resume("m", "--accept", "modle"))
        self.refused("train.lr = 0.5 (was 0.01); leave it as it was, or say that it is meant with --accept train.lr",
                     RUN, self.compiled("train.lr=0.5"), "train", "--data", self.folder / "d.npz", "--resume", self.checkpoint)
        self.refused("--accept modle: there is no such key", *self.command("m", "--accept", "modle", "--dry-run"))
        support.succeed(RUN, self.folder / "train.lr=0.5", "train", "--data", self.folder / "d.npz", "--resume",
                        self.checkpoint, "--accept", "train.lr", "--dry-run")

    def compiled(self, change):
        folder = self.folder / change
        support.succeed(CLEAVE, "compile", self.folder / "m" / "m.onnx", "-o", folder,
                        *(w for s in [*SETS, change] for w in ("--set", s)))
        return folder

    def test_nn_programs(self):
        write_safetensors(self.folder / "w.safetensors", left_out.weights())
        x, y = left_out.clean(8)
        np.savez(self.folder / "p.npz", x=x, y=y)
        file = self.folder / "p.mlir"
        text = left_out.model(left_out.BATCH)

        def train(*flags):
            sets = ["data.labels=y", "data.validation=0", "train.optimizer=sgd"]
            return list(map(str, [CLEAVE, "train", file, "--data", self.folder / "p.npz", "--cache", self.folder / "cache",
                                  *(w for s in sets for w in ("--set", s)), *flags]))

        file.write_text(text)
        run = self.folder / "of_program"
        support.succeed(*train("--weights", self.folder / "w.safetensors", "--steps", "2", "--out", run))
        resume = train("--resume", run, "--steps", "4", "--set", "train.steps=4", "--dry-run")
        file.write_text("// A comment.\n" + text.replace("%2", "%sum"))
        support.succeed(*resume)
        size = 4 * left_out.IN * left_out.HIDDEN
        (self.folder / "w.bin").write_bytes(bytes(size))
        file.write_text(text.replace('nn.name = "w1"', f'nn.data = #nn.data<file = "w.bin", offset = 0, length = {size}, '
                                     'dtype = "f32">, nn.name = "w1"'))
        support.succeed(*resume)
        # The type does not tell which of its sizes is the batch.
        file.write_text(left_out.model(left_out.BATCH // 2))
        self.refused("has another graph", *resume)
        support.succeed(*resume, "--accept", "model")
        file.write_text(text.replace("dense<0.0>", "dense<0.125>"))
        self.refused("has another graph", *resume)
        file.write_text(text.replace("maximumf", "mulf"))
        self.refused("has another graph", *resume)


if __name__ == "__main__":
    unittest.main()
