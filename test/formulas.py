#!/usr/bin/python3
"""Bytes that each rank sends per training step, from closed forms alone.

    formulas.py MODEL.onnx --mesh data=2,tensor=2 --batch 8 --sequence 96
                [--microbatches 1] [--zero 0|1|2|3] [--json] ...

An oracle for the bytes that the compiler plans and the runtime counts: it shares no
code with either, does not read the graph, and knows transformers by family. It reads
the shapes of the parameters, determines their roles from their names (NAME.names.json
next to the model, or PyTorch's own names), and sums ring volumes.

With N ranks in a group, S elements of e bytes, and tile(S) = ceil(S / N):

    all-reduce      of a message of S, cut into chunks of ceil(S / N): a rank
                    whose chunk has c elements sends (S + (N - 2) c) e; that is
                    2 (N - 1) / N S e where N divides S
    reduce-scatter  of N tiles: (N - 1) tile e
    all-gather      of N tiles: (N - 1) tile e

A split dimension that does not divide is padded; the padding is sent too.
Attention parameters are counted in the program's view: fused QKV is [h, 3, heads, d].

Data parallelism    gradient: all-reduce of all gradients, once a step, as
                    messages of at most 25 MiB
ZeRO 1              gradient: reduce-scatter, parameter: all-gather, once a
                    step, along the dimension that needs the least padding. A
                    dimension that is already split must divide exactly
ZeRO 2              as ZeRO 1 with one microbatch. With several: as ZeRO 1 if
                    gradients are reduced per step, which stores them whole;
                    otherwise one reduce-scatter per microbatch
ZeRO 3              gradient: reduce-scatter, per microbatch. parameter:
                    all-gather, per microbatch, once for the forward pass and,
                    unless gathered parameters are saved, once for the backward
                    pass if that reads the value (it does not for biases,
                    shifts, positions and an embedding that is not tied to the
                    head)
hybrid              the above over the inner axis, and gradient: all-reduce of
                    the tiles over the outer axis, once a step. Gradients that
                    ZeRO does not split are all-reduced over both axes
memory              4 bytes for each parameter, gradient and AdamW moment (two
                    per parameter). Divided by the data ranks, with padding:
                    moments from ZeRO 1 on, gradients if they are scattered per
                    microbatch, parameters with ZeRO 3
Tensor parallelism  (Megatron, 1D) activation, per microbatch, of [b, s, h]:
                    2 all-reduces forward and 2 backward per layer, 1 forward
                    for the embedding, 1 backward for the head. loss: for the
                    vocabulary-parallel cross entropy an all-reduce of [b, s]
                    (the maximum), and one of twice that size (the sum of
                    exponentials and the target's logit).
                    Attention is split by KV heads, if padding increases them
                    by at most half; otherwise by the query heads of each KV
                    head, with an all-reduce of the gradients of keys and of
                    values, [b, s, kv heads, d] each; otherwise not at all
loss                the sum over labels and the label count, over data, as one
                    message, once a step
norm                the sum of squares, one message over all axes that split
                    gradients; the norm is logged, so also without clipping

formulas_tensor.py covers the other layouts of tensor parallelism,
formulas_sequence.py sequence parallelism, formulas_pipeline.py pipelines.
formulas_tensor.py has the other layouts of tensor parallelism, formulas_sequence.py
long sequences, formulas_pipeline.py pipelines.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "lib"))

import onnxwire  # noqa: E402

PURPOSES = ["gradient", "parameter", "activation", "norm", "loss"]
BUCKET = 25 << 20  # bytes of a message shared by several tensors


class UserError(Exception):
    pass


def tile(size, ways):
    return -(-size // ways)


# Parameter roles --------------------------------------------------------------


@dataclasses.dataclass
class Parameter:
    name: str  # in PyTorch
    shape: list  # as in PyTorch, with Linear weights transposed to [in, out]
    transposed: bool = False  # whether the file has the transpose


# The role of a parameter, found by its name. A role determines the dimension that
# tensor parallelism splits, in the [in, out] layout; see `local_shape`.
ROLES = {
    "gpt2": [
        (r"transformer\.wte\.weight", "vocabulary_rows"),
        (r"lm_head\.weight", "vocabulary_rows"),  # tied: the other name of the table
        (r"transformer\.wpe\.weight", "replicated"),
        (r"transformer\.h\.\d+\.ln_[12]\.(weight|bias)", "replicated"),
        (r"transformer\.ln_f\.(weight|bias)", "replicated"),
        (r"transformer\.h\.\d+\.attn\.c_attn\.weight", "qkv_columns"),
        (r"transformer\.h\.\d+\.attn\.c_attn\.bias", "qkv_vector"),
        (r"transformer\.h\.\d+\.attn\.c_proj\.weight", "head_rows"),
        (r"transformer\.h\.\d+\.(attn|mlp)\.c_proj\.bias", "replicated"),
        (r"transformer\.h\.\d+\.mlp\.c_fc\.weight", "columns"),
        (r"transformer\.h\.\d+\.mlp\.c_fc\.bias", "vector"),
        (r"transformer\.h\.\d+\.mlp\.c_proj\.weight", "rows"),
    ],
    "llama": [
        (r"model\.embed_tokens\.weight", "vocabulary_rows"),
        (r"lm_head\.weight", "vocabulary_columns"),
        (r"model\.norm\.weight", "replicated"),
        (r"model\.layers\.\d+\.(input|post_attention)_layernorm\.weight", "replicated"),
        (r"model\.layers\.\d+\.self_attn\.q_proj\.weight", "head_columns"),
        (r"model\.layers\.\d+\.self_attn\.[kv]_proj\.weight", "kv_head_columns"),
        (r"model\.layers\.\d+\.self_attn\.o_proj\.weight", "head_rows"),
        (r"model\.layers\.\d+\.mlp\.(gate|up)_proj\.weight", "columns"),
        (r"model\.layers\.\d+\.mlp\.down_proj\.weight", "rows"),
    ],
}


@dataclasses.dataclass
class Architecture:
    family: str
    parameters: list  # of Parameter, tied ones once
    layers: int
    hidden: int
    heads: int
    kv_heads: int

    def role(self, name):
        for pattern, role in ROLES[self.family]:
            if re.fullmatch(pattern, name):
                return role
        raise UserError(f"parameter '{name}' is none of a {self.family} model")


def read_architecture(path, heads=None, kv_heads=None):
    """Reads shapes from the file, names and head counts from the file next to it."""
    model = onnxwire.load(path)
    tensors = {t.name: t for t in model.graph.initializers}
    beside = path.with_suffix(".names.json")
    sizes = {}
    parameters = {}
    if beside.exists():
        names = json.loads(beside.read_text())
        sizes = names["sizes"]
        for onnx_name, entry in names["parameters"].items():
            if onnx_name not in tensors:
                raise UserError(f"{beside} names '{onnx_name}', which {path} does not have")
            shape = list(tensors[onnx_name].dims)
            name = entry["parameter"]
            # Names files use PyTorch's layout; Linear weights are [out, in]
            # there, while GPT-2's Conv1D is already [in, out].
            linear = len(shape) == 2 and "_proj.weight" in name and name.startswith("model.")
            linear |= name == "lm_head.weight" and names["family"] == "llama"
            torch_shape = shape[::-1] if entry["transposed"] else shape
            wanted = torch_shape[::-1] if linear else torch_shape
            parameters.setdefault(name, Parameter(name, wanted, transposed=wanted != shape))
    else:
        if "generate.sizes" in model.metadata:
            sizes = json.loads(model.metadata["generate.sizes"])
        every = [p for table in ROLES.values() for p, _ in table]
        for name, tensor in tensors.items():
            if any(re.fullmatch(pattern, name) for pattern in every):
                parameters[name] = Parameter(name, list(tensor.dims))
    family = "gpt2" if any(n.startswith("transformer.") for n in parameters) else "llama"
    if not any(n.startswith("model.layers.") for n in parameters) and family == "llama":
        raise UserError(f"{path}: no parameter has a known name, and {beside.name} is missing")
    heads = heads or sizes.get("heads")
    kv_heads = kv_heads or sizes.get("kv_heads") if family == "llama" else heads
    if not heads or not kv_heads:
        raise UserError("head counts are not recorded beside the model; give --heads, --kv-heads")
    layers = {re.search(r"\.(?:h|layers)\.(\d+)\.", n).group(1)
              for n in parameters if re.search(r"\.(?:h|layers)\.\d+\.", n)}
    norm = "transformer.ln_f.weight" if family == "gpt2" else "model.norm.weight"
    architecture = Architecture(family, list(parameters.values()), len(layers),
                                parameters[norm].shape[0], heads, kv_heads)
    for parameter in architecture.parameters:
        architecture.role(parameter.name)  # raises for unknown ones
    return architecture


# Sharding ---------------------------------------------------------------------


@dataclasses.dataclass
class Plan:
    """The inputs of the formulas besides the model."""
    mesh: list  # [(axis, size)], slowest first
    batch: int
    sequence: int
    microbatches: int = 1
    zero: int = 0
    zero2_reduce: str = "per_step"
    reshard: bool = True  # ZeRO 3 frees gathered parameters after the forward pass
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


MOST_PADDING = 1.5  # a split may enlarge a dimension by at most half


def splits(size, ways):
    return tile(size, ways) * ways <= MOST_PADDING * size


def attention_split(architecture, ways):
    """The heads that tensor parallelism splits: "kv" (with the query heads that
    read them), "group" (the query heads of one KV head), None."""
    if ways == 1:
        return None
    if splits(architecture.kv_heads, ways):
        return "kv"
    group = architecture.heads // architecture.kv_heads
    return "group" if group > 1 and splits(group, ways) else None


@dataclasses.dataclass
class Dim:
    size: int  # of the whole tensor
    ways: int = 1  # number of tiles along the dimension

    @property
    def local(self):
        return tile(self.size, self.ways)


def dims_of(architecture, parameter, ways):
    """The parameter's dimensions in the program's view."""
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
    """Elements of a rank's tile when one more dimension is split over the data axis:
    the one with the least padding. None: no dimension can be split."""
    elements = math.prod(dim.local for dim in dims)
    tiles = [elements // dim.local * tile(dim.local, ways) for dim in dims
             if dim.size > 1 and (dim.ways == 1 or dim.size % (dim.ways * ways) == 0)]
    return min(tiles, default=None)


def read_in_backward(architecture, parameter, last=True):
    """Whether the backward pass reads the value: not if it is only added, or is a lookup
    table. `last`: whether this stage has the head."""
    if "wte" in parameter.name:
        return last
    if "embed_tokens" in parameter.name:
        return last and not any(p.name == "lm_head.weight" for p in architecture.parameters)
    return parameter.name.endswith(".weight") and "wpe" not in parameter.name


def scatters_gradients(plan):
    """Whether gradients are reduce-scattered for each microbatch."""
    return plan.zero == 3 or plan.zero == 2 and (
        plan.microbatches == 1 or plan.zero2_reduce == "per_microbatch")


def memory(architecture, plan):
    """Bytes on a rank: parameters, gradients, AdamW's moments."""
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
    """Sizes of the bucketed all-reduces for tensors of these sizes."""
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
    elements: int  # all-reduce: of the message; otherwise: of one tile
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
    """All collectives of one step, and remarks on sizes that do not divide. `first`,
    `last`: whether the stage has the embedding, and the head with the loss. `gathered`:
    how often ZeRO 3 gathers a parameter, if given instead of derived from its readers."""
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
    axes = set()  # axes that split gradients
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
    """Arguments for the sizes of a step and for data parallelism."""
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
