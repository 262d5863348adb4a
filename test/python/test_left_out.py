"""Skipped steps, parameters that are unfrozen later, and schedules that are extended, against PyTorch
(test/models/left_out.py made left_out.json)."""

import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

import support
from support import CLEAVE, MODELS, read_log, read_safetensors, write_safetensors

sys.path.insert(0, str(MODELS))
import left_out

RIGHT = json.loads((MODELS / "left_out.json").read_text())
WITHIN = {"sgd": 1e-6, "adamw": 5e-6}
MESHES = {"one": [], "microbatches": ["train.microbatches=3"],
          "zero 3": ["mesh.data=2", "parallel.data.zero=3"],
          "pipeline": ["mesh.pipeline=2", "train.microbatches=3"]}
# By default a part of all combinations of mesh and optimizer; all with CLEAVE_TEST_ALL.
CELLS = [(mesh, optimizer) for mesh in MESHES for optimizer in WITHIN]
DAILY = CELLS if support.ALL else [cell for i, cell in enumerate(CELLS) if i in (0, 3, 5, 7)]


class LeftOut(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.shared.name)
        write_safetensors(cls.folder / "w.safetensors", left_out.weights())

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def data(self, name, x, y):
        path = self.folder / f"{name}.npz"
        np.savez(path, x=x, y=y)
        return path

    def run_cleave(self, out, data, mesh, optimizer, *flags, sets=()):
        """Trains from the known weights; a resumed run has its own."""
        sets = [*MESHES[mesh], *sets]
        if "--resume" not in flags:
            flags = ("--weights", self.folder / "w.safetensors", *flags)
            sets = ["data.labels=y", "data.validation=0", "train.schedule=constant",
                    f"train.optimizer={optimizer}", f"train.lr={left_out.RATES[optimizer]}", *sets]
        parts = 3 if "train.microbatches=3" in MESHES[mesh] else 1
        model = self.folder / f"perceptron{parts}.mlir"
        model.write_text(left_out.model(left_out.BATCH // parts))
        return support.run(CLEAVE, "train", model, "--data", data, "--out", out, "--cache",
                           self.folder / "cache", *flags,
                           *(word for value in sets for word in ("--set", value)))

    def near(self, found, right, optimizer, what):
        found, right = np.asarray(found, float), np.asarray(right, float)
        error = np.abs(found - right).max() / np.abs(right).max()
        self.assertLessEqual(error, WITHIN[optimizer], what)

    def same_weights(self, checkpoint, right, optimizer, what):
        found = read_safetensors(checkpoint / "model.safetensors")
        self.assertEqual(set(found), set(right))
        for name, values in right.items():
            self.near(found[name].ravel(), values, optimizer, f"{what}: {name}")

    def test_skipped_steps_change_nothing(self):
        data = self.data("left_out", *left_out.data())
        for mesh, optimizer in DAILY:
            with self.subTest(mesh=mesh, optimizer=optimizer):
                out = self.folder / f"skip-{mesh}-{optimizer}"
                done = self.run_cleave(out, data, mesh, optimizer, "--steps", left_out.STEPS,
                                       sets=["train.on_nan=skip"])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("step 1: left out, the loss is not finite", done.stdout)
                self.assertIn("step 3: left out, the gradient is not finite", done.stdout)
                self.assertIn("step 6: left out, no label is counted", done.stdout)
                self.assertIn("3 of 8 steps were left out", done.stdout)
                right = RIGHT[optimizer]["left_out"]
                log = read_log(out)
                self.assertEqual([line.get("left_out") for line in log],
                                 ["not finite", None, "not finite", None, None, "no labels", None, None])
                kept = [i for i, loss in enumerate(right["losses"]) if loss is not None]
                self.near([log[i]["loss"] for i in kept], [right["losses"][i] for i in kept],
                          optimizer, "losses")
                last = out / f"checkpoint-{left_out.STEPS:06d}"
                self.same_weights(last, right["weights"][str(left_out.STEPS)], optimizer, mesh)
                self.assertEqual(json.loads((last / "state.json").read_text())["left_out"], 3)
                if optimizer == "adamw":
                    state = read_safetensors(last / "optimizer.safetensors")
                    self.assertEqual({int(state[f"{name}.step"]) for name in left_out.weights()}, {5})

    def test_a_stop_saves_the_state_before_it(self):
        steps, bad = left_out.STEPS, left_out.HUGE_STEP
        kinds = {"loss": self.data("nan", *left_out.data(nan=bad, huge=0, unlabelled=0)),
                 "gradient norm": self.data("huge", *left_out.data(nan=0, unlabelled=0))}
        cells = [(mesh, kind, "adamw") for mesh in MESHES for kind in kinds]
        for mesh, kind, optimizer in cells if support.ALL else cells[1::2] + cells[4:5]:
            with self.subTest(mesh=mesh, kind=kind):
                out = self.folder / f"stop-{mesh}-{kind}"
                done = self.run_cleave(out, kinds[kind], mesh, optimizer, "--steps", steps)
                self.assertEqual(done.returncode, 3, done.stderr)
                checkpoint = out / f"checkpoint-{bad - 1:06d}"
                self.assertIn(f"step {bad}: the {kind} is not finite", done.stderr)
                self.assertIn(f"--resume {checkpoint} goes on", done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()[-1:]), 1)
                right = RIGHT[optimizer]["stopped"]
                self.same_weights(checkpoint, right["weights"][str(bad - 1)], optimizer, mesh)
                # With this setting the run continues, skipping the step.
                done = self.run_cleave(out, kinds[kind], mesh, optimizer, "--resume", "latest",
                                       sets=["train.on_nan=skip"])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.same_weights(out / f"checkpoint-{steps:06d}", right["weights"][str(steps)],
                                  optimizer, mesh)

    def test_diverged(self):
        """A checkpoint whose parameters give no finite loss is not advised; a NaN is printed without a sign."""
        data = self.data("clean", *left_out.clean(left_out.ALL_STEPS))
        out = self.folder / "diverged"
        done = self.run_cleave(out, data, "one", "sgd", "--steps", 5, "--save-every", 1, "--eval-every", 1,
                               sets=["train.lr=1e30", "train.clip_norm=0", "data.validation=0.2"])
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"do not resume from {out / 'checkpoint-000001'}: the loss of finite data is not finite with its "
                      "parameters; resume from an earlier checkpoint, or begin again with a smaller train.lr", done.stderr)
        self.assertNotIn("goes on", done.stderr)
        self.assertRegex(done.stdout, " val_loss (nan|inf) ")

    def test_parameters_that_begin_later(self):
        data = self.data("clean", *left_out.clean(left_out.ALL_STEPS))
        frozen, steps = left_out.FROZEN_STEPS, left_out.ALL_STEPS
        for optimizer in WITHIN:
            out, right = self.folder / f"frozen-{optimizer}", RIGHT[optimizer]["unfrozen"]
            done = self.run_cleave(out, data, "one", optimizer, "--steps", frozen,
                                   sets=['train.frozen=["w1", "b1"]'])
            self.assertEqual(done.returncode, 0, done.stderr)
            for mesh in ("one", "zero 3", "pipeline")[:None if support.ALL else 2]:
                with self.subTest(mesh=mesh, optimizer=optimizer):
                    end = self.folder / f"unfrozen-{optimizer}-{mesh}"
                    done = self.run_cleave(end, data, mesh, optimizer, "--steps", steps, "--resume",
                                           out / f"checkpoint-{frozen:06d}",
                                           sets=["train.frozen=[]"])
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn('train.frozen = [] (was ["w1","b1"] up to step 20)', done.stdout)
                    last = end / f"checkpoint-{steps:06d}"
                    self.near([line["loss"] for line in read_log(out) + read_log(end)],
                              right["losses"], optimizer, "losses")
                    self.same_weights(last, right["weights"][str(steps)], optimizer, mesh)
                    if optimizer == "adamw":
                        state = read_safetensors(last / "optimizer.safetensors")
                        self.assertEqual([int(state[f"{name}.step"]) for name in ("w1", "b1", "w2", "b2")],
                                         [6, 6, 26, 26])

    def test_a_longer_horizon(self):
        horizon, longer = left_out.HORIZON, left_out.LONGER
        data = self.data("longer", *left_out.clean(longer))
        cosine = ["train.schedule=cosine", f"train.steps={horizon}"]
        for optimizer in WITHIN:
            with self.subTest(optimizer=optimizer):
                out = self.folder / f"longer-{optimizer}"
                done = self.run_cleave(out, data, "one", optimizer, "--steps", horizon // 2, sets=cosine)
                self.assertEqual(done.returncode, 0, done.stderr)
                done = self.run_cleave(out, data, "one", optimizer, "--resume", "latest", "--steps", longer)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"--steps {longer} goes beyond train.steps = {horizon}", done.stderr)
                done = self.run_cleave(out, data, "one", optimizer, "--resume", "latest",
                                       sets=[f"train.steps={longer}"])
                self.assertEqual(done.returncode, 0, done.stderr)
                right = RIGHT[optimizer]["longer"]
                self.near([line["loss"] for line in read_log(out)], right["losses"], optimizer, "losses")
                self.same_weights(out / f"checkpoint-{longer:06d}", right["weights"][str(longer)],
                                  optimizer, "weights")
                self.assertIn(f"train.steps = {longer} (was {horizon} up to step 3)", done.stdout)
                self.assertIn(f"steps = {longer}", (out / "config.toml").read_text())
                self.assertIn(f"steps = {horizon}", (out / "config-000003.toml").read_text())

    def test_checkpoints_of_earlier_versions(self):
        data = self.data("clean", *left_out.clean(left_out.ALL_STEPS))
        out = self.folder / "earlier"
        done = self.run_cleave(out, data, "one", "adamw", "--steps", 3, sets=["train.frozen=[\"b1\"]"])
        self.assertEqual(done.returncode, 0, done.stderr)
        checkpoint = out / "checkpoint-000003"
        whole = self.folder / "whole"
        done = self.run_cleave(whole, data, "one", "adamw", "--steps", 5, "--resume", checkpoint)
        self.assertEqual(done.returncode, 0, done.stderr)
        # Checkpoints of earlier versions have neither counts nor a configuration.
        state = read_safetensors(checkpoint / "optimizer.safetensors")
        write_safetensors(checkpoint / "optimizer.safetensors",
                          {name: value for name, value in state.items() if not name.endswith(".step")})
        text = json.loads((checkpoint / "state.json").read_text())
        for key in ("digests", "config", "data", "split", "optimizer", "left_out"):
            del text[key]
        text["updates"] = 3
        text["files"]["optimizer.safetensors"] = (checkpoint / "optimizer.safetensors").stat().st_size
        support.write_old_state(checkpoint / "state.json", text)
        rest = self.folder / "rest"
        done = self.run_cleave(rest, data, "one", "adamw", "--steps", 5, "--resume", checkpoint)
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in ("model.safetensors", "optimizer.safetensors"):
            a, b = (read_safetensors(run / "checkpoint-000005" / file) for run in (whole, rest))
            self.assertEqual(set(a), set(b))
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])


if __name__ == "__main__":
    unittest.main()
