#!/usr/bin/env python3
"""Makes t5.onnx, an encoder-decoder model, with PyTorch (versions in README.md).

    export_t5.py [--out DIR]

T5 with two layers on either side; encoder, decoder and head read one token
table, and all layers of a side share a relative position table. Weights are
random, from a fixed seed.
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
import transformers
from transformers import T5Config, T5ForConditionalGeneration

import export

HERE = pathlib.Path(__file__).resolve().parent
OPSET = 17


def build():
    config = T5Config(
        vocab_size=257, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_decoder_layers=2,
        num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=32,
        dropout_rate=0.0, feed_forward_proj="relu", tie_word_embeddings=True,
        use_cache=False, decoder_start_token_id=0, pad_token_id=0, eos_token_id=None)
    model = T5ForConditionalGeneration(config).eval()
    rng = np.random.default_rng(2024)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = rng.standard_normal(parameter.shape)
            value = 0.2 * noise if parameter.dim() >= 2 else 1.0 + 0.2 * noise
            parameter.copy_(torch.from_numpy(value.astype(np.float32)))
    return model


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids).logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()

    model = build()
    names = ["input_ids", "decoder_input_ids"]
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 257, (3, 13), generator=generator)
    targets = torch.randint(0, 257, (3, 11), generator=generator)
    with tempfile.TemporaryDirectory() as scratch:
        raw = os.path.join(scratch, "model.onnx")
        # By tracing: the other exporter rejects a reshape in T5's attention if
        # both lengths are symbolic.
        torch.onnx.export(
            Logits(model), (ids, targets), raw, dynamo=False, opset_version=OPSET,
            input_names=names, output_names=["logits"],
            dynamic_axes={"input_ids": {0: "batch", 1: "source"},
                          "decoder_input_ids": {0: "batch", 1: "sequence"},
                          "logits": {0: "batch", 1: "sequence"}})
        proto = onnx.load(raw)
    export.strip_metadata(proto)
    onnx.checker.check_model(proto)
    path = args.out / "t5.onnx"
    path.write_bytes(proto.SerializeToString(deterministic=True))
    print(f"{path.name}: {len(proto.graph.node)} nodes, {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
