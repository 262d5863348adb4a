#!/usr/bin/python3
"""Bytes that each rank sends per training step, from closed forms alone.

    formulas.py MODEL.onnx --mesh data=2,tensor=2 --batch 8 --sequence 96
                [--microbatches 1] [--zero 0|1|2|3] [--json] ...

An oracle for what the compiler plans and the runtime counts: it shares no code
with either, does not look at the graph, and knows transformers by family. It
reads the shapes of the parameters, finds out from their names (NAME.names.json
beside the model, or PyTorch's own names) what each is, and sums ring volumes.

With N ranks in a group, S elements of e bytes, and tile(S) = ceil(S / N):

    all-reduce      of a message of S, cut into chunks of ceil(S / N): a rank
                    whose chunk has c elements sends (S + (N - 2) c) e; that is
                    2 (N - 1) / N S e where N divides S
    reduce-scatter  of N tiles: (N - 1) tile e
    all-gather      of N tiles: (N - 1) tile e

A dimension that is split and does not divide is padded; the padding is sent.
Parameters of attention count as the program sees them: fused QKV as [h, 3, heads, d].

Data parallelism    gradient: all-reduce of all gradients, once a step, as
                    messages of at most 25 MiB
ZeRO 1              gradient: reduce-scatter, parameter: all-gather, once a
                    step, along the dimension that needs the least padding; one
                    that is split already must divide exactly
ZeRO 2              the same with one microbatch. With several: the same if
                    gradients are reduced per step, which keeps them whole; one
                    reduce-scatter per microbatch otherwise
ZeRO 3              gradient: reduce-scatter, per microbatch; parameter:
                    all-gather, per microbatch, for the forward pass, and for
                    the backward pass if that reads the value (not that of
                    biases, shifts, positions and an embedding that is no head),
                    unless gathered parameters are kept
hybrid              all of this over the inner axis, and gradient: all-reduce of
                    the tiles over the outer one, once a step. What ZeRO does
                    not split is all-reduced over both
memory              4 bytes a parameter, a gradient and each of AdamW's two
                    moments; divided by the data ranks, with padding: moments
                    from ZeRO 1 on, gradients where they are scattered per
                    microbatch, parameters with ZeRO 3
Tensor parallelism  (Megatron, 1D) activation, per microbatch, of [b, s, h]:
                    2 all-reduces forward and 2 backward per layer, 1 forward
                    for the embedding, 1 backward for the head. loss: for the
                    vocabulary-parallel cross entropy an all-reduce of [b, s],
                    the maximum, and one of twice as much, the sum of
                    exponentials and the target's logit.
                    Attention is split by heads of keys and values, if padding
                    makes them at most half as many again; else by the query
                    heads that share one, and the gradients of keys and values
                    are all-reduced, [b, s, kv heads, d] each; else not at all
loss                the sum over labels and their number, over data, as one
                    message, once a step
norm                the sum of squares, one message over all axes that split
                    gradients; it is logged, so also without clipping

formulas_tensor.py has the other layouts of tensor parallelism, formulas_sequence.py
long sequences, formulas_pipeline.py pipelines.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import sys

from formulas_model import Architecture, Parameter, UserError, read_architecture, tile  # noqa: F401

PURPOSES = ["gradient", "parameter", "activation", "norm", "loss"]
BUCKET = 25 << 20  # bytes of a message that several tensors share


# Sharding ---------------------------------------------------------------------


@dataclasses.dataclass
class Plan:
    """What the numbers depend on beside the model."""
    mesh: list  # [(axis, size)], slowest first
    batch: int
    sequence: int
    microbatches: int = 1
    zero: int = 0
    zero2_reduce: str = "per_step"
    reshard: bool = True  # after the forward pass, with ZeRO 3
    replicate: str = ""  # outer axis of hybrid sharding
    element: int = 4  # bytes of parameters, gradients, activations
    data_axis: str = "data"
    tensor_axis: str = "tensor"

    def size(self, axis):
        return dict(self.mesh).get(axis, 1)

    @property
    def ranks(self):
        return math.prod(size for _, size in self.mesh)

    def coordinates(self, rank):
        out = {}
        for axis, size in reversed(self.mesh):
            rank, out[axis] = divmod(rank, size)
        return out


MOST_PADDING = 1.5  # a split may make a dimension half as large again


def splits(size, ways):
    return tile(size, ways) * ways <= MOST_PADDING * size


def attention_split(architecture, ways):
    """Which heads tensor parallelism splits: "kv" (with the query heads that
    read them), "group" (the query heads of one kv head), None."""
    if ways == 1:
        return None
    if splits(architecture.kv_heads, ways):
        return "kv"
    group = architecture.heads // architecture.kv_heads
    return "group" if group > 1 and splits(group, ways) else None


@dataclasses.dataclass
class Dim:
    size: int  # of the whole tensor
    ways: int = 1  # tiles that tensor parallelism makes of it

    @property
    def local(self):
        return tile(self.size, self.ways)


def dims_of(architecture, parameter, ways):
    """The parameter's dimensions as the program sees them."""
    role, shape = architecture.role(parameter.name), parameter.shape
    kv, group = architecture.kv_heads, architecture.heads // architecture.kv_heads
    split = attention_split(architecture, ways)
    kv = Dim(kv, ways if split == "kv" else 1)
    group = Dim(group, ways if split == "group" else 1)
    size = Dim(architecture.hidden // architecture.heads)
    cut = [Dim(n, ways if splits(n, ways) else 1) for n in shape]
    whole = [Dim(n) for n in shape]
    dims = {
        "replicated": lambda: whole,
        "vocabulary_rows": lambda: [cut[0], whole[1]],
        "vocabulary_columns": lambda: [whole[0], cut[1]],
        "columns": lambda: [whole[0], cut[1]],
        "rows": lambda: [cut[0], whole[1]],
        "vector": lambda: [cut[0]],
        "qkv_columns": lambda: [whole[0], Dim(3), kv, group, size],
        "qkv_vector": lambda: [Dim(3), kv, group, size],
        "head_columns": lambda: [whole[0], kv, group, size],
        "kv_head_columns": lambda: [whole[0], kv, size],
        "head_rows": lambda: [kv, group, size, whole[1]],
    }[role]()
    return dims[::-1] if parameter.transposed else dims


def zero_tile(dims, ways):
    """Elements of a rank's tile when one more dimension is split, over the
    data axis: the one that pads least. None: there is none."""
    elements = math.prod(dim.local for dim in dims)
    tiles = [elements // dim.local * tile(dim.local, ways) for dim in dims
             if dim.size > 1 and (dim.ways == 1 or dim.size % (dim.ways * ways) == 0)]
    return min(tiles, default=None)


def read_in_backward(architecture, parameter, last=True):
    """Whether a gradient needs the value: what is only added, or looked up in,
    is not read again. `last`: the head is there."""
    if "wte" in parameter.name:
        return last
    if "embed_tokens" in parameter.name:
        return last and not any(p.name == "lm_head.weight" for p in architecture.parameters)
    return parameter.name.endswith(".weight") and "wpe" not in parameter.name


def scatters_gradients(plan):
    """Whether each microbatch's gradients are reduced and scattered."""
    return plan.zero == 3 or plan.zero == 2 and (
        plan.microbatches == 1 or plan.zero2_reduce == "per_microbatch")


def memory(architecture, plan):
    """Bytes of a rank: parameters, gradients, AdamW's moments."""
    data, tensor = plan.size(plan.data_axis), plan.size(plan.tensor_axis)
    total = dict.fromkeys(("parameters", "gradients", "optimizer"), 0)
    for parameter in architecture.parameters:
        dims = dims_of(architecture, parameter, tensor)
        whole = math.prod(dim.local for dim in dims)
        part = zero_tile(dims, data) if plan.zero and data > 1 else None
        part = whole if part is None else part
        total["parameters"] += (part if plan.zero == 3 else whole) * plan.element
        total["gradients"] += (part if scatters_gradients(plan) else whole) * plan.element
        total["optimizer"] += 2 * part * 4
    return total


def messages(sizes, element):
    """Sizes of the all-reduces that carry tensors of these sizes."""
    buckets = []
    for size in sizes:
        fitting = (i for i, held in enumerate(buckets) if (held + size) * element <= BUCKET)
        at = next(fitting, None)
        if at is None:
            buckets.append(size)
        else:
            buckets[at] += size
    return buckets


# Sums -------------------------------------------------------------------------


@dataclasses.dataclass
class Term:
    """`count` equal collectives per step."""
    purpose: str
    what: str
    kind: str  # all_reduce | reduce_scatter | all_gather
    axes: list
    group: int
    elements: int  # of an all-reduce: the message; else: one tile
    element: int
    count: int = 1

    def sent(self, member):
        if self.kind == "all_reduce":
            chunk = tile(self.elements, self.group)
            own = min(max(self.elements - member * chunk, 0), chunk)
            moved = self.elements + (self.group - 2) * own
        else:
            moved = (self.group - 1) * self.elements
        return self.count * moved * self.element

    @property
    def payload(self):
        scale = 1 if self.kind == "all_reduce" else self.group
        return self.count * self.elements * scale * self.element


def terms_of(architecture, plan, first=True, last=True, gathered=None):
    """All collectives of one step, and remarks on what did not divide. `first`,
    `last`: whether it has the embedding, and the head with the loss. `gathered`:
    how often ZeRO 3 gathers a parameter, where that is no matter of its readers."""
    terms, notes = [], []
    data, tensor = plan.size(plan.data_axis), plan.size(plan.tensor_axis)
    e = plan.element
    if plan.batch % plan.microbatches:
        raise UserError(f"batch {plan.batch} does not divide by {plan.microbatches} microbatches")
    per_microbatch = plan.batch // plan.microbatches
    batch_axes = [a for a in (plan.replicate, plan.data_axis) if a]
    ranks = math.prod(plan.size(a) for a in batch_axes)
    samples = tile(per_microbatch, ranks)
    if per_microbatch % ranks:
        notes.append(f"{per_microbatch} samples over {ranks} data ranks: padded to {samples} each")
    split = attention_split(architecture, tensor)
    if tensor > 1 and split != "kv":
        notes.append(f"{architecture.kv_heads} kv heads over {tensor} ranks: "
                     + ("split by the query heads of each" if split else "attention replicated"))

    def add(purpose, what, kind, axes, elements, count=1, element=e):
        group = math.prod(plan.size(a) for a in axes)
        if group > 1:
            terms.append(Term(purpose, what, kind, axes, group, elements, element, count))

    # Parameters and gradients.
    whole, tiles = [], []
    axes = set()  # that split gradients
    times = plan.microbatches
    for parameter in architecture.parameters:
        dims = dims_of(architecture, parameter, tensor)
        if any(dim.ways > 1 for dim in dims):
            axes.add(plan.tensor_axis)
        part = zero_tile(dims, data) if plan.zero and data > 1 else None
        if part is None:
            whole.append(math.prod(dim.local for dim in dims))
            continue
        axes.add(plan.data_axis)
        tiles.append(part)
        gathers = 1
        if plan.zero == 3:
            again = plan.reshard and read_in_backward(architecture, parameter, last)
            gathers = gathered or times * (2 if again else 1)
        add("gradient", parameter.name, "reduce_scatter", [plan.data_axis], part,
            times if scatters_gradients(plan) else 1)
        add("parameter", parameter.name, "all_gather", [plan.data_axis], part, gathers)
    for message in messages(whole, e):
        add("gradient", "gradients", "all_reduce", batch_axes, message)
    if plan.replicate:
        for message in messages(tiles, e):
            add("gradient", "tiles of gradients", "all_reduce", [plan.replicate], message)

    # Activations of tensor parallelism.
    stream = samples * plan.sequence * architecture.hidden
    blocks = architecture.layers * (2 if split else 1)
    tp = [plan.tensor_axis]
    add("activation", "block outputs, forward", "all_reduce", tp, stream, blocks * times)
    add("activation", "block inputs, backward", "all_reduce", tp, stream, blocks * times)
    if first:
        add("activation", "embedding, forward", "all_reduce", tp, stream, times)
    if last:
        add("activation", "head input, backward", "all_reduce", tp, stream, times)
    if split == "group":
        shared = stream // architecture.heads * architecture.kv_heads
        add("activation", "gradients of keys and values", "all_reduce", tp, shared,
            2 * architecture.layers * times)
    rows = samples * plan.sequence
    if last:
        add("loss", "cross entropy: maximum", "all_reduce", tp, rows, times)
        add("loss", "cross entropy: sum of exponentials, target logit", "all_reduce", tp, 2 * rows,
            times)

    # Scalars.
    if last:
        add("loss", "sum and weight", "all_reduce", batch_axes, 2)
    add("norm", "sum of squares", "all_reduce", [a for a, _ in plan.mesh if a in axes], 1)
    return terms, notes


def sent_bytes(architecture, plan):
    terms, notes = terms_of(architecture, plan)
    per_rank = []
    for rank in range(plan.ranks):
        at = plan.coordinates(rank)
        purposes = dict.fromkeys(PURPOSES, 0)
        for term in terms:
            member = 0
            for axis in term.axes:
                member = member * plan.size(axis) + at[axis]
            purposes[term.purpose] += term.sent(member)
        per_rank.append({"rank": rank, "sent_bytes": purposes, "total": sum(purposes.values())})
    grouped = []
    for key, members in itertools.groupby(
            terms, key=lambda t: (t.purpose, t.kind, tuple(t.axes),
                                  t.what if t.purpose != "gradient" and t.purpose != "parameter" else "")):
        members = list(members)
        grouped.append({"purpose": key[0], "kind": key[1], "axes": list(key[2]),
                        "what": key[3] or f"{len(members)} tensors", "group_size": members[0].group,
                        "count": sum(t.count for t in members),
                        "payload_bytes": sum(t.payload for t in members),
                        "sent_bytes_member_0": sum(t.sent(0) for t in members)})
    return {"ranks": plan.ranks, "mesh": [list(m) for m in plan.mesh], "zero": plan.zero,
            "per_rank": per_rank, "memory": memory(architecture, plan), "terms": grouped,
            "notes": notes}


# Command line -----------------------------------------------------------------


def parse_mesh(text):
    mesh = []
    for part in filter(None, text.split(",")):
        axis, _, size = part.partition("=")
        if not size.isdigit() or int(size) < 1 or axis in dict(mesh):
            raise UserError(f"bad mesh axis '{part}': write data=2,tensor=2")
        mesh.append((axis, int(size)))
    return mesh


def add_plan_arguments(parser):
    """Sizes of a step, and how data parallelism splits it."""
    parser.add_argument("--batch", type=int, default=8, help="global batch")
    parser.add_argument("--sequence", type=int, default=96)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--zero", type=int, choices=range(4), default=0)
    parser.add_argument("--zero2-reduce", choices=["per_step", "per_microbatch"],
                        default="per_step")
    parser.add_argument("--keep-gathered", action="store_true",
                        help="ZeRO 3 without resharding after the forward pass")
    parser.add_argument("--replicate", default="", help="outer axis of hybrid sharding")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--mesh", default="", help="data=2,tensor=2, slowest axis first")
    add_plan_arguments(parser)
    parser.add_argument("--element", type=int, default=4, help="bytes of an element")
    parser.add_argument("--heads", type=int)
    parser.add_argument("--kv-heads", type=int)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        architecture = read_architecture(args.model, args.heads, args.kv_heads)
        plan = Plan(parse_mesh(args.mesh), args.batch, args.sequence, args.microbatches,
                    args.zero, args.zero2_reduce, not args.keep_gathered, args.replicate,
                    args.element)
        unknown = [a for a, s in plan.mesh if s > 1
                   and a not in (plan.data_axis, plan.tensor_axis, plan.replicate)]
        if unknown:
            raise UserError(f"no closed form for axes {unknown}: data and tensor are known")
        result = sent_bytes(architecture, plan)
    except (UserError, OSError, ValueError) as error:
        print(f"formulas.py: error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(result, indent=1))
        return 0
    for note in result["notes"]:
        print(f"note: {note}")
    print("rank " + "".join(f"{p:>14}" for p in PURPOSES) + f"{'total':>14}")
    for row in result["per_rank"]:
        print(f"{row['rank']:4} " + "".join(f"{row['sent_bytes'][p]:14}" for p in PURPOSES)
              + f"{row['total']:14}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
