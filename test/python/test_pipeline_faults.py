"""`cleave check --inject` on pipelines: faults in slots, microbatches and gradients are detected
at every place where they can be injected, other kinds are rejected with a message.
"""

import json
import pathlib
import tempfile
import unittest

import support
from support import generate

OF_PIPELINES = ("slot-reused", "microbatch-swapped", "gradient-twice")


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class PipelineFaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model = generate(pathlib.Path(folder.name) / "gpt2.onnx", family="gpt2", layers=2,
                             hidden=16, heads=4, vocab=19, positions=16)

    def inject(self, kind, *flags, schedule="1f1b", microbatches=3, pipeline=2):
        sets = [f"dims.batch={2 * microbatches}", "dims.sequence=8",
                f"train.microbatches={microbatches}", f"mesh.pipeline={pipeline}"]
        if pipeline > 1:
            sets.append(f"parallel.pipeline.schedule={schedule}")
        return support.run(support.CLEAVE, "check", *self.model, "--json", "--steps", 1,
                           *(word for entry in sets for word in ("--set", entry)),
                           *([] if "--bisect" in flags else ["--against", "interpreter"]),
                           "--inject", kind, *flags)

    def caught(self, done, kind):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertFalse(report["pass"])
        self.assertTrue(report["fault"].startswith(kind + ": "), report["fault"])
        return report

    def test_every_place(self):
        for kind in OF_PIPELINES:
            faults, first = set(), () if support.ALL else (0, 1, 1000)
            for index in first or range(100):
                done = self.inject(kind, "--inject-index", index, microbatches=2)
                if done.returncode == 2:
                    break
                with self.subTest(kind=kind, index=index):
                    faults.add(self.caught(done, kind)["fault"])
            self.assertIn("out of range", done.stderr)
            self.assertGreater(len(faults), 0)
            places = min(index, len(first) - 1) if first else index
            self.assertEqual(len(faults), places, "a place is offered twice")

    def test_other_schedules(self):
        for kind, schedule, microbatches, *ranks in (
                ("slot-reused", "zb-v", 4), ("microbatch-swapped", "gpipe", 3),
                ("gradient-twice", "zb-h1", 3), ("missing-wait", "interleaved", 2),
                ("slot-reused", "chimera", 4, 4), ("microbatch-swapped", "chimera", 4),
                ("gradient-twice", "chimera", 4), ("missing-wait", "chimera", 4)):
            with self.subTest(kind=kind, schedule=schedule):
                self.caught(self.inject(kind, schedule=schedule, microbatches=microbatches,
                                        pipeline=ranks[0] if ranks else 2), kind)

    def test_kinds_of_all_programs(self):
        axes = [word for entry in ("mesh.data=2", "mesh.tensor=2", "parallel.data.zero=1")
                for word in ("--set", entry)]
        for kind in ("drop-collective", "sum-for-mean", "wrong-group", "stale-buffer",
                     "norm-twice", "missing-wait", "slot-reused"):
            # Faults of values are there in both; test_check_faults has compiled ones.
            compiled = support.ALL or kind in ("drop-collective", "missing-wait", "slot-reused")
            with self.subTest(kind=kind):
                self.caught(self.inject(kind, *axes, *([] if compiled else ["--interpret"]),
                                        microbatches=2), kind)

    def test_bisect(self):
        """The first difference is on the stage of the fault, or on a stage that depends on it."""
        for kind, action in (("slot-reused", "B"), ("gradient-twice", "B"),
                             ("microbatch-swapped", "[FB]"), ("missing-wait", "[FB]")):
            with self.subTest(kind=kind):
                report = self.caught(self.inject(kind, "--bisect"), kind)
                self.assertRegex(report["first_difference"],
                                 rf"^\S+ in @{action} of stage [01], microbatch 2, node \S+: ")

    def test_refusals(self):
        for kind in OF_PIPELINES:
            with self.subTest(kind=kind):
                done = self.inject(kind, pipeline=1)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn("no pipeline", done.stderr)
        for kind in ("drop-collective", "random-offset"):
            with self.subTest(kind=kind):
                done = self.inject(kind)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(f"cannot have the fault {kind}", done.stderr)


if __name__ == "__main__":
    unittest.main()
