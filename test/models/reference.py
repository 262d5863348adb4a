#!/usr/bin/python3
"""The reference results of one committed model, by its initializers' names.

    reference.py gpt2.ts17 OUT.npz

Writes input_ids, labels, loss, loss_sum, weight, logits (first two samples) and
grad/INITIALIZER in the initializer's own layout. Tied initializers carry the
gradient of the tied parameter under the first of their names only.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def load(name):
    names = json.loads((HERE / f"{name}.names.json").read_text())
    if not names["reference"]:
        raise ValueError(f"{name} has no reference results")
    stored = np.load(HERE / names["reference"])
    arrays = {k: stored[k] for k in stored.files if not k.startswith("grad/")}
    second = {n for group in names["tied"] for n in group[1:]}
    for onnx_name, entry in names["parameters"].items():
        if onnx_name not in second:
            gradient = stored["grad/" + entry["parameter"]]
            arrays["grad/" + onnx_name] = gradient.T if entry["transposed"] else gradient
    return arrays


def relative_error(a, b, largest):
    """max|a-b| / max(max|b|, floor), where the floor is 1e-3 of the largest of its kind."""
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-3 * largest))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()
    try:
        np.savez(args.output, **load(args.name))
    except (ValueError, OSError) as error:
        print(f"reference.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
