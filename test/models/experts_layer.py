#!/usr/bin/python3
"""Writes a language model of one or more layers as MLIR: gated experts, or, with --dense, one
gated layer as large as the experts of one token together.

    experts_layer.py OUT.mlir [--dense] [--hidden 512] [--experts 8] [--chosen 2]
                     [--intermediate 1024] [--vocab 64] [--batch 4] [--sequence 1024]
                     [--layers 1]

embedding -> x + layer(x), ... -> head. The router is a softmax, and the weights of the chosen
experts are normalised, as in Mixtral."""

import argparse
import pathlib


def tensor(*sizes, type="f32"):
    return "tensor<" + "x".join(map(str, sizes)) + f"x{type}>"


class Writer:
    def __init__(self, sizes):
        self.sizes, self.lines, self.arguments, self.layer = sizes, [], [], ""

    def parameter(self, name, *sizes):
        name = self.layer + name
        self.arguments.append(f'%p{name}: {tensor(*sizes)} {{nn.name = "{name}", '
                              'nn.role = #nn.role<parameter>}')
        return f"%p{name}", tensor(*sizes)

    def op(self, text, operands, result):
        """Emits an operation; operands and results are (name, type)."""
        name = f"%v{len(self.lines)}"
        types = ", ".join(type for _, type in operands)
        self.lines.append(f"  {name} = {text.format(*(n for n, _ in operands))} : {types} -> {result}")
        return name, result

    def same(self, text, *operands):
        """Emits an operation whose operands and result have one type."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text} {', '.join(n for n, _ in operands)} : {operands[0][1]}")
        return name, operands[0][1]

    def gated(self, gate, up, down):
        """down(silu(gate) * up), where the arguments are functions that emit the products."""
        inner = gate()
        inner = self.same("arith.mulf", inner, self.same("nn.sigmoid", inner))
        return down(self.same("arith.mulf", inner, up()))

    def dense(self, x):
        s = self.sizes
        b, t, h, f = s.batch, s.sequence, s.hidden, s.intermediate * s.chosen
        gate, up = self.parameter("gate", h, f), self.parameter("up", h, f)
        down = self.parameter("down", f, h)
        product = lambda w: self.op('nn.einsum "bsh,hf->bsf" {}, {}', [x, w], tensor(b, t, f))
        return self.gated(lambda: product(gate), lambda: product(up),
                          lambda y: self.op('nn.einsum "bsf,fh->bsh" {}, {}', [y, down],
                                            tensor(b, t, h)))

    def experts(self, x):
        s = self.sizes
        b, t, h, e, k, f = s.batch, s.sequence, s.hidden, s.experts, s.chosen, s.intermediate
        router = self.parameter("router", h, e)
        gate, up = self.parameter("gate", e, h, f), self.parameter("up", e, h, f)
        down = self.parameter("down", e, f, h)
        scores = self.op('nn.einsum "bsh,he->bse" {}, {}', [x, router], tensor(b, t, e))
        scores = self.same("nn.softmax", scores)
        best, ids = tensor(b, t, k), tensor(b, t, k, type="i64")
        taken, chosen = f"%best{len(self.lines)}", f"%ids{len(self.lines)}"
        self.lines.append(f"  {taken}, {chosen} = nn.top_k {scores[0]} k = {k} : {scores[1]} -> {best}, {ids}")
        total = self.op("nn.reduce sum {} dims = [2]", [(taken, best)], tensor(b, t))
        total = self.op("nn.broadcast {} dims = [0, 1]", [total], best)
        weights = self.same("arith.divf", (taken, best), total)
        slots = self.op("nn.broadcast {} dims = [0, 1, 3]", [x], tensor(b, t, k, h))
        product = lambda x, w, n: self.op("nn.grouped_dot {}, {}, {}", [x, w, (chosen, ids)],
                                          tensor(b, t, k, n))
        y = self.gated(lambda: product(slots, gate, f), lambda: product(slots, up, f),
                       lambda y: product(y, down, h))
        return self.op('nn.einsum "bskh,bsk->bsh" {}, {}', [y, weights], tensor(b, t, h))

    def model(self):
        s = self.sizes
        x = tensor(s.batch, s.sequence, s.hidden)
        embed = self.parameter("embed", s.vocab, s.hidden)
        ids = tensor(s.batch, s.sequence, type="i64")
        entered = self.op("nn.gather {}, {} dim = 0", [embed, ("%tokens", ids)], x)
        left = entered
        for index in range(s.layers):
            self.layer = f"{index}." if s.layers > 1 else ""
            layer = self.dense(left) if s.dense else self.experts(left)
            left = self.same("arith.addf", left, layer)
        self.layer = ""
        head = self.parameter("head", s.hidden, s.vocab)
        logits = tensor(s.batch, s.sequence, s.vocab)
        result = self.op('nn.einsum "bsh,hv->bsv" {}, {}', [left, head], logits)
        self.arguments.append(f'%tokens: {ids} {{nn.name = "input_ids", nn.role = #nn.role<tokens>}}')
        return ("func.func @forward(" + ",\n    ".join(self.arguments) + f")\n    -> ({logits} "
                '{nn.name = "logits", nn.role = #nn.role<output>}) {\n' + "\n".join(self.lines) +
                f"\n  return {result[0]} : {logits}\n}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--dense", action="store_true")
    for name, size in (("hidden", 512), ("experts", 8), ("chosen", 2), ("intermediate", 1024),
                       ("vocab", 64), ("batch", 4), ("sequence", 1024),
                       ("layers", 1)):
        parser.add_argument("--" + name, type=int, default=size)
    sizes = parser.parse_args()
    sizes.output.write_text(Writer(sizes).model())


if __name__ == "__main__":
    main()
