"""Capacity of experts: what is dropped, of a sequence and of a microbatch, against NumPy and
on meshes."""

import pathlib
import tempfile
import unittest

import numpy as np

import support
import training
from support import CLEAVE

import onnxbuild
import onnxwire

SAMPLES, LENGTH, HIDDEN, EXPERTS, VOCABULARY = 4, 7, 6, 5, 17
RING = '[{kind="ring",axis="sequence"}]'


def weights():
    rng = np.random.default_rng(3)
    shapes = {"embed": (VOCABULARY, HIDDEN), "router": (HIDDEN, EXPERTS), "head": (HIDDEN, VOCABULARY)}
    shapes.update({f"expert.{e}": (HIDDEN, HIDDEN) for e in range(EXPERTS)})
    shapes.update({f"bias.{e}": (HIDDEN,) for e in range(EXPERTS)})
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_model(path, slots):
    """Experts with biases on embedded tokens, unrolled; one chosen by ArgMax, more by TopK."""
    b = onnxbuild.Builder()
    ids = b.input("input_ids", np.int64, ["batch", "sequence"])
    parameter = {name: b.parameter(name, tensor) for name, tensor in weights().items()}
    x = b.op("Gather", parameter["embed"], ids)
    scores = b.op("Softmax", b.op("MatMul", x, parameter["router"]), axis=-1)
    if slots == 1:
        best = b.op("ReduceMax", scores, b.constant([2]), keepdims=1)
        which = b.op("ArgMax", scores, axis=2, keepdims=1)
    else:
        best, which = b.op("TopK", scores, b.constant([slots]), outputs=2, axis=-1)
    y = x
    for e in range(EXPERTS):
        hit = b.op("Cast", b.op("Equal", which, b.constant(e)), to=1)
        weight = b.op("ReduceSum", b.op("Mul", best, hit), b.constant([2]), keepdims=1)
        rows = b.op("Add", b.op("MatMul", x, parameter[f"expert.{e}"]), parameter[f"bias.{e}"])
        y = b.op("Add", y, b.op("Mul", rows, weight))
    b.op("MatMul", y, parameter["head"], out="logits")
    b.output("logits", np.float32, ["batch", "sequence", VOCABULARY])
    onnxwire.save(b.model(18), path)
    path.with_suffix(".toml").write_text(f"[dims]\nbatch = {SAMPLES}\nsequence = {LENGTH}\n")


def kept(choices, capacity, scope, samples=None):
    """Which slots of [samples, positions, slots] an expert has room for; `samples`: those that
    the microbatch has room for, if it is not full."""
    b, s, k = choices.shape
    count = s * k * ((samples or b) if scope == "microbatch" else 1)
    most = int(np.ceil(capacity * count / EXPERTS))
    keep = np.zeros(choices.shape, bool)
    taken = {}
    for at in np.ndindex(b, s, k):
        key = (choices[at], at[0] if scope == "sequence" else 0)
        keep[at] = taken.get(key, 0) < most
        taken[key] = taken.get(key, 0) + 1
    return keep


def choices_of(ids, slots):
    w = {name: tensor.astype(np.float64) for name, tensor in weights().items()}
    x = w["embed"][ids]
    logits = x @ w["router"]
    scores = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return x, scores, np.argsort(-scores, axis=-1, kind="stable")[..., :slots]


def forward(ids, slots, capacity, scope, samples=None):
    """Logits, and which slots were kept."""
    w = {name: tensor.astype(np.float64) for name, tensor in weights().items()}
    x, scores, choices = choices_of(ids, slots)
    keep = kept(choices, capacity, scope, samples)
    y = x.copy()
    for at in np.argwhere(keep):
        e, token = choices[tuple(at)], tuple(at[:2])
        y[token] += scores[token][e] * (x[token] @ w[f"expert.{e}"] + w[f"bias.{e}"])
    return y @ w["head"], keep


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Dropped(unittest.TestCase):
    """Against NumPy, token by token."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for slots in (1, 2):
            write_model(cls.folder / f"model{slots}.onnx", slots)

    def infer(self, slots, ids, mesh, **keys):
        np.savez(self.folder / "in.npz", input_ids=ids)
        flags = training.flags(self.folder / f"model{slots}.onnx", mesh, **keys)
        done = support.run(CLEAVE, "infer", *flags, "--inputs", self.folder / "in.npz", "--outputs",
                           self.folder / "out.npz", "--cache", self.folder / "cache")
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.load(self.folder / "out.npz")["logits"]

    def test_what_is_dropped(self):
        ids = np.random.default_rng(5).integers(0, VOCABULARY, (SAMPLES, LENGTH))
        for slots in (1, 2):
            for capacity in (1.0, 0.5):
                drops = {}
                for scope in ("sequence", "microbatch"):
                    want, keep = forward(ids, slots, capacity, scope)
                    drops[scope] = keep
                    self.assertFalse(keep.all())
                    meshes = ("data=3", "", "data=2", "expert=2", "data=2,expert=2")
                    for mesh in support.some(meshes, 2):
                        with self.subTest(slots=slots, capacity=capacity, scope=scope, mesh=mesh):
                            found = self.infer(slots, ids, mesh, parallel__expert__capacity=capacity,
                                               parallel__expert__capacity_scope=scope)
                            self.assertLess(np.abs(found - want).max(), 1e-4)
                # Scopes are different things, here.
                self.assertTrue((drops["sequence"] != drops["microbatch"]).any())

    def test_samples_that_are_missing(self):
        """What fills up the last microbatch of held-out samples takes no slots."""
        rng = np.random.default_rng(6)
        ids = rng.integers(0, VOCABULARY, (12, LENGTH))
        labels = rng.integers(0, VOCABULARY, (12, LENGTH))
        np.savez(self.folder / "data.npz", input_ids=ids, labels=labels)
        for scope in ("sequence", "microbatch"):
            logits, keep = forward(ids[9:], 2, 1.0, scope, samples=SAMPLES)
            self.assertFalse(keep.all())
            shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
            want = -np.log(np.take_along_axis(shares, labels[9:][..., None], axis=-1)).mean()
            for mesh in support.some(("data=3", "", "data=2"), 1):
                with self.subTest(scope=scope, mesh=mesh):
                    out = self.folder / f"held-{scope}-{mesh}"
                    support.succeed(
                        CLEAVE, "train", *training.flags(
                            self.folder / "model2.onnx", mesh, parallel__expert__capacity=1,
                            parallel__expert__capacity_scope=scope, data__labels="labels",
                            data__validation=0.25, data__shuffle_split="false", train__lr="1e-30", train__optimizer="sgd",
                            train__weight_decay="0.0"),
                        "--steps", 1, "--data", self.folder / "data.npz", "--out", out, "--cache",
                        self.folder / "cache")
                    log = support.read_log(out)
                    self.assertEqual(log[-1]["val_samples"], 3)
                    self.assertAlmostEqual(log[-1]["val_loss"], want, delta=1e-5)

    def test_a_call_of_other_samples(self):
        ids = np.zeros((3, LENGTH), np.int64)
        np.savez(self.folder / "few.npz", input_ids=ids)
        flags = training.flags(self.folder / "model2.onnx", parallel__expert__capacity=1,
                               parallel__expert__capacity_scope="microbatch")
        done = support.run(CLEAVE, "infer", *flags, "--inputs", self.folder / "few.npz", "--outputs",
                           self.folder / "few-out.npz")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is computed from all samples of a call together", done.stderr)


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Meshes(unittest.TestCase):
    """The same is dropped on every mesh."""

    # The covering set of the matrix compiles such programs, too.
    turns = support.Turns(13)

    def check(self, model, mesh, *flags, **keys):
        if "sequence=" in mesh:
            keys["parallel__sequence"] = RING
        with self.subTest(model=model, mesh=mesh, **keys):
            how = [] if "--interpret" in flags else self.turns.flags()
            done = support.run(CLEAVE, "check", "--steps", 2, *flags, *how,
                               *training.flags(model, mesh, **{"parallel__expert__capacity": 1} | keys))
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)

    def test_sequences(self):
        for model in ("switch", "mixtral"):
            for mesh, keys in support.some((
                    ("expert=4", {}), ("expert=2", {}), ("sequence=2", {}),
                    ("expert=2,sequence=2", {}), ("data=3", {"dims__sequence": 9}),
                    ("data=2,expert=2", {"parallel__data__zero": 3}),
                    ("data=2", {"parallel__expert__axis": "data", "parallel__data__zero": 2}),
                    ("pipeline=2,expert=2", {"train__microbatches": 2})), 4):
                self.check(model, mesh, **keys)
        self.check("deepseek", "expert=2,sequence=3", parallel__expert__capacity=0.7)

    def test_microbatches(self):
        for model in ("switch", "mixtral"):
            for mesh, keys in support.some((
                    ("data=2,expert=2,sequence=2", {}), ("expert=2", {}), ("sequence=2", {}),
                    ("data=3", {"dims__batch": 5}), ("expert=2,sequence=2", {}), ("data=2", {}),
                    ("tensor=2", {}), ("data=2", {"train__microbatches": 2, "dims__batch": 8,
                                                  "parallel__data__zero": 2}),
                    ("pipeline=2,data=2", {"train__microbatches": 2})), 4):
                self.check(model, mesh, parallel__expert__capacity_scope="microbatch", **keys)

    def test_interpreted(self):
        for scope in ("sequence", "microbatch"):
            self.check("switch", "data=2,sequence=2", "--interpret", parallel__expert__capacity_scope=scope)

    def test_losses_of_routers(self):
        """They read what the router chose, whatever is dropped."""
        losses = {"parallel__expert__aux_loss": 0.1, "parallel__expert__z_loss": 0.01}
        for model in ("switch", "mixtral"):
            for mesh, keys in [("data=2,expert=2", {}), ("sequence=2", {}),
                               ("data=2", {"parallel__expert__capacity_scope": "microbatch",
                                           "parallel__expert__aux_scope": "microbatch"})]:
                self.check(model, mesh, **losses, **keys)

    def test_zigzag_order(self):
        """Slots are taken in the order of positions, wherever these are."""
        for model in ("switch", "mixtral"):
            for scope in ("sequence", "microbatch"):
                with self.subTest(model=model, scope=scope):
                    flags = training.flags(model, "sequence=2", parallel__sequence=RING,
                                           parallel__expert__capacity=1,
                                           parallel__expert__capacity_scope=scope)
                    done = support.run(CLEAVE, "explain", *flags, "--remarks")
                    said = done.stdout + done.stderr
                    self.assertEqual(done.returncode, 0, said)
                    self.assertIn(f"slots of a {scope} (capacity 1", said)
                    self.assertNotIn("stay in order", said)

    def test_ranks_of_a_ring_have_the_same_work(self):
        with tempfile.TemporaryDirectory() as folder:
            _, counters = training.train(pathlib.Path(folder) / "run", "mixtral", "sequence=2",
                                         "--steps", 1, parallel__sequence=RING, dims__sequence=2048,
                                         dims__batch=1, parallel__expert__capacity=1)
        flops = [rank["attention_flops"] for rank in counters["ranks"]]
        self.assertLessEqual(max(flops), 1.02 * sum(flops) / len(flops))

    def test_memory(self):
        """Linear in the slots: what is added is the limited choices, which the backward pass
        reads."""
        def peak(length, **keys):
            found = training.explain("mixtral", dims__sequence=length, dims__batch=2, **keys)
            return found["per_rank"][0]["memory"]["peak"]

        for length in (512, 1024):
            free, choices = peak(length), 2 * length * 2 * 8
            for scope in ("sequence", "microbatch"):
                with self.subTest(length=length, scope=scope):
                    limited = peak(length, parallel__expert__capacity=1,
                                   parallel__expert__capacity_scope=scope)
                    self.assertLessEqual(limited - free, 2 * choices)  # of two layers

    def test_what_is_refused(self):
        done = support.run(CLEAVE, "check", *training.flags("switch", parallel__expert__capacity=1,
                                                            parallel__expert__capacity_scope="batch"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('parallel.expert.capacity_scope', done.stderr)
        self.assertIn('expected one of sequence, microbatch', done.stderr)


if __name__ == "__main__":
    unittest.main()
