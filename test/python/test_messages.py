"""Messages for mistyped commands and other errors: one line that names what was found, what was
expected, where, and how to fix it. One model and one cache for all tests."""

import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support

CLEAVE, RUN = support.CLEAVE, support.RUN
SEQUENCE, VOCABULARY = 16, 257


def classifier(path, **inputs):
    """x [s77, 4] times w [4, 3]; further inputs are added to the product, or unread if None."""
    b = onnxbuild.Builder()
    y = b.op("MatMul", b.input("x", np.float32, ["s77", 4]),
             b.parameter("w", np.arange(12, dtype=np.float32).reshape(4, 3)))
    for name, given in inputs.items():
        if given is None:
            b.input(name, np.float32, ["s77", 3])
            continue
        dtype, shape = given
        b.input(name, dtype, shape)
        y = b.op("Add", y, b.op("Cast", name, to=1))
    b.op("Identity", y, out="y")
    b.output("y", np.float32, ["s77", 3])
    onnxwire.save(b.model(13), path)


def refused(path, opset=18, types=()):
    """63 nodes with an unknown operator, one with another, and after it one with an invalid
    attribute. `types`: the value_info of the file."""
    b = onnxbuild.Builder()
    x = b.input("x", np.float32, ["N", 4])
    for i in range(63):
        b.op("Loop9", x, out=f"i{i}")
        b.output(f"i{i}", np.float32, [])
    d = b.op("Det", x)
    b.op("Pad", d, b.constant([0, 1, 0, 1]), out="p", mode="reflect")
    b.output("p", np.float32, [])
    model = b.model(opset)
    for shape in types:
        model.graph.add(13, onnxbuild.value_info(d, np.float32, shape))
    onnxwire.save(model, path)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        support.succeed("/usr/bin/python3", support.MODELS / "generate.py", cls.folder / "m.onnx",
                        "--layers", 2, "--hidden", 24, "--heads", 4, "--positions", SEQUENCE,
                        "--batch", 4)
        cls.model = ["m.onnx", "--config", "m.toml"]
        (cls.folder / "text.txt").write_bytes(b"the cat sat on the mat. " * 100)
        rng = np.random.default_rng(0)
        samples = rng.normal(size=(20, 4)).astype(np.float32)
        classifier(cls.folder / "c.onnx")
        np.savez(cls.folder / "x.npz", x=samples)
        np.savez(cls.folder / "label.npz", x=samples, label=rng.integers(0, 3, 20))
        np.savez(cls.folder / "float.npz", x=samples, goal=samples[:, :3])
        cls.count = 0

    def says(self, code, *command):
        """The command's stderr, which must contain only errors and warnings."""
        name = command[0]
        cache = ["--cache", "cache"] if name in ("train", "infer") else []
        done = support.run(CLEAVE, *command, *cache, cwd=self.folder)
        text = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, code, text)
        for line in done.stderr.splitlines():
            self.assertRegex(line, r"\A(cleave: (error|warning): |  )\S", text)
        return done.stderr

    def error(self, pattern, *command, lines=1):
        said = self.says(2, *command)
        self.assertRegex(said, rf"(?m)^cleave: error: .*{pattern}")
        self.assertEqual(said.count("\n"), lines, said)
        return said

    def keys(self, **keys):
        return [word for key, value in keys.items()
                for word in ("--set", f"{key.replace('__', '.')}={value}")]

    def train(self, *flags):
        type(self).count += 1
        return ["train", *flags, "--steps", 1, "--out", f"run{self.count}"]

    # Usage

    def test_arrays_of_other_kinds(self):
        """The message says how to convert the array in NumPy."""
        rng = np.random.default_rng(1)
        x, label = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, 20)
        keys = self.keys(dims__batch=4, data__labels="label")
        for kind in (np.uint8, bool):
            np.savez(self.folder / "kind.npz", x=x.astype(kind), label=label)
            self.error(r"array 'x': has element type .*, expected f32 .*: x\.astype\(np\.float32\)",
                       *self.train("c.onnx", "--data", "kind.npz", *keys))

    def test_resume_of_a_run(self):
        """A run's folder as --weights means its newest checkpoint."""
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
        """All keys that match names use one pattern dialect, which includes \\d and (?:...)."""
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
        b = onnxbuild.Builder()  # a dimension that no short key names
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
        for model, samples in (("c.onnx", 2), ("two.onnx", 3)):  # batch sizes fixed by inputs and outputs
            text = support.succeed(CLEAVE, "import", model, "--set", "dims.batch=6", cwd=self.folder)
            self.assertIn("tensor<6x4xf32>", text)
            self.assertEqual(text.count("nn.batch_dim = 0"), samples)
        text = support.succeed(CLEAVE, "import", "two.onnx", "--set", "dims.s5=6", "--set", "dims.s77=6",
                               cwd=self.folder)
        self.assertIn("tensor<6x4xf32>", text)
        self.error("c.onnx: has two sizes for dimension 0 of input 'x', dims.batch = 6 and dims.s77 = 5; "
                   "leave one of them out", "import", "c.onnx", "--set", "dims.batch=6", "--set", "dims.s77=5")
        # dims.batch is the whole batch, of which a microbatch is a part.
        self.says(0, "explain", "c.onnx", *self.keys(dims__batch=6, dims__s77=6, train__microbatches=2,
                                                     data__labels="label"))

    # Sizes and plans

    def test_heads_that_do_not_divide(self):
        said = self.says(0, "explain", *self.model, "--set", "mesh.tensor=3")
        self.assertRegex(said, r"\Acleave: warning: m.onnx: 4 heads over 3 ranks are padded to 6: 33 % of it "
                               r"is wasted \(2 layers\)\n\Z")

        # Four heads over seven ranks: attention is replicated, not padded to nearly twice the size.
        said = self.says(0, "explain", *self.model, "--set", "mesh.tensor=7")
        self.assertRegex(said, r"(?m)^cleave: warning: m.onnx: \d+ parameters, '.*', '.*', '.*', \.\.\. stay whole on "
                               r"the 7 ranks of axis 'tensor'; 4 heads of keys \(2 layers\) do not divide by them$")

    def test_fewer_samples_than_ranks(self):
        said = self.says(0, "explain", *self.model, "--set", "mesh.data=2", "--set", "dims.batch=1")
        self.assertRegex(said, r"\Acleave: warning: m.onnx: 1 of 2 ranks has no sample: [^\n]*\n\Z")

    def test_keys_that_do_nothing(self):
        for key, value, said in (
            ("parallel.pipeline.schedule", "gpipe", r"the mesh has no axis 'pipeline' of several ranks"),
            ("parallel.pipeline.table", "t.csv", r"the mesh has no axis 'pipeline' of several ranks"),
        ):
            self.assertRegex(self.says(0, "explain", *self.model, "--set", f"{key}={value}"),
                             rf"\Acleave: warning: {key} does nothing: {said} \(mesh.pipeline=N makes one\)\n\Z")
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
        # Labels as one-hot rows, and as one column; an array name with other capitalization.
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
        """Reported before labels that would be needed to read the output."""
        for key in ("train.loss=output:foo", "train.logits=foo"):
            for labels in ([], ["--set", "data.labels=label"]):
                self.error(rf"has no output 'foo' \({key[:key.index('=')]}\); its outputs are y\n",
                           *self.train("c.onnx", "--data", "label.npz", "--set", "dims.batch=4", *labels,
                                       "--set", key))

    # Import

    def test_all_problems_at_once(self):
        refused(self.folder / "r.onnx")
        nodes = (r"63 nodes \(Loop9, opset 18\): the operator is not supported; .*: 'n0', 'n1', 'n2', \.\.\.",
                 r"node 'n63' \(Det, opset 18\): the operator is not supported")
        # With dimensions unbound, with dimensions bound, and as a summary.
        said = self.error(r"r.onnx: cannot be imported \(65 places\):", "import", "r.onnx", lines=5)
        for line in (*nodes, "input 'x' has the unbound dimension 'N'; set dims.batch",
                     "1 node that depends on these was not looked at"):
            self.assertRegex(said, rf"(?m)^  {line}")
        for flags in ([], ["--set", "dims.batch=4"]):
            done = support.run(CLEAVE, "import", "r.onnx", "--summary", *flags, cwd=self.folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("  x  f32[N, 4]", done.stdout)
            for line in nodes:
                self.assertRegex(done.stderr, rf"(?m)^  {line}")
        # With the file's value_info, other nodes can be checked as well.
        refused(self.folder / "t.onnx", types=[[4, 4]])
        said = self.error(r"\(65 places\)", "import", "t.onnx", "--set", "dims.batch=4", lines=4)
        self.assertRegex(said, r"node 'n64' \(Pad, opset 18\): mode 'reflect' is not supported")
        # An old opset is reported once, hides no other error, and is not repeated for each node.
        refused(self.folder / "old.onnx", opset=9)
        said = self.error(r"old.onnx: cannot be imported \(65 places\)", "import", "old.onnx", "--set",
                          "dims.batch=4", lines=4)
        self.assertRegex(said, r"  operator set 9: expected 11 to 25; convert it "
                               r"\(onnx.version_converter.convert_version\(model, 18\)\), or export it")
        self.assertRegex(said, r"63 nodes \(Loop9, opset 9\)")

    def test_tensors_that_cannot_be_used(self):
        """Such errors hide neither each other nor anything else."""
        b = onnxbuild.Builder()
        y = b.input("x", np.float32, [2, 3])
        for i in range(5):
            y = b.op("Add", y, b.parameter(f"w{i}", np.ones(3, np.float32)))
        b.op("Det", y, out="y")
        b.output("y", np.float32, [])
        for tensor in b.initializers:
            tensor.fields = [field for field in tensor.fields if field[0] != 2]
            tensor.add(2, 15)  # complex128
        onnxwire.save(b.model(18), self.folder / "complex.onnx")
        for flags in ([], ["--summary"]):
            said = self.error(r"complex.onnx: cannot be imported \(2 places\):\n  5 tensors \('w0', 'w1', 'w2', \.\.\.\): "
                              r"its element type is .*, which is not supported\n  node 'n5' \(Det, opset 18\): ",
                              "import", "complex.onnx", *flags, lines=4)

    def test_losses_that_are_not_supported(self):
        """Settings with the same meaning are named in the error."""
        b = onnxbuild.Builder()
        y, label = b.input("y", np.float32, ["batch", 5]), b.input("label", np.int64, ["batch"])
        b.op("SoftmaxCrossEntropyLoss", y, label, out="loss", reduction="mean")
        index = b.op("Unsqueeze", label, b.constant([1]))
        b.op("GatherElements", y, index, axis=1, out="picked")
        b.output("loss", np.float32, [])
        b.output("picked", np.float32, ["batch", 1])
        onnxwire.save(b.model(18), self.folder / "loss.onnx")
        said = self.error(r"cannot be imported \(2 places\):", "import", "loss.onnx", "--set", "dims.batch=4", lines=3)
        self.assertRegex(said, r"SoftmaxCrossEntropyLoss, opset 18\): the operator is not supported; export the model "
                               r"without its loss, and train with train.loss = \"cross_entropy\" and data.labels, or")
        self.assertRegex(said, r"GatherElements, .*; what picks one element of each row is also "
                               r"\(data \* one_hot\(index\)\).sum\(axis\)")

    def test_types_that_an_operator_does_not_take(self):
        b = onnxbuild.Builder()
        b.op("Erf", b.input("x", np.int64, [2, 3]), out="y")
        b.output("y", np.int64, [2, 3])
        onnxwire.save(b.model(13), self.folder / "types.onnx")
        said = self.error(r"types.onnx: node 'n0' \(Erf, opset 13\): .*i64", "import", "types.onnx")
        self.assertNotRegex(said, r"'\w+\.\w+' op|tensor<")

    def test_dimensions_of_size_minus_one(self):
        shape = onnxwire.Message()
        for size in (2**64 - 1, 4):
            shape.add(1, onnxwire.Message().add(1, size))
        b = onnxbuild.Builder()
        b.op("MatMul", "x", b.op("Constant", value=np.ones((4, 3), np.float32)), out="h")
        b.op("Add", "h", b.parameter("b", np.ones(3, np.float32)), out="y")
        b.output("y", np.float32, ["N", 3])
        tensor = onnxwire.Message().add(1, 1).add(2, shape)
        b.inputs = [onnxwire.ValueInfo().add(1, "x").add(2, onnxwire.Message().add(1, tensor))]
        onnxwire.save(b.model(13), self.folder / "minus.onnx")
        self.error("minus.onnx: input 'x' has the unbound dimension 'batch'; set dims.batch",
                   "import", "minus.onnx")
        text = support.succeed(CLEAVE, "import", "minus.onnx", "--set", "dims.batch=5", cwd=self.folder)
        self.assertIn("tensor<5x4xf32>", text)
        self.says(0, *self.infer("minus.onnx", "x.npz"))
        np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"],
                                   np.load(self.folder / "x.npz")["x"].sum(1, keepdims=True)
                                   @ np.ones((1, 3)) + 1, rtol=1e-5, atol=1e-5)

    def test_a_cache_is_no_table_of_positions(self):
        """A mask over past and present positions added to scores of the present only: the error
        does not blame dims.sequence, which is right."""
        b = onnxbuild.Builder()
        ids = b.input("ids", np.int64, ["B", "S"])
        table = b.parameter("wpe", np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
        h = b.op("Gather", b.parameter("wte", np.ones((9, 4), np.float32)), ids)
        h = b.op("Add", h, b.op("Slice", table, b.constant([0]), b.constant([4]), b.constant([0])))
        b.op("Add", b.op("Concat", b.input("past", np.float32, ["B", 3, 4]), h, axis=1),
             b.op("Slice", table, b.constant([0]), b.constant([4]), b.constant([0])), out="y")
        b.output("y", np.float32, ["B", 7, 4])
        onnxwire.save(b.model(18), self.folder / "cache.onnx")
        said = self.error("cache.onnx: node ", "import", "cache.onnx", *self.keys(dims__batch=2, dims__sequence=4))
        self.assertIn("shapes [2, 7, 4] and [4, 4] do not broadcast\n", said)

    # Inputs

    def infer(self, model, arrays, *flags):
        return ["infer", model, "--inputs", arrays, "--outputs", "out.npz", *flags]

    def test_inputs_that_nothing_reads(self):
        classifier(self.folder / "unread.onnx", extra=None)
        samples = np.load(self.folder / "x.npz")["x"]
        np.savez(self.folder / "extra.npz", x=samples, extra=np.ones((20, 3), np.float32))
        said = "warning: unread.onnx: input 'extra' is read by no node, so that what is given for it " \
               "changes nothing"
        # The second run uses the cached program.
        for flags in ([], [], ["--set", "data.inputs.extra=extra"]):
            self.assertIn(said, self.says(0, *self.infer("unread.onnx", "extra.npz", *flags)))
            np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"],
                                       samples @ np.arange(12).reshape(4, 3), rtol=1e-5, atol=1e-5)
        # check accepts the unread array in any shape; with random values there is none.
        flags = ["--set", "train.loss=mse", "--against", "interpreter"]
        np.savez(self.folder / "extra.npz", x=samples, extra=np.ones((20, 3), np.float32), labels=samples[:, :3])
        self.assertIn(said, self.says(0, "check", "unread.onnx", "--inputs", "extra.npz", *flags))
        np.savez(self.folder / "wrong.npz", x=samples[:, :3], extra=np.ones((20, 3), np.float32))
        self.error("wrong.npz, array 'x': ", "check", "unread.onnx", "--inputs", "wrong.npz", *flags, lines=2)
        np.savez(self.folder / "other.npz", x=samples, nothing=samples)
        self.error("other.npz: array 'nothing' is no input of the model",
                   *self.infer("unread.onnx", "other.npz"))

    def test_inputs_of_one_fault_are_one_line(self):
        classifier(self.folder / "many.onnx", a=(np.float32, ["s77", "k"]), b=(np.float32, ["s77", "k"]))
        said = self.error(r"many.onnx: cannot be imported \(3 places\):", "import", "many.onnx", lines=3)
        self.assertRegex(said, r"(?m)^  input 'x' has the unbound dimension 's77'")
        self.assertRegex(said, r"(?m)^  each of 2 inputs \('a', 'b'\) has the unbound dimensions 's77', 'k'; set ")
        self.error(r"many.onnx: each of 2 inputs \('a', 'b'\) has the unbound dimension 'k'; set dims.k",
                   "import", "many.onnx", "--set", "dims.batch=4")

    def test_bound_inputs(self):
        classifier(self.folder / "b.onnx", t=(np.float32, []), k=(np.int64, [1]), z=(np.float32, ["s77", 3]))
        samples = np.load(self.folder / "x.npz")["x"]
        for name, array in (("k", np.array([5])), ("kf", np.array([5.0])), ("k2", np.array([5, 6])),
                            ("z", np.ones((20, 3)))):
            np.save(self.folder / f"{name}.npy", array)
        right = samples @ np.arange(12).reshape(4, 3) + 0.5 + 5
        for binds, z in ((["t=0.5", "k=5", "z=2"], 2), (["t=5e-1", "k=k.npy", "z=z.npy"], 1)):
            flags = [word for bind in binds for word in ("--bind", bind)]
            self.says(0, *self.infer("b.onnx", "x.npz", *flags))
            np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"], right + z, rtol=1e-5)
        batch = ["--set", "dims.batch=20", "--set", "data.labels=label"]
        bound = ["--bind", "t=0.5", "--bind", "k=5", "--bind", "z=2"]
        for command in (["import", "b.onnx", "-o", "o"], ["compile", "b.onnx", "-o", "folder"],
                        ["explain", "b.onnx"], ["check", "b.onnx", "--interpret"],
                        self.train("b.onnx", "--data", "label.npz", "--set", "data.validation=0")):
            self.says(0, *command, *bound, *batch)
        self.assertRegex((self.folder / f"run{self.count}" / "config.toml").read_text(),
                         r'bind = \{ k = "5", t = "0.5", z = "2" \}')
        for bind, said in {
            "nope=3": "b.onnx: has no input 'nope' (--bind nope=3); its inputs are 'x', 't', 'k', 'z'",
            "k=5.5": "input 'k' is bound to 5.5 (--bind), but has type i64[1]",
            "k=kf.npy": "input 'k' is bound to kf.npy of f64[1] (--bind), but has type i64[1]",
            "k=k2.npy": "input 'k' is bound to k2.npy of i64[2] (--bind), but has type i64[1]",
            "k=none.npy": "--bind k: none.npy: cannot be read: No such file or directory",
            "k=five": 'data.bind.k = "five": expected FILE.npy or a number',
            "k=": "--bind k=: expected NAME=FILE.npy or NAME=VALUE",
            "x=1": "x.npz: has an array 'x', an input that --bind gives one value",
        }.items():
            with self.subTest(bind=bind):
                others = bound if not bind.startswith("k=") else bound[:2] + bound[4:]
                done = self.says(2, *self.infer("b.onnx", "x.npz", *others, "--bind", bind))
                self.assertIn(said, done)
                self.assertEqual(done.count("\n"), 1, done)
        self.error("--bind k=6: --bind k=5 gives 'k' a value already; leave one out",
                   *self.infer("b.onnx", "x.npz", *bound, "--bind", "k=6"))
        self.error("data.bind.k (--bind) gives the input 'k' one value, but data.inputs.k says that it is read "
                   "from data".replace("(", r"\(").replace(")", r"\)"),
                   *self.infer("b.onnx", "x.npz", *bound, "--set", "data.inputs.k=k"))
        support.succeed(CLEAVE, "import", "c.onnx", "--set", "dims.batch=2", "-o", "c.mlir", cwd=self.folder)
        self.error("--bind t: binds inputs of ONNX models", "explain", "c.mlir", "--bind", "t=1")

    # While it runs

    def test_processes_are_called_as_the_user_called_them(self):
        out = self.folder / "long"
        words = ["train", *self.model, "--data", "text.txt", "--steps", "1000000", "--out", "long",
                 "--set", "mesh.data=2", "--cache", "cache"]
        process = subprocess.Popen([CLEAVE, *words], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=support.environment())
        try:
            end = time.monotonic() + 300
            while not (out / "log.jsonl").exists() or not (out / "log.jsonl").stat().st_size:
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            own = pathlib.Path("/proc") / str(process.pid)
            self.assertEqual((own / "comm").read_text(), "cleave\n")
            given = (own / "cmdline").read_bytes().decode().split("\0")[:-1]
            self.assertEqual(given, ["cleave", *words])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)
        self.assertEqual(process.returncode, 0)

    def test_times_below_zero(self):
        for mesh in ([], ["mesh.data=2"], ["mesh.data=2", "target.overlap=false"], ["mesh.tensor=2"], ["mesh.pipeline=2", "train.microbatches=2"]):
            text = support.succeed(CLEAVE, "explain", *self.model,
                                   *[word for key in mesh for word in ("--set", key)], cwd=self.folder)
            if mesh == ["mesh.data=2"]:
                self.assertIn(" ms and communicates for ", text)
            self.assertNotRegex(text, r" -\S* ms")

    def test_printed_operations(self):
        self.says(0, "compile", *self.model, "--set", "mesh.tensor=2", "--set", "mesh.data=2", "--emit", "shard",
                  "-o", "sharded.mlir")
        text = (self.folder / "sharded.mlir").read_text()
        self.assertRegex(text, r"dist\.all_reduce sum %\w+ over @mesh \{\"tensor\"\} purpose activation")
        for line in text.splitlines():
            self.assertNotIn("  ", line.strip())


if __name__ == "__main__":
    unittest.main()
