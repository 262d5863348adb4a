"""Random small graphs for test_folding: operators in the types of ONNX, with inputs that are in the
file or given at run time, and NumPy's results."""

import functools
import math

import numpy as np

import onnxwire
from folding_build import Build, Case, Value, ints, operand
from folding_layers import LAYER_OPERATORS
from folding_values import (ALL, CODES, DTYPES, FLOATS, FUSED, INTS, NUMBERS, RUNTIME, SIGNED, WIDE, each, exact,
                            larger, limits, make, modulo, power_by_float, quotient, remainder, smaller, whole_power,
                            wrap)


# One function for each kind of operators: adds a node to a case and returns its value.
# `first`, if given, is the output of another operator, used as an operand.

def binary(op, function, types, **attributes):
    def emit(g, case, t, first=None):
        shape = first.array.shape if first is not None else g.shape(0)
        a = operand(g, case, t, shape, first)
        b = g.leaf(case, t, g.array(t, g.part(shape)))
        if op in ("Div", "Mod") and t in INTS and not exact(b.array).any():
            b = g.leaf(case, t, make(t, [3]))
        result = "bool" if op in COMPARISONS else t
        return case.apply(op, [a, b], result, each(result, function, a.array, b.array),
                          # At run time, a product and a sum may be fused and rounded once.
                          FUSED if op == "Mul" and (case.mode != "known" or case.has_parameters) else 0.0, **attributes)
    return op, types, emit


COMPARISONS = {"Equal": lambda a, b: a == b, "Less": lambda a, b: a < b, "Greater": lambda a, b: a > b,
               "LessOrEqual": lambda a, b: a <= b, "GreaterOrEqual": lambda a, b: a >= b}


def unary(op, function, types, error=0.0, result=None, special=0.3, floor=0.0, **attributes):
    def emit(g, case, t, first=None):
        case.floor = floor
        x = operand(g, case, t, g.shape(0), first, special=special)
        return case.apply(op, [x], result or t, each(result or t, function, x.array), error, **attributes)
    return op, types, emit


def variadic(op, function, types, error=0.0):
    def emit(g, case, t, first=None):
        shape = first.array.shape if first is not None else g.shape(0)
        values = [operand(g, case, t, shape, first)]
        values += [g.leaf(case, t, g.array(t, g.part(shape))) for _ in range(g.rng.integers(0, 3))]
        total = values[0].array
        for value in values[1:]:
            total = each(t, function, total, value.array)
        if op == "Mean":
            total = each(t, lambda a: a / len(values), total)
        return case.apply(op, values, t, total, error)
    return op, types, emit


def power(g, case, t, first=None):
    """Exponents of every type. At run time integer exponents are constant, and at most 64."""
    shape = g.shape(0)
    other = g.pick(NUMBERS)
    known = case.mode != "known"
    splat = known or g.rng.random() < 0.5
    if t in INTS:
        size = () if splat else shape
        base = g.array(t, shape, low=-9, high=9)
        if other in INTS:
            least, most = (0, 64) if known else limits(other)
            exponents = g.rng.integers(max(least, -3), 65, size).astype(object)
            if not known and g.rng.random() < 0.3:
                exponents = g.array(other, size, special=0.7)
            exponents = np.clip(exponents, least, most)
            function = lambda a, b: whole_power(t, a, b)
        elif known or g.rng.random() < 0.6:
            exponents = g.rng.integers(0, 65, size)
            function = lambda a, b: power_by_float(t, a, b)
        else:  # computed from squares, such that no power overflows the type
            exponents = g.rng.choice([0.5, 1.5, 2.5, -0.5, -2.0], size)
            base = make(t, np.array([v ** 2 for v in g.rng.integers(1, 5, shape).ravel()], object), shape)
            function = lambda a, b: power_by_float(t, a, b) if b > 0 else int(float(a) ** b)
        a = g.leaf(case, t, base)
        b = g.leaf(case, other, make(other, exponents), known=known)
        return case.apply("Pow", [a, b], t, each(t, function, a.array, b.array))
    a = g.leaf(case, t, np.abs(g.array(t, shape, special=0.1)))
    b = g.leaf(case, other, make(other, g.rng.integers(-2 * (other[0] != "u"), 4, g.part(shape))
                                 if g.rng.random() < 0.5 or other in INTS else
                                 g.rng.normal(size=g.part(shape))))
    function = lambda a, b: np.power(np.float64(a), np.float64(b))
    return case.apply("Pow", [a, b], t, each(t, function, a.array, b.array), 4.0)


def clip(g, case, t, first=None):
    shape = first.array.shape if first is not None else g.shape(0)
    x = operand(g, case, t, shape, first)
    low, high = (g.leaf(case, t, g.array(t, (), special=0.1)) for _ in range(2))
    expected = each(t, lambda v, l, h: smaller(larger(v, l), h), x.array, low.array, high.array)
    return case.apply("Clip", [x, low, high], t, expected)


def where(g, case, t, first=None):
    shape = first.array.shape if first is not None else g.shape(0)
    condition = g.leaf(case, "bool", g.array("bool", g.part(shape)))
    x = operand(g, case, t, shape, first)
    y = g.leaf(case, t, g.array(t, g.part(shape)))
    return case.apply("Where", [condition, x, y], t,
                      np.where(condition.array, x.array, y.array).astype(DTYPES[t]))


def reduce_elements(op, t, array, axes):
    """One output element from a list of input elements."""
    data = exact(array)
    kept = tuple(1 if i in axes else n for i, n in enumerate(array.shape))
    order = [i for i in range(array.ndim) if i not in axes] + list(axes)
    rows = np.transpose(data, order).reshape(math.prod(kept), -1) if data.size else \
        np.empty((math.prod(kept), 0), data.dtype)
    least = (False if t == "bool" else limits(t)[0] if t in INTS else -math.inf)
    most = (True if t == "bool" else limits(t)[1] if t in INTS else math.inf)

    def fold(function, values, start):
        for value in values:
            start = function(start, value)
        return start

    def one(v):
        v = list(v)
        total = sum(v) if t in INTS else math.fsum(v) if all(map(math.isfinite, v)) else sum(v)
        if op == "ReduceMax":
            return fold(larger, v, least)
        if op == "ReduceMin":
            return fold(smaller, v, most)
        if op == "ReduceProd":
            return fold(lambda a, b: a * b, v, 1)
        if op == "ReduceSum":
            return total
        if op == "ReduceMean":
            return quotient(wrap(t, total), len(v)) if t in INTS else total / len(v)
        if op == "ReduceL1":
            return sum(wrap(t, abs(x)) for x in v) if t in INTS else sum(map(abs, v))
        squares = sum(wrap(t, x * x) for x in v) if t in INTS else sum(x * x for x in v)
        if op == "ReduceSumSquare":
            return squares
        if op == "ReduceL2":
            return math.trunc(np.sqrt(np.float64(wrap(t, squares)))) if t in INTS else np.sqrt(squares)
        if op == "ReduceLogSum":
            return np.log(np.float64(total))
        top = fold(larger, v, -math.inf)
        if not math.isfinite(top):
            return top
        return top + np.log(sum(np.exp(x - top) for x in v))

    with np.errstate(all="ignore"):
        return make(t, np.array([one(v) for v in rows], object if t in INTS else None).reshape(-1)
                    if len(rows) else np.zeros(0), kept)


def magnitude(op, array, axes, shape):
    """The error of the result, per element, caused by errors in the terms of a cancelling sum."""
    data = np.abs(np.where(np.isfinite(array.astype(np.float64)), array.astype(np.float64), 0))
    if op == "ReduceLogSumExp":
        return np.max(data, axes, initial=0.0).reshape(shape)
    if op not in ("ReduceSum", "ReduceMean", "ReduceLogSum"):
        return np.zeros(shape)  # all terms have one sign
    added = data.sum(axes)
    with np.errstate(all="ignore"):
        added = {"ReduceSum": added, "ReduceMean": added / math.prod(array.shape[a] for a in axes),
                 "ReduceLogSum": added / np.abs(array.astype(np.float64).sum(axes))}[op]
    return np.where(np.isfinite(added), added, 0.0).reshape(shape)


def reduction(op, types):
    def emit(g, case, t, first=None):
        squares = op in ("ReduceL2", "ReduceSumSquare")
        x = operand(g, case, t, g.shape(1), first, known=op in KNOWN_ONLY,
                    **({"special": 0.0} if squares and t in INTS else {}))
        if op in ("ReduceL2", "ReduceLogSum") and t in INTS:  # the sum must not be negative
            x = g.leaf(case, t, make(t, g.rng.integers(0, 9, g.shape(1))))
        rank = x.array.ndim
        axes = sorted(g.rng.choice(rank, g.rng.integers(0, rank + 1), replace=False).tolist()) if rank else []
        keep = int(g.rng.integers(2))
        over = axes or list(range(rank))
        if op == "ReduceMean" and any(x.array.shape[a] == 0 for a in over):
            x = g.leaf(case, t, make(t, g.rng.integers(0, 9, (2,) * max(rank, 1))), op in KNOWN_ONLY)
            over = axes or list(range(x.array.ndim))
        expected = reduce_elements(op, t, x.array, over)
        if not keep:
            expected = expected.reshape([n for i, n in enumerate(x.array.shape) if i not in over])
        if t in FLOATS:
            case.floor = np.maximum(case.floor, magnitude(op, x.array, tuple(over), expected.shape))
        sizes = [x] + ([g.leaf(case, "i64", np.array([a - rank if g.rng.random() < 0.3 else a for a in axes],
                                                     np.int64), known=True)] if axes else [])
        return case.apply(op, sizes, t, expected, 0.0 if op in ("ReduceMax", "ReduceMin") else 8.0, keepdims=keep)
    return op, types, emit


def cumulative(g, case, t, first=None):
    x = g.leaf(case, t, g.array(t, g.shape(1), special=0.2 if t in INTS else 0.0), known=True)
    axis = int(g.rng.integers(x.array.ndim))
    exclusive, reverse = (int(v) for v in g.rng.integers(0, 2, 2))
    data = np.moveaxis(exact(x.array), axis, 0)
    if reverse:
        data = data[::-1]
    total = np.cumsum(data, axis=0) if data.size else data
    if exclusive and data.size:
        total = total - data
    if reverse:
        total = total[::-1]
    expected = make(t, np.moveaxis(total, 0, axis))
    return case.apply("CumSum", [x, g.leaf(case, "i64", np.array(axis), known=True)], t, expected, 8.0,
                      exclusive=exclusive, reverse=reverse)


def arg_max(g, case, t, first=None):
    x = g.leaf(case, t, g.array(t, g.shape(1, empty=False), special=0.0), known=t in INTS)
    axis, keep = int(g.rng.integers(x.array.ndim)), int(g.rng.integers(2))
    expected = np.argmax(exact(x.array).astype(np.float64), axis).astype(np.int64)
    return case.apply("ArgMax", [x], "i64", np.expand_dims(expected, axis) if keep else expected,
                      axis=axis, keepdims=keep)


def top_k(g, case, t, first=None):
    x = g.leaf(case, t, g.array(t, g.shape(1, empty=False), special=0.0), known=t in INTS)
    axis, largest = int(g.rng.integers(x.array.ndim)), int(g.rng.integers(2))
    k = int(g.rng.integers(1, x.array.shape[axis] + 1))
    keys = exact(x.array).astype(np.float64)
    order = np.argsort(-keys if largest else keys, axis=axis, kind="stable")
    order = np.take(order, range(k), axis)
    values, indices = g.b.op("TopK", x.name, g.leaf(case, "i64", np.array([k]), known=True).name, outputs=2,
                             axis=axis, largest=largest)
    case.trace.append(f"TopK of {t}{list(x.array.shape)}")
    if g.rng.random() < 0.5:
        return Value(indices, "i64", order.astype(np.int64))
    return Value(values, t, np.take_along_axis(x.array, order, axis))


def non_zero(g, case, t, first=None):
    x = g.leaf(case, t, g.array(t, g.shape(1)), known=True)
    return case.apply("NonZero", [x], "i64", np.array(np.nonzero(x.array), np.int64))


def one_hot(g, case, t, first=None):
    depth = int(g.rng.integers(1, 6))
    kind = g.pick(["i64", "i32", "u8", "f32"])
    indices = g.leaf(case, kind, make(kind, g.rng.integers(-depth if kind[0] == "i" else 0, depth, g.shape(0))),
                     known=case.mode == "known")
    values = g.leaf(case, t, g.array(t, (2,)), known=True)
    axis = int(g.rng.integers(-1, indices.array.ndim + 1))
    at = indices.array.astype(np.int64) % depth
    hot = np.expand_dims(at, axis) == np.arange(depth).reshape(
        [depth if i == axis % (at.ndim + 1) else 1 for i in range(at.ndim + 1)])
    return case.apply("OneHot", [indices, g.leaf(case, "i64", np.array(depth), known=True), values], t,
                      np.where(hot, values.array[1], values.array[0]).astype(DTYPES[t]), axis=axis)


def range_of(g, case, t, first=None):
    start = int(g.rng.integers(-9, 9)) + (2 ** 60 + 1 if t == "i64" and g.rng.random() < 0.5 else 0)
    step = int(g.pick([1, 2, -1, -3, 5]))
    stop = start + step * int(g.rng.integers(-1, 6)) + int(g.rng.integers(0, 2))
    values = [g.leaf(case, t, make(t, v), known=True) for v in (start, stop, step)]
    return case.apply("Range", values, t, make(t, np.array(list(range(start, stop, step)), object if t in INTS else None)))


def filled(g, case, t, first=None):
    shape, value = g.shape(0), g.array(t, (1,), special=0.7)
    out = g.b.op("ConstantOfShape", g.leaf(case, "i64", np.array(shape, np.int64), known=True).name)
    g.b.nodes[-1].add(5, onnxwire.Attribute().add(1, "value").add(5, g.tensor("", t, value)).add(20, 4))
    case.trace.append(f"ConstantOfShape of {t}")
    return Value(out, t, np.broadcast_to(value.reshape(()), shape))


def eye(g, case, t, first=None):
    shape = (int(g.rng.integers(1, 5)), int(g.rng.integers(1, 5)))
    x = g.leaf(case, "f32", np.zeros(shape, np.float32))
    k = int(g.rng.integers(-3, 4))
    return case.apply("EyeLike", [x], t, make(t, np.eye(*shape, k=k)), dtype=CODES[t], k=k)


MOVES = ["Transpose", "Reshape", "Slice", "Concat", "Expand", "Tile", "Pad", "Trilu", "Gather", "GatherElements",
         "GatherND", "Split", "Flatten", "Squeeze", "Unsqueeze", "ScatterND"]


def moved(g, case, t, first=None, kind=None):
    """An operator that only moves elements."""
    x = operand(g, case, t, g.shape(2 if kind == "Trilu" else 1, empty=kind is None), first)
    a, rank = x.array, x.array.ndim
    kind = kind or g.pick(MOVES)
    axis = int(g.rng.integers(rank)) if rank else 0
    if rank == 0 and kind not in ("Reshape", "Expand", "Unsqueeze", "Flatten"):
        kind = "Unsqueeze"
    if kind == "Transpose":
        order = g.rng.permutation(rank).tolist()
        return case.apply(kind, [x], t, a.transpose(order), perm=order)
    if kind == "Reshape":
        shape = g.pick([[-1], [1, -1], list(a.shape) + [1], list(a.shape[::-1])])
        if not a.size:
            shape = list(a.shape[::-1])
        return case.apply(kind, [x, ints(g, case, shape)], t, a.reshape(shape), allowzero=1)
    if kind == "Slice":
        start, stop = (int(v) for v in g.rng.integers(-6, 7, 2))
        step = int(g.pick([1, 2, -1, -2]))
        if step < 0:  # ONNX starts at the first element where NumPy returns none
            start = max(start, -a.shape[axis])
        index = tuple(slice(start, stop, step) if i == axis else slice(None) for i in range(rank))
        return case.apply(kind, [x] + [ints(g, case, [v]) for v in (start, stop, axis, step)], t, a[index])
    if kind == "Concat":
        shape = list(a.shape)
        shape[axis] = int(g.rng.integers(0, 3))
        other = g.leaf(case, t, g.array(t, tuple(shape)))
        return case.apply(kind, [x, other], t, np.concatenate([a, other.array], axis), axis=axis)
    if kind == "Expand":
        shape = [2] + list(a.shape)
        return case.apply(kind, [x, ints(g, case, shape)], t, np.broadcast_to(a, shape))
    if kind == "Tile":
        repeats = g.rng.integers(0 if g.rng.random() < 0.1 else 1, 3, rank).tolist()
        return case.apply(kind, [x, ints(g, case, repeats)], t, np.tile(a, repeats))
    if kind == "Pad":
        pads = g.rng.integers(0, 4 - min(rank, 2), (2, rank))
        value = g.leaf(case, t, g.array(t, (), special=0.5), known=True)
        return case.apply(kind, [x, ints(g, case, pads.ravel().tolist()), value], t,
                          np.pad(a, pads.T.tolist(), constant_values=value.array))
    if kind == "Trilu" and rank >= 2:
        k, upper = int(g.rng.integers(-3, 4)), int(g.rng.integers(2))
        keep = np.tril(np.ones(a.shape[-2:], bool), k) if not upper else np.triu(np.ones(a.shape[-2:], bool), k)
        return case.apply(kind, [x, ints(g, case, k)], t, np.where(keep, a, np.zeros((), a.dtype)), upper=upper)
    if kind == "Gather" and a.shape[axis]:
        n = a.shape[axis]
        indices = g.leaf(case, "i64", g.rng.integers(-n if case.mode == "known" else 0, n, g.shape(0, 2)))
        return case.apply(kind, [x, indices], t, np.take(a, indices.array % n, axis), axis=axis)
    if kind == "GatherElements" and a.shape[axis] and case.mode == "known" and a.size:
        n = a.shape[axis]
        indices = ints(g, case, g.rng.integers(-n, n, a.shape))
        if x.name in g.inputs:
            return x
        return case.apply(kind, [x, indices], t, np.take_along_axis(a, indices.array % n, axis), axis=axis) \
            if t in INTS + ["bool"] else x
    if kind == "GatherND" and a.size:
        depth = int(g.rng.integers(1, rank + 1))
        at = np.stack([g.rng.integers(-n, n, (3,)) for n in a.shape[:depth]], -1)
        return case.apply(kind, [x, ints(g, case, at)], t, a[tuple(at.T)])
    if kind == "Split" and a.shape[axis] >= 1:
        n = a.shape[axis]
        cut = int(g.rng.integers(0, n + 1))
        parts = g.b.op("Split", x.name, ints(g, case, [cut, n - cut]).name, outputs=2, axis=axis)
        case.trace.append(f"Split of {t}{list(a.shape)} at {cut}")
        which = int(g.rng.integers(2))
        g.dead.append(parts[1 - which])
        return Value(parts[which], t, np.split(a, [cut], axis)[which])
    if kind == "Flatten":
        return case.apply(kind, [x], t, a.reshape(math.prod(a.shape[:axis]), math.prod(a.shape[axis:])), axis=axis)
    if kind == "Squeeze":
        return case.apply(kind, [x], t, np.squeeze(a))
    if kind == "ScatterND" and t in INTS + ["bool"] and case.mode == "known" and a.size:
        rows = g.rng.permutation(a.shape[0])[:g.rng.integers(1, a.shape[0] + 1)]
        updates = g.leaf(case, t, g.array(t, (len(rows),) + a.shape[1:]), known=True)
        expected = np.array(a)
        expected[rows] = updates.array
        return case.apply(kind, [x, ints(g, case, rows.reshape(-1, 1)), updates], t, expected)
    return case.apply("Unsqueeze", [x, ints(g, case, [axis])], t, np.expand_dims(a, axis))


def matrices(g, case, t, first=None):
    n, k, m = (int(v) for v in g.rng.integers(0 if g.rng.random() < 0.1 else 1, 4, 3))
    a, b = (g.leaf(case, t, g.array(t, s, special=0.0)) for s in ((2, n, k), (k, m)))
    case.floor = np.max(np.abs(a.array.astype(np.float64)) @ np.abs(b.array.astype(np.float64)), initial=0.0)
    return case.apply("MatMul", [a, b], t, make(t, a.array.astype(np.float64) @ b.array.astype(np.float64)), 8.0)


def soft(op):
    def emit(g, case, t, first=None):
        x = operand(g, case, t, g.shape(0), first, special=0.0)
        axis = int(g.rng.integers(max(1, x.array.ndim)))
        data = np.atleast_1d(x.array.astype(np.float64))  # a scalar counts as a row of one element
        if not data.size:
            return x
        e = np.exp(data - data.max(axis, keepdims=True))
        y = e / e.sum(axis, keepdims=True)
        return case.apply(op, [x], t, make(t, (np.log(y) if op == "LogSoftmax" else y).reshape(x.array.shape)), 16.0, axis=axis)
    return op, [t for t in FLOATS if t != "f16"], emit


def logistic(x):
    return 1 / (1 + np.exp(-x))


# Supported only if all operands are known at import.
KNOWN_ONLY = {"ReduceProd", "GatherElements", "ScatterND"}


def operators():
    fl, table = FLOATS, []
    for op, function in (("Add", lambda a, b: a + b), ("Sub", lambda a, b: a - b),
                         ("Mul", lambda a, b: a * b), ("Div", quotient)):
        table.append(binary(op, function, NUMBERS))
    table.append(binary("Mod", modulo, INTS))
    table.append(binary("Mod", remainder, NUMBERS, fmod=1))
    for op, function in COMPARISONS.items():
        table.append(binary(op, function, ALL if op == "Equal" else NUMBERS))
    for op, function in (("And", lambda a, b: a and b), ("Or", lambda a, b: a or b),
                         ("Xor", lambda a, b: a != b)):
        table.append(binary(op, function, ["bool"]))
    table += [variadic("Max", larger, NUMBERS), variadic("Min", smaller, NUMBERS),
              variadic("Sum", lambda a, b: a + b, fl, 2.0), variadic("Mean", lambda a, b: a + b, fl, 4.0)]
    table += [unary("Not", lambda a: not a, ["bool"]), unary("Neg", lambda a: -a, SIGNED + fl),
              unary("Abs", abs, NUMBERS), unary("Relu", lambda a: a if a != a else max(a, 0), SIGNED + fl),
              unary("IsNaN", lambda a: a != a, fl, result="bool"), unary("Identity", lambda a: a, ALL)]
    erf = lambda a: a if a != a else math.erf(a)
    functions = {"Floor": np.floor, "Ceil": np.ceil, "Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log,
                 "Erf": erf, "Tanh": np.tanh, "Sigmoid": logistic, "Reciprocal": lambda a: np.float64(1) / a}
    for op, function in functions.items():
        table.append(unary(op, function, fl, 0.0 if op in ("Floor", "Ceil", "Reciprocal") else 4.0))
    wild = {"Sin": np.sin, "Cos": np.cos, "Gelu": lambda a: 0.5 * a * (1 + math.erf(a / math.sqrt(2))),
            "LeakyRelu": lambda a: a if a >= 0 else float(np.float32(0.01)) * a,
            "HardSigmoid": lambda a: max(0, min(1, float(np.float32(0.2)) * a + 0.5)),
            "HardSwish": lambda a: a * max(0, min(1, a / 6 + 0.5)), "Swish": lambda a: a * logistic(a)}
    for op, function in wild.items():
        types = [t for t in fl if t != "f16"] if op == "Gelu" else fl
        table.append(unary(op, function, types, 8.0, special=0.0, floor=1.0))
    table += [("Pow", ["i32", "i64", "u32", "u64"] + fl, power), ("Clip", NUMBERS, clip), ("Where", ALL, where),
              ("CumSum", WIDE + fl, cumulative), ("ArgMax", NUMBERS, arg_max),
              ("TopK", NUMBERS, top_k), ("NonZero", ALL, non_zero), ("OneHot", ALL, one_hot),
              ("Range", ["i16", "i32", "i64", "f32", "f64"], range_of), ("ConstantOfShape", ALL, filled),
              ("EyeLike", ALL, eye), ("moves", ALL, moved),
              ("MatMul", [t for t in fl if t != "f16"], matrices), soft("Softmax"), soft("LogSoftmax")]
    for op in ("Sum", "Prod", "Mean", "L1", "L2", "SumSquare"):
        table.append(reduction("Reduce" + op, WIDE + fl))
    table += [reduction("ReduceLogSum", fl), reduction("ReduceLogSumExp", fl)] + LAYER_OPERATORS
    for op in MOVES:
        table.append((op, INTS + ["bool"] if op in KNOWN_ONLY else ALL, functools.partial(moved, kind=op)))
    for op in ("ReduceMax", "ReduceMin"):
        table.append(reduction(op, WIDE + ["u8", "i8", "bool"] + fl))
    return table


OPERATORS = operators()
# Outputs of these operators may be operands of another operator.
FOLLOWERS = [entry for entry in OPERATORS if entry[0] in (
    "Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs", "Where", "Cast", "Clip", "Less", "Equal", "ReduceMax",
    "ReduceMin", "ReduceSum", "moves", "And", "Or", "Xor", "Not", "Relu")]
def generate(seed, cases):
    """(Build, model): `cases` outputs, each of one to three operators."""
    rng = np.random.default_rng(seed)
    g = Build(rng)
    g.dead = []
    for index in range(cases):
        op, types, emit = OPERATORS[(seed * cases + index) % len(OPERATORS)]
        mode = g.pick(["known", "runtime", "mixed"])
        t = g.pick(types)
        if mode != "known" and (op in KNOWN_ONLY or t not in RUNTIME + ["bf16"]):
            mode = "known"
        case = Case(g, f"y{index}", mode)
        value = emit(g, case, t)
        for _ in range(g.rng.integers(0, 3)):
            if case.inexact or value.array.size > 100:
                break
            fits = [entry for entry in FOLLOWERS if value.t in entry[1]]
            value = g.pick(fits)[2](g, case, value.t, value)
        g.finish(case, value)
    read = {name for node in g.b.nodes for name in node.texts(1)}
    g.inputs = {name: array for name, array in g.inputs.items() if name in read}
    return g, g.b.model(24)


def compare(case, found):
    """A description of a wrong output; None if it is correct."""
    expected = case.expected
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)}, right: {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind != "f":
        good = found == expected
    else:
        with np.errstate(all="ignore"):
            a, b = found.astype(np.float64), expected.astype(np.float64)
            if case.is_half:  # f16 overflows to infinity
                a = np.where(np.abs(a) >= 65520, np.copysign(np.inf, a), a)
            # Next to zero a sum's error is relative to its terms.
            scale = np.maximum(np.max(np.abs(b[np.isfinite(b)]), initial=0.0), case.floor)
            good = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= case.tolerance * np.maximum(np.abs(b), scale))
    if good.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~good)[0]) if good.ndim else ()
    return f"{found[at]!r} at {list(at)}, right: {expected[at]!r}"
