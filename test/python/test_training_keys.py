"""What the keys of [train] and [data] promise, through `cleave train` on ONNX models."""

import pathlib
import tempfile
import unittest

import numpy as np

import support
import onnxbuild
import onnxwire

BATCH, SEQUENCE = 8, 24
FOUR = ["--set", "mesh.data=2", "--set", "mesh.tensor=2", "--set", "parallel.data.zero=1"]
PLAIN_SGD = ["train.optimizer=sgd", "train.momentum=0.0", "train.weight_decay=0.0",
             "train.clip_norm=0.0", "train.schedule=constant"]


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.runs = 0
        cls.model = cls.folder / "m.onnx"
        cls.llama = cls.folder / "llama.onnx"
        sizes = dict(layers=1, hidden=24, heads=4, batch=BATCH)
        support.generate(cls.model, positions=SEQUENCE, **sizes)
        support.generate(cls.llama, family="llama", kv_heads=2, intermediate=40, sequence=SEQUENCE,
                         **sizes)
        cls.tokens = np.random.default_rng(0).integers(0, 256, BATCH * SEQUENCE + 1)
        # All of the data is one batch, so that the order of samples says nothing.
        cls.data = cls.folder / "one.txt"
        cls.data.write_bytes(cls.tokens.astype(np.uint8).tobytes())

        cls.text = cls.folder / "text.txt"
        cls.text.write_bytes(pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes())

    def train(self, *flags, sets=(), model=None, config=None, data=None, steps=1):
        """The log and the folder of a run."""
        type(self).runs += 1
        model = model or self.model
        out = self.folder / f"run-{self.runs}"
        sets = ["data.validation=0.0", *sets]
        support.succeed(support.CLEAVE, "train", model, "--config",
                        config or model.with_suffix(".toml"), "--data", data or self.data,
                        "--steps", steps, "--out", out, "--cache", self.folder / "cache",
                        *[word for key in sets for word in ("--set", key)], *flags)
        return support.read_log(out), out

    def losses(self, *arguments, **options):
        return [line["loss"] for line in self.train(*arguments, **options)[0]]

    def parameters(self, out, step=1):
        return support.read_safetensors(out / f"checkpoint-{step:06d}" / "model.safetensors")

    def assert_close(self, found, wanted, tolerance=1e-5):
        for name, value in wanted.items():
            error = np.abs(found[name].astype(np.float64) - value).max()
            self.assertLess(error, tolerance * max(np.abs(value).max(), 1e-3), name)

    def gradients(self):
        rate = 1e6
        _, out = self.train(sets=[*PLAIN_SGD, f"train.lr={rate}"])
        before, after = support.initializers(self.model), self.parameters(out)
        return {name: (before[name].astype(np.float64) - after[name]) / rate for name in after}

    # Steps

    def test_microbatches(self):
        for model in (self.model, self.llama):
            flags = dict(model=model, data=self.text, steps=4)
            want = self.losses(**flags)
            for mesh, count in (([], 8), (FOUR, 2)):
                with self.subTest(model=model.name, mesh=mesh, microbatches=count):
                    found = self.losses(*mesh, sets=[f"train.microbatches={count}"], **flags)
                    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)

    def test_schedules(self):
        model = self.folder / "schedules.onnx"  # any, and it compiles soon
        self.tied_model(model, True)

        def lr(schedule, warmup, steps, lowest):
            sets = [f"train.schedule={schedule}", f"train.warmup_steps={warmup}", "train.lr=0.01",
                    f"train.min_lr={lowest}"]
            return [line["lr"] for line in self.train(model=model, sets=sets, steps=steps)[0]]

        for schedule, shape in {
            "constant": lambda t: 1.0,
            "linear": lambda t: 1 - t,
            "cosine": lambda t: 0.5 * (1 + np.cos(np.pi * t)),
        }.items():
            for warmup, lowest in ((0, 0.0), (3, 0.001)):
                want = [0.01 * (i + 1) / warmup if i < warmup else
                        lowest + (0.01 - lowest) * shape((i - warmup) / (10 - warmup))
                        for i in range(10)]
                np.testing.assert_allclose(lr(schedule, warmup, 10, lowest), want, rtol=1e-6)

    def test_clip(self):
        gradients = self.gradients()
        norm = np.sqrt(sum((g ** 2).sum() for g in gradients.values()))
        for mesh in ([], FOUR):
            for clip in (norm / 4, norm * 4):
                log, out = self.train(*mesh, sets=[*PLAIN_SGD, "train.lr=1000.0",
                                                   f"train.clip_norm={clip}"])
                self.assertAlmostEqual(log[0]["grad_norm"] / norm, 1, places=5)
                factor = 1000 * min(1, clip / (norm + 1e-6))
                before = support.initializers(self.model)
                self.assert_close(self.parameters(out), {
                    name: before[name] - factor * gradient
                    for name, gradient in gradients.items()})

    def test_adamw_first_step(self):
        # m / (1 - b1) = g and v / (1 - b2) = g^2; matrices decay, vectors do not.
        gradients = self.gradients()
        sets = ["train.lr=0.1", "train.weight_decay=0.5", "train.eps=0.001",
                "train.clip_norm=0.0", "train.schedule=constant"]
        before = support.initializers(self.model)

        def want(decays):
            return {name: before[name] * (1 - 0.05 * decays(name))
                    - 0.1 * gradient / (np.abs(gradient) + 1e-3)
                    for name, gradient in gradients.items()}

        for mesh in ([], FOUR):
            _, out = self.train(*mesh, sets=sets)
            self.assert_close(self.parameters(out), want(lambda name: before[name].ndim >= 2))
        _, out = self.train(sets=[*sets, 'train.no_decay=[".*wte.*"]'])
        self.assert_close(self.parameters(out), want(lambda name: before[name].ndim >= 2
                                                     and "wte" not in name))

    def test_sgd(self):
        gradients, rate = self.gradients(), 0.1
        before = support.initializers(self.model)
        sets = [*PLAIN_SGD, f"train.lr={rate}"]
        plain = self.parameters(self.train(sets=sets, steps=2)[1], 2)
        for mesh in ([], FOUR):
            # The second step has the first's gradient once more, times the momentum.
            found = self.parameters(self.train(*mesh, sets=[*sets, "train.momentum=0.9"],
                                               steps=2)[1], 2)
            self.assert_close(found, {name: plain[name] - rate * 0.9 * gradients[name]
                                      for name in gradients})
            found = self.parameters(self.train(*mesh, sets=[*sets, "train.weight_decay=0.5"])[1])
            self.assert_close(found, {
                name: before[name] - rate * (g + 0.5 * before[name] * (g.ndim >= 2))
                for name, g in gradients.items()})

    def test_dropout(self):
        for model in (self.model, support.MODELS / "gpt2.onnx"):
            flags = dict(model=model, steps=3, data=self.data)
            dropout = ["train.dropout=0.2"]
            if model is not self.model:  # as an exporter writes it
                flags = dict(model=model, steps=2, data=self.text)
                dropout += ["dims.batch=6", "dims.sequence=16"]
            without = self.losses(sets=dropout[1:], **flags)
            want = self.losses(sets=dropout, **flags)
            self.assertGreater(np.abs(np.subtract(want, without)).max(), 1e-3)
            self.assertEqual(self.losses(sets=dropout, **flags), want)
            meshes = [FOUR, ["--set", "mesh.data=3"]]
            if model is self.model:
                meshes += [["--set", "mesh.tensor=4"], ["--set", "train.microbatches=2"],
                           [*FOUR, "--set", "train.microbatches=2"]]
            for mesh in support.some(meshes, 2 if model is self.model else 1):
                with self.subTest(model=model.name, mesh=mesh):
                    np.testing.assert_allclose(self.losses(*mesh, sets=dropout, **flags), want,
                                               rtol=0, atol=2e-5)
            if model is self.model:
                other = self.losses(sets=[*dropout, "train.seed=1"], **flags)
                self.assertGreater(np.abs(np.subtract(want, other)).max(), 1e-4)

    def test_dropout_of_samples_after_positions(self):
        """As many samples as positions: which is which is known by what they come from. Merged
        weights and frozen ones are weights, whatever their sizes are."""
        size, width = 4, 8
        draw = np.random.default_rng(5)
        b = onnxbuild.Builder()

        def weight(name):
            return b.parameter(name, draw.standard_normal((width, width)).astype(np.float32) * 0.4)

        x = b.input("x", np.float32, ["batch", size, width])
        merged = b.op("Add", weight("w"), b.op("MatMul", weight("a"), weight("b")))
        x = b.op("Add", x, b.op("Tanh", b.op("MatMul", x, merged)))
        turned = b.op("Transpose", x, perm=[1, 0, 2])
        inner = b.op("Relu", b.op("MatMul", turned, weight("up")))
        turned = b.op("Add", turned, b.op("MatMul", inner, weight("down")))
        b.op("MatMul", b.op("Transpose", turned, perm=[1, 0, 2]), weight("head"), out="y")
        b.output("y", np.float32, ["batch", size, width])
        model = self.folder / "turned.onnx"
        onnxwire.save(b.model(18), model)
        data, config = self.folder / "turned.npz", self.folder / "turned.toml"
        np.savez(data, x=draw.standard_normal((8, size, width)).astype(np.float32),
                 goal=draw.standard_normal((8, size, width)).astype(np.float32))
        config.write_text("[dims]\nbatch = 4\n")
        sets = ["train.loss=mse", "data.labels=goal", "train.dropout=0.3", 'train.frozen=["up"]']
        flags = dict(model=model, config=config, data=data, steps=3, sets=sets)
        want = self.losses(**flags)
        for mesh in support.some((["mesh.data=2"], ["train.microbatches=2"], ["train.microbatches=4"],
                                  ["mesh.tensor=2"], ["mesh.data=2", "train.microbatches=2"]), 3):
            with self.subTest(mesh=mesh):
                words = [word for key in mesh for word in ("--set", key)]
                np.testing.assert_allclose(self.losses(*words, **flags), want, rtol=1e-5)

    # Data

    def test_kinds_of_data(self):
        text = np.tile(self.tokens, 7)
        (self.folder / "t.txt").write_bytes(text.astype(np.uint8).tobytes())
        want = self.losses(data=self.folder / "t.txt", steps=3)
        for dtype in ("uint8", "int16", "int32", "int64"):
            np.save(self.folder / "t.npy", text.astype(dtype))
            self.assertEqual(self.losses(data=self.folder / "t.npy", steps=3), want)
        for dtype in ("uint8", "uint16", "int32", "int64"):
            text.astype(dtype).tofile(self.folder / "t.bin")
            sets = [] if dtype == "uint16" else [f"data.dtype={dtype}"]
            self.assertEqual(self.losses(sets=sets, data=self.folder / "t.bin", steps=3), want)
        np.savez(self.folder / "t.npz", input_ids=text)
        self.assertEqual(self.losses(data=self.folder / "t.npz", steps=3), want)
        (self.folder / "arrays").mkdir()
        np.save(self.folder / "arrays" / "input_ids.npy", text)
        self.assertEqual(self.losses(data=self.folder / "arrays", steps=3), want)
        # data.path of the configuration is the same as --data.
        self.assertNotEqual(self.losses(sets=["data.seed=5"], data=self.folder / "t.txt",
                                        steps=3), want)

    def test_validation_loss(self):
        # One batch to train on and one held out.
        random = np.random.default_rng(3)
        count = BATCH * SEQUENCE + 1
        parts = [random.integers(0, 256, count), random.integers(0, 256, count)]
        np.save(self.folder / "both.npy", np.concatenate(parts))
        np.save(self.folder / "held.npy", parts[1])
        still = [*PLAIN_SGD, "train.lr=1e-30"]
        want = self.losses(sets=still, data=self.folder / "held.npy")[0]
        # Dropout is off where the model is only judged.
        for mesh, dropout in (([], 0.0), ([], 0.3), (FOUR, 0.3),
                              (["--set", "train.microbatches=2"], 0.3)):
            with self.subTest(mesh=mesh, dropout=dropout):
                log, _ = self.train(
                    *mesh, sets=[*still, "data.validation=0.5", f"train.dropout={dropout}"],
                    data=self.folder / "both.npy")
                self.assertAlmostEqual(log[0]["val_loss"], want, places=5)

    # Parameters

    def test_frozen_and_trainable(self):
        names = set(self.gradients())
        before = {k: v for k, v in support.initializers(self.model).items() if k in names}
        for sets, moves in (
            (['train.frozen=[".*attn.*", ".*wte.*"]'],
             lambda name: "attn" not in name and "wte" not in name),
            (['train.trainable=[".*mlp.*"]'], lambda name: "mlp" in name),
            (['train.trainable=[".*mlp.*"]', 'train.frozen=[".*bias"]'],
             lambda name: "mlp" in name and not name.endswith("bias")),
        ):
            for mesh in ([], FOUR):
                with self.subTest(sets=sets, mesh=mesh):
                    _, out = self.train(*mesh, sets=sets, steps=2)
                    after = self.parameters(out, 2)
                    self.assertEqual(set(after), set(before))
                    for name, value in after.items():
                        self.assertEqual(not np.array_equal(value, before[name]), moves(name), name)
                    state = support.read_safetensors(
                        out / "checkpoint-000002" / "optimizer.safetensors")
                    for name in before:
                        self.assertEqual(any(name in key for key in state), moves(name), name)
                    # Whoever reads it need not know what was frozen.
                    inputs, outputs = self.folder / "ids.npz", self.folder / "logits.npz"
                    np.savez(inputs, input_ids=self.tokens[:-1].reshape(BATCH, SEQUENCE))
                    support.succeed(support.CLEAVE, "infer", self.model, "--config",
                                    self.model.with_suffix(".toml"), "--inputs", inputs,
                                    "--outputs", outputs, "--weights", out / "checkpoint-000002",
                                    "--cache", self.folder / "cache")

    def tied_model(self, path, same):
        b = onnxbuild.Builder()
        tokens = b.input("tokens", np.int64, [BATCH, SEQUENCE])
        random = np.random.default_rng(1)
        table = random.normal(size=(257, 12)).astype(np.float32)
        other = table.T.copy() if same else random.normal(size=(12, 257)).astype(np.float32)
        x = b.op("Gather", b.parameter("table", table), tokens)
        x = b.op("Tanh", b.op("MatMul", x, b.parameter("w", np.eye(12, dtype=np.float32))))
        b.op("MatMul", x, b.parameter("head", other), out="logits")
        b.output("logits", np.float32, [BATCH, SEQUENCE, 257])
        onnxwire.save(b.model(18), path)
        (path.with_suffix(".toml")).write_text("")

    def test_ties(self):
        same, apart = self.folder / "same.onnx", self.folder / "apart.onnx"
        self.tied_model(same, True)
        self.tied_model(apart, False)
        inputs = self.folder / "in.npz"
        np.savez(inputs, tokens=self.tokens[:-1].reshape(BATCH, SEQUENCE))

        def logits(model, out, *flags):
            outputs = self.folder / "out.npz"
            support.succeed(support.CLEAVE, "infer", model, "--inputs", inputs, "--outputs", outputs,
                            "--weights", out / "checkpoint-000003", "--cache",
                            self.folder / "cache", *flags)
            return np.load(outputs)["logits"]

        def model_of(weights, head):
            x = weights["table"][self.tokens[:-1].reshape(BATCH, SEQUENCE)]
            return np.tanh(x @ weights["w"]) @ head

        tie = ["--set", 'train.tie=[["table", "head"]]']
        for model, flags in ((same, []), (apart, tie), (apart, [])):
            for mesh in ([], FOUR):
                with self.subTest(model=model.name, flags=flags, mesh=mesh):
                    _, out = self.train(*flags, *mesh, model=model, steps=3)
                    weights = self.parameters(out, 3)
                    tied = model is same or flags
                    self.assertEqual(set(weights), {"table", "w"} if tied else
                                     {"table", "w", "head"})
                    head = weights["table"].T if tied else weights["head"]
                    np.testing.assert_allclose(logits(model, out, *flags, *mesh),
                                               model_of(weights, head), rtol=1e-4, atol=1e-4)
        # What was found is said, what was not is not.
        for model, said in ((same, self.assertIn), (apart, self.assertNotIn)):
            done = support.run(support.CLEAVE, "check", model, "--steps", 1)
            self.assertEqual(done.returncode, 0, done.stderr)
            said("'head' holds the elements of the table 'table', transposed, and scores its rows: they are tied", done.stderr)
        # Two tensors of other shapes cannot be one.
        done = support.run(support.CLEAVE, "train", same, "--data", self.data, "--cache",
                           self.folder / "cache", "--set", 'train.tie=[["table", "w"]]')
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot tie 'table' and 'w'", done.stderr)


if __name__ == "__main__":
    unittest.main()
