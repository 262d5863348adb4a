"""Router losses: values and gradients against the formulas in NumPy, on one rank and on several."""

import pathlib
import sys
import tempfile
import unittest

import numpy as np

import support
import training
from support import CLEAVE, MODELS

sys.path.insert(0, str(support.ROOT / "tools" / "lib"))
import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

SAMPLES, LENGTH, HIDDEN, EXPERTS, VOCABULARY, SLOTS = 4, 7, 6, 5, 17, 2
RATE = 1e4
SGD = ["--steps", 1, "--save-every", 1, "--set", "train.optimizer=sgd", "--set", f"train.lr={RATE}",
       "--set", "train.momentum=0.0", "--set", "train.weight_decay=0.0", "--set", "train.clip_norm=0.0",
       "--set", "train.schedule=constant", "--set", "data.labels=labels", "--set", "data.validation=0.0"]


def weights():
    rng = np.random.default_rng(3)
    shapes = {"embed": (VOCABULARY, HIDDEN), "router": (HIDDEN, EXPERTS), "head": (HIDDEN, VOCABULARY)}
    shapes.update({f"expert.{e}": (HIDDEN, HIDDEN) for e in range(EXPERTS)})
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensors["bias"] = np.linspace(-0.3, 0.3, EXPERTS, dtype=np.float32)
    return tensors


def write_model(path, sigmoid):
    """Unrolled experts on embedded tokens, chosen by a softmax, or by a sigmoid and a bias."""
    tensors = weights()
    b = onnxbuild.Builder()
    parameter = {}
    ids = b.input("input_ids", np.int64, ["batch", "sequence"])
    for name, tensor in tensors.items():
        if name != "bias" or sigmoid:
            parameter[name] = b.parameter(name, tensor)
    x = b.op("Gather", parameter["embed"], ids)
    logits = b.op("MatMul", x, parameter["router"])
    scores = b.op("Sigmoid", logits) if sigmoid else b.op("Softmax", logits, axis=-1)
    chosen = b.op("Add", scores, parameter["bias"]) if sigmoid else scores
    best, which = b.op("TopK", chosen, b.constant([SLOTS]), outputs=2, axis=-1)
    if sigmoid:
        best = b.op("GatherElements", scores, which, axis=2)
    y = x
    for e in range(EXPERTS):
        hit = b.op("Cast", b.op("Equal", which, b.constant(e)), to=1)
        weight = b.op("ReduceSum", b.op("Mul", best, hit), b.constant([2]), keepdims=1)
        y = b.op("Add", y, b.op("Mul", b.op("MatMul", x, parameter[f"expert.{e}"]), weight))
    b.op("MatMul", y, parameter["head"], out="logits")
    b.output("logits", np.float32, ["batch", "sequence", VOCABULARY])
    onnxwire.save(b.model(18), path)
    path.with_suffix(".toml").write_text(f"[dims]\nbatch = {SAMPLES}\nsequence = {LENGTH}\n")


def losses(router, ids, labels, sigmoid, scope):
    """(balance loss, z-loss): means over samples, or over all tokens, weighted by counted labels."""
    tensors = {name: tensor.astype(np.float64) for name, tensor in weights().items()}
    logits = tensors["embed"][ids] @ router
    exponentials = np.exp(logits)
    squares = np.log(exponentials.sum(axis=-1)) ** 2
    scores = 1 / (1 + np.exp(-logits)) if sigmoid else exponentials / exponentials.sum(axis=-1, keepdims=True)
    order = np.argsort(-(scores + tensors["bias"] if sigmoid else scores), axis=-1)[..., :SLOTS]
    loads = (order[..., None] == np.arange(EXPERTS)).sum(axis=2) / SLOTS
    shares = scores / scores.sum(axis=-1, keepdims=True)
    counted = (labels >= 0).sum(axis=1)
    if scope == "microbatch":
        balance = EXPERTS * (loads.mean(axis=(0, 1)) * shares.mean(axis=(0, 1))).sum()
        return balance, squares.mean()
    balance = EXPERTS * (loads.mean(axis=1) * shares.mean(axis=1)).sum(axis=-1)
    return [(value * counted).sum() / counted.sum() for value in (balance, squares.mean(axis=1))]


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class RouterLosses(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        rng = np.random.default_rng(1)
        self.ids = rng.integers(0, VOCABULARY, (SAMPLES, LENGTH))
        self.labels = rng.integers(0, VOCABULARY, (SAMPLES, LENGTH))
        self.labels[1, 2:] = -100
        self.labels[3, :] = -100
        np.savez(self.folder / "data.npz", input_ids=self.ids, labels=self.labels)

    def step(self, name, model, mesh="", **keys):
        """The loss, and the gradient of the router's weights."""
        out = self.folder / name
        support.succeed(CLEAVE, "train", *training.flags(model, mesh, **keys), *SGD, "--data",
                        self.folder / "data.npz", "--out", out, "--cache", self.folder / "cache")
        after = support.read_safetensors(out / "checkpoint-000001" / "model.safetensors")["router"]
        return support.read_log(out)[0]["loss"], (weights()["router"] - after.astype(np.float64)) / RATE

    def test_values_and_gradients(self):
        factors = (0.5, 0.25)
        for sigmoid in (False, True):
            model = self.folder / f"model{int(sigmoid)}.onnx"
            write_model(model, sigmoid)
            plain = self.step(f"{sigmoid}", model)
            router = weights()["router"].astype(np.float64)
            for number, (scope, mesh, keys) in enumerate(support.some((
                    ("sequence", "", {}), ("microbatch", "", {}), ("microbatch", "data=2", {}),
                    ("sequence", "tensor=2", {}), ("sequence", "data=2", {"train__microbatches": 2})), 3)):
                with self.subTest(sigmoid=sigmoid, scope=scope, mesh=mesh, **keys):
                    found = self.step(f"{sigmoid}{number}", model, mesh, parallel__expert__aux_loss=factors[0],
                                      parallel__expert__z_loss=factors[1], parallel__expert__aux_scope=scope, **keys)

                    def formula(matrix):
                        return np.dot(factors, losses(matrix, self.ids, self.labels, sigmoid, scope))

                    self.assertAlmostEqual(found[0] - plain[0], formula(router), delta=2e-5)
                    gradient = np.zeros_like(router)
                    for at in np.ndindex(router.shape):
                        change = np.zeros_like(router)
                        change[at] = 1e-6
                        gradient[at] = (formula(router + change) - formula(router - change)) / 2e-6
                    error = np.abs(found[1] - plain[1] - gradient).max()
                    self.assertLess(error, 2e-4 * np.abs(gradient).max())

    def test_capacity_leaves_them(self):
        """Router losses count the router's choices, whether or not the experts' capacity drops them."""
        model = self.folder / "model.onnx"
        write_model(model, sigmoid=False)
        keys = {"parallel__expert__capacity": 0.5}
        free, plain = self.step("free", model)[0], self.step("plain", model, **keys)[0]
        self.assertGreater(abs(free - plain), 1e-3)
        router = weights()["router"].astype(np.float64)
        for number, (scope, mesh) in enumerate([("sequence", ""), ("microbatch", "data=2")]):
            with self.subTest(scope=scope, mesh=mesh):
                found = self.step(f"{number}", model, mesh, parallel__expert__aux_loss=0.5,
                                  parallel__expert__z_loss=0.25, parallel__expert__aux_scope=scope, **keys)[0]
                want = np.dot((0.5, 0.25), losses(router, self.ids, self.labels, False, scope))
                self.assertAlmostEqual(found - plain, want, delta=2e-5)

    def test_check(self):
        """The models of three families, sharded and pipelined."""
        keys = {"parallel__expert__aux_loss": 0.1, "parallel__expert__z_loss": 0.01, "dims__sequence": 9}
        turns = support.Turns(6)
        for model in ("mixtral", "switch", "deepseek"):
            for mesh, more in [("data=2,tensor=2", {"parallel__data__zero": 3}),
                               ("data=2", {"parallel__expert__aux_scope": "microbatch"}),
                               ("sequence=2", {"parallel__sequence": '[{kind="ring",axis="sequence"}]'}),
                               ("pipeline=2", {"train__microbatches": 2})]:
                with self.subTest(model, mesh=mesh, **more):
                    done = support.run(CLEAVE, "check", "--steps", 2, *turns.flags(),
                                       *training.flags(model, mesh, **keys, **more))
                    self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr)

    def test_without_experts(self):
        done = support.run(CLEAVE, "check", *training.flags("gpt2", parallel__expert__aux_loss=0.1))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("has no experts that a router chooses, but parallel.expert.aux_loss is not 0", done.stderr)
        done = support.run(CLEAVE, "check", MODELS / "switch.onnx", "--config", MODELS / "switch.toml",
                           "--set", "parallel.expert.z_loss=-1.0")
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
