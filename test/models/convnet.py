#!/usr/bin/python3
"""Writes a small convolutional net in ONNX, with NumPy alone.

    convnet.py OUT.onnx [--batch N] [--size N]

Images with 3 channels, 5 classes: convolutions with bias, strides, dilations,
groups (including depthwise), asymmetric padding, 1 x 1 filters, and over one
dimension. OUT.toml next to the model binds the dimensions.
"""

import argparse
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "lib"))

import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

CLASSES = 5


def convnet(size):
    b = onnxbuild.Builder()
    rng = np.random.default_rng(1)

    def weight(name, *shape):
        deviation = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        return b.parameter(name, (deviation * rng.standard_normal(shape)).astype(np.float32))

    def conv(x, name, features, channels, *kernel, **attributes):
        parameters = weight(name + ".weight", features, channels, *kernel), weight(name + ".bias", features)
        return b.op("Conv", x, *parameters, kernel_shape=list(kernel), **attributes)

    x = b.input("image", np.float32, ["batch", 3, size, size + 1])
    x = b.op("Relu", conv(x, "stem", 8, 3, 3, 3, strides=[1, 2], pads=[1, 0, 1, 1]))
    x = b.op("Relu", conv(x, "depthwise", 8, 1, 3, 3, group=8, dilations=[2, 1], pads=[2, 1, 2, 1]))
    x = b.op("Relu", conv(x, "pointwise", 16, 8, 1, 1))
    x = b.op("Relu", conv(x, "down", 16, 8, 3, 2, group=2, strides=[2, 2], pads=[0, 0, 1, 0]))
    x = b.op("Reshape", x, b.constant([0, 0, -1]))
    x = b.op("Relu", conv(x, "line", 8, 16, 5, strides=[2], pads=[2, 2]))
    x = b.op("ReduceMean", x, b.constant([2]), keepdims=0)
    b.op("Gemm", x, weight("head.weight", CLASSES, 8), weight("head.bias", CLASSES), transB=1,
         out="logits")
    b.output("logits", np.float32, ["batch", CLASSES])
    return b.model(18)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=8)
    args = parser.parse_args()
    onnxwire.save(convnet(args.size), args.output)
    args.output.with_suffix(".toml").write_text(
        f'[dims]\nbatch = {args.batch}\n\n[train]\nloss = "cross_entropy"\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
