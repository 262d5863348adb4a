"""Pipelines on the reference interpreter: every rank of every stage runs in the order of the
schedule, without compilation. Also tests in which operation a fault is found.
"""

import json
import pathlib
import tempfile
import unittest

import support
from support import generate

# Schedule name, microbatches on 2 and on 4 ranks; not always a multiple of the stages.
SCHEDULES = [("gpipe", 3, 4), ("1f1b", 3, 5), ("interleaved", 3, 4), ("looped-bfs", 2, 4),
             ("chimera", 4, 4), ("zb-h1", 3, 4), ("zb-h2", 3, 7), ("zb-v", 3, 4),
             ("v-half", 3, 4), ("dualpipe-v", 4, 8)]


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Interpreted(unittest.TestCase):
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
                    hidden=8, heads=4, vocab=11, positions=8, kv_heads=2, intermediate=12)

    def run_check(self, model, schedule, ranks, microbatches, *extra, axes=(), samples=1):
        sets = [f"dims.batch={samples * microbatches}", "dims.sequence=4",
                f"train.microbatches={microbatches}", f"parallel.pipeline.schedule={schedule}",
                f"mesh.pipeline={ranks}", *axes]
        return support.run(support.CLEAVE, "check", *model, "--interpret", "--json", "--steps", 2,
                           *(word for entry in sets for word in ("--set", entry)), *extra)

    def passes(self, *arguments, **options):
        done = self.run_check(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["pass"])
        self.assertEqual(report["max_replica_difference"], 0)
        return report

    def fails(self, *arguments, **options):
        done = self.run_check(*arguments, **options)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_schedules(self):
        for number, (name, *microbatches) in enumerate(SCHEDULES):
            for ranks, m in zip((2, 4), microbatches):
                family = ("gpt2", "llama")[(number + ranks // 2) % 2]
                with self.subTest(schedule=name, ranks=ranks):
                    report = self.passes(self.models[family, ranks], name, ranks, m)
                    kinds = {tensor["kind"] for tensor in report["tensors"]}
                    self.assertLessEqual({"loss", "output", "gradient", "parameter", "state",
                                          "norm"}, kinds)

    def test_with_data_and_tensor(self):
        grid = ["mesh.data=2", "mesh.tensor=2"]
        for family, schedule, m, zero in (("gpt2", "1f1b", 2, 1), ("llama", "zb-h1", 3, 2),
                                          ("gpt2", "zb-v", 2, 3), ("llama", "interleaved", 2, 3),
                                          ("gpt2", "chimera", 2, 2)):
            with self.subTest(schedule=schedule, zero=zero):
                self.passes(self.models[family, 2], schedule, 2, m, samples=2,
                            axes=[*grid, f"parallel.data.zero={zero}"])

    def test_other_shardings(self):
        megatron = 'parallel.sequence=[{kind="megatron",axis="tensor"}]'
        self.passes(self.models["llama", 2], "zb-h1", 2, 2, samples=2,
                    axes=["mesh.tensor=2", megatron])
        self.passes(self.models["gpt2", 2], "1f1b", 2, 2, axes=[
            'mesh.axes=["pipeline","row","col"]', "mesh.row=2", "mesh.col=2",
            "parallel.tensor.layout=2d", 'parallel.tensor.axes=["row","col"]'])
        # The pipeline axis is in the middle of the mesh.
        self.passes(self.models["gpt2", 2], "zb-v", 2, 2, samples=2, axes=[
            'mesh.axes=["data","pipeline","tensor"]', "mesh.data=2", "mesh.tensor=2"])

    def test_layers_that_do_not_divide(self):
        self.passes(self.models["gpt2", 5], "1f1b", 4, 6)
        self.passes(self.models["llama", 5], "zb-h2", 4, 7)

    def test_encoder_and_decoder(self):
        for ranks, schedule in ((2, "1f1b"), (4, "zb-h1")):
            done = support.run(support.CLEAVE, "check", *support.model_flags("t5"), "--interpret",
                               "--steps", 1, "--set", f"mesh.pipeline={ranks}", "--set",
                               f"train.microbatches={ranks}", "--set",
                               f"parallel.pipeline.schedule={schedule}")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_against_the_interpreter(self):
        """The compiled pipeline is compared with the interpreted program of one rank."""
        sets = ["dims.batch=3", "dims.sequence=4", "train.microbatches=3", "mesh.pipeline=2",
                "parallel.pipeline.schedule=zb-h1"]
        support.succeed(support.CLEAVE, "check", *self.models["gpt2", 2], "--against",
                        "interpreter", "--steps", 2,
                        *(word for entry in sets for word in ("--set", entry)))

    def found(self, done):
        """Where a fault was injected, and the first difference: function, stage, text. Tapped values
        are additional places, so the fault may be another one than in `check`."""
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        fault, difference = report["fault"], report["first_difference"]
        for note in report.get("notes", []):
            if "another fault of this kind: " in note:
                fault = note.split("another fault of this kind: ")[1]
        where = fault.split(" in @")[1].split(",")[0].rsplit(".", 1)
        self.assertRegex(difference, r"^[a-z]+\.[a-z_]+ in @(forward|F|I|W|B|update\.\d) of stage "
                         r"\d(, microbatch \d)?(, node .*)?: (copies of ranks differ by \S+|"
                         r"\S+ beside \S+ at \[.*\] on rank \d)$")
        return where, difference

    def test_bisect(self):
        """The report gives stage, action, operation and node of the first different value."""
        grid = ["mesh.data=2", "mesh.tensor=2"]
        places = set()
        for index in range(0, 60, 3):
            done = self.run_check(self.models["gpt2", 2], "zb-h1", 2, 2, "--inject",
                                  "drop-collective", "--inject-index", index, "--bisect",
                                  axes=grid, samples=2)
            if done.returncode == 2:
                self.assertIn("out of range", done.stderr)
                break
            with self.subTest(index=index):
                (action, stage), difference = self.found(done)
                if action.startswith("update"): # partial sums there are not tapped
                    self.assertIn(" in @update.", difference)
                    continue
                # The difference is in the function of the stage with the fault.
                self.assertIn(f" in @{action} of stage {stage}", difference)
                places.add((action, stage))
        self.assertGreater(len(places), 4)

    def test_bisect_of_compiled_programs(self):
        sets = ["dims.batch=4", "dims.sequence=4", "train.microbatches=2", "mesh.pipeline=2",
                "mesh.tensor=2", "train.dropout=0.1"]
        done = support.run(support.CLEAVE, "check", *self.models["gpt2", 2], "--json", "--steps", 1,
                           "--inject", "random-offset", "--bisect",
                           *(word for entry in sets for word in ("--set", entry)))
        (action, stage), difference = self.found(done)
        self.assertRegex(difference, rf"^nn.dropout in @{action} of stage {stage}, microbatch \d")

    def test_faults_of_command_lists(self):
        """Faults in command lists do not exist in interpreted programs."""
        done = self.run_check(self.models["gpt2", 2], "1f1b", 2, 2, "--inject", "slot-reused")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("leave --interpret out", done.stderr)


if __name__ == "__main__":
    unittest.main()
