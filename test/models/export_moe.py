#!/usr/bin/env python3
"""Makes the models with experts, with PyTorch (versions in README.md).

    export_moe.py [--out DIR] [NAME ...]        without names also writes experts.npz, by ONNX Runtime

Decoders with two layers: Mixtral (softmax, top 2, weights that sum to one) and
DeepSeek-V3 (sigmoid, a bias that only affects the choice, the best two expert groups,
a shared expert, the first layer dense, latent attention), both from transformers; and
Mixtral with Switch's experts (top 1, the weight is the probability). `mixtral.SHAPE`
hold the weights of one Mixtral-type layer in the forms in which files store experts.
"""

import argparse
import logging
import os
import pathlib
import tempfile
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, MixtralConfig, MixtralForCausalLM

import export

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN, INTERMEDIATE, EXPERTS, VOCABULARY = 16, 24, 4, 257
BATCH, SEQUENCE = 4, 24


class Router(nn.Module):
    """Softmax over all experts, top 2, weights that sum to one."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(EXPERTS, HIDDEN))

    def forward(self, x):
        chosen, ids = torch.topk(F.softmax(F.linear(x, self.weight), dim=-1), 2, dim=-1)
        return chosen / chosen.sum(dim=-1, keepdim=True), ids


class Expert(nn.Module):
    """SwiGLU with three matrices."""

    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(INTERMEDIATE, HIDDEN))
        self.w3 = nn.Parameter(torch.empty(INTERMEDIATE, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(HIDDEN, INTERMEDIATE))

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.w1)) * F.linear(x, self.w3), self.w2)


class Layer(nn.Module):
    """A router and a list of experts, on tokens [n, hidden]."""

    def __init__(self):
        super().__init__()
        self.gate = Router()
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, hidden):
        x = hidden.reshape(-1, HIDDEN)
        weights, ids = self.gate(x)
        return self.combine(x, weights, ids).reshape(hidden.shape)


class Gathered(Layer):
    """Each expert runs on the tokens that chose it."""

    def combine(self, x, weights, ids):
        out = torch.zeros_like(x)
        mask = F.one_hot(ids, num_classes=len(self.experts)).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            slot, token = torch.where(mask[index])
            y = expert(x[token]) * weights[token, slot, None]
            out = out.index_add(0, token, y)
        return out


class Dense(Layer):
    """Each expert runs on all tokens; the weight of tokens that did not choose it is 0."""

    def combine(self, x, weights, ids):
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            weight = (weights * (ids == index).to(x.dtype)).sum(dim=-1, keepdim=True)
            out = out + expert(x) * weight
        return out


class Stacked(nn.Module):
    """Stacked matrices [experts, ., .]."""

    def __init__(self):
        super().__init__()
        self.gate = Router()
        self.w1 = nn.Parameter(torch.empty(EXPERTS, INTERMEDIATE, HIDDEN))
        self.w3 = nn.Parameter(torch.empty(EXPERTS, INTERMEDIATE, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, INTERMEDIATE))

    forward = Layer.forward


class Tiled(Stacked):
    """All experts run on all tokens, in batched products."""

    def combine(self, x, weights, ids):
        dense = torch.zeros(x.shape[0], EXPERTS, dtype=x.dtype).scatter(1, ids, weights)
        tiled = x.repeat(EXPERTS, 1).view(EXPERTS, -1, HIDDEN).transpose(1, 2)
        y = F.silu(torch.bmm(self.w1, tiled)) * torch.bmm(self.w3, tiled)
        y = torch.bmm(self.w2, y).transpose(1, 2)
        return (y * dense.transpose(0, 1)[..., None]).sum(dim=0)


class Slices(Stacked):
    """Each slot gathers its expert's matrices, in batched products."""

    def combine(self, x, weights, ids):
        rows = x.repeat_interleave(ids.shape[1], dim=0)[:, None, :]
        flat = ids.reshape(-1)
        y = F.silu(rows @ self.w1[flat].transpose(1, 2)) * (rows @ self.w3[flat].transpose(1, 2))
        y = (y @ self.w2[flat].transpose(1, 2))[:, 0] * weights.reshape(-1, 1)
        return y.view(x.shape[0], ids.shape[1], HIDDEN).sum(dim=1)


class Contrib(Stacked):
    """ONNX Runtime's operator, which includes the router."""

    def forward(self, hidden):
        x = hidden.reshape(-1, HIDDEN)
        y = torch.onnx.ops.symbolic(
            "com.microsoft::MoE", (x, F.linear(x, self.gate.weight), self.w1, None, self.w2, None, self.w3),
            attrs={"k": 2, "activation_type": "silu", "normalize_routing_weights": 1},
            dtype=x.dtype, shape=x.shape, version=1)
        return y.reshape(hidden.shape)


class SwitchExpert(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi = nn.Linear(HIDDEN, INTERMEDIATE)
        self.wo = nn.Linear(INTERMEDIATE, HIDDEN)

    def forward(self, x):
        return self.wo(F.relu(self.wi(x)))


class Switch(nn.Module):
    """Top-1 routing, weighted by the probability."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(SwitchExpert() for _ in range(EXPERTS))

    def forward(self, hidden):
        probability, chosen = torch.max(F.softmax(self.classifier(hidden), dim=-1), dim=-1)
        out = torch.zeros_like(hidden)
        for index, expert in enumerate(self.experts):
            mask = (chosen == index)[..., None]
            out = out + torch.where(mask, expert(hidden), torch.zeros_like(hidden))
        return out * probability[..., None]


def deepseek():
    config = DeepseekV3Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, moe_intermediate_size=12,
        num_hidden_layers=2, first_k_dense_replace=1, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=12,
        kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=8, n_shared_experts=1,
        num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=2.5, max_position_embeddings=64,
        tie_word_embeddings=False, use_cache=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config._experts_implementation = "batched_mm"
    return DeepseekV3ForCausalLM(config).eval()


def decoder(mlps):
    """Mixtral with other MLPs; None: those of transformers."""
    config = MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=len(mlps),
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, num_local_experts=EXPERTS,
        num_experts_per_tok=2, tie_word_embeddings=False, use_cache=False, sliding_window=None,
        bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config._experts_implementation = "batched_mm"
    model = MixtralForCausalLM(config).eval()
    for layer, make in zip(model.model.layers, mlps):
        if make:
            layer.mlp = make()
    return model


MODELS = {
    "mixtral": lambda: decoder([None, None]),
    "switch": lambda: decoder([Switch, Switch]),
    "deepseek": deepseek,
    "mixtral.gathered": lambda: decoder([Gathered]),
    "mixtral.dense": lambda: decoder([Dense]),
    "mixtral.tiled": lambda: decoder([Tiled]),
    "mixtral.slices": lambda: decoder([Slices]),
    "mixtral.contrib": lambda: decoder([Contrib]),
}
SHAPES = [name for name in MODELS if name.startswith("mixtral.")]


def initialise(model):
    """Random weights by name and expert, so that stacks and lists of one shape get the same numbers."""
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name:
                continue
            rng = np.random.default_rng([2024, *name.replace(".experts.", ".").encode()])
            if ".experts." in name and tensor.dim() < 3:
                head, tail = name.split(".experts.")
                index, tail = tail.split(".", 1)
                rng = np.random.default_rng([2024, *f"{head}.{tail}".encode()])
                values = rng.standard_normal((int(index) + 1, *tensor.shape))[-1]
            else:
                values = rng.standard_normal(tensor.shape)
            scale, mean = (0.3, 0.0) if tensor.dim() >= 2 else (0.2, 1.0 if "norm" in name else 0.0)
            tensor.copy_(torch.from_numpy((mean + scale * values).astype(np.float32)))


def make(name, folder):
    model = MODELS[name]()
    initialise(model)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (3, 13), generator=generator)
    with tempfile.TemporaryDirectory() as scratch:
        raw = os.path.join(scratch, "model.onnx")
        torch.onnx.export(model, (), raw, kwargs={"input_ids": ids}, dynamo=True, opset_version=20,
                          external_data=False, input_names=["input_ids"], output_names=["logits"],
                          dynamic_shapes={"input_ids": {0: "batch", 1: "sequence"}}, verbose=False)
        proto = onnx.load(raw)
    export.strip_metadata(proto)
    for node in proto.graph.node:
        del node.metadata_props[:]
    del proto.graph.value_info[:]
    path = folder / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString(deterministic=True))
    (folder / f"{name}.toml").write_text(
        f"# Binds the symbolic dimensions of {name}.onnx; see README.md.\n"
        f"[dims]\nbatch = {BATCH}\nsequence = {SEQUENCE}\n\n[train]\nloss = \"cross_entropy\"\n")
    print(f"{path.name}: {len(proto.graph.node)} nodes, {path.stat().st_size} bytes", flush=True)
    return model


def make_layer(folder):
    """The layer alone, by TorchScript, which accumulates rows by assigning into zeros."""
    layer = MODELS["mixtral.gathered"]().model
    initialise(layer)
    x = torch.randn((3, 13, HIDDEN), generator=torch.Generator().manual_seed(1))
    path = folder / "mixtral.ts17.onnx"
    with tempfile.TemporaryDirectory() as scratch:
        raw = os.path.join(scratch, "model.onnx")
        torch.onnx.export(layer.layers[0].mlp, (x,), raw, dynamo=False, opset_version=17, input_names=["x"],
                          output_names=["y"], dynamic_axes={"x": {0: "batch", 1: "sequence"}})
        proto = onnx.load(raw)
    del proto.graph.value_info[:]
    path.write_bytes(proto.SerializeToString(deterministic=True))
    path.with_suffix(".toml").write_text(
        f"# Binds the symbolic dimensions of {path.name}; see README.md.\n"
        f"[dims]\nbatch = {BATCH}\nsequence = {SEQUENCE}\n")
    print(f"{path.name}: {len(proto.graph.node)} nodes, {path.stat().st_size} bytes", flush=True)


def write_references(folder):
    """The results of ONNX Runtime: logits of every eighth position for fixed tokens, and
    outputs of the layer alone."""
    import onnxruntime

    ids = np.random.default_rng(5).integers(0, VOCABULARY, (BATCH, SEQUENCE))
    arrays = {"input_ids": ids}
    for name in MODELS:
        if name in SHAPES and name != "mixtral.dense":  # the others compute the same
            continue
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        arrays[name] = session.run(None, {"input_ids": ids})[0][:, ::8]
    session = onnxruntime.InferenceSession(folder / "mixtral.ts17.onnx", providers=["CPUExecutionProvider"])
    arrays["x"] = np.random.default_rng(6).standard_normal((BATCH, SEQUENCE, HIDDEN)).astype(np.float32)
    arrays["y"] = session.run(None, {"x": arrays["x"]})[0]
    export.save_npz(folder / "experts.npz", arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in args.names or MODELS:
        make(name, args.out)
    if not args.names:
        make_layer(args.out)
        write_references(args.out)


if __name__ == "__main__":
    main()
