#!/usr/bin/env python3
"""Makes losses.onnx and losses.npz with PyTorch: losses that are part of the model, in common
spellings, and the results of training with them.

    export_losses.py

Needs torch, onnx, onnxscript (versions in README.md). losses.onnx has an output for each spelling,
and some losses that do not accumulate over parts of the batch. losses.npz has the data (six samples
with uneven numbers of counted labels; each step uses all of them) and, for each spelling and
optimizer, the losses of four steps and the weights after them, computed in double:

    ids, y, target                   [6, 5]; [6, 5], -100 where not counted; [6, 3]
    OPTIMIZER/SPELLING/losses        [4]
    OPTIMIZER/SPELLING/PARAMETER
"""

import copy
import pathlib

import numpy as np
import onnx
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
SPELLINGS = ("scaled", "clamped", "root", "classes", "smoothed", "two_means", "weights_first",
             "per_sample", "summed")
MIXING = ("contrastive", "variance")
OPTIMIZERS = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
              "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0)}
CLASSES, TARGETS = 7, 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)
        self.hidden = torch.nn.Linear(6, 8)
        self.head = torch.nn.Linear(8, CLASSES)
        self.side = torch.nn.Linear(8, TARGETS)

    def forward(self, ids, y, target):
        x = torch.tanh(self.hidden(self.table(ids)))
        logits, side = self.head(x), self.side(x.mean(1))
        counted = (y != -100).to(logits.dtype)
        labels = torch.where(y == -100, 0, y)
        logp = F.log_softmax(logits, -1)
        chosen = (labels.unsqueeze(-1) == torch.arange(CLASSES)).to(logits.dtype)
        nll = -(logp * chosen).sum(-1)
        total, count = (nll * counted).sum(), counted.sum()
        rate = (0.5 + 0.25 * labels.to(logits.dtype)) * counted
        z = F.normalize(x.mean(1), dim=-1)
        scores = F.log_softmax(5 * z @ z.T, -1)
        return (
            0.5 * (total / count),
            total / count.clamp(min=1.0),
            total / torch.sqrt(count),
            (nll * rate).sum() / rate.sum(),
            0.9 * (total / count) + 0.1 * (-(logp.sum(-1) * counted).sum() / (count * CLASSES)),
            total / count + 0.3 * F.mse_loss(side, target),
            (nll * (counted / counted.sum())).sum(),
            ((nll * counted).sum(1) / counted.sum(1).clamp(min=1.0)).mean(),
            0.01 * total,
            -(scores * torch.eye(z.shape[0])).sum() / z.shape[0],
            total / count + ((side - side.mean(0)) ** 2).mean(),
        )


def data():
    rng = np.random.default_rng(4)
    ids = rng.integers(0, 11, (6, 5))
    y = rng.integers(0, CLASSES, (6, 5))
    for row, left in enumerate((5, 1, 3, 2, 4, 1)):
        y[row, left:] = -100
    return ids, y, rng.standard_normal((6, TARGETS)).astype(np.float32)


def export(model, arrays):
    batch = torch.export.Dim("batch", min=2)
    program = torch.onnx.export(
        model, tuple(map(torch.tensor, arrays)), dynamo=True, opset_version=20, optimize=False,
        input_names=["ids", "y", "target"], output_names=list(SPELLINGS + MIXING),
        dynamic_shapes=({0: batch}, {0: batch}, {0: batch}))
    proto = program.model_proto
    for node in proto.graph.node:
        del node.metadata_props[:]
    for value in [*proto.graph.value_info, *proto.graph.input, *proto.graph.output]:
        del value.metadata_props[:]
    del proto.metadata_props[:], proto.graph.metadata_props[:], proto.graph.value_info[:]
    onnx.save(proto, HERE / "losses.onnx")


def train(model, arrays, spelling, make):
    """The losses of four steps, and the weights after them, in double."""
    model = copy.deepcopy(model).double()
    ids, y, target = map(torch.tensor, arrays)
    optimizer, losses = make(model.parameters()), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(ids, y, target.double())[SPELLINGS.index(spelling)]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in model.named_parameters()}


def main():
    torch.manual_seed(3)
    model, arrays = Model(), data()
    export(model, arrays)
    results = dict(zip(("ids", "y", "target"), arrays))
    for name, make in OPTIMIZERS.items():
        for spelling in SPELLINGS:
            losses, weights = train(model, arrays, spelling, make)
            results[f"{name}/{spelling}/losses"] = np.array(losses)
            for parameter, value in weights.items():
                results[f"{name}/{spelling}/{parameter}"] = value.astype(np.float32)
    np.savez_compressed(HERE / "losses.npz", **results)


if __name__ == "__main__":
    main()
