"""A perceptron, its data and its weights, for tests of the checks between a run's files."""

import pathlib
import tempfile
import unittest

import numpy as np

import support  # extends sys.path
from support import CLEAVE, write_safetensors

import left_out

SETS = ["data.labels=y", "data.validation=0", "train.optimizer=sgd", "train.lr=0.1"]


class Guarded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.shared.name)
        write_safetensors(cls.folder / "w.safetensors", left_out.weights())
        x, y = left_out.clean(8)
        np.savez(cls.folder / "data.npz", x=x, y=y)
        (cls.folder / "m.mlir").write_text(left_out.model(left_out.BATCH))

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def command(self, *flags, cache="cache", steps=4):
        cached = [] if cache is None else ["--cache", self.folder / cache]
        return list(map(str, [CLEAVE, "train", self.folder / "m.mlir", "--data", self.folder / "data.npz", "--steps",
                              steps, *cached, *(w for s in SETS for w in ("--set", s)), *flags]))

    def begin(self, *flags, **options):
        return self.command("--weights", self.folder / "w.safetensors", *flags, **options)

    def refused(self, code, words, *command, **options):
        done = support.run(*command, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(lines), 1, done.stderr)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, lines[0])
        return lines[0]
