"""`cleave check --inject`: every kind of fault that applies to the program is detected, on a GPT, a
perceptron and a mixture of experts; kinds that do not apply are rejected.

Models are tiny; programs with faults in values are interpreted.
"""

import json
import pathlib
import re
import tempfile
import unittest

import numpy as np

import support
from support import generate
import matrix_faults
import onnxbuild

DROPOUT = ["train.dropout=0.1"]
# Neither the samples nor the classes divide.
GRID = ["mesh.data=3", "mesh.tensor=3", "parallel.data.zero=1"]
STAGES = ["mesh.pipeline=2", "train.microbatches=4"]
# Faults are in the values of ranks, or in command lists: of pipeline stages, or of any program.
VALUES, COMMANDS, PIPELINES = "values", "commands", "pipelines"
KINDS = {"drop-collective": VALUES, "sum-for-mean": VALUES, "wrong-group": VALUES,
         "swapped-axes": VALUES, "pad-identity": VALUES, "bias-twice": VALUES, "norm-twice": VALUES,
         "random-offset": VALUES, "stale-buffer": VALUES, "gradient-off": VALUES,
         "missing-wait": COMMANDS, "slot-reused": PIPELINES, "microbatch-swapped": PIPELINES,
         "gradient-twice": PIPELINES}
# Kinds that do not apply to a model, with the reason.
REFUSED = {("perceptron", "random-offset"): "no random numbers"}


def perceptron(path):
    """A perceptron with three layers and a classifier."""
    draw, b = np.random.default_rng(3), onnxbuild.Builder()
    h, width = b.input("x", np.float32, ["batch", 10]), 10
    for number, outer in enumerate((12, 12, 12, 7)):
        weight = b.parameter(f"{number}.weight", draw.standard_normal((width, outer)).astype(np.float32) / 3)
        bias = b.parameter(f"{number}.bias", draw.standard_normal(outer).astype(np.float32))
        last = number == 3
        h = b.op("Gemm", h, weight, bias, **{"out": "y"} if last else {})
        h = h if last else b.op("Relu", h)
        width = outer
    b.output("y", np.float32, ["batch", 7])
    path.write_bytes(b.model(18).bytes())
    return [path]


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.small = {family: generate(cls.folder / f"{family}.onnx", family=family, layers=1,
                                      batch=4, sequence=10) for family in ("gpt2", "llama")}
        gpt = generate(cls.folder / "gpt.onnx", family="gpt2", layers=2, hidden=24, heads=6,
                       vocab=17, batch=4, sequence=5)
        cls.models = {"gpt": gpt, "perceptron": perceptron(cls.folder / "perceptron.onnx"),
                      "switch": support.model_flags("switch")}
        # Settings for faults in values, in commands, and for programs with both.
        cls.settings = {
            "gpt": {VALUES: GRID + DROPOUT, COMMANDS: STAGES, "all": ["dims.batch=4"]},
            "perceptron": {VALUES: GRID, COMMANDS: STAGES,
                           "all": ["dims.batch=4", "train.loss=cross_entropy"]},
            "switch": {VALUES: ["mesh.expert=2", "mesh.tensor=3", "mesh.data=2"] + DROPOUT,
                       COMMANDS: STAGES, "all": ["dims.batch=4", "dims.sequence=5"]},
        }

    def inject(self, kind, *flags, sets=()):
        done = support.run(
            support.CLEAVE, "check", "--json", "--steps", 1, *flags, "--against", "interpreter",
            "--inject", kind, *(word for value in sets for word in ("--set", value)))
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    def caught(self, kind, *flags, sets=()):
        code, report, errors = self.inject(kind, *flags, sets=sets)
        self.assertEqual(code, 1, errors)
        self.assertFalse(report["pass"])
        self.assertTrue(report["fault"].startswith(kind + ": "), report["fault"])
        wrong = [t for t in report["tensors"] if not t["pass"]]
        # Differing replicas are a failure, too; null means not finite. Ranks that do not match
        # may also stop.
        stopped = any("the broken program stopped" in note for note in report.get("notes", []))
        self.assertTrue(wrong or report["max_replica_difference"] != 0 or stopped)
        return report

    def test_every_kind_on_three_models(self):
        kinds = matrix_faults.kinds_of(support.CLEAVE)
        self.assertEqual(kinds, list(KINDS), "a kind has no case here")
        for model, flags in self.models.items():
            of_model = self.settings[model]
            for kind in kinds:
                # Of the slots and microbatches of a pipeline, two models say enough.
                if KINDS[kind] == PIPELINES and model == "switch" and not support.ALL:
                    continue
                with self.subTest(model=model, kind=kind):
                    of_values = KINDS[kind] == VALUES
                    sets = of_model[VALUES if of_values else COMMANDS] + of_model["all"]
                    how = ["--interpret"] if of_values else []
                    if words := REFUSED.get((model, kind)):
                        code, report, errors = self.inject(kind, *flags, *how, sets=sets)
                        self.assertEqual((code, report), (2, None), errors)
                        self.assertIn(f"cannot have the fault {kind}: it has {words}", errors)
                    else:
                        self.caught(kind, *flags, *how, sets=sets)

    def test_no_pipeline(self):
        for kind in (kind for kind, what in KINDS.items() if what == PIPELINES):
            code, report, errors = self.inject(kind, *self.small["gpt2"], sets=["mesh.data=2"])
            self.assertEqual((code, report), (2, None), errors)
            self.assertIn(f"cannot have the fault {kind}: it has no pipeline", errors)

    def test_compiled_and_with_zero_3(self):
        """The test of three models interprets faults in values."""
        cases = [(kind, family, sets) for kind, what in KINDS.items() if what == VALUES
                 for family, sets in (("llama", ["mesh.data=2", "mesh.tensor=2", "parallel.data.zero=1"]),
                                      ("gpt2", ["mesh.data=2", "mesh.tensor=2", "parallel.data.zero=3"]))]
        for kind, family, sets in support.some(cases, 2):
            with self.subTest(kind=kind, model=family, sets=sets):
                self.caught(kind, *self.small[family], sets=sets + DROPOUT)

    def test_missing_wait_elsewhere(self):
        cases = [(family, index) for family in self.small for index in (0, 1)]
        for family, index in support.some(cases, 2):
            with self.subTest(model=family, index=index):
                self.caught("missing-wait", *self.small[family], "--inject-index", index,
                            sets=["mesh.data=2", "mesh.tensor=2", "parallel.data.zero=3"])

    def test_every_place(self):
        """Faults at every place, not only the middle one; by default the first, the last and some between."""
        model = generate(self.folder / "places.onnx", family="gpt2", layers=1, hidden=24, heads=6,
                         vocab=17, batch=4, sequence=5)
        for kind in (kind for kind, what in KINDS.items() if what == VALUES):
            flags, sets = [*model, "--interpret"], GRID + DROPOUT
            code, _, errors = self.inject(kind, *flags, "--inject-index", 100000, sets=sets)
            self.assertEqual(code, 2)
            places = int(re.search(r"this program has (\d+) place", errors).group(1))
            for index in support.some(range(places), 4):
                with self.subTest(kind=kind, index=index):
                    self.caught(kind, *flags, "--inject-index", index, sets=sets)


if __name__ == "__main__":
    unittest.main()
