"""Closed forms of sequence, 2D, 2.5D and 3D parallelism: against the published
sums, against what explain says and what a run counts."""

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


def generated(folder, family, sequence=12):
    """Two layers whose sizes divide by what the layouts split."""
    path = pathlib.Path(folder) / f"{family}.onnx"
    support.succeed(sys.executable, support.MODELS / "generate.py", path, "--family", family,
                    "--layers", 2, "--batch", 8, "--sequence", sequence)
    return path


class ClosedForms(unittest.TestCase):
    """The sums of the papers, where everything divides."""

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


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Bytes(unittest.TestCase):
    maxDiff = None

    @staticmethod
    def flags(path, layout, mesh, zero, microbatches, saved):
        return ["--config", path.with_suffix(".toml"), *mesh_flags(mesh),
                *keys_of(layout, LAYOUTS[layout][1], saved),
                "--set", f"parallel.data.zero={zero}",
                "--set", f"train.microbatches={microbatches}"]

    def test_explain_says_what_the_formulas_say(self):
        cases = []
        for layout, (mesh, _) in LAYOUTS.items():
            for family in ("gpt2", "llama"):
                cases += [(family, layout, mesh, 0, 1, "shard")]
            cases += [("gpt2", layout, f"data=2,{mesh}", 1, 2 if layout == "sp" else 1, "shard")]
        cases += [("llama", "sp", "tensor=2", 0, 1, "full")]
        with tempfile.TemporaryDirectory() as folder, \
                concurrent.futures.ThreadPoolExecutor(2) as pool:
            paths = {family: generated(folder, family) for family in ("gpt2", "llama")}

            def explained(case):
                family, layout, mesh, *rest = case
                flags = self.flags(paths[family], layout, mesh, *rest)
                return json.loads(support.succeed(support.CLEAVE, "explain", paths[family],
                                                  "--json", *flags))

            for case, said in zip(cases, pool.map(explained, cases)):
                family, layout, mesh, zero, microbatches, saved = case
                with self.subTest(case=case):
                    plan = TensorPlan(formulas.parse_mesh(mesh), 8, 12, microbatches, zero,
                                      layout=layout, axes=LAYOUTS[layout][1], saved_input=saved)
                    wanted = formulas_tensor.sent_bytes(
                        formulas.read_architecture(paths[family]), plan)
                    found = dict.fromkeys(formulas.PURPOSES, 0)
                    for rank in said["per_rank"]:
                        for entry in rank["collectives"]:
                            found[entry["purpose"]] += entry["sent_bytes"]
                    self.assertEqual(found, wanted)

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_a_run_counts_what_explain_says(self):
        with tempfile.TemporaryDirectory() as folder:
            path = generated(folder, "gpt2")
            for layout, mesh in (("sp", "tensor=2"), ("2d", "row=2,col=2"), ("3d", "i=2,j=2,k=2")):
                with self.subTest(layout=layout):
                    flags = self.flags(path, layout, mesh, 0, 1, "shard")
                    said = json.loads(support.succeed(support.CLEAVE, "explain", path, "--json",
                                                      *flags))
                    out = pathlib.Path(folder) / layout
                    support.succeed(support.CLEAVE, "train", path, "--data", training.text(),
                                    "--out", out, "--steps", 2, "--eval-every", 0,
                                    "--cache", pathlib.Path(folder) / "cache", *flags)
                    counters = json.loads((out / "counters.json").read_text())
                    for rank, counted in zip(said["per_rank"], counters["ranks"], strict=True):
                        self.assertEqual(sum(c["sent_bytes"] for c in rank["collectives"]),
                                         sum(t["sent_bytes"] for t in counted["traffic"]))


if __name__ == "__main__":
    unittest.main()
