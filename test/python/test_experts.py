"""Layers of experts (test/Inputs/experts.mlir) on meshes that split samples, the
experts' inner width, and the experts, against one rank; sizes mostly leave
remainders."""

import json
import pathlib
import tempfile
import unittest

import support

MODEL = support.ROOT / "test" / "Inputs" / "experts.mlir"


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def passes(self, *flags):
        done = support.run(support.CLEAVE, "check", "--json", "--steps", 3, MODEL, *flags)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["pass"])
        self.assertEqual(report["max_replica_difference"], 0)
        names = {tensor["name"] for tensor in report["tensors"] if tensor["kind"] == "gradient"}
        self.assertLessEqual({"router", "experts.gate", "experts.up", "experts.bias",
                              "experts.down"}, names)

    def test_samples_and_width(self):
        for sizes in [dict(), dict(data=2), dict(data=3), dict(tensor=2), dict(tensor=3),
                      dict(data=2, tensor=2), dict(pipeline=2)]:
            with self.subTest(**sizes):
                flags = [f"--set=mesh.{axis}={size}" for axis, size in sizes.items()]
                if "pipeline" in sizes:
                    flags.append("--set=train.microbatches=2")
                self.passes(*flags)

    def test_zero(self):
        self.passes("--set=mesh.data=2", "--set=parallel.data.zero=3")

    def test_experts_by_hand(self):
        """Experts on an axis of their own, and on that of the samples."""
        for axes, flags in [({"data": 2, "x": 2}, []), ({"data": 3}, []),
                            ({"data": 2}, ["--set=parallel.data.zero=2"])]:
            axis = list(axes)[-1]
            config = self.folder / f"{axis}.toml"
            config.write_text(
                "[mesh]\naxes = " + json.dumps(list(axes)) + "\n" +
                "".join(f"{name} = {size}\n" for name, size in axes.items()) +
                f"""[[shard]]
match = "experts.(gate|up|down)"
dims = [["{axis}"], [], []]
[[shard]]
match = "experts.bias"
dims = [["{axis}"], []]
""")
            with self.subTest(axes=axes, flags=flags):
                self.passes("--config", config, *flags)


if __name__ == "__main__":
    unittest.main()
