#!/usr/bin/python3
"""Bytes sent per training step under sequence parallelism: Ulysses, a ring, or both,
from closed forms alone.

    formulas_sequence.py MODEL.onnx --mesh data=2,r=2,u=2 --ring r --ulysses u
                         --batch 8 --sequence 96 [--microbatches 1] [--zero 0|1|2|3] [--json]

Knows transformers by family as formulas.py does. Sequence ranks act like data ranks:
gradients, parameters, the loss and the norm send the volumes of formulas.py for data
ranks, where a rank has its tile of samples and positions. Attention adds, per layer,
microbatch and rank, with tiles of s positions and b samples, n KV heads with g query
heads each, d features per head, U Ulysses ranks and R ring ranks:

ulysses     the ranks divide n and g in a x b = U ways, with the least padding, then
            the largest a. Every rank sends (U-1) pieces of [b, s, n/a, g/b, d] of
            the queries, and as many of the result; (U-1) pieces of [b, s, n/a, d]
            of keys, and of values. The backward pass sends a cotangent for each.
            If everything divides, that is (U-1)/U^2 bS (2h + 2 max(n, U) d) forward
            with S = U s positions, and the same backward.
ring        inside the ring, a tile has U s positions. Keys and values take R-1 hops of
            [b, U s, n/a, d] forward. Backward they take them again, and so do their
            gradients, except for a rank's own partial sum, which stays local:
            2 (R-1) hops forward and 4 (R-1) backward. Gradients have the activations'
            type.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

import formulas
from formulas import Plan, Term, UserError, tile


@dataclasses.dataclass
class SequencePlan(Plan):
    ring_axis: str = ""
    ulysses_axis: str = ""

    @property
    def ring(self):
        return self.size(self.ring_axis)

    @property
    def ulysses(self):
        return self.size(self.ulysses_axis)


def share_heads(kv, group, tensor, ways):
    """Heads on a Ulysses rank: (KV heads, query heads of each). `tensor`: the number of
    ranks that have split the heads before."""
    split = "kv"
    if tensor > 1:
        split = "kv" if formulas.splits(kv, tensor) else "group"
        if split == "group" and not (group > 1 and formulas.splits(group, tensor)):
            split, tensor = "kv", 1
    if kv * group < ways * tensor:
        raise UserError(f"{kv * group} heads are too few for {ways * tensor} ranks")
    best = None
    for a in range(ways, 0, -1):
        if ways % a:
            continue
        b = ways // a
        n_ways, g_ways = (a * tensor, b) if split == "kv" else (a, b * tensor)
        padded = tile(kv, n_ways) * n_ways * tile(group, g_ways) * g_ways
        if best is None or padded < best[0]:
            best = padded, tile(kv, n_ways), tile(group, g_ways)
    return best[1:]


def as_data(plan):
    """An equivalent plan in which sequence ranks are data ranks with samples of their
    own, as short as a rank's tile."""
    ranks = plan.ring * plan.ulysses
    data = plan.size(plan.data_axis)
    outer = plan.size(plan.replicate) if plan.replicate else 1
    if plan.batch % plan.microbatches:
        raise UserError("the batch does not divide by the microbatches")
    samples = tile(plan.batch // plan.microbatches, data * outer)
    mesh = [(axis, size) for axis, size in plan.mesh
            if axis not in (plan.ring_axis, plan.ulysses_axis, plan.data_axis, plan.tensor_axis)]
    mesh += [(plan.data_axis, data * ranks), (plan.tensor_axis, plan.size(plan.tensor_axis))]
    return Plan(mesh, samples * data * outer * ranks * plan.microbatches,
                tile(plan.sequence, ranks), plan.microbatches, plan.zero, plan.zero2_reduce,
                plan.reshard, plan.replicate, plan.element, plan.data_axis, plan.tensor_axis)


def attention(architecture, plan):
    """Attention's collectives: `elements` of an all-to-all are one piece, those of a
    ring one hop."""
    data = plan.size(plan.data_axis) * (plan.size(plan.replicate) if plan.replicate else 1)
    samples = tile(plan.batch // plan.microbatches, data)
    positions = tile(plan.sequence, plan.ring * plan.ulysses)
    kv, group = architecture.kv_heads, architecture.heads // architecture.kv_heads
    size = architecture.hidden // architecture.heads
    n, g = share_heads(kv, group, plan.size(plan.tensor_axis), plan.ulysses)
    layers = architecture.layers * plan.microbatches

    def term(what, kind, axis, ways, heads, rows, count):
        return Term("activation", what, kind, [axis], ways, samples * rows * heads * size,
                    plan.element, count * layers)

    terms = []
    if plan.ulysses > 1:
        for what, heads, count in (("queries, results, and cotangents", n * g, 4),
                                   ("keys, values, and gradients", n, 4)):
            terms.append(term(what, "all_to_all", plan.ulysses_axis, plan.ulysses, heads, positions,
                              count))
    if plan.ring > 1:
        inside = positions * plan.ulysses
        for what, count in (("keys and values", 2), ("keys and values again", 2),
                            ("their gradients", 2)):
            terms.append(term(what, "collective_permute", plan.ring_axis, plan.ring, n, inside,
                              count))
    return terms


def terms_of(architecture, plan):
    terms, _ = formulas.terms_of(architecture, as_data(plan))
    return terms + attention(architecture, plan)


def memory(architecture, plan):
    """Bytes on a rank: parameters, gradients, AdamW's moments."""
    return formulas.memory(architecture, as_data(plan))


def sent_bytes(architecture, plan):
    """Bytes sent by all ranks together, by purpose."""
    sums = dict.fromkeys(formulas.PURPOSES, 0)
    for term in terms_of(architecture, plan):
        groups = plan.ranks // term.group
        sums[term.purpose] += groups * sum(term.sent(m) for m in range(term.group))
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--mesh", required=True, help="data=2,r=2,u=2, slowest axis first")
    parser.add_argument("--ring", default="", help="axis of the ring")
    parser.add_argument("--ulysses", default="", help="axis of Ulysses")
    formulas.add_plan_arguments(parser)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        architecture = formulas.read_architecture(args.model)
        plan = SequencePlan(formulas.parse_mesh(args.mesh), args.batch, args.sequence,
                            args.microbatches, args.zero, args.zero2_reduce,
                            not args.keep_gathered, args.replicate, ring_axis=args.ring,
                            ulysses_axis=args.ulysses)
        sums = sent_bytes(architecture, plan)
    except (UserError, OSError, ValueError) as error:
        print(f"formulas_sequence.py: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(sums) if args.json else
          "\n".join(f"{purpose:12} {sent:14}" for purpose, sent in sums.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
