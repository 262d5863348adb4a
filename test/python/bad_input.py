"""Models, files and commands for tests of bad input: one clear message that names the file, node or
key, the contract's exit code, and nothing half-written."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import support
import onnxbuild
import onnxwire

CLEAVE, RUN = support.CLEAVE, support.RUN
BATCH, SEQUENCE, VOCABULARY = 4, 16, 257
# What every command that reads a model needs besides it, on top of MODEL.
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
    """A model with two inputs of no role."""
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
        """The command fails with one message and leaves everything as it was."""
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
