"""GPT-2 and Llama in plain PyTorch, on parameters by name: an implementation independent
of the exporter's and the compiler's."""

import json
import math
import pathlib

import numpy as np
import onnx
import onnx.numpy_helper
import torch
import torch.nn.functional as F

MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"


def names_of(name):
    return json.loads((MODELS / f"{name}.names.json").read_text())


def load_parameters(name, dtype):
    """The parameters of a model file by PyTorch's names and in its layout."""
    entries = names_of(name)["parameters"]
    result = {}
    for tensor in onnx.load(MODELS / f"{name}.onnx").graph.initializer:
        entry = entries.get(tensor.name)
        if entry and entry["parameter"] not in result:
            value = onnx.numpy_helper.to_array(tensor)
            value = value.T if entry["transposed"] else value
            result[entry["parameter"]] = torch.tensor(value.copy(), dtype=dtype, requires_grad=True)
    return result


def attention(q, k, v):
    """Causal attention on [batch, heads, sequence, size]; fewer key heads are shared."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    size = scores.shape[-1]
    scores = scores.masked_fill(torch.triu(torch.ones(size, size, dtype=torch.bool), 1), -math.inf)
    return torch.softmax(scores, -1) @ v


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def gpt2(p, sizes, ids):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][: ids.shape[1]]
    for i in range(sizes["layers"]):
        at = f"transformer.h.{i}."
        q, k, v = (heads(part, sizes["heads"])
                   for part in linear(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, -1))
        x = x + linear(merge(attention(q, k, v)), at + "attn.c_proj")
        hidden = F.gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh")
        x = x + linear(hidden, at + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T


def llama(p, sizes, ids, positions=None):
    """`positions` [sequence] of the tokens; default: 0, 1, ..."""
    def norm(x, name):
        return p[name] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    size = sizes["hidden"] // sizes["heads"]
    frequency = 1.0 / 10000.0 ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    if positions is None:
        positions = torch.arange(ids.shape[1])
    angles = torch.outer(positions.float(), frequency)
    angles = torch.cat((angles, angles), -1).to(p["model.norm.weight"].dtype)

    def rotate(x):
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat((-b, a), -1) * angles.sin()

    x = p["model.embed_tokens.weight"][ids]
    for i in range(sizes["layers"]):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = (heads(h @ p[f"{at}self_attn.{part}_proj.weight"].T, count)
                   for part, count in (("q", sizes["heads"]), ("k", sizes["kv_heads"]),
                                       ("v", sizes["kv_heads"])))
        x = x + merge(attention(rotate(q), rotate(k), v)) @ p[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm.weight")
        h = F.silu(h @ p[at + "mlp.gate_proj.weight"].T) * (h @ p[at + "mlp.up_proj.weight"].T)
        x = x + h @ p[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ p["lm_head.weight"].T


def logits(name, parameters, ids):
    names = names_of(name)
    forward = gpt2 if names["family"] == "gpt2" else llama
    return forward(parameters, names["sizes"], torch.as_tensor(np.asarray(ids)))


def loss(name, parameters, ids, labels):
    """Mean over the counted labels."""
    return F.cross_entropy(logits(name, parameters, ids).flatten(0, 1),
                           torch.as_tensor(np.asarray(labels)).flatten(), ignore_index=-100)
