"""Times training steps of a Llama on a long sequence in PyTorch; one process for each rank.

usage: torch_long.py SPEC.json RANK

SPEC has the model's sizes (named as in test/models/generate.py), `sequence`, `ranks`,
`threads`, `steps`, `warmup`, `mode`, and `rendezvous`, a file that does not exist yet.
Modes: "sdpa", one rank; "all-gather", positions in zig-zag order, keys and values
all-gathered in every layer, as in Llama 3; "context_parallel", PyTorch's own.
Prints the median time of a step in milliseconds."""

import contextlib
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import torch_models


def parameters(sizes):
    """Random parameters of torch_models.llama."""
    hidden, inner = sizes["hidden"], sizes["intermediate"]
    kv = hidden // sizes["heads"] * sizes["kv_heads"]
    shapes = {"model.embed_tokens.weight": (sizes["vocab"], hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (sizes["vocab"], hidden)}
    for i in range(sizes["layers"]):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (hidden,),
                   at + "post_attention_layernorm.weight": (hidden,),
                   at + "self_attn.q_proj.weight": (hidden, hidden),
                   at + "self_attn.k_proj.weight": (kv, hidden),
                   at + "self_attn.v_proj.weight": (kv, hidden),
                   at + "self_attn.o_proj.weight": (hidden, hidden),
                   at + "mlp.gate_proj.weight": (inner, hidden),
                   at + "mlp.up_proj.weight": (inner, hidden),
                   at + "mlp.down_proj.weight": (hidden, inner)}
    return {name: (torch.randn(shape) * 0.02 + (len(shape) == 1)).requires_grad_()
            for name, shape in shapes.items()}


def chunks_of(x, dim):
    """The parts of a whole sequence, two per rank."""
    return x.chunk(2 * dist.get_world_size(), dim)


def own_part(x, dim):
    chunks, rank = chunks_of(x, dim), dist.get_rank()
    return torch.cat((chunks[rank], chunks[-1 - rank]), dim)


class GatherKeys(torch.autograd.Function):
    """All-gathers [batch, heads, positions, size], in the order of positions."""

    @staticmethod
    def forward(ctx, x):
        tiles = [torch.empty_like(x, memory_format=torch.contiguous_format)
                 for _ in range(dist.get_world_size())]
        dist.all_gather(tiles, x.contiguous())
        halves = [tile.chunk(2, 2) for tile in tiles]
        return torch.cat([early for early, _ in halves] + [late for _, late in halves[::-1]], 2)

    @staticmethod
    def backward(ctx, grad):
        chunks = chunks_of(grad, 2)
        tiles = [torch.cat((chunks[rank], chunks[-1 - rank]), 2)
                 for rank in range(dist.get_world_size())]
        own = torch.empty_like(tiles[0])
        dist.reduce_scatter(own, tiles)
        return own


def gathered_attention(q, k, v):
    k, v = GatherKeys.apply(k), GatherKeys.apply(v)
    positions = own_part(torch.arange(k.shape[2]), 0)
    results = []
    for queries, at in zip(q.chunk(2, 2), positions.chunk(2)):
        end = int(at[-1]) + 1
        seen = torch.arange(end) <= at[:, None]
        results.append(F.scaled_dot_product_attention(queries, k[:, :, :end], v[:, :, :end],
                                                      attn_mask=seen))
    return torch.cat(results, 2)


def main():
    spec, rank = json.load(open(sys.argv[1])), int(sys.argv[2])
    sizes, ranks, mode = spec["sizes"], spec["ranks"], spec["mode"]
    torch.set_num_threads(spec["threads"])
    torch.manual_seed(1)
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{spec['rendezvous']}", rank=rank,
                                world_size=ranks)
    weights = parameters(sizes)
    optimizer = torch.optim.AdamW(weights.values(), lr=3e-4)
    tokens = torch.randint(0, sizes["vocab"], (1, spec["sequence"] + 1))
    ids, labels, positions = tokens[:, :-1], tokens[:, 1:], torch.arange(spec["sequence"])
    torch_models.attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    split = contextlib.nullcontext()
    if mode == "all-gather":
        torch_models.attention = gathered_attention
        ids, labels, positions = own_part(ids, 1), own_part(labels, 1), own_part(positions, 0)
    elif mode == "context_parallel":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel
        ids, labels = ids.clone(), labels.clone()
        split = context_parallel(init_device_mesh("cpu", (ranks,)),
                                 buffers=[ids, labels, positions], buffer_seq_dims=[1, 1, 0])
    times = []
    with split:
        for _ in range(spec["warmup"] + spec["steps"]):
            if ranks > 1:
                dist.barrier()
            begin = time.perf_counter()
            optimizer.zero_grad()
            logits = torch_models.llama(weights, sizes, ids, positions)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) / ranks
            loss.backward()
            if ranks > 1:
                whole = torch.cat([weight.grad.flatten() for weight in weights.values()])
                dist.all_reduce(whole)
                parts = whole.split([weight.numel() for weight in weights.values()])
                for weight, part in zip(weights.values(), parts):
                    weight.grad.copy_(part.view_as(weight))
            torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
            optimizer.step()
            times.append((time.perf_counter() - begin) * 1e3)
    if rank == 0:
        print(statistics.median(times[spec["warmup"]:]))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
