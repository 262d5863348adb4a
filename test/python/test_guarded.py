"""Protection between files that belong together: a cache shared by many processes, programs that record their weights,
checkpoints that record their run, a run's folder with one writing process, data that changes during a run."""

import fcntl
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import time
import unittest

import numpy as np

import support
from guarded import SETS, Guarded
from support import CLEAVE, MODELS, RUN, read_log, write_safetensors

import left_out

MANY = 48 if support.ALL else 6
DAMAGES = 200 if support.ALL else 12


class SharedCache(Guarded):
    def entries(self, cache="cache"):
        return sorted(path for path in (self.folder / cache).iterdir())

    def test_many_start_at_once(self):
        started = [subprocess.Popen(self.begin("--out", self.folder / f"many{i}", cache="many"),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for i in range(MANY)]
        for process in started:
            said = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, said)
        weights = {(self.folder / f"many{i}" / "checkpoint-000004" / "model.safetensors").read_bytes()
                   for i in range(MANY)}
        self.assertEqual(len(weights), 1)
        self.assertEqual(len([path for path in self.entries("many") if not path.name.startswith(".")]), 1)
        self.assertEqual([path.name for path in self.entries("many") if ".new" in path.name], [])

    def test_a_damaged_entry_is_compiled_again(self):
        draw = random.Random(3)
        support.succeed(*self.begin("--out", self.folder / "damaged"))
        right = (self.folder / "damaged" / "checkpoint-000004" / "model.safetensors").read_bytes()
        for turn in range(DAMAGES):
            entry, = self.entries()
            files = sorted(path for path in entry.iterdir())
            file = files[turn % len(files)]
            kind = draw.choice(["byte", "cut", "gone", "longer", "folder"])
            if kind == "gone" or (kind != "folder" and not file.stat().st_size):
                file.unlink()
            elif kind == "folder":
                file.unlink()
                file.mkdir()
            else:
                content = bytearray(file.read_bytes())
                at = draw.randrange(len(content))
                if kind == "byte":
                    content[at] ^= 1 << draw.randrange(8)
                file.write_bytes(bytes(content[:at]) if kind == "cut" else
                                 bytes(content) + b"x" * (kind == "longer"))
            out = self.folder / f"damaged{turn}"
            done = support.run(*self.begin("--out", out))
            where = f"{file.name}, {kind}: {done.stdout}{done.stderr}"
            self.assertEqual(done.returncode, 0, where)
            self.assertEqual((out / "checkpoint-000004" / "model.safetensors").read_bytes(), right, where)
            # Appended bytes in a file that is not read are harmless.
            if not (file.name == "lock" and kind == "longer"):
                self.assertIn("the model is compiled again", done.stderr, where)

    def test_a_limit_and_what_is_in_use(self):
        cache = ["--cache", self.folder / "limit"]
        for i in (1, 2):
            support.succeed(*self.begin("--out", self.folder / f"limit{i}", "--set", f"train.lr=0.0{i}", cache="limit"),
                            env={"CLEAVE_CACHE_GIB": "0"})
        # The first entry was evicted for the second, which its own process uses.
        entry, = (path for path in self.entries("limit") if not path.name.startswith("."))
        shown = support.succeed(CLEAVE, "cache", "show", *cache)
        self.assertIn(entry.name, shown)
        self.assertIn("1 program,", shown)
        running = subprocess.Popen([RUN, entry, "train", "--data", self.folder / "data.npz", "--steps", "100000",
                                    "--out", self.folder / "in_use"], stdout=subprocess.PIPE, text=True)
        try:
            while "step" not in running.stdout.readline():
                self.assertIsNone(running.poll())
            self.assertIn("(in use)", support.succeed(CLEAVE, "cache", "show", *cache))
            self.assertIn("0 programs removed, 0.0 MiB; 1 program in use", support.succeed(CLEAVE, "cache", "clear", *cache))
        finally:
            running.kill()
            running.communicate()
        self.assertIn("1 program removed", support.succeed(CLEAVE, "cache", "clear", *cache))
        self.assertEqual([path for path in self.entries("limit") if not path.name.startswith(".")], [])
        self.refused(2, "CLEAVE_CACHE_GIB is 'much'", CLEAVE, "cache", "show", *cache, env={"CLEAVE_CACHE_GIB": "much"})

    def test_what_else_is_in_the_folder_stays(self):
        """Other files are not removed, even if they resemble an entry; the next start removes what killed processes left."""
        cache = self.folder / "shared"
        for name in ("mydb", "model-12", "m-0123456789abcdeg"):
            (cache / name).mkdir(parents=True)
            (cache / name / "lock").write_text("")
            (cache / name / "data").write_text("mine")
        self.refused(2, "CLEAVE_CACHE_GIB", *self.begin("--out", self.folder / "shared0", cache="shared"),
                     env={"CLEAVE_CACHE_GIB": "much"})
        support.succeed(*self.begin("--out", self.folder / "shared1", cache="shared"), env={"CLEAVE_CACHE_GIB": "0"})
        gone = subprocess.Popen(["true"])
        gone.wait()
        left = [cache / f".m-1.{kind}-{socket.gethostname()}-{gone.pid}" for kind in ("new", "gone", "tmp")]
        for path in left:
            path.mkdir()
        (cache / ".m-0123456789abcdef.lock").write_text("")
        support.succeed(*self.begin("--out", self.folder / "shared2", cache="shared"))  # a hit
        self.assertEqual(sorted(path.name for path in cache.iterdir() if path.name.startswith(".")), [])
        support.succeed(CLEAVE, "cache", "clear", "--cache", cache)
        self.assertEqual(sorted(path.name for path in cache.iterdir()), ["m-0123456789abcdeg", "model-12", "mydb"])
        # Leftovers of a killed compilation next to a program's folder are removed as well.
        beside = self.folder / f".beside.tmp-{socket.gethostname()}-{gone.pid}"
        beside.mkdir()
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", "-o", self.folder / "beside",
                        *(w for s in SETS for w in ("--set", s)))
        self.assertFalse(beside.exists())

    def test_who_looks_for_a_moment(self):
        """Taking an entry's lock exclusively for inspection does not keep others from locking it."""
        support.succeed(*self.begin("--out", self.folder / "look1", cache="look"))
        entry, = self.entries("look")
        with open(entry / "lock") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            running = subprocess.Popen(self.begin("--out", self.folder / "look2", "--set", "train.steps=1000000",
                                                  cache="look", steps=1000000)[:], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
            time.sleep(0.3)
        try:
            while "step" not in running.stdout.readline():
                self.assertIsNone(running.poll())
            self.assertIn("in use, or another user's, kept", support.succeed(CLEAVE, "cache", "clear", "--cache",
                                                                              self.folder / "look"))
        finally:
            running.kill()
            running.communicate()

    def test_without_a_home(self):
        """The temporary folder is the user's own, never one that others may write to."""
        temporary = self.folder / "temporary"
        temporary.mkdir()
        env = {key: value for key, value in support.environment().items() if key not in ("HOME", "XDG_CACHE_HOME")}
        env["TMPDIR"] = str(temporary)
        work = self.folder / "work"
        work.mkdir()

        def train(out):
            return subprocess.run(self.begin("--out", self.folder / out, cache=None), env=env, cwd=work,
                                  capture_output=True, text=True, timeout=600)
        done = train("homeless")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(work.iterdir()), [])
        cache, = temporary.iterdir()
        self.assertEqual(cache.stat().st_mode & 0o777, 0o700)
        cache.chmod(0o777)
        done = train("homeless2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is not a folder of yours alone (mode 700)", done.stderr)


class Programs(Guarded):
    def test_a_changed_digit_is_noticed(self):
        program = self.folder / "program"
        flags = [word for value in SETS + ["train.steps=4"] for word in ("--set", value)]
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", *flags, "-o", program)
        manifest = program / "manifest.json"
        right = manifest.read_text()
        draw = random.Random(5)
        digits = [at for at, c in enumerate(right) if c.isdigit()]
        for at in draw.sample(digits, min(len(digits), 300 if support.ALL else 15)):
            manifest.write_text(right[:at] + str((int(right[at]) + draw.randrange(1, 10)) % 10) + right[at + 1:])
            self.refused(2, "manifest.json: ", RUN, program, "train", "--data", self.folder / "data.npz", "--dry-run")
        manifest.write_text(right)
        support.succeed(RUN, program, "train", "--data", self.folder / "data.npz", "--dry-run")
        manifest.write_text("[" * 1000000)
        self.refused(2, "is damaged", RUN, program, "train", "--data", self.folder / "data.npz")

    def test_weights_are_those_of_the_compilation(self):
        folder = self.folder / "weights"
        folder.mkdir()
        model = folder / "m.onnx"
        shutil.copy(MODELS / "quickstart.onnx", model)
        (folder / "text.txt").write_bytes(bytes(range(32, 126)) * 40)
        flags = ["--config", MODELS / "quickstart.toml", "--set", "data.validation=0"]
        support.succeed(CLEAVE, "compile", model, *flags, "-o", folder / "program")
        train = [RUN, folder / "program", "train", "--data", folder / "text.txt", "--dry-run"]
        whole = bytearray(model.read_bytes())
        changed = bytearray(whole)
        changed[-300] ^= 1
        status = model.stat()
        model.write_bytes(changed)
        self.refused(2, ["weights of '", "m.onnx has changed since the program was compiled", "compile the model again"],
                     *train)
        # With its old time stamp the change is only found by the digest.
        os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
        support.succeed(*train)
        self.refused(2, "has changed since the program was compiled", *train, "--verify")
        model.write_bytes(whole + b"x")
        self.refused(2, "bytes, and had", *train)
        model.write_bytes(whole)  # with another time stamp
        support.succeed(*train)


class Checkpoints(Guarded):
    def test_a_changed_digit_is_noticed(self):
        run = self.folder / "digits"
        support.succeed(*self.begin("--out", run))
        checkpoint = run / "checkpoint-000004"
        state = checkpoint / "state.json"
        right = state.read_text()
        self.assertEqual(json.loads(right)["stretches"], [{"step": 0, "sample": 0, "batch": left_out.BATCH}])
        resume = self.command("--resume", checkpoint, "--dry-run", "--set", "train.steps=6", steps=6)
        draw = random.Random(7)
        digits = [at for at, c in enumerate(right) if c.isdigit()]
        for at in draw.choices(digits, k=300 if support.ALL else 12):
            state.write_text(right[:at] + str((int(right[at]) + draw.randrange(1, 10)) % 10) + right[at + 1:])
            self.refused(2, "state.json: ", *resume)
        bare = json.loads(right)
        del bare["digest"]
        state.write_text(json.dumps(bare))
        self.refused(2, "its digest is missing", *resume)
        # Earlier versions have no digest; a position that no step reaches is invalid.
        bare["version"] = 1
        for sample, words in ((2 ** 63 - 4, "are no position of a run"), (47, "is not where 12 samples a step lead to")):
            state.write_text(json.dumps(bare | {"next_sample": sample}))
            self.refused(2, words, *resume, timeout=60)
        state.write_text("{" * 1000000)
        self.refused(2, "is torn", *resume)
        state.write_text(json.dumps(bare))
        support.succeed(*resume)

    def test_a_line_of_the_log_without_a_number(self):
        run = self.folder / "log"
        support.succeed(*self.begin("--out", run))
        with open(run / "log.jsonl", "a") as log:
            log.write('{"step": "many"}\n')
        self.refused(2, "log.jsonl, line 5: key 'step' is \"many\"",
                     *self.command("--resume", "latest", "--out", run, "--set", "train.steps=6", steps=6))


class RunFolders(Guarded):
    def test_auto(self):
        out = self.folder / "auto"
        self.refused(2, "--resume auto needs --out DIR", *self.command("--resume", "auto"))
        auto = ["--resume", "auto", "--out", out]
        weights = ["--weights", self.folder / "w.safetensors"]
        support.succeed(*self.begin("--out", self.folder / "whole"))
        # As a supervisor restarts it: killed, killed while saving, then to the end.
        support.succeed(*self.command(*auto, "--set", "train.steps=4", "--save-every", 1, steps=2))
        shutil.copytree(out / "checkpoint-000002", out / "checkpoint-000003")
        os.truncate(out / "checkpoint-000003" / "model.safetensors", 100)
        (out / "latest").write_text("checkpoint-000003\n")
        done = support.run(*self.command(*auto, "--set", "train.steps=4"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"resuming {out / 'checkpoint-000002'}", done.stdout)
        self.assertIn("checkpoint-000003", done.stderr)
        self.assertIn("it is passed over", done.stderr)
        self.assertEqual([line["step"] for line in read_log(out)], [1, 2, 3, 4])
        done = support.succeed(*self.command(*auto, "--set", "train.steps=4"))
        self.assertIn("all 4 steps are done", done)
        # A folder with other contents is not written to.
        other = self.folder / "other"
        other.mkdir()
        (other / "mine").write_text("")
        self.refused(2, "is not the folder of a run alone", *self.command("--resume", "auto", "--out", other))

    def test_auto_without_what_it_had(self):
        """Run folders whose checkpoints were removed, and folders that were never a run's."""
        out = self.folder / "emptied"
        auto = ["--resume", "auto", "--out", out]
        support.succeed(*self.begin(*auto))
        before = (out / "log.jsonl").read_text()
        shutil.rmtree(out / "checkpoint-000004")
        done = support.run(*self.begin(*auto))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"warning: {out}: the checkpoints of its run are gone, it begins again at step 1; its log is kept as "
                      "log-1.jsonl", done.stderr)
        self.assertEqual((out / "log-1.jsonl").read_text(), before)
        self.assertEqual([line["step"] for line in read_log(out)], [1, 2, 3, 4])
        self.assertIn("all 4 steps are done", support.succeed(*self.begin(*auto)))
        # Killed before the new log existed.
        (out / "log.jsonl").unlink()
        self.assertIn("all 4 steps are done", support.succeed(*self.begin(*auto)))
        other = self.folder / "never"
        other.mkdir()
        (other / "log.jsonl").write_text("precious\n")
        self.refused(2, "is not the folder of a run alone", *self.begin("--resume", "auto", "--out", other))

    def test_steps_of_a_file(self):
        """train.steps from the configuration file is compared like other keys, unless --steps overrides it."""
        out, file = self.folder / "steps", self.folder / "steps.toml"
        auto = ["--config", file, "--resume", "auto", "--out", out]
        command = [word for word in self.begin(*auto)]
        at = command.index("--steps")
        del command[at:at + 2]
        file.write_text("[train]\nsteps = 4\n")
        support.succeed(*command)
        file.write_text("[train]\nsteps = 6\n")
        self.refused(2, "train.steps = 6 (was 4); leave it as it was, or say that it is meant with --set 'train.steps=6'",
                     *command)
        self.assertIn("all 4 steps are done", support.succeed(*command, "--steps", "4"))
        support.succeed(*command, "--accept", "train.steps")
        self.assertEqual(len(read_log(out)), 6)
        # Only the program has --accept, which replaces --set.
        program = self.folder / "steps_program"
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", "-o", program, *(w for s in SETS for w in ("--set", s)),
                        "--set", "train.steps=6")
        longer = [RUN, program, "train", "--data", self.folder / "data.npz", "--resume", out, "--steps", "8"]
        self.refused(2, "has come to its end; --accept train.steps makes the schedule longer", *longer)
        support.succeed(*longer, "--accept", "train.steps", "--out", self.folder / "longer")

    def test_auto_begins_over_nothing(self):
        """If no checkpoint is complete or readable, the run does not start anew."""
        out = self.folder / "none_whole"
        auto = self.command("--resume", "auto", "--out", out, "--set", "train.steps=4", "--save-every", 2,
                            "--weights", self.folder / "w.safetensors")
        support.succeed(*auto)
        states = sorted(out.glob("checkpoint-*/state.json"))
        right = [path.read_text() for path in states]
        for path in states:
            path.write_text("{}")
        done = support.run(*auto)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("none of the 2 checkpoints in", done.stderr)
        self.assertEqual(len(read_log(out)), 4)
        for path, text in zip(states, right):
            path.write_text(text)
        self.assertIn("all 4 steps are done", support.succeed(*auto))
        # Files of a launcher or a killed process do not matter, even in an otherwise empty folder.
        for name in (f".log.jsonl.tmp-{socket.gethostname()}-1", "slurm-7.out"):
            (out / name).write_text("")
        self.assertIn("all 4 steps are done", support.succeed(*auto))
        fresh = self.folder / "fresh"
        fresh.mkdir()
        (fresh / "slurm-7.out").write_text("")
        support.succeed(*self.command("--resume", "auto", "--out", fresh, "--weights", self.folder / "w.safetensors"))

    def test_a_folder_that_is_no_text(self):
        out = os.fsencode(self.folder) + b"/r\xff1"
        command = [os.fsencode(word) for word in self.begin("--save-every", 2)]
        for more in ([b"--out", out], [b"--resume", out + b"/checkpoint-000002", b"--out", out + b"2"]):
            words = [word for word in command if word != b"--weights" and not word.endswith(b"w.safetensors")] \
                if b"--resume" in more else command
            done = subprocess.run([*words, *more], capture_output=True, env=support.environment())
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"r\\xFF1", done.stdout)

    def test_a_folder_that_goes_away(self):
        """A run stops if its folder is moved or replaced: a new folder of its name must not get its checkpoints."""
        out = self.folder / "moves"
        program = self.folder / "moves_program"
        flags = [word for value in SETS + ["train.steps=100000000"] for word in ("--set", value)]
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", *flags, "-o", program)
        train = [RUN, program, "train", "--data", self.folder / "data.npz", "--resume", "auto", "--out", out, "--weights",
                 self.folder / "w.safetensors", "--save-every", 20000]
        for go in (lambda: out.rename(self.folder / "moved"), lambda: (out / ".lock").unlink()):
            running = subprocess.Popen([str(word) for word in train], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while "step 1/" not in running.stdout.readline():
                self.assertIsNone(running.poll())
            go()
            said = running.communicate(timeout=120)[1]
            self.assertEqual(running.returncode, 3, said)
            self.assertIn("is not the folder any more in which this run began", said)

    def test_outputs_that_would_replace_inputs(self):
        """Outputs must not replace files of another kind: weights, data, a model."""
        flags = ["--out", self.folder / "kept"]
        for name in ("w.safetensors", "data.npz", "m.mlir"):
            right = (self.folder / name).read_bytes()
            self.refused(2, [name, "exists and is not a trace"], *self.begin(*flags, "--trace", self.folder / name))
            self.assertEqual((self.folder / name).read_bytes(), right)
        right = (self.folder / "w.safetensors").read_bytes()
        self.refused(2, "exists and is not an .npz file", CLEAVE, "infer", self.folder / "m.mlir", "--inputs",
                     self.folder / "data.npz", "--weights", self.folder / "w.safetensors", "--outputs",
                     self.folder / "w.safetensors", "--cache", self.folder / "cache")
        self.assertEqual((self.folder / "w.safetensors").read_bytes(), right)
        trace = self.folder / "trace.json"
        for out in ("traced1", "traced2"):  # a trace may replace a trace
            support.succeed(*self.begin("--out", self.folder / out, "--trace", trace))

    def test_words_that_nobody_means(self):
        for flag, word, words in (("--weights", "", "found nothing"), ("--resume", "", "found nothing"),
                                  ("--out", "", "found nothing"), ("--steps", "000200", "without leading zeros"),
                                  ("--save-every", "0x10", "decimal number"),
                                  ("--steps", "99999999999999999999", "integer of 64 bits")):
            command = self.command(flag, word)
            if flag == "--steps":
                at = command.index("--steps")
                del command[at:at + 2]
            self.refused(2, [flag, words], *command)

    def test_a_reader_that_has_gone(self):
        out = self.folder / "unread"
        command = self.begin("--out", out, "--save-every", 2)
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.stdout.close()
        self.assertEqual((running.wait(timeout=120), running.stderr.read()), (0, ""))
        running.stderr.close()
        self.assertTrue((out / "checkpoint-000004").exists())

    def test_files_that_cannot_grow(self):
        """If a trace cannot be written, only the trace ends. If the log cannot, the run ends and saves its step."""
        program = self.folder / "growing_program"
        sets = [word for value in SETS + ["train.steps=100"] for word in ("--set", value)]
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", *sets, "-o", program)

        def train(out, *flags):
            limit = 9000  # more than a checkpoint's files, less than a hundred lines of a log
            return subprocess.run(list(map(str, [RUN, program, "train", "--data", self.folder / "data.npz", "--weights",
                                                 self.folder / "w.safetensors", "--out", self.folder / out, *flags])),
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
                                  capture_output=True, text=True)

        done = train("traced", "--steps", 20, "--trace", self.folder / "short.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"warning: --trace {self.folder / 'short.json'}: cannot be written: File too large; the trace ends "
                      "before step", done.stdout + done.stderr)
        self.assertTrue((self.folder / "traced" / "checkpoint-000020").exists())
        done = train("logged")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1)
        saved, = (self.folder / "logged").glob("checkpoint-*")
        self.assertIn(f"log.jsonl: cannot be written: File too large; --resume {saved} goes on", done.stderr)
        support.succeed(RUN, program, "train", "--data", self.folder / "data.npz", "--resume", "latest", "--out",
                        self.folder / "logged")
        steps = {line["step"] for line in read_log(self.folder / "logged") if "loss" in line}
        self.assertEqual(set(range(1, 101)) - steps, {int(saved.name[-6:])})

    def test_one_process_at_a_time(self):
        out = self.folder / "locked"
        program = self.folder / "locked_program"
        flags = [word for value in SETS + ["train.steps=1000000"] for word in ("--set", value)]
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", *flags, "-o", program)
        train = [RUN, program, "train", "--data", self.folder / "data.npz", "--resume", "auto", "--out", out]
        first = subprocess.Popen(train, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            while "writing to" not in first.stdout.readline():
                self.assertIsNone(first.poll())
            # Before training starts, a signal ends the process at once.
            log = out / "log.jsonl"
            while not (log.exists() and '"loss"' in log.read_text()):
                self.assertIsNone(first.poll())
                time.sleep(0.02)
            self.refused(2, f"process {first.pid} on {socket.gethostname()} trains there", *train)
            # SIGHUP ends the run as SIGTERM does.
            first.send_signal(signal.SIGHUP)
            self.assertIn("stopped by a signal after step", first.communicate(timeout=60)[0])
            self.assertEqual(first.returncode, 0)
        finally:
            first.kill()
            first.communicate()
        self.assertFalse((out / ".lock").exists())
        # Leftovers of a killed process are removed at the next start; those of another machine stay.
        gone = subprocess.Popen(["true"])
        gone.wait()
        left = [out / f".checkpoint-000009.tmp-{socket.gethostname()}-{gone.pid}", out / ".checkpoint-000009.tmp-elsewhere-1"]
        for path in left:
            path.mkdir()
            (path / "model.safetensors").write_text("")
        second = subprocess.Popen(train, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "writing to" not in second.stdout.readline():
            self.assertIsNone(second.poll())
        second.kill()
        second.communicate()
        self.assertEqual([path.exists() for path in left], [False, True])


class Data(Guarded):
    def test_a_text_that_is_cut_while_it_is_read(self):
        text = self.folder / "text.txt"
        program = self.folder / "text_program"
        text.write_bytes(bytes(range(32, 126)) * 1000)
        support.succeed(CLEAVE, "compile", MODELS / "quickstart.onnx", "--config", MODELS / "quickstart.toml",
                        "--set", "data.validation=0", "--set", "train.steps=1000000", "-o", program)
        train = [RUN, program, "train", "--data", text, "--out", self.folder / "cut"]
        running = subprocess.Popen(train, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "step" not in running.stdout.readline():
            self.assertIsNone(running.poll())
        os.truncate(text, 4096)
        said = running.communicate(timeout=120)[1]
        self.assertEqual(running.returncode, 3, said)
        self.assertIn(f"{text}: has 4096 bytes, and had 94000 when it was opened; --resume {self.folder}/cut/checkpoint-", said)

    def test_numbers_beyond_their_type(self):
        arrays = dict(np.load(self.folder / "data.npz"))
        arrays["x"] = arrays["x"].astype(np.float64)
        arrays["x"][2, 1] = -1e300
        np.savez(self.folder / "wide.npz", **arrays)
        command = self.begin("--out", self.folder / "wide", steps=20)
        command[command.index("--data") + 1] = str(self.folder / "wide.npz")
        self.refused(2, "wide.npz, array 'x', sample 2, element 1, is -1e+300, which does not fit into f32, the type of input "
                        "'x'; scale the array, or leave the sample out", *command)
        weights = {name: value.astype(np.float64) for name, value in left_out.weights().items()}
        weights["b1"][3] = 1e39
        write_safetensors(self.folder / "wide.safetensors", weights)
        command = self.begin("--out", self.folder / "wide2")
        command[command.index("--weights") + 1] = str(self.folder / "wide.safetensors")
        self.refused(2, ["b1", "element 3 is 1e+39, which does not fit into f32"], *command)

    def test_what_is_no_regular_file(self):
        """A FIFO without a writer, in place of each input file."""
        def fifo(name):
            os.mkfifo(self.folder / name)
            return self.folder / name
        command = self.begin("--out", self.folder / "fifo")
        command[command.index("--data") + 1] = str(fifo("fifo.npz"))
        self.refused(2, "fifo.npz", *command, timeout=60)
        train = self.begin("--out", self.folder / "fifo")
        self.refused(2, "fifo.toml: it is no regular file", *train, "--config", fifo("fifo.toml"), timeout=60)
        self.refused(2, "fifo.cluster: it is no regular file", *train, "--set", f"target.cluster={fifo('fifo.cluster')}",
                     "--set", "mesh.data=2", timeout=60)
        self.refused(2, "fifo.csv: cannot be read", CLEAVE, "schedule", "--table", fifo("fifo.csv"), timeout=60)
        for name in ("fifo.onnx", "fifo.mlir"):
            self.refused(2, f"{name}: cannot be read: it is no regular file", CLEAVE, "import", fifo(name), timeout=60)
        program = self.folder / "fifo_program"
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", "-o", program, *(w for s in SETS for w in ("--set", s)))
        for name in ("program.bin", "kernels.so", "manifest.json"):
            content = (program / name).read_bytes()
            (program / name).unlink()
            os.mkfifo(program / name)
            self.refused(2, name, RUN, program, "train", "--data", self.folder / "data.npz", timeout=60)
            (program / name).unlink()
            (program / name).write_bytes(content)

    def test_arrays_that_share_bytes(self):
        data = bytearray((self.folder / "data.npz").read_bytes())
        # The archive directory's second entry points to the data of the first.
        at = data.rindex(b"PK\x01\x02")
        data[at + 42:at + 46] = b"\0\0\0\0"
        (self.folder / "overlap.npz").write_bytes(data)
        command = self.begin("--out", self.folder / "overlap")
        command[command.index("--data") + 1] = str(self.folder / "overlap.npz")
        self.refused(2, "overlap; write it again", *command)


if __name__ == "__main__":
    unittest.main()
