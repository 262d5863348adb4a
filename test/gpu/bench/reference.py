#!/usr/bin/env python3
"""Trains GPT-2 or Llama with PyTorch on the weights and batches that
cleave-device-bench makes, and prints the same line of JSON.

    reference.py FAMILY --hidden 768 --layers 12 ... [--device cuda] [--precision bf16]

FAMILY is gpt2 or llama, sizes are those of test/models/generate.py; the model is that
of transformers, with torch.compile, scaled_dot_product_attention and a fused AdamW.
"""

import argparse
import contextlib
import json
import statistics
import time

import numpy as np
import torch


def mix(x):
    """SplitMix64's mixing function (Steele, Lea, Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        x = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def seed_of(name):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def weights(name, shape):
    if len(shape) < 2:
        return np.full(shape, 0 if name.endswith("bias") else 1, np.float32)
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        at = np.uint64(seed_of(name)) + np.arange(count, dtype=np.uint64)
    unit = (mix(at) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return ((2 * unit - 1) * 0.02 * np.sqrt(3.0)).astype(np.float32).reshape(shape)


def tokens(step, batch, sequence, vocabulary):
    """[batch, sequence + 1]: labels are one further."""
    at = (step % 4 << 48 | np.arange(batch, dtype=np.uint64)[:, None] << np.uint64(24) |
          np.arange(sequence + 1, dtype=np.uint64)[None])
    return (mix(at) % np.uint64(vocabulary)).astype(np.int64)


def model_of(args):
    import transformers

    if args.family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=args.vocab, n_positions=args.positions, n_embd=args.hidden,
            n_layer=args.layers, n_head=args.heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            attn_implementation="sdpa")
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers,
            num_attention_heads=args.heads, num_key_value_heads=args.kv_heads,
            intermediate_size=args.intermediate, max_position_embeddings=args.sequence,
            tie_word_embeddings=False, attn_implementation="sdpa")
        model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            # The generator stores Llama's products as [in, out].
            turned = args.family == "llama" and name.endswith(("_proj.weight", "lm_head.weight"))
            values = weights(name, shape[::-1]).T.copy() if turned else weights(name, shape)
            parameter.copy_(torch.from_numpy(values))
    return model.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["gpt2", "llama"])
    for name, value in (("vocab", 257), ("layers", 5), ("hidden", 96), ("heads", 6),
                        ("kv-heads", 2), ("intermediate", 344), ("positions", 96), ("batch", 8),
                        ("sequence", 96), ("steps", 20), ("warmup", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    model = model_of(args).to(args.device)
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
        batch = torch.from_numpy(tokens(step, args.batch, args.sequence, args.vocab))
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
