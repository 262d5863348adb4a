"""Casts between all types of ONNX, folded at import and at run time: integers wrap and floats are
truncated towards zero, as in NumPy's astype; unsigned types stay unsigned."""

import itertools
import math
import pathlib
import tempfile
import unittest

import numpy as np

import onnxwire
import support
from folding_build import Build, Case, Value
from folding_values import CODES, DTYPES, FLOATS, INTS, limits, make
from support import CLEAVE

TYPES = ["i8", "u8", "i16", "u16", "i32", "i64", "u32", "u64", "bool", "f16", "bf16", "f32", "f64"]
# Types that run-time values cannot have; constants of them are folded at import.
FOLDED_ONLY = ["i8", "u8", "i16", "u16", "u32", "u64"]
# Types that are f32 at run time, so their rounding is not tested.
WIDENED = ["f16", "bf16"]


def nearest(numerator, digits):
    """Rounds an integer to `digits` binary digits, ties to even."""
    shift = max(abs(numerator).bit_length() - digits, 0)
    whole, rest = divmod(abs(numerator), 1 << shift)
    half = (1 << shift) / 2
    whole += rest > half or (rest == half and shift > 0 and whole % 2)
    return math.copysign(float(whole << shift), numerator)


def source(t, to):
    """Elements to cast that are representable in the other type."""
    if t == "bool":
        return np.array([True, False])
    if t in INTS:
        low, high = limits(t)
        odd = [0, 1, 2, 3, 127, 128, 129, 200, 255, 256, 257, 32767, 32768, 65535, 65536, 65537, 2 ** 24 + 1, 2 ** 31 - 1,
               2 ** 31, 2 ** 31 + 7, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 5, 2 ** 53 + 1, 2 ** 63 - 1, 2 ** 63, 2 ** 63 + 2049,
               2 ** 64 - 1, low, high, high - 1]
        return make(t, np.array([v for n in odd for v in (n, -n) if low <= v <= high], object))
    numbers = [0.0, -0.0, 0.25, 0.5, 0.99, 1.0, 1.5, 1.99, 2.5, 3.5, 100.75, 126.5, 127.0, 200.5, 255.0, 255.9, 300.0,
               32767.0, 40000.7, 65535.0, 65536.0, 70000.5, 1e6, 2.0 ** 31 - 1, 2.0 ** 31, 3e9, 2.0 ** 32 - 1, 2.0 ** 52 + 0.5,
               2.0 ** 62 + 2.0 ** 40, 2.0 ** 63, 2.0 ** 63 + 2.0 ** 41, 1e-3, 1e-30, 65519.0, 65520.0, 1e30, 3e38]
    array = make(t, np.array([v for n in numbers for v in (n, -n)]))
    if to in INTS:
        low, high = limits(to)
        whole = np.array([math.isfinite(v) and low <= math.trunc(v) <= high for v in array.astype(float)])
        return array[whole]
    return np.concatenate([array, make(t, np.array([np.inf, -np.inf, np.nan]))])


def expected(t, to, array):
    with np.errstate(all="ignore"):
        if to != "bf16":
            return array.astype(DTYPES[to])
        if t in INTS:
            return np.array([nearest(int(v), 8) for v in array], np.float32)
        return make("bf16", array.astype(np.float64))


def model(mode, pairs):
    """A model with an output for each pair of types; the operand is in the file or an input."""
    g = Build(np.random.default_rng(0))
    for t, to in pairs:
        case = Case(g, f"{t}_{to}", mode)
        array = source(t, to)
        if mode == "runtime" and t == "f16":
            x = Value(g.b.input(f"{case.name}_x", np.float16, list(array.shape)), t, array)
            g.inputs[x.name] = array
        else:
            x = g.leaf(case, t, array, known=mode == "known")
        g.finish(case, case.apply("Cast", [x], to, expected(t, to, array), to=CODES[to]))
    return g, g.b.model(18)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Casts(unittest.TestCase):
    def infer(self, g, built):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnxwire.save(built, folder / "m.onnx")
            np.savez(folder / "in.npz", **g.inputs)
            support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz",
                            "--outputs", folder / "out.npz", "--cache", folder / "cache")
            with np.load(folder / "out.npz") as found:
                return dict(found)

    def check(self, mode, pairs):
        g, built = model(mode, pairs)
        found = self.infer(g, built)
        for (t, to), case in zip(pairs, g.cases):
            with self.subTest(f"{t} to {to}"):
                result, right = found[case.name], case.expected
                self.assertEqual(result.dtype, right.dtype)
                if mode == "runtime" and to in WIDENED:
                    digits = 2.0 ** (-8 if to == "bf16" else -11)
                    inside = np.isfinite(right) & (np.abs(right) > 1e-3)
                    np.testing.assert_allclose(result[inside], right[inside], digits)
                else:
                    np.testing.assert_array_equal(result, right)
                    if to in FLOATS:
                        np.testing.assert_array_equal(np.signbit(result), np.signbit(right))

    def test_folded(self):
        self.check("known", list(itertools.product(TYPES, TYPES)))

    def test_at_run_time(self):
        given = [t for t in TYPES if t not in FOLDED_ONLY]
        self.check("runtime", [(t, to) for t in given for to in given])

    def test_refused_at_run_time(self):
        """Casts to types that programs lack, and inputs of such types, are rejected in one line."""
        for t in FOLDED_ONLY:
            for name in (f"to {t}", f"from {t}"):
                with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                    g = Build(np.random.default_rng(0))
                    dtype = np.int64 if name[0] == "t" else DTYPES[t]
                    g.b.input("x", dtype, [2])
                    narrow = g.b.op("Cast", "x", to=CODES[t])
                    g.b.op("Cast", narrow, to=CODES["i64"], out="y")
                    g.b.output("y", np.int64, [2])
                    path = pathlib.Path(folder) / "m.onnx"
                    onnxwire.save(g.b.model(18), path)
                    done = support.run(CLEAVE, "import", path)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn("m.onnx", done.stderr)
                    self.assertIn(f"casts to {t} are supported only where the input is known when importing"
                                  if name[0] == "t" else f"input 'x' has type {t}, which is not supported",
                                  done.stderr)

    def test_widened_beside_known(self):
        """Constants selected by Where next to a run-time value, and empty sums, have the file's type."""
        for t, taken_first in itertools.product(WIDENED, (True, False)):
            with self.subTest(t, taken_first=taken_first):
                g = Build(np.random.default_rng(0))
                case = Case(g, "y", "known")
                constant = lambda t, values: g.leaf(case, t, make(t, np.array(values)), known=True).name
                g.b.input("x", np.float32, [2, 2])
                g.inputs["x"] = np.array([[1, 2], [3, 4]], np.float32)
                x = g.b.op("Cast", "x", to=CODES[t])
                taken, other = constant(t, [0.5, 1.5]), constant(t, [[8.0], [-8.0]])
                where = g.b.op("Where", constant("bool", taken_first), *((taken, x) if taken_first else (x, taken)))
                nothing = g.b.op("Slice", x, *(constant("i64", [n]) for n in (2, 2, 0)))
                sums = g.b.op("ReduceSum", nothing, constant("i64", [0]))
                total = g.b.op("Add", g.b.op("Add", where, other), g.b.op("Mul", sums, other))
                product = g.b.op("MatMul", total, g.b.op("Identity", other))
                g.b.op("Cast", g.b.op("Concat", total, other, product, axis=1), to=CODES["f32"], out="y")
                g.b.output("y", np.float32, [2, 4])
                found = self.infer(g, g.b.model(18))
                right = np.array([0.5, 1.5]) + np.array([[8.0], [-8.0]])
                right = np.concatenate([right, [[8.0], [-8.0]], right @ [[8.0], [-8.0]]], 1)
                np.testing.assert_array_equal(found["y"], right)


if __name__ == "__main__":
    unittest.main()
