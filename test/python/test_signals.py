"""SIGINT and SIGTERM during work: no temporary file remains."""

import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

import support

MODEL = support.MODELS / "quickstart.onnx"
FLAGS = ["--set", "dims.batch=4", "--set", "dims.sequence=32"]


class Signals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "scratch").mkdir()
        (self.folder / "text.txt").write_bytes(b"some text of some length\n" * 200)

    @staticmethod
    def listen():
        """Resets signals, which are ignored if the tests run in the background."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def start(self, *command):
        environment = support.environment() | {"TMPDIR": str(self.folder / "scratch")}
        return subprocess.Popen(list(map(str, command)), cwd=self.folder, env=environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                preexec_fn=self.listen)

    def everything(self):
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}

    def interrupted(self, number, place, *command, delay=0.0):
        """Sends the signal some time after a file matches `place`, and expects all files to be
        as before."""
        before = self.everything()
        for _ in range(20):
            process = self.start(*command)
            while process.poll() is None and not any(self.folder.glob(place)):
                pass
            time.sleep(delay)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
            if process.returncode:
                break
            # On a busy machine the work may end before the signal arrives.
            for path in sorted(self.everything() - before, reverse=True):
                path = self.folder / path
                path.rmdir() if path.is_dir() else path.unlink()
        self.assertEqual(process.returncode, -number, said)
        self.assertEqual(said.splitlines()[-1], "cleave: interrupted")
        self.assertNotIn("error", said)
        self.assertEqual(self.everything(), before)

    def test_compile(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for place in (".half.tmp-*", "scratch/cleave-kernels-*"):
                with self.subTest(place=place, number=number):
                    self.interrupted(number, place, support.CLEAVE, "compile", MODEL, *FLAGS,
                                     "-o", "half")

    def test_an_executable_while_it_is_made(self):
        self.interrupted(signal.SIGINT, ".half.parts.tmp-*/.program.tmp-*", support.CLEAVE,
                         "compile", MODEL, *FLAGS, "--emit", "exe", "-o", "half")

    def test_train_while_it_compiles(self):
        (self.folder / "cache").mkdir()
        self.interrupted(signal.SIGINT, "cache/.*.new-*", support.CLEAVE, "train", MODEL, *FLAGS,
                         "--data", "text.txt", "--cache", "cache", "--steps", 1)

    def test_check(self):
        for delay in (0.0, 0.2):
            with self.subTest(delay):
                self.interrupted(signal.SIGTERM, "scratch/cleave-check-*/*", support.CLEAVE,
                                 "check", MODEL, *FLAGS, "--set", "mesh.data=2", delay=delay)

    def test_an_executable_as_it_starts(self):
        """The executable re-executes itself after it has unpacked its files: at every moment some
        process is responsible for the folder."""
        support.succeed(support.CLEAVE, "compile", MODEL, *FLAGS, "--emit", "exe",
                        "-o", self.folder / "model")
        rows = np.zeros([4, 32], np.int64)
        np.savez(self.folder / "in.npz", input_ids=rows)
        before = self.everything()
        for step in range(30):
            process = self.start("./model", "infer", "--inputs", "in.npz", "--outputs", "out.npz")
            while process.poll() is None and not any((self.folder / "scratch").iterdir()):
                pass
            time.sleep(step * 0.001)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            if process.returncode:
                self.assertEqual(process.returncode, -signal.SIGINT, said)
                self.assertEqual(said, "cleave-run: interrupted\n")
            (self.folder / "out.npz").unlink(missing_ok=True)
            self.assertEqual(self.everything(), before, step)

    def test_training_saves(self):
        """A run saves a checkpoint at every signal that ends it, unless the signal was ignored at the start."""
        program = self.folder / "program"
        support.succeed(support.CLEAVE, "compile", MODEL, *FLAGS, "--set", "train.steps=1000000", "-o", program)

        def train(out, ignored=""):
            process = subprocess.Popen(
                ["sh", "-c", f'trap "" {ignored}; exec "$@"' if ignored else 'exec "$@"', "sh", *map(str, [
                    support.RUN, program, "train", "--data", self.folder / "text.txt", "--out", self.folder / out])],
                env=support.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                preexec_fn=self.listen)
            while not process.stdout.readline().startswith("step "):
                self.assertIsNone(process.poll())
            return process

        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU):
            with self.subTest(number):
                process = train(number.name)
                # The system repeats SIGXCPU every second.
                for _ in range(3 if number == signal.SIGXCPU else 1):
                    process.send_signal(number)
                    time.sleep(0.002)
                said = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, said)
                self.assertIn("stopped by a signal after step", said[0])
                self.assertEqual(len(list((self.folder / number.name).glob("checkpoint-*"))), 1)
        process = train("ignoring", ignored="INT")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertIn("stopped by a signal", process.communicate(timeout=60)[0])

    def test_ignored_signals_stay_so(self):
        """Signals ignored at the start stay ignored, as for background jobs of a shell."""
        process = subprocess.Popen(
            ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *map(str, [
                support.CLEAVE, "compile", MODEL, *FLAGS, "-o", self.folder / "whole"])],
            env=support.environment(), stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not any(self.folder.glob(".whole.tmp-*")):
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, said)
        self.assertTrue((self.folder / "whole" / "manifest.json").exists())


if __name__ == "__main__":
    unittest.main()
