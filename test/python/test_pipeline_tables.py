"""Pipelines with user-written tables and patterns: invalid ones are rejected with file, rule and
action before compilation, and changed ones are recompiled."""

import json
import pathlib
import tempfile
import unittest

import support
from support import generate

GOOD = ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n")


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class PipelineTables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = generate(cls.folder / "gpt2.onnx", family="gpt2", layers=2, hidden=16, heads=4,
                             vocab=19, positions=16)
        cls.table = cls.folder / "table.csv"

    def run_command(self, command, *flags, sets=(), config=None):
        words = [word for setting in ("dims.batch=4", "dims.sequence=8", "mesh.pipeline=2",
                                      "train.microbatches=2", *sets)
                 for word in ("--set", setting)]
        return support.run(support.CLEAVE, command, self.model[0], "--config",
                           config or self.model[2], *flags, *words)

    def custom(self, text):
        self.table.write_text(text)
        return ["parallel.pipeline.schedule=custom", f"parallel.pipeline.table={self.table}"]

    def test_bad_tables(self):
        for words, text in {
                "each waits for a later action of another rank": "0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n",
                "'0X1' is no action": "0F0,0X1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                "0F1": "0F0,0B0\n1F0,1B0,1F1,1B1\n",
        }.items():
            for command, flags in (("check", []), ("compile", ["-o", self.folder / "program"]),
                                   ("explain", [])):
                with self.subTest(words=words, command=command):
                    done = self.run_command(command, *flags, sets=self.custom(text))
                    self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                    self.assertIn(str(self.table), done.stderr)
                    self.assertIn(words, done.stderr)
                    self.assertFalse((self.folder / "program").exists())

    def test_sizes_that_no_table_has(self):
        for setting in ("parallel.pipeline.chunks=4294967297", "train.microbatches=4294967298"):
            with self.subTest(setting=setting):
                done = self.run_command("check", sets=(
                    "parallel.pipeline.schedule=interleaved", "dims.batch=8589934596", setting))
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(setting.split("=")[1], done.stderr)

    def train(self, sets):
        (self.folder / "text.txt").write_bytes(bytes(i % 19 for i in range(400)))
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        trace = out / "trace.json"
        done = self.run_command("train", "--data", self.folder / "text.txt", "--steps", 1, "--cache",
                                self.folder / "cache", "--out", out / "run", "--trace", trace,
                                sets=sets)
        return done, trace

    def test_a_changed_table_is_compiled_again(self):
        orders = []
        for text in GOOD:
            done, trace = self.train(self.custom(text))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            events = json.loads(trace.read_text())["traceEvents"]
            first = text.splitlines()[0].split(",")
            names = [event["name"] for event in sorted(events, key=lambda e: e.get("ts", 0))
                     if event.get("pid") == 0 and event["name"] in first]
            orders.append(list(dict.fromkeys(names)))  # one action may have several commands
        self.assertEqual(orders, [text.splitlines()[0].split(",") for text in GOOD])
        done, _ = self.train(self.custom("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n"))
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)

    def test_a_changed_cluster_is_read_again(self):
        cluster = self.folder / "cluster.toml"
        cluster.write_text("ranks_per_node = 0\n")
        done, _ = self.train([f"target.cluster={cluster}"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        cluster.write_text("nonsense = 1\n")
        done, _ = self.train([f"target.cluster={cluster}"])
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("nonsense", done.stderr)

    def test_overrides_of_one_stage(self):
        """[[shard]] applies to the whole model: a stage need not contain the matching parameter."""
        config = self.folder / "shard.toml"
        for name in ("wte.weight", "h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.weight"):
            config.write_text(f'[[shard]]\nmatch = "(transformer.)?{name}"\n'
                              'dims = [["tensor"], []]\n')
            with self.subTest(name=name):
                done = self.run_command("check", "--steps", 1, config=config,
                                        sets=("mesh.tensor=2",))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        config.write_text('[[shard]]\nmatch = "nothing"\ndims = [["tensor"], []]\n')
        done = self.run_command("check", config=config, sets=("mesh.tensor=2",))
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("[[shard]] match = 'nothing' matches none of the", done.stderr)

    def test_names_that_look_like_the_compilers(self):
        path = self.folder / "stored.mlir"
        path.write_text("""
func.func @forward(
    %x: tensor<4x6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
    %w: tensor<6x6xf32> {nn.name = "w.stored", nn.role = #nn.role<parameter>},
    %v: tensor<6x6xf32> {nn.name = "v.slot", nn.role = #nn.role<parameter>})
    -> (tensor<4x6xf32> {nn.batch_dim = 0 : i64, nn.name = "logits", nn.role = #nn.role<output>}) {
  %a = nn.einsum "ij,jk->ik" %x, %w : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
  %b = nn.einsum "ij,jk->ik" %a, %v : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
  return %b : tensor<4x6xf32>
}
""")
        done = support.run(support.CLEAVE, "check", path, "--steps", 1, "--set", "mesh.pipeline=2",
                           "--set", "train.loss=cross_entropy")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
