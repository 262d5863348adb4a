"""Invalid input to the real commands: one clear message that names the file, node or
key, the documented exit code, and no partial output."""

import json
import os
import pathlib
import resource
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

import numpy as np

import support
import onnxbuild
import onnxwire

CLEAVE, RUN = support.CLEAVE, support.RUN
BATCH, SEQUENCE, VOCABULARY = 4, 16, 257
# The arguments that every command needs besides MODEL.
COMMANDS = {
    "import": ["-o", "new.mlir"],
    "compile": ["-o", "new"],
    "train": ["--data", "text.txt", "--out", "new"],
    "infer": ["--inputs", "in.npz", "--outputs", "new.npz"],
    "explain": [],
    "check": [],
}
WITH_BYTES = ("train", "infer", "check")


def make_model(path, external=False, layers=1):
    support.succeed("/usr/bin/python3", support.MODELS / "generate.py", path,
                    "--layers", layers, "--hidden", 24, "--heads", 2,
                    "--positions", SEQUENCE, "--batch", BATCH,
                    *(["--external"] if external else []))


def make_model_of_any_size(path):
    b = onnxbuild.Builder()
    x = b.input("input_ids", np.int64, ["rows", "columns"])
    b.op("Gather", b.parameter("table", np.ones((VOCABULARY, 8), np.float32)), x, out="y")
    b.output("y", np.float32, ["rows", "columns", 8])
    onnxwire.save(b.model(18), path)


def model_with_inputs(path):
    """A model with two inputs without a known role."""
    b = onnxbuild.Builder()
    tokens = b.input("tokens", np.int64, [BATCH, SEQUENCE])
    table = b.parameter("table", np.ones((VOCABULARY, 8), np.float32))
    head = b.parameter("head", np.ones((8, VOCABULARY), np.float32))
    x = b.op("Gather", table, tokens)
    x = b.op("Mul", x, b.input("scale", np.float32, [BATCH, SEQUENCE, 8]))
    x = b.op("Add", x, b.input("bias", np.float32, [BATCH, SEQUENCE, 8]))
    b.op("MatMul", x, head, out="logits")
    b.output("logits", np.float32, [BATCH, SEQUENCE, VOCABULARY])
    onnxwire.save(b.model(18), path)


def unsupported(path):
    """Five nodes that cannot be imported, of five kinds, among some that can."""
    b = onnxbuild.Builder()
    x = b.input("x", np.float32, [2, 3])
    b.op("Det", x, out="d")
    b.op("FlashThing", x, out="f", domain="com.example")
    b.op("Gelu", x, out="g")
    b.op("Pad", x, b.constant([0, 1, 0, 1]), out="p", mode="reflect")
    b.op("NonZero", x, out="z")
    b.op("Add", b.op("Relu", x), x, out="s")
    for name in "dfgpzs":
        b.output(name, np.float32, [])
    onnxwire.save(b.model(18), path)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.template = pathlib.Path(folder.name) / "template"
        cls.cache = pathlib.Path(folder.name) / "cache"
        cls.template.mkdir()
        make_model(cls.template / "m.onnx")
        (cls.template / "text.txt").write_bytes(b"the cat sat on the mat. " * 100)
        np.savez(cls.template / "in.npz",
                 input_ids=np.zeros((BATCH, SEQUENCE), np.int64))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "work"
        shutil.copytree(self.template, self.folder)
        self.model = ["m.onnx", "--config", "m.toml"]

    def command(self, name, *arguments):
        cache = ["--cache", self.cache] if name in ("train", "infer") else []
        return [CLEAVE, name, *arguments, *cache]

    def listing(self):
        return {(path.relative_to(self.folder), path.lstat().st_size)
                for path in self.folder.rglob("*")}

    def refused(self, pattern, command, code=2, env=None, **options):
        """The command fails with one message and changes no file."""
        before = self.listing()
        if options:
            done = subprocess.run(list(map(str, command)), text=True, cwd=self.folder,
                                  stderr=subprocess.PIPE, timeout=900,
                                  env=support.environment(), **options)
        else:
            done = support.run(*command, cwd=self.folder, env=env)
        text = done.stderr
        what = f"{' '.join(map(str, command))}\n{text}"
        self.assertEqual(done.returncode, code, what)
        self.assertRegex(text, r"(?s)\A(cleave: (remark|warning): [^\n]*\n(  [^\n]*\n)*)*"
                               r"cleave(-run)?: error: [^\n]*\n(  [^\n]*\n)*\Z", what)
        message = text[text.index("error: "):]
        self.assertRegex(message, pattern, what)
        self.assertLess(message.count("\n"), 9, what)
        for ugly in ("see current operation", "Stack dump", "terminate called", "^^^"):
            self.assertNotIn(ugly, text)
        self.assertEqual(self.listing(), before, what)
        return message

    def accepted(self, command, env=None):
        done = support.run(*command, cwd=self.folder, env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    # Models

    def test_model_files(self):
        whole = (self.folder / "m.onnx").read_bytes()
        (self.folder / "cut.onnx").write_bytes(whole[:len(whole) // 2])
        (self.folder / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(5000))
        (self.folder / "text.onnx").write_text("no model\n")
        (self.folder / "empty.onnx").write_bytes(b"")
        (self.folder / "folder.onnx").mkdir()
        for name, pattern in {
            "none": r"none.onnx: cannot be read: No such file or directory",
            "cut": r"cut.onnx: is not an ONNX model, or is truncated \(\d+ bytes\)",
            "noise": r"noise.onnx: is not an ONNX model, or is truncated",
            "text": r"text.onnx: is not an ONNX model, or is truncated \(9 bytes\)",
            "empty": r"empty.onnx: is empty, expected an ONNX model",
            "folder": r"folder.onnx: is a folder, expected",
        }.items():
            for command, flags in COMMANDS.items():
                self.refused(pattern, self.command(command, f"{name}.onnx", "--config",
                                                   "m.toml", *flags))

    def test_truncated_anywhere(self):
        whole = (self.folder / "m.onnx").read_bytes()
        for part in range(1, 40):
            (self.folder / "cut.onnx").write_bytes(whole[:len(whole) * part // 40])
            self.refused("cut.onnx: ", self.command("import", "cut.onnx", "-o", "new.mlir",
                                                    "--config", "m.toml"))

    def test_every_unsupported_node_is_listed(self):
        unsupported(self.folder / "u.onnx")
        np.savez(self.folder / "in.npz", x=np.zeros((2, 3), np.float32))
        for command, flags in COMMANDS.items():
            message = self.refused(r"u.onnx: cannot be imported \(5 places\):\n",
                                   self.command(command, "u.onnx", *flags))
            for line in (r"node 'n\d' \(Det, opset 18\): the operator is not supported",
                         r"node 'n\d' \(com.example.FlashThing, opset 0\): operators of domain",
                         r"node 'n\d' \(Gelu, opset 18\): supported from opset 20 to",
                         r"node 'n\d' \(Pad, opset 18\): mode 'reflect' is not supported, "
                         r"expected constant",
                         r"output 'z': its shape depends on data"):
                self.assertRegex(message, line)

    def test_external_data(self):
        make_model(self.folder / "e.onnx", external=True)
        data = self.folder / "e.onnx.data"
        whole = data.read_bytes()
        model = ["e.onnx", "--config", "e.toml"]
        self.accepted(self.command("train", *model, "--data", "text.txt", "--out", "first",
                                   "--steps", 1))  # a cached program changes nothing below
        for content, pattern in ((None, "No such file or directory"),
                                 (whole[:3000], "has 3000 bytes, expected at least")):
            data.unlink()
            if content is not None:
                data.write_bytes(content)
            for command, flags in COMMANDS.items():
                if command in WITH_BYTES:
                    self.refused(rf"e.onnx: lacks bytes of weights.*\n"
                                 rf"  tensor '.*': its external data 'e.onnx.data' .*{pattern}",
                                 self.command(command, *model, *flags))
                else:
                    said = self.accepted(self.command(command, *model, *flags))
                    self.assertRegex(said, rf"warning: e.onnx: lacks bytes of weights: .*{pattern}")
            if content is None:
                data.write_bytes(b"")
            # A compiled program reports it at run time.
            self.refused("(is too short|cannot be read)", [RUN, "new", "train", "--data",
                                                           "text.txt", "--out", "out"])
            shutil.rmtree(self.folder / "new")
            (self.folder / "new.mlir").unlink()

    def test_external_data_outside_the_folder(self):
        make_model(self.folder / "e.onnx", external=True)
        model = ["e.onnx", "--config", "e.toml"]
        self.accepted(self.command("train", *model, "--data", "text.txt", "--out", "first",
                                   "--steps", 1))
        raw = (self.folder / "e.onnx").read_bytes()
        whole = self.folder / "e.onnx.data"
        outside = self.folder.parent / "outside.dt"
        shutil.move(whole, outside)
        whole.symlink_to(outside)
        for command, flags in COMMANDS.items():
            self.refused("its external data 'e.onnx.data' leads through the symbolic link",
                         self.command(command, *model, *flags))
        # Other paths of the same length, so that the file stays well-formed.
        for path, pattern in ((b"../outsi.dt", r"'\.\./outsi\.dt' is outside the model's folder"),
                              (b"/etc/passwd", r"'/etc/passwd' is outside the model's folder")):
            self.assertEqual(len(path), len(b"e.onnx.data"))
            (self.folder / "e.onnx").write_bytes(raw.replace(b"e.onnx.data", path))
            for command, flags in COMMANDS.items():
                self.refused(pattern, self.command(command, *model, *flags))

    def test_dimensions_and_inputs(self):
        for command, flags in COMMANDS.items():
            if command != "infer":  # infer gets the sizes from its arrays
                self.refused("input 'input_ids' has the unbound dimensions 'batch', 'sequence'; "
                             "set dims.batch, dims.sequence",
                             self.command(command, "m.onnx", *flags))
            if command != "import":
                self.refused(r"dims.batch = 4 does not divide by train.microbatches = 3",
                             self.command(command, *self.model, *flags, "--set",
                                          "train.microbatches=3"))
        model_with_inputs(self.folder / "i.onnx")
        self.refused(r"text.txt: holds tokens only, but the model also needs 'scale', 'bias'; "
                     r"assign them in data.inputs",
                     self.command("train", "i.onnx", *COMMANDS["train"]))
        np.savez(self.folder / "in.npz", tokens=np.zeros((9, SEQUENCE), np.int64))
        self.refused(r"in.npz: lacks the arrays 'scale', 'bias'",
                     self.command("train", "i.onnx", "--data", "in.npz", "--out", "new"))
        assigned = ["--set", 'data.inputs.scale="ones"', "--set", "data.inputs.bias=zeros"]
        self.accepted(self.command("train", "i.onnx", *COMMANDS["train"], *assigned,
                                   "--steps", 1))

    # Configuration and ranks

    def test_keys(self):
        (self.folder / "k.toml").write_text("[train]\nsteps = 3\nlerning_rate = 1\n")
        (self.folder / "t.toml").write_text("[train\nsteps = 3\n")
        for command, flags in COMMANDS.items():
            self.refused(r"train.lerning_rate \(k.toml:3\): unknown key; did you mean 'train.",
                         self.command(command, "m.onnx", "--config", "k.toml", *flags))
            self.refused(r"t.toml:1: not valid TOML",
                         self.command(command, "m.onnx", "--config", "t.toml", *flags))
            for setting, pattern in {
                "train.stepps=3": r"train.stepps \(--set\): unknown key; did you mean "
                                  r"'train.steps'",
                "train.steps=many": r"train.steps \(--set\): found .*expected",
                "train.steps": r"--set train.steps: expected KEY=VALUE",
                "mesh.dta=2": r"mesh.dta: .*did you mean 'mesh.data'",
                "parallel.data.zero=4": r"parallel.data.zero .*: found 4; expected one of 0, 1, 2, 3",
                "parallel.data.zero=-1": r"parallel.data.zero .*: found -1; expected one of 0",
                "train.precision=tf32": r"train.precision = .tf32. .*expected fp32 or bf16",
                "target.kind=gpu": r"target.kind .*expected one of cpu, cuda",
                "train.precision=fp16": r"fp16 .*use bf16",
            }.items():
                self.refused(pattern, self.command(command, *self.model, "--set", setting, *flags))

    def test_types_that_are_only_booked(self):
        for key in ("grad_dtype", "reduce_dtype", "master_dtype"):
            flags = ["--set", f"train.{key}=bf16"]
            for command in COMMANDS:
                if command == "explain":
                    self.accepted(self.command(command, *self.model, *flags))
                else:
                    self.refused(rf'train.{key} = "bf16" is not yet supported: gradients are summed, '
                                 "and parameters updated, in fp32; cleave explain books it",
                                 self.command(command, *self.model, *flags, *COMMANDS[command]))

    def test_keys_that_nothing_reads(self):
        """Two keys with one meaning, or a key for something that the model lacks."""
        for settings, pattern in (
            (["train.loss=output:logits", "train.logits=logits"],
             'train.logits = "logits" and train.loss = "output:logits" both name the output'),
            (["data.tokens=input_ids", "data.labels=input_ids"],
             "data.tokens and data.labels both name the input 'input_ids'"),
            (["data.tokens=input_ids", "data.inputs.input_ids=ones"],
             'data.inputs.input_ids = "ones", but data.tokens names this input'),
            (["data.labels=labels", "data.inputs.labels=zeros"],
             'data.inputs.labels = "zeros", but data.labels names this input'),
            (["data.labels=input_ids"],
             "m.onnx: looks up a table of weights by the input 'input_ids', so that it takes "
             "the tokens, but data.labels names it, too"),
            (["data.inputs.attention_mask=mine"], "has no input 'attention_mask'"),
            (["train.loss=output:logits", "data.labels=answers"],
             "data.labels = 'answers' is read by nothing: .* inputs are 'input_ids'"),
        ):
            flags = [word for key in settings for word in ("--set", key)]
            for command in ("train", "check"):
                with self.subTest(settings=settings, command=command):
                    self.refused(pattern, self.command(command, *self.model, *flags,
                                                       *COMMANDS[command]))
        for key in ("trainable", "frozen", "no_decay"):
            for command in ("explain", "train", "check"):
                with self.subTest(key=key, command=command):
                    self.refused(f"m.onnx.*: pattern 'wight' of train.{key} matches none of the "
                                 r"\d+ parameters: '.*; patterns match whole names",
                                 self.command(command, *self.model, "--set",
                                              f'train.{key}=[".*wte.*", "wight"]',
                                              *COMMANDS.get(command, ())))

    def test_entries_of_lists(self):
        """A wrong key or value in [[shard]] and parallel.sequence."""
        for setting, pattern in (
            ('shard=[{match="a", dim=[["data"]]}]',
             r"shard \(--set\): entry 1: unknown key 'dim'; did you mean 'dims'\?"),
            ('shard=[{match="a", dims=[["data"]]}, {match="b", dims=["data"]}]',
             r'shard \(--set\): entry 2: `dims`: found a list of names, \["data"\]; each '
             r'dimension has a list of axes, \[\["data"\]\]; expected a list of tables'),
            ('parallel.sequence=[{kind="megatron", axs="tensor"}]',
             r"parallel.sequence \(--set\): entry 1: unknown key 'axs'; did you mean 'axis'\?"),
            ('parallel.sequence=["megatron"]',
             r'parallel.sequence \(--set\): entry 1: found the string "megatron"'),
            ("mesh.sequence=2", r"mesh.sequence = 2 is used by no strategy; say how .*"
                                r'kind="ulysses", axis="sequence".*kind="ring".*kind megatron'),
        ):
            with self.subTest(setting=setting):
                self.refused(pattern, self.command("explain", *self.model, "--set", setting))

    def test_zero(self):
        """ZeRO without its axis, and options of another ZeRO stage."""
        data = ["mesh.data=2"]
        outer = [*data, "mesh.outer=2", 'mesh.axes=["outer", "data"]']
        for settings, pattern in (
            (["parallel.data.zero=1"],
             r"parallel.data.zero = 1 splits over the mesh axis 'data', but the mesh has "),
            (["parallel.data.zero=3", "mesh.tensor=2"],
             r"parallel.data.zero = 3 splits over the mesh axis 'data', but the mesh has tensor=2"),
            ([*data, "parallel.data.replicate=outer"],
             r"parallel.data.replicate names the axis 'outer', but the mesh has data=2"),
            ([*data, "parallel.data.replicate=data"],
             r"parallel.data.axis and parallel.data.replicate both name the mesh axis 'data'"),
            ([*data, "mesh.tensor=2", "parallel.data.replicate=tensor"],
             r"parallel.data.replicate and parallel.tensor.axis both name the mesh axis 'tensor'"),
            (["mesh.tensor=2", "parallel.tensor=false", "parallel.data.replicate=tensor"],
             r"parallel.data.replicate = 'tensor' is the outer axis of hybrid sharding, whose "
             r"inner one is 'data', but the mesh has tensor=2"),
            ([*data, "parallel.data.zero=3", "parallel.data.zero2_reduce=per_microbatch"],
             r"zero2_reduce = 'per_microbatch' is a policy of ZeRO 2, but parallel.data.zero = 3"),
            ([*data, "parallel.data.zero=2", "parallel.data.reshard_after_forward=false"],
             r"reshard_after_forward = false is a policy of ZeRO 3, but parallel.data.zero = 2"),
            ([*data, "parallel.data.zero2_reduce=never"], r"found \"never\"; expected one of"),
        ):
            flags = [word for key in settings for word in ("--set", key)]
            for command in ("train", "check", "explain"):
                with self.subTest(settings=settings, command=command):
                    self.refused(pattern, self.command(command, *self.model, *flags,
                                                       *COMMANDS[command]))
        flags = [word for key in outer for word in ("--set", key)]
        self.accepted(self.command("explain", *self.model, *flags, "--set",
                                   "parallel.data.replicate=outer"))

    def test_later_commands_and_axes(self):
        for command in ("export-onnx", "plan", "view"):
            self.refused(f"cleave {command} is not yet supported", [CLEAVE, command, "x"])
        self.refused("has no experts to split over axis 'expert'",
                     self.command("explain", *self.model, "--set", "mesh.expert=2"))
        # An axis may be used by only one strategy.
        for mine, theirs, off in (("data", "tensor", "tensor"), ("tensor", "data", "data"),
                                  ("data", "pipeline", "pipeline")):
            twice = ["--set", f"mesh.{theirs}=2", "--set", f"parallel.{mine}.axis={theirs}"]
            pair = sorted(("data", theirs if mine == "data" else mine))
            for command in ("train", "check"):
                self.refused(rf"parallel.{pair[0]}.axis and parallel.{pair[1]}.axis both name the "
                             rf"mesh axis '{theirs}'; .* --set parallel.{off}=false",
                             self.command(command, *self.model, *twice, *COMMANDS[command]))
            self.accepted(self.command("explain", *self.model, *twice,
                                       "--set", f"parallel.{off}=false"))
        self.refused("--emit elf: expected folder, exe,",
                     self.command("compile", *self.model, "-o", "new", "--emit", "elf"))
        self.refused("did you mean 'train'", [CLEAVE, "trian"])
        self.refused("--colour", self.command("explain", *self.model, "--colour"))

    def test_ranks(self):
        two = [*self.model, "--set", "mesh.data=2"]
        for command in ("compile", "train", "infer", "explain", "check"):
            self.refused(r"the mesh \(data=2\) has 2 ranks, but there are 3",
                         self.command(command, *two, *COMMANDS[command], "--ranks", 3))
        for command in ("train", "infer"):
            self.refused(r"the mesh \(data=2\) has 2 ranks, but there are 4",
                         self.command(command, *two, *COMMANDS[command]), env={"WORLD_SIZE": "4"})
            self.refused("WORLD_SIZE is 2, but the launcher brings no MPI",
                         self.command(command, *two, *COMMANDS[command]), env={"WORLD_SIZE": "2"})
        # A host whose peers do not connect gives up soon.
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        alone = {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "1", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port - 1)}
        begin = time.monotonic()
        self.refused("WORLD_SIZE is 2, but the launcher brings no MPI",
                     self.command("train", *two, *COMMANDS["train"]), env=alone)
        self.assertLess(time.monotonic() - begin, 8)
        self.accepted(self.command("compile", *two, "-o", "two"))
        self.refused("--ranks is 3, but .* a mesh of 2 ranks",
                     [RUN, "two", *COMMANDS["train"][:0], "train", "--data", "text.txt",
                      "--out", "new", "--ranks", 3])
        self.refused("WORLD_SIZE is 3, but .* a mesh of 2 ranks",
                     [RUN, "two", "train", "--data", "text.txt", "--out", "new"],
                     env={"WORLD_SIZE": "3"})

    # Data

    def test_data(self):
        (self.folder / "short.txt").write_text("few words")
        (self.folder / "odd.bin").write_bytes(b"123")
        (self.folder / "data.csv").write_text("1,2\n")
        np.save(self.folder / "big.npy", np.array([3] * 500 + [VOCABULARY] * 500, np.int32))
        np.save(self.folder / "float.npy", np.zeros(1000))
        np.savez(self.folder / "other.npz", ids=np.zeros((9, SEQUENCE), np.int64))
        np.savez(self.folder / "none.npz", input_ids=np.zeros((0, SEQUENCE), np.int64))
        for data, pattern in {
            "short.txt": "short.txt: 9 tokens are fewer than a sequence of 16",
            "odd.bin": r"odd.bin: 3 bytes are no whole number of uint16 tokens \(data.dtype\)",
            "data.csv": "data.csv: unknown kind of data '.csv'; expected .txt",
            "big.npy": "big.npy: the token at position 500 has id 257, beyond the model's "
                       "vocabulary of 257",
            "float.npy": "float.npy: has element type f64, expected integer tokens",
            "other.npz": "other.npz: lacks the arrays 'input_ids', .*it has 'ids'",
            "none.npz": "none.npz: holds no samples",
            "missing.txt": "missing.txt: cannot be read: No such file",
        }.items():
            self.refused(pattern, self.command("train", *self.model, "--data", data,
                                               "--out", "new"))
        self.refused("give --data FILE or data.path",
                     self.command("train", *self.model, "--out", "new"))
        self.refused("data.labels = .next. makes labels of .* name their array in data.labels",
                     self.command("train", *self.model, "--data", "big.npy", "--set",
                                  "train.loss=mse", "--out", "new"))
        self.refused("--steps: given 2 times, expected once",
                     self.command("train", *self.model, "--steps", 1, "--steps", 2))

    def test_bound_values_of_other_types(self):
        """The failing command prints one line, with exit code 2."""
        b = onnxbuild.Builder()
        x = b.op("Mul", b.input("x", np.float32, ["batch", 3]), b.parameter("w", np.ones(3, np.float32)))
        b.op("Add", x, b.op("Cast", b.input("k", np.int64, [1]), to=1), out="y")
        b.output("y", np.float32, ["batch", 3])
        onnxwire.save(b.model(18), self.folder / "b.onnx")
        np.savez(self.folder / "in.npz", x=np.zeros((2, 3), np.float32))
        for command, flags in COMMANDS.items():
            message = self.refused(r"b.onnx: input 'k' is bound to 5.5 \(--bind\), but has type i64\[1\]",
                                   self.command(command, "b.onnx", "--set", "dims.batch=2", "--bind", "k=5.5", *flags))
            self.assertEqual(message.count("\n"), 1, message)

    def test_inference(self):
        np.savez(self.folder / "big.npz", input_ids=np.full((BATCH, SEQUENCE), VOCABULARY))
        np.savez(self.folder / "shape.npz", input_ids=np.zeros((BATCH, SEQUENCE - 1), np.int64))
        np.savez(self.folder / "rank.npz", input_ids=np.zeros(BATCH * SEQUENCE, np.int64))
        np.savez(self.folder / "name.npz", ids=np.zeros((BATCH, SEQUENCE), np.int64))
        raw = (self.folder / "in.npz").read_bytes()
        (self.folder / "cut.npz").write_bytes(raw[:len(raw) // 2])
        for name, pattern in {
            "big": "big.npz, array 'input_ids': .* has id 257, beyond the model's vocabulary",
            "shape": r"shape.npz, array 'input_ids': has shape \[4, 15\], expected \[4, 16\]",
            "rank": r"rank.npz, array 'input_ids': has shape \[64\], expected \[4, 16\]",
            "name": "name.npz: array 'ids' is no input of the model; did you mean 'input_ids'?",
            "cut": "cut.npz: not a whole .npz",
            "none": "none.npz: cannot be read: No such file",
        }.items():
            self.refused(pattern, self.command("infer", *self.model, "--inputs", f"{name}.npz",
                                               "--outputs", "new.npz"))
        # Neither the configuration nor the data determine the sizes of dimensions.
        make_model_of_any_size(self.folder / "any.onnx")
        self.refused(r"rank.npz, array 'input_ids': has shape \[64\], expected \[\w+, \w+\]",
                     self.command("infer", "any.onnx", "--inputs", "rank.npz", "--outputs", "new.npz"))
        self.refused("no/new.npz: cannot be written: there is no folder 'no'",
                     self.command("infer", *self.model, "--inputs", "in.npz",
                                  "--outputs", "no/new.npz"))

    # Checkpoints

    def test_checkpoints(self):
        self.accepted(self.command("train", *self.model, "--data", "text.txt", "--steps", 2,
                                   "--out", "a"))
        make_model(self.folder / "other.onnx", layers=2)
        self.accepted(self.command("train", "other.onnx", "--config", "other.toml", "--data",
                                   "text.txt", "--steps", 1, "--out", "b"))

        def resume(pattern, checkpoint):
            self.refused(pattern, self.command("train", *self.model, "--data", "text.txt",
                                               "--set", "train.steps=4", "--out", "new",
                                               "--resume", checkpoint))

        resume("b/checkpoint-000001: is a checkpoint of another model", "b/checkpoint-000001")
        self.refused("b/checkpoint-000001/model.safetensors: does not fit the model 'm': not of the model: .*",
                     self.command("infer", *self.model, "--inputs", "in.npz", "--outputs",
                                  "new.npz", "--weights", "b/checkpoint-000001"))
        # A run folder's data, and other tensors, are reported before errors of the data.
        (self.folder / "else.txt").write_bytes(b"something else " * 100)
        for checkpoint in ("b/checkpoint-000001", "b"):
            message = self.refused("b/checkpoint-000001: is a checkpoint of another model .'other'.: it has a tensor .*"
                                   "where m.onnx has none; give", self.command(
                                       "train", *self.model, "--data", "else.txt", "--out", "new", "--resume", checkpoint))
            self.assertNotIn("else.txt", message)
        self.refused("a/checkpoint-000002: is of model 'm', not 'other', and would not go on as the same run: else.txt "
                     "is not the data", self.command("train", "other.onnx", "--config", "m.toml", "--data", "else.txt",
                                                     "--out", "new", "--resume", "a"))
        # A run's folder as --weights means its newest checkpoint.
        infer = ["infer", *self.model, "--inputs", "in.npz", "--outputs"]
        said = self.accepted(self.command(*infer, "newest.npz", "--weights", "a"))
        self.assertIn("the weights are those of a/checkpoint-000002/model.safetensors", said)
        self.accepted(self.command(*infer, "same.npz", "--weights", "a/checkpoint-000002"))
        newest, same = (np.load(self.folder / f"{name}.npz")["logits"] for name in ("newest", "same"))
        np.testing.assert_array_equal(newest, same)
        resume("--resume nowhere: does not exist", "nowhere")
        for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
            file = self.folder / "a" / "checkpoint-000002" / name
            raw = file.read_bytes()
            for part in (0, 1, 2, 3):
                file.write_bytes(raw[:len(raw) * part // 4])
                resume(rf"a/checkpoint-000002/{name}: the checkpoint is torn",
                       "a/checkpoint-000002")
            file.unlink()
            resume(r"a/checkpoint-000002.*(torn|is missing)", "a/checkpoint-000002")
            file.write_bytes(raw)
            if name == "state.json":
                continue
            for at in (len(raw) // 2, len(raw) - 1):
                file.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:])
                resume(rf"a/checkpoint-000002/{name}: is not what was written \(its checksum is",
                       "a/checkpoint-000002")
                if name == "model.safetensors":
                    self.refused(rf"{name}: is not what was written",
                                 self.command("infer", *self.model, "--inputs", "in.npz", "--outputs",
                                              "new.npz", "--weights", "a/checkpoint-000002"))
            file.write_bytes(raw)
        self.refused(r"has done 2 steps already",
                     self.command("train", *self.model, "--data", "text.txt", "--steps", 2,
                                  "--out", "new", "--resume", "a/checkpoint-000002"))
        self.refused("--steps 4 goes beyond train.steps = 2",
                     self.command("train", *self.model, "--data", "text.txt", "--steps", 4,
                                  "--out", "new", "--resume", "a/checkpoint-000002"))
        longer = ("--set", "train.steps=4")
        self.accepted(self.command("train", *self.model, "--data", "text.txt", *longer,
                                   "--out", "c", "--resume", "a/checkpoint-000002"))
        # Checkpoints of earlier versions have no digests.
        state = self.folder / "a" / "checkpoint-000002" / "state.json"
        old = json.loads(state.read_text())
        self.assertEqual(list(old.pop("digests")), ["model.safetensors", "optimizer.safetensors"])
        support.write_old_state(state, old)
        self.accepted(self.command("train", *self.model, "--data", "text.txt", *longer,
                                   "--out", "d", "--resume", "a/checkpoint-000002"))

    # Output

    def test_outputs_that_are_inputs(self):
        make_model(self.folder / "e.onnx", external=True)
        weights = [path.name for path in self.folder.iterdir() if path.name.startswith("e.onnx.")]
        self.assertEqual(len(weights), 1, weights)
        os.symlink("m.onnx", self.folder / "link")
        os.link(self.folder / "m.toml", self.folder / "hard")
        held = {path: path.read_bytes() for path in self.folder.iterdir()}
        itself = r"m.onnx: is an input of this command, which would be replaced; give another output"
        for kind in ("import", "train", "shard", "exe"):
            emit = self.command("compile", *self.model, "--emit", kind, "-o")
            self.refused(itself, [*emit, "m.onnx"])
            self.refused("link: is the input 'm.onnx', which would be replaced", [*emit, "link"])
            self.refused("hard: is the input 'm.toml', which", [*emit, "hard"])
        self.refused(itself, self.command("import", *self.model, "-o", "m.onnx"))
        self.refused(f"{weights[0]}: is an? (the )?input",
                     self.command("compile", "e.onnx", "--config", "e.toml", "--emit", "import",
                                  "-o", weights[0]))
        self.refused("in.npz: is an input", self.command("infer", *self.model, "--inputs", "in.npz",
                                                         "--outputs", "in.npz"))
        self.refused(itself, self.command("infer", *self.model, "--inputs", "in.npz", "--outputs",
                                          "m.onnx"))
        self.refused(itself, self.command("check", *self.model, "--gradients", "m.onnx"))
        self.refused("text.txt: exists and is no executable of `--emit exe`; give another -o",
                     self.command("compile", *self.model, "--emit", "exe", "-o", "text.txt"))
        for path, content in held.items():
            self.assertEqual(path.read_bytes(), content, path)

    def test_tables_that_are_inputs(self):
        self.accepted([CLEAVE, "schedule", "--name", "1f1b", "--stages", 2, "--microbatches", 4,
                       "--csv", "table.csv"])
        self.refused("table.csv: is an input", [CLEAVE, "schedule", "--table", "table.csv",
                                                "--svg", "table.csv"])

    def test_output_exists(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "thesis.txt").write_text("draft")
        self.refused("mine: the output folder exists; it is never overwritten",
                     self.command("train", *self.model, "--data", "text.txt", "--out", "mine"))
        self.refused("mine: the folder exists and is no compiled program",
                     self.command("compile", *self.model, "-o", "mine"))
        # Folders of other programs may contain a manifest.json, too.
        (self.folder / "mine" / "manifest.json").write_text("{}")
        self.refused("mine: the folder exists and is no compiled program",
                     self.command("compile", *self.model, "-o", "mine"))
        self.assertTrue((self.folder / "mine" / "thesis.txt").exists())
        self.refused("text.txt: exists and is no folder",
                     self.command("compile", *self.model, "-o", "text.txt"))
        self.refused("mine: is a folder, expected a file",
                     self.command("import", *self.model, "-o", "mine"))
        self.refused("no/x.mlir: cannot be written: there is no folder 'no'",
                     self.command("import", *self.model, "-o", "no/x.mlir"))

    def test_disk_full(self):
        """A full disk, simulated for non-root users by a limit on file size."""
        def limit(size):
            return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}

        train = self.command("train", *self.model, "--data", "text.txt", "--steps", 2)
        infer = self.command("infer", *self.model, "--inputs", "in.npz", "--outputs", "new.npz")
        self.accepted([*train, "--out", "a"])  # from here on, the programs are cached
        self.accepted(infer)
        (self.folder / "new.npz").unlink()

        self.refused("new.mlir: cannot be written: File too large",
                     self.command("import", *self.model, "-o", "new.mlir"), code=3,
                     stdout=subprocess.DEVNULL, **limit(1000))
        for size in (0, 1000, 20000):
            self.refused("m.onnx: .*File too large",
                         self.command("compile", *self.model, "-o", "new"), code=3,
                         stdout=subprocess.DEVNULL, **limit(size))
        self.refused("new.npz: cannot be written: File too large", infer, code=3,
                     stdout=subprocess.DEVNULL, **limit(1000))
        os.mkdir(self.folder / "full")
        before = self.listing()
        done = subprocess.run(list(map(str, [*train, "--out", "full/b"])), cwd=self.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=support.environment(), **limit(80000))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"\Acleave: error: .*optimizer.safetensors: cannot be "
                                      r"written: File too large; nothing of "
                                      r"full/b/checkpoint-000002 was kept; no checkpoint was "
                                      r"saved\n\Z")
        self.assertEqual(sorted(os.listdir(self.folder / "full" / "b")),
                         ["config.toml", "log.jsonl"])
        self.assertTrue(before <= self.listing() | {(pathlib.Path("full"), 0)} | before)

        # Device files are written to, never replaced.
        self.refused("/dev/full: no space left on the device",
                     self.command("import", *self.model, "-o", "/dev/full"), code=3)
        self.refused("/dev/full: no space left on the device",
                     [*infer[:-4], "--outputs", "/dev/full", "--cache", self.cache], code=3)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.refused("standard output cannot be written",
                         self.command("explain", *self.model), code=3, stdout=full)

    def test_no_space_left(self):
        """A small file system, if users may mount one."""
        def inside(size, command):
            """The command in a `small` folder of that size, and the files it left there."""
            script = (f"mount -t tmpfs -o size={size} tmpfs small && {shlex.join(command)} "
                      ">/dev/null; code=$?; ls -A small small/*; exit $code")
            return subprocess.run(["unshare", "-r", "-m", "sh", "-c", script], text=True,
                                  cwd=self.folder, capture_output=True, timeout=900,
                                  env=support.environment())

        (self.folder / "small").mkdir()
        if not shutil.which("unshare") or inside("1m", ["true"]).returncode:
            self.skipTest("mounts are not allowed here")
        train = self.command("train", *self.model, "--data", "text.txt", "--steps", 2)
        infer = self.command("infer", *self.model, "--inputs", "in.npz")
        self.accepted([*train, "--out", "a"])  # from here on, the programs are cached
        self.accepted([*infer, "--outputs", "a.npz"])
        for size, command, left in (
            ("4k", self.command("import", *self.model, "-o", "small/new.mlir"), ""),
            ("12k", self.command("compile", *self.model, "-o", "small/new"), ""),
            ("12k", [*infer, "--outputs", "small/new.npz"], ""),
            ("12k", [*train[:-1], "small", "--out", "b"], ""),
            ("120k", [*train, "--out", "small/b"], "b config.toml log.jsonl"),
        ):
            with self.subTest(command=command):
                done = inside(size, list(map(str, command)))
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertRegex(done.stderr, r"(?i)\Acleave(-run)?: error: [^\n]*small/[^\n]*"
                                              r"no space left on (the )?device[^\n]*\n"
                                              r"(ls: [^\n]*\n)?\Z")
                names = " ".join(w for w in done.stdout.split() if not w.endswith(":"))
                self.assertEqual(names, left)
        codes = set()
        for size in (8, 32, 48, 64, 80, 96, 128, 160, 100_000):  # file system size, for temporary files
            command = ["env", "TMPDIR=small", *self.command("compile", *self.model, "-o", "new")]
            done = inside(f"{size}k", list(map(str, command)))
            codes.add(done.returncode)
            if done.returncode:
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertRegex(done.stderr, r"(?i)\Acleave: error: [^\n]*(no space left on|"
                                              r"files full\? It is [^\n]*small/)[^\n]*\n"
                                              r"(ls: [^\n]*\n)?\Z")
                self.assertFalse((self.folder / "new").exists())
        self.assertEqual(codes, {0, 3})


if __name__ == "__main__":
    unittest.main()
