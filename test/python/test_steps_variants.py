"""Random jobs with skipped steps, saved and resumed with other settings and on other meshes: losses, weights and
update counts as in NumPy."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import support  # extends sys.path
import left_out
import steps_variants as variants
from support import CLEAVE, read_log, read_safetensors, write_safetensors

SEEDS = 500 if support.ALL else 10
WITHIN = {"sgd": 1e-6, "adamw": 5e-6}
WORDS = {"nan": "not finite", "huge": "not finite", "unlabelled": "no labels", None: None}


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Steps(unittest.TestCase):
    def test_random_jobs(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(SEEDS):
                with self.subTest(seed=seed):
                    self.check(pathlib.Path(folder), seed)

    def near(self, found, right, optimizer, what):
        error = np.abs(np.asarray(found) - right).max() / np.abs(right).max()
        self.assertLessEqual(error, WITHIN[optimizer], what)

    def check(self, folder, seed):
        job = variants.generate(seed)
        write_safetensors(folder / f"w{seed}.safetensors", job.weights)
        data = folder / f"data{seed}.npz"
        np.savez(data, x=job.data[0], y=job.data[1])
        out = folder / f"run{seed}"
        before = None
        for segment in job.segments:
            self.run_segment(folder, seed, job, segment, before)
            checkpoint = out / f"checkpoint-{segment.last:06d}"
            right, found = job.kept[segment.last], read_safetensors(checkpoint / "model.safetensors")
            for name, values in right.items():
                self.near(found[name], values, job.optimizer, f"{segment}: {name}")
            if job.optimizer == "adamw":
                state = read_safetensors(checkpoint / "optimizer.safetensors")
                self.assertEqual({name[:-5]: int(n) for name, n in state.items() if name.endswith(".step")},
                                 job.counts[segment.last])
            before = segment
        log = read_log(out)
        self.assertEqual([line["step"] for line in log], list(range(1, len(job.losses) + 1)))
        self.assertEqual([line.get("left_out") for line in log],
                         [WORDS[job.spoiled.get(step)] for step in range(1, len(log) + 1)])
        pairs = [(line["loss"], loss) for line, loss in zip(log, job.losses) if loss is not None]
        if pairs:
            self.near(*map(np.array, zip(*pairs)), job.optimizer, "losses")
        state = json.loads((out / f"checkpoint-{len(log):06d}" / "state.json").read_text())
        self.assertEqual(state["left_out"], len(log) - len(pairs))

    def run_segment(self, folder, seed, job, segment, before):
        out = folder / f"run{seed}"
        frozen = json.dumps(segment.frozen)
        sets = [*segment.layout, f"train.microbatches={segment.parts}", f"train.frozen={frozen}"]
        if before is None:
            data = ["--data", folder / f"data{seed}.npz", "--weights", folder / f"w{seed}.safetensors"]
            sets += ["data.labels=y", "data.validation=0", f"train.optimizer={job.optimizer}", "train.eps=1e-4",
                     f"train.schedule={job.schedule}", f"train.warmup_steps={job.warmup}",
                     f"train.min_lr={job.min_lr}", f"train.weight_decay={job.decay}",
                     f"train.momentum={job.momentum}", f"train.betas={list(job.betas)}"]
        else:
            # Another number of microbatches makes a program with another number of samples.
            data = ["--resume", out / f"checkpoint-{before.last:06d}", "--accept", "model"]
            # A changed mesh is given as a whole; other settings stay as before.
            sets += ["mesh.data=1"] * (not segment.layout) + ["parallel.data.zero=0"] * (
                not any("zero" in word for word in segment.layout))
        sets += [f"train.lr={segment.lr}", f"train.clip_norm={segment.clip}",
                 f"train.on_nan={'stop' if segment.stops else 'skip'}"]
        if before is None or before.horizon != segment.horizon:
            sets.append(f"train.steps={segment.horizon}")
        model = folder / f"perceptron{segment.parts}.mlir"
        model.write_text(left_out.model(left_out.BATCH // segment.parts))
        done = support.run(CLEAVE, "train", model, *data, "--out", out, "--cache", folder / "cache", "--steps",
                           segment.runs_to, "--save-every", 1, *(w for value in sets for w in ("--set", value)))
        self.assertEqual(done.returncode, 3 if segment.stops else 0, f"{segment}\n{done.stdout}{done.stderr}")
        if segment.stops:
            self.assertIn(f"step {segment.last + 1}: the ", done.stderr)


if __name__ == "__main__":
    unittest.main()
