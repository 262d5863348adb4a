"""LSTM, GRU and RNN: every attribute and operand, against the formulas of the specification in NumPy; training and
sharding; bad input."""

import itertools
import pathlib
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import recurrent
import support
from support import CLEAVE

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
T, B, I, H = 4, 3, 5, 2


def arrays_of(kind, directions, rng):
    rows = GATES[kind] * H
    shapes = {"x": (T, B, I), "w": (directions, rows, I), "r": (directions, rows, H), "b": (directions, 2 * rows),
              "h": (directions, B, H), "c": (directions, B, H), "p": (directions, 3 * H)}
    return {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class Recurrent(unittest.TestCase):
    def infer(self, kind, attributes, arrays, operands, lengths=None, known=False):
        """The results Y, Y_h (and Y_c), for a model of one node. `operands` are the optional ones that it has."""
        b = onnxbuild.Builder()
        first = attributes.get("layout", 0)
        directions = arrays["w"].shape[0]

        def swapped(array):
            return np.ascontiguousarray(array.swapaxes(0, 1)) if first else array

        given = {"x": swapped(arrays["x"])}
        names = [b.input("x", np.float32, list(given["x"].shape)), *(b.parameter(n, arrays[n]) for n in "wr")]
        names.append(b.parameter("b", arrays["b"]) if "b" in operands else "")
        if lengths is None:
            names.append("")
        elif known:
            names.append(b.constant(np.array(lengths, np.int32)))
        else:
            given["lengths"] = np.array(lengths, np.int32)
            names.append(b.input("lengths", np.int32, [B]))
        for state in "hc"[:2 if kind == "LSTM" else 1]:
            if state in operands:
                given[state] = swapped(arrays[state])
            names.append(b.input(state, np.float32, list(given[state].shape)) if state in operands else "")
        if kind == "LSTM":
            names.append(b.parameter("p", arrays["p"]) if "p" in operands else "")
        while names[-1] == "":
            names.pop()
        count = 3 if kind == "LSTM" else 2
        results = b.op(kind, *names, outputs=count, hidden_size=H, **attributes)
        state = [B, directions, H] if first else [directions, B, H]
        shapes = [[B, T, directions, H] if first else [T, directions, B, H], *[state] * (count - 1)]
        for result, shape in zip(results, shapes):
            b.output(b.op("Identity", result, out=f"y{result}"), np.float32, shape)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnxwire.save(b.model(22), folder / "m.onnx")
            np.savez(folder / "in.npz", **given)
            support.succeed(CLEAVE, "infer", folder / "m.onnx", "--inputs", folder / "in.npz", "--outputs",
                            folder / "out.npz", "--cache", folder / "cache")
            with np.load(folder / "out.npz") as found:
                found = [found[f"y{result}"] for result in results]
        if first:
            found = [found[0].transpose(1, 2, 0, 3), *(value.swapaxes(0, 1) for value in found[1:])]
        return found

    def compare(self, kind, attributes, operands="b", lengths=None, known=False, seed=0):
        directions = 2 if attributes.get("direction") == "bidirectional" else 1
        arrays = arrays_of(kind, directions, np.random.default_rng(seed))
        found = self.infer(kind, attributes, arrays, operands, lengths, known)
        wide = {name: array.astype(np.float64) for name, array in arrays.items()}
        want = recurrent.layer(kind, attributes, wide["x"], wide["w"], wide["r"],
                               wide["b"] if "b" in operands else None,
                               None if lengths is None else np.array(lengths),
                               [wide[state] if state in operands else None for state in "hc"],
                               wide["p"] if "p" in operands and kind == "LSTM" else None)
        for have, expected in zip(found, want):
            np.testing.assert_allclose(have, expected, rtol=2e-5, atol=2e-6)

    def test_directions_and_operands(self):
        cases = itertools.product(GATES, ("forward", "reverse", "bidirectional"), ("", "bhcp"))
        for (kind, direction, operands), layout in zip(cases, itertools.cycle((0, 1, 1))):
            with self.subTest(kind=kind, direction=direction, operands=operands, layout=layout):
                self.compare(kind, {"direction": direction, "layout": layout}, operands)

    def test_lengths(self):
        for kind, direction, known in zip(GATES, ("bidirectional", "reverse", "forward"), (False, True, False)):
            with self.subTest(kind=kind):
                self.compare(kind, {"direction": direction}, "bhc", [2, 4, 0], known)

    def test_variants(self):
        self.compare("LSTM", {"input_forget": 1, "clip": 0.3}, "bhcp")
        self.compare("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "clip": 0.5}, "bh")
        self.compare("GRU", {"linear_before_reset": 1}, "h")

    def test_activations(self):
        names = list(recurrent.FUNCTIONS)
        for start in range(0, len(names), 3):
            three = (names + names)[start:start + 3]
            with self.subTest(three):
                self.compare("LSTM", {"activations": three, "activation_alpha": [0.7, 0.3],
                                      "activation_beta": [0.6]}, "bhc")


if __name__ == "__main__":
    unittest.main()
