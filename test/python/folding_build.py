"""Models with many small cases for test_folding: each has an output, its nodes and its expected value."""

import numpy as np

import onnxbuild
import onnxwire
from folding_values import CODES, DTYPES, EPS, FLOATS, FUSED, INTS, RUNTIME, bits, exact, limits, make


# Operators whose results are elements of their operands, or numbers that every type has.
ROUNDS_NOTHING = {"Abs", "Ceil", "Clip", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Floor", "Gather",
                  "GatherElements", "GatherND", "Identity", "Max", "Min", "Neg", "OneHot", "Pad", "ReduceMax",
                  "ReduceMin", "Relu", "Reshape", "ScatterND", "Slice", "Split", "Squeeze", "Tile", "TopK",
                  "Transpose", "Trilu", "Unsqueeze", "Where"}


class Case:
    """One output: the nodes that compute it, and its expected value."""

    def __init__(self, build, name, mode):
        self.build, self.name, self.mode = build, name, mode
        self.tolerance, self.floor, self.inexact, self.trace = 0.0, 0.0, False, []
        self.is_half = False
        self.has_parameters = False  # initializers, which are known but read at run time

    def apply(self, op, operands, t, expected, error=0.0, **attributes):
        """Adds a node; its value is given by the NumPy reference."""
        out = self.build.b.op(op, *[o if isinstance(o, str) else o.name for o in operands],
                              **attributes)
        self.trace.append(f"{op} {attributes or ''} of " + ", ".join(
            f"{o.t}{list(o.array.shape)}" for o in operands if not isinstance(o, str)))
        # Operators that are not evaluated at import run in f32 without rounding to these types.
        if t in ("f16", "bf16") and op not in ROUNDS_NOTHING:
            error = max(error, 1.0)
            for operand in operands:  # the error of a cancelling sum is relative to its terms
                if op in ("Add", "Sub", "Sum", "Mean"):
                    array = np.abs(operand.array.astype(np.float64))
                    self.floor = np.maximum(self.floor, np.max(array[np.isfinite(array)], initial=0.0))
        self.is_half |= t == "f16"
        self.tolerance += error * (EPS[t] if t in EPS else 0)
        self.inexact |= error > FUSED and t in EPS
        return Value(out, t, expected)


class Value:
    def __init__(self, name, t, array):
        self.name, self.t, self.array = name, t, np.asarray(array)


class Build:
    """A model of many cases, its input arrays, and the results."""

    def __init__(self, rng):
        self.rng, self.b = rng, onnxbuild.Builder()
        self.inputs, self.cases = {}, []
        self.count = 0

    def tensor(self, name, t, array):
        if t != "bf16":
            return onnxbuild.tensor(name, array.astype(DTYPES[t]))
        raw = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        proto = onnxwire.Tensor()
        for dim in array.shape:
            proto.add(1, dim)
        proto.add(2, 16)
        if name:
            proto.add(8, name)
        return proto.add(9, raw.tobytes())

    def leaf(self, case, t, array, known=False):
        """An operand: a constant, an initializer, or an input, by the case's mode."""
        self.count += 1
        name = f"x{self.count}"
        runtime = case.mode == "runtime" or (case.mode == "mixed" and self.rng.random() < 0.5)
        if runtime and not known and t in RUNTIME and array.size:
            self.b.input(name, DTYPES[t], list(array.shape))
            self.inputs[name] = array.astype(DTYPES[t])
        elif runtime and not known and t == "bf16" and array.size:
            self.b.input(name, np.float32, list(array.shape))
            self.inputs[name] = array.astype(np.float32)
            name = self.b.op("Cast", name, to=CODES["bf16"])
        elif self.rng.random() < 0.5 and (t not in FLOATS or not known and t in RUNTIME):
            self.b.initializers.append(self.tensor(name, t, array))
            case.has_parameters |= t in FLOATS
        else:
            attribute = onnxwire.Attribute().add(1, "value").add(5, self.tensor("", t, array)).add(20, 4)
            node = onnxwire.Node().add(2, name).add(3, f"k{self.count}").add(4, "Constant").add(5, attribute)
            self.b.nodes.append(node)
        return Value(name, t, array)

    def finish(self, case, value):
        """Makes a value an output, cast to a type that programs support."""
        t, name, expected = value.t, value.name, value.array
        if t in INTS and t not in RUNTIME:
            name, t = self.b.op("Cast", name, to=CODES["i64"]), "i64"
            expected = make("i64", exact(expected))
        elif t in ("f16", "bf16"):
            name, t = self.b.op("Cast", name, to=CODES["f32"]), "f32"
            expected = expected.astype(np.float32)
        if not expected.size:  # outputs must not be empty
            name, t, expected = self.b.op("Shape", name), "i64", np.array(expected.shape, np.int64)
        self.b.op("Identity", name, out=case.name)
        self.b.output(case.name, DTYPES[t], list(expected.shape))
        case.expected = expected
        self.cases.append(case)

    # Random things.

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def shape(self, low=1, high=3, empty=True):
        sizes = [int(self.rng.integers(1, 5)) for _ in range(self.rng.integers(low, high + 1))]
        if empty and sizes and self.rng.random() < 0.06:
            sizes[self.rng.integers(len(sizes))] = 0
        return tuple(sizes)

    def part(self, shape):
        """A shape that broadcasts to another."""
        kept = shape[self.rng.integers(len(shape) + 1):] if self.rng.random() < 0.3 else shape
        return tuple(1 if self.rng.random() < 0.2 else size for size in kept)

    def array(self, t, shape, special=0.3, low=-8, high=8):
        count = int(np.prod(shape))
        if t == "bool":
            return self.rng.random(shape) < 0.5
        if t in INTS:
            least, most = limits(t)
            odd = [0, 1, least, most, most - 1, least + 1, most // 2 + 2]
            if bits(t) == 64:
                odd += [2 ** 53 + 1, 2 ** 62 + 3]
            values = [self.pick(odd) if self.rng.random() < special else
                      max(least, int(self.rng.integers(low, high + 1))) for _ in range(count)]
            return make(t, np.array(values, object), shape)
        odd = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-3, 60000.0]
        values = [self.pick(odd) if self.rng.random() < special else
                  self.rng.normal() * 3 for _ in range(count)]
        return make(t, np.array(values, np.float64), shape)


def operand(g, case, t, shape, first=None, known=False, **options):
    if first is not None:
        return first
    return g.leaf(case, t, g.array(t, shape, **options), known)


def ints(g, case, values):
    return g.leaf(case, "i64", np.array(values, np.int64), known=True)
