"""Times training steps of one layer of experts in PyTorch: transformers' Mixtral block.

usage: torch_moe.py SPEC.json

SPEC has the sizes (named as in test/models/experts_layer.py), `threads`, `steps` and `warmup`.
Prints the median time of a step in milliseconds (AdamW, clipping)."""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock


class Model(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        config = MixtralConfig(hidden_size=spec["hidden"], intermediate_size=spec["intermediate"],
                               num_local_experts=spec["experts"],
                               num_experts_per_tok=spec["chosen"])
        self.embed = torch.nn.Embedding(spec["vocab"], spec["hidden"])
        self.experts = MixtralSparseMoeBlock(config)
        self.head = torch.nn.Linear(spec["hidden"], spec["vocab"], bias=False)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.embed(ids)
        y = self.experts(x)
        return self.head(x + (y[0] if isinstance(y, tuple) else y))


def main():
    spec = json.load(open(sys.argv[1]))
    torch.set_num_threads(spec["threads"])
    torch.manual_seed(0)
    model = Model(spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ids = torch.randint(0, spec["vocab"], (spec["batch"], spec["sequence"] + 1))
    times = []
    for _ in range(spec["warmup"] + spec["steps"]):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        float(loss.detach())
        times.append((time.perf_counter() - begin) * 1e3)
    print(statistics.median(times[spec["warmup"]:]))


if __name__ == "__main__":
    main()
