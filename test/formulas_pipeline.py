"""Bytes that each rank of a pipeline sends per training step, and bytes that it stores,
from closed forms alone. Like formulas.py, whose sums hold within each stage, it
shares no code with the compiler, which it tests.

With p ranks, S stages of given numbers of layers, m microbatches of b samples on
a data rank, sequence length s, hidden size h, e bytes per element, t tensor ranks:

placement           stage S is on rank S % p; in V placements (zb-v, v-half,
                    dualpipe-v) on rank S, or 2p-1-S for S >= p
point to point      pipeline: b s h e for each microbatch and each boundary between
                    stages on two ranks, forward from the first, backward from the
                    second; ceil(s / t) in place of s with sequence parallelism.
                    1F1B: 2 m b s h e on inner ranks, half of that on the first and
                    the last rank; interleaved S = v p stages: about v times as much
sums over stages    norm: three numbers (squares, loss, its weight), one message
                    each, over all p ranks. gradient: GPT-2's table, which is both
                    embedding and head, or its ZeRO tile, over the ranks of the first
                    and the last stage, if these differ
ZeRO 3              parameter: each stage is gathered once per step, if it is alone
                    on its rank or all stages of a rank stay gathered
                    (reshard_after_forward = false). Otherwise it depends on the table
memory              parameters, gradients and moments of a rank are those of its
                    stages; the tied table counts on both. With ZeRO 3 the gathered
                    parameters count in addition to the tiles
stored              the residuals of each microbatch in flight (from F to B), times
                    their number: m (GPipe), min(m, p - rank) (1F1B). In elements per
                    position, with H heads, kv features of keys, MLP width M:
                      layer, GPT-2   16 h + H + 4: inputs and outputs of two norms,
                                     q, k, v, attention and its result, 2 x 4 h of
                                     the MLP; a number per head; two per norm
                      layer, Llama   6 h + 2 kv + 5 M + H + 2
                      last stage     h + v + 3 (GPT-2), h + v + 2 (Llama) beside
                                     another h of the norm: logits over v classes, one
                                     number of the cross entropy
                    less h if the first layer's input was received; 8 bytes for
                    each token or label; Llama's rotary table on each stage, s h / H
                    numbers
"""

import dataclasses
import re

import formulas
from formulas import tile

V_SHAPED = ("zb-v", "v-half", "dualpipe-v")
PURPOSES = formulas.PURPOSES + ["pipeline"]


@dataclasses.dataclass
class Pipeline:
    architecture: formulas.Architecture
    plan: formulas.Plan  # with the mesh axis `pipeline`
    layers: list  # number of layers of each stage
    schedule: str = "1f1b"
    sequence_parallel: bool = False

    @property
    def ranks(self):
        return self.plan.size("pipeline")

    @property
    def stages(self):
        return len(self.layers)

    def rank_of(self, stage):
        if self.schedule in V_SHAPED and stage >= self.ranks:
            return 2 * self.ranks - 1 - stage
        return stage % self.ranks

    def stages_of(self, rank):
        return [stage for stage in range(self.stages) if self.rank_of(stage) == rank]

    def part(self, stage):
        """The architecture restricted to one stage."""
        begin = sum(self.layers[:stage])
        own = range(begin, begin + self.layers[stage])

        def stages_with(name):
            layer = re.search(r"\.(?:h|layers)\.(\d+)\.", name)
            if layer:
                return stage if int(layer.group(1)) in own else None
            if "wte" in name:
                return stage if stage in (0, self.stages - 1) else None
            first = "wpe" in name or "embed_tokens" in name
            return stage if stage == (0 if first else self.stages - 1) else None

        parameters = [p for p in self.architecture.parameters if stages_with(p.name) is not None]
        return dataclasses.replace(self.architecture, parameters=parameters, layers=len(own))

    @property
    def samples(self):
        """Samples of a microbatch on one rank."""
        return tile(self.plan.batch // self.plan.microbatches, self.plan.size(self.plan.data_axis))

    def message(self):
        """Bytes of an activation between two stages."""
        sequence = self.plan.sequence
        if self.sequence_parallel:
            sequence = tile(sequence, self.plan.size(self.plan.tensor_axis))
        return self.samples * sequence * self.architecture.hidden * self.plan.element


def point_to_point(pipeline):
    """Bytes that each rank of the pipeline sends to its neighbours, per step."""
    sent = [0] * pipeline.ranks
    for stage in range(pipeline.stages - 1):
        one, other = pipeline.rank_of(stage), pipeline.rank_of(stage + 1)
        if one != other:
            for rank in (one, other):
                sent[rank] += pipeline.plan.microbatches * pipeline.message()
    return sent


def tied_elements(pipeline):
    """Elements of the tied gradient that the first and the last stage sum, on one rank:
    with ZeRO those of its tile."""
    plan = pipeline.plan
    data, tensor = plan.size(plan.data_axis), plan.size(plan.tensor_axis)
    for parameter in pipeline.architecture.parameters:
        if "wte" in parameter.name:
            dims = formulas.dims_of(pipeline.architecture, parameter, tensor)
            part = formulas.zero_tile(dims, data) if plan.zero and data > 1 else None
            return formulas.math.prod(dim.local for dim in dims) if part is None else part
    return 0


def sent_bytes(pipeline):
    """Bytes sent, by rank of the mesh and by purpose."""
    plan, last = pipeline.plan, pipeline.stages - 1
    if plan.zero == 3 and plan.reshard and pipeline.stages > pipeline.ranks:
        raise ValueError("how often stages are gathered depends on the table")
    terms = [formulas.terms_of(pipeline.part(stage), plan, stage == 0, stage == last,
                               gathered=1)[0] for stage in range(pipeline.stages)]
    number = formulas.Term("norm", "sums over stages", "all_reduce", ["pipeline"], pipeline.ranks,
                           1, plan.element, 3)
    tied_ranks = {pipeline.rank_of(0), pipeline.rank_of(last)}
    neighbours = point_to_point(pipeline)
    result = []
    for rank in range(plan.ranks):
        at = plan.coordinates(rank)
        own = at["pipeline"]
        purposes = dict.fromkeys(PURPOSES, 0)
        purposes["pipeline"] = neighbours[own]
        purposes["norm"] = number.sent(own)
        if len(tied_ranks) == 2 and own in tied_ranks:
            purposes["gradient"] = tied_elements(pipeline) * plan.element
        for stage in pipeline.stages_of(own):
            for term in terms[stage]:
                member = 0
                for axis in term.axes:
                    member = member * plan.size(axis) + at[axis]
                purposes[term.purpose] += term.sent(member)
        result.append(purposes)
    return result


def memory(pipeline):
    """Bytes of parameters, gradients and moments, by rank of the pipeline."""
    result = []
    for rank in range(pipeline.ranks):
        total = dict.fromkeys(("parameters", "gradients", "optimizer"), 0)
        for stage in pipeline.stages_of(rank):
            part, plan = pipeline.part(stage), pipeline.plan
            for what, size in formulas.memory(part, plan).items():
                total[what] += size
            if plan.zero == 3:
                whole = formulas.memory(part, dataclasses.replace(plan, zero=0))
                total["parameters"] += whole["parameters"]
        result.append(total)
    return result


def in_flight(pipeline, rank):
    """Microbatches in flight at once on a rank with one stage."""
    m = pipeline.plan.microbatches
    return {"gpipe": m, "1f1b": min(m, pipeline.ranks - rank)}[pipeline.schedule]


def kept(pipeline, stage):
    """Bytes that one microbatch saves on a stage from F to B, without tensor
    parallelism. Every tensor is rounded up to a multiple of 64 bytes."""
    model, sequence = pipeline.architecture, pipeline.plan.sequence
    h, heads = model.hidden, model.heads
    shapes = {p.name: p.shape for p in model.parameters}
    first, last = stage == 0, stage == pipeline.stages - 1
    rotary = 0
    if model.family == "gpt2":
        vocabulary = shapes["transformer.wte.weight"][0]
        layer, end = 16 * h + heads + 4, 2 * h + vocabulary + 3
    else:
        width = shapes["model.layers.0.mlp.gate_proj.weight"][1]
        vocabulary = shapes["model.embed_tokens.weight"][0]
        layer = 6 * h + 2 * h // heads * model.kv_heads + 5 * width + heads + 2
        end, rotary = 2 * h + vocabulary + 2, sequence * h // heads
    each = layer * pipeline.layers[stage] + (end if last else 0) - (0 if first else h)
    positions = pipeline.samples * sequence
    return (positions * each + rotary) * pipeline.plan.element + 8 * positions * (first + last)


def stored(pipeline):
    """Saved bytes by rank of the pipeline, each with one stage."""
    return [in_flight(pipeline, rank) * kept(pipeline, rank) for rank in range(pipeline.ranks)]
