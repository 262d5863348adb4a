"""`cleave check`: the compiled program of many ranks against the unsharded one,
on every committed language model and on small ones; meshes that divide and that
do not; scrambled and resized copies; bad input. Faults are in test_check_faults.py.

Committed models run on short sequences but once. Small models have one layer,
four samples of ten tokens: what is wrong in a layer, or in a split, is wrong
there, and a check takes seconds. Where many are needed, models are tiny and
interpreted.
"""

import json
import math
import pathlib
import random
import sys
import tempfile
import unittest

import numpy as np

import support
from support import generate
import onnxbuild
import onnxwire
import reference

FAMILIES = ("gpt2", "llama")
SPELLINGS = ("ts17", "dynamo18", "dynamo23")
SHORT = ["--set", "dims.batch=4", "--set", "dims.sequence=24"]
SHORTEST = ["--set", "dims.batch=2", "--set", "dims.sequence=4"] # where all is interpreted
FOUR = dict(data=2, tensor=2, zero=1)


def mesh(**sizes):
    """Flags of mesh axes; `zero` is the strategy's key, `replica` the outer axis
    of hybrid sharding."""
    flags = []
    for axis, size in sizes.items():
        key = "parallel.data.zero" if axis == "zero" else f"mesh.{axis}"
        flags += ["--set", f"{key}={size}"]
    if "replica" in sizes:
        axes = json.dumps([axis for axis in sizes if axis != "zero"])
        flags += ["--set", f"mesh.axes={axes}", "--set", "parallel.data.replicate=replica"]
    return flags


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for family in FAMILIES:
            generate(cls.folder / f"{family}.onnx", family=family, layers=1, batch=4, sequence=10)
        # Where it is about no layer.
        generate(cls.folder / "tiny.onnx", family="gpt2", layers=1, hidden=8, heads=2, vocab=7,
                 batch=2, sequence=3)

    def small(self, family):
        return [self.folder / f"{family}.onnx", "--config", self.folder / f"{family}.toml"]

    def check(self, *flags):
        """The exit code, the report where there is one, and the errors."""
        done = support.run(support.CLEAVE, "check", "--json", *flags)
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    def passes(self, *flags, steps=5, parts=("exact", "rounding")):
        code, report, errors = self.check("--steps", steps, *flags)
        wrong = [t for t in (report or {}).get("tensors", []) if not t["pass"]]
        self.assertEqual(code, 0, f"{wrong[:5]} {errors}")
        self.assertTrue(report["pass"])
        self.assertEqual(report["tolerance"], 1e-9)
        self.assertLessEqual(report["max_rel_error"], report["tolerance"])
        self.assertEqual(report["max_replica_difference"], 0)
        self.assertEqual({t["part"] for t in report["tensors"]}, set(parts))
        self.assertLessEqual({"loss", "output", "gradient", "parameter", "state", "norm"},
                             {t["kind"] for t in report["tensors"]})
        for tensor in report["tensors"]:
            self.assertLessEqual(tensor["rel_error"], tensor["limit"], tensor["name"])
            if tensor["part"] == "exact":
                self.assertLessEqual(tensor["limit"], 1e-9 if tensor["steps"] == 1 else 1e-8)
        # The updates show: no two losses are alike.
        losses = report["losses"]
        self.assertEqual(len(losses["sharded"]), steps)
        self.assertEqual(len(set(losses["reference"])), steps)
        for ours, theirs in zip(losses["sharded"], losses["reference"]):
            self.assertTrue(math.isclose(ours, theirs, rel_tol=1e-8))
        return report

    def fails(self, *flags):
        code, report, errors = self.check("--steps", 1, *flags)
        self.assertEqual(code, 1, errors)
        self.assertFalse(report["pass"])
        wrong = [t for t in report["tensors"] if not t["pass"]]
        # A replica that differs is wrong, too; null stands for what is not finite.
        self.assertTrue(wrong or report["max_replica_difference"] != 0)
        return report

    def refused(self, message, *flags):
        code, report, errors = self.check(*flags)
        self.assertEqual((code, report), (2, None), errors)
        self.assertIn(message, errors)
        self.assertEqual(errors.count("error:"), 1, errors)

    def test_committed_as_it_is(self):
        self.passes(*support.model_flags("gpt2"), *mesh(**FOUR), steps=2)

    def test_committed_on_every_mesh(self):
        # Which divide is the matrix' matter, too.
        cases = [(family, sizes) for family in FAMILIES
                 for sizes in [dict(data=3, tensor=2, zero=1), FOUR, dict(data=4, zero=1),
                               dict(tensor=4), dict(data=3), dict(), dict(tensor=3)]
                 if (family, sizes) != ("gpt2", FOUR)]  # that one as it is
        for family, sizes in support.some(reversed(cases), 1):
            with self.subTest(model=family, mesh=sizes):
                if support.ALL:
                    self.passes(*support.model_flags(family), *SHORT, *mesh(**sizes), steps=2)
                else:  # compiled are a copy of it (test_scrambled), and small models on such meshes
                    self.passes(*support.model_flags(family), *SHORTEST, *mesh(**sizes),
                                "--interpret", steps=2, parts=["exact"])

    def test_committed_spellings(self):
        """Of other exporters; with one sample a rank, too, and with microbatches."""
        settings = {"gpt2.ts17": "dims.batch=2", "llama.dynamo18": "dims.batch=2",
                    "gpt2.dynamo18": "train.microbatches=2", "llama.ts17": "train.microbatches=2"}
        names = [f"{family}.{spelling}" for family in FAMILIES for spelling in SPELLINGS]
        # Each spelling and each family, and both settings.
        for name in names if support.ALL else ("gpt2.ts17", "gpt2.dynamo18", "llama.dynamo23"):
            with self.subTest(model=name):
                flags = ["--set", settings[name]] if name in settings else []
                # What differs is the import, and test_gradients.py compiles each of them.
                if support.ALL:
                    self.passes(*support.model_flags(name), *SHORT, *mesh(**FOUR), *flags, steps=2)
                else:
                    self.passes(*support.model_flags(name), *SHORTEST, *mesh(**FOUR), "--interpret",
                                steps=2, parts=["exact"])

    def test_fewer_samples_than_ranks(self):
        self.passes(*self.small("llama"), *mesh(data=4), "--set", "dims.batch=2", steps=2)

    def test_committed_with_zero(self):
        """Sharded gradients and parameters, hybrid, with microbatches and tensors."""
        two = ["--set", "train.microbatches=2"]
        each = ["--set", "parallel.data.zero2_reduce=per_microbatch"]
        keep = ["--set", "parallel.data.reshard_after_forward=false"]
        plans = {"gpt2": [(dict(data=2, tensor=2, zero=3), []), (dict(data=3, zero=2), []),
                          (dict(replica=2, data=2, zero=3), two)],
                 "llama": [(dict(data=2, tensor=2, zero=3), two),
                           (dict(data=2, zero=2), two + each), (dict(data=3, zero=3), keep),
                           (dict(replica=2, data=2, zero=1), [])]}
        cases = [(family, *case) for family, list_ in plans.items() for case in list_]
        for number, (family, sizes, flags) in enumerate(cases):
            with self.subTest(model=family, mesh=sizes, flags=flags):
                if support.ALL or number == 4:
                    self.passes(*support.model_flags(family), *SHORT, *mesh(**sizes), *flags,
                                steps=2)
                else:
                    self.passes(*self.small(family), *mesh(**sizes), *flags, "--interpret",
                                steps=2, parts=["exact"])

    def test_small_with_zero(self):
        """Every stage against the oracle, and by the oracle alone."""
        plans = [dict(data=3, zero=3), dict(data=2, tensor=2, zero=3),
                 dict(replica=2, data=2, zero=2), dict(replica=2, data=2, zero=0)]
        for number, family in enumerate(FAMILIES):
            for turn, sizes in enumerate(plans):
                with self.subTest(model=family, mesh=sizes):
                    if support.ALL or turn == 2 * number:
                        self.passes(*self.small(family), *mesh(**sizes), "--against",
                                    "interpreter", "--set", "train.dropout=0.1", steps=2)
                    if support.ALL or turn % 2 != number:  # each plan with one of them
                        self.passes(*self.small(family), *mesh(**sizes), "--interpret",
                                    "--set", "train.microbatches=2", steps=2, parts=["exact"])

    def scrambled(self, model, *config, flags=(), plan=FOUR, interpret=False):
        other = self.folder / "scrambled.onnx"
        support.succeed(sys.executable, support.ROOT / "tools" / "scramble", model, other, *flags)
        how = dict(parts=["exact"]) if interpret else {}
        report = self.passes(other, *config, *mesh(**plan), *(["--interpret"] if interpret else []),
                             steps=2, **how)
        self.assertFalse([tensor["name"] for tensor in report["tensors"]
                          if any(part in tensor["name"] for part in ("wte", "embed", ".weight"))])

    def test_scrambled(self):
        cases = [(family, plan) for family in FAMILIES
                 for plan in (FOUR, dict(data=2, tensor=2, zero=3))]
        # The covering set of the matrix has scrambled copies, too.
        for family, plan in support.some(reversed(cases), 1):
            with self.subTest(model=family, mesh=plan):
                self.scrambled(*support.model_flags(family), *SHORT, plan=plan)

    def test_resized(self):
        for family, seed in (("gpt2", 3), ("llama", 2)):
            with self.subTest(model=family):
                how = {} if support.ALL or family == "gpt2" else {"interpret": True}
                self.scrambled(*self.small(family), flags=["--resize", "--seed", seed], **how)

    def test_one_rank_says_what_it_compares(self):
        words = "on one rank the program is compared with itself"
        for flags, says in (([], True), (["--against", "interpreter"], False),
                            (mesh(tensor=2), False)):
            with self.subTest(flags=flags):
                code, _, errors = self.check("--steps", 1, *self.small("tiny"), *flags)
                self.assertEqual(code, 0, errors)
                self.assertEqual(words in errors, says, errors)

    def test_nan(self):
        """NaN equals NaN, so a check of it would say nothing, faults or not."""
        raw = (self.folder / "tiny.onnx").read_bytes()
        scale = support.initializers(self.folder / "tiny.onnx")["transformer.ln_f.weight"]
        at = raw.index(scale.tobytes()) + 3 * 4
        model = self.folder / "nan.onnx"
        model.write_bytes(raw[:at] + np.float32(np.nan).tobytes() + raw[at + 4:])
        flags = [model, "--config", self.folder / "tiny.toml", *mesh(tensor=2)]
        for more in ([], ["--inject", "drop-collective"], ["--against", "interpreter"]):
            self.refused("holds NaN at element 3 of", *flags, *more)

    def test_gradients_that_are_not_finite(self):
        """Nothing can be compared after them, but a fault that shows is one."""
        b = onnxbuild.Builder()
        draw = np.random.default_rng(3)
        x = b.input("x", np.float32, [4, 8])
        w = b.parameter("w", draw.standard_normal((8, 8)).astype(np.float32))
        h = b.op("MatMul", x, w)
        root = b.op("Sqrt", b.op("Mul", b.op("Mul", h, h), b.input("zeros", np.float32, [4, 8])))
        b.op("Add", root, b.op("MatMul", x, w), out="y")
        b.output("y", np.float32, [4, 8])
        onnxwire.save(b.model(18), self.folder / "root.onnx")
        np.savez(self.folder / "root.npz", x=draw.standard_normal((4, 8)).astype(np.float32),
                 zeros=np.zeros((4, 8), np.float32))
        flags = [self.folder / "root.onnx", "--inputs", self.folder / "root.npz",
                 "--set", "train.loss=mse", *mesh(data=2)]
        self.refused("the gradient of 'w' of step 1 is not finite on one rank", *flags)
        code, report, errors = self.check(*flags, "--inject", "drop-collective")
        self.assertEqual((code, report["pass"]), (1, False), errors)
        self.assertIn("not finite on one rank", " ".join(report["notes"]))

    def test_interpreter(self):
        self.passes(*self.small("gpt2"), *mesh(tensor=2), "--against", "interpreter", steps=2)
        self.passes(*self.small("llama"), *mesh(data=2, tensor=3, zero=1), "--interpret",
                    steps=2, parts=["exact"])

    def cancelling(self, scale=1e6):
        """A mean over positions is taken off, and with it the bias, whose gradient is zero but
        for rounding, of terms `scale` times larger than any gradient."""
        draw, b = np.random.default_rng(5), onnxbuild.Builder()
        def drawn(*shape):
            return draw.standard_normal(shape).astype(np.float32)
        x = b.op("Mul", b.input("x", np.float32, [4, 6, 5]), b.constant(1 / scale, np.float32))
        h = b.op("Add", b.op("MatMul", x, b.parameter("w", drawn(5, 8))),
                 b.parameter("b", drawn(8) / np.float32(scale)))
        h = b.op("Sub", h, b.op("ReduceMean", h, b.constant([1], np.int64), keepdims=1))
        h = b.op("Tanh", b.op("Mul", h, b.constant(scale, np.float32)))
        b.op("MatMul", h, b.parameter("head", drawn(8, 3)), out="y")
        b.output("y", np.float32, [4, 6, 3])
        onnxwire.save(b.model(18), self.folder / "cancelling.onnx")
        return [self.folder / "cancelling.onnx", "--set", "train.loss=mse", *mesh(data=2)]

    def test_gradients_that_cancel(self):
        flags = self.cancelling()
        for seed in range(3):
            with self.subTest(seed=seed):
                report = self.passes(*flags, "--interpret", "--seed", seed, steps=1, parts=["exact"])
                noise = [t for t in report["tensors"] if (t["name"], t["kind"]) == ("b", "gradient")]
                self.assertTrue(noise[0]["below_floor"])
        self.passes(*flags, steps=1)

    def test_noise_above_the_cap(self):
        """After an allowance that large an error could hide: none is made, and that is said."""
        report = self.fails(*self.cancelling(1e7), "--interpret")
        self.assertEqual([(t["name"], t["kind"]) for t in report["tensors"]
                          if t.get("above_noise_cap")], [("b", "gradient")])
        self.assertEqual([(t["name"], t["kind"]) for t in report["tensors"] if not t["pass"]][0],
                         ("b", "gradient"))
        self.assertRegex(" ".join(report["notes"]), r"rounding may move the gradient of 'b' by \S+, which "
                         "is more than 1e-08 of the largest gradient: it is compared as one that")

    def test_a_millionth_of_the_smallest_gradient(self):
        """Where it is a gradient at all, and no noise."""
        found = self.folder / "smallest.npz"
        for flags in ([*self.small("llama"), *mesh(**FOUR)], self.cancelling()):
            support.succeed(support.CLEAVE, "check", *flags, "--interpret", "--gradients", found)
            with np.load(found) as arrays:
                sizes = [np.abs(arrays[key]).max() for key in arrays.files
                         if key.startswith("grad/")]
            real = [i for i, size in enumerate(sizes) if size > 1e-6 * max(sizes)]
            index = min(real, key=lambda i: sizes[i])
            report = self.fails(*flags, "--interpret", "--inject", "gradient-off",
                                "--inject-index", index)
            self.assertIn("gradient", {t["kind"] for t in report["tensors"] if not t["pass"]})

    def test_key_biases_do_not_move(self):
        """No softmax depends on them. Of a fused bias it is the middle third."""
        found = self.folder / "keys.npz"
        support.succeed(support.CLEAVE, "check", *self.small("gpt2"), *mesh(tensor=2), "--interpret",
                        "--gradients", found)
        with np.load(found) as arrays:
            fused = [arrays[key] for key in arrays.files if key.endswith("c_attn.bias")]
        self.assertEqual(len(fused), 1)
        query, key, value = np.split(fused[0], 3)
        self.assertTrue((key == 0).all())
        self.assertTrue((query != 0).all() and (value != 0).all())

    def random_case(self, draw):
        """A model, a mesh and settings, of any sizes that a model can have."""
        pick = draw.choice
        family, groups, kv_heads = pick(FAMILIES), pick([1, 2, 3]), pick([1, 2, 3])
        heads, batch = groups * kv_heads, pick([1, 2, 3, 4, 6])
        sizes = dict(family=family, layers=pick([1, 2]), heads=heads,
                     hidden=heads * pick([2, 4, 6, 8]), vocab=pick([5, 7, 12, 33]), batch=batch,
                     sequence=pick([1, 2, 3, 7, 8]))
        if family == "llama":
            sizes |= dict(kv_heads=kv_heads, intermediate=pick([3, 7, 12, 20]))
        axes = dict(data=pick([1, 2, 3, 4]), tensor=pick([1, 2, 3]))
        axes["zero"] = pick([0, 1, 2, 3]) if axes["data"] > 1 else 0
        count = pick([n for n in (1, 2, 3) if batch % n == 0])
        return sizes, [*mesh(**axes), "--set", f"train.microbatches={count}",
                       "--set", f"train.dropout={pick([0.0, 0.0, 0.2])}",
                       "--set", f"train.clip_norm={pick([0.0, 1.0])}"]

    def test_random_programs(self):
        """The partitioner by itself, then compiled programs against the oracle."""
        for seed in support.some(range(20), 8):
            sizes, flags = self.random_case(random.Random(seed))
            with self.subTest(seed=seed, sizes=sizes, flags=flags[1::2]):
                model = generate(self.folder / "random.onnx", **sizes)
                self.passes(*model, *flags, "--interpret", steps=2, parts=["exact"])
                if seed < (6 if support.ALL else 1):
                    self.passes(*model, *flags, "--against", "interpreter", steps=2)

    def test_bisect(self):
        report = self.fails(*self.small("tiny"), "--inject", "random-offset", "--bisect",
                            *mesh(tensor=2), "--set", "train.dropout=0.1")
        self.assertIn("nn.dropout in @loss_grad", report["first_difference"])

    def test_faults_that_cannot_be(self):
        one_rank = self.small("gpt2")
        for kind, missing in [("drop-collective", "no sum over ranks"),
                              ("pad-identity", "no padding that is masked"),
                              ("random-offset", "no random numbers"),
                              ("missing-wait", "no transfer that a later command reads")]:
            with self.subTest(kind=kind):
                self.refused(f"this program cannot have the fault {kind}: it has {missing}",
                             *one_rank, "--inject", kind)
        self.refused("did you mean 'drop-collective'?", *one_rank, "--inject", "drop-colective")
        self.refused("is out of range", *one_rank, *mesh(data=2), "--inject", "drop-collective",
                     "--inject-index", 1000)

    def test_given_inputs_and_gradients(self):
        expected = reference.load("llama")
        given, found = self.folder / "given.npz", self.folder / "gradients.npz"
        np.savez(given, input_ids=expected["input_ids"], labels=expected["labels"])
        support.succeed(support.CLEAVE, "check", *support.model_flags("llama"), *mesh(tensor=2),
                        "--inputs", given, "--gradients", found)
        with np.load(found) as arrays:
            self.assertAlmostEqual(float(arrays["loss"]), float(expected["loss"]), places=9)
            gradients = {k: v for k, v in expected.items() if k.startswith("grad/")}
            self.assertEqual({k for k in arrays.files if k.startswith("grad/")}, set(gradients))
            largest = max(np.abs(v).max() for v in gradients.values())
            for key, value in gradients.items():
                self.assertLessEqual(reference.relative_error(arrays[key], value, largest), 1e-6)

    def test_bad_inputs(self):
        cases = [
            (dict(input_ids=np.full((4, 10), 257)),
             "bad0.npz, array 'input_ids': holds 257, beyond the rows of the table "
             "that it indexes, 257"),
            (dict(labels=np.full((4, 10), 257)),
             "bad1.npz, array 'labels': holds 257, beyond the number of classes, 257"),
            (dict(input_ids=np.zeros((3, 10), int)),
             "bad2.npz, array 'input_ids': is i64[3, 10], expected i64[4, 10]"),
            (dict(input_ids=np.zeros((4, 10), np.float32)),
             "bad3.npz, array 'input_ids': is f32[4, 10], expected i64[4, 10]"),
            (dict(tokens=np.zeros((4, 10), int)), "array 'tokens' is no input of the model"),
            (dict(input_ids=np.zeros((4, 10), int), tokens=np.zeros((4, 10), int)),
             "array 'tokens' is no input of the model; did you mean 'input_ids'? The inputs are "
             "input_ids"),
        ]
        for number, (arrays, message) in enumerate(cases):
            with self.subTest(arrays=list(arrays)):
                path = self.folder / f"bad{number}.npz"
                np.savez(path, **arrays)
                self.refused(message, *self.small("gpt2"), "--inputs", path)


if __name__ == "__main__":
    unittest.main()
