"""Memory: the planned amount is what is used, and no step allocates."""

import os
import pathlib
import tempfile
import unittest

import support
import training

# As in test_bytes.py, so that the compiled programs are shared.
PLANS = {"gpt2": ("data=2,tensor=2", {"train__microbatches": 2, "parallel__data__zero": 1}),
         "llama": ("tensor=4", {"train__microbatches": 1})}


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Memory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_poisoned_memory_changes_nothing(self):
        for model, (mesh, keys) in PLANS.items():
            with self.subTest(model=model):
                out = self.folder / model
                _, counters = training.train(out, model, mesh, "--steps", 4, **keys)
                # No allocation from the second step on, in any library.
                self.assertEqual(counters["allocations"]["after_warm_up"], 0)
                self.assertGreater(counters["allocations"]["process"], 1000)
                poisoned = self.folder / f"{model}-poisoned"
                _, counters = training.train(poisoned, model, mesh, "--steps", 4, "--poison",
                                             **keys)
                self.assertEqual(training.losses(poisoned), training.losses(out))
                planned = training.explain(model, mesh, **keys)["per_rank"]
                for rank, plan in zip(counters["ranks"], planned, strict=True):
                    self.assertEqual(rank["memory"]["touched"], plan["memory"]["peak"])
                    self.assertEqual(rank["memory"]["arenas"], plan["memory"]["peak"])
                    self.assertEqual(rank["memory"]["unplanned"], 0)

    def test_gathered_parameters_are_short_lived(self):
        """ZeRO 3 needs the memory of ZeRO 2 for tiles, plus a few whole parameters; keeping
        gathered parameters shows the difference."""
        for model in PLANS:
            with self.subTest(model=model):
                memory = [training.explain(model, "data=4", parallel__data__zero=zero, **keys)
                          ["per_rank"][0]["memory"]
                          for zero, keys in ((2, {}), (3, {}),
                                             (3, {"parallel__data__reshard_after_forward":
                                                  "false"}))]
                self.assertEqual(memory[1]["optimizer"], memory[0]["optimizer"])
                self.assertEqual(memory[1]["gradients"], memory[0]["gradients"])
                whole = memory[0]["parameters"]
                self.assertLess(memory[1]["parameters"], 0.26 * whole)
                self.assertLess(memory[1]["activations"], memory[0]["activations"] + 0.15 * whole)
                self.assertGreater(memory[2]["activations"], memory[1]["activations"] + 0.5 * whole)

    def test_what_cannot_fit_is_refused(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        if memory > 1 << 37:
            self.skipTest("takes long where there is much memory")
        keys = {"dims__batch": memory // (1 << 21)}  # of 3 MB each
        done = support.run(*training.command(self.folder / "out", "gpt2", "", **keys))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"error: .*a rank needs [\d.]+ GiB, but there are [\d.]+ GiB \("
                                      r"activations [\d.]+ GiB, .*\): dims\.batch = \d+ is likely to fit; .*"
                                      r"largest at the peak \(@loss_grad")
        self.assertFalse((self.folder / "out").exists())

    def test_resident_memory_is_explained(self):
        # For a nearly empty program, and for one of 170 MB.
        empty = training.generated(layers=1, hidden=16, heads=2, batch=4, sequence=8)
        for mesh in ("", "data=2,tensor=2"):
            with self.subTest(mesh=mesh):
                used, listed = [], []
                for number, model in enumerate((empty, "quickstart")):
                    out = self.folder / f"{mesh}{number}"
                    _, counters = training.train(out, model, mesh, "--steps", 2)
                    used.append(counters["peak_resident_bytes"])
                    memory = [rank["memory"] for rank in counters["ranks"]]
                    listed.append(memory[0]["pool"] + sum(
                        m["arenas"] + m["scratch"] + m["unplanned"] for m in memory))
                self.assertGreater(listed[1], 150e6)
                net = used[1] - used[0]
                self.assertLess(abs(net - (listed[1] - listed[0])), 0.05 * net)


if __name__ == "__main__":
    unittest.main()
