"""bf16 computation with f32 accumulation and master weights (train.precision = "bf16"): loss curves,
`cleave check` under every kind of parallelism, and bytes sent."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

import support
import training
from support import CLEAVE

# Every strategy, because each sends other values between ranks in bf16 or f32.
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
                                    train__precision=precision)
                curves.append(np.array([line["loss"] for line in log]))
            single, mixed = curves
            with self.subTest(model=model):
                self.assertEqual(len(single), steps)
                self.assertLess(single[-1], 0.7 * single[0]) # it learns
                self.assertFalse((single == mixed).all())    # and differs from fp32
                self.assertLess((abs(mixed - single) / single).max(), 0.01)

    def test_check(self):
        """The exact part in f64; rounding errors within 4 times those of the unsharded program."""
        for model, meshes in MESHES.items():
            # tools/matrix tests other combinations in bf16.
            if not support.ALL and model == "t5":
                continue
            for mesh, keys in support.some(meshes[::-1], 1):
                with self.subTest(model=model, mesh=mesh, **keys):
                    said = json.loads(support.succeed(
                        CLEAVE, "check", *training.flags(model, mesh, train__precision="bf16",
                                                         **keys), "--json"))
                    self.assertTrue(said["pass"])
                    parts = {part: [t for t in said["tensors"] if t["part"] == part]
                             for part in ("exact", "rounding")}
                    self.assertLess(max(t["rel_error"] for t in parts["exact"]), 1e-9)
                    gradients = [t["rel_error"] for t in parts["rounding"] if t["kind"] == "gradient"]
                    # The error of bf16, not that of f32.
                    self.assertGreater(max(gradients), 1e-4)

    def test_bytes_sent(self):
        """Half the bytes of fp32, except for gradients and statistics; the runtime's counters agree."""
        for mesh, keys in support.some((
                ("data=2", {"parallel__data__zero": 3}), ("data=2", {"parallel__data__zero": 1}),
                ("tensor=2", {}),
                ("tensor=2", {"parallel__sequence": '[{kind="megatron",axis="tensor"}]'}),
                ("pipeline=2", {"train__microbatches": 2})), 3):
            with self.subTest(mesh=mesh, **keys):
                sent = {}
                for precision in ("fp32", "bf16"):
                    said = training.explain("llama", mesh, train__precision=precision, **keys)
                    sent[precision] = {}
                    for entry in said["per_rank"][0]["collectives"]:
                        kind = (entry["purpose"], entry["dtype"])
                        sent[precision].setdefault(kind, 0)
                        sent[precision][kind] += entry["sent_bytes"]
                    total = sum(sent[precision].values())
                    out = f"{precision}-{mesh}-{len(keys)}-{keys.get('parallel__data__zero')}"
                    log, _ = self.train(out, "llama", mesh, "--steps", 2,
                                        train__precision=precision, **keys)
                    ranks = len(said["per_rank"])
                    if len({str(r["collectives"]) for r in said["per_rank"]}) == 1:
                        self.assertIn(log[1]["sent_bytes"], (total, ranks * total))
                for purpose in ("parameter", "activation", "pipeline"):
                    whole = sent["fp32"].get((purpose, "f32"), 0)
                    self.assertEqual(2 * sent["bf16"].get((purpose, "bf16"), 0)
                                     + sent["bf16"].get((purpose, "f32"), 0), whole, sent)
                    # Statistics of split rows stay f32.
                    self.assertLess(sent["bf16"].get((purpose, "f32"), 0), 0.05 * whole + 1)
                for key in (("gradient", "f32"), ("loss", "f32"), ("norm", "f32")):
                    self.assertEqual(sent["bf16"].get(key), sent["fp32"].get(key))

    def test_checkpoints_hold_the_master_weights(self):
        """Checkpoints are in f32; a run resumes from them bit-identically, or in the other precision."""
        keys = dict(mesh="data=2", train__precision="bf16", parallel__data__zero=1)
        self.train("whole", "gpt2", keys["mesh"], "--steps", 6, **{k: v for k, v in keys.items()
                                                                 if k != "mesh"})
        self.train("half", "gpt2", keys["mesh"], "--steps", 6, "--save-every", 3,
                   **{k: v for k, v in keys.items() if k != "mesh"})
        first = self.folder / "half" / "checkpoint-000003"
        weights = support.read_safetensors(first / "model.safetensors")
        for name, array in weights.items():
            self.assertEqual(array.dtype, np.float32, name)
        # Weights are not rounded: the low half of their bits is used.
        self.assertTrue(any((a.view(np.uint32) & 0xffff).any() for a in weights.values()))
        state = support.read_safetensors(first / "optimizer.safetensors")
        self.assertFalse([name for name in state if name.endswith(".master")])
        for name, precision in (("again", "bf16"), ("other", "fp32")):
            more = {k: v for k, v in keys.items() if k != "mesh"} | {"train__precision": precision}
            self.train(name, "gpt2", keys["mesh"], "--steps", 6, "--resume", first, **more)
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
                                   *training.flags("gpt2", mesh, train__precision="bf16"),
                                   "--inject", kind)
                self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
