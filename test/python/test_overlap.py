"""Overlapped (asynchronous) collectives: results are bit-identical to the plain order, memory stays
within the plan, and links may have a given speed."""
import json
import tempfile
import unittest
from pathlib import Path

import support
import training
from support import CLEAVE

STEPS = 3
MESHES = [("data=2", {"parallel__data__zero": zero}) for zero in range(4)] + [
    ("data=2,tensor=2", {"parallel__data__zero": 3}),
    ("data=3", {"parallel__data__zero": 3, "train__microbatches": 2}),
    ("", {"mesh__axes": '["outer","data"]', "mesh__outer": 2, "mesh__data": 2,
           "parallel__data__zero": 3, "parallel__data__replicate": "outer"}),
    ("pipeline=2,data=2", {"parallel__data__zero": 2, "train__microbatches": 2}),
    ("data=2,sequence=2", {"parallel__data__zero": 3,
                           "parallel__sequence": '[{kind="ring",axis="sequence"}]'})]
# A link so slow that even the messages of a tiny model take time.
LINK = "200,0.05"


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Overlap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def cluster(self):
        latency, rate = LINK.split(",")
        path = self.folder / "cluster.toml"
        path.write_text(f"[links.intra]\nlatency_us = {latency}\ngbytes_per_s = {rate}\n")
        return f'"{path}"'

    def losses(self, name, mesh, *more, model="gpt2", **keys):
        out = self.folder / name
        support.succeed(*training.command(out, model, mesh, "--steps", STEPS, *more,
                                          data__validation=0.0, **keys))
        return [(line["loss"], line.get("grad_norm")) for line in support.read_log(out)]

    def test_bits_are_those_of_the_plain_order(self):
        for number, (mesh, keys) in enumerate(support.some(reversed(MESHES), 3)):
            with self.subTest(mesh=mesh, **keys):
                keys = {**keys, "target__cluster": self.cluster(), "model": training.small("gpt2")}
                plain = self.losses(f"plain{number}", mesh, target__overlap="false", **keys)
                self.assertEqual(self.losses(f"still{number}", mesh, **keys), plain)
                # With communication threads, and with dead memory poisoned.
                self.assertEqual(self.losses(f"slow{number}", mesh, "--slow-link", LINK,
                                             "--poison", **keys), plain)

    def test_products_in_pieces(self):
        """With low bandwidth and no latency, products and the collectives they depend on are cut;
        results are equal up to the last bits."""
        path = self.folder / "cluster.toml"
        path.write_text("[links.intra]\nlatency_us = 0.001\nmessage_us = 0\n"
                        "gbytes_per_s = 1.0\n[matmul]\nflops = [1e5, 1e7]\n"
                        "gflops_per_s = [5.0, 5.0]\n[memory]\ngbytes_per_s = 1000.0\n")
        for number, (mesh, keys) in enumerate(support.some((
                ("tensor=2", {"parallel__sequence": '[{kind="megatron",axis="tensor"}]'}),
                ("tensor=2", {}), ("pipeline=2,tensor=2", {"train__microbatches": 2})), 1)):
            with self.subTest(mesh=mesh, **keys):
                keys = {**keys, "target__cluster": f'"{path}"'}
                calls, losses = [], []
                for overlap in ("false", "true"):
                    said = training.explain("gpt2", mesh, target__overlap=overlap, **keys)
                    calls.append(sum(entry["count"] for entry in said["per_rank"][0]["collectives"]
                                     if entry["purpose"] == "activation"))
                    losses.append(self.losses(f"{number}{overlap}", mesh, target__overlap=overlap,
                                              **keys))
                self.assertGreater(calls[1], 1.2 * calls[0])
                for plain, cut in zip(*losses):
                    self.assertAlmostEqual(plain[0], cut[0], delta=1e-6 * plain[0])
                # The reference that check compares with is not cut.
                done = support.run(CLEAVE, "check", "--steps", 2, *training.flags("gpt2", mesh, **keys))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_most_of_zero_3_is_hidden(self):
        found = training.explain("gpt2", "data=2", parallel__data__zero=3)["overlap"]
        self.assertGreater(found["communication_seconds"], 0)
        self.assertLess(found["exposed_seconds"], 0.25 * found["communication_seconds"])
        self.assertAlmostEqual(found["hidden_seconds"] + found["exposed_seconds"],
                               found["communication_seconds"])
        plain = training.explain("gpt2", "data=2", parallel__data__zero=3,
                                 target__overlap="false")
        self.assertNotIn("overlap", plain)

    def test_what_is_planned_to_be_exposed(self):
        """With ZeRO 3, in the cost model: at most 1.3 times the excess of communication over compute,
        plus the first gather and the last scatter, for the stack that tools/bench measures."""
        hidden, latency = 512, 1e-4
        model = self.folder / "stack.mlir"
        support.succeed(support.MODELS / "experts_layer.py", model, "--dense", "--layers=8",
                        f"--hidden={hidden}", "--chosen=1", f"--intermediate={hidden}", "--batch=4",
                        "--sequence=512")

        def explain(rate):
            """`overlap`, and collectives by kind, for a link with this bandwidth in bytes per second."""
            path = self.folder / "link.toml"
            path.write_text(f"[links.intra]\nlatency_us = {latency * 1e6}\ngbytes_per_s = {rate / 1e9}\n")
            said = json.loads(support.succeed(
                CLEAVE, "explain", model, "--json", "--set", "mesh.data=2", "--set",
                "parallel.data.zero=3", "--set", f'target.cluster="{path}"'))
            return said["overlap"], said["per_rank"][0]["collectives"]

        found, costs = explain(1e9)
        compute = found["compute_seconds"]
        sent, calls = (sum(cost[key] for cost in costs) for key in ("sent_bytes", "count"))
        # The first gathers are the token table and a matrix, half of each from the other rank.
        gather = 4 * (64 * hidden + hidden * hidden) // 2
        scatter = [cost for cost in costs if cost["kind"] == "reduce_scatter"][-1]["sent_bytes"]
        for ratio in support.some((0.5, 0.25, 1, 2), 2):
            with self.subTest(ratio=ratio):
                rate = sent / (ratio * compute - calls * latency)
                found = explain(rate)[0]
                communication = found["communication_seconds"]
                self.assertAlmostEqual(communication / (ratio * compute), 1, delta=0.05)
                bound = 1.3 * max(0, communication - compute) + (gather + scatter) / rate + 2 * latency
                self.assertLessEqual(found["exposed_seconds"], bound)

    def test_memory_grows_by_two_gathers_at_most(self):
        for zero in support.some(range(4), 2):
            with self.subTest(zero=zero):
                plain, overlapped = (
                    training.explain("gpt2", "data=2", parallel__data__zero=zero,
                                     target__cluster=self.cluster(), target__overlap=overlap)
                    for overlap in ("false", "true"))
                largest = max(cost["payload_bytes"] // cost["count"]
                              for cost in plain["per_rank"][0]["collectives"])
                before, after = (x["per_rank"][0]["memory"]["peak"] for x in (plain, overlapped))
                self.assertLessEqual(after, before + 2 * largest)

    def test_a_limit_of_memory(self):
        """Collectives only start early within the memory limit. A pipeline, whose memory is known only
        after all passes, falls back to the plain order. A program that does not fit is an error."""
        def explain(flags, *more):
            return support.run(CLEAVE, "explain", *flags, "--json", *more)

        def peak(flags, *more):
            done = explain(flags, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            said = json.loads(done.stdout)
            return max(rank["memory"]["peak"] for rank in said["per_rank"]), done.stdout

        # With few positions parameters dominate the memory: gathering them early raises the peak,
        # whatever workspace the processor's products need.
        def model(sequence):
            return support.generate(self.folder / f"m{sequence}.onnx", family="gpt2", no_weights=True,
                                    layers=4, hidden=64, heads=4, vocab=31, batch=4, sequence=sequence)

        ulysses = 'parallel.sequence=[{kind="ulysses",axis="sequence"}]'
        for sequence, mesh in (
                (64, ["mesh.pipeline=2", "mesh.sequence=2", ulysses, "train.microbatches=1"]),
                (8, ["mesh.data=2", "parallel.data.zero=3"])):
            flags = [*model(sequence), *(word for key in mesh for word in ("--set", key))]
            plain, plainly = peak(flags, "--set", "target.overlap=false")
            most, early = peak(flags)
            self.assertGreater(most, plain)
            limit = (plain + most) // 2
            within, said = peak(flags, "--set", f"target.memory={limit / 2**30:.17g}")
            self.assertLessEqual(within, limit)
            self.assertNotEqual(said, early)
            if "mesh.pipeline=2" in mesh:
                self.assertEqual(said, plainly)
            for command in (["explain"], ["compile", "-o", self.folder / "no", "--set",
                                          "target.kind=cuda", "--set", "target.architectures=[\"sm_90\"]"]):
                done = support.run(CLEAVE, command[0], *flags, *command[1:], "--set",
                                   f"target.memory={0.5 * plain / 2**30:.17g}")
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"needs [\d.]+ [KM]iB, but there are [\d.]+ [KM]iB.*; largest")
                self.assertFalse((self.folder / "no").exists())

    def test_slow_link_is_checked(self):
        for value, message in [("1", "2 required"), ("1,-2", "not negative"), ("a,b", "not negative"),
                               ("inf,1", "not negative")]:
            with self.subTest(value=value):
                done = support.run(*training.command(self.folder / "no", "gpt2", "data=2",
                                                     "--slow-link", value))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
