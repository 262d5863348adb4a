#!/usr/bin/python3
"""Bytes sent per training step under Megatron's sequence parallelism and under
2D, 2.5D and 3D tensor parallelism, from closed forms alone.

    formulas_tensor.py MODEL.onnx --layout 2d --mesh data=2,row=2,col=2 --axes row,col
                       --batch 8 --sequence 96 [--microbatches 1] [--zero 0|1|2|3] [--json]
    formulas_tensor.py MODEL.onnx --layout sp --mesh tensor=2 --axes tensor ...

Knows transformers by family as formulas.py does, and shares its reader of models and
its ring volumes. For a product with input X, weight W and result Y, q ranks per axis,
everything per microbatch:

sp      the residual stream [b, s, h] is sharded on s over t. Per layer: 2 gathers of
        the inputs and 2 reduce-scatters of the outputs forward; the same for
        cotangents backward; and 2 more gathers of the inputs (saved_input "shard"):
        10 (t-1)/t bsh. Embedding: 1 reduce-scatter forward, 1 gather backward. Head:
        a gather, a reduce-scatter and a second gather. Gradients of gains, and of
        biases of row-parallel products, are summed over t, once a step.
        If the query heads of each key are split, every rank computes keys and values
        of its own positions with whole weights and gathers them, and the rotary tables
        of the keys as well. If no heads can be split, queries are gathered as well and
        every rank computes the whole attention; only tiles of its result are saved.
2d      X [b/q, f/q], W [in/q, out/q]. Forward: gather X over columns, W over
        rows. dX: gather W again, reduce-scatter over columns. dW: gather X
        again, reduce-scatter over rows: 3 (q-1)/q^2 (|X| + |W|). A tied head is
        X W^T: its result is scattered instead and its cotangent gathered.
        Embedding: its table is gathered over rows, its gradient scattered.
        Readers close to each other share a gathered table: a tied table is gathered
        for the embedding, and once for the head and its backward pass.
2.5d    2d on each of d layers, with the batch also split by d; gradients of W are
        summed over d, once a step.
3d      X [b/(q q), f/q], W [in/(q q), out/q]. Forward: gather X and W, scatter
        Y; backward: gather dY, scatter dX and dW: 2 (q-1)/q^3 (|X| + |W| + |Y|).
ZeRO    as in formulas.py, on the layout's tile of a rank: with N data ranks and a
        tile of T, reduce-scatter and gather are (N-1)/N T each, equally often. In
        every microbatch the gathers over rows (2d) and i (3d) follow those over data,
        and the scatters of gradients precede them. ZeRO 3 drops what 3d would save
        for the backward pass: W is gathered over i once more. Sums over d, and over
        samples that split vectors, are of tiles of tiles, once a step.
all     vectors are sharded like the features that they are combined with; their
        gradients are summed over the axes of the batch once a step. Norms over split
        features sum their statistics: [b, s] twice forward (RMS: once), and as often
        backward, in one message. The cross-entropy is as in one dimension.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

import formulas
from formulas import Plan, Term, UserError, tile

AXES = {"sp": 1, "2d": 2, "2.5d": 3, "3d": 3}


@dataclasses.dataclass
class TensorPlan(Plan):
    layout: str = "2d"
    axes: tuple = ()
    saved_input: str = "shard"


@dataclasses.dataclass
class Weight:
    """One side of a product: the sizes of its dimensions, the split one first."""
    name: str
    inputs: list
    outputs: list

    def size(self):
        return math.prod(self.inputs) * math.prod(self.outputs)


def layer(architecture):
    """A layer's products in groups that share their input, as (weights, whether they map
    the hidden size to heads or width)."""
    h, kv = architecture.hidden, architecture.kv_heads
    group = architecture.heads // kv
    d = h // architecture.heads
    shapes = {p.name: p.shape for p in architecture.parameters}
    if architecture.family == "gpt2":
        width = shapes["transformer.h.0.mlp.c_fc.weight"][1]
        return [([Weight("qkv", [h], [kv, 3 * d])], True), ([Weight("proj", [kv, d], [h])], False),
                ([Weight("up", [h], [width])], True), ([Weight("down", [width], [h])], False)]
    width = shapes["model.layers.0.mlp.up_proj.weight"][1]
    return [([Weight("q", [h], [kv, group * d]), Weight("k", [h], [kv, d]),
              Weight("v", [h], [kv, d])], True),
            ([Weight("o", [kv, group * d], [h])], False),
            ([Weight("gate", [h], [width]), Weight("up", [h], [width])], True),
            ([Weight("down", [width], [h])], False)]


def vectors(architecture):
    """(elements, split dimension, whether it is the hidden size) of each parameter that
    no product reads."""
    gpt2 = architecture.family == "gpt2"
    for p in architecture.parameters:
        role = architecture.role(p.name)
        if role == "replicated":
            yield p.name, math.prod(p.shape), p.shape[-1], True
        elif role in ("vector", "qkv_vector"):
            split = architecture.kv_heads if role == "qkv_vector" else p.shape[0]
            yield p.name, math.prod(p.shape), split, False
    assert gpt2 or not any(architecture.role(p.name) == "vector" for p in architecture.parameters)


def local(size, split, ways):
    """Elements of a rank's tile of a tensor with `size` elements, one dimension split."""
    return size // split * tile(split, ways)


class Sum:
    def __init__(self, architecture, plan):
        self.architecture, self.plan = architecture, plan
        self.terms = []
        self.times = plan.microbatches
        if plan.batch % plan.microbatches:
            raise UserError("the batch does not divide by the microbatches")
        self.per_microbatch = plan.batch // plan.microbatches
        self.data = plan.size(plan.data_axis)
        self.outer = [plan.replicate] if plan.replicate else []
        self.batch_axes = [*self.outer, plan.data_axis]
        self.state_axes = set()
        self.memory = dict.fromkeys(("parameters", "gradients", "optimizer"), 0)

    def ways(self, axes):
        return math.prod(self.plan.size(a) for a in axes)

    def add(self, purpose, what, kind, axes, elements, count=1):
        if self.ways(axes) > 1 and count:
            self.terms.append(Term(purpose, what, kind, list(axes), self.ways(axes), elements,
                                   self.plan.element, count))

    def act(self, what, kind, axis, elements, count=1):
        self.add("activation", what, kind, [axis], elements, count * self.times)

    def samples(self, axes):
        return tile(self.per_microbatch, self.ways(self.batch_axes) * self.ways(axes))

    def parameter(self, name, dims, partial, gathered=None, gathers=0, reads=2):
        """Adds the collectives of a gradient and its parameter. `dims`: (size, ways); the
        first one's size over its split includes the rest of the tensor. `reads`: the
        passes that read the parameter, for which ZeRO 3 gathers it."""
        plan = self.plan
        elements = math.prod(tile(size, ways) for size, ways in dims)
        if gathered:
            self.add("parameter", name, "all_gather", [gathered], elements, gathers * self.times)
            self.add("gradient", name, "reduce_scatter", [gathered], elements, self.times)
        part = None
        if plan.zero and self.data > 1:
            part = formulas.zero_tile([formulas.Dim(s, w) for s, w in dims], self.data)
        tiles = elements if part is None else part
        self.memory["parameters"] += (tiles if plan.zero == 3 else elements) * plan.element
        self.memory["gradients"] += plan.element * (
            tiles if formulas.scatters_gradients(plan) else elements)
        self.memory["optimizer"] += 2 * tiles * 4
        if part is None:
            self.add("gradient", name, "all_reduce", [*self.batch_axes, *partial], elements)
            return
        data = [plan.data_axis]
        self.state_axes.add(plan.data_axis)
        self.add("gradient", name, "reduce_scatter", data, part,
                 self.times if formulas.scatters_gradients(plan) else 1)
        self.add("gradient", name, "all_reduce", [*self.outer, *partial], part)
        gathers = self.times * (reads if plan.reshard else 1) if plan.zero == 3 else 1
        self.add("parameter", name, "all_gather", data, part, gathers)

    def reads(self, name):
        """The passes that read the value of a parameter."""
        parameter = formulas.Parameter(name, [])
        return 2 if formulas.read_in_backward(self.architecture, parameter) else 1

    def drops(self):
        """Whether the backward pass gathers again what the forward pass gathered."""
        return self.plan.zero == 3 and self.plan.reshard and self.data > 1

    def norms(self, axis, rows):
        times = 2 if self.architecture.family == "gpt2" else 1
        norms = 2 * self.architecture.layers + 1
        self.act("norms, forward", "all_reduce", axis, rows, times * norms)
        self.act("norms, backward", "all_reduce", axis, rows * times, norms)

    def loss(self, axis, rows, batch_of_loss, batch_of_weight):
        self.add("loss", "maximum", "all_reduce", [axis], rows, self.times)
        self.add("loss", "exponentials, target", "all_reduce", [axis], 2 * rows, self.times)
        self.add("loss", "sum", "all_reduce", self.batch_axes + batch_of_loss, 1)
        self.add("loss", "weight", "all_reduce", self.batch_axes + batch_of_weight, 1)

    def finish(self, axes):
        split = [a for a, _ in self.plan.mesh if a in axes or a in self.state_axes]
        self.add("norm", "sum of squares", "all_reduce", split, 1)

    def vocabulary(self):
        """(rows, whether tied)"""
        roles = [self.architecture.role(p.name) for p in self.architecture.parameters]
        table = next(p for p in self.architecture.parameters
                     if self.architecture.role(p.name) == "vocabulary_rows")
        return max(table.shape) if table.transposed else table.shape[0], \
            "vocabulary_columns" not in roles

    # Layouts ------------------------------------------------------------------

    def sequence(self):
        [t] = self.plan.axes
        ways, a = self.plan.size(t), self.architecture
        heads = formulas.attention_split(a, ways)
        b, s, h = self.samples([]), self.plan.sequence, a.hidden
        stream = b * tile(s, ways) * h
        again = self.plan.saved_input == "shard"
        blocks = a.layers * (2 if heads else 1)
        self.act("inputs", "all_gather", t, stream, blocks)
        self.act("outputs", "reduce_scatter", t, stream, blocks)
        self.act("cotangents of outputs", "all_gather", t, stream, blocks)
        self.act("cotangents of inputs", "reduce_scatter", t, stream, blocks)
        self.act("inputs again", "all_gather", t, stream, blocks if again else 0)
        self.act("embedding", "reduce_scatter", t, stream)
        self.act("embedding, backward", "all_gather", t, stream)
        self.act("head", "all_gather", t, stream, 2 if again else 1)
        self.act("head, backward", "reduce_scatter", t, stream)
        size = h // a.heads
        kv = b * tile(s, ways) * a.kv_heads * size
        if heads is None:
            self.act("queries", "all_gather", t, stream, 2 * a.layers)
            self.act("keys and values", "all_gather", t, kv, 4 * a.layers)
            self.act("attention again, and its cotangent", "all_gather", t, stream, 2 * a.layers)
        elif heads == "group":
            self.act("keys and values", "all_gather", t, kv, 4 * a.layers)
            self.act("their gradients", "reduce_scatter", t, kv, 2 * a.layers)
            self.act("cosines and sines", "all_gather", t, tile(s, ways) * size, 2)
        self.loss(t, b * s, [], [])
        for p in a.parameters:
            dims = [(d.size, d.ways) for d in formulas.dims_of(a, p, ways)]
            if "wpe" in p.name and p.shape[0] == s:
                dims = [(s, ways), (p.shape[1], 1)]
            split = any(w > 1 for _, w in dims)
            self.parameter(p.name, dims, [] if split else [t], reads=self.reads(p.name))
        self.finish({t})

    def check_heads(self, axis):
        ways = self.plan.size(axis)
        if ways > 1 and formulas.attention_split(self.architecture, ways) != "kv":
            raise UserError(f"no closed form for {self.architecture.kv_heads} kv heads on "
                            f"{ways} ranks of axis {axis}")

    def grid(self):
        *deep, row, col = self.plan.axes
        self.check_heads(col)
        a, s = self.architecture, self.plan.sequence
        rows, cols = self.plan.size(row), self.plan.size(col)
        b = self.samples([*deep, row])

        def value(sizes):  # a tensor [b, s, sizes], the first size split
            return b * s * local(math.prod(sizes), sizes[0], cols)

        def weight(w, name, gathers):
            self.parameter(name, [(w.inputs[0], rows), (math.prod(w.inputs[1:]), 1),
                                  (w.outputs[0], cols), (math.prod(w.outputs[1:]), 1)],
                           deep, row, gathers, reads=gathers)

        for index in range(a.layers):
            for weights, _ in layer(a):
                x = value(weights[0].inputs)
                self.act("inputs, forward and for dW", "all_gather", col, x, 2)
                self.act("dX", "reduce_scatter", col, x)
                for w in weights:
                    weight(w, f"{w.name} {index}", 2)
        vocabulary, tied = self.vocabulary()
        if tied:
            weight(Weight("", [vocabulary], [a.hidden]), "table", 2)
            self.act("logits", "reduce_scatter", col, value([vocabulary]))
            self.act("cotangent of logits", "all_gather", col, value([vocabulary]))
        else:
            weight(Weight("", [vocabulary], [a.hidden]), "table", 1)
            weight(Weight("", [a.hidden], [vocabulary]), "head", 2)
            self.act("head input", "all_gather", col, value([a.hidden]), 2)
            self.act("head dX", "reduce_scatter", col, value([a.hidden]))
        self.norms(col, b * s)
        self.loss(col, b * s, [*deep, row], [*deep, row])
        for name, elements, split, _ in vectors(a):
            self.parameter(name, [(split, cols), (elements // split, 1)], [*deep, row],
                           reads=self.reads(name))
        self.finish({row, col})

    def cube(self):
        i, j, k = self.plan.axes
        self.check_heads(j)
        a, s = self.architecture, self.plan.sequence
        q = {axis: self.plan.size(axis) for axis in self.plan.axes}
        outer, inner = self.samples([i, j]), self.samples([i, k])

        def value(sizes, is_outer):
            batch, ways = (outer, q[k]) if is_outer else (inner, q[j])
            return batch * s * local(math.prod(sizes), sizes[0], ways)

        def weight(w, name, from_hidden, reads=2):
            sides = [w.inputs, w.outputs]
            ways = [q[k], q[j]] if from_hidden else [q[j], q[k]]
            # Split along the inputs, unless they do not divide.
            for at in (0, 1, 0):
                size, more = sides[at][0], ways[at] * q[i]
                if ways[at] == 1 or tile(size, ways[at]) == q[i] * tile(size, more):
                    break
            ways[at] *= q[i]
            # Gathered for products and saved, unless ZeRO 3 frees what it gathers.
            self.parameter(name, [(sides[0][0], ways[0]), (math.prod(sides[0][1:]), 1),
                                  (sides[1][0], ways[1]), (math.prod(sides[1][1:]), 1)],
                           [], i, reads if self.drops() else 1, reads=reads)

        def products(weights, from_hidden, name):
            x_axis, y_axis = (j, k) if from_hidden else (k, j)
            x = value(weights[0].inputs, from_hidden)
            self.act("X", "all_gather", x_axis, x)
            self.act("dX", "reduce_scatter", x_axis, x)
            for w in weights:
                y = value(w.outputs, not from_hidden)
                self.act("Y", "reduce_scatter", y_axis, y)
                self.act("dY", "all_gather", y_axis, y)
                if name:
                    weight(w, f"{w.name} {name}", from_hidden)

        for index in range(a.layers):
            for weights, from_hidden in layer(a):
                products(weights, from_hidden, str(index))
        vocabulary, tied = self.vocabulary()
        table = Weight("table", [vocabulary], [a.hidden])
        embedded = value([a.hidden], True)
        self.act("embedding", "reduce_scatter", j, embedded)
        self.act("embedding, backward", "all_gather", j, embedded)
        weight(table, "table", False, 2 if tied else 1)
        products([Weight("head", [a.hidden], [vocabulary])], True, "" if tied else "0")
        self.norms(k, outer * s)
        self.loss(j, inner * s, [i, k], [i])
        for name, elements, split, hidden in vectors(a):
            self.parameter(name, [(split, q[k] if hidden else q[j]), (elements // split, 1)],
                           [i, j] if hidden else [i, k], reads=self.reads(name))
        self.finish({i, j, k})


def total_of(architecture, plan):
    if len(plan.axes) != AXES[plan.layout]:
        raise UserError(f"layout {plan.layout} has {AXES[plan.layout]} axes")
    total = Sum(architecture, plan)
    {"sp": total.sequence, "2d": total.grid, "2.5d": total.grid,
     "3d": total.cube}[plan.layout]()
    return total


def terms_of(architecture, plan):
    return total_of(architecture, plan).terms


def memory(architecture, plan):
    """Bytes on a rank: parameters, gradients, AdamW's moments."""
    return total_of(architecture, plan).memory


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
    parser.add_argument("--layout", choices=list(AXES), required=True)
    parser.add_argument("--mesh", required=True, help="data=2,row=2,col=2, slowest axis first")
    parser.add_argument("--axes", required=True, help="of the layout, e.g. row,col")
    formulas.add_plan_arguments(parser)
    parser.add_argument("--saved-input", choices=["shard", "full"], default="shard")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        architecture = formulas.read_architecture(args.model)
        plan = TensorPlan(formulas.parse_mesh(args.mesh), args.batch, args.sequence,
                          args.microbatches, args.zero, args.zero2_reduce,
                          not args.keep_gathered, args.replicate, layout=args.layout,
                          axes=tuple(args.axes.split(",")), saved_input=args.saved_input)
        sums = sent_bytes(architecture, plan)
    except (UserError, OSError, ValueError) as error:
        print(f"formulas_tensor.py: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(sums) if args.json else
          "\n".join(f"{purpose:12} {sent:14}" for purpose, sent in sums.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
