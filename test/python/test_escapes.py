"""Names of nodes, tensors, dimensions, arrays, keys and files that contain terminal escapes or newlines. They are
escaped in every message, table and log, and otherwise have no effect."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support
from support import CLEAVE, RUN, write_safetensors

ESC, BELL, CSI, LINE = "\x1b[31m", "\x07", "\x9b2J", "\ncleave: error: all is well"
X, W, B, Y = f"x{ESC}", f"w{LINE}", f"b{CSI}", f"y{BELL}\u202e"
RATE = "train.lr=0.1"


def model(path):
    """y = relu(x w) + b, with such names of a node and a dimension."""
    b = onnxbuild.Builder()
    b.input(X, np.float32, ["batch", 3])
    b.parameter(W, np.eye(3, dtype=np.float32))
    b.parameter(B, np.arange(3, dtype=np.float32))
    b.op("Add", b.op("Relu", b.op("MatMul", X, W)), B, out=Y)
    b.output(Y, np.float32, ["batch", 3])
    built = b.model(18)
    for node in built.graph.nodes:
        node.set_text(3, f"node{ESC}{LINE}")
    onnxwire.save(built, path)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Escapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.shared.name)
        model(cls.folder / "m.onnx")
        np.savez(cls.folder / "in.npz", **{X: np.ones((4, 3), np.float32)})
        np.savez(cls.folder / "data.npz", **{X: np.ones((8, 3), np.float32), f"t{ESC}": np.zeros((8, 3), np.float32)})

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def clean(self, text, where):
        """The text has only printable characters, tabs and newlines, and no line forged by a name."""
        for line in text.splitlines():
            self.assertFalse([c for c in line if (ord(c) < 32 and c != "\t") or 0x7f <= ord(c) < 0xa0 or c == "\u202e"],
                             f"{where}: {line!r}")
            self.assertFalse(line.startswith("cleave: error: all is well"), where)

    def run_clean(self, *command, code=0, words=(), cwd=None):
        done = support.run(*command, cwd=cwd)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.clean(done.stdout + done.stderr, command)
        for word in words:
            self.assertIn(word, done.stdout + done.stderr)
        return done

    def test_tables(self):
        m = self.folder / "m.onnx"
        self.run_clean(CLEAVE, "import", m, "--summary", words=[r"w\x0Acleave: error: all is well", r"b\u009B2J"])
        self.run_clean(CLEAVE, "explain", m, "--set", "dims.batch=4")
        shown = self.run_clean(CLEAVE, "explain", m, "--set", "dims.batch=4", "--json").stdout
        json.loads(shown)
        self.run_clean(CLEAVE, "import", m, "--set", "dims.batch=4")
        self.run_clean(CLEAVE, "check", m, "--set", "dims.batch=4", "--interpret")

    def test_arrays_are_found(self):
        """Arrays are found by the names that the model and the archive share."""
        self.run_clean(CLEAVE, "infer", self.folder / "m.onnx", "--inputs", self.folder / "in.npz", "--outputs",
                       self.folder / "out.npz", "--cache", self.folder / "cache")
        with np.load(self.folder / "out.npz") as found:
            name, = found.files
            np.testing.assert_array_equal(found[name], np.ones((4, 3)) + np.arange(3))
        write_safetensors(self.folder / "w.safetensors", {W: 2 * np.eye(3, dtype=np.float32),
                                                          B: np.zeros(3, np.float32)})
        self.run_clean(CLEAVE, "infer", self.folder / "m.onnx", "--inputs", self.folder / "in.npz", "--outputs",
                       self.folder / "out.npz", "--weights", self.folder / "w.safetensors", "--cache",
                       self.folder / "cache")
        with np.load(self.folder / "out.npz") as found:
            np.testing.assert_array_equal(found[found.files[0]], np.full((4, 3), 2))

    def test_a_job(self):
        out = self.folder / "run"
        sets = [word for value in ("train.loss=mse", f'data.labels="t\\u001b[31m"', "dims.batch=4", RATE,
                                   "data.validation=0") for word in ("--set", value)]
        self.run_clean(CLEAVE, "train", self.folder / "m.onnx", "--data", self.folder / "data.npz", *sets, "--steps", 2,
                       "--out", out, "--cache", self.folder / "cache")
        self.clean((out / "log.jsonl").read_text(), "log.jsonl")
        self.clean((out / "config.toml").read_text(), "config.toml")
        self.run_clean(CLEAVE, "train", self.folder / "m.onnx", "--data", self.folder / "data.npz", "--resume", out,
                       "--set", "train.steps=3", "--cache", self.folder / "cache", "--out", self.folder / "again")

    def test_messages(self):
        m, data = self.folder / "m.onnx", self.folder / "data.npz"
        train = [CLEAVE, "train", m, "--data", data, "--set", "dims.batch=4", "--set", "train.loss=mse"]
        self.run_clean(*train, "--set", 'data.labels="u\\u001b[2J\\ncleave: error: all is well"', code=2, words=["u\\x1B[2J"])
        write_safetensors(self.folder / "other.safetensors", {f"v{ESC}": np.zeros(3, np.float32)})
        self.run_clean(*train, "--set", 'data.labels="t\\u001b[31m"', "--weights", self.folder / "other.safetensors",
                       code=2, words=[r"v\x1B[31m"])
        for text in ('"a\\u001b[31m\\nb" = 1', '[train]\nlr = "\\u001b[31m"', '[data]\npath = "a\\u001b\\nb"', "a = \x1b",
                     '[dims]\n"a\\nb" = "c"'):
            (self.folder / "c.toml").write_text(text)
            self.run_clean(CLEAVE, "train", m, "--config", self.folder / "c.toml", code=2)
        arrays = self.folder / "arrays"
        arrays.mkdir()
        for name in ("zz" + LINE.replace("/", ""), "y"):
            np.save(arrays / f"{name}.npy", np.zeros((8, 3), np.float32))
        self.run_clean(CLEAVE, "train", m, "--data", arrays, "--set", "dims.batch=4", "--set", "train.loss=mse", "--set",
                       "data.labels=t", code=2, words=[r"zz\x0Acleave"])
        named = self.folder / f"file{ESC}{LINE.replace('/', '')}"
        named.mkdir()
        self.run_clean(CLEAVE, "train", named / "none.onnx", code=2)
        self.run_clean(RUN, named, "train", code=2)
        self.run_clean(CLEAVE, "train", m, "--data", named / "data.npz", "--set", "dims.batch=4", code=2)
        self.run_clean(CLEAVE, f"tra{ESC}in", code=2)
        self.run_clean(CLEAVE, "train", m, f"--st{ESC}eps", "3", code=2)

    def test_bytes_that_are_no_text(self):
        data = (self.folder / "m.onnx").read_bytes().replace(X.encode(), b"x\xff\xfe\x80\xc3!"[:len(X.encode())])
        (self.folder / "bytes.onnx").write_bytes(data)
        done = self.run_clean(CLEAVE, "explain", self.folder / "bytes.onnx", "--set", "dims.batch=4", "--json")
        json.loads(done.stdout)
        self.run_clean(CLEAVE, "import", self.folder / "bytes.onnx", "--summary", words=[r"x\xFF\xFE\x80\xC3!"])


if __name__ == "__main__":
    unittest.main()
