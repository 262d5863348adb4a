"""Expert loads in the log, and the router bias that balances them, against NumPy."""

import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

import support
import test_router_losses as routers
import training
from support import CLEAVE
from test_router_losses import EXPERTS, LENGTH, SAMPLES, SLOTS, VOCABULARY

sys.path.insert(0, str(support.ROOT / "tools" / "lib"))
import onnxwire  # noqa: E402

MESHES = [("", {}), ("data=2", {"train__microbatches": 2}), ("data=3", {}), ("tensor=2", {}), ("expert=2", {}),
          ("data=2,expert=2", {}), ("expert=2,tensor=2", {}), ("data=2", {"parallel__expert__axis": "data"}),
          ("sequence=2", {"parallel__sequence": '[{kind="ring",axis="sequence"}]'}),
          ("pipeline=2", {"train__microbatches": 2}), ("pipeline=2,data=2", {"train__microbatches": 2})]
STILL = {"train__lr": 0.0, "data__validation": 0.0}  # weights stay the same in every step


def choices(ids, sigmoid, bias):
    """The experts of each token, best first: [samples, positions, slots]."""
    tensors = routers.weights()
    logits = tensors["embed"].astype(np.float64)[ids] @ tensors["router"].astype(np.float64)
    scores = 1 / (1 + np.exp(-logits)) + bias if sigmoid else logits
    return np.argsort(-scores, axis=-1)[..., :SLOTS]


def counts(chosen):
    return np.bincount(chosen.ravel(), minlength=EXPERTS)


def taken(chosen, capacity):
    """The slots within capacity: in order of positions, then slots, in each sequence."""
    most = int(np.ceil(capacity * LENGTH * SLOTS / EXPERTS))
    return sum(min(most, int((sample == e).sum())) for sample in chosen for e in range(EXPERTS))


class Trained(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        rng = np.random.default_rng(1)
        self.ids = rng.integers(0, VOCABULARY, (SAMPLES, LENGTH))
        np.savez(self.folder / "data.npz", input_ids=self.ids, labels=rng.integers(0, VOCABULARY, (SAMPLES, LENGTH)))
        self.runs = 0

    def model(self, sigmoid):
        path = self.folder / f"model{int(sigmoid)}.onnx"
        if not path.exists():
            routers.write_model(path, sigmoid)
        return path

    def train(self, model, mesh="", *more, **keys):
        """Runs training with all samples in each step; returns the run's folder."""
        self.runs += 1
        out = self.folder / f"run{self.runs}"
        done = support.succeed(CLEAVE, "train", *training.flags(model, mesh, data__labels="labels", **keys),
                               "--data", self.folder / "data.npz", "--out", out, "--cache", self.folder / "cache",
                               "--eval-every", 0, *more)
        self.printed = done
        return out

    def experts(self, out):
        return json.loads((out / "counters.json").read_text())["experts"]


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Loads(Trained):
    def test_counts_of_all_ranks_and_microbatches(self):
        for sigmoid in (False, True):
            chosen = choices(self.ids, sigmoid, routers.weights()["bias"])
            want = counts(chosen)
            for mesh, keys in support.some(MESHES, 3):
                with self.subTest(sigmoid=sigmoid, mesh=mesh, **keys):
                    out = self.train(self.model(sigmoid), mesh, "--steps", 2, **STILL, **keys)
                    [entry] = self.experts(out)
                    self.assertEqual(entry["router"], "router")
                    self.assertEqual(entry["chosen"], list(want))
                    self.assertEqual(entry["taken"], want.sum())
                    for line in support.read_log(out):
                        [logged] = line["experts"]
                        self.assertAlmostEqual(logged["load"], want.max() / want.mean())
                        self.assertEqual(logged["dropped"], 0)
                        self.assertEqual("overflow" in line, "expert" in mesh or "expert" in str(keys))
                    self.assertIn(f"  load {want.max() / want.mean():.3g}  ", self.printed)

    def test_dropped(self):
        chosen = choices(self.ids, False, 0)
        kept, want = taken(chosen, 1.0), counts(chosen)
        self.assertLess(kept, want.sum())
        for mesh, keys in [("", {}), ("data=2", {"train__microbatches": 2}), ("expert=2", {})]:
            with self.subTest(mesh=mesh, **keys):
                out = self.train(self.model(False), mesh, "--steps", 1, parallel__expert__capacity=1.0, **STILL, **keys)
                [entry] = self.experts(out)
                self.assertEqual(entry["chosen"], list(want))
                self.assertEqual(entry["taken"], kept)
                share = 1 - kept / want.sum()
                self.assertAlmostEqual(support.read_log(out)[0]["experts"][0]["dropped"], share)
                self.assertIn(f"  dropped {100 * share:.2g}%", self.printed)

    def test_overflow(self):
        """With buffers for a quarter of the rows, rows for three of four ranks do not fit."""
        shares = []
        for room in (1.0, 4.0):
            out = self.train(self.model(True), "expert=4", "--steps", 1, parallel__expert__max_load=room, **STILL)
            line = support.read_log(out)[0]
            traffic = [entry for rank in json.loads((out / "counters.json").read_text())["ranks"]
                       for entry in rank["traffic"]]
            sent = {purpose: sum(entry["sent_bytes"] for entry in traffic if entry["purpose"] == purpose)
                    for purpose in ("expert", "overflow")}
            self.assertAlmostEqual(line["overflow"], sent["overflow"] / sum(sent.values()))
            shares.append(line["overflow"])
        self.assertGreater(shares[0], 0)
        self.assertEqual(shares[1], 0)

    def test_layers_of_models(self):
        """Each layer is logged under the name of its router, with all slots counted."""
        meshes = [("pipeline=2", {"train__microbatches": 2}), ("", {})]
        for model, slots, layers in (("mixtral", 2, 2), ("switch", 1, 2), ("deepseek", 3, 1)):
            for mesh, keys in support.some(meshes, 1):
                with self.subTest(model, mesh=mesh):
                    self.runs += 1
                    out = self.folder / f"run{self.runs}"
                    training.train(out, model, mesh, "--steps", 1, **keys)
                    entries = self.experts(out)
                    self.assertEqual(len(entries), layers)
                    self.assertEqual(len({entry["router"] for entry in entries}), len(entries))
                    for entry in entries:
                        self.assertRegex(entry["router"], r"layers\.\d|val_\d")  # transposed by an exporter
                        self.assertEqual(sum(entry["chosen"]), 4 * 24 * slots)

    def test_layouts(self):
        """Meshes that split samples, positions or router features, and pipeline schedules."""
        megatron, ring, ulysses = (f'[{{kind="{kind}",axis="{axis}"}}]' for kind, axis in
                                   (("megatron", "tensor"), ("ring", "sequence"), ("ulysses", "sequence")))
        axes = {"parallel__tensor__layout": "2.5d", "mesh__axes": '["d","r","c"]', "parallel__tensor__axes": '["d","r","c"]'}
        want = None
        for mesh, keys in support.some((
                ("", {}), ("tensor=2", {"parallel__sequence": megatron}), ("sequence=2", {"parallel__sequence": ulysses}),
                ("data=3,sequence=5", {"parallel__sequence": ring}), ("d=2,r=2,c=2", axes),
                ("pipeline=2,expert=2", {"train__microbatches": 4, "parallel__pipeline__schedule": "zb-v"})), 3):
            with self.subTest(mesh=mesh, **keys):
                self.runs += 1
                out = self.folder / f"run{self.runs}"
                training.train(out, "mixtral", mesh, "--steps", 1, **keys)
                want = want or self.experts(out)
                self.assertEqual(self.experts(out), want)

    def test_without_experts(self):
        out = self.folder / "dense"
        log, counters = training.train(out, "gpt2", "", "--steps", 1)
        self.assertNotIn("experts", log[0])
        self.assertNotIn("experts", counters)


if __name__ == "__main__":
    unittest.main()
