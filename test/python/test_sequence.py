"""Sequence parallelism by Ulysses, a ring or both: against the closed forms, against one rank, and
invalid settings."""

import concurrent.futures
import json
import pathlib
import tempfile
import unittest

import numpy as np

import support
import training
import formulas
import formulas_sequence
from formulas_sequence import SequencePlan
from support import CLEAVE

SMALL = {"layers": 1, "hidden": 32, "heads": 4, "vocab": 19, "positions": 16, "intermediate": 24,
         "sequence": 8, "batch": 4}


def kinds(mesh, saved_input=""):
    """parallel.sequence for a mesh whose axes are called u, r and tensor."""
    axes = [part.split("=")[0] for part in mesh.split(",")]
    entries = []
    if "u" in axes:
        entries.append('{kind="ulysses",axis="u"}')
    if "r" in axes:
        entries.append('{kind="ring",axis="r"}')
    if saved_input:
        entries.append(f'{{kind="megatron",axis="tensor",saved_input="{saved_input}"}}')
    return f"parallel.sequence=[{','.join(entries)}]"


def mesh_keys(mesh):
    axes = [part.split("=")[0] for part in mesh.split(",")]
    names = ",".join(f'"{axis}"' for axis in axes)
    return [f"mesh.axes=[{names}]", *(f"mesh.{part}" for part in mesh.split(","))]


def words(*keys):
    return [word for key in keys for word in ("--set", key)]


def flags(mesh, *keys, saved_input=""):
    return words(*mesh_keys(mesh), kinds(mesh, saved_input), *keys)


class ClosedForms(unittest.TestCase):
    """The volumes of the papers, for sizes that divide."""

    @classmethod
    def setUpClass(cls):
        cls.models = {name: formulas.read_architecture(support.MODELS / f"{name}.onnx")
                      for name in ("gpt2", "llama")}

    def attention(self, name, mesh):
        plan = SequencePlan(formulas.parse_mesh(mesh), 8, 96, ring_axis="r", ulysses_axis="u")
        architecture = self.models[name]
        sums = sum(term.sent(0) for term in formulas_sequence.attention(architecture, plan))
        return sums // architecture.layers

    def test_ulysses(self):
        bs, h = 8 * 96, 96
        for ways in (2, 3, 6):
            self.assertEqual(self.attention("gpt2", f"u={ways}"),
                             8 * (ways - 1) * bs * h * 4 // ways**2)
        kv, size, h = 2, 16, 128  # 8 query heads
        for ways in (2, 4, 8):
            self.assertEqual(self.attention("llama", f"u={ways}"),
                             2 * (ways - 1) * bs * (2 * h + 2 * max(kv, ways) * size) * 4
                             // ways**2)

    def test_ring(self):
        bs, kv = 8 * 96, 2 * 16
        for ways in (2, 3, 4):
            sent = self.attention("llama", f"r={ways}")
            self.assertEqual(sent, 6 * (ways - 1) * bs * kv * 4 // ways)
            self.assertLessEqual(sent, (6 * ways - 4) * bs * kv * 4 // ways)

    def test_heads_are_shared_with_the_least_padding(self):
        for (kv, group, tensor, ways), wanted in {
                (4, 1, 1, 4): (1, 1), (3, 1, 1, 2): (2, 1), (2, 4, 1, 4): (1, 2),
                (2, 3, 1, 4): (1, 2), (6, 1, 2, 2): (2, 1), (1, 4, 1, 4): (1, 1)}.items():
            self.assertEqual(formulas_sequence.share_heads(kv, group, tensor, ways), wanted)
        with self.assertRaises(formulas.UserError):
            formulas_sequence.share_heads(3, 1, 1, 4)


CASES = [
    ("gpt2", "u=2", {}), ("gpt2", "u=4", {"microbatches": 2}), ("llama", "u=2", {}),
    ("llama", "u=4", {}), ("gpt2", "r=2", {}), ("llama", "r=4", {"microbatches": 2}),
    ("gpt2", "r=2,u=2", {}), ("llama", "r=2,u=2", {"zero": 1}), ("llama", "r=2,u=4", {}),
    ("gpt2", "data=2,u=2", {"zero": 3}), ("llama", "data=2,r=2", {"zero": 3, "microbatches": 2}),
    ("llama", "u=2", {"zero": 3}), ("gpt2", "r=2", {"zero": 2}),
    ("llama", "data=2,u=2", {"zero": 2, "microbatches": 2, "zero2_reduce": "per_microbatch"}),
    ("llama", "outer=2,data=2,u=2", {"zero": 3, "replicate": "outer"}),
    ("gpt2", "u=2,tensor=2", {}), ("llama", "r=2,tensor=2", {"zero": 1}),
    ("llama", "data=2,r=2,u=2,tensor=2", {"zero": 3}),
]
COUNTED = [("llama", "u=4", {}), ("gpt2", "data=2,u=2", {"zero": 3}), ("gpt2", "r=2,u=2", {}),
           ("llama", "r=4", {"microbatches": 2})]


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Bytes(unittest.TestCase):
    maxDiff = None
    BATCH, SEQUENCE = 8, 16

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        sizes = dict(SMALL, layers=2, positions=24, sequence=cls.SEQUENCE, batch=cls.BATCH)
        cls.models = {
            "gpt2": support.generate(cls.folder / "gpt2.onnx", family="gpt2", **sizes),
            "llama": support.generate(cls.folder / "llama.onnx", family="llama", kv_heads=2,
                                      **dict(sizes, heads=8)),
            "odd": support.generate(cls.folder / "odd.onnx", family="llama", kv_heads=3,
                                    **dict(sizes, hidden=48, heads=6))}

    def flags(self, mesh, keys):
        names = {"zero": "parallel.data.zero", "microbatches": "train.microbatches",
                 "zero2_reduce": "parallel.data.zero2_reduce",
                 "replicate": "parallel.data.replicate"}
        return flags(mesh, *(f"{names[key]}={value}" for key, value in keys.items()))

    def explained(self, name, mesh, keys):
        return json.loads(support.succeed(CLEAVE, "explain", *self.models[name], "--json",
                                          *self.flags(mesh, keys)))

    def expect(self, said, name, mesh, keys):
        plan = SequencePlan(formulas.parse_mesh(mesh), self.BATCH, self.SEQUENCE, ring_axis="r",
                            ulysses_axis="u", **keys)
        architecture = formulas.read_architecture(self.models[name][0])
        found = dict.fromkeys(formulas.PURPOSES, 0)
        for rank in said["per_rank"]:
            for entry in rank["collectives"]:
                found[entry["purpose"]] += len(rank["members"]) * entry["sent_bytes"]
        self.assertEqual(found, formulas_sequence.sent_bytes(architecture, plan))
        wanted = formulas_sequence.memory(architecture, plan)
        for rank in said["per_rank"]:
            self.assertEqual({key: rank["memory"][key] for key in wanted}, wanted)

    def test_explain_says_what_the_formulas_say(self):
        # Heads and positions that do not divide are padded, and the padding is sent.
        cases = CASES + [("odd", "u=2", {}), ("llama", "u=3", {}), ("odd", "r=3", {})]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for case, said in zip(cases, pool.map(lambda case: self.explained(*case), cases)):
                with self.subTest(case=case):
                    self.expect(said, *case)

    def test_attention_is_split(self):
        """No rank repeats another's computation, whatever layouts other strategies request around attention."""
        def flops(mesh, *keys, saved_input=""):
            said = json.loads(support.succeed(CLEAVE, "explain", *self.models["llama"], "--json",
                                              *flags(mesh, *keys, saved_input=saved_input)))
            return [rank["attention_flops"] for rank in said["per_rank"]]

        whole, = json.loads(support.succeed(CLEAVE, "explain", *self.models["llama"],
                                            "--json"))["per_rank"]
        grid = ("parallel.tensor.layout=2d", 'parallel.tensor.axes=["row","col"]')
        for mesh, keys, saved_input in (("u=2,tensor=2", (), ""), ("u=2,tensor=2", (), "shard"),
                                        ("u=4,tensor=2", (), "full"),
                                        ("u=2,row=2,col=2", grid, "")):
            with self.subTest(mesh=mesh, saved_input=saved_input):
                found = flops(mesh, *keys, saved_input=saved_input)
                self.assertEqual(found, [whole["attention_flops"] // len(found)] * len(found))
        for mesh, keys, saved_input in (("r=2,tensor=2", (), "shard"),
                                        ("r=2,row=2,col=2", grid, "")):
            with self.subTest(mesh=mesh):
                found = flops(mesh, *keys, saved_input=saved_input)
                self.assertLess(max(found), 1.1 * whole["attention_flops"] / len(found))

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_a_run_counts_what_explain_says(self):
        for number, (name, mesh, keys) in enumerate(COUNTED):
            with self.subTest(name=name, mesh=mesh):
                said = self.explained(name, mesh, keys)
                self.expect(said, name, mesh, keys)
                out = self.folder / str(number)
                support.succeed(CLEAVE, "train", *self.models[name], "--data", self.data(),
                                "--out", out, "--steps", 2, "--eval-every", 0,
                                "--cache", self.folder / "cache", *self.flags(mesh, keys))
                counters = json.loads((out / "counters.json").read_text())
                for rank in said["per_rank"]:
                    for member in rank["members"]:
                        self.assertEqual(
                            sum(c["sent_bytes"] for c in rank["collectives"]),
                            sum(t["sent_bytes"] for t in counters["ranks"][member]["traffic"]))

    def data(self):
        path = self.folder / "tokens.npy"
        if not path.exists():
            np.save(path, np.random.default_rng(0).integers(0, 19, 4000).astype(np.int64))
        return path

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_training_is_that_of_one_rank(self):
        """Tokens and labels are read in tiles of positions, which need not divide."""
        def losses(name, *keys):
            out = self.folder / ("run" + str(len(list(self.folder.iterdir()))))
            support.succeed(CLEAVE, "train", *self.models["odd"], "--data", self.data(), "--out",
                            out, "--steps", 4, "--eval-every", 2, "--cache", self.folder / "cache",
                            *words("dims.sequence=10"), *keys)
            return [[line["loss"], line.get("val_loss")] for line in support.read_log(out)]

        whole = losses("one")
        for mesh in ("u=3", "data=2,r=4", "r=2,u=2"):
            with self.subTest(mesh=mesh):
                for mine, one in zip(losses(mesh, *flags(mesh)), whole, strict=True):
                    for a, b in zip(mine, one):
                        self.assertEqual(a is None, b is None)
                        if b is not None:
                            self.assertAlmostEqual(a, b, delta=1e-4)

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_inference_gives_whole_outputs(self):
        np.savez(self.folder / "in.npz",
                 input_ids=np.random.default_rng(1).integers(0, 19, (3, 10)))

        def infer(*keys):
            support.succeed(CLEAVE, "infer", *self.models["odd"], "--inputs",
                            self.folder / "in.npz", "--outputs", self.folder / "out.npz",
                            "--cache", self.folder / "cache", *words("dims.sequence=10"), *keys)
            return dict(np.load(self.folder / "out.npz"))

        whole = infer()
        for mesh in ("u=3", "data=2,r=4", "r=2,u=2,tensor=2"):
            with self.subTest(mesh=mesh):
                for name, value in infer(*flags(mesh)).items():
                    np.testing.assert_allclose(value, whole[name], rtol=1e-4, atol=1e-5)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Checks(unittest.TestCase):
    """`cleave check` of sequence-parallel programs; tools/matrix has more."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.gpt2 = support.generate(cls.folder / "gpt2.onnx", family="gpt2", **SMALL)
        cls.llama = support.generate(cls.folder / "llama.onnx", family="llama", kv_heads=2,
                                     **dict(SMALL, layers=2))
        cls.odd = support.generate(cls.folder / "odd.onnx", family="gpt2",
                                   **dict(SMALL, hidden=36, heads=3, sequence=7))

    # tools/matrix also compiles such programs, so most cases here are interpreted.
    turns = support.Turns(9)

    def check(self, model, mesh, *keys, code=0, saved_input=""):
        done = support.run(CLEAVE, "check", *model, *flags(mesh, *keys, saved_input=saved_input),
                           "--steps", 3, *self.turns.flags())
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def test_strategies(self):
        for model, mesh, *keys in (
                (self.gpt2, "u=2"), (self.llama, "u=4"), (self.gpt2, "r=3"), (self.llama, "r=2,u=2"),
                (self.llama, "data=2,u=2", "parallel.data.zero=3"),
                (self.llama, "pipeline=2,u=2", "train.microbatches=2"),
                (self.gpt2, "u=2,row=2,col=2", "parallel.tensor.layout=2d",
                 'parallel.tensor.axes=["row","col"]')):
            with self.subTest(mesh=mesh):
                self.check(model, mesh, *keys)
        self.check(self.gpt2, "r=2,tensor=2", saved_input="shard")

    def test_what_does_not_divide(self):
        for mesh in ("u=2", "r=4", "r=2,u=2"):
            with self.subTest(mesh=mesh):
                said = self.check(self.odd, mesh)
                self.assertRegex(said, "a sequence of 7 does not divide by the . ranks of ax")
                if "u" in mesh:
                    self.assertIn("3 heads (3 of keys, 1 queries each) do not divide by the 2 ranks",
                                  said)

    def test_plans_and_orders(self):
        """Ring and gathered keys, in plain and zig-zag order, with padding."""
        for plan in ("ring", "gather"):
            for order in ("zigzag", "plain"):
                with self.subTest(plan=plan, order=order):
                    ring = f'{{kind="ring",axis="r",plan="{plan}",order="{order}"}}'
                    # GPT-2 reads the first rows of a longer position table.
                    for model in (self.llama, self.gpt2):
                        done = support.run(CLEAVE, "check", *model, "--steps", 3, *self.turns.flags(),
                                           *words(*mesh_keys("r=3"), f"parallel.sequence=[{ring}]"))
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                        self.assertNotIn("stay in order", done.stderr)

    def test_bias(self):
        """An attention bias is sharded like the queries."""
        alibi = support.generate(self.folder / "alibi.onnx", family="gpt2", alibi=True, **SMALL)
        for mesh in ("r=3", "r=2,u=2"):
            with self.subTest(mesh=mesh):
                self.check(alibi, mesh)

    def test_dropout_goes_by_positions(self):
        self.check(self.gpt2, "u=2", "train.dropout=0.2")
        self.check(self.gpt2, "r=2", "train.dropout=0.2")

    def test_one_sample_a_microbatch(self):
        """Positions are known in every stage, even if the batch dimension is folded away."""
        keys = ("train.microbatches=4", "dims.batch=4")
        self.check(self.llama, "pipeline=2,tensor=2", *keys, saved_input="shard")
        self.check(self.llama, "pipeline=2,u=2", *keys)

    def test_faults_are_caught(self):
        for fault in ("drop-collective", "swapped-axes", "wrong-group"):
            with self.subTest(fault=fault):
                done = support.run(CLEAVE, "check", *self.llama, *flags("r=2,u=2"), "--inject",
                                   fault, "--interpret", "--steps", 1)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    def test_refused(self):
        t5 = [support.MODELS / "t5.onnx", "--config", support.MODELS / "t5.toml"]
        for model, mesh, pattern in (
                (self.odd, "u=4", r"error: .*has 3 KV heads of 1 query each, 3 heads, which kind "
                 r"ulysses cannot split over the 4 ranks of axis 'u'"),
                (self.odd, "u=2,tensor=2", r"over the 2 ranks of axis 'u' beside the 2 of tensor"),
                (t5, "u=2", r"error: .*of 12 positions with each other: this attention is not of a "
                 r"form that becomes one operation .* use kind megatron"),
                (t5, "r=2", r"sequence kinds ring and ulysses split no other")):
            with self.subTest(mesh=mesh):
                self.assertRegex(self.check(model, mesh, code=2), pattern)


if __name__ == "__main__":
    unittest.main()
