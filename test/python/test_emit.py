"""`cleave compile --emit PHASE`: the program after a phase, for a model as exporters write it."""

import pathlib
import tempfile
import unittest

import support
from support import BUILD, CLEAVE, run, succeed

import exported_gpt
import generate

MESH = ["--set", "mesh.data=2", "--set", "mesh.tensor=4", "--set", "parallel.data.zero=1"]


class Emit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.model = cls.folder / "model.onnx"
        # So wide that weights would take 14 GB.
        sizes = generate.Sizes(layers=2, hidden=12288, heads=96, vocab=50257, positions=128)
        exported_gpt.write(cls.model, sizes, batch=4)

    def emit(self, phase):
        out = self.folder / f"{phase}.mlir"
        done = run(CLEAVE, "compile", self.model, "--config", self.model.with_suffix(".toml"),
                   "--emit", phase, "-o", out, *MESH)
        self.assertEqual(done.returncode, 0, done.stderr)
        succeed(BUILD / "bin" / "cleave-opt", out, "-o", "/dev/null")
        return out.read_text()

    def test_import(self):
        text = self.emit("import")
        for count, op in ((2, "nn.attention "), (5, "nn.layer_norm "), (2, "nn.gelu ")):
            self.assertEqual(text.count(op), count, op)
        self.assertNotIn("@loss_grad", text)

    def test_train(self):
        text = self.emit("train")
        for function in ("@forward", "@loss_grad", "@update", "@init_state"):
            self.assertIn(f"func.func {function}(", text)
        self.assertNotIn("dist.mesh", text)

    def test_standard_output(self):
        """`-o -` writes IR, and nothing but IR, to standard output."""
        flags = [self.model, "--config", self.model.with_suffix(".toml"), "-o", "-"]
        printed = succeed(CLEAVE, "compile", *flags, "--emit", "import")
        self.assertEqual(printed, self.emit("import"))
        for kind in ("folder", "exe"):
            refused = run(CLEAVE, "compile", *flags, "--emit", kind)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertIn("-o -: only IR is written to standard output", refused.stderr)
        self.assertFalse(pathlib.Path("-").exists())

    def test_shard(self):
        text = self.emit("shard")
        # A tile of the first layer's width: 4 * 12288 features on 4 ranks.
        self.assertIn("tensor<12288x12288xf32>", text)
        self.assertIn("dist.reduce_scatter", text)
        products = [line for line in text.splitlines() if "= nn.einsum" in line]
        self.assertGreater(len(products), 20)
        self.assertFalse([line for line in products if "49152" in line])

    def test_stages_of_a_pipeline(self):
        """A module for each stage, before and after partitioning."""
        folder = pathlib.Path(self.scratch.name)
        model = support.generate(folder / "small.onnx", layers=2, hidden=8, heads=2, vocab=11,
                                 positions=8)
        flags = [*model, *(word for entry in (
            "mesh.pipeline=2", "mesh.data=2", "parallel.pipeline.schedule=zb-v",
            "train.microbatches=4", "dims.batch=8", "dims.sequence=4")
            for word in ("--set", entry))]
        texts = []
        for phase in ("train", "shard"):
            out = folder / f"stages-{phase}.mlir"
            succeed(CLEAVE, "compile", *flags, "--emit", phase, "-o", out)
            succeed(BUILD / "bin" / "cleave-opt", out, "-o", "/dev/null")
            texts.append(out.read_text())
        train, shard = texts
        for stage in range(4): # two stages on each rank
            self.assertIn(f"module @stage{stage} ", train)
        for function in ("@loss_grad", "@update", "@init_state"):
            self.assertEqual(train.count(f"func.func {function}("), 4, function)
        self.assertNotIn("dist.mesh", train)
        for action, first in (("F", 0), ("I", 1), ("W", 0), ("update.0", 0)):
            for stage in range(first, 4): # the first stage receives nothing
                self.assertIn(f"func.func @{action}.{stage}(", shard)

    def test_bad_input(self):
        flags = ["--config", self.model.with_suffix(".toml"), *MESH]
        out = self.folder / "bad.mlir"
        done = run(CLEAVE, "compile", self.model, *flags, "--emit", "shards", "-o", out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--emit shards: expected folder, exe, import, train, shard, "
                      "kernels, schedule or memory", done.stderr)
        done = run(CLEAVE, "compile", self.model, *flags, "--emit", "shard", "-o",
                   self.folder / "none" / "x.mlir")
        self.assertIn(done.returncode, (2, 3))
        self.assertIn("none/x.mlir", done.stderr)
        self.assertEqual(list(self.folder.glob("*bad*")), [])


if __name__ == "__main__":
    unittest.main()
