"""The committed models and their references are consistent."""

import json
import unittest

import numpy as np

import support
import generate
import onnxwire


class Models(unittest.TestCase):
    def test_references_cover_every_parameter(self):
        for name in support.NAMES:
            with self.subTest(name):
                path = support.MODELS / f"{name}.onnx"
                self.assertLessEqual(path.stat().st_size, 4_000_000)
                names = json.loads((support.MODELS / f"{name}.names.json").read_text())
                reference = np.load(support.MODELS / names["reference"])
                gradients = {k[5:] for k in reference.files if k.startswith("grad/")}
                tensors = {t.name: t for t in onnxwire.load(path).graph.initializers}
                used = set()
                for onnx_name, entry in names["parameters"].items():
                    shape = reference["grad/" + entry["parameter"]].shape
                    self.assertEqual(tensors[onnx_name].dims,
                                     list(shape[::-1] if entry["transposed"] else shape))
                    used.add(entry["parameter"])
                self.assertEqual(used, gradients)
                floats = {n for n, t in tensors.items() if t.data_type == 1}
                self.assertEqual(floats, set(names["parameters"]) | set(names["constants"]))

    def test_spellings_of_a_family_share_weights(self):
        for family in ("gpt2", "llama"):
            contents = []
            for name in [n for n in support.NAMES if n.startswith(family)]:
                names = json.loads((support.MODELS / f"{name}.names.json").read_text())
                tensors = {t.name: t for t in
                           onnxwire.load(support.MODELS / f"{name}.onnx").graph.initializers}
                content = {}
                for onnx_name, entry in names["parameters"].items():
                    array = tensors[onnx_name].array()
                    content[entry["parameter"]] = (array.T if entry["transposed"] else array).tobytes()
                contents.append(content)
            for content in contents[1:]:
                self.assertEqual(content, contents[0])

    def test_no_parameter_is_trivial(self):
        for name in support.NAMES + ["quickstart"]:
            names = json.loads((support.MODELS / f"{name}.names.json").read_text())
            for tensor in onnxwire.load(support.MODELS / f"{name}.onnx").graph.initializers:
                if tensor.name in names["parameters"]:
                    self.assertGreater(tensor.array().std(), 1e-4, tensor.name)

    def test_labels(self):
        for family in ("gpt2", "llama"):
            reference = np.load(support.MODELS / f"{family}.npz")
            labels = reference["labels"]
            self.assertEqual(labels.shape, (8, 96))
            self.assertEqual((labels != -100).sum(), reference["weight"])
            self.assertGreater((labels == -100).sum(), 0)
            self.assertAlmostEqual(float(reference["loss"]),
                                   float(reference["loss_sum"]) / int(reference["weight"]))


class Generate(unittest.TestCase):
    def test_layers_and_sizes(self):
        model = generate.generate(generate.Sizes("llama", layers=24, hidden=64, heads=4))
        norms = [t for t in model.graph.initializers if "layernorm" in t.name]
        self.assertEqual(len(norms), 48)
        self.assertEqual(model.opset, generate.OPSET)
        support.meaning(model)  # raises if the order is not topological

    def test_same_seed_same_bytes(self):
        a, b = (generate.generate(generate.Sizes(layers=1)).bytes() for _ in range(2))
        self.assertEqual(a, b)

    def test_bad_sizes(self):
        with self.assertRaisesRegex(ValueError, "not divisible"):
            generate.generate(generate.Sizes(hidden=97))


if __name__ == "__main__":
    unittest.main()
