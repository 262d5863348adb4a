"""Files changed, or crafted to do harm, by the scripts of test/fuzz: each is accepted, or rejected in one line."""

import os
import sys
import unittest

import numpy as np

import support  # extends sys.path
from guarded import Guarded
from support import CLEAVE, ROOT

import onnxbuild
import onnxwire

sys.path.insert(0, str(ROOT / "test" / "fuzz"))
import files
import hard
import ir
import models
import seeds


class Mutations(Guarded):
    """Files changed by the scripts of test/fuzz."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        models.SECONDS = 20  # instead of 2, for slow and busy machines

    def test_files_of_a_run(self):
        found, tried = files.campaign(files.KINDS, *((1000, 300) if support.ALL else (10, 5)), workers=os.cpu_count())
        self.assertEqual(found, [])
        self.assertGreaterEqual(tried, 90)

    def test_models(self):
        folder = self.folder / "mutated"
        folder.mkdir()
        seeds.models(folder, folder)
        found = models.campaign(sorted(folder.glob("*.onnx")), 3000 if support.ALL else 60, 0, folder)
        self.assertEqual(found, [])

    def test_ir(self):
        """Changed IR of the lit tests, given to cleave-opt with the passes of each test."""
        files = sorted((ROOT / "test").glob("*/**/*.mlir"))
        self.assertEqual(ir.campaign(files, 10_000 if support.ALL else 80, 0), [])

    def test_hard_models(self):
        """Each is accepted or rejected, with little time and at most 1 GiB; most are rejected."""
        refusals, tried = 0, support.some(hard.names(), 34)
        for name in tried:
            content = hard.content(*name)
            name = f"{name[0].__name__}{name[1]}"
            path = self.folder / f"{name}.onnx"
            path.write_bytes(content)
            with self.subTest(name):
                found, taken = models.fault([CLEAVE, "import", path], models.SECONDS, sized=True)
                self.assertIsNone(found)
                refusals += not taken
        self.assertGreater(refusals, len(tried) * 0.6)

    def test_limits_of_an_import(self):
        """The limits on the work that a file may cause, and the keys that raise them."""
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, [4])
        grid = b.op("Expand", b.constant(np.arange(16).reshape(16, 1)), b.constant([16, 16]))
        for _ in range(8):
            grid = b.op("Add", grid, b.constant(np.arange(16)))
        b.op("Add", x, b.op("Cast", b.op("Squeeze", b.op("ReduceSum", grid, keepdims=1), b.constant([0])), to=1), out="y")
        b.output("y", np.float32, [4])
        model = self.folder / "grid.onnx"
        onnxwire.save(b.model(18), model)
        support.succeed(CLEAVE, "import", model)
        said = self.refused(2, "import.evaluated_elements raises this limit", CLEAVE, "import", model, "--set",
                            "import.evaluated_elements=1000")
        self.assertIn("node ", said)
        self.refused(2, "import.evaluated_elements", CLEAVE, "import", model, "--set", "import.evaluated_elements=0")
        self.refused(2, ["is one of more than 3 that calls of functions expand to", "import.inlined_nodes raises"],
                     CLEAVE, "import", self.calls(), "--set", "import.inlined_nodes=3")
        support.succeed(CLEAVE, "import", self.calls())

    def calls(self):
        """f0 is a sum; f1 and f2 each call the previous function twice."""
        b = onnxbuild.Builder()
        b.input("x", np.float32, [4])
        b.nodes.append(call("f2", ["x"], ["y"]))
        b.output("y", np.float32, [4])
        built = b.model(18)
        built.add(8, onnxwire.Message().add(1, "own").add(2, 1))
        for level in range(3):
            function = onnxwire.Function().add(1, f"f{level}").add(4, "a").add(5, "c")
            nodes = ([call("Add", ["a", "a"], ["c"], "")] if level == 0 else
                     [call(f"f{level - 1}", ["a"], ["b"]), call(f"f{level - 1}", ["b"], ["c"])])
            for node in nodes:
                function.add(7, node)
            function.add(9, onnxwire.Message().add(1, "").add(2, 18)).add(9, onnxwire.Message().add(1, "own").add(2, 1))
            built.add(25, function.add(10, "own"))
        path = self.folder / "calls.onnx"
        onnxwire.save(built, path)
        return path


def call(op, inputs, outputs, domain="own"):
    node = onnxwire.Node()
    for name in inputs:
        node.add(1, name)
    for name in outputs:
        node.add(2, name)
    return node.add(4, op).add(7, domain)


if __name__ == "__main__":
    unittest.main()
