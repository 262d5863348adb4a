"""bf16 computation with f32 sums and master weights (train.precision = "bf16"): curves of losses,
cleave check under every parallelism, and what is sent."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

import support
import training
from support import CLEAVE

# Everything that splits a model, by what of it crosses ranks in which type.
MESHES = {
    "gpt2": [
        ("", {}),
        ("data=2", {}),
        *[("data=2", {"parallel__data__zero": zero}) for zero in (1, 2, 3)],
        ("data=3", {"train__microbatches": 2}),
        ("tensor=2", {}),
        ("tensor=2", {"parallel__sequence": '[{kind="megatron",axis="tensor"}]'}),
        ("pipeline=2,data=2,tensor=2", {"train__microbatches": 2}),
    ],
    "llama": [
        ("data=2", {"parallel__data__zero": 3, "train__microbatches": 2}),
        ("tensor=2", {}),
        ("tensor=2", {"parallel__sequence": '[{kind="megatron",axis="tensor"}]'}),
        ("sequence=2", {"parallel__sequence": '[{kind="ulysses",axis="sequence"}]'}),
        ("sequence=2", {"parallel__sequence": '[{kind="ring",axis="sequence"}]'}),
        ("sequence=3",
         {"parallel__sequence": '[{kind="ring",axis="sequence",plan="gather",order="plain"}]'}),
        ("pipeline=2", {"train__microbatches": 4, "parallel__pipeline__schedule": "zb-h1"}),
    ],
    "mixtral": [("", {}), ("expert=2", {}), ("data=2,expert=2", {})],
    "t5": [("data=2", {})],
}


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class MixedPrecision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def train(self, name, model, mesh="", *more, **keys):
        return training.train(self.folder / name, model, mesh, *more, **keys)

    def test_losses_stay_within_a_percent_of_fp32(self):
        steps = 200 if support.ALL else 50
        for model in support.some(("llama", "gpt2"), 1):
            curves = []
            for precision in ("fp32", "bf16"):
                log, _ = self.train(f"{model}-{precision}", model, "", "--steps", steps,
                                    train__precision=precision, dims__sequence=48)
                curves.append(np.array([line["loss"] for line in log]))
            single, mixed = curves
            with self.subTest(model=model):
                self.assertEqual(len(single), steps)
                self.assertLess(single[-1], 0.7 * single[0]) # it learns
                self.assertFalse((single == mixed).all())    # and is not fp32
                self.assertLess((abs(mixed - single) / single).max(), 0.01)

    def test_check(self):
        """The exact part in f64; rounding within 4 times that of the unsharded program."""
        for model, meshes in MESHES.items():
            # The covering set of the matrix has others in bf16.
            if not support.ALL and model == "t5":
                continue
            for mesh, keys in support.some(meshes[::-1], 1):
                small = model in ("gpt2", "llama") and not support.ALL
                with self.subTest(model=model, mesh=mesh, **keys):
                    said = json.loads(support.succeed(
                        CLEAVE, "check", *training.flags(
                            training.small(model) if small else model, mesh,
                            train__precision="bf16", **keys), "--json", "--steps", 2))
                    self.assertTrue(said["pass"])
                    parts = {part: [t for t in said["tensors"] if t["part"] == part]
                             for part in ("exact", "rounding")}
                    self.assertLess(max(t["rel_error"] for t in parts["exact"]), 1e-9)
                    gradients = [t["rel_error"] for t in parts["rounding"] if t["kind"] == "gradient"]
                    # That of bf16, not of f32.
                    self.assertGreater(max(gradients), 1e-4)

    def test_bytes_sent(self):
        """Half of those of fp32, but for gradients and statistics; as the runtime counts them."""
        llama = training.small("llama", hidden=96, intermediate=128)  # statistics are few
        for mesh, keys in support.some((
                ("data=2", {"parallel__data__zero": 3}), ("data=2", {"parallel__data__zero": 1}),
                ("tensor=2", {}),
                ("tensor=2", {"parallel__sequence": '[{kind="megatron",axis="tensor"}]'}),
                ("pipeline=2", {"train__microbatches": 2})), 3):
            with self.subTest(mesh=mesh, **keys):
                sent = {}
                for precision in ("fp32", "bf16"):
                    said = training.explain(llama, mesh, train__precision=precision, **keys)
                    sent[precision] = {}
                    for entry in said["per_rank"][0]["collectives"]:
                        kind = (entry["purpose"], entry["dtype"])
                        sent[precision].setdefault(kind, 0)
                        sent[precision][kind] += entry["sent_bytes"]
                    total = sum(sent[precision].values())
                    out = f"{precision}-{mesh}-{len(keys)}-{keys.get('parallel__data__zero')}"
                    log, _ = self.train(out, llama, mesh, "--steps", 2,
                                        train__precision=precision, **keys)
                    ranks = len(said["per_rank"])
                    if len({str(r["collectives"]) for r in said["per_rank"]}) == 1:
                        self.assertIn(log[1]["sent_bytes"], (total, ranks * total))
                for purpose in ("parameter", "activation", "pipeline"):
                    whole = sent["fp32"].get((purpose, "f32"), 0)
                    self.assertEqual(2 * sent["bf16"].get((purpose, "bf16"), 0)
                                     + sent["bf16"].get((purpose, "f32"), 0), whole, sent)
                    # Statistics of rows that are sharded.
                    self.assertLess(sent["bf16"].get((purpose, "f32"), 0), 0.05 * whole + 1)
                for key in (("gradient", "f32"), ("loss", "f32"), ("norm", "f32")):
                    self.assertEqual(sent["bf16"].get(key), sent["fp32"].get(key))

    def test_checkpoints_hold_the_master_weights(self):
        """In f32, and a run goes on from them with the same bits; or in the other precision."""
        keys = dict(train__precision="bf16", parallel__data__zero=1)
        gpt2, mesh = training.small("gpt2"), "data=2"
        self.train("whole", gpt2, mesh, "--steps", 6, **keys)
        self.train("half", gpt2, mesh, "--steps", 6, "--save-every", 3, **keys)
        first = self.folder / "half" / "checkpoint-000003"
        weights = support.read_safetensors(first / "model.safetensors")
        for name, array in weights.items():
            self.assertEqual(array.dtype, np.float32, name)
        # Not rounded: the low half of the bits is in use.
        self.assertTrue(any((a.view(np.uint32) & 0xffff).any() for a in weights.values()))
        state = support.read_safetensors(first / "optimizer.safetensors")
        self.assertFalse([name for name in state if name.endswith(".master")])
        for name, precision in (("again", "bf16"), ("other", "fp32")):
            self.train(name, gpt2, mesh, "--steps", 6, "--resume", first,
                       **keys | {"train__precision": precision})
        whole, again, other = (training.losses(self.folder / name)[-3:]
                               for name in ("whole", "again", "other"))
        self.assertEqual(whole, again)
        np.testing.assert_allclose(other, whole, rtol=1e-3)

    def test_faults_are_found(self):
        for kind, mesh in support.some((
                ("drop-collective", "tensor=2"), ("sum-for-mean", "data=2"),
                ("wrong-group", "data=2,tensor=2")), 2):
            with self.subTest(kind=kind):
                done = support.run(CLEAVE, "check", "--steps", 1,
                                   *training.flags(training.small("gpt2"), mesh,
                                                   train__precision="bf16"),
                                   "--inject", kind)
                self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
