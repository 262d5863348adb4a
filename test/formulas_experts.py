#!/usr/bin/python3
"""Bytes that each rank sends per training step for layers of experts that lie over
an axis, under balanced routing, from closed forms alone.

    formulas_experts.py --tokens 4096 --slots 2 --hidden 512 --ranks 4 [--layers 1]
                        [--microbatches 1] [--max-load 2] [--json]

Shares no code with the compiler, which it is a test for. With T tokens on a rank, k
slots a token, h features of e bytes, P ranks, and R = T k rows, of which one in P
goes to each rank, per layer and microbatch:

rows        to the experts and back, forward, and again backward, whatever a layer
            computes in between: 4 (P-1)/P R h e
ids         of each row that leaves: (P-1)/P R 8
counts      a buffer has places for max_load R / P rows, rounded up, of each rank,
            at most R. Where that is R, one number for each other rank: 8 (P-1).
            Otherwise rows can need n = ceil(R / places) rounds (8 at most: buffers
            are larger instead), and all ranks gather all numbers: 8 (P-1) P n
overflow    nothing: the first round has room for all

Gradients of experts are sums over the ranks that share them: all that split
samples, but for the experts' own; others over all that split samples.
"""

import argparse
import dataclasses
import json
import sys

from formulas import UserError, tile

MOST_ROUNDS = 8


@dataclasses.dataclass
class Experts:
    tokens: int
    slots: int
    hidden: int
    ranks: int
    layers: int = 1
    microbatches: int = 1
    max_load: float = 2.0
    element: int = 4

    @property
    def rows(self):
        return self.tokens * self.slots

    @property
    def places(self):
        wanted = self.max_load * self.rows / self.ranks
        return min(self.rows, max(-int(-wanted // 1), tile(self.rows, MOST_ROUNDS)))

    @property
    def rounds(self):
        return tile(self.rows, self.places)


def sent_bytes(experts):
    """Of one rank in a step, by purpose."""
    if experts.rows % experts.ranks:
        raise UserError(f"{experts.rows} rows do not divide by {experts.ranks} ranks: they cannot "
                        "be balanced")
    others = experts.ranks - 1
    leaving = experts.rows // experts.ranks * others
    counts = 8 * others
    if experts.rounds > 1:
        counts *= experts.ranks * experts.rounds
    once = 4 * leaving * experts.hidden * experts.element + 8 * leaving + counts
    return {"expert": experts.layers * experts.microbatches * once if others else 0, "overflow": 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tokens", "slots", "hidden", "ranks"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--max-load", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        sums = sent_bytes(Experts(args.tokens, args.slots, args.hidden, args.ranks, args.layers,
                                  args.microbatches, args.max_load))
    except UserError as error:
        print(f"formulas_experts.py: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(sums) if args.json else
          "\n".join(f"{purpose:12} {sent:14}" for purpose, sent in sums.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
