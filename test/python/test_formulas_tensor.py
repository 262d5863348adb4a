"""Closed forms of sequence, 2D, 2.5D and 3D parallelism: against the published sums, `explain`,
and a run's counters."""

import concurrent.futures
import json
import pathlib
import sys
import tempfile
import unittest

import support
import training
import formulas
import formulas_tensor
from formulas_tensor import TensorPlan

SEQUENCE = '[{{kind="megatron",axis="tensor",saved_input="{}"}}]'
LAYOUTS = {
    "sp": ("tensor=2", ("tensor",)),
    "2d": ("row=2,col=2", ("row", "col")),
    "2.5d": ("depth=2,row=2,col=2", ("depth", "row", "col")),
    "3d": ("i=2,j=2,k=2", ("i", "j", "k")),
}


def keys_of(layout, axes, saved_input="shard"):
    if layout == "sp":
        return ["--set", f"parallel.sequence={SEQUENCE.format(saved_input)}"]
    names = ",".join(f'"{axis}"' for axis in axes)
    return ["--set", f"parallel.tensor.layout={layout}", "--set", f"parallel.tensor.axes=[{names}]"]


def mesh_flags(mesh):
    parts = [part.split("=") for part in mesh.split(",")]
    names = ",".join(f'"{axis}"' for axis, _ in parts)
    flags = ["--set", f"mesh.axes=[{names}]"]
    for axis, size in parts:
        flags += ["--set", f"mesh.{axis}={size}"]
    return flags


def generated(folder, family, batch, sequence):
    """A two-layer model whose sizes divide by the axes of the layouts."""
    path = pathlib.Path(folder) / f"{family}.onnx"
    support.succeed(sys.executable, support.MODELS / "generate.py", path, "--family", family,
                    "--layers", 2, "--batch", batch, "--sequence", sequence)
    return path


class ClosedForms(unittest.TestCase):
    """The sums of the papers, for sizes that divide."""

    @classmethod
    def setUpClass(cls):
        cls.architecture = formulas.read_architecture(support.MODELS / "gpt2.onnx")

    def sums(self, layout, mesh, what, **keys):
        plan = TensorPlan(formulas.parse_mesh(mesh), 8, 96, layout=layout,
                          axes=LAYOUTS[layout][1], **keys)
        groups = {}
        for term in formulas_tensor.terms_of(self.architecture, plan):
            if term.purpose == what:
                groups.setdefault(term.what, 0)
                sent = sum(term.sent(m) for m in range(term.group))
                groups[term.what] += plan.ranks // term.group * sent
        return groups, plan.ranks

    def test_sequence(self):
        bsh, t = 8 * 96 * 96 * 4, 2
        for saved, factor in (("shard", 10), ("full", 8)):
            groups, ranks = self.sums("sp", "tensor=2", "activation", saved_input=saved)
            layers = sum(v for k, v in groups.items() if "embedding" not in k and "head" not in k)
            self.assertEqual(layers // ranks, 5 * factor * (t - 1) * bsh // t)

    def products(self, groups):
        return sum(v for k, v in groups.items()
                   if k in ("inputs, forward and for dW", "dX", "X", "Y", "dY"))

    def test_2d(self):
        b, s, h, q = 8, 96, 96, 2
        groups, ranks = self.sums("2d", "row=2,col=2", "activation")
        self.assertEqual(self.products(groups) // ranks,
                         5 * 3 * (q - 1) * 7 * b * s * h * 4 // q**2)
        weights = 5 * 12 * h * h
        gathers, _ = self.sums("2d", "row=2,col=2", "parameter")
        self.assertEqual(sum(v for k, v in gathers.items() if k != "table") // ranks,
                         2 * (q - 1) * weights * 4 // q**2)
        scatters, _ = self.sums("2d", "row=2,col=2", "gradient")
        self.assertEqual(sum(v for k, v in scatters.items() if " " in k) // ranks,
                         (q - 1) * weights * 4 // q**2)

    def test_depth(self):
        b, s, h, q, d = 8, 96, 96, 2, 2
        groups, ranks = self.sums("2.5d", "depth=2,row=2,col=2", "activation")
        self.assertEqual(self.products(groups) // ranks,
                         5 * 3 * (q - 1) * 7 * b * s * h * 4 // (d * q**2))
        sums, _ = self.sums("2.5d", "depth=2,row=2,col=2", "gradient")
        weights = 5 * 12 * h * h * 4 // q**2
        self.assertEqual(sum(v for k, v in sums.items() if " " in k) // ranks,
                         (q - 1) * weights + 2 * (d - 1) * weights // d)

    def test_3d(self):
        b, s, h, q, v = 8, 96, 96, 2, 258  # a vocabulary of 257, padded
        groups, ranks = self.sums("3d", "i=2,j=2,k=2", "activation")
        head = h + v
        self.assertEqual(self.products(groups) // ranks,
                         2 * (q - 1) * (5 * 16 * h + head) * b * s * 4 // q**3)
        gathers, _ = self.sums("3d", "i=2,j=2,k=2", "parameter")
        self.assertEqual(sum(v for k, v in gathers.items() if k != "table") // ranks,
                         (q - 1) * 5 * 12 * h * h * 4 // q**3)


# Combinations for each layout: axes before those of the layout, and keys.
ALONE = [("", {}), ("", {"microbatches": 2})]
WITH_DATA = {
    "gpt2": ALONE + [
        ("data=2", {"microbatches": 2}),
        ("data=2", {"zero": 2, "microbatches": 2, "zero2_reduce": "per_microbatch"}),
        ("data=2", {"zero": 3, "microbatches": 2}),
        ("data=2", {"zero": 3, "reshard": False}),
        ("outer=2,data=2", {"zero": 1, "replicate": "outer"})],
    "llama": ALONE + [
        ("data=2", {"zero": 1, "microbatches": 2}),
        ("data=2", {"zero": 2}),
        ("data=2", {"zero": 3}),
        ("outer=2,data=2", {"zero": 3, "replicate": "outer"})],
}
# Only some of these run: every layout, alone and with data parallelism.
COUNTED = [("gpt2", "sp", "data=2", {"zero": 3}), ("llama", "sp", "", {}, "tensor=4"),
           ("llama", "2d", "data=2", {"zero": 1}),
           ("gpt2", "2d", "outer=2,data=2", {"zero": 3, "replicate": "outer"}),
           ("gpt2", "2.5d", "", {"microbatches": 2}), ("llama", "2.5d", "data=2", {"zero": 3}),
           ("gpt2", "3d", "", {}),
           ("llama", "3d", "data=2", {"zero": 2, "microbatches": 2,
                                      "zero2_reduce": "per_microbatch"})]


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Bytes(unittest.TestCase):
    maxDiff = None
    BATCH, SEQUENCE = 16, 12

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.paths = {family: generated(folder.name, family, cls.BATCH, cls.SEQUENCE)
                     for family in ("gpt2", "llama")}

    @staticmethod
    def mesh(layout, before, sizes=None):
        return ",".join(filter(None, (before, sizes or LAYOUTS[layout][0])))

    def flags(self, family, layout, before, keys, sizes=None):
        """The command-line arguments of a case."""
        flags = ["--config", self.paths[family].with_suffix(".toml"),
                 *mesh_flags(self.mesh(layout, before, sizes)),
                 *keys_of(layout, LAYOUTS[layout][1], keys.get("saved_input", "shard"))]
        for key, name in (("zero", "parallel.data.zero"), ("microbatches", "train.microbatches"),
                          ("zero2_reduce", "parallel.data.zero2_reduce"),
                          ("replicate", "parallel.data.replicate")):
            if key in keys:
                flags += ["--set", f"{name}={keys[key]}"]
        if not keys.get("reshard", True):
            flags += ["--set", "parallel.data.reshard_after_forward=false"]
        return flags

    def explained(self, family, layout, before, keys, sizes=None):
        return json.loads(support.succeed(support.CLEAVE, "explain", self.paths[family], "--json",
                                          *self.flags(family, layout, before, keys, sizes)))

    def expect(self, said, family, layout, before, keys, sizes=None):
        plan = TensorPlan(formulas.parse_mesh(self.mesh(layout, before, sizes)), self.BATCH,
                          self.SEQUENCE, layout=layout, axes=LAYOUTS[layout][1], **keys)
        architecture = formulas.read_architecture(self.paths[family])
        found = dict.fromkeys(formulas.PURPOSES, 0)
        for rank in said["per_rank"]:
            for entry in rank["collectives"]:
                found[entry["purpose"]] += len(rank["members"]) * entry["sent_bytes"]
        self.assertEqual(found, formulas_tensor.sent_bytes(architecture, plan))
        wanted = formulas_tensor.memory(architecture, plan)
        for rank in said["per_rank"]:
            self.assertEqual({key: rank["memory"][key] for key in wanted}, wanted)

    def test_explain_says_what_the_formulas_say(self):
        cases = [(family, layout, *case) for i, layout in enumerate(LAYOUTS)
                 for family, several in WITH_DATA.items() for j, case in enumerate(several)
                 if support.ALL or (i + j) % 2 == 0]  # each combination with half of the layouts
        cases += [(family, "sp", "", {"saved_input": "full"}) for family in self.paths]
        # Split query heads of each key, or no split heads; sizes that do not divide.
        cases += [("llama", "sp", "", {}, "tensor=4"), ("llama", "sp", "", {}, "tensor=8"),
                  ("llama", "sp", "data=2", {"saved_input": "full", "zero": 3}, "tensor=8"),
                  ("gpt2", "sp", "", {}, "tensor=3"),
                  ("gpt2", "2d", "", {}, "row=2,col=3"), ("llama", "2d", "", {}, "row=3,col=2")]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for case, said in zip(cases, pool.map(lambda case: self.explained(*case), cases)):
                with self.subTest(case=case):
                    self.expect(said, *case)

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_a_run_counts_what_explain_says(self):
        for number, case in enumerate(COUNTED):
            with self.subTest(case=case):
                said = self.explained(*case)
                self.expect(said, *case)
                out = self.folder / str(number)
                support.succeed(support.CLEAVE, "train", self.paths[case[0]], "--data",
                                training.text(), "--out", out, "--steps", 2, "--eval-every", 0,
                                "--cache", self.folder / "cache", *self.flags(*case))
                counters = json.loads((out / "counters.json").read_text())
                for rank in said["per_rank"]:
                    for member in rank["members"]:
                        self.assertEqual(
                            sum(c["sent_bytes"] for c in rank["collectives"]),
                            sum(t["sent_bytes"] for t in counters["ranks"][member]["traffic"]))


if __name__ == "__main__":
    unittest.main()
