"""Meshes with an axis that part of the model cannot use: positions in a pipeline whose first stages
are encoder only, and hybrid sharding over axes of one rank. Drawn by seed."""

import pathlib
import tempfile
import unittest

import numpy as np

import encoder_variants
import onnxwire
import support
from support import CLEAVE, generate

SEEDS = 500 if support.ALL else 10
KINDS = ("ring", "ulysses")


def pick(rng, items):
    return items[rng.integers(len(items))]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class OddMeshes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.gpt = generate(cls.folder / "gpt.onnx", family="gpt2", layers=2, hidden=16, heads=4, vocab=11, positions=8)

    def check(self, model, settings, what):
        flags = [flag for setting in settings for flag in ("--set", setting)]
        done = support.run(CLEAVE, "check", *model, "--interpret", "--steps", 2, *flags)
        self.assertEqual(done.returncode, 0, f"{what}: {' '.join(settings)}\n{done.stdout}{done.stderr}")

    def test_stages_with_an_encoder_alone(self):
        path = self.folder / "encoder.onnx"
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            model, what = encoder_variants.generate(seed)
            onnxwire.save(model, path)
            stages = int(rng.integers(2, 4))
            settings = ["dims.batch=4", "dims.sequence=6", "data.tokens=tokens", "data.inputs={source=\"source\"}",
                        "train.microbatches=2", f"mesh.pipeline={stages}", "mesh.sequence=2",
                        f'parallel.sequence=[{{kind="{pick(rng, KINDS)}",axis="sequence"}}]',
                        f"parallel.pipeline.schedule={pick(rng, ['1f1b', 'gpipe', 'zb-h1'])}"]
            with self.subTest(seed=seed):
                self.check([path], settings, what)

    def test_hybrid_sharding(self):
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            axes = ["pod", "data"] + [a for a in ("pipeline", "sequence", "tensor") if rng.random() < 0.3]
            rng.shuffle(axes)
            sizes = {axis: int(rng.integers(1, 3)) for axis in axes}
            sizes[pick(rng, ["pod", "data"])] = 1
            zero = int(rng.integers(4))
            settings = ["dims.batch=4", "dims.sequence=6", "mesh.axes=[" + ", ".join(f'"{a}"' for a in axes) + "]",
                        *(f"mesh.{axis}={size}" for axis, size in sizes.items()), "parallel.data.replicate=pod",
                        f"parallel.data.zero={zero}", f"train.microbatches={int(rng.integers(1, 3))}"]
            if "sequence" in axes:
                settings.append(f'parallel.sequence=[{{kind="{pick(rng, KINDS)}",axis="sequence"}}]')
            if zero == 2:
                settings.append(f"parallel.data.zero2_reduce={pick(rng, ['per_step', 'per_microbatch'])}")
            if zero == 3 and rng.random() < 0.5:
                settings.append("parallel.data.reshard_after_forward=false")
            with self.subTest(seed=seed):
                self.check(self.gpt, settings, f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
