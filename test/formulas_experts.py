#!/usr/bin/python3
"""Bytes that each rank sends per training step for expert layers sharded over an axis,
under balanced routing, from closed forms alone.

    formulas_experts.py --tokens 4096 --slots 2 --hidden 512 --ranks 4 [--layers 1]
                        [--microbatches 1] [--max-load 2] [--node 2] [--json]

Shares no code with the compiler, which it tests. Given T tokens on a rank, k slots per
token, h features of e bytes, P ranks, and R = T k rows, of which 1/P goes to each rank,
per layer and microbatch:

rows        dispatch and combine, forward and again backward, however many products a
            layer computes in between: 4 (P-1)/P R h e
ids         one for each row sent: (P-1)/P R 8
counts      a buffer has slots for max_load R / P rows (rounded up) from each rank, at
            most R. If that is R, one count for each other rank is sent: 8 (P-1).
            Otherwise rows may need n = ceil(R / slots) rounds (at most 8: beyond that,
            buffers are larger), and all ranks all-gather all counts: 8 (P-1) P n
overflow    nothing: the first round has room for all rows

If ranks have different row counts R_r (samples that do not divide; buffers are sized
for the largest), rank r dispatches (P-1)/P R_r, and returns as many rows as it has
received: R_o / P from each other rank o.

With --node w, where w adjacent ranks of the axis are a node, rows are exchanged between
the P / w nodes and then among w ranks: the same sums with P / w ranks over links of class
"inter", and with w ranks over links of class "intra". The second exchange reads the
buffers of the first, which have P / w times its slots, into buffers for max_load R / w
rows. If there are rounds, the nodes' counts are also forwarded: 8 (w-1) n.

Gradients of experts are summed over the ranks that share the experts: all axes that split
samples, except the experts' own. Other gradients are summed over all axes that split
samples.
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

    node: int = 0  # ranks per node, if rows are exchanged hierarchically
    shares: tuple = ()  # tokens of each rank of the group; empty: all have `tokens`

    @property
    def rows(self):
        return self.tokens * self.slots

    def buffers(self, ranks, there):
        """Rounds, and slots in a buffer, for exchanging `there` rows (or slots that may
        hold one) among `ranks` ranks."""
        wanted = self.max_load * self.rows / ranks
        places = min(there, max(-int(-wanted // 1), tile(there, MOST_ROUNDS)))
        return tile(there, places), places

    @property
    def places(self):
        return self.buffers(self.ranks, self.rows)[1]

    @property
    def rounds(self):
        return self.buffers(self.ranks, self.rows)[0]


def divided(rows, ranks):
    if rows % ranks:
        raise UserError(f"{rows} rows do not divide by {ranks} ranks: they cannot be balanced")
    return rows // ranks


def exchanged(experts, ranks, shares, position, rounds):
    """Bytes sent in one exchange over `ranks` ranks, which have `shares` rows."""
    own = divided(shares[position], ranks) * (ranks - 1)
    others = sum(divided(rows, ranks) for rows in shares) - divided(shares[position], ranks)
    counts = 8 * (ranks - 1)
    if rounds > 1:
        counts *= ranks * rounds
    return 2 * (own + others) * experts.hidden * experts.element + 8 * own + counts


def sent_by_link(experts, position=0):
    """Bytes sent in a step by rank `position` of a group, by link class."""
    shares = [tokens * experts.slots for tokens in experts.shares] or [experts.rows] * experts.ranks
    times = experts.layers * experts.microbatches
    if not experts.node:
        once = exchanged(experts, experts.ranks, shares, position, experts.rounds)
        return {"inter": times * once if experts.ranks > 1 else 0, "intra": 0}
    nodes = divided(experts.ranks, experts.node)
    rounds, places = experts.buffers(nodes, experts.rows)
    among = shares[position % experts.node::experts.node]
    between = exchanged(experts, nodes, among, position // experts.node, rounds)
    # Rows that arrived at the ranks of the node: the mean over ranks of equal index.
    first = position // experts.node * experts.node
    there = [divided(sum(shares[place::experts.node]), nodes) for place in range(experts.node)]
    told = 8 * (experts.node - 1) * rounds if rounds > 1 else 0
    rounds, _ = experts.buffers(experts.node, nodes * places)
    within = exchanged(experts, experts.node, there, position - first, rounds) + told
    return {"inter": times * between, "intra": times * within}


def sent_bytes(experts, position=0):
    """Bytes that one rank sends in a step, by purpose."""
    return {"expert": sum(sent_by_link(experts, position).values()), "overflow": 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tokens", "slots", "hidden", "ranks"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--max-load", type=float, default=2.0)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        sums = sent_bytes(Experts(args.tokens, args.slots, args.hidden, args.ranks, args.layers,
                                  args.microbatches, args.max_load, node=args.node))
    except UserError as error:
        print(f"formulas_experts.py: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(sums) if args.json else
          "\n".join(f"{purpose:12} {sent:14}" for purpose, sent in sums.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
