"""A resumed run is the same run: differences are listed, and those that change the mathematics must be accepted. Also
weights from other files, and errors that are reported before a model is compiled."""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import numpy as np

import support
from support import CLEAVE, MODELS, read_log, read_safetensors, write_safetensors

sys.path.insert(0, str(MODELS))
import left_out
import onnxbuild

STEPS = 4


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.shared.name)
        cls.model = cls.folder / "perceptron.mlir"
        cls.model.write_text(left_out.model(left_out.BATCH))
        cls.data = cls.folder / "data.npz"
        x, y = left_out.clean(STEPS + 1)
        np.savez(cls.data, x=x, y=y)
        write_safetensors(cls.folder / "w.safetensors", left_out.weights())
        done = cls.train("run", "--weights", cls.folder / "w.safetensors", "--steps", STEPS,
                         "--save-every", 2, sets=["data.labels=y", "train.schedule=constant",
                                                  "train.optimizer=adamw", "train.lr=0.0123"])
        assert done.returncode == 0, done.stderr
        cls.checkpoint = cls.folder / "run" / f"checkpoint-{STEPS:06d}"

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    @classmethod
    def train(cls, out, *flags, sets=(), data=None, cwd=None):
        data = ["--data", data] if data else [] if "--resume" in flags else ["--data", cls.data]
        return support.run(CLEAVE.resolve(), "train", cls.model, *data, "--out", cls.folder / out, "--cache",
                           cls.folder / "cache", *flags,
                           *(word for value in sets for word in ("--set", value)), cwd=cwd)

    def refused(self, *flags, **more):
        done = self.train("no", *flags, **more)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertFalse((self.folder / "no").exists())
        errors = [line for line in done.stderr.splitlines() if "error: " in line]
        self.assertEqual(len(errors), 1, done.stderr)
        return errors[0]

    def test_everything_is_kept(self):
        done = self.train("kept", "--resume", self.checkpoint, "--steps", STEPS + 2, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line["lr"] for line in read_log(self.folder / "kept")], [0.0123, 0.0123])
        config = (self.folder / "kept" / "config.toml").read_text()
        self.assertEqual(config, (self.folder / "run" / "config.toml").read_text())
        self.assertIn("lr = 0.0123", config)
        events = read_log(self.folder / "kept", events=True)
        self.assertEqual([(e["event"], e["step"], e["changed"]) for e in events], [("resume", STEPS, {})])

    def test_what_differs_is_asked_for(self):
        message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1, "--config",
                               self.written('[train]\nlr = 0.5\nclip_norm = 2.0\nkeep = 9\n'))
        self.assertIn("would not go on as the same run: train.clip_norm = 2.0 (was 1.0), train.lr = 0.5 (was 0.0123)",
                      message)
        self.assertIn("--set 'train.lr=0.5'", message)
        done = self.train("asked", "--resume", self.checkpoint, "--steps", STEPS + 1,
                          sets=["train.lr=0.5", "train.keep=9", "mesh.data=2"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("train.lr = 0.5 (was 0.0123 up to step 4)", done.stdout)
        self.assertIn("train.keep = 9 (was 3 up to step 4)", done.stdout)
        self.assertIn('mesh.data = 2 (was not set up to step 4)', done.stdout)
        changed = read_log(self.folder / "asked", events=True)[0]["changed"]
        self.assertEqual(changed["train.lr"], [0.0123, 0.5])
        self.assertEqual(changed["mesh.data"], [None, 2])
        # A changed mesh is reported as a whole.
        done = self.train("split", "--resume", self.folder / "asked" / f"checkpoint-{STEPS + 1:06d}",
                          "--steps", STEPS + 2, sets=["mesh.tensor=2"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 ranks (data=1, tensor=2)", done.stdout)

    def written(self, text):
        path = self.folder / "more.toml"
        path.write_text(text)
        return path

    def test_other_data(self):
        other = self.folder / "other.npz"
        with np.load(self.data) as known:
            np.savez(other, x=known["x"] + 1, y=known["y"])
        message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1, data=other)
        self.assertIn(f"{other} is not the data that it was trained on ({self.data})", message)
        self.assertIn(f"--set data.path={other}", message)
        done = self.train("elsewhere", "--resume", self.checkpoint, "--steps", STEPS + 1, data=self.data)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.train("another", "--resume", self.checkpoint, "--steps", STEPS + 1,
                          sets=[f"data.path={other}"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'data.path = "{other}" (was "{self.data}" up to step 4)', done.stdout)
        gone = self.folder / "gone.npz"
        self.data.rename(gone)
        try:
            message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1)
            self.assertIn(f"the data of its run is gone, {self.data}; give --data FILE", message)
            done = self.train("moved", "--resume", self.checkpoint, "--steps", STEPS + 1, data=gone)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            gone.rename(self.data)

    def test_other_contents(self):
        """val_loss from a file of its own, and from a folder of arrays."""
        held = self.folder / "held.npz"
        with np.load(self.data) as known:
            arrays = dict(known)
        np.savez(held, **arrays)
        run = self.folder / "evaluated"
        sets, weights = ["data.labels=y", "train.steps=2"], ["--weights", self.folder / "w.safetensors", "--steps", 1]
        done = self.train("evaluated", *weights, data=self.data, sets=[*sets, f"data.eval_path={held}"])
        self.assertEqual(done.returncode, 0, done.stderr)
        np.savez(held, **{name: array[::-1] for name, array in arrays.items()})
        message = self.refused("--resume", run, "--steps", 2)
        self.assertIn(f"{held}, which val_loss is of, has other contents than before; say that it is meant with --accept "
                      "data.eval_path", message)
        done = self.train("evaluated2", "--resume", run, "--steps", 2, "--accept", "data.eval_path")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("data.eval_path = ", done.stdout)
        folder = self.folder / "arrays"
        folder.mkdir()
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        done = self.train("of_arrays", *weights, data=folder, sets=sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        np.save(folder / "notes.npy", np.zeros(3))
        np.save(folder / "x.npy", arrays["x"] + 1)
        message = self.refused("--resume", self.folder / "of_arrays", "--steps", 2)
        self.assertIn("its contents have changed (x.npy has changed, notes.npy is new)", message)

    def test_other_samples(self):
        """Changing the held-out part changes which samples are trained."""
        message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1, "--config",
                               self.written(f'[data]\neval_path = "{self.data}"\n'))
        self.assertIn(f'data.eval_path = "{self.data}" (was "")', message)
        message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1, "--config",
                               self.written('[data.inputs]\n"it\'s.odd" = "ones"\n'))
        self.assertIn("""--set 'data.inputs."it'\\''s.odd"="ones"'""", message)

    def test_the_split_of_earlier_versions(self):
        """Earlier versions held out the last samples; a run resumed from one, even twice, continues to do so."""
        run = self.folder / "early"
        done = self.train("early", "--steps", 2, sets=["data.labels=y", "data.shuffle_split=false",
                                                        "train.schedule=constant"])
        self.assertEqual(done.returncode, 0, done.stderr)
        path = run / "checkpoint-000002" / "state.json"
        state = json.loads(path.read_text())
        del state["config"]["data"]["shuffle_split"]
        support.write_old_state(path, state)
        (run / "config.toml").write_text("[train]\nlr = 7.0\n")  # of another run, so it is not read
        before = run
        for steps in (3, 4):
            after = self.folder / f"early-{steps}"
            done = self.train(after.name, "--resume", before / f"checkpoint-{steps - 1:06d}", "--steps", steps)
            self.assertEqual(done.returncode, 0, done.stderr)
            state = json.loads((after / f"checkpoint-{steps:06d}" / "state.json").read_text())
            self.assertIs(state["split"]["shuffled"], False)
            self.assertEqual(state["config"]["data"]["shuffle_split"], "false")
            before = after

    def test_a_changed_split_is_refused(self):
        """The configuration is the same, but the training samples differ."""
        copy = self.folder / "resplit"
        shutil.copytree(self.folder / "run", copy)
        path = copy / self.checkpoint.name / "state.json"
        state = json.loads(path.read_text())
        was = state["split"]["held_out"]
        state["split"]["held_out"] = was + 1
        support.write_old_state(path, state)
        message = self.refused("--resume", path.parent, "--steps", STEPS + 1)
        self.assertIn("would not train on the samples of its run", message)
        self.assertIn(f'"held_out":{was + 1}', message)

    def test_parameters_without_state_are_counted(self):
        done = self.train("part", "--steps", 1, sets=["data.labels=y", 'train.frozen=["w1", "b1"]'])
        self.assertEqual(done.returncode, 0, done.stderr)
        for frozen, words in (('["b1"]', "1 trained parameter;"), ("[]", "2 trained parameters;")):
            done = self.train(f"part{len(frozen)}", "--resume", self.folder / "part" / "checkpoint-000001",
                              sets=[f"train.frozen={frozen}", "train.steps=2"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"has no optimizer state of {words}", done.stdout)
            self.assertNotIn("left out", done.stdout)
        done = self.train("less", "--resume", self.checkpoint, sets=['train.frozen=["w1", "b1"]', f"train.steps={STEPS + 1}"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the optimizer state of 2 parameters that do not train any more is left out", done.stdout)

    def test_the_middle_of_the_data(self):
        changed, whole = self.folder / "changed.npz", bytearray(self.data.read_bytes())
        x, y = left_out.clean(STEPS + 1)
        at = bytes(whole).index(x[30].tobytes())
        x[30, 0] += 1
        whole[at:at + 4] = x[30, 0].tobytes()
        changed.write_bytes(whole)
        message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1, data=changed)
        self.assertIn("is not the data that it was trained on", message)

    def test_configurations_are_kept(self):
        """A run resumed twice from the same step, in its own folder."""
        done = self.train("twice", "--steps", 4, "--save-every", 2, sets=["data.labels=y"])
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.folder / "twice"
        for keep in (8, 9):
            done = self.train("twice", "--resume", run / "checkpoint-000002", "--steps", 4,
                              sets=[f"train.keep={keep}"])
            self.assertEqual(done.returncode, 0, done.stderr)
        kept = [re.search(r"keep = \d", (run / name).read_text())[0]
                for name in ("config-000002.toml", "config-000002-2.toml", "config.toml")]
        self.assertEqual(kept, ["keep = 3", "keep = 8", "keep = 9"])

    def test_steps_are_called_by_their_key(self):
        message = self.refused("--set", "train.steps=0", sets=["data.labels=y"])
        self.assertIn("train.steps: expected at least 1 to train, found 0", message)

    def test_a_watchdog_names_the_checkpoint(self):
        """The watchdog also works in validation, where ranks do not wait for each other."""
        # Action run 5 is the first of validation.
        done = self.train("silent", "--steps", 4, "--save-every", 1, "--eval-every", 2, "--eval-samples", 12,
                          "--watchdog", 1, "--inject-failure", "1,5,0,1",
                          sets=["data.labels=y", "data.validation=0.25", "mesh.data=2"])
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, "rank 1 failed in action 'loss'.*the others have been ready for longer than "
                                      "the watchdog's time")
        self.assertIn(f"--resume {self.folder / 'silent' / 'checkpoint-000001'} goes on", done.stderr)

    def test_another_optimizer(self):
        message = self.refused("--resume", self.checkpoint, "--steps", STEPS + 1, sets=["train.optimizer=sgd"])
        self.assertIn(f'the checkpoint is of train.optimizer = "adamw", the configuration says "sgd"', message)
        self.assertIn(f"--weights {self.checkpoint}", message)

    def test_another_untie(self):
        """The weights file is the run's, but the tensors computed from it differ."""
        b = onnxbuild.Builder()
        w = b.parameter("w", np.eye(left_out.IN, dtype=np.float32))
        b.op("MatMul", b.op("Tanh", b.op("MatMul", b.input("x", np.float32, ["batch", left_out.IN]), w)), w, out="y")
        b.output("y", np.float32, ["batch", left_out.IN])
        model, data = self.folder / "untie.onnx", self.folder / "untie.npz"
        model.write_bytes(b.model(18).bytes())
        np.savez(data, x=np.ones((8, left_out.IN), np.float32), z=np.ones((8, left_out.IN), np.float32))
        command = [CLEAVE, "train", model, "--data", data, "--cache", self.folder / "cache", "--set", "dims.batch=4",
                   "--set", "data.labels=z", "--set", "train.loss=mse", "--set", "train.schedule=constant"]
        support.succeed(*command, "--steps", 1, "--out", self.folder / "untied", "--set", "train.untie=['w']")
        more = [*command, "--steps", 2, "--resume", self.folder / "untied", "--out", self.folder / "more"]
        done = support.run(*more, "--set", "train.untie=[]")
        self.assertEqual((done.returncode, done.stderr.count("error: ")), (2, 1), done.stderr)
        self.assertIn("checkpoint-000001: is no checkpoint of this model: it has a tensor 'w.use2' of shape [6, 6], where "
                      f"{model} has none; its run has another train.untie, which has to stay as it was\n", done.stderr)
        support.succeed(*more)

    def test_a_compiled_program_refuses_what_differs(self):
        for name, sets, code in (("same", [], 0), ("other", ["train.lr=0.5"], 2)):
            program = self.folder / f"program-{name}"
            support.succeed(CLEAVE, "compile", self.model, "-o", program, "--config",
                            self.folder / "run" / "config.toml", *(w for s in sets for w in ("--set", s)))
            done = support.run(support.BUILD / "bin" / "cleave-run", program, "train", "--resume",
                               self.checkpoint, "--steps", STEPS + 1, "--out", self.folder / f"by-{name}")
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn("would not go on as the same run: train.lr = 0.5 (was 0.0123)", done.stderr)

    def test_weights_of_another_model(self):
        bad = left_out.weights()
        bad["head"] = bad.pop("w2")
        bad["w1"] = bad["w1"].T.copy()
        bad["b1"] = np.arange(left_out.HIDDEN)
        path = self.folder / "bad.safetensors"
        write_safetensors(path, bad)
        np.savez(self.folder / "in.npz", x=np.zeros((left_out.BATCH, left_out.IN), np.float32))
        want = (f"{path}: does not fit the model 'perceptron': missing: 'w2'; not of the model: 'head' "
                "(of the shape of 'w2': if they are tied, rename it); 'w1' has shape [10, 6], expected [6, 10], 'b1' has element type i64, expected a floating type")
        for command in (["train", self.model, "--data", self.data, "--out", self.folder / "no", "--set", "data.labels=y"],
                        ["infer", self.model, "--inputs", self.folder / "in.npz", "--outputs", self.folder / "no.npz"],
                        ["check", self.model, "--set", "mesh.data=2"]):
            cache = [] if command[0] == "check" else ["--cache", self.folder / "cache"]
            done = support.run(CLEAVE, *command, "--weights", path, *cache)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            errors = [line for line in done.stderr.splitlines() if "error: " in line]
            self.assertEqual(errors, [f"cleave: error: {want}"], command[0])
        self.assertFalse((self.folder / "no").exists() or (self.folder / "no.npz").exists())
        good = left_out.weights()
        write_safetensors(path, good | {"twin": good["w2"].copy(), "more": good["b2"].copy()})
        self.assertIn("not of the model: 'more', 'twin' (the same as 'w2': if they are tied, leave it out)",
                      self.refused("--weights", path, sets=["data.labels=y"]))

    def test_weights_are_read_by_all(self):
        x = np.random.default_rng(1).normal(size=(left_out.BATCH, left_out.IN)).astype(np.float32)
        np.savez(self.folder / "in.npz", x=x)
        weights = read_safetensors(self.checkpoint / "model.safetensors")
        right = np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]
        for name, path in (("checkpoint", self.checkpoint), ("file", self.checkpoint / "model.safetensors")):
            out = self.folder / f"{name}.npz"
            support.succeed(CLEAVE, "infer", self.model, "--inputs", self.folder / "in.npz", "--outputs", out,
                            "--weights", path, "--cache", self.folder / "cache")
            np.testing.assert_allclose(np.load(out)["logits"], right, rtol=1e-5, atol=1e-6)
        support.succeed(CLEAVE, "check", self.model, "--set", "mesh.data=2", "--interpret", "--steps", 1, "--weights",
                        self.checkpoint)
        # The gradients at these weights.
        out = self.folder / "gradients.npz"
        support.succeed(CLEAVE, "check", self.model, "--interpret", "--inputs", self.folder / "in.npz",
                        "--gradients", out, "--weights", self.checkpoint)
        np.testing.assert_allclose(np.load(out)["logits"], right, rtol=1e-5, atol=1e-6)

    def test_validation_is_drawn(self):
        """Samples sorted by class: the last rows have one class, randomly held-out ones do not."""
        x, y = left_out.clean(STEPS + 1)
        order = np.argsort(y, kind="stable")
        sorted_data = self.folder / "sorted.npz"
        np.savez(sorted_data, x=x[order], y=y[order])
        split = {}
        for name, value in (("drawn", "auto"), ("end", "false")):
            done = self.train(name, "--steps", 2, data=sorted_data,
                              sets=["data.labels=y", f"data.shuffle_split={value}", "data.validation=0.25"])
            self.assertEqual(done.returncode, 0, done.stderr)
            split[name] = json.loads((self.folder / name / "checkpoint-000002" / "state.json").read_text())["split"]
        self.assertEqual(split, {"drawn": {"samples": 60, "held_out": 15, "shuffled": True},
                                 "end": {"samples": 60, "held_out": 15, "shuffled": False}})
        done = self.train("own", "--steps", 2, "--eval-samples", 0, data=sorted_data,
                          sets=["data.labels=y", f"data.eval_path={self.data}"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("60 samples to train on; ", done.stdout)
        self.assertEqual(read_log(self.folder / "own")[-1]["val_samples"], 60)


class BeforeCompiling(unittest.TestCase):
    """Detectable errors are reported before a model is compiled: the cache stays empty."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "perceptron.mlir"
        self.model.write_text(left_out.model(left_out.BATCH))
        self.data = self.folder / "data.npz"
        x, y = left_out.clean(2)
        np.savez(self.data, x=x, y=y)

    def train(self, *flags, sets=(), data=None):
        return support.run(CLEAVE, "train", self.model, "--data", data or self.data, "--out", self.folder / "out",
                           "--cache", self.folder / "cache", "--steps", 1, *flags, "--set", "data.labels=y",
                           *(word for value in sets for word in ("--set", value)))

    def test_what_is_refused(self):
        empty, lacking = self.folder / "empty.npz", self.folder / "lacking.npz"
        empty.write_bytes(b"")
        x, y = left_out.clean(2)
        np.savez(lacking, x=x, z=y)
        for data, sets, words in (
                (empty, [], r"empty.npz: is empty"),
                (lacking, [], r"lacking.npz: lacks the arrays 'y' \(for input 'labels'\).*it has 'x', 'z'"),
                (None, ["target.cluster=nowhere.toml"], r"nowhere.toml"),
                (None, ["target.kind=cuda"], r"(CUDA toolkit|libcuda|no CUDA device|driver)"),
                (None, ["target.memory=1e-7"], r"a rank needs at least 1\.95 KiB, but there are 107 B: parameters "
                                               r"500 B, gradients 500 B, state of adamw 1000 B; split them further")):
            with self.subTest(sets=sets, data=data):
                done = self.train(sets=sets, data=data)
                if "target.kind=cuda" in sets and done.returncode == 0:
                    self.skipTest("there is a device")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, words)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1)
                self.assertFalse((self.folder / "cache").exists() and list((self.folder / "cache").iterdir()))

    def test_what_is_warned_of(self):
        cores = os.cpu_count()
        for sets, words in (
                (["mesh.data=16"], [r"4 of 16 ranks have no sample: the batch of 12 is split over 16 ranks, 1 each",
                                    rf"16 ranks share {cores} cores: times say nothing of 16 ranks"]),
                (["mesh.pipeline=2"], [r"bubble 50 %: .*; with train.microbatches = 8 it would be 11 %"]),
                (["mesh.data=5"], [r"1 of 5 ranks has no sample: the batch of 12 is split over 5 ranks, 3 each"]),
                (["mesh.data=7", "parallel.data.zero=3"], [r"1 of 7 ranks has no sample"]),
                (['mesh.axes=["x"]', "mesh.x=4", 'shard=[{ match = "w1", dims = [[], ["x"]] }]'],
                 [r"10 over 4 ranks of 'x' is padded to 12, 17 % of it is wasted \('w1' and 2 more\)"])):
            with self.subTest(sets=sets):
                for _ in range(2): # compiled, then from the cache
                    done = self.train("--dry-run", sets=sets)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    lines = [line for line in done.stderr.splitlines() if "warning: " in line]
                    for word in words:
                        if "cores" in word and cores >= 16:
                            continue
                        self.assertEqual(len([line for line in lines if re.search(word, line)]), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
