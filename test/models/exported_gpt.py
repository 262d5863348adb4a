#!/usr/bin/python3
"""Generates a GPT of any size as PyTorch's exporter writes it, without weights.

    exported_gpt.py OUT.onnx --layers 96 --hidden 12288 --heads 96 --sequence 2048

Opset 18, some 100 nodes per layer: norms, attention and GELU are decomposed,
linear layers flatten their input and restore its shape, every size is read
from a tensor at run time, every constant is a node of its own. Weights are external
references to a file that does not exist: commands that read no weights (import,
explain, compile) thus handle models of hundreds of gigabytes. OUT.toml next to the
model binds its dimensions.
"""

import argparse
import pathlib
import sys

import numpy as np

import generate
import onnxwire


class Exported(generate.Generator):
    """The graph of GPT-2 as torch.onnx.export writes it."""

    def weight(self, name, *shape, mean=0.0, scale=0.1):
        del mean, scale
        tensor = onnxwire.Tensor()
        for dim in shape:
            tensor.add(1, dim)
        tensor.add(2, onnxwire.DTYPE_CODES[np.dtype(np.float32)]).add(8, name)
        length = 4 * int(np.prod(shape, dtype=object))
        for key, value in (("location", self.location), ("offset", str(self.offset)),
                           ("length", str(length))):
            tensor.add(13, onnxwire.Message().add(1, key).add(2, value))
        self.offset += length
        self.initializers.append(tensor.add(14, 1))
        return name

    def constant(self, value, dtype=np.int64):
        return self.op("Constant", value=np.asarray(value, dtype=dtype))

    def size_of(self, x, dim):
        """One size of a tensor, as a vector of one element."""
        size = self.op("Gather", self.op("Shape", x), self.constant(dim), axis=0)
        return self.op("Unsqueeze", size, self.constant([0]))

    def reshaped(self, x, like, *dims):
        """`x` reshaped; dimensions are numbers, or 'b' and 's' from the shape of `like`."""
        parts = [self.size_of(like, "bs".index(d)) if isinstance(d, str) else self.constant([d])
                 for d in dims]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def linear(self, x, name, inputs, outputs, bias=True):
        flat = self.op("Reshape", x, self.constant([-1, inputs]))
        y = self.op("Gemm", flat, self.weight(name + ".weight", inputs, outputs),
                    self.weight(name + ".bias", outputs), alpha=1.0, beta=1.0)
        return self.reshaped(y, x, "b", "s", outputs)

    def layer_norm(self, x, name):
        mean = self.op("ReduceMean", x, self.constant([-1]), keepdims=1)
        centred = self.op("Sub", x, mean)
        square = self.op("Pow", centred, self.scalar(2.0))
        variance = self.op("ReduceMean", square, self.constant([-1]), keepdims=1)
        root = self.op("Sqrt", self.op("Add", variance, self.scalar(1e-5)))
        y = self.op("Mul", self.op("Div", centred, root),
                    self.weight(name + ".weight", self.sizes.hidden))
        return self.op("Add", y, self.weight(name + ".bias", self.sizes.hidden))

    def split_heads(self, x, perm):
        head_size = self.sizes.hidden // self.sizes.heads
        return self.op("Transpose", self.reshaped(x, x, "b", "s", self.sizes.heads, head_size),
                       perm=perm)

    def gpt(self, ids):
        sizes, hidden = self.sizes, self.sizes.hidden
        head_size = hidden // sizes.heads
        table = self.weight("transformer.wte.weight", sizes.vocab, hidden)
        x = self.op("Gather", table, ids)
        self.sequence = self.size_of(ids, 1)
        positions, mask = self.grids()
        wpe = self.weight("transformer.wpe.weight", sizes.positions, hidden)
        x = self.op("Add", x, self.op("Gather", wpe, positions))
        for layer in range(sizes.layers):
            name = f"transformer.h.{layer}."
            y = self.layer_norm(x, name + "ln_1")
            y = self.linear(y, name + "attn.c_attn", hidden, 3 * hidden)
            q, k, v = self.op("Split", y, self.constant([hidden] * 3), outputs=3, axis=2)
            q, v = self.split_heads(q, [0, 2, 1, 3]), self.split_heads(v, [0, 2, 1, 3])
            k = self.split_heads(k, [0, 2, 3, 1])
            scores = self.op("Div", self.op("MatMul", q, k), self.scalar(head_size ** 0.5))
            scores = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
            y = self.op("Transpose", self.op("MatMul", scores, v), perm=[0, 2, 1, 3])
            y = self.reshaped(y, y, "b", "s", hidden)
            x = self.op("Add", x, self.linear(y, name + "attn.c_proj", hidden, hidden))
            y = self.linear(self.layer_norm(x, name + "ln_2"), name + "mlp.c_fc", hidden,
                            4 * hidden)
            x = self.op("Add", x, self.linear(self.gelu(y), name + "mlp.c_proj", 4 * hidden,
                                              hidden))
        x = self.layer_norm(x, "transformer.ln_f")
        self.op("MatMul", x, self.op("Transpose", table, perm=[1, 0]), out="logits")


def generate_gpt(sizes, location):
    """The model as an onnxwire.Model, with external weights in `location`."""
    generator = Exported(sizes)
    generator.location, generator.offset = location, 0
    ids = generator.input("input_ids", np.int64, ["batch", "sequence"])
    generator.gpt(ids)
    generator.output("logits", np.float32, ["batch", "sequence", sizes.vocab])
    return generator.model(generate.OPSET)


def write(path, sizes, batch):
    """Writes the model and the file that binds its dimensions."""
    onnxwire.save(generate_gpt(sizes, path.name + ".data"), path)
    path.with_suffix(".toml").write_text(
        f"[dims]\nbatch = {batch}\nsequence = {sizes.positions}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    for name, value in (("layers", 96), ("hidden", 12288), ("heads", 96), ("vocab", 50257),
                        ("sequence", 2048), ("batch", 16)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    try:
        sizes = generate.Sizes(layers=args.layers, hidden=args.hidden, heads=args.heads,
                               vocab=args.vocab, positions=args.sequence).check()
        write(args.output, sizes, args.batch)
    except (ValueError, OSError) as error:
        print(f"exported_gpt.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
