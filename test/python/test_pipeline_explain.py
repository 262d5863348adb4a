"""`cleave explain` of pipelines: what it says of bytes and memory is what a run
counts, and what closed forms give."""

import json
import math
import pathlib
import tempfile
import unittest

import support
import training

# Layers weigh more than the head, so that the cuts are between layers.
LAYERS, HIDDEN, SEQUENCE = 4, 32, 16


def sums(entries, count, *keys):
    """By purpose, the sum of each key; the last under the name of a count."""
    total = {}
    for entry in entries:
        own = total.setdefault(entry["purpose"], dict.fromkeys((*keys, "count"), 0))
        for key in keys:
            own[key] += entry[key]
        own["count"] += entry[count]
    return {purpose: own for purpose, own in total.items() if own["count"]}


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class PipelineExplain(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = training.generated(family="gpt2", layers=LAYERS, hidden=HIDDEN, heads=4,
                                       vocab=256, positions=SEQUENCE)

    def keys(self, schedule, microbatches, samples, **more):
        return {"train__microbatches": microbatches, "dims__batch": samples * microbatches,
                "dims__sequence": SEQUENCE, "parallel__pipeline__schedule": schedule, **more}

    def compare(self, mesh, schedule, microbatches, samples, **more):
        """What explain says, once a run has counted the same."""
        keys = self.keys(schedule, microbatches, samples, **more)
        said = training.explain(self.model, mesh, **keys)
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        log, counters = training.train(out, self.model, mesh, "--steps", 2, **keys)
        self.assertEqual(len(counters["ranks"]), said["ranks"])
        by_rank = {member: entry for entry in said["per_rank"] for member in entry["members"]}
        sent = []
        for counted in counters["ranks"]:
            with self.subTest(mesh=mesh, schedule=schedule, rank=counted["rank"]):
                entry = by_rank[counted["rank"]]
                bytes_of = ("sent_bytes", "received_bytes")
                self.assertEqual(sums(entry["collectives"], "count", *bytes_of),
                                 sums(counted["traffic"], "calls", *bytes_of))
                self.assertEqual(entry["memory"]["peak"], counted["memory"]["arenas"])
                self.assertEqual(sum(e["bytes"] for e in entry["at_peak"]),
                                 entry["memory"]["peak"])
                sent.append(sum(c["sent_bytes"] for c in entry["collectives"]))
        self.assertEqual([line["sent_bytes"] for line in log], [max(sent)] * 2)
        self.assertEqual(sum(e["bytes"] for e in said["at_peak"]),
                         said["per_rank"][0]["memory"]["peak"])
        self.assertEqual(said["batch"]["global"], samples * microbatches)
        return said

    def pipeline_bytes(self, said):
        return [sum(c["sent_bytes"] for c in entry["collectives"] if c["purpose"] == "pipeline")
                for entry in said["per_rank"]]

    def test_one_stage_on_each_rank(self):
        """The first sends forward only, the last backward only, others both."""
        m, message = 4, 1 * SEQUENCE * HIDDEN * 4
        said = self.compare("pipeline=2", "1f1b", m, 1)
        self.assertEqual(self.pipeline_bytes(said), [m * message] * 2)
        self.assertEqual(said["pipeline"]["peak_in_flight"], [2, 1])
        keys = self.keys("1f1b", m, 1)
        four = training.explain(self.model, "pipeline=4", **keys)
        self.assertEqual(self.pipeline_bytes(four),
                         [m * message, 2 * m * message, 2 * m * message, m * message])
        self.assertEqual(four["pipeline"]["peak_in_flight"], [4, 3, 2, 1])
        self.assertEqual(four["pipeline"]["stages"], 4)
        self.assertAlmostEqual(four["pipeline"]["bubble_fraction"], 3 / (m + 3))
        self.assertAlmostEqual(four["pipeline"]["bubble_of_ideal"], 3 / m)
        self.assertEqual(four["pipeline"]["norm_fraction"], 0)
        # The last stage has the head, too.
        self.assertGreater(four["pipeline"]["bubble_by_flops"], 3 / (m + 3))
        self.assertLess(four["pipeline"]["bubble_by_flops"], 1)

    def test_the_norm_costs_the_skew(self):
        """The norm joins all ranks: those that begin later end later, (p-1) F."""
        for schedule, p, m, passes in (("zb-h2", 4, 8, 3), ("zb-v", 2, 4, 6)):
            with self.subTest(schedule=schedule):
                said = training.explain(self.model, f"pipeline={p}", **self.keys(schedule, m, 1))
                share = (p - 1) / (m * passes + p - 1)
                self.assertAlmostEqual(said["pipeline"]["norm_fraction"], share)
                self.assertAlmostEqual(said["pipeline"]["bubble_fraction"], share)

    def test_two_stages_on_each_rank(self):
        """Stages 0 and 3 are on rank 0, 1 and 2 on rank 1: rank 0 sends 0 -> 1
        forward and 3 -> 2 backward, rank 1 2 -> 3 forward and 1 -> 0 backward."""
        m, message = 4, 1 * SEQUENCE * HIDDEN * 4
        said = self.compare("pipeline=2", "zb-v", m, 1)
        self.assertEqual(self.pipeline_bytes(said), [2 * m * message] * 2)
        self.assertEqual([entry["stages"] for entry in said["per_rank"]], [[0, 3], [1, 2]])
        self.assertEqual(said["pipeline"]["stages"], 4)

    def test_with_data_and_tensor(self):
        """A rank sends what it has of the samples; tensor parallelism repeats it."""
        m, message = 4, 1 * SEQUENCE * HIDDEN * 4
        for schedule, boundaries in (("1f1b", 1), ("zb-v", 2)):
            said = self.compare("pipeline=2,data=2,tensor=2", schedule, m, 2,
                                parallel__data__zero=1)
            self.assertEqual(self.pipeline_bytes(said), [boundaries * m * message] * 8)
            purposes = {c["purpose"] for entry in said["per_rank"]
                        for c in entry["collectives"]}
            self.assertLessEqual({"pipeline", "gradient", "activation"}, purposes)

    def test_tiles_over_slow_links(self):
        """Between nodes a rank sends a tile of what tensor ranks have alike. What
        leaves is scattered where it was summed, which pays for one gather on the
        first stage; the last gathers what comes on top of its sums."""
        m, message, ways = 4, 1 * SEQUENCE * HIDDEN * 4, 2
        cluster = self.folder / "cluster.toml"
        cluster.write_text("".join(f"[links.{name}]\nlatency_us = 0.0\nmessage_us = 0.0\n"
                                   f"gbytes_per_s = {speed}\n"
                                   for name, speed in (("intra", 100.0), ("inter", 1.0))))
        nodes = {"mesh__ranks_per_node": 4, "target__cluster": cluster}
        mesh, more = "pipeline=2,data=2,tensor=2", {"parallel__data__zero": 1}

        def activation_bytes(said, rank):
            entry = next(e for e in said["per_rank"] if rank in e["members"])
            return sum(c["sent_bytes"] for c in entry["collectives"]
                       if c["purpose"] == "activation")
        whole = training.explain(self.model, mesh, **self.keys("1f1b", m, 2, **more))
        tiles = self.compare(mesh, "1f1b", m, 2, **more, **nodes)
        self.assertEqual(self.pipeline_bytes(tiles), [m * message // ways] * 8)
        self.assertEqual(activation_bytes(tiles, 0), activation_bytes(whole, 0))
        self.assertEqual(activation_bytes(tiles, 4),
                         activation_bytes(whole, 4) + m * message * (ways - 1) // ways)
        for one, other in zip(tiles["per_rank"], whole["per_rank"]):
            self.assertLessEqual(one["memory"]["peak"], other["memory"]["peak"])
        self.assertTrue(any("in tiles over axes \"tensor\"" in text
                            for text in tiles["remarks"]))
        # Of three hand-overs one is a copy on a rank.
        vshape = self.compare(mesh, "zb-v", m, 2, **more, **nodes)
        self.assertEqual(self.pipeline_bytes(vshape), [2 * m * message // ways] * 8)
        # Sequence parallelism has split it already.
        split = training.explain(
            self.model, mesh, **self.keys("1f1b", m, 2, **more, **nodes),
            parallel__sequence='[{kind="megatron",axis="tensor"}]')
        self.assertEqual(self.pipeline_bytes(split), [m * message // ways] * 8)
        self.assertFalse(any("neighbouring stage" in text for text in split["remarks"]))

    def cluster(self, name, latency_us, gbytes, gflops):
        """One class of links, products of one rate, and memory that costs nothing."""
        path = self.folder / f"{name}.toml"
        path.write_text(f"[links.intra]\nlatency_us = {latency_us}\nmessage_us = 0.0\n"
                        f"gbytes_per_s = {gbytes}\n[matmul]\nflops = [1e3]\n"
                        f"gflops_per_s = [{gflops}]\n[memory]\ngbytes_per_s = 1e12\n")
        return path

    @staticmethod
    def waits(p, m, message):
        """Of 1F1B whose stages compute in no time: the seconds that each rank waits for
        messages under way, and those of the step."""
        lists = []
        for rank in range(p):
            ahead = min(p - 1 - rank, m)
            order = [("F", k) for k in range(ahead)]
            for k in range(m):
                order += [("F", k + ahead)] * (k + ahead < m) + [("B", k)]
            lists.append(order)
        done, free, waited = {}, [0.0] * p, [0.0] * p
        while any(lists):
            for rank, order in enumerate(lists):
                while order:
                    kind, k = order[0]
                    source = rank - 1 if kind == "F" else rank + 1
                    sent = done.get((kind, source, k)) if 0 <= source < p else -message
                    if sent is None:
                        break
                    start = max(free[rank], sent + message)
                    waited[rank] += start - max(free[rank], sent, 0)
                    done[kind, rank, k] = free[rank] = start
                    order.pop(0)
        return waited, max(free)

    def test_overlap_of_messages(self):
        """Slow links and free computing: who waits for whom is a matter of the order."""
        message = 1 * SEQUENCE * HIDDEN * 4
        seconds = 2e-3 + message / 0.1e9
        for p, m in ((2, 4), (4, 6)):
            with self.subTest(p=p):
                said = training.explain(self.model, f"pipeline={p}", **self.keys("1f1b", m, 1),
                                        target__cluster=self.cluster("slow", 2000.0, 0.1, 1e12))
                waited, span = self.waits(p, m, seconds)
                self.assertNotIn("overlap", said)
                for rank, entry in enumerate(said["per_rank"]):
                    x = entry["overlap"]
                    neighbours = (rank > 0) + (rank + 1 < p)
                    self.assertAlmostEqual(x["message_seconds"], neighbours * m * seconds, 9)
                    self.assertAlmostEqual(x["message_exposed_seconds"], waited[rank], 7)
                    self.assertAlmostEqual(x["idle_seconds"], span - waited[rank], 7)
                    # Tied weights and norms, over ranks that have nothing else to do.
                    others = sum(c["exposed_ms"] for c in entry["collectives"]
                                 if c["purpose"] != "pipeline") / 1e3
                    self.assertGreater(others, 0)
                    self.assertAlmostEqual(x["communication_seconds"],
                                           x["message_seconds"] + others, 9)
                    self.assertAlmostEqual(x["exposed_seconds"],
                                           x["message_exposed_seconds"] + others, 9)
                    self.assertAlmostEqual(x["hidden_seconds"] + x["exposed_seconds"],
                                           x["communication_seconds"])
                    self.assertAlmostEqual(
                        sum(c["exposed_ms"] for c in entry["collectives"]) / 1e3,
                        x["exposed_seconds"], 9)
                    self.assertLess(x["compute_seconds"], 1e-9)

    def test_overlap_of_computing(self):
        """Free links: what ranks compute is in proportion to the products, each action as often
        as it runs, and all ranks are busy or idle for as long."""
        said = {m: training.explain(self.model, "pipeline=2", **self.keys("zb-v", m, 1),
                                    target__cluster=self.cluster("fast", 0.0, 1e9, 1.0))
                for m in (4, 5)}
        spans = []
        for four, five in zip(said[4]["per_rank"], said[5]["per_rank"]):
            x, more = four["overlap"], five["overlap"]
            self.assertLess(x["message_exposed_seconds"], 1e-9)
            # F, I and W of both stages, of one microbatch.
            passes = more["compute_seconds"] - x["compute_seconds"]
            self.assertGreater(4 * passes, 0.9 * x["compute_seconds"])
            spans.append(x["idle_seconds"] + 4 * passes)
        self.assertAlmostEqual(*spans, 7)
        for what in said.values():
            flops = sum(entry["attention_flops"] for entry in what["per_rank"])
            for call in what["kernels"]:
                if call["library"] and call["name"].startswith("gemm "):
                    sizes = call["name"].split()[1].split("x")
                    flops += call["calls"] * 2 * math.prod(int(size) for size in sizes)
            self.assertAlmostEqual(sum(entry["overlap"]["compute_seconds"]
                                       for entry in what["per_rank"]), flops / 1e9, 9)
        plain = training.explain(self.model, "pipeline=2", **self.keys("zb-v", 4, 1),
                                 target__overlap="false")
        self.assertNotIn("overlap", plain["per_rank"][0])

    def test_some_ranks_of_the_pipeline(self):
        """The first and the last add up the gradient of what they tie."""
        said = self.compare("pipeline=4", "zb-h1", 4, 1)
        tied = 256 * HIDDEN * 4
        for rank, entry in enumerate(said["per_rank"]):
            summed = [c for c in entry["collectives"] if c["purpose"] == "gradient"]
            self.assertEqual([(c["group_size"], c["sent_bytes"]) for c in summed],
                             [(2, tied)] if rank in (0, 3) else [])

    def test_stages_on_two_ranks(self):
        """Chimera: as many messages as 1F1B, and the gradients of stages i and p-1-i, those
        of a tied table once."""
        m, message, tied = 4, 1 * SEQUENCE * HIDDEN * 4, 256 * HIDDEN * 4
        for mesh, sent in (("pipeline=2", [1, 1]), ("pipeline=4", [1, 2, 2, 1])):
            said = self.compare(mesh, "chimera", m, 1)
            ranks = len(sent)
            self.assertEqual(self.pipeline_bytes(said), [n * m * message for n in sent])
            self.assertEqual([entry["stages"] for entry in said["per_rank"]],
                             [sorted({rank, ranks - 1 - rank}) for rank in range(ranks)])
            for rank, entry in enumerate(said["per_rank"]):
                by_purpose = sums(entry["collectives"], "count", "sent_bytes")
                self.assertEqual(by_purpose["gradient"]["sent_bytes"],
                                 entry["memory"]["gradients"] -
                                 (tied if rank in (0, ranks - 1) else 0))
        self.assertEqual(said["pipeline"]["peak_in_flight"], [3, 4, 4, 3])
        self.compare("pipeline=2,data=2", "chimera", 2, 2, parallel__data__zero=2)

    def stage_bytes(self, stages):
        """Of the parameters of each stage, cut for two samples."""
        said = training.explain(self.model, f"pipeline={stages}", **self.keys("1f1b", stages, 2))
        return [entry["memory"]["parameters"] for entry in said["per_rank"]]

    def rows(self, schedule, stages, microbatches):
        """Stage and kind of what each rank of a table computes."""
        text = support.succeed(support.CLEAVE, "schedule", "--name", schedule, "--stages", stages,
                               "--microbatches", microbatches, "--csv", "-")
        return [[(int(cell[0]), cell[1]) for cell in row.split(",") if cell]
                for row in text.split()]

    def parameter_bytes(self, said):
        """Of one replica: by place on the pipeline."""
        sent = {tuple(entry["stages"]): sum(c["sent_bytes"] for c in entry["collectives"]
                                            if c["purpose"] == "parameter")
                for entry in said["per_rank"]}
        return [sent[key] for key in sorted(sent)]

    def test_gathered_once(self):
        """ZeRO 3 with a stage on each rank: UNSHARD gathers once for all microbatches, half of
        what two ranks have; the whole is in a place of its own."""
        for schedule, m in (("1f1b", 4), ("zb-h1", 3)):
            said = self.compare("pipeline=2,data=2", schedule, m, 2, parallel__data__zero=3)
            whole = self.stage_bytes(2)
            self.assertEqual(self.parameter_bytes(said), [size // 2 for size in whole])
            for entry in said["per_rank"]:
                size = whole[entry["stages"][0]]
                self.assertEqual(entry["memory"]["parameters"], size // 2 + size)
                self.assertIn((f"gathered.{entry['stages'][0]}", size),
                              [(e["tensor"], e["bytes"]) for e in entry["at_peak"]])

    def test_gathered_for_each_run(self):
        """With two stages on a rank one is gathered at a time: once for each run of actions
        of a stage; or both for the whole step, in two places."""
        whole, m = self.stage_bytes(4), 4
        said = self.compare("pipeline=2,data=2", "interleaved", m, 2, parallel__data__zero=3)
        expected = []
        for row in self.rows("interleaved", 4, m):
            stages = [stage for stage, _ in row]
            runs = [stage for i, stage in enumerate(stages) if i == 0 or stages[i - 1] != stage]
            expected.append(sum(whole[stage] // 2 for stage in runs))
        self.assertEqual(self.parameter_bytes(said), expected)
        for entry in said["per_rank"]:
            own = [whole[stage] for stage in entry["stages"]]
            self.assertEqual(entry["memory"]["parameters"], sum(own) // 2 + max(own))
        kept = self.compare("pipeline=2,data=2", "interleaved", m, 2, parallel__data__zero=3,
                            parallel__data__reshard_after_forward="false")
        self.assertEqual(self.parameter_bytes(kept), [(whole[0] + whole[2]) // 2,
                                                      (whole[1] + whole[3]) // 2])
        for entry in kept["per_rank"]:
            own = sum(whole[stage] for stage in entry["stages"])
            self.assertEqual(entry["memory"]["parameters"], own // 2 + own)

    def test_gathered_where_a_table_says(self):
        """Twice where it says so; in each action where it says nothing: F and B."""
        whole, table = self.stage_bytes(2), self.folder / "gathered.csv"
        keys = {"parallel__data__zero": 3, "parallel__pipeline__table": table}
        table.write_text("0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0B0,0B1,0RESHARD\n"
                         "1UNSHARD,1F0,1B0,1RESHARD,1UNSHARD,1F1,1B1,1RESHARD\n")
        said = self.compare("pipeline=2,data=2", "custom", 2, 2, **keys)
        self.assertEqual(self.parameter_bytes(said), whole)
        table.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        said = self.compare("pipeline=2,data=2", "custom", 2, 2, **keys)
        for sent, size in zip(self.parameter_bytes(said), whole):
            self.assertGreater(sent, size)
            self.assertLessEqual(sent, 2 * size)

    def test_reduced_in_the_step(self):
        """REDUCE_GRAD takes the sums over data ranks out of the update: where a table lacks
        it, the bytes are the same."""
        table = self.folder / "reduced.csv"
        rows = "0F0,0F1,0B0,0B1{}\n1F0,1B0,1F1,1B1{}\n"
        sent = []
        for reduce in (("", ""), (",0REDUCE_GRAD", ",1REDUCE_GRAD")):
            table.write_text(rows.format(*reduce))
            for zero in support.some((0, 1, 2), 2):
                said = self.compare("pipeline=2,data=2", "custom", 2, 2,
                                    parallel__data__zero=zero, parallel__pipeline__table=table)
                sent.append([sums(entry["collectives"], "count", "sent_bytes")
                             for entry in said["per_rank"]])
        self.assertEqual(sent[:len(sent) // 2], sent[len(sent) // 2:])

    def test_bf16_is_booked(self):
        """What moves between stages, too: half the bytes, and less memory."""
        keys = self.keys("1f1b", 4, 1)
        full = training.explain(self.model, "pipeline=2", **keys)
        half = training.explain(self.model, "pipeline=2", train__precision="bf16", **keys)
        self.assertEqual([2 * sent for sent in self.pipeline_bytes(half)],
                         self.pipeline_bytes(full))
        for one, other in zip(half["per_rank"], full["per_rank"]):
            self.assertEqual(2 * one["memory"]["parameters"], other["memory"]["parameters"])
            self.assertEqual(sum(e["bytes"] for e in one["at_peak"]), one["memory"]["peak"])

    def test_many_ranks_are_classes(self):
        said = training.explain(self.model, "pipeline=4,data=4,tensor=2",
                                **self.keys("1f1b", 4, 4))
        members = [entry["members"] for entry in said["per_rank"]]
        self.assertEqual(sorted(sum(members, [])), list(range(32)))
        self.assertLess(len(members), 32)
        for entry in said["per_rank"]: # the pipeline is the slowest axis
            self.assertEqual({member // 8 for member in entry["members"]},
                             set(entry["stages"]))

    def test_stages_add_up_to_the_model(self):
        """What lasts is that of one rank, once more where weights are tied."""
        one = training.explain(self.model, **self.keys("1f1b", 4, 1))["per_rank"][0]
        stages = training.explain(self.model, "pipeline=2", **self.keys("1f1b", 4, 1))["per_rank"]
        tied = 256 * HIDDEN * 4
        for what, copies in (("parameters", 1), ("gradients", 1), ("optimizer", 2)):
            with self.subTest(what=what):
                whole = one["memory"][what]
                parts = sum(entry["memory"][what] for entry in stages)
                self.assertEqual(parts, whole + copies * tied)

    def test_text(self):
        flags = training.flags(self.model, "pipeline=2", **self.keys("1f1b", 4, 1))
        text = support.succeed(support.CLEAVE, "explain", *flags)
        for line in ("pipeline of 2 stages, schedule 1f1b: idle 20.00 % of the total span, "
                     "25.00 % of the ideal time (if F, I and W take equally long; 2",
                     "% of the span by their floating-point operations); "
                     "0.00 % of the span because the norm of the gradients joins all ranks",
                     "memory of a rank, pipeline 0 (stages 0; in flight 2)",
                     "memory of a rank, pipeline 1 (stages 1; in flight 1)",
                     "communication of a step, rank 1:"):
            self.assertIn(line, text)


if __name__ == "__main__":
    unittest.main()
