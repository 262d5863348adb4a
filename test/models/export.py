#!/usr/bin/env python3
"""Makes the ONNX models of this folder, and their reference results, with PyTorch.

    export.py [--out DIR] [NAME ...]              the committed files (default: all)
    export.py --custom FILE.onnx --family llama --layers 24 ...   any other size

Needs torch, transformers, onnx, onnxscript (versions in README.md). Nothing
that builds or tests the compiler runs this script; it only makes files.

Every model has random weights from a fixed seed. Biases, norm gains and norm
shifts are random too: equal values would be merged into one initializer by the
exporter and zero biases dropped, and both would hide mistakes.
"""

import argparse
import dataclasses
import json
import logging
import math
import os
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnx.numpy_helper
import torch
import torch.nn.functional as F
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent

# All other node metadata of the exporters (stack traces, class hierarchies) is
# larger than the graph itself and of no use to a compiler.
KEPT_METADATA = {"pkg.torch.onnx.name_scopes"}


@dataclasses.dataclass(frozen=True)
class Sizes:
    family: str  # gpt2 | llama
    vocab: int = 257
    layers: int = 5
    hidden: int = 96
    heads: int = 6
    kv_heads: int = 2
    intermediate: int = 344
    positions: int = 96
    seed: int = 2024


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    sizes: Sizes
    exporter: str  # dynamo | torchscript
    opset: int
    reference: str  # stem of the .npz, "" for none
    fresh: bool = False  # weights as before training, instead of random ones
    batch: int = 8
    sequence: int = 96
    train: str = ""  # additional lines of the .toml


GPT2 = Sizes("gpt2")
LLAMA = Sizes("llama", hidden=128, heads=8, kv_heads=2, intermediate=344)
QUICKSTART = Sizes("gpt2", hidden=192, heads=6, layers=5, positions=128, seed=7)

QUICKSTART_TRAIN = """\
lr = 2e-3
betas = [0.9, 0.95]
weight_decay = 0.01
clip_norm = 1.0
schedule = "cosine"
warmup_steps = 20
min_lr = 1e-4
steps = 300
"""

VARIANTS = [
    Variant("gpt2", GPT2, "dynamo", 20, "gpt2"),
    Variant("gpt2.ts17", GPT2, "torchscript", 17, "gpt2"),
    Variant("gpt2.dynamo18", GPT2, "dynamo", 18, "gpt2"),
    Variant("gpt2.dynamo23", GPT2, "dynamo", 23, "gpt2"),
    Variant("llama", LLAMA, "dynamo", 20, "llama"),
    Variant("llama.ts17", LLAMA, "torchscript", 17, "llama"),
    Variant("llama.dynamo18", LLAMA, "dynamo", 18, "llama"),
    Variant("llama.dynamo23", LLAMA, "dynamo", 23, "llama"),
    Variant("quickstart", QUICKSTART, "dynamo", 20, "", fresh=True, batch=16,
            sequence=128, train=QUICKSTART_TRAIN),
]


def build(sizes):
    """The Hugging Face model in evaluation mode, without a key-value cache."""
    common = dict(vocab_size=sizes.vocab, use_cache=False, bos_token_id=None,
                  eos_token_id=None, pad_token_id=None)
    if sizes.family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(
            n_positions=sizes.positions, n_embd=sizes.hidden, n_layer=sizes.layers,
            n_head=sizes.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            **common))
    else:
        model = LlamaForCausalLM(LlamaConfig(
            hidden_size=sizes.hidden, intermediate_size=sizes.intermediate,
            num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.kv_heads, max_position_embeddings=sizes.positions,
            tie_word_embeddings=False, **common))
    return model.eval()


def initialise(model, sizes, fresh):
    """Fills every parameter from NumPy's generator: the same bits everywhere.

    `fresh` follows GPT-2: one standard deviation for matrices, a smaller one for the
    projections that write to the residual stream; 0.05 where GPT-2 has 0.02, because with a
    width of 192 training needs a third fewer steps. Gains are 1 and biases 0, up to noise of
    1e-3, so that no two initializers have equal contents.
    """
    rng = np.random.default_rng(sizes.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = rng.standard_normal(parameter.shape)
            if parameter.dim() >= 2:
                scale = 0.05 if fresh else 0.1
                if fresh and name.endswith("c_proj.weight"):
                    scale /= math.sqrt(2 * sizes.layers)
                value = scale * noise
            elif name.endswith("bias"):
                value = (1e-3 if fresh else 0.1) * noise
            else:
                value = 1.0 + (1e-3 if fresh else 0.2) * noise
            parameter.copy_(torch.from_numpy(value.astype(np.float32)))


class TupleOutput(torch.nn.Module):
    """Takes positional arguments and returns tensors, as the tracer requires."""

    def __init__(self, lm):
        super().__init__()
        self.lm = lm

    def forward(self, input_ids, attention_mask):
        return self.lm(input_ids=input_ids, attention_mask=attention_mask).logits


def run_exporter(model, variant, path):
    """Exports with torch.onnx.export, all weights inside the file."""
    generator = torch.Generator().manual_seed(1)
    # Sizes that occur nowhere else in the model, so that no dimension is specialised.
    ids = torch.randint(0, variant.sizes.vocab, (3, 13), generator=generator)
    if variant.exporter == "torchscript":
        # Without a mask the tracer meets aten::diff (packed-sequence
        # detection), which it cannot export; with it, it is the usual pair of
        # inputs of Hugging Face exports.
        names = ["input_ids", "attention_mask"]
        dynamic = {n: {0: "batch", 1: "sequence"} for n in names + ["logits"]}
        torch.onnx.export(TupleOutput(model), (ids, torch.ones_like(ids)), path,
                          dynamo=False, opset_version=variant.opset, input_names=names,
                          output_names=["logits"], dynamic_axes=dynamic)
    else:
        torch.onnx.export(model, (), path, kwargs={"input_ids": ids}, dynamo=True,
                          opset_version=variant.opset, external_data=False,
                          input_names=["input_ids"], output_names=["logits"],
                          dynamic_shapes={"input_ids": {0: "batch", 1: "sequence"}},
                          verbose=False)


def strip_metadata(proto):
    graphs = [proto.graph] + list(proto.functions)
    for holder in [proto] + graphs:
        del holder.metadata_props[:]
    for graph in graphs:
        for node in graph.node:
            kept = [(p.key, p.value) for p in node.metadata_props if p.key in KEPT_METADATA]
            del node.metadata_props[:]
            for key, value in kept:
                node.metadata_props.add(key=key, value=value)
            node.doc_string = ""
    for value in list(proto.graph.value_info) + list(proto.graph.input) + list(proto.graph.output):
        del value.metadata_props[:]
    for tensor in proto.graph.initializer:
        del tensor.metadata_props[:]


def trainable_state(model):
    """Parameters by name, a tied one once (under its first name)."""
    return dict(model.named_parameters())


def map_names(proto, model):
    """Maps initializers to parameters by content; exporters rename and transpose.

    Returns (parameters, constants): every float initializer with at least one
    dimension either equals a parameter (or its transpose) or is listed as a
    constant, such as the rotary frequencies.
    """
    torch_values = {k: v.detach().numpy() for k, v in trainable_state(model).items()}
    parameters, constants = {}, []
    for tensor in proto.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        value = onnx.numpy_helper.to_array(tensor)
        for name, want in torch_values.items():
            if value.shape == want.shape and np.array_equal(value, want):
                parameters[tensor.name] = {"parameter": name, "transposed": False}
                break
            if want.ndim == 2 and value.shape == want.T.shape and np.array_equal(value, want.T):
                parameters[tensor.name] = {"parameter": name, "transposed": True}
                break
        else:
            constants.append(tensor.name)
    missing = set(torch_values) - {p["parameter"] for p in parameters.values()}
    if missing:
        raise SystemExit(f"no initializer holds {sorted(missing)}")
    return parameters, constants


def write_names(variant, parameters, constants, path):
    by_parameter = {}
    for onnx_name, entry in parameters.items():
        by_parameter.setdefault(entry["parameter"], []).append(onnx_name)
    content = {
        "family": variant.sizes.family,
        "sizes": dataclasses.asdict(variant.sizes),
        "reference": variant.reference + ".npz" if variant.reference else "",
        "parameters": parameters,
        "tied": [names for names in by_parameter.values() if len(names) > 1],
        "constants": constants,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_toml(variant, path):
    mask = "" if variant.exporter == "dynamo" else (
        '\n[data]\ninputs = { attention_mask = "ones" }\n')
    path.write_text(
        f"# Binds the symbolic dimensions of {variant.name}.onnx; see README.md.\n"
        f"[dims]\nbatch = {variant.batch}\nsequence = {variant.sequence}\n{mask}\n"
        f'[train]\nloss = "cross_entropy"\n{variant.train}')


class DoubleRMSNorm(torch.nn.Module):
    """LlamaRMSNorm without its cast to float32."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


class DoubleRotary(torch.nn.Module):
    """LlamaRotaryEmbedding in float64, from the float32 frequencies of the file."""

    def __init__(self, frequencies):
        super().__init__()
        self.frequencies = frequencies.double()

    def forward(self, x, position_ids):
        angles = position_ids[:, :, None].double() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def in_double(model):
    model = model.double()
    if isinstance(model, LlamaForCausalLM):
        frequencies = model.model.rotary_emb.inv_freq.float()
        model.model.rotary_emb = DoubleRotary(frequencies)
        model.model.norm = DoubleRMSNorm(model.model.norm)
        for layer in model.model.layers:
            layer.input_layernorm = DoubleRMSNorm(layer.input_layernorm)
            layer.post_attention_layernorm = DoubleRMSNorm(layer.post_attention_layernorm)
    return model


def reference_inputs(variant):
    """Random tokens; labels are the tokens shifted by one, some not counted."""
    rng = np.random.default_rng(variant.sizes.seed + 1)
    shape = (variant.batch, variant.sequence + 1)
    tokens = rng.integers(0, variant.sizes.vocab, shape, dtype=np.int64)
    labels = tokens[:, 1:].copy()
    labels[rng.random(labels.shape) < 0.1] = -100
    labels[2, variant.sequence // 2:] = -100  # the second half of this sample is padding
    return tokens[:, :-1].copy(), labels


def write_reference(variant, path):
    """Loss, logits and every gradient, computed in float64."""
    model = build(variant.sizes)
    initialise(model, variant.sizes, variant.fresh)
    model = in_double(model)
    ids, labels = reference_inputs(variant)
    logits = model(input_ids=torch.from_numpy(ids), use_cache=False).logits
    if logits.dtype != torch.float64:
        raise SystemExit(f"reference logits are {logits.dtype}, expected float64")
    loss_sum = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(labels).flatten(),
                               ignore_index=-100, reduction="sum")
    weight = int((labels != -100).sum())
    loss = loss_sum / weight
    loss.backward()
    arrays = {
        "input_ids": ids,
        "labels": labels,
        "logits": logits[:2].detach().numpy().astype(np.float32),
        "loss": np.float64(loss.item()),
        "loss_sum": np.float64(loss_sum.item()),
        "weight": np.int64(weight),
    }
    for name, parameter in trainable_state(model).items():
        arrays["grad/" + name] = parameter.grad.numpy().astype(np.float32)
    save_npz(path, arrays)
    return float(loss)


def save_npz(path, arrays):
    """np.savez_compressed with fixed timestamps: equal inputs give equal bytes."""
    import io
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(name + ".npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, buffer.getvalue())


def export(variant, folder):
    path = folder / f"{variant.name}.onnx"
    model = build(variant.sizes)
    initialise(model, variant.sizes, variant.fresh)
    with tempfile.TemporaryDirectory() as scratch:
        raw = os.path.join(scratch, "model.onnx")
        run_exporter(model, variant, raw)
        proto = onnx.load(raw)
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    if opset != variant.opset:
        raise SystemExit(f"{variant.name}: the exporter wrote opset {opset}, not {variant.opset}")
    strip_metadata(proto)
    onnx.checker.check_model(proto)
    parameters, constants = map_names(proto, model)
    path.write_bytes(proto.SerializeToString(deterministic=True))
    write_names(variant, parameters, constants, folder / f"{variant.name}.names.json")
    write_toml(variant, folder / f"{variant.name}.toml")
    print(f"{path.name}: opset {opset}, {len(proto.graph.node)} nodes, "
          f"{len(parameters)} parameters, {path.stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="variants to make; default: all")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--custom", type=pathlib.Path, metavar="FILE.onnx",
                        help="make one model of the sizes below instead")
    parser.add_argument("--family", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--exporter", choices=["dynamo", "torchscript"], default="dynamo")
    parser.add_argument("--opset", type=int, default=20)
    for field in dataclasses.fields(Sizes):
        if field.name != "family":
            parser.add_argument("--" + field.name.replace("_", "-"), type=int)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int)
    args = parser.parse_args()

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()

    if args.custom:
        given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Sizes)
                 if getattr(args, f.name) is not None}
        sizes = dataclasses.replace(GPT2 if args.family == "gpt2" else LLAMA, **given)
        stem = args.custom.name.removesuffix(".onnx")
        variants = [Variant(stem, sizes, args.exporter, args.opset, stem, batch=args.batch,
                            sequence=args.sequence or sizes.positions)]
        folder = args.custom.parent
    else:
        unknown = set(args.names) - {v.name for v in VARIANTS}
        if unknown:
            parser.error(f"unknown variants {sorted(unknown)}; known: {[v.name for v in VARIANTS]}")
        variants = [v for v in VARIANTS if not args.names or v.name in args.names]
        folder = args.out
    folder.mkdir(parents=True, exist_ok=True)

    done = set()
    for variant in variants:
        export(variant, folder)
        if variant.reference and not args.no_reference and variant.reference not in done:
            loss = write_reference(variant, folder / f"{variant.reference}.npz")
            done.add(variant.reference)
            print(f"{variant.reference}.npz: loss {loss:.6f}", flush=True)


if __name__ == "__main__":
    main()
