"""Pipelines: `cleave check` of every schedule on models that are cut into stages,
with data and tensor parallelism, tied embeddings and layers that do not divide;
bad input.

Models have few layers and small dimensions: what is wrong with a schedule or a
stage is wrong there, too. By default what the covering set of the matrix compiles
is interpreted here.
"""

import json
import pathlib
import tempfile
import unittest

import support
import trace_format
from support import generate

# Name, microbatches on 2 and on 4 ranks.
SCHEDULES = [("gpipe", 2, 4), ("1f1b", 2, 4), ("interleaved", 2, 4), ("looped-bfs", 2, 4),
             ("zb-h1", 2, 4), ("zb-h2", 3, 7), ("zb-v", 4, 8), ("v-half", 4, 8),
             ("dualpipe-v", 4, 8), ("chimera", 2, 4)]


INTERPRET = [] if support.ALL else ["--interpret"]


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Pipeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.models = {}
        for family in ("gpt2", "llama"):
            for layers in (2, 4, 5):
                cls.models[family, layers] = generate(
                    cls.folder / f"{family}{layers}.onnx", family=family, layers=layers,
                    hidden=16, heads=4, vocab=19, positions=16, kv_heads=2,
                    intermediate=24)

    def check(self, model, schedule, ranks, microbatches, *extra, batch=None, steps=2):
        batch = batch or microbatches
        done = support.run(
            support.CLEAVE, "check", *model, "--json", "--steps", steps, "--set", f"dims.batch={batch}",
            "--set", "dims.sequence=8", "--set", f"mesh.pipeline={ranks}",
            "--set", f"train.microbatches={microbatches}",
            "--set", f"parallel.pipeline.schedule={schedule}", *extra)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["pass"])
        self.assertEqual(report["max_replica_difference"], 0)
        return report

    # The matrix has every schedule on these ranks, too, and its covering set most.
    def test_schedules_on_two_ranks(self):
        for number, (name, microbatches, _) in support.some(enumerate(SCHEDULES), 1):
            with self.subTest(schedule=name):
                self.check(self.models[("gpt2", "llama")[number % 2], 2], name, 2, microbatches)

    def test_schedules_on_four_ranks(self):
        for number, (name, _, microbatches) in support.some(enumerate(SCHEDULES), 2):
            with self.subTest(schedule=name):
                self.check(self.models[("llama", "gpt2")[number % 2], 4], name, 4, microbatches,
                           *INTERPRET, steps=1)

    def test_layers_and_microbatches_that_do_not_divide(self):
        """5 layers on 4 ranks; 6 microbatches on 4 ranks."""
        for family, schedule in support.some([("gpt2", "1f1b"), ("llama", "zb-h1")], 1):
            self.check(self.models[family, 5], schedule, 4, 6, *INTERPRET)

    def test_with_data_and_tensor(self):
        axes = ["--set", "mesh.data=2", "--set", "mesh.tensor=2"]
        for family, schedule, microbatches, zero in support.some((
                ("gpt2", "1f1b", 2, 1), ("llama", "zb-h1", 2, 2), ("gpt2", "zb-v", 4, 3),
                ("llama", "interleaved", 2, 3)), 1):
            with self.subTest(schedule=schedule, zero=zero):
                self.check(self.models[family, 2], schedule, 2, microbatches, *axes,
                           "--set", f"parallel.data.zero={zero}", batch=2 * microbatches)

    def test_stages_on_two_ranks(self):
        """Chimera: both models, microbatches that do not divide evenly, dropout; the update
        of both replicas is the same to the bit (see `check`)."""
        if support.ALL:
            self.check(self.models["llama", 4], "chimera", 4, 4)
        self.check(self.models["gpt2", 2], "chimera", 2, 3, "--set", "train.dropout=0.1")
        self.check(self.models["gpt2", 5], "chimera", 4, 7, "--set", "train.dropout=0.1",
                   *INTERPRET)

    def test_stages_on_two_ranks_with_data_and_tensor(self):
        axes = ["--set", "mesh.data=2", "--set", "mesh.tensor=2"]
        for family, zero in support.some((("llama", 2), ("gpt2", 1), ("gpt2", 3)), 1):
            with self.subTest(zero=zero):
                self.check(self.models[family, 2], "chimera", 2, 4, *axes, "--set",
                           f"parallel.data.zero={zero}", batch=8)
        self.check(self.models["llama", 2], "chimera", 2, 2, *axes, "--set",
                   'parallel.sequence=[{kind="megatron",axis="tensor"}]', *INTERPRET, batch=4)

    def test_tiles_over_slow_links(self):
        """Stages on different nodes: what tensor ranks have alike crosses in tiles."""
        cluster = self.folder / "cluster.toml"
        cluster.write_text("[links.intra]\nlatency_us = 0.0\n[links.inter]\nlatency_us = 0.0\n")
        axes = ["--set", "mesh.data=2", "--set", "mesh.tensor=2", "--set", "mesh.ranks_per_node=4",
                "--set", f"target.cluster={cluster}"]
        for family, schedule, zero in support.some((("gpt2", "zb-v", 2),
                                                    ("llama", "interleaved", 3)), 1):
            with self.subTest(schedule=schedule, zero=zero):
                self.check(self.models[family, 2], schedule, 2, 4, *axes, "--set",
                           f"parallel.data.zero={zero}", batch=8)
        # Of an encoder's result, that all stages of the decoder read.
        support.succeed(support.CLEAVE, "check", *support.model_flags("t5"), "--steps", 1,
                        "--set", "mesh.pipeline=4", "--set", "mesh.tensor=2", "--set",
                        "mesh.ranks_per_node=2", "--set", f"target.cluster={cluster}",
                        "--set", "train.microbatches=4", "--set",
                        "parallel.pipeline.schedule=1f1b", *INTERPRET)

    def test_with_grids_of_tensor_ranks(self):
        """A tied table is placed as on its first stage, where the last would lay it otherwise."""
        if support.ALL:  # the matrix has both
            self.check(self.models["llama", 2], "zb-h1", 2, 2, "--set", "mesh.data=2", "--set",
                       "mesh.tensor=2", "--set", "parallel.data.zero=3", "--set",
                       'parallel.sequence=[{kind="megatron",axis="tensor"}]', batch=4)
        self.check(self.models["gpt2", 2], "1f1b", 2, 2, "--set", "mesh.row=2", "--set",
                   "mesh.col=2", "--set", 'mesh.axes=["pipeline","row","col"]', "--set",
                   "parallel.tensor.layout=2d", "--set", 'parallel.tensor.axes=["row","col"]')

    def test_encoder_and_decoder(self):
        for ranks, schedule in support.some(((4, "chimera"), (2, "1f1b"), (4, "zb-h1")), 1):
            support.succeed(support.CLEAVE, "check", *support.model_flags("t5"), "--steps", 1,
                            "--set", f"mesh.pipeline={ranks}", "--set",
                            f"train.microbatches={ranks}", "--set",
                            f"parallel.pipeline.schedule={schedule}", *INTERPRET)

    def test_axis_in_another_place(self):
        self.check(self.models["gpt2", 2], "1f1b", 2, 2, "--set", "mesh.data=2",
                   "--set", 'mesh.axes=["data","pipeline"]', *INTERPRET, batch=4)

    def test_tables_of_ones_own(self):
        table = self.folder / "own.csv"
        # The second: rank 1 has a share of stage 0, but owns nothing on its own.
        for rows, how in (("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", INTERPRET),
                          ("0F0,1F0,1B0,0B0,1F1,1B1\n0F1,0B1\n", [])):
            table.write_text(rows)
            self.check(self.models["gpt2", 2], "custom", 2, 2,
                       "--set", f"parallel.pipeline.table={table}", *how)
        # Ranks that share a stage add up its gradients before data ranks do.
        reduced = "0REDUCE_GRAD,1REDUCE_GRAD\n"
        table.write_text(f"0F0,1F1,1B1,0B0,{reduced}0F1,1F0,1B0,0B1,{reduced}")
        self.check(self.models["gpt2", 2], "custom", 2, 2, "--set",
                   f"parallel.pipeline.table={table}", "--set", "mesh.data=2", "--set",
                   "parallel.data.zero=1", batch=4)

    def test_tables_that_gather_and_reduce(self):
        """UNSHARD, RESHARD and REDUCE_GRAD where a table has them, and ZeRO 3 without."""
        table = self.folder / "shards.csv"
        axes = ["--set", "mesh.data=2", "--set", f"parallel.pipeline.table={table}"]
        for zero, how, rows in (
                (3, [], "0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0I0,0W0,0I1,0W1,0RESHARD\n"
                        "1F0,1I0,1F1,1I1,1W0,1W1\n"),
                (1, INTERPRET, "0F0,0F1,0I0,0I1,0W0,0W1,0REDUCE_GRAD\n"
                               "1F0,1I0,1W0,1F1,1I1,1W1,1REDUCE_GRAD\n"),
                # Both ranks have a share of both stages: they add up first.
                (1, [], "0F0,1F1,1B1,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n"
                        "1F0,0F1,1B0,0B1,0REDUCE_GRAD,1REDUCE_GRAD\n")):
            with self.subTest(zero=zero, rows=rows):
                table.write_text(rows)
                self.check(self.models["gpt2", 2], "custom", 2, 2, *axes, "--set",
                           f"parallel.data.zero={zero}", *how, batch=4)

    def test_tables_that_gather_and_reduce_wrongly(self):
        table = self.folder / "wrong.csv"
        other = "1F0,1I0,1W0,1F1,1I1,1W1"
        for zero, row, words in (
                (3, "0UNSHARD,0F0,0RESHARD,0F1,0I0,0I1,0W0,0W1", ["0F1", "UNSHARD"]),
                # Nothing leaves the first stage backward: all of it is W.
                (3, "0UNSHARD,0F0,0F1,0I0,0I1,0RESHARD,0W0,0W1",
                 ["0W0", "UNSHARD"]),
                (1, "0F0,0F1,0I0,0I1,0W0,0REDUCE_GRAD,0W1", ["0W1", "0REDUCE_GRAD"]),
                (1, "0F0,0F1,0I0,0I1,0W0,0REDUCE_GRAD0,0W1,0REDUCE_GRAD1",
                 ["0REDUCE_GRAD0", "one microbatch"])):
            with self.subTest(row=row):
                reduced = ",1REDUCE_GRAD" if zero == 1 else ""
                table.write_text(f"{row}\n{other}{reduced}\n")
                done = support.run(support.CLEAVE, "check", *self.models["gpt2", 2], "--set",
                                   "dims.batch=4", "--set", "dims.sequence=8", "--set",
                                   "mesh.pipeline=2", "--set", "mesh.data=2", "--set",
                                   "train.microbatches=2", "--set",
                                   "parallel.pipeline.schedule=custom", "--set",
                                   f"parallel.pipeline.table={table}", "--set",
                                   f"parallel.data.zero={zero}")
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_training(self):
        """The same losses as one rank; checkpoints of a pipeline resume elsewhere."""
        model = generate(self.folder / "train.onnx", family="gpt2", layers=2, hidden=16, heads=4,
                         vocab=256, positions=16)
        data = self.folder / "data.txt"
        data.write_text("the quick brown fox jumps over the lazy dog. " * 60)
        def train(name, steps, *extra):
            out = self.folder / name
            support.succeed(support.CLEAVE, "train", *model, "--data", data, "--out", out,
                            "--steps", steps, "--set", "dims.batch=4", "--set",
                            "dims.sequence=16", "--set", "train.microbatches=4",
                            "--set", "train.schedule=constant", "--set",
                            "data.validation=0.2", "--eval-every", 2, *extra)
            log = support.read_log(out)
            valid.update((line["step"], line["val_loss"]) for line in log
                         if name == "one" and line["val_loss"] is not None)
            for line in log:
                if line["val_loss"] is not None:
                    self.assertAlmostEqual(line["val_loss"], valid[line["step"]],
                                           delta=1e-4 * line["val_loss"])
            return [line["loss"] for line in log], out
        valid = {}
        one, _ = train("one", 4)
        self.assertEqual(set(valid), {2, 4})
        two, out = train("two", 2, "--set", "mesh.pipeline=2", "--trace", self.folder / "t.json")
        three, _ = train("three", 4, "--resume", out / "checkpoint-000002",
                         "--set", "mesh.pipeline=2", "--set", "mesh.data=2",
                         "--set", "parallel.pipeline.schedule=zb-v",
                         "--trace", self.folder / "grid.json")
        chimera, out = train("chimera", 2, "--set", "mesh.pipeline=2", "--set",
                             "parallel.pipeline.schedule=chimera")
        four, _ = train("four", 4, "--resume", out / "checkpoint-000002", "--set",
                        "mesh.pipeline=4", "--set", "parallel.pipeline.schedule=chimera")
        for got, want in zip(two + three[-2:] + chimera + four[-2:], one + one):
            self.assertAlmostEqual(got, want, delta=1e-4 * want)
        threads, arrows = trace_format.check(self, self.folder / "t.json", ranks=2)
        names = {event["name"] for event in sum(threads.values(), [])}
        self.assertLessEqual({"0F0", "1F3", "0B3", "1B0"}, names)
        # From a send to its receive: of each microbatch one and back, in each step.
        joined = [(send["name"], receive["name"]) for send, receive in arrows
                  if "SEND" in send["name"]]
        self.assertEqual(sorted(joined), sorted(
            pair for k in range(4) for pair in (
                (f"0SEND_F{k}", f"1WAIT_RECV_F{k}"), (f"1SEND_B{k}", f"0WAIT_RECV_B{k}"))
            for _ in range(2)))
        # Both ends have the same samples: ranks are (pipeline, data).
        _, arrows = trace_format.check(self, self.folder / "grid.json", ranks=4)
        self.assertEqual({(send["pid"], receive["pid"]) for send, receive in arrows},
                         {(0, 2), (2, 0), (1, 3), (3, 1)})

    def test_refusals(self):
        for words, flags in (
                ("chunks", ["parallel.pipeline.schedule=zb-v", "parallel.pipeline.chunks=3"]),
                ("microbatches", ["parallel.pipeline.schedule=dualpipe-v"]),
                ("no reference", ["parallel.pipeline.schedule=pipedream-async"]),
                ("stage", ["parallel.pipeline.stages=[\"nothing\",\"like this\"]"]),
                ("cut points", ["parallel.pipeline.schedule=interleaved",
                                "parallel.pipeline.chunks=400"]),
                ("table", ["parallel.pipeline.schedule=custom"])):
            with self.subTest(words=words, flags=flags):
                sets = [word for flag in flags for word in ("--set", flag)]
                done = support.run(support.CLEAVE, "check", *self.models["gpt2", 2], "--set",
                                   "dims.batch=2", "--set", "dims.sequence=8", "--set",
                                   "mesh.pipeline=2", "--set", "train.microbatches=2", *sets)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
                self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
