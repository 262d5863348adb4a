"""Exact numbers in the types of ONNX for test_folding.

Integers are Python integers wrapped to the type, so nothing is lost. Floats are computed in
double and rounded once. bfloat16, which NumPy lacks, is stored as float32.
"""

import numpy as np

SIGNED, UNSIGNED = ["i8", "i16", "i32", "i64"], ["u8", "u16", "u32", "u64"]
INTS, FLOATS = SIGNED + UNSIGNED, ["f16", "bf16", "f32", "f64"]
WIDE = ["i32", "i64", "u32", "u64"]
NUMBERS = INTS + FLOATS
ALL = NUMBERS + ["bool"]
# The types of run-time inputs.
RUNTIME = ["i32", "i64", "f32", "f64", "bool"]
CODES = {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10,
         "f64": 11, "u32": 12, "u64": 13, "bf16": 16}
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.float32,
          "bool": np.bool_, **{f"{k}{n}": np.dtype(f"{name}{n}") for k, name in
                               (("i", "int"), ("u", "uint")) for n in (8, 16, 32, 64)}}
# The relative error of one operation: rounding, or the polynomials that approximate functions
# at run time.
EPS = {"f16": 2.0 ** -10, "bf16": 2.0 ** -7, "f32": 4e-6, "f64": 1e-12}
FUSED = 0.2


def bits(t):
    return int(t[1:])


def limits(t):
    n = bits(t)
    return (0, 2 ** n - 1) if t[0] == "u" else (-2 ** (n - 1), 2 ** (n - 1) - 1)


def wrap(t, value):
    low, high = limits(t)
    return (int(value) - low) % (high - low + 1) + low


def round_bf16(x):
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(x)
        y = np.ldexp(np.rint(mantissa * 256), exponent - 8)
    return np.where(np.isfinite(x), y, x).astype(np.float32)


def make(t, values, shape=None):
    """An array of a type from Python's integers or doubles."""
    shape = np.shape(values) if shape is None else shape
    flat = np.asarray(values, object).ravel() if t in INTS else np.ravel(values)
    with np.errstate(all="ignore"):
        if t in INTS:
            out = np.array([wrap(t, v) for v in flat], dtype=DTYPES[t])
        elif t == "bf16":
            out = round_bf16(flat.astype(np.float64))
        else:
            out = flat.astype(DTYPES[t])
    return out.reshape(shape)


def exact(array):
    """Elements as Python's integers, or as doubles."""
    if array.dtype.kind in "iub":
        return array.astype(np.int64 if array.dtype.kind == "b" else array.dtype).astype(object)
    return array.astype(np.float64)


def each(t, function, *arrays):
    """An elementwise function of exact elements, with broadcasting."""
    arrays = np.broadcast_arrays(*[exact(a) for a in arrays])
    shape = arrays[0].shape
    with np.errstate(all="ignore"):
        values = [function(*v) for v in zip(*[a.ravel() for a in arrays])]
    return make(t, np.array(values, object if t in INTS else None), shape)


def quotient(a, b):
    if isinstance(a, (float, np.floating)):
        return np.float64(a) / np.float64(b)
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def modulo(a, b):
    return 0 if b == 0 else a - (a // b) * b


def remainder(a, b):
    if isinstance(a, (float, np.floating)):
        return np.fmod(a, b)
    return 0 if b == 0 else a - quotient(a, b) * b


def larger(a, b):
    return a if a != a else b if b != b else max(a, b)


def smaller(a, b):
    return a if a != a else b if b != b else min(a, b)


def whole_power(t, a, b):
    """Integer power that wraps; for negative exponents, the integer part."""
    if b < 0:
        return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
    return pow(a, b, 2 ** bits(t))


def power_by_float(t, a, b):
    """NumPy's power through doubles; results that do not fit wrap."""
    exact_power = wrap(t, int(a) ** int(b)) if b == int(b) else None
    if exact_power is None:
        return int(np.float64(a) ** b)
    return int(float(exact_power)) if abs(exact_power) <= limits(t)[1] - bits(t) * 32 else exact_power
