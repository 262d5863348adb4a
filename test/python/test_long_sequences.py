"""Long sequences in ring attention: ranks have equal work, activations decrease as 1 / P, and
runs fit into the planned arenas."""

import pathlib
import tempfile
import unittest

import support
import training
from training import explain, generated

TINY = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "intermediate": 64, "batch": 1}


def keys(ranks, order="zigzag", plan="ring"):
    """The flags for the mesh and the strategy of a ring."""
    if ranks == 1:
        return "", {}
    return f"sequence={ranks}", {
        "parallel__sequence":
        f'[{{kind="ring",axis="sequence",plan="{plan}",order="{order}"}}]'}


class Balance(unittest.TestCase):
    """Counts of attention's floating-point operations on each rank."""

    @classmethod
    def setUpClass(cls):
        cls.model = generated(family="llama", sequence=4096, **TINY)

    def counted(self, ranks, order):
        mesh, strategy = keys(ranks, order)
        with tempfile.TemporaryDirectory() as name:
            _, counters = training.train(pathlib.Path(name) / "run", self.model, mesh,
                                         "--steps", 1, **strategy)
        counts = [rank["attention_flops"] for rank in counters["ranks"]]
        self.assertEqual(len(counts), ranks)
        modelled = [rank["attention_flops"]
                    for rank in explain(self.model, mesh, **strategy)["per_rank"]]
        # Half of all pairs, and the diagonal; 2 heads of size 16, 2 + 5 products.
        pairs = 4096 * 4097 // 2 if ranks == 1 else 4096 // ranks * 4096 // 2
        self.assertAlmostEqual(modelled[0] / (pairs * 2 * 16 * 7 * 2), 1, delta=2e-3)
        mean = sum(counts) / ranks
        # Blocks of 48 queries are always computed as a whole.
        self.assertLess(modelled[0], mean)
        self.assertLess(mean, modelled[0] * 1.02)
        return [count / mean for count in counts]

    def test_one_rank(self):
        self.assertEqual(self.counted(1, "plain"), [1])

    def test_zigzag(self):
        for ranks in support.some((3, 2, 4), 1):
            with self.subTest(ranks=ranks):
                self.assertLessEqual(max(self.counted(ranks, "zigzag")), 1.02)

    def test_plain_order(self):
        """Without zig-zag order, the last of P ranks has (2 P - 1) / P of the mean work."""
        for ranks in support.some((4, 2), 1):
            with self.subTest(ranks=ranks):
                shares = self.counted(ranks, "plain")
                self.assertEqual(shares, sorted(shares))
                self.assertAlmostEqual(shares[-1], (2 * ranks - 1) / ranks, delta=0.01)


class Memory(unittest.TestCase):

    def test_activations_fall_with_ranks(self):
        model = generated(family="llama", sequence=65536, **{**TINY, "layers": 2})
        one, *more = (explain(model, keys(ranks)[0], **keys(ranks)[1])["per_rank"][0]["memory"]
                      for ranks in (1, 2, 4))
        for ranks, memory in zip((2, 4), more):
            share = one["activations"] / ranks
            self.assertGreaterEqual(memory["activations"], share)
            # A rank has a few tiles in flight.
            self.assertLess(memory["activations"], share * 1.01)

    def test_a_run_stays_within_the_plan(self):
        model = generated(family="llama", sequence=1024, **TINY)
        mesh, strategy = keys(4)
        planned = [rank["memory"]["peak"] for rank in explain(model, mesh, **strategy)["per_rank"]]
        with tempfile.TemporaryDirectory() as name:
            log, counters = training.train(pathlib.Path(name) / "run", model, mesh, "--steps", 2,
                                           "--poison", **strategy)
        self.assertLess(log[1]["loss"], log[0]["loss"])
        for rank, peak in zip(counters["ranks"], planned):
            memory = rank["memory"]
            self.assertEqual((memory["arenas"], memory["unplanned"]), (peak, 0))
            self.assertLessEqual(memory["touched"], peak)

    def test_a_million_tokens(self):
        """Memory of layers of a Llama with 7e9 parameters on two rings; the time to plan one grows
        faster than its ranks do."""
        small, large = (16, 64) if support.ALL else (4, 16)
        sizes = {"hidden": 4096, "heads": 32, "kv_heads": 32, "intermediate": 11008,
                 "vocab": 32000, "batch": 1, "sequence": 1 << 20}

        def activations(layers, ranks):
            model = generated(family="llama", layers=layers, weights=False, **sizes)
            mesh, strategy = keys(ranks)
            return explain(model, mesh, **strategy)["per_rank"][0]["memory"]["activations"]

        few = activations(2, small) - activations(1, small)
        many = activations(2, large) - activations(1, large)
        self.assertAlmostEqual(large * many / (small * few), 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
