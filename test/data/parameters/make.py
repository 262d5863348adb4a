#!/usr/bin/env python3
"""Makes the models of this folder and PyTorch's results of training them.

    python3 -m venv venv && venv/bin/pip install torch onnx onnxscript
    venv/bin/python test/data/parameters/make.py

NAME.onnx is what PyTorch's exporter writes with optimize=False, without metadata. Some files have metadata:
`buffers_noted`, which tells buffers from parameters, `experts_merged`, whose equal tensors the exporter has
merged (optimize=True), `learned_noted`, `scalars_noted`, and (merged) `scalars_merged`. NAME.npz:

    x, y or input_ids, y     the data, one batch
    OPTIMIZER/loss           the losses of the first steps, computed in float64
    OPTIMIZER/w/TENSOR       a parameter or buffer after these steps

bf16_gpt.npz instead has the losses of 200 AdamW steps and the distance that the weights travel in them, in
float32 and in bf16 without master weights. Made with torch 2.15.0, onnx 1.23.2, onnxscript 0.7.2.
"""

import copy
import pathlib

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 6


class FrozenCopy(nn.Module):
    """A policy and its reference model, equal at the start."""

    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)

    def forward(self, x):
        return self.policy(x) - 0.3 * self.reference(x)


class Experts(nn.Module):
    """Upcycled experts: copies of one layer with a router before them."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.router = nn.Linear(8, 3, bias=False)
        layer = nn.Sequential(nn.Linear(8, 10), nn.Tanh(), nn.Linear(10, 8))
        self.experts = nn.ModuleList([copy.deepcopy(layer) for _ in range(3)])
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        gates = self.router(x).softmax(-1)
        for i, expert in enumerate(self.experts):
            x = x + gates[:, i:i + 1] * expert(x)
        return self.head(x)


class Regression(nn.Module):
    """A head with one output and a learned temperature."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 7)
        self.temperature = nn.Parameter(torch.tensor([1.3]))
        self.head = nn.Linear(7, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(x) * self.temperature))


class Scalars(nn.Module):
    """A rank-0 temperature, a head with one output, and a GELU written with constants."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 7)
        self.temperature = nn.Parameter(torch.tensor(1.3))
        self.head = nn.Linear(7, 1)

    def forward(self, x):
        h = self.inner(x)
        h = 0.5 * h * (1 + torch.tanh((2 / np.pi) ** 0.5 * (h + 0.044715 * h ** 3)))
        return self.head(h) / self.temperature


class Buffers(nn.Module):
    """Images normalised by buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("image_mean", torch.tensor([0.5, 0.4, 0.3]).reshape(1, 3, 1, 1))
        self.register_buffer("image_std", torch.tensor([0.2, 0.3, 0.25]).reshape(1, 3, 1, 1))
        self.c = nn.Conv2d(3, 6, 3)
        self.f = nn.Linear(6, 5)

    def forward(self, x):
        x = torch.relu(self.c((x - self.image_mean) / self.image_std))
        return self.f(x.mean((2, 3)))


class Learned(nn.Module):
    """Parameters initialized with values that other models have in buffers: sinusoids, a linear range, rotary
    frequencies, ALiBi slopes, a causal mask, an identity; and a network for a relative position bias."""

    def __init__(self, vocabulary=13, width=16, length=10, heads=4):
        super().__init__()
        self.heads = heads
        at = torch.arange(length)[:, None]
        angles = at / 1000 ** (torch.arange(width // 2) / (width // 2))
        self.embed = nn.Embedding(vocabulary, width)
        self.sinusoids = nn.Parameter(torch.cat([angles.sin(), angles.cos()], -1))
        self.line = nn.Parameter(torch.linspace(-1, 1, length)[:, None] * torch.randn(1, width))
        self.gate = nn.Parameter(torch.eye(length, width))
        self.inv_freq = nn.Parameter(1 / 10000 ** (torch.arange(0, 2) / 2))
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.3, 0.17, 0.06]).view(heads, 1, 1))
        self.mask = nn.Parameter(torch.triu(torch.full((length, length), -1000.0), 1))
        self.first, self.second = nn.Linear(1, 6), nn.Linear(6, heads, bias=False)
        self.mix = nn.Parameter(torch.eye(length))
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, vocabulary)

    def rotate(self, x, angles):
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, ids):
        batch, length = ids.shape
        x = self.embed(ids) + self.sinusoids[:length] + self.line[:length]
        x = x * (1 + self.gate[:length])
        x = x + torch.einsum("ts,bsh->bth", self.mix, x)
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        at = torch.arange(length)
        angles = at[:, None] * self.inv_freq
        relative = (at[None] - at[:, None]).to(x.dtype)
        scores = self.rotate(q, angles) @ self.rotate(k, angles).transpose(-1, -2) / 2
        scores = scores + self.slopes * relative + self.mask[:length, :length]
        scores = scores + self.second(torch.relu(self.first(relative[..., None] / length))).permute(2, 0, 1)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        return self.head(x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.qkv(self.n1(x)).chunk(3, -1))
        at = torch.arange(length)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        scores = scores.masked_fill(at[None, :] > at[:, None], float("-inf"))
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.b(F.gelu(self.a(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary=43, width=24, positions=24):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList([Block(width, 4)])
        self.nf, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.nf(x))


def optimizer_of(kind, model, lr):
    trained = [p for p in model.parameters() if p.requires_grad]
    if kind == "sgd":
        return torch.optim.SGD(trained, lr=lr, momentum=0.9)
    groups = [{"params": [p for p in trained if p.dim() >= 2], "weight_decay": 0.01},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr)


def strip(model, noted):
    """Drops metadata that contains paths of the machine."""
    kept = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node") if noted else ()
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for node in model.graph.node:
        entries = [copy.deepcopy(p) for p in node.metadata_props if p.key in kept]
        del node.metadata_props[:]
        node.metadata_props.extend(entries)
        node.doc_string = ""
    for value in list(model.graph.value_info) + list(model.graph.input):
        if not noted:
            del value.metadata_props[:]
        value.doc_string = ""
    return model


def export(name, model, example, dims, names, noted=False, merged=False):
    path = HERE / f"{name}.onnx"
    program = torch.onnx.export(model.eval(), (example,), dynamo=True, dynamic_shapes=(dims,),
                                input_names=[names[0]], output_names=[names[1]], optimize=merged)
    program.save(path)
    file = strip(onnx.load(path), noted)
    onnx.save(file, path)
    return {t.name: onnx.numpy_helper.to_array(t) for t in file.graph.initializer
            if t.data_type == onnx.TensorProto.FLOAT}


def train(name, model, x, y, loss, lr, **flags):
    export(name, model, x[:2], {0: "batch"}, ("x", "y"), **flags)
    arrays = {"x": x.numpy(), "y": y.numpy()}
    for kind in ("sgd", "adamw"):
        trained = copy.deepcopy(model).double()
        x = x.double() if x.is_floating_point() else x
        optimizer = optimizer_of(kind, trained, lr if kind == "sgd" else 0.01)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            value = loss(trained(x), y)
            value.backward()
            nn.utils.clip_grad_norm_([p for p in trained.parameters() if p.requires_grad], 0.5)
            optimizer.step()
            losses.append(value.item())
        arrays[f"{kind}/loss"] = np.array(losses)
        for key, value in trained.state_dict().items():
            arrays[f"{kind}/w/{key}"] = value.numpy()
    np.savez_compressed(HERE / f"{name}.npz", **arrays)


def bf16_gpt():
    torch.manual_seed(5)
    model = GPT().bfloat16().float()
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    model = model.bfloat16()
    rng = np.random.default_rng(5)
    table = rng.integers(0, 43, (43, 2))
    ids = np.zeros((16, 20), np.int64)
    ids[:, 0] = rng.integers(0, 43, 16)
    for i in range(1, 20):
        ids[:, i] = table[ids[:, i - 1], (rng.random(16) < 0.3).astype(int)]
    tokens, labels = torch.tensor(ids[:, :-1]), torch.tensor(ids[:, 1:])
    export("bf16_gpt", model, tokens[:2], {0: "batch", 1: "sequence"}, ("input_ids", "y"),
           merged=True)
    start = {k: v.detach().double().clone() for k, v in model.named_parameters()}
    arrays = {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}
    for name, dtype, lr in (("f32", torch.float32, 1e-3), ("f32_slow", torch.float32, 1e-5),
                            ("no_masters_slow", torch.bfloat16, 1e-5)):
        trained = copy.deepcopy(model).to(dtype)
        optimizer, losses = optimizer_of("adamw", trained, lr), []
        for _ in range(200):
            optimizer.zero_grad()
            value = F.cross_entropy(trained(tokens).float().flatten(0, 1), labels.flatten())
            value.backward()
            optimizer.step()
            losses.append(value.item())
        arrays[f"{name}/loss"] = np.array(losses)
        arrays[f"{name}/distance"] = np.sqrt(sum(
            ((v.double() - start[k]) ** 2).sum().item() for k, v in trained.named_parameters()))
        print(name, losses[0], losses[-1], arrays[f"{name}/distance"])
    np.savez_compressed(HERE / "bf16_gpt.npz", **arrays)


def main():
    rng = np.random.default_rng(0)

    def data(*shape):
        return torch.tensor(rng.standard_normal(shape).astype(np.float32))

    def classes(count, rows=12):
        return torch.tensor(rng.integers(0, count, rows))

    entropy, squares = F.cross_entropy, lambda y, want: F.mse_loss(y, want.double())
    torch.manual_seed(1)
    train("frozen_copy", FrozenCopy(), data(12, 5), classes(4), entropy, 0.1)
    torch.manual_seed(2)
    experts = (Experts(), data(12, 6), classes(5), entropy, 0.1)
    train("experts", *experts)
    train("experts_merged", *experts, noted=True, merged=True)
    torch.manual_seed(3)
    train("regression", Regression(), data(12, 6), data(12, 1), squares, 0.05)
    torch.manual_seed(4)
    images, labels = torch.rand(12, 3, 6, 6, generator=torch.Generator().manual_seed(4)), classes(5)
    buffers = Buffers()
    train("buffers", buffers, images, labels, entropy, 0.05)
    train("buffers_noted", buffers, images, labels, entropy, 0.05, noted=True)
    torch.manual_seed(6)
    scalars = (Scalars(), data(12, 6), data(12, 1), squares, 0.05)
    train("scalars", *scalars)
    train("scalars_noted", *scalars, noted=True)
    train("scalars_merged", *scalars, noted=True, merged=True)
    torch.manual_seed(7)
    learned = (Learned(), torch.randint(0, 13, (8, 10)), torch.randint(0, 13, (8, 10)),
               lambda y, want: entropy(y.transpose(1, 2), want), 0.2)
    train("learned", *learned)
    train("learned_noted", *learned, noted=True)
    bf16_gpt()


if __name__ == "__main__":
    main()
