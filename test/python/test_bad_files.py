"""Bad data, checkpoints and outputs, given to the real commands; full disks."""

import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import unittest

import numpy as np

import support  # finds the others
import onnxbuild
import onnxwire
from bad_input import BadInput, BATCH, SEQUENCE, VOCABULARY, COMMANDS, make_model, make_model_of_any_size, CLEAVE


class BadFiles(BadInput):
    # Data

    def test_data(self):
        (self.folder / "short.txt").write_text("few words")
        (self.folder / "odd.bin").write_bytes(b"123")
        (self.folder / "data.csv").write_text("1,2\n")
        np.save(self.folder / "big.npy", np.array([3] * 500 + [VOCABULARY] * 500, np.int32))
        np.save(self.folder / "float.npy", np.zeros(1000))
        np.savez(self.folder / "other.npz", ids=np.zeros((9, SEQUENCE), np.int64))
        np.savez(self.folder / "none.npz", input_ids=np.zeros((0, SEQUENCE), np.int64))
        for data, pattern in {
            "short.txt": "short.txt: 9 tokens are fewer than a sequence of 16",
            "odd.bin": r"odd.bin: 3 bytes are no whole number of uint16 tokens \(data.dtype\)",
            "data.csv": "data.csv: unknown kind of data '.csv'; expected .txt",
            "big.npy": "big.npy: the token at position 500 has id 257, beyond the model's "
                       "vocabulary of 257",
            "float.npy": "float.npy: has element type f64, expected integer tokens",
            "other.npz": "other.npz: lacks the arrays 'input_ids', .*it has 'ids'",
            "none.npz": "none.npz: holds no samples",
            "missing.txt": "missing.txt: cannot be read: No such file",
        }.items():
            self.refused(pattern, self.command("train", *self.model, "--data", data,
                                               "--out", "new"))
        self.refused("give --data FILE or data.path",
                     self.command("train", *self.model, "--out", "new"))
        self.refused("data.labels = .next. makes labels of .* name their array in data.labels",
                     self.command("train", *self.model, "--data", "big.npy", "--set",
                                  "train.loss=mse", "--out", "new"))
        (self.folder / "few.txt").write_text("w" * (2 * SEQUENCE + 1))
        self.assertRegex(self.accepted(self.command("train", *self.model, "--data", "few.txt", "--dry-run", "--set",
                                                    "data.validation=0")),
                         "warning: the data has [12] samples? to train on, fewer than a batch of "
                         f"{BATCH}: a step reads some of them twice")
        self.refused("--steps: given 2 times, expected once",
                     self.command("train", *self.model, "--steps", 1, "--steps", 2))

    def test_bound_values_of_other_types(self):
        """One line, and exit code 2."""
        b = onnxbuild.Builder()
        x = b.op("Mul", b.input("x", np.float32, ["batch", 3]), b.parameter("w", np.ones(3, np.float32)))
        b.op("Add", x, b.op("Cast", b.input("k", np.int64, [1]), to=1), out="y")
        b.output("y", np.float32, ["batch", 3])
        onnxwire.save(b.model(18), self.folder / "b.onnx")
        np.savez(self.folder / "in.npz", x=np.zeros((2, 3), np.float32))
        for command, flags in COMMANDS.items():
            message = self.refused(r"b.onnx: input 'k' is bound to 5.5 \(--bind\), but has type i64\[1\]",
                                   self.command(command, "b.onnx", "--set", "dims.batch=2", "--bind", "k=5.5", *flags))
            self.assertEqual(message.count("\n"), 1, message)

    def test_inference(self):
        np.savez(self.folder / "big.npz", input_ids=np.full((BATCH, SEQUENCE), VOCABULARY))
        np.savez(self.folder / "shape.npz", input_ids=np.zeros((BATCH, SEQUENCE - 1), np.int64))
        np.savez(self.folder / "rank.npz", input_ids=np.zeros(BATCH * SEQUENCE, np.int64))
        np.savez(self.folder / "name.npz", ids=np.zeros((BATCH, SEQUENCE), np.int64))
        raw = (self.folder / "in.npz").read_bytes()
        (self.folder / "cut.npz").write_bytes(raw[:len(raw) // 2])
        for name, pattern in {
            "big": "big.npz, array 'input_ids': .* has id 257, beyond the model's vocabulary",
            "shape": r"shape.npz, array 'input_ids': has shape \[4, 15\], expected \[4, 16\]",
            "rank": r"rank.npz, array 'input_ids': has shape \[64\], expected \[4, 16\]",
            "name": "name.npz: array 'ids' is no input of the model; did you mean 'input_ids'?",
            "cut": "cut.npz: not a whole .npz",
            "none": "none.npz: cannot be read: No such file",
        }.items():
            self.refused(pattern, self.command("infer", *self.model, "--inputs", f"{name}.npz",
                                               "--outputs", "new.npz"))
        # Neither here nor there are sizes of the model's dimensions given.
        make_model_of_any_size(self.folder / "any.onnx")
        self.refused(r"rank.npz, array 'input_ids': has shape \[64\], expected \[\w+, \w+\]",
                     self.command("infer", "any.onnx", "--inputs", "rank.npz", "--outputs", "new.npz"))
        self.refused("no/new.npz: cannot be written: there is no folder 'no'",
                     self.command("infer", *self.model, "--inputs", "in.npz",
                                  "--outputs", "no/new.npz"))

    # Checkpoints

    def test_checkpoints(self):
        self.accepted(self.command("train", *self.model, "--data", "text.txt", "--steps", 2,
                                   "--out", "a"))
        make_model(self.folder / "other.onnx", layers=2)
        self.accepted(self.command("train", "other.onnx", "--config", "other.toml", "--data",
                                   "text.txt", "--steps", 1, "--out", "b"))

        def resume(pattern, checkpoint):
            self.refused(pattern, self.command("train", *self.model, "--data", "text.txt",
                                               "--set", "train.steps=4", "--out", "new",
                                               "--resume", checkpoint))

        resume("b/checkpoint-000001: is a checkpoint of another model", "b/checkpoint-000001")
        self.refused("b/checkpoint-000001/model.safetensors: does not fit the model 'm': not of the model: .*",
                     self.command("infer", *self.model, "--inputs", "in.npz", "--outputs",
                                  "new.npz", "--weights", "b/checkpoint-000001"))
        # Before anything is said of data, that of a run's folder, and of one with more tensors.
        (self.folder / "else.txt").write_bytes(b"something else " * 100)
        for checkpoint in ("b/checkpoint-000001", "b"):
            message = self.refused("b/checkpoint-000001: is a checkpoint of another model .'other'.: it has a tensor .*"
                                   "where m.onnx has none; give", self.command(
                                       "train", *self.model, "--data", "else.txt", "--out", "new", "--resume", checkpoint))
            self.assertNotIn("else.txt", message)
        self.refused("a/checkpoint-000002: is of model 'm', not 'other', and would not go on as the same run: else.txt "
                     "is not the data", self.command("train", "other.onnx", "--config", "m.toml", "--data", "else.txt",
                                                     "--out", "new", "--resume", "a"))
        # The weights of a run are those of its newest checkpoint.
        infer = ["infer", *self.model, "--inputs", "in.npz", "--outputs"]
        said = self.accepted(self.command(*infer, "newest.npz", "--weights", "a"))
        self.assertIn("the weights are those of a/checkpoint-000002/model.safetensors", said)
        self.accepted(self.command(*infer, "same.npz", "--weights", "a/checkpoint-000002"))
        newest, same = (np.load(self.folder / f"{name}.npz")["logits"] for name in ("newest", "same"))
        np.testing.assert_array_equal(newest, same)
        resume("--resume nowhere: does not exist", "nowhere")
        for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
            file = self.folder / "a" / "checkpoint-000002" / name
            raw = file.read_bytes()
            for part in (0, 1, 2, 3):
                file.write_bytes(raw[:len(raw) * part // 4])
                resume(rf"a/checkpoint-000002/{name}: the checkpoint is torn",
                       "a/checkpoint-000002")
            file.unlink()
            resume(r"a/checkpoint-000002.*(torn|is missing)", "a/checkpoint-000002")
            file.write_bytes(raw)
            if name == "state.json":
                continue
            for at in (len(raw) // 2, len(raw) - 1):
                file.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:])
                resume(rf"a/checkpoint-000002/{name}: is not what was written \(its checksum is",
                       "a/checkpoint-000002")
                if name == "model.safetensors":
                    for weights in ("a/checkpoint-000002", f"a/checkpoint-000002/{name}"):
                        self.refused(rf"{name}: is not what was written",
                                     self.command("infer", *self.model, "--inputs", "in.npz", "--outputs",
                                                  "new.npz", "--weights", weights))
                    # Elsewhere nothing is recorded of it, as where a user has changed it.
                    (self.folder / "changed.safetensors").write_bytes(file.read_bytes())
                    self.accepted(self.command(*infer, "new.npz", "--weights", "changed.safetensors"))
            file.write_bytes(raw)
        # None of a run is whole.
        (self.folder / "torn").mkdir()
        for step in (1, 2):
            shutil.copytree(self.folder / "a" / "checkpoint-000002", self.folder / "torn" / f"checkpoint-{step:06}")
        states = [self.folder / "torn" / f"checkpoint-{step:06}" / "state.json" for step in (1, 2)]
        states[0].write_text("{}")
        states[1].unlink()
        for command in (self.command(*infer, "new.npz", "--weights", "torn"),
                        self.command("train", *self.model, "--data", "text.txt", "--out", "new", "--resume", "torn")):
            done = support.run(*command, cwd=self.folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("it is passed over"), 2, done.stderr)
            self.assertRegex(done.stderr.splitlines()[-1], "error: torn: none of its 2 checkpoints is whole; give another run")
        self.refused(r"has done 2 steps already",
                     self.command("train", *self.model, "--data", "text.txt", "--steps", 2,
                                  "--out", "new", "--resume", "a/checkpoint-000002"))
        self.refused("--steps 4 goes beyond train.steps = 2",
                     self.command("train", *self.model, "--data", "text.txt", "--steps", 4,
                                  "--out", "new", "--resume", "a/checkpoint-000002"))
        longer = ("--set", "train.steps=4")
        self.accepted(self.command("train", *self.model, "--data", "text.txt", *longer,
                                   "--out", "c", "--resume", "a/checkpoint-000002"))
        # Those of earlier versions have no digests.
        state = self.folder / "a" / "checkpoint-000002" / "state.json"
        old = json.loads(state.read_text())
        self.assertEqual(list(old.pop("digests")), ["model.safetensors", "optimizer.safetensors"])
        support.write_old_state(state, old)
        self.accepted(self.command("train", *self.model, "--data", "text.txt", *longer,
                                   "--out", "d", "--resume", "a/checkpoint-000002"))

    # Output

    def test_outputs_that_are_inputs(self):
        make_model(self.folder / "e.onnx", external=True)
        weights = [path.name for path in self.folder.iterdir() if path.name.startswith("e.onnx.")]
        self.assertEqual(len(weights), 1, weights)
        os.symlink("m.onnx", self.folder / "link")
        os.link(self.folder / "m.toml", self.folder / "hard")
        held = {path: path.read_bytes() for path in self.folder.iterdir()}
        itself = r"m.onnx: is an input of this command, which would be replaced; give another output"
        for kind in ("import", "train", "shard", "exe"):
            emit = self.command("compile", *self.model, "--emit", kind, "-o")
            self.refused(itself, [*emit, "m.onnx"])
            self.refused("link: is the input 'm.onnx', which would be replaced", [*emit, "link"])
            self.refused("hard: is the input 'm.toml', which", [*emit, "hard"])
        self.refused(itself, self.command("import", *self.model, "-o", "m.onnx"))
        self.refused(f"{weights[0]}: is an? (the )?input",
                     self.command("compile", "e.onnx", "--config", "e.toml", "--emit", "import",
                                  "-o", weights[0]))
        self.refused("in.npz: is an input", self.command("infer", *self.model, "--inputs", "in.npz",
                                                         "--outputs", "in.npz"))
        self.refused(itself, self.command("infer", *self.model, "--inputs", "in.npz", "--outputs",
                                          "m.onnx"))
        self.refused(itself, self.command("check", *self.model, "--gradients", "m.onnx"))
        self.refused("text.txt: exists and is no executable of `--emit exe`; give another -o",
                     self.command("compile", *self.model, "--emit", "exe", "-o", "text.txt"))
        for path, content in held.items():
            self.assertEqual(path.read_bytes(), content, path)

    def test_tables_that_are_inputs(self):
        self.accepted([CLEAVE, "schedule", "--name", "1f1b", "--stages", 2, "--microbatches", 4,
                       "--csv", "table.csv"])
        self.refused("table.csv: is an input", [CLEAVE, "schedule", "--table", "table.csv",
                                                "--svg", "table.csv"])

    def test_output_exists(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "thesis.txt").write_text("draft")
        self.refused("mine: the output folder exists; it is never overwritten",
                     self.command("train", *self.model, "--data", "text.txt", "--out", "mine"))
        self.refused("mine: the folder exists and is no compiled program",
                     self.command("compile", *self.model, "-o", "mine"))
        # Other programs have a manifest, too.
        (self.folder / "mine" / "manifest.json").write_text("{}")
        self.refused("mine: the folder exists and is no compiled program",
                     self.command("compile", *self.model, "-o", "mine"))
        self.assertTrue((self.folder / "mine" / "thesis.txt").exists())
        self.refused("text.txt: exists and is no folder",
                     self.command("compile", *self.model, "-o", "text.txt"))
        self.refused("mine: is a folder, expected a file",
                     self.command("import", *self.model, "-o", "mine"))
        self.refused("no/x.mlir: cannot be written: there is no folder 'no'",
                     self.command("import", *self.model, "-o", "no/x.mlir"))

    def test_disk_full(self):
        """A limit on the size of files is a full disk for whoever is not root too."""
        def limit(size):
            return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}

        train = self.command("train", *self.model, "--data", "text.txt", "--steps", 2)
        infer = self.command("infer", *self.model, "--inputs", "in.npz", "--outputs", "new.npz")
        self.accepted([*train, "--out", "a"])  # from here on, the programs are cached
        self.accepted(infer)
        (self.folder / "new.npz").unlink()

        self.refused("new.mlir: cannot be written: File too large",
                     self.command("import", *self.model, "-o", "new.mlir"), code=3,
                     stdout=subprocess.DEVNULL, **limit(1000))
        for size in (0, 1000, 20000):
            self.refused("m.onnx: .*File too large",
                         self.command("compile", *self.model, "-o", "new"), code=3,
                         stdout=subprocess.DEVNULL, **limit(size))
        self.refused("new.npz: cannot be written: File too large", infer, code=3,
                     stdout=subprocess.DEVNULL, **limit(1000))
        os.mkdir(self.folder / "full")
        before = self.listing()
        done = subprocess.run(list(map(str, [*train, "--out", "full/b"])), cwd=self.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=support.environment(), **limit(80000))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"\Acleave: error: .*optimizer.safetensors: cannot be "
                                      r"written: File too large; nothing of "
                                      r"full/b/checkpoint-000002 was kept; no checkpoint was "
                                      r"saved\n\Z")
        self.assertEqual(sorted(os.listdir(self.folder / "full" / "b")),
                         ["config.toml", "log.jsonl"])
        self.assertTrue(before <= self.listing() | {(pathlib.Path("full"), 0)} | before)

        # Devices are written, never replaced.
        self.refused("/dev/full: no space left on the device",
                     self.command("import", *self.model, "-o", "/dev/full"), code=3)
        self.refused("/dev/full: no space left on the device",
                     [*infer[:-4], "--outputs", "/dev/full", "--cache", self.cache], code=3)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.refused("standard output cannot be written",
                         self.command("explain", *self.model), code=3, stdout=full)

    def test_no_space_left(self):
        """A small file system of our own, where users may have one."""
        def inside(size, command):
            """The command, and what it left in the folder `small` of that size."""
            script = (f"mount -t tmpfs -o size={size} tmpfs small && {shlex.join(command)} "
                      ">/dev/null; code=$?; ls -A small small/*; exit $code")
            return subprocess.run(["unshare", "-r", "-m", "sh", "-c", script], text=True,
                                  cwd=self.folder, capture_output=True, timeout=900,
                                  env=support.environment())

        (self.folder / "small").mkdir()
        if not shutil.which("unshare") or inside("1m", ["true"]).returncode:
            self.skipTest("mounts are not allowed here")
        train = self.command("train", *self.model, "--data", "text.txt", "--steps", 2)
        infer = self.command("infer", *self.model, "--inputs", "in.npz")
        self.accepted([*train, "--out", "a"])  # from here on, the programs are cached
        self.accepted([*infer, "--outputs", "a.npz"])
        for size, command, left in (
            ("4k", self.command("import", *self.model, "-o", "small/new.mlir"), ""),
            ("12k", self.command("compile", *self.model, "-o", "small/new"), ""),
            ("12k", [*infer, "--outputs", "small/new.npz"], ""),
            ("12k", [*train[:-1], "small", "--out", "b"], ""),
            ("120k", [*train, "--out", "small/b"], "b config.toml log.jsonl"),
        ):
            with self.subTest(command=command):
                done = inside(size, list(map(str, command)))
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertRegex(done.stderr, r"(?i)\Acleave(-run)?: error: [^\n]*small/[^\n]*"
                                              r"no space left on (the )?device[^\n]*\n"
                                              r"(ls: [^\n]*\n)?\Z")
                names = " ".join(w for w in done.stdout.split() if not w.endswith(":"))
                self.assertEqual(names, left)
        codes = set()
        for size in support.some((8, 32, 48, 64, 80, 96, 128, 160, 100_000), 4):  # of temporary files
            command = ["env", "TMPDIR=small", *self.command("compile", *self.model, "-o", "new")]
            done = inside(f"{size}k", list(map(str, command)))
            codes.add(done.returncode)
            if done.returncode:
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertRegex(done.stderr, r"(?i)\Acleave: error: [^\n]*(no space left on|"
                                              r"files full\? It is [^\n]*small/)[^\n]*\n"
                                              r"(ls: [^\n]*\n)?\Z")
                self.assertFalse((self.folder / "new").exists())
        self.assertEqual(codes, {0, 3})




if __name__ == "__main__":
    unittest.main()
