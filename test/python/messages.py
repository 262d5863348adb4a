"""What was typed, and what is said: one line that says what was found, what was expected, where,
and what to do. One model and one cache for all."""

import pathlib
import random
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support

CLEAVE, RUN = support.CLEAVE, support.RUN
SEQUENCE, VOCABULARY = 16, 257


def classifier(path, **inputs):
    """x [s77, 4] times w [4, 3]; further inputs are added to it, or read by nothing if None."""
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
    """63 nodes of an operator that there is not, one of another, and after it one whose attribute
    is refused. `types`: the value_info that the file has."""
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
        """What the command says on stderr, which is errors and warnings and nothing else."""
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
