"""tools/scramble changes only names and the order of nodes."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import support
import generate
import onnxwire

SCRAMBLE = support.ROOT / "tools" / "scramble"


class Scramble(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_tool(self, source, *flags, expect=0, name="out.onnx"):
        target = self.folder / name
        done = subprocess.run([SCRAMBLE, source, target, *map(str, flags)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        return onnxwire.load(target) if expect == 0 else done.stderr

    def generated(self, **sizes):
        path = self.folder / "generated.onnx"
        onnxwire.save(generate.generate(generate.Sizes(layers=2, **sizes)), path)
        return path

    @staticmethod
    def names(model):
        graph = model.graph
        out = {graph.name} | {n.name for n in graph.nodes}
        out |= {v for n in graph.nodes for v in n.inputs + n.outputs}
        return out | {v.name for v in graph.initializers + graph.value_infos} - {""}

    def test_meaning_stays_and_names_go(self):
        for name in support.NAMES:
            with self.subTest(name):
                source = support.MODELS / f"{name}.onnx"
                before, after = onnxwire.load(source), self.run_tool(source, "--seed", 3)
                self.assertEqual(support.meaning(before), support.meaning(after))
                self.assertFalse((self.names(before) & self.names(after)) - {""})
                ops = [[n.op_type for n in m.graph.nodes] for m in (before, after)]
                self.assertNotEqual(ops[0], ops[1])
                self.assertEqual(sorted(ops[0]), sorted(ops[1]))
                self.assertEqual([v.shape for v in before.graph.inputs],
                                 [v.shape for v in after.graph.inputs])

    def test_no_text_of_the_original_survives(self):
        self.run_tool(support.MODELS / "gpt2.onnx")
        data = (self.folder / "out.onnx").read_bytes()
        for word in (b"transformer", b"c_attn", b"input_ids", b"logits", b"node_"):
            self.assertNotIn(word, data)

    def test_keep_io(self):
        after = self.run_tool(support.MODELS / "gpt2.ts17.onnx", "--keep-io")
        self.assertEqual([v.name for v in after.graph.inputs], ["input_ids", "attention_mask"])
        self.assertEqual([v.name for v in after.graph.outputs], ["logits"])

    def test_seeds(self):
        source = support.MODELS / "llama.onnx"
        same = [self.run_tool(source, "--seed", s, name=f"{i}.onnx").bytes()
                for i, s in enumerate((1, 1, 2))]
        self.assertEqual(same[0], same[1])
        self.assertNotEqual(same[0], same[2])

    def test_map(self):
        mapping = self.folder / "map.json"
        after = self.run_tool(support.MODELS / "gpt2.onnx", "--map", mapping)
        mapping = json.loads(mapping.read_text())
        before = onnxwire.load(support.MODELS / "gpt2.onnx")
        self.assertEqual([mapping[t.name] for t in before.graph.initializers],
                         [t.name for t in after.graph.initializers])
        self.assertEqual(mapping["input_ids"], after.graph.inputs[0].name)

    def test_functions(self):
        source = self.generated(functions=True)
        before, after = onnxwire.load(source), self.run_tool(source)
        self.assertEqual(support.meaning(before), support.meaning(after))
        self.assertEqual(len(after.functions), 1)
        old = {v for n in before.functions[0].nodes for v in n.inputs + n.outputs}
        new = {v for n in after.functions[0].nodes for v in n.inputs + n.outputs}
        self.assertFalse(old & new)

    def test_external_data_is_copied(self):
        model = generate.generate(generate.Sizes(layers=1))
        source = self.folder / "in" / "m.onnx"
        source.parent.mkdir()
        with open(source.parent / "m.data", "wb") as file:
            generate.externalise(model, "m.data", file)
        onnxwire.save(model, source)
        self.run_tool(source)
        self.assertEqual((self.folder / "m.data").read_bytes(),
                         (source.parent / "m.data").read_bytes())

    def test_external_data_outside_the_folder(self):
        model = generate.generate(generate.Sizes(layers=1))
        source = self.folder / "in" / "m.onnx"
        source.parent.mkdir()
        with open(self.folder / "m.data", "wb") as file:
            generate.externalise(model, "../m.data", file)
        onnxwire.save(model, source)
        self.assertIn("outside the model's folder", self.run_tool(source, expect=2))

    def test_resize(self):
        for family in ("gpt2", "llama"):
            source = self.generated(family=family, hidden=96, heads=6)
            shapes = []
            for seed in (1, 2):
                after = self.run_tool(source, "--resize", "--seed", seed)
                shapes.append([t.dims for t in after.graph.initializers if len(t.dims) == 2])
            before = [t.dims for t in onnxwire.load(source).graph.initializers
                      if len(t.dims) == 2]
            self.assertEqual(len(before), len(shapes[0]))
            self.assertNotEqual(before, shapes[0])
            self.assertNotEqual(shapes[0], shapes[1])

    def test_resize_of_an_exported_file_is_refused(self):
        message = self.run_tool(support.MODELS / "gpt2.onnx", "--resize", expect=2)
        self.assertIn("generate.py", message)

    def test_bad_input(self):
        bad = self.folder / "bad.onnx"
        bad.write_bytes(b"hello")
        self.assertIn("bad.onnx", self.run_tool(bad, expect=2))
        self.assertIn("error", self.run_tool(self.folder / "none.onnx", expect=2))


if __name__ == "__main__":
    unittest.main()
