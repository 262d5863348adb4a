"""The output of `explain`, and what it says about the sharding."""

import ast
import pathlib
import re
import tempfile
import unittest

import support
import exported_gpt
import training

SMALL = {"hidden": 64, "heads": 4}
LLAMA = {**SMALL, "family": "llama", "kv_heads": 2, "intermediate": 96}
COLLECTIVE = {"kind": str, "axes": list, "link": str, "group_size": int, "purpose": str,
              "source": str, "dtype": str, "count": int, "payload_bytes": int,
              "sent_bytes": int, "received_bytes": int, "padding_bytes": int,
              "exposed_ms": (int, float)}
PURPOSES = {"gradient", "parameter", "activation", "expert", "norm", "loss", "pipeline"}
KINDS = {"all_reduce", "all_gather", "reduce_scatter"}


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Explain(unittest.TestCase):
    def has(self, entry, keys):
        for key, kind in keys.items():
            self.assertIsInstance(entry[key], kind, key)

    def test_json(self):
        said = training.explain("gpt2", "data=2,tensor=2", parallel__data__zero=1,
                                train__microbatches=2)
        self.assertEqual(said["ranks"], 4)
        self.assertEqual(said["mesh"], [["data", 2], ["tensor", 2]])
        batch = {"global": 8, "per_rank_microbatch": 2, "microbatches": 2, "tokens_per_step": 768}
        self.assertEqual(said["batch"], batch)
        self.assertEqual([rank["rank"] for rank in said["per_rank"]], [0, 1, 2, 3])
        # The modules of nodes, by the exporter's notes: ['', 'transformer.h.0', 'transformer.h.0.attn', 'add'].
        scopes = re.findall(rb"\[''[^\]]*\]", (support.MODELS / "gpt2.onnx").read_bytes())
        modules = {ast.literal_eval(scope.decode())[-2] for scope in scopes}
        parameters = support.initializers(support.MODELS / "gpt2.onnx")
        for rank in said["per_rank"]:
            self.assertGreater(rank["flops"], 1e8)
            memory = rank["memory"]
            for key in ("parameters", "gradients", "optimizer", "activations", "workspace"):
                self.assertGreater(memory[key], 0, key)
                self.assertLess(memory[key], memory["peak"])
            for entry in rank["collectives"]:
                self.has(entry, COLLECTIVE)
                self.assertIn(entry["purpose"], PURPOSES)
                self.assertIn(entry["kind"], KINDS)
                self.assertGreater(entry["payload_bytes"], 0)
                if entry["purpose"] == "activation":
                    self.assertIn(entry["source"], modules)
                if entry["purpose"] in ("gradient", "parameter"):
                    self.assertIn(entry["source"].split(" and ")[0], parameters)
        # ZeRO 1: two moments, each of half of the rank's part of a parameter.
        self.assertEqual(memory["optimizer"], memory["parameters"])
        for entry in said["at_peak"]:
            self.has(entry, {"tensor": str, "bytes": int, "source": str})
        self.assertEqual(sum(entry["bytes"] for entry in said["at_peak"]), memory["peak"])
        sizes = [entry["bytes"] for entry in said["at_peak"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        for entry in said["kernels"]:
            self.has(entry, {"name": str, "calls": int})
        pipeline = {"stages": 1, "microbatches": 2, "bubble_fraction": 0}
        self.assertEqual({key: said["pipeline"][key] for key in pipeline}, pipeline)
        self.assertIn("schedule", said["pipeline"])
        self.assertIn("peak_in_flight", said["pipeline"])

    def test_times_are_those_of_the_device(self):
        """Programs for CUDA use the cost model of an H100 unless a cluster file is given."""
        def seconds(**keys):
            overlap = training.explain("gpt2", "tensor=2", **keys)["overlap"]
            return overlap["compute_seconds"]
        cpu, cuda = seconds(), seconds(target__kind="cuda")
        self.assertLess(cuda, cpu / 10)
        self.assertEqual(seconds(target__kind="cuda", target__cluster="h100-fp32"), cuda)
        self.assertLess(seconds(target__kind="cuda", train__precision="bf16"), cuda)

    def test_text_begins_with_the_batch(self):
        lines = support.succeed(support.CLEAVE, "explain", *training.flags(
            "llama", "data=3,tensor=2", train__microbatches=2)).splitlines()
        self.assertEqual(lines[0], "global batch 8, samples per rank per microbatch 2, "
                                   "microbatches 2, tokens per step 768")
        self.assertEqual(lines[1], "6 ranks, data 3, tensor 2")

    def test_many_ranks_are_listed_as_classes(self):
        said = training.explain("gpt2", "data=8,tensor=3")
        members = [rank["members"] for rank in said["per_rank"]]
        self.assertLess(len(members), 24)
        self.assertEqual(sorted(sum(members, [])), list(range(24)))

    def test_the_zero_paper(self):
        """7.5e9 parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB (the ZeRO paper), and for pure f32."""
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "gpt.onnx"
            sizes = exported_gpt.generate.Sizes(layers=9, hidden=8192, heads=64, vocab=28672,
                                                positions=1024).check()
            exported_gpt.write(model, sizes, batch=64)
            self.assertFalse(model.with_name("gpt.onnx.data").exists())
            keys = {"dims__sequence": 64}
            halves = keys | {"train__precision": "bf16"}
            for zero, (mixed, single) in enumerate(
                    [("120", "120"), ("31.4", "60.9"), ("16.6", "31.4"), ("1.9", "1.9")]):
                for expected, types in ((mixed, halves), (single, keys)):
                    with self.subTest(zero=zero, types=types):
                        said = training.explain(model, "data=64", parallel__data__zero=zero,
                                                **types)
                        memory = said["per_rank"][0]["memory"]
                        lasting = sum(memory[key] for key in
                                      ("parameters", "gradients", "optimizer")) / 1e9
                        digits = len(expected.partition(".")[2])
                        self.assertEqual(f"{lasting:.{digits}f}", expected)
                        self.assertEqual(sum(e["bytes"] for e in said["at_peak"]),
                                         memory["peak"])

    def test_bf16_is_booked(self):
        """Bytes sent and stored, by parameters and by gradients."""
        keys = {"parallel__data__zero": 1}
        single = training.explain("gpt2", "data=2", **keys)["per_rank"][0]
        mixed = training.explain("gpt2", "data=2", train__precision="bf16",
                                 train__grad_dtype="fp32", **keys)["per_rank"][0]
        self.assertEqual(2 * mixed["memory"]["parameters"], single["memory"]["parameters"])
        self.assertEqual(mixed["memory"]["gradients"], single["memory"]["gradients"])
        self.assertEqual(2 * mixed["memory"]["optimizer"], 3 * single["memory"]["optimizer"])
        sent = [{c["purpose"]: (c["dtype"], c["sent_bytes"]) for c in rank["collectives"]}
                for rank in (single, mixed)]
        self.assertEqual(sent[1]["gradient"], sent[0]["gradient"])
        self.assertEqual(sent[1]["parameter"], ("bf16", sent[0]["parameter"][1] // 2))

    def test_padding(self):
        # Nine samples for eight; 258 rows for 257, of which each rank has half.
        said = training.explain("gpt2", "data=3,tensor=2", parallel__data__zero=1)
        for entry in said["per_rank"][0]["collectives"]:
            wanted = {"activation": entry["payload_bytes"] // 9, "gradient": 96 * 4 // 2,
                      "parameter": 96 * 4 // 2}.get(entry["purpose"])
            if wanted is not None:
                self.assertEqual(entry["padding_bytes"], wanted, entry)

    def test_two_tensor_ranks_share_parameters_and_gather_nothing(self):
        for model in ("gpt2", "llama"):
            one, two = (training.explain(model, mesh) for mesh in ("", "tensor=2"))
            bytes_of = [said["per_rank"][0]["memory"]["parameters"] for said in (one, two)]
            self.assertLessEqual(bytes_of[1], 0.55 * bytes_of[0], model)
            self.assertEqual(one["per_rank"][0]["collectives"], [])
            for entry in two["per_rank"][0]["collectives"]:
                self.assertEqual(entry["kind"], "all_reduce")
                self.assertNotIn(entry["purpose"], ("parameter", "gradient"))
            self.assertFalse([r for r in two["remarks"] if "unrequested" in r])

    def test_deeper_models_have_the_same_kernels(self):
        for sizes in ({**SMALL, "family": "gpt2"}, LLAMA):
            few, many = (training.explain(training.generated(**sizes, layers=n, sequence=32),
                                          "tensor=2")["kernels"] for n in (12, 32))
            # A kernel updates parameters of several layers, and the remainder differs: so kernel
            # numbers may differ, but nothing else.
            names = [sorted(re.sub(r"\d+$", "", k["name"]) for k in said) for said in (few, many)]
            self.assertEqual(*names)
            self.assertGreater(sum(k["calls"] for k in many), 2.5 * sum(k["calls"] for k in few))

    def test_attention_needs_memory_linear_in_the_sequence(self):
        model = training.generated(**LLAMA, layers=2, batch=1, sequence=256)
        for mesh in ("", "tensor=2"):
            peaks = []
            for length in (256, 1024, 4096):
                said = training.explain(model, mesh, dims__sequence=length)
                # The largest value is the logits, [1, s, 257]; no head has [s, s].
                self.assertLessEqual(said["at_peak"][0]["bytes"], length * 257 * 4)
                memory = said["per_rank"][0]["memory"]
                peaks.append(memory["activations"] + memory["workspace"])
            for short, long in zip(peaks, peaks[1:]):
                self.assertLess(long, 4.05 * short)


if __name__ == "__main__":
    unittest.main()
