"""Operators of layers for test_folding: casts, norms, products, pools, convolutions, sequences."""

import functools
import math

import numpy as np

from folding_build import Value, ints, operand
from folding_values import (ALL, CODES, DTYPES, FLOATS, INTS, RUNTIME, each, limits, make)

# f16 operators run in f32, so they may overflow in the file but not in the program.
LAYERS = [t for t in FLOATS if t != "f16"]


def cast_elements(t, to, array):
    if to == "bool":
        return array != 0
    if to in INTS:
        return each(to, lambda v: math.trunc(v), array)
    if t in INTS and to in ("f16", "f32", "f64"):
        with np.errstate(all="ignore"):
            return array.astype(DTYPES[to])
    return make(to, array.astype(np.float64) if t != "bool" else array.astype(float))


def cast(g, case, t, first=None, like=False):
    # Converting a float outside an integer type's range is undefined.
    to = g.pick(ALL)
    if first is not None and t in FLOATS and to in INTS:
        to = "f64"
    if (case.mode != "known" or first is not None) and to not in RUNTIME + ["bf16"]:
        to = "f32"
    shape = g.shape(0)
    if t in FLOATS and to in INTS and first is None:
        array = make(t, g.rng.normal(size=shape) * 100 + (128 if to[0] == "u" else 0))
        if to[0] == "u":
            array = np.abs(array)
        array = make(t, np.clip(array.astype(np.float64), *[max(-126, min(126, v)) for v in limits(to)]))
        x = g.leaf(case, t, array, known=case.mode == "known")
    else:
        x = operand(g, case, t, shape, first, known=case.mode == "known")
    error = 1.0 if to == "bf16" else 0.0  # rounded twice if an integer is converted via f32
    expected = cast_elements(t, to, x.array)
    if like:
        return case.apply("CastLike", [x, g.leaf(case, to, g.array(to, (1,)))], to, expected, error)
    return case.apply("Cast", [x], to, expected, error, to=CODES[to])


def cast_like(g, case, t, first=None):
    return cast(g, case, t, first, like=True)


def size(g, case, t, first=None):
    x = operand(g, case, t, g.shape(0), first)
    return case.apply("Size", [x], "i64", np.array(x.array.size, np.int64))


def shape(g, case, t, first=None):
    x = operand(g, case, t, g.shape(0), first)
    start, end = (int(v) for v in g.rng.integers(-4, 5, 2))
    return case.apply("Shape", [x], "i64", np.array(x.array.shape, np.int64)[start:end], start=start, end=end)


def dropout(g, case, t, first=None):
    """An operator that is the identity in evaluation mode."""
    x = operand(g, case, t, g.shape(1), first)
    extra = [g.leaf(case, "f32", np.float32(0.5), known=True), g.leaf(case, "bool", np.array(False), known=True)]
    extra = extra[:g.rng.integers(0, 3)]
    case.trace.append(f"Dropout of {t}{list(x.array.shape)}, {len(extra)} more inputs")
    y, mask = g.b.op("Dropout", x.name, *[e.name for e in extra], outputs=2)
    if g.rng.random() < 0.3:
        return Value(mask, "bool", np.ones(x.array.shape, bool))
    return Value(y, t, x.array)


def norm(op):
    def emit(g, case, t, first=None):
        x = operand(g, case, t, g.shape(1, empty=False), first, special=0.0)
        axis = int(g.rng.integers(x.array.ndim))
        scale, shift = (g.leaf(case, t, g.array(t, x.array.shape[axis:], special=0.0)) for _ in range(2))
        data, over = x.array.astype(np.float64), tuple(range(axis, x.array.ndim))
        operands, epsilon = [x, scale], 0.125
        if op == "LayerNormalization":
            data = data - data.mean(over, keepdims=True)
        y = data / np.sqrt((data * data).mean(over, keepdims=True) + epsilon) * scale.array
        if op == "LayerNormalization" and g.rng.random() < 0.5:
            y = y + shift.array
            operands.append(shift)
        # Subtracting the mean cancels, so the error is relative to the operands.
        case.floor = max(4 * np.abs(x.array).max() * np.abs(scale.array).max(), np.abs(shift.array).max())
        return case.apply(op, operands, t, make(t, y), 16.0, axis=axis, epsilon=epsilon)
    return op, LAYERS, emit


def gemm(g, case, t, first=None):
    n, k, m = (int(v) for v in g.rng.integers(1, 4, 3))
    left, right = (int(v) for v in g.rng.integers(0, 2, 2))
    a = g.leaf(case, t, g.array(t, (k, n) if left else (n, k), special=0.0))
    b = g.leaf(case, t, g.array(t, (m, k) if right else (k, m), special=0.0))
    c = g.leaf(case, t, g.array(t, g.part((n, m)), special=0.0))
    alpha, beta = (float(g.pick([1.0, 0.5, -2.0])) for _ in range(2))
    x, y = (v.array.astype(np.float64) for v in (a, b))
    x, y, z = x.T if left else x, y.T if right else y, beta * c.array.astype(np.float64)
    case.floor = np.max(np.abs(alpha * x) @ np.abs(y) + np.abs(z))
    return case.apply("Gemm", [a, b, c], t, make(t, alpha * (x @ y) + z), 8.0, alpha=alpha, beta=beta, transA=left,
                      transB=right)


EQUATIONS = ["ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij->ji", "ij,ij->", "i,j->ij", "ij->i", "bij,jk->bik", "ij,i->j"]


def einsum(g, case, t, first=None):
    equation, n = g.pick(EQUATIONS), {label: int(g.rng.integers(1, 4)) for label in "bijk"}
    values = [g.leaf(case, t, g.array(t, tuple(n[label] for label in labels), special=0.0))
              for labels in equation.split("->")[0].split(",")]
    data = [v.array.astype(np.float64) for v in values]
    case.floor = np.max(np.einsum(equation, *map(np.abs, data)))
    return case.apply("Einsum", values, t, make(t, np.einsum(equation, *data)), 8.0, equation=equation)


def windows(data, kernel, strides, pads, filler):
    """The windows [n, c, y, x, ky, kx] of an array [n, c, h, w]."""
    wide = np.pad(data, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=filler)
    view = np.lib.stride_tricks.sliding_window_view(wide, kernel, (2, 3))
    return view[:, :, ::strides[0], ::strides[1]]


def pool(op):
    def emit(g, case, t, first=None):
        x = g.leaf(case, t, g.array(t, (2, 3, int(g.rng.integers(3, 6)), int(g.rng.integers(3, 6))), special=0.0))
        data = x.array.astype(np.float64)
        case.floor = np.abs(data).max()
        if op.startswith("Global"):
            y = (data.max if op == "GlobalMaxPool" else data.mean)((2, 3), keepdims=True)
            return case.apply(op, [x], t, make(t, y), 8.0)
        kernel, strides = (g.rng.integers(1, 4, 2).tolist() for _ in range(2))
        pads = [int(g.rng.integers(0, kernel[i % 2])) for i in range(4)]
        options = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        if op == "MaxPool":
            y = windows(data, kernel, strides, pads, -np.inf).max((4, 5))
        else:
            options["count_include_pad"] = int(g.rng.integers(2))
            y = windows(data, kernel, strides, pads, 0).sum((4, 5)) / (
                math.prod(kernel) if options["count_include_pad"] else
                windows(np.ones_like(data), kernel, strides, pads, 0).sum((4, 5)))
        return case.apply(op, [x], t, make(t, y), 8.0, **options)
    return op, LAYERS, emit


def convolution(g, case, t, first=None):
    groups, kernel = int(g.pick([1, 1, 2])), g.rng.integers(1, 4, 2).tolist()
    x = g.leaf(case, t, g.array(t, (2, 2 * groups, 5, 4), special=0.0))
    w = g.leaf(case, t, g.array(t, (3 * groups, 2, *kernel), special=0.0))
    bias = g.leaf(case, t, g.array(t, (3 * groups,), special=0.0))
    strides, pads = g.rng.integers(1, 3, 2).tolist(), [int(v) for v in g.rng.integers(0, 2, 4)]
    dilations = [int(g.rng.integers(1, 3)) if size == 2 else 1 for size in kernel]
    span = [(size - 1) * step + 1 for size, step in zip(kernel, dilations)]

    def products(x, w):
        rows = windows(x, span, strides, pads, 0)[..., ::dilations[0], ::dilations[1]]
        parts = [np.einsum("ncyxkl,mckl->nmyx", rows[:, 2 * i:2 * i + 2], w[3 * i:3 * i + 3]) for i in range(groups)]
        return np.concatenate(parts, 1)

    x64, w64, b64 = (v.array.astype(np.float64) for v in (x, w, bias))
    b64 = b64.reshape(-1, 1, 1) if g.rng.random() < 0.5 else None
    y, size = products(x64, w64), products(abs(x64), abs(w64))
    operands = [x, w]
    if b64 is not None:
        y, size, operands = y + b64, size + abs(b64), [x, w, bias]
    case.floor = size.max()
    return case.apply("Conv", operands, t, make(t, y), 8.0, kernel_shape=kernel, strides=strides, pads=pads,
                      dilations=dilations, group=groups)


def rotary(g, case, t, first=None):
    """Rotates pairs of features by the angles of their positions."""
    n, heads, length, half = (int(v) for v in g.rng.integers(1, 4, 4))
    interleaved, looked_up = (int(v) for v in g.rng.integers(0, 2, 2))
    x = g.leaf(case, t, g.array(t, (n, heads, length, 2 * half), special=0.0))
    rows = (6, half) if looked_up else (n, length, half)
    cos, sin = (g.leaf(case, t, g.array(t, rows, special=0.0)) for _ in range(2))
    operands, at = [x, cos, sin], slice(None)
    if looked_up:
        at = g.rng.integers(0, 6, (n, length))
        operands.append(g.leaf(case, "i64", at, known=True))
    c, s = (v.array.astype(np.float64)[at][:, None] for v in (cos, sin))
    data, y = x.array.astype(np.float64), np.empty(x.array.shape)
    cuts = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    even, odd = (data[..., cut] for cut in cuts)
    y[..., cuts[0]], y[..., cuts[1]] = c * even - s * odd, s * even + c * odd
    case.floor = 2 * np.abs(data).max() * max(np.abs(c).max(), np.abs(s).max())
    return case.apply("RotaryEmbedding", operands, t, make(t, y), 8.0, interleaved=interleaved)


def sequence(g, case, t, first=None, kind="SequenceAt"):
    """A tensor that is split and concatenated again."""
    x = operand(g, case, t, g.shape(1, empty=False), first)
    axis = int(g.rng.integers(x.array.ndim))
    n = x.array.shape[axis]
    case.trace.append(f"sequence of {t}{list(x.array.shape)} along {axis}")
    if g.rng.random() < 0.5:
        parts, other = [x.array, x.array], operand(g, case, t, x.array.shape)
        parts[1] = other.array
        name = g.b.op("SequenceConstruct", x.name, other.name)
    else:
        size = int(g.rng.integers(1, n + 1))
        parts = np.split(x.array, list(range(size, n, size)), axis)
        name = g.b.op("SplitToSequence", x.name, g.leaf(case, "i64", np.array(size), known=True).name, axis=axis)
    if kind == "SequenceLength":
        return Value(g.b.op(kind, name), "i64", np.array(len(parts), np.int64))
    if kind == "ConcatFromSequence":
        return Value(g.b.op(kind, name, axis=axis), t, np.concatenate(parts, axis))
    at = int(g.rng.integers(-len(parts), len(parts)))
    return Value(g.b.op(kind, name, ints(g, case, at).name), t, parts[at])


LAYER_OPERATORS = [("Cast", ALL, cast), ("CastLike", ALL, cast_like), ("Size", ALL, size), ("Shape", ALL, shape),
                   ("Dropout", FLOATS, dropout),
                   ("Gemm", LAYERS, gemm), ("Einsum", LAYERS, einsum), ("Conv", LAYERS, convolution),
                   ("RotaryEmbedding", LAYERS, rotary), norm("LayerNormalization"), norm("RMSNormalization"),
                   pool("MaxPool"), pool("AveragePool"), pool("GlobalMaxPool"), pool("GlobalAveragePool")]
LAYER_OPERATORS += [(op, ALL, functools.partial(sequence, kind=op))
                    for op in ("SequenceAt", "SequenceLength", "ConcatFromSequence")]
