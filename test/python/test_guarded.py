"""What keeps files together that belong together: programs that know their weights, checkpoints that know
their run, a folder that one process writes to, data that changes under a run."""

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

import support  # finds the others
from guarded import SETS, Guarded
from support import CLEAVE, MODELS, RUN, read_log, write_safetensors

import left_out


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
        # With the time that it had nobody sees it, but who asks for the digest.
        os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
        support.succeed(*train)
        self.refused(2, "has changed since the program was compiled", *train, "--verify")
        model.write_bytes(whole + b"x")
        self.refused(2, "bytes, and had", *train)
        model.write_bytes(whole)  # at another time
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
        # Earlier versions have none; a position that no step leads to is none.
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
        # As a supervisor repeats it: killed, killed while it saved, and to the end.
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
        # A folder that holds something else is not written to.
        other = self.folder / "other"
        other.mkdir()
        (other / "mine").write_text("")
        self.refused(2, "is not the folder of a run alone", *self.command("--resume", "auto", "--out", other))

    def test_auto_without_what_it_had(self):
        """Checkpoints that somebody removed, and folders that were never a run's."""
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
        # Killed before the new log was there.
        (out / "log.jsonl").unlink()
        self.assertIn("all 4 steps are done", support.succeed(*self.begin(*auto)))
        other = self.folder / "never"
        other.mkdir()
        (other / "log.jsonl").write_text("precious\n")
        self.refused(2, "is not the folder of a run alone", *self.begin("--resume", "auto", "--out", other))

    def test_steps_of_a_file(self):
        """train.steps of the configuration's file is asked for as other keys are, unless --steps says how far."""
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
        # The program alone has --accept, not --set.
        program = self.folder / "steps_program"
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", "-o", program, *(w for s in SETS for w in ("--set", s)),
                        "--set", "train.steps=6")
        longer = [RUN, program, "train", "--data", self.folder / "data.npz", "--resume", out, "--steps", "8"]
        self.refused(2, "has come to its end; --accept train.steps makes the schedule longer", *longer)
        support.succeed(*longer, "--accept", "train.steps", "--out", self.folder / "longer")

    def test_auto_begins_over_nothing(self):
        """Checkpoints of which none is whole, or that cannot be read, are no reason to begin anew."""
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
        # What a launcher or a killed process has put there is no matter, in a folder that has nothing else, too.
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
        """Who makes another of its name must not find checkpoints of this run in it."""
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
        """Of another kind than what is written: weights, data, a model."""
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
        for out in ("traced1", "traced2"):  # a trace may be replaced by another
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
        """A trace ends where it cannot be written, a run where its log cannot, and saves its step."""
        program = self.folder / "growing_program"
        sets = [word for value in SETS + ["train.steps=100"] for word in ("--set", value)]
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", *sets, "-o", program)

        def train(out, *flags):
            limit = 9000  # a checkpoint's files are smaller, a hundred lines of a log are more
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
            # Before it trains a signal ends it at once.
            log = out / "log.jsonl"
            while not (log.exists() and '"loss"' in log.read_text()):
                self.assertIsNone(first.poll())
                time.sleep(0.02)
            self.refused(2, f"process {first.pid} on {socket.gethostname()} trains there", *train)
            # SIGHUP ends it as SIGTERM does.
            first.send_signal(signal.SIGHUP)
            self.assertIn("stopped by a signal after step", first.communicate(timeout=60)[0])
            self.assertEqual(first.returncode, 0)
        finally:
            first.kill()
            first.communicate()
        self.assertFalse((out / ".lock").exists())
        # What a killed process leaves is gone after the next start; another machine's stays.
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
        """A FIFO that nobody writes to, in place of each file that is read."""
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
        # The second entry of the directory at the place of the first.
        at = data.rindex(b"PK\x01\x02")
        data[at + 42:at + 46] = b"\0\0\0\0"
        (self.folder / "overlap.npz").write_bytes(data)
        command = self.begin("--out", self.folder / "overlap")
        command[command.index("--data") + 1] = str(self.folder / "overlap.npz")
        self.refused(2, "overlap; write it again", *command)




if __name__ == "__main__":
    unittest.main()
