"""Encoder-decoder models, drawn by seed, for meshes that split the decoder's positions."""

import numpy as np

import onnxbuild

WIDTH, HEADS, VOCABULARY = 8, 2, 11


class Layers:
    def __init__(self, rng):
        self.rng, self.b, self.count = rng, onnxbuild.Builder(), 0

    def weight(self, *shape):
        self.count += 1
        return self.b.parameter(f"w{self.count}", (self.rng.normal(size=shape) / 3).astype(np.float32))

    def linear(self, x, inner, outer):
        return self.b.op("Add", self.b.op("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def norm(self, x):
        gain = self.b.op("LayerNormalization", x, self.weight(WIDTH), self.weight(WIDTH), axis=-1)
        return gain

    def heads(self, x, order):
        d = WIDTH // HEADS
        x = self.b.op("Reshape", x, self.b.constant([0, -1, HEADS, d]))
        return self.b.op("Transpose", x, perm=order)

    def attention(self, queries, keys, length, causal):
        b = self.b
        q = self.heads(self.linear(queries, WIDTH, WIDTH), [0, 2, 1, 3])
        k = self.heads(self.linear(keys, WIDTH, WIDTH), [0, 2, 3, 1])
        v = self.heads(self.linear(keys, WIDTH, WIDTH), [0, 2, 1, 3])
        scores = b.op("Mul", b.op("MatMul", q, k), b.constant((WIDTH // HEADS) ** -0.5, np.float32))
        if causal:
            seen = b.constant(np.tril(np.ones((length, length), bool)), np.bool_)
            scores = b.op("Where", seen, scores, b.constant(-np.inf, np.float32))
        y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
        y = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.constant([0, -1, WIDTH]))
        return self.linear(y, WIDTH, WIDTH)

    def layer(self, x, length, causal, memory=None):
        b = self.b
        y = self.norm(x)
        x = b.op("Add", x, self.attention(y, y, length, causal))
        if memory:
            x = b.op("Add", x, self.attention(self.norm(x), memory, length, False))
        y = b.op("Gelu", self.linear(self.norm(x), WIDTH, 2 * WIDTH), approximate="tanh")
        return b.op("Add", x, self.linear(y, 2 * WIDTH, WIDTH))


def generate(seed, target=6, source=5):
    """(model, description): `encoders` layers, then `decoders` that read the last of them."""
    rng = np.random.default_rng(seed)
    e = Layers(rng)
    b = e.b
    encoders, decoders = (int(n) for n in rng.integers(1, 4, 2))
    of_features = bool(rng.integers(2))
    tokens = b.input("tokens", np.int64, ["batch", "sequence"])
    if of_features:  # features of three dimensions, like images or sounds
        memory = e.linear(b.input("source", np.float32, ["batch", source, 3]), 3, WIDTH)
    else:
        ids = b.input("source", np.int64, ["batch", source])
        memory = b.op("Gather", e.weight(VOCABULARY, WIDTH), ids)
    for _ in range(encoders):
        memory = e.layer(memory, source, causal=False)
    x = b.op("Gather", e.weight(VOCABULARY, WIDTH), tokens)
    for _ in range(decoders):
        x = e.layer(x, target, causal=True, memory=memory)
    b.op("MatMul", e.norm(x), e.weight(WIDTH, VOCABULARY), out="logits")
    b.output("logits", np.float32, ["batch", "sequence", VOCABULARY])
    return b.model(20), f"{encoders} + {decoders} layers, " + ("features" if of_features else "ids")
