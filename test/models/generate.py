#!/usr/bin/python3
"""Generates GPT-2 and Llama models in ONNX of any size, with NumPy alone.

    generate.py OUT.onnx --family llama --layers 24 --sequence 4096
    generate.py OUT.onnx --family gpt2 --external --functions
    generate.py OUT.onnx --family llama --no-weights --layers 32 --hidden 4096

The graphs correspond to those of PyTorch's exporters, in one plain spelling at opset 18:
shapes read from the input at run time, a causal mask from index grids, attention as
MatMul, Add, Softmax, MatMul, RMS norm and rotary embedding decomposed, grouped heads by
Expand. Weights are random, from a fixed seed. OUT.toml next to the model binds its
dimensions. For tests that need sizes that no committed file has; the committed files
are written by exporters.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "lib"))

import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

METADATA_KEY = "generate.sizes"
OPSET = 18
MAX = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Sizes:
    family: str = "gpt2"
    vocab: int = 257
    layers: int = 5
    hidden: int = 96
    heads: int = 6
    kv_heads: int = 2  # llama and mixtral only
    intermediate: int = 344  # llama and mixtral only; GPT-2 has 4 * hidden
    experts: int = 4  # mixtral only: per layer; a token chooses top_k of them
    top_k: int = 2
    positions: int = 96  # gpt2 only: rows of the position table
    window: int = 0  # number of keys that a query attends to; 0: all earlier ones
    documents: bool = False  # input document_ids: tokens attend to their own document
    bidirectional: bool = False  # input attention_mask: tokens to which all attend
    alibi: bool = False  # scores decrease with distance, with a slope for each head
    softcap: int = 0  # scores x become softcap * tanh(x / softcap)
    functions: bool = False
    weights: bool = True
    seed: int = 1

    def check(self):
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not divisible by {self.heads} heads")
        if self.family != "gpt2" and self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are not divisible by {self.kv_heads} kv heads")
        if self.bidirectional and (self.window or self.documents):
            raise ValueError("bidirectional has neither a window nor documents")
        if self.family == "mixtral" and not 0 < self.top_k <= self.experts:
            raise ValueError(f"top_k {self.top_k} of {self.experts} experts")
        if self.family != "gpt2" and self.hidden // self.heads % 2:
            raise ValueError(f"rotary needs an even head size, not {self.hidden // self.heads}")
        return self


class Generator(onnxbuild.Builder):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes.check()
        self.rng = np.random.default_rng(sizes.seed)
        self.functions = {}
        self.missing = 0  # bytes of external weights in the missing file
        self.batch = self.sequence = None

    # Weights -----------------------------------------------------------------

    def weight(self, name, *shape, mean=0.0, scale=0.1):
        if not self.sizes.weights:
            return self.missing_weight(name, shape)
        value = mean + scale * self.rng.standard_normal(shape)
        return self.parameter(name, value.astype(np.float32))

    def missing_weight(self, name, shape):
        """A weight in a file that does not exist: enough to compile."""
        tensor = onnxbuild.tensor(name, np.zeros(0, np.float32))
        tensor.drop(1)
        tensor.drop(9)
        for dim in shape:
            tensor.add(1, dim)
        length = 4 * int(np.prod(shape, dtype=np.int64))
        for key, value in (("location", "missing.data"), ("offset", str(self.missing)),
                           ("length", str(length))):
            tensor.add(13, onnxwire.Message().add(1, key).add(2, value))
        self.missing += length + -length % 4096
        self.initializers.append(tensor.add(14, 1))
        return name

    def scalar(self, value):
        return self.constant(value, np.float32)

    # Shapes ------------------------------------------------------------------

    def target(self, *dims):
        """A reshape target from sizes; 'b' and 's' are read at run time."""
        parts = [{"b": self.batch, "s": self.sequence}[d] if isinstance(d, str)
                 else self.constant([d]) for d in dims]
        return self.op("Concat", *parts, axis=0)

    def heads_first(self, x, heads, head_size):
        x = self.op("Reshape", x, self.target("b", "s", heads, head_size))
        return self.op("Transpose", x, perm=[0, 2, 1, 3])

    # Blocks ------------------------------------------------------------------

    def embed(self, name, ids):
        table = self.weight(name, self.sizes.vocab, self.sizes.hidden)
        first = self.op("Shape", ids, start=0, end=1)
        self.batch, self.sequence = first, self.op("Shape", ids, start=1, end=2)
        return self.op("Gather", table, ids), table

    def grids(self):
        """The positions [s], and the additive mask [b or 1, 1, s, s]."""
        count = self.op("Squeeze", self.sequence)
        positions = self.op("Range", self.constant(0), count, self.constant(1))
        column = self.op("Unsqueeze", positions, self.constant([0]))
        row = self.op("Unsqueeze", positions, self.constant([1]))
        if self.sizes.bidirectional:
            given = self.input("attention_mask", np.int64, ["batch", "sequence"])
            visible = self.op("Equal", self.op("Unsqueeze", given, self.constant([1, 2])),
                              self.constant(1))
            return positions, self.op("Where", visible, self.scalar(0.0),
                                      self.scalar(np.finfo(np.float32).min))
        visible = self.op("LessOrEqual", column, row)
        if self.sizes.window:
            first = self.op("Sub", row, self.constant(self.sizes.window))
            visible = self.op("And", visible, self.op("Greater", column, first))
        visible = self.op("Unsqueeze", visible, self.constant([0, 1]))
        if self.sizes.documents:
            ids = self.input("document_ids", np.int64, ["batch", "sequence"])
            same = self.op("Equal", self.op("Unsqueeze", ids, self.constant([1, 2])),
                           self.op("Unsqueeze", ids, self.constant([1, 3])))
            visible = self.op("And", visible, same)
        mask = self.op("Where", visible, self.scalar(0.0),
                       self.scalar(np.finfo(np.float32).min))
        if self.sizes.alibi:
            distance = self.op("Cast", self.op("Sub", column, row), to=1)
            slopes = 2.0 ** (-8.0 * np.arange(1, self.sizes.heads + 1) / self.sizes.heads)
            slopes = self.constant(slopes.reshape(1, -1, 1, 1), np.float32)
            mask = self.op("Add", mask, self.op("Mul", slopes, distance))
        return positions, mask

    def attention(self, q, k, v, mask, head_size):
        k = self.op("Transpose", k, perm=[0, 1, 3, 2])
        scores = self.op("Mul", self.op("MatMul", q, k), self.scalar(head_size ** -0.5))
        if self.sizes.softcap:
            cap = self.scalar(self.sizes.softcap)
            scores = self.op("Mul", self.op("Tanh", self.op("Div", scores, cap)), cap)
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        out = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.op("Reshape", out, self.target("b", "s", self.sizes.hidden))

    def call(self, name, body, *inputs):
        """The operations of `body`, inline or as a call of a model-local function."""
        if not self.sizes.functions:
            return body(self, *inputs)
        if name not in self.functions:
            inner = Generator(self.sizes)
            formal = [f"x{i}" for i in range(len(inputs))]
            result = body(inner, *formal)
            function = onnxwire.Function().add(1, name)
            for item in formal:
                function.add(4, item)
            function.add(5, result)
            # A function has no initializers; its constants are nodes.
            for item in inner.initializers:
                node = onnxwire.Node().add(2, item.name).add(4, "Constant")
                value = onnxwire.Attribute().add(1, "value").add(5, item).add(20, 4)
                function.add(7, node.add(5, value))
            for node in inner.nodes:
                function.add(7, node)
            function.add(9, onnxwire.Message().add(1, "").add(2, OPSET))
            self.functions[name] = function.add(10, "local")
        return self.op(name, *inputs, domain="local")

    def linear(self, x, name, inputs, outputs, bias):
        y = self.op("MatMul", x, self.weight(name + ".weight", inputs, outputs))
        return self.op("Add", y, self.weight(name + ".bias", outputs)) if bias else y

    def layer_norm(self, x, name):
        return self.op("LayerNormalization", x,
                       self.weight(name + ".weight", self.sizes.hidden, mean=1.0, scale=0.2),
                       self.weight(name + ".bias", self.sizes.hidden), axis=-1, epsilon=1e-5)

    def rms_norm(self, x, name):
        def body(g, x, gain):
            mean = g.op("ReduceMean", g.op("Pow", x, g.scalar(2.0)), g.constant([-1]), keepdims=1)
            root = g.op("Sqrt", g.op("Add", mean, g.scalar(1e-6)))
            return g.op("Mul", gain, g.op("Mul", x, g.op("Reciprocal", root)))

        gain = self.weight(name + ".weight", self.sizes.hidden, mean=1.0, scale=0.2)
        return self.call("RmsNorm", body, x, gain)

    def gelu(self, x):
        def body(g, x):
            cube = g.op("Mul", g.op("Pow", x, g.scalar(3.0)), g.scalar(0.044715))
            inner = g.op("Mul", g.op("Add", x, cube), g.scalar((2 / np.pi) ** 0.5))
            return g.op("Mul", g.op("Mul", x, g.scalar(0.5)),
                        g.op("Add", g.op("Tanh", inner), g.scalar(1.0)))

        return self.call("Gelu", body, x)

    def rotary(self, x, cos, sin, half):
        first = self.op("Slice", x, self.constant([0]), self.constant([half]), self.constant([3]))
        second = self.op("Slice", x, self.constant([half]), self.constant([MAX]),
                         self.constant([3]))
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    # Models ------------------------------------------------------------------

    def gpt2(self, ids):
        sizes, hidden = self.sizes, self.sizes.hidden
        head_size = hidden // sizes.heads
        x, table = self.embed("transformer.wte.weight", ids)
        positions, mask = self.grids()
        wpe = self.weight("transformer.wpe.weight", sizes.positions, hidden)
        x = self.op("Add", x, self.op("Gather", wpe, positions))
        for layer in range(sizes.layers):
            name = f"transformer.h.{layer}."
            y = self.layer_norm(x, name + "ln_1")
            y = self.linear(y, name + "attn.c_attn", hidden, 3 * hidden, bias=True)
            parts = self.op("Split", y, outputs=3, axis=2, num_outputs=3)
            q, k, v = (self.heads_first(p, sizes.heads, head_size) for p in parts)
            y = self.attention(q, k, v, mask, head_size)
            x = self.op("Add", x, self.linear(y, name + "attn.c_proj", hidden, hidden, bias=True))
            y = self.layer_norm(x, name + "ln_2")
            y = self.gelu(self.linear(y, name + "mlp.c_fc", hidden, 4 * hidden, bias=True))
            x = self.op("Add", x, self.linear(y, name + "mlp.c_proj", 4 * hidden, hidden, bias=True))
        x = self.layer_norm(x, "transformer.ln_f")
        self.op("MatMul", x, self.op("Transpose", table, perm=[1, 0]), out="logits")

    def gated(self, x, name):
        """Llama's MLP."""
        hidden, inner = self.sizes.hidden, self.sizes.intermediate
        gate = self.linear(x, name + "gate_proj", hidden, inner, bias=False)
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        up = self.linear(x, name + "up_proj", hidden, inner, bias=False)
        return self.linear(self.op("Mul", gate, up), name + "down_proj", inner, hidden, bias=False)

    def routed(self, x, name):
        """Mixtral's experts: each slot of a token gathers its expert's matrices."""
        hidden, inner, top_k = self.sizes.hidden, self.sizes.intermediate, self.sizes.top_k
        tokens = self.op("Reshape", x, self.constant([-1, hidden]))
        scores = self.linear(tokens, name + "gate", hidden, self.sizes.experts, bias=False)
        best, ids = self.op("TopK", self.op("Softmax", scores, axis=-1), self.constant([top_k]),
                            outputs=2, axis=-1)
        total = self.op("ReduceSum", best, self.constant([-1]), keepdims=1)
        shares = self.op("Reshape", self.op("Div", best, total), self.constant([-1, 1]))
        flat = self.op("Reshape", ids, self.constant([-1]))
        rows = self.op("Expand", self.op("Unsqueeze", tokens, self.constant([1])),
                       self.constant([1, top_k, 1]))
        rows = self.op("Reshape", rows, self.constant([-1, 1, hidden]))

        def project(rows, which, inputs, outputs):
            matrices = self.weight(f"{name}experts.{which}_proj", self.sizes.experts, inputs, outputs)
            return self.op("MatMul", rows, self.op("Gather", matrices, flat, axis=0))

        gate = project(rows, "gate", hidden, inner)
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        y = self.op("Mul", gate, project(rows, "up", hidden, inner))
        y = self.op("Squeeze", project(y, "down", inner, hidden), self.constant([1]))
        y = self.op("Reshape", self.op("Mul", y, shares), self.constant([-1, top_k, hidden]))
        y = self.op("ReduceSum", y, self.constant([1]), keepdims=0)
        return self.op("Reshape", y, self.target("b", "s", hidden))

    def mixtral(self, ids):
        self.decoder(ids, self.routed)

    def llama(self, ids):
        self.decoder(ids, self.gated)

    def decoder(self, ids, feed_forward):
        """A Llama model whose layers end in `feed_forward`."""
        sizes, hidden = self.sizes, self.sizes.hidden
        head_size = hidden // sizes.heads
        group = sizes.heads // sizes.kv_heads
        x, _ = self.embed("model.embed_tokens.weight", ids)
        positions, mask = self.grids()
        frequencies = 10000.0 ** (-np.arange(0, head_size, 2) / head_size)
        inverse = self.parameter("model.rotary_emb.inv_freq", frequencies.astype(np.float32))
        angles = self.op("Unsqueeze", self.op("Cast", positions, to=1), self.constant([1]))
        angles = self.op("Mul", angles, inverse)
        angles = self.op("Concat", angles, angles, axis=-1)
        cos, sin = (self.op("Unsqueeze", self.op(f, angles), self.constant([0, 1]))
                    for f in ("Cos", "Sin"))

        def spread(x):  # [b, kv, s, d] -> [b, heads, s, d]
            if group == 1:
                return x
            x = self.op("Unsqueeze", x, self.constant([2]))
            x = self.op("Expand", x, self.target("b", sizes.kv_heads, group, "s", head_size))
            return self.op("Reshape", x, self.target("b", sizes.heads, "s", head_size))

        for layer in range(sizes.layers):
            name = f"model.layers.{layer}."
            y = self.rms_norm(x, name + "input_layernorm")

            def project(which, heads):
                out = self.linear(y, f"{name}self_attn.{which}_proj", hidden, heads * head_size,
                                  bias=False)
                return self.heads_first(out, heads, head_size)

            q, k, v = project("q", sizes.heads), project("k", sizes.kv_heads), project("v", sizes.kv_heads)
            q = self.rotary(q, cos, sin, head_size // 2)
            k = self.rotary(k, cos, sin, head_size // 2)
            y = self.attention(q, spread(k), spread(v), mask, head_size)
            x = self.op("Add", x, self.linear(y, name + "self_attn.o_proj", hidden, hidden, bias=False))
            y = self.rms_norm(x, name + "post_attention_layernorm")
            x = self.op("Add", x, feed_forward(y, name + "mlp."))
        x = self.rms_norm(x, "model.norm")
        self.op("MatMul", x, self.weight("lm_head.weight", hidden, sizes.vocab), out="logits")


def generate(sizes):
    """The model as an onnxwire.Model, all weights inside."""
    generator = Generator(sizes)
    ids = generator.input("input_ids", np.int64, ["batch", "sequence"])
    getattr(generator, sizes.family)(ids)
    generator.output("logits", np.float32, ["batch", "sequence", sizes.vocab])
    model = generator.model(OPSET, metadata={METADATA_KEY: json.dumps(dataclasses.asdict(sizes))})
    for function in generator.functions.values():
        model.add(25, function)
    if generator.functions:
        model.add(8, onnxwire.Message().add(1, "local").add(2, 1))
    return model


def resized(model, seed):
    """A model of the same family, with widths and head counts drawn from `seed`."""
    text = model.metadata.get(METADATA_KEY)
    if not text:
        raise ValueError("--resize needs a file made by test/models/generate.py: other files do "
                         "not say which of their numbers are widths")
    old = Sizes(**json.loads(text))
    rng = random.Random(seed)
    while True:
        kv_heads = rng.choice([1, 2, 3, 4, 5])
        heads = kv_heads * rng.choice([1, 2, 3, 4]) if old.family != "gpt2" else rng.randint(2, 9)
        head_size = rng.choice([8, 12, 16, 20, 24])
        new = dataclasses.replace(
            old, heads=heads, kv_heads=kv_heads, hidden=heads * head_size,
            intermediate=rng.randrange(100, 400, 4), vocab=rng.randint(200, 400))
        if new.hidden <= 256 and new.hidden != old.hidden and new.heads != old.heads:
            return generate(new)


def externalise(model, location, file):
    """Moves the data of all initializers into `file`, as exporters do."""
    offset = 0
    for tensor in model.graph.initializers:
        raw = tensor.all(9)
        if not raw or len(raw[-1]) < 1024:
            continue
        padding = -offset % 4096
        file.write(b"\0" * padding)
        offset += padding
        for key, value in (("location", location), ("offset", str(offset)),
                           ("length", str(len(raw[-1])))):
            tensor.add(13, onnxwire.Message().add(1, key).add(2, value))
        tensor.add(14, 1)
        file.write(raw[-1])
        offset += len(raw[-1])
        tensor.drop(9)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    for field in dataclasses.fields(Sizes):
        if field.type == "int" or field.type is int:
            parser.add_argument("--" + field.name.replace("_", "-"), type=int)
    parser.add_argument("--family", choices=["gpt2", "llama", "mixtral"], default="gpt2")
    parser.add_argument("--functions", action="store_true",
                        help="put norms and activations into model-local functions")
    parser.add_argument("--documents", action="store_true",
                        help="an input document_ids says which tokens see each other")
    parser.add_argument("--alibi", action="store_true",
                        help="scores fall with the distance, by a slope for each head")
    parser.add_argument("--bidirectional", action="store_true",
                        help="an input attention_mask says which tokens all others see")
    parser.add_argument("--no-weights", dest="weights", action="store_false",
                        help="weights are in a file that is not there: for what reads no weights")
    parser.add_argument("--external", action="store_true",
                        help="weights go to OUT.onnx.data beside the model")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, help="default: positions")
    args = parser.parse_args()

    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Sizes)
             if getattr(args, f.name) is not None}
    if args.family != "gpt2":
        given = {"hidden": 128, "heads": 8, **given}
    if args.sequence and args.family == "gpt2" and "positions" not in given:
        given["positions"] = args.sequence
    try:
        sizes = Sizes(**given)
        sequence = args.sequence or sizes.positions
        if args.family == "gpt2" and sequence > sizes.positions:
            raise ValueError(f"sequence {sequence} is longer than the {sizes.positions} positions")
        model = generate(sizes)
        if args.external:
            data = args.output.with_name(args.output.name + ".data")
            with open(data, "wb") as file:
                externalise(model, data.name, file)
        onnxwire.save(model, args.output)
    except (ValueError, OSError) as error:
        print(f"generate.py: error: {error}", file=sys.stderr)
        return 2
    args.output.with_suffix(".toml").write_text(
        f"[dims]\nbatch = {args.batch}\nsequence = {sequence}\n\n" +
        ('[data]\ntokens = "input_ids"\n\n' if args.documents or args.bidirectional else "") +
        '[train]\nloss = "cross_entropy"\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
