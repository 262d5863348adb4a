"""Every imported operator is in the random graphs of test_folding, or is listed here with the
test that covers it."""

import unittest

import folding
import support
from support import CLEAVE

# Operators without a generator: the reason, and the test that covers them.
ELSEWHERE = {
    "Attention": "masks, heads and layouts of its own: test_attention, against NumPy",
    **dict.fromkeys(["GRU", "LSTM", "RNN"], "states, directions and gates: test_recurrent, against NumPy"),
    **dict.fromkeys(["If", "Loop", "Scan"], "graphs as attributes: test_control_flow, against NumPy"),
    "MoE": "routers and experts: test_import_experts, against a loop over the experts",
    "ScatterElements": "only at the indices of a TopK that depends on data: test_topk",
}


def supported():
    """The operators that `cleave ops` lists."""
    lines = support.succeed(CLEAVE, "ops").splitlines()
    return {line.split()[0].split(".")[-1] for line in lines[1:]}


def generated(seeds):
    """The operators in the graphs that test_folding runs by default."""
    found = set()
    for seed in range(seeds):
        g, _ = folding.generate(seed, 40)
        found |= {kind for node in g.b.nodes for kind in node.texts(4)}
    return found


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class FoldingOperators(unittest.TestCase):
    def test_all_are_tested(self):
        listed, made = supported(), generated(10)
        self.assertGreater(len(listed), 90)
        self.assertEqual(sorted(listed - made - set(ELSEWHERE)), [],
                         "operators without a generator (folding.py) and without a reason (ELSEWHERE)")

    def test_exceptions_are_needed(self):
        listed, made = supported(), generated(10)
        self.assertEqual([op for op in ELSEWHERE if op in made or op not in listed], [])


if __name__ == "__main__":
    unittest.main()
