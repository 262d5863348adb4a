"""Messages about flags, keys, sizes, plans, data and weights."""

import random
import re
import unittest

import numpy as np

import support  # finds the others
import onnxbuild
import onnxwire
from messages import Messages, classifier, CLEAVE, RUN


class Typed(Messages):
    # Usage

    def test_arrays_of_other_kinds(self):
        """The message says what to write in NumPy."""
        rng = np.random.default_rng(1)
        x, label = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, 20)
        keys = self.keys(dims__batch=4, data__labels="label")
        for kind in (np.uint8, bool):
            np.savez(self.folder / "kind.npz", x=x.astype(kind), label=label)
            self.error(r"array 'x': has element type .*, expected f32 .*: x\.astype\(np\.float32\)",
                       *self.train("c.onnx", "--data", "kind.npz", *keys))

    def test_resume_of_a_run(self):
        """A run's folder stands for its newest checkpoint."""
        keys = self.keys(dims__batch=4, data__labels="label", train__schedule="constant")
        done = support.run(CLEAVE, "train", "c.onnx", "--data", "label.npz", *keys, "--steps", 2, "--out", "whole",
                           cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = support.run(CLEAVE, "train", "c.onnx", "--resume", "whole", "--steps", 3, "--out", "further",
                           cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("resuming whole/checkpoint-000002", done.stdout)
        self.error("--resume nope: does not exist", "train", "c.onnx", "--resume", "nope", "--steps", 3)

    def test_flags(self):
        for flags, pattern in (
            (["--step", 1], "unknown flag '--step'; did you mean '--steps'?"),
            (["--learning-rate=1"], r"unknown flag '--learning-rate'; did you mean --set train.lr=\.\.\.\?"),
            (["--lr", 1], r"unknown flag '--lr'; did you mean --set train.lr=\.\.\.\?"),
            (["--batch-size", 4], r"did you mean --set dims.batch=\.\.\. \(the global batch\)"),
            (["--epochs", 4], r"did you mean '--steps' \(optimizer steps, not passes over the data\)"),
            (["--world-size", 4], "did you mean '--ranks'"),
            (["--remarks"], "unknown flag '--remarks'; it is one of cleave explain"),
            (["mesh.data=2"], "unexpected argument 'mesh.data=2'; did you mean --set mesh.data=2?"),
            (["more.onnx"], "unexpected argument 'more.onnx'; see"),
        ):
            with self.subTest(flags=flags):
                self.error(pattern, "train", "m.onnx", *flags)
        self.error("--steps: found '1.5', expected a number without a point; see", "train", "m.onnx",
                   "--steps", "1.5")
        self.error("--inject drop: unknown kind of fault; did you mean 'drop-collective'", "check", *self.model,
                   "--inject", "drop")
        self.error("--steps: expected a number of at least 1, found 'x'", "check", "m.onnx", "--steps", "x")
        done = support.run(RUN, "folder", "train", "--step", 1)
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown flag '--step'; did you mean '--steps'?", done.stderr)

    def test_keys_by_meaning(self):
        for key, meant in {
            "train.learning_rate": r"'train.lr'",
            "train.lerning_rate": r"'train.lr'",
            "train.batch_size": r"'dims.batch' \(the global batch\)",
            "train.epochs": r"'train.steps' \(--steps N; optimizer steps, not passes over the data\)",
            "optimizer.weight_decay": r"'train.weight_decay'",
            "train.gradient_accumulation_steps": r"'train.microbatches'",
            "train.max_grad_norm": r"'train.clip_norm'",
            "parallel.zero_stage": r"'parallel.data.zero'",
            "train.stepps": r"'train.steps'",
        }.items():
            with self.subTest(key=key):
                self.error(rf"{key} \(--set\): unknown key; did you mean {meant}\?", "config",
                           "--set", f"{key}=1")
        self.error(r'found "all"; expected one of none \(not yet supported: selective, full, auto\)$', "config",
                   "--set", "parallel.recompute=all")
        self.error(r"has no dimension 'seq' \(dims.seq\); its dimensions are 'batch', 'sequence'; did you mean "
                   r"dims.sequence\?", "explain", *self.model, "--set", "dims.seq=4")
        self.error("mesh.tp: .*; did you mean 'mesh.tensor'", "explain", *self.model, "--set", "mesh.tp=1")

    def test_commands(self):
        for name, pattern in {
            "eval": "unknown command 'eval'; did you mean 'infer'",
            "fit": "unknown command 'fit'; did you mean 'train'",
            "trian": "unknown command 'trian'; did you mean 'train'",
            "generate": "cleave generate is not yet supported; `cleave infer`",
            "evaluate": "cleave evaluate is not yet supported; `cleave infer`",
            "simulate": "cleave simulate is not yet supported",
        }.items():
            with self.subTest(name=name):
                self.error(pattern, name, "m.onnx")

    def test_patterns(self):
        """One dialect wherever names are matched: \\d and (?:...) too."""
        for pattern, said in {
            "*.weight": r"at character 1, `\*` repeats nothing; write '\.\*\\\.weight'",
            "h.(0": r"at character 3, `\(` is not closed; write `\\\(`",
            "(?i)head": r"at character 1, `\(\?i` is no group of ECMAScript",
            r"\Ahead\Z": r"at character 1, `\\A` means nothing in ECMAScript; patterns match whole",
        }.items():
            for key in ("train.trainable", "train.frozen", "train.no_decay", "parallel.pipeline.stages"):
                self.error(rf"{key} \(--set\): found .* is none: {said}", "explain", *self.model, "--set",
                           f"{key}=['{pattern}']")
            self.error(rf"is none: {said}", "explain", *self.model, "--set",
                       f"shard=[{{match='{pattern}', dims=[[]]}}]")
        self.error(r"in single quotes a backslash is itself", "explain", *self.model, "--set",
                   r'train.frozen=[".*\.weight"]')
        layer = r"transformer\.h\.\d\.(?:attn|mlp|ln_\d)\..*"
        said = support.succeed(CLEAVE, "explain", *self.model, "--set", f"train.frozen=['{layer}']",
                               cwd=self.folder)
        self.assertNotIn("matches no", said)
        self.assertEqual(self.says(0, "explain", *self.model, "--set", f"train.no_decay=['{layer}']"), "")
        self.assertEqual(
            self.says(0, "explain", *self.model, "--set", f"shard=[{{match='{layer}c_fc.bias', "
                      "dims=[['tensor']]}]", "--set", "mesh.tensor=2"), "")
        stages = r"['transformer\.(?:wte|wpe|h\.[0])', 'transformer\.h\.\d|lm_head']"
        self.assertEqual(self.says(0, "explain", *self.model, "--set", "mesh.pipeline=2", "--set",
                                   "train.microbatches=4", "--set", f"parallel.pipeline.stages={stages}",
                                   "--set", "dims.batch=4"), "")

    def test_names_of_dimensions(self):
        b = onnxbuild.Builder()
        b.op("MatMul", b.input("x", np.float32, ["p2o.Dyn.0", "a-b"]),
             b.parameter("w", np.ones((4, 3), np.float32)), out="y")
        b.output("y", np.float32, ["p2o.Dyn.0", 3])
        onnxwire.save(b.model(13), self.folder / "odd.onnx")
        said = self.error("odd.onnx: input 'x' has the unbound dimensions 'p2o.Dyn.0', 'a-b'; set dims.batch, "
                          "dims.a-b", "import", "odd.onnx", "-o", "o")
        self.error(r"dims.p2o.Dyn.0 \(--set\): unknown key; a name that has dots is quoted: "
                   r"""--set 'dims."p2o.Dyn.0"=...'""", "import", "odd.onnx", "--set", "dims.p2o.Dyn.0=1")
        self.says(0, "import", "odd.onnx", "--set", 'dims."p2o.Dyn.0"=2', "--set", "dims.a-b=4", "-o", "o")
        self.says(0, "import", "odd.onnx", "--set", "dims.batch=2", "--set", "dims.a-b=4", "-o", "o")
        (self.folder / "odd.toml").write_text('[dims]\n"p2o.Dyn.0" = 2\na-b = 4\n')
        self.says(0, "import", "odd.onnx", "--config", "odd.toml", "-o", "o")
        (self.folder / "odd.toml").write_text("[dims]\np2o.Dyn.0 = 2\n")
        self.error('a name that has dots is quoted: "p2o.x" = ', "import", "odd.onnx", "--config", "odd.toml")
        b = onnxbuild.Builder()  # of which no short name speaks
        b.op("MatMul", b.input("x", np.float32, [2, "k.0"]), b.parameter("w", np.ones((4, 3), np.float32)),
             out="y")
        b.output("y", np.float32, [2, 3])
        onnxwire.save(b.model(13), self.folder / "quoted.onnx")
        said = self.error("quoted.onnx: input 'x' has the unbound dimension", "import", "quoted.onnx")
        advice = re.search(r"set (--set '.*=)\.\.\.'", said).group(1)
        self.assertEqual(advice, """--set 'dims."k.0"=""")
        self.says(0, "import", "quoted.onnx", "--set", 'dims."k.0"=4', "-o", "o")

    def test_batch_binds_the_first_dimension(self):
        classifier(self.folder / "two.onnx", t=(np.float32, ["s5", 3]))
        for model, samples in (("c.onnx", 2), ("two.onnx", 3)):  # inputs and outputs that hold them
            text = support.succeed(CLEAVE, "import", model, "--set", "dims.batch=6", cwd=self.folder)
            self.assertIn("tensor<6x4xf32>", text)
            self.assertEqual(text.count("nn.batch_dim = 0"), samples)
        text = support.succeed(CLEAVE, "import", "two.onnx", "--set", "dims.s5=6", "--set", "dims.s77=6",
                               cwd=self.folder)
        self.assertIn("tensor<6x4xf32>", text)
        self.error("c.onnx: has two sizes for dimension 0 of input 'x', dims.batch = 6 and dims.s77 = 5; "
                   "leave one of them out", "import", "c.onnx", "--set", "dims.batch=6", "--set", "dims.s77=5")
        # The whole batch, of which a microbatch is a part.
        self.says(0, "explain", "c.onnx", *self.keys(dims__batch=6, dims__s77=6, train__microbatches=2,
                                                     data__labels="label"))

    # Sizes and plans

    def test_heads_that_do_not_divide(self):
        said = self.says(0, "explain", *self.model, "--set", "mesh.tensor=3")
        self.assertRegex(said, r"\Acleave: warning: m.onnx: 4 heads over 3 ranks are padded to 6: 33 % of it "
                               r"is wasted \(2 layers\)\n\Z")

        # Four heads over seven ranks: attention is repeated, not padded to twice.
        said = self.says(0, "explain", *self.model, "--set", "mesh.tensor=7")
        self.assertRegex(said, r"(?m)^cleave: warning: m.onnx: \d+ parameters, '.*', '.*', '.*', \.\.\. stay whole on "
                               r"the 7 ranks of axis 'tensor'; 4 heads of keys \(2 layers\) do not divide by them$")

    def test_fewer_samples_than_ranks(self):
        said = self.says(0, "explain", *self.model, "--set", "mesh.data=2", "--set", "dims.batch=1")
        self.assertRegex(said, r"\Acleave: warning: m.onnx: 1 of 2 ranks has no sample: [^\n]*\n\Z")
        for batch, parts, factor in ((3, 1, "2"), (6, 2, "2 times train.microbatches")):
            said = self.says(0, "explain", *self.model, "--set", "mesh.data=2", "--set", f"dims.batch={batch}", "--set",
                             f"train.microbatches={parts}")
            self.assertRegex(said, r"of 3 over 2 ranks is padded to 4: 25 % of the work is wasted; use a dims.batch that is "
                                   rf"a multiple of {factor}\n\Z")

    def test_keys_that_do_nothing(self):
        for key, value, said in (
            ("parallel.pipeline.schedule", "gpipe", r"the mesh has no axis 'pipeline' of several ranks"),
            ("parallel.pipeline.table", "t.csv", r"the mesh has no axis 'pipeline' of several ranks"),
        ):
            self.assertRegex(self.says(0, "explain", *self.model, "--set", f"{key}={value}"),
                             rf"\Acleave: warning: {key} does nothing: {said} \(mesh.pipeline=N makes one\)\n\Z")
        self.assertRegex(self.says(0, "explain", *self.model, "--set", "parallel.expert.capacity_scope=microbatch"),
                         r"\Acleave: warning: parallel.expert.capacity_scope does nothing: parallel.expert.capacity is 0")
        self.assertRegex(self.says(0, "explain", *self.model, *self.keys(train__steps=5, train__warmup_steps=5)),
                         r"\Acleave: warning: train.warmup_steps = 5 of train.steps = 5: the learning rate only rises")
        self.assertEqual(self.says(0, "explain", *self.model, *self.keys(train__steps=6, train__warmup_steps=5)), "")
        self.error("has no parameter to train: it has none, or train.trainable and train.frozen leave none",
                   "explain", *self.model, "--set", "train.frozen=['.*']")

    def test_operations_are_called_as_nodes(self):
        said = self.error(r"\w+: has 4 KV heads .* cannot split over the 8 ranks of axis 'sequence'", "explain",
                          *self.model, "--set", "mesh.sequence=8", "--set",
                          "parallel.sequence=[{kind='ulysses', axis='sequence'}]")
        self.assertNotIn("nn.", said)

    # Data and weights

    def test_tokens_of_another_type(self):
        rng = np.random.default_rng(0)
        rng.integers(0, 200, 4000, dtype=np.uint8).tofile(self.folder / "bytes.bin")
        rng.integers(1, 200, 4000, dtype=np.int32).tofile(self.folder / "int32.bin")
        self.error(r"bytes.bin: the token at position 0 has id \d+, beyond the model's vocabulary of 257 "
                   r"""\(input 'input_ids'\); it was read as uint16: data.dtype = "uint8"\?""",
                   *self.train(*self.model, "--data", "bytes.bin"))
        self.error(r"int32.bin: every second token is 0 when it is read as uint16; is it of wider integers, "
                   r'data.dtype = "uint32"\?', *self.train(*self.model, "--data", "int32.bin"))
        for name, dtype in (("bytes", "uint8"), ("int32", "uint32")):
            self.says(0, *self.train(*self.model, "--data", f"{name}.bin", "--set", f"data.dtype={dtype}"))

    def test_arrays_of_other_names(self):
        batch = ["--set", "dims.batch=4"]
        self.error(r"label.npz: lacks the arrays 'labels', .*; it has 'label', 'x'; data.labels = \"label\"\?",
                   *self.train("c.onnx", "--data", "label.npz", *batch))
        self.says(0, *self.train("c.onnx", "--data", "label.npz", *batch, "--set", "data.labels=label"))
        self.error(r"float.npz, array 'goal': holds f32 of shape \[20, 3\], but labels of "
                   r'train.loss = "cross_entropy" are integers; to fit values: train.loss = "mse"\?',
                   *self.train("c.onnx", "--data", "float.npz", *batch, "--set", "data.labels=goal"))
        # Labels as one-hot rows, and as one column; a name in other letters.
        arrays = dict(np.load(self.folder / "label.npz"))
        samples, labels = arrays["x"], arrays["label"]
        for name, given, said in (
            ("hot", {"x": samples, "label": np.eye(3, dtype=np.float32)[labels]},
             r"array 'label': has shape \[20, 3\], a number for each class; expected the index of the class "
             r"\(its argmax over the last dimension\)"),
            ("hot", {"x": samples, "label": np.eye(3, dtype=np.int64)[labels]},
             r"array 'label': has shape \[20, 3\], a number for each class"),
            ("capital", {"X": samples, "label": labels}, r'lacks the arrays \'x\', .*; data.inputs.x = "X"\?'),
            ("none", {"label": labels}, "lacks the arrays 'x', which"),
        ):
            np.savez(self.folder / f"{name}.npz", **given)
            self.error(f"{name}.npz.{{1,2}}{said}", *self.train("c.onnx", "--data", f"{name}.npz", *batch, "--set",
                                                                "data.labels=label"))
        np.savez(self.folder / "column.npz", x=samples, label=labels[:, None])
        logs = []
        for name in ("label", "column"):
            self.says(0, *self.train("c.onnx", "--data", f"{name}.npz", *batch, "--set", "data.labels=label"))
            logs.append(support.read_log(self.folder / f"run{self.count}")[0]["loss"])
        self.assertEqual(*logs)
        self.says(0, *self.train("c.onnx", "--data", "float.npz", *batch, "--set", "data.labels=goal",
                                 "--set", "train.loss=mse"))

    def test_labels_that_are_not_counted(self):
        x = np.load(self.folder / "x.npz")["x"]
        batch = self.keys(dims__batch=4, data__labels="label", data__validation=0)
        for least in (-1, -7):
            np.savez(self.folder / "negative.npz", x=x, label=np.arange(20) % 3 + np.where(np.arange(20) == 6, least, 0))
            self.error(f"label at position 6 is {least}, .* data.ignore_index = -100: data.ignore_index = {least}[?]",
                       *self.train("c.onnx", "--data", "negative.npz", *batch))
            np.savez(self.folder / "four.npz", x=x[:4], labels=[0, 1, least, 2])
            self.error(f"holds {least}, .* data.ignore_index = -100: data.ignore_index = {least}[?]", "check", "c.onnx",
                       "--inputs", "four.npz", *batch[:2], "--against", "interpreter")
            self.says(0, *self.train("c.onnx", "--data", "negative.npz", *batch,
                                     "--set", f"data.ignore_index={least}"))
        np.savez(self.folder / "none.npz", x=x, label=np.full(20, -100))
        said = self.says(0, *self.train("c.onnx", "--data", "none.npz", *batch))
        self.assertIn("warning: none.npz, array 'label': all 20 labels to train on are data.ignore_index = -100", said)
        labels = np.full(20, -100)
        labels[7] = 1
        np.savez(self.folder / "one.npz", x=x, label=labels)
        self.assertNotIn("all 20 labels", self.says(0, *self.train("c.onnx", "--data", "one.npz", *batch)))

    def test_outputs_that_there_are_not(self):
        """Said before labels, which would be read for the output."""
        for key in ("train.loss=output:foo", "train.logits=foo"):
            for labels in ([], ["--set", "data.labels=label"]):
                self.error(rf"has no output 'foo' \({key[:key.index('=')]}\); its outputs are y\n",
                           *self.train("c.onnx", "--data", "label.npz", "--set", "dims.batch=4", *labels,
                                       "--set", key))



if __name__ == "__main__":
    unittest.main()
