"""The closed forms of bytes against published ones, and against sums worked out by hand."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import support
import formulas
import generate
import onnxwire

F = 4  # bytes of an f32


def model(name):
    return formulas.read_architecture(support.MODELS / f"{name}.onnx")


def sent(architecture, mesh, rank=0, **plan):
    plan = formulas.Plan(formulas.parse_mesh(mesh), plan.pop("batch", 8),
                         plan.pop("sequence", 96), **plan)
    return formulas.sent_bytes(architecture, plan)["per_rank"][rank]["sent_bytes"]


class Architectures(unittest.TestCase):
    def test_parameter_counts(self):
        h, v = 96, 257
        gpt2 = 5 * (12 * h * h + 13 * h) + v * h + 96 * h + 2 * h
        h, kv, m = 128, 32, 344
        llama = 5 * (2 * h * h + 2 * h * kv + 3 * h * m + 2 * h) + 2 * v * h + h
        for name in support.NAMES:
            architecture = model(name)
            count = sum(formulas.math.prod(p.shape) for p in architecture.parameters)
            self.assertEqual(count, gpt2 if name.startswith("gpt2") else llama, name)
            self.assertEqual(architecture.layers, 5)

    def test_spellings_agree(self):
        for family in ("gpt2", "llama"):
            for mesh, zero in (("data=2,tensor=2", 1), ("data=3", 0), ("tensor=3", 0)):
                results = [formulas.sent_bytes(model(n), formulas.Plan(
                    formulas.parse_mesh(mesh), 8, 96, zero=zero))
                    for n in support.NAMES if n.startswith(family)]
                for result in results[1:]:
                    self.assertEqual(result["per_rank"], results[0]["per_rank"])

    def test_generated_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.onnx"
            onnxwire.save(generate.generate(generate.Sizes("llama", layers=2, hidden=64, heads=4)), path)
            architecture = formulas.read_architecture(path)
        self.assertEqual((architecture.family, architecture.layers, architecture.hidden,
                          architecture.heads, architecture.kv_heads), ("llama", 2, 64, 4, 2))


class ClosedForms(unittest.TestCase):
    """formulas.md, sections 0 to 2, for sizes that divide."""

    def test_one_rank_sends_nothing(self):
        self.assertEqual(sum(sent(model("gpt2"), "", zero=1).values()), 0)

    def test_data_parallel(self):
        for n in (2, 4):
            for name in ("gpt2", "llama"):
                psi = sum(formulas.math.prod(p.shape) for p in model(name).parameters)
                result = sent(model(name), f"data={n}")
                self.assertEqual(result["gradient"], 2 * (n - 1) * psi * F // n)
                self.assertEqual(result["activation"] + result["parameter"] + result["norm"], 0)

    def test_zero_1(self):
        psi = sum(formulas.math.prod(p.shape) for p in model("gpt2").parameters)
        result = sent(model("gpt2"), "data=2", zero=1)
        self.assertEqual(result["gradient"], psi * F // 2)
        self.assertEqual(result["parameter"], psi * F // 2)

    def test_zero_2_and_3(self):
        psi = sum(formulas.math.prod(p.shape) for p in model("gpt2").parameters)
        h, layers = 96, 5
        # Biases, shifts and positions are gathered for the forward pass only.
        added = layers * (3 * h + h + 4 * h + h + 2 * h) + h + 96 * h
        per_step = sent(model("gpt2"), "data=2", zero=2, microbatches=4)
        self.assertEqual(per_step["gradient"] + per_step["parameter"], psi * F)
        each = sent(model("gpt2"), "data=2", zero=2, microbatches=4,
                    zero2_reduce="per_microbatch")
        self.assertEqual((each["gradient"], each["parameter"]), (4 * psi * F // 2, psi * F // 2))
        full = sent(model("gpt2"), "data=2", zero=3, microbatches=4)
        self.assertEqual(full["gradient"], 4 * psi * F // 2)
        self.assertEqual(full["parameter"], 4 * (2 * psi - added) * F // 2)
        kept = sent(model("gpt2"), "data=2", zero=3, reshard=False)
        self.assertEqual(kept["gradient"] + kept["parameter"], psi * F)

    def test_gpt2_124m_sends_2_993_times_its_size(self):
        shapes = {"transformer.wte.weight": [50257, 768], "transformer.wpe.weight": [1024, 768]}
        for end in ("weight", "bias"):
            shapes[f"transformer.ln_f.{end}"] = [768]
            for layer in range(12):
                name = f"transformer.h.{layer}."
                for part, sizes in (("ln_1", [768]), ("ln_2", [768]),
                                    ("attn.c_attn", [768, 2304]), ("attn.c_proj", [768, 768]),
                                    ("mlp.c_fc", [768, 3072]), ("mlp.c_proj", [3072, 768])):
                    shapes[f"{name}{part}.{end}"] = sizes if end == "weight" else sizes[-1:]
        architecture = formulas.Architecture(
            "gpt2", [formulas.Parameter(n, s) for n, s in shapes.items()], 12, 768, 12, 12)
        psi = sum(formulas.math.prod(s) for s in shapes.values())
        self.assertEqual(psi, 124439808)
        result = sent(architecture, "data=4", zero=3, sequence=1024)
        times = (result["gradient"] + result["parameter"]) / (3 * psi * F / 4)
        self.assertEqual(round(times, 3), 2.993)

    def test_hybrid(self):
        psi = sum(formulas.math.prod(p.shape) for p in model("llama").parameters)
        inner = sent(model("llama"), "data=2", zero=3)
        both = sent(model("llama"), "replica=2,data=2", zero=3, replicate="replica")
        self.assertEqual(both["parameter"], inner["parameter"])
        self.assertLess(abs(both["gradient"] - inner["gradient"] - psi * F // 2), 2000)

    def test_memory(self):
        psi = sum(formulas.math.prod(p.shape) for p in model("gpt2").parameters)
        for zero, split in ((0, ()), (1, ("optimizer",)), (2, ("optimizer", "gradients")),
                            (3, ("optimizer", "gradients", "parameters"))):
            plan = formulas.Plan([("data", 2)], 8, 96, zero=zero)
            memory = formulas.memory(model("gpt2"), plan)
            for key, size in (("parameters", 4), ("gradients", 4), ("optimizer", 8)):
                self.assertEqual(memory[key], size * psi // (2 if key in split else 1))

    def test_tensor_parallel(self):
        b, s, h, layers, t = 8, 96, 96, 5, 2
        result = sent(model("gpt2"), f"tensor={t}")
        # 8 (t-1)/t bsh per layer, and one all-reduce each for the embedding and the head.
        per_layer = 8 * (t - 1) * b * s * h * F // t
        ends = 2 * 2 * (t - 1) * b * s * h * F // t
        self.assertEqual(result["activation"], layers * per_layer + ends)
        self.assertEqual(result["loss"], 3 * 2 * (t - 1) * b * s * F // t)
        self.assertEqual(result["gradient"], 0)

    def test_both_axes(self):
        architecture = model("gpt2")
        result = sent(architecture, "data=2,tensor=2")
        # Half the samples, and half of each split parameter (257 rows: 129).
        alone = sent(architecture, "tensor=2")
        self.assertEqual(result["activation"], alone["activation"] // 2)
        split = 5 * (12 * 96 * 96 + 7 * 96) // 2
        whole = 5 * 6 * 96 + 96 * 96 + 2 * 96
        self.assertEqual(result["gradient"], (split + whole + 129 * 96) * F)

    def test_microbatches(self):
        one, two = (sent(model("gpt2"), "data=2,tensor=2", zero=1, microbatches=m) for m in (1, 2))
        self.assertEqual(one["gradient"], two["gradient"])
        self.assertEqual(one["activation"], two["activation"])


class Remainders(unittest.TestCase):
    def test_all_reduce_of_a_message_that_does_not_divide(self):
        term = formulas.Term("loss", "", "all_reduce", ["data"], 3, 7, 1)
        # Chunks of 3, 3 and 1: every rank sends two chunks for the reduction, then two reduced
        # chunks.
        sent_bytes = [term.sent(i) for i in range(3)]
        self.assertEqual(sent_bytes, [10, 10, 8])
        self.assertEqual(sum(sent_bytes), 2 * 2 * 7)

    def test_padding(self):
        def tile_of(*sizes, ways=2):
            return formulas.zero_tile([formulas.Dim(*size) for size in sizes], ways)

        self.assertEqual(tile_of((257,), (96,)), 257 * 48)
        self.assertEqual(tile_of((257,)), 129)
        self.assertEqual(tile_of((129,), (3,), (7,)), 3 * 7 * 65)
        self.assertIsNone(tile_of((1,)))
        # 257 rows are already split in two: tiles of 129 divide by three, but the whole does not
        # divide into such tiles.
        self.assertEqual(tile_of((257, 2), (128,), ways=3), 129 * 43)
        self.assertEqual(tile_of((258, 2), (128,), ways=3), 43 * 128)

    def test_messages(self):
        limit = formulas.BUCKET // F
        self.assertEqual(formulas.messages([3, 4], F), [7])
        self.assertEqual(formulas.messages([limit, 1, limit - 1], F), [limit, limit])

    def test_heads(self):
        gpt2, llama = model("gpt2"), model("llama")
        qkv = next(p for p in gpt2.parameters if p.name.endswith("h.0.attn.c_attn.weight"))
        key = next(p for p in llama.parameters if p.name.endswith("layers.0.self_attn.k_proj.weight"))

        def local(architecture, parameter, ways):
            return [d.local for d in formulas.dims_of(architecture, parameter, ways) if d.size > 1]

        self.assertEqual(local(gpt2, qkv, 4), [96, 3, 2, 16])
        self.assertEqual(local(llama, key, 2), [128, 1, 16])
        self.assertEqual(local(llama, key, 4), [128, 2, 16])
        splits = [formulas.attention_split(llama, ways) for ways in (1, 2, 3, 4, 8)]
        self.assertEqual(splits, [None, "kv", "kv", "group", None])
        # All-reduced gradients of keys and values, [b, s, 2, 16] each in 5 layers.
        b, s, h, kv = 8, 96, 128, 32
        self.assertEqual(sent(llama, "tensor=4")["activation"],
                         2 * 3 * b * s * (22 * h + 10 * kv) * F // 4)

    def test_uneven_batch(self):
        self.assertEqual(sent(model("gpt2"), "data=3,tensor=2")["activation"],
                         sent(model("gpt2"), "data=2,tensor=2", batch=6)["activation"])


class CommandLine(unittest.TestCase):
    def run_tool(self, *args):
        return subprocess.run([support.ROOT / "test" / "formulas.py", *map(str, args)],
                              capture_output=True, text=True)

    def test_json(self):
        done = self.run_tool(support.MODELS / "gpt2.onnx", "--mesh", "data=2,tensor=2",
                             "--zero", 1, "--json")
        result = json.loads(done.stdout)
        self.assertEqual(result["ranks"], 4)
        self.assertEqual(len(result["per_rank"]), 4)
        self.assertEqual(set(result["per_rank"][0]["sent_bytes"]), set(formulas.PURPOSES))

    def test_errors(self):
        for args, word in (((support.MODELS / "gpt2.onnx", "--mesh", "data=x"), "data=x"),
                           ((support.MODELS / "gpt2.onnx", "--mesh", "expert=2"), "expert"),
                           (("none.onnx",), "none.onnx"),
                           ((support.MODELS / "gpt2.onnx", "--microbatches", 3), "microbatches")):
            done = self.run_tool(*args)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
