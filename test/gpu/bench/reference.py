#!/usr/bin/env python3
"""Trains GPT-2, Llama or Mixtral with PyTorch on the weights and batches that
cleave-device-bench makes, and prints the same line of JSON.

    reference.py FAMILY --hidden 768 --layers 12 ... [--device cuda] [--precision bf16]

FAMILY is gpt2, llama or mixtral, sizes are those of test/models/generate.py; the model
is that of transformers, with torch.compile, scaled_dot_product_attention, grouped
products of experts and a fused AdamW.
"""

import argparse
import contextlib
import inspect
import json
import math
import statistics
import sys
import time

import torch


def signed(value):
    return (value + 2**63) % 2**64 - 2**63


def shifted(x, bits):
    """Of int64 as if it had no sign."""
    return x >> bits & 2 ** (64 - bits) - 1


def mix(x):
    """SplitMix64's mixing function (Steele, Lea, Flood, OOPSLA 2014), modulo 2^64 in int64."""
    x = x + signed(0x9E3779B97F4A7C15)
    x = (x ^ shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shifted(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shifted(x, 31)


def seed_of(name):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def weights(name, shape, device):
    if len(shape) < 2:
        return torch.full(shape, 0.0 if name.endswith("bias") else 1.0, device=device)
    count = math.prod(shape)
    at = torch.arange(count, dtype=torch.int64, device=device) + signed(seed_of(name))
    unit = shifted(mix(at), 11).double() * 2.0**-53
    return ((2 * unit - 1) * 0.02 * 3.0**0.5).float().reshape(shape)


def tokens(step, batch, sequence, vocabulary):
    """[batch, sequence + 1]: labels are one further."""
    mixed = mix((step % 4 << 48) + (torch.arange(batch)[:, None] << 24) +
                torch.arange(sequence + 1)[None])
    # The remainder of what has no sign: 2^64 more where the sign is set.
    return (mixed % vocabulary + (mixed < 0) * (2**64 % vocabulary)) % vocabulary


def multiply_groups(rows, weights, offs):
    """Autocast leaves grouped products alone, and those of f32 are no products of
    matrix units, nor compiled: operands become bf16 here as those of others do there."""
    product = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    return product(rows.bfloat16(), weights.bfloat16(), offs=offs)


def replace_grouped_product(moe):
    """Of a module that may come to call it by another name: without a word the reference would
    multiply in f32 then, and be slow."""
    users = [f for f in vars(moe).values()
             if inspect.isfunction(f) and "_grouped_mm" in f.__code__.co_names]
    if not hasattr(moe, "_grouped_mm") or not users:
        import transformers
        sys.exit(f"reference.py: error: nothing in {moe.__name__} of transformers {transformers.__version__} "
                 "calls _grouped_mm, whose operands are to become bf16; expected 5.0 or like it: "
                 "name what it calls now in replace_grouped_product")
    moe._grouped_mm = multiply_groups


def model_of(args):
    import transformers
    import transformers.integrations.moe

    if args.family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=args.vocab, n_positions=args.positions, n_embd=args.hidden,
            n_layer=args.layers, n_head=args.heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            attn_implementation="sdpa")
        model = transformers.GPT2LMHeadModel(config)
    else:
        shared = dict(
            vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers,
            num_attention_heads=args.heads, num_key_value_heads=args.kv_heads,
            intermediate_size=args.intermediate, max_position_embeddings=args.sequence,
            tie_word_embeddings=False, attn_implementation="sdpa", rms_norm_eps=1e-6)
        if args.family == "llama":
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shared))
        else:
            grouped = args.precision == "bf16"
            if grouped:
                replace_grouped_product(transformers.integrations.moe)
            model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
                num_local_experts=args.experts, num_experts_per_tok=args.top_k,
                rope_theta=10000.0, sliding_window=None,
                experts_implementation="grouped_mm" if grouped else "eager",
                **shared))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            # The generator stores their products as [in, out].
            turned = args.family != "gpt2" and name.endswith(
                ("_proj.weight", "lm_head.weight", "mlp.gate.weight", "_proj"))

            def filled(name, *shape):
                if not turned:
                    return weights(name, shape, args.device)
                return weights(name, (*shape[:-2], *shape[:-3:-1]), args.device).mT

            if name.endswith("gate_up_proj"):
                halves = shape[0], shape[1] // 2, shape[2]
                values = torch.cat([filled(name.replace("gate_up", half), *halves)
                                    for half in ("gate", "up")], dim=1)
            else:
                values = filled(name, *shape)
            parameter.copy_(values)
    return model.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["gpt2", "llama", "mixtral"])
    for name, value in (("vocab", 257), ("layers", 5), ("hidden", 96), ("heads", 6),
                        ("kv-heads", 2), ("intermediate", 344), ("experts", 4), ("top-k", 2),
                        ("positions", 96), ("batch", 8), ("sequence", 96), ("steps", 20),
                        ("warmup", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    with torch.device(args.device):  # where they are made
        model = model_of(args)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    on_gpu = args.device.startswith("cuda")
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}], lr=args.lr,
                                  betas=(0.9, 0.999), eps=1e-8, fused=on_gpu)
    cast = (torch.autocast(args.device, torch.bfloat16) if args.precision == "bf16"
            else contextlib.nullcontext())

    def loss_of(ids, labels):
        with cast:
            logits = model(ids, use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1),
                                                     labels.flatten())

    compiled = loss_of if args.eager else torch.compile(loss_of)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    losses, times = [], []
    for step in range(1, args.warmup + args.steps + 1):
        batch = tokens(step, args.batch, args.sequence, args.vocab)
        ids = batch[:, :-1].contiguous().to(args.device)
        labels = batch[:, 1:].contiguous().to(args.device)
        if on_gpu:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
        if step > args.warmup:
            times.append((time.perf_counter() - begin) * 1e3)
        losses.append(loss.item())
    print(json.dumps({"ms": statistics.median(times),
                      "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
                      "losses": losses}))


if __name__ == "__main__":
    main()
