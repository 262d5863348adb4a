"""Layers of experts (test/Inputs/experts.mlir) on meshes that split samples, the
experts' inner width, and the experts, against one rank; sizes mostly leave
remainders."""

import json
import pathlib
import re
import shutil
import tempfile
import unittest

import numpy as np

import support
import training
import formulas_experts

MODEL = support.ROOT / "test" / "Inputs" / "experts.mlir"


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    # The covering set of the matrix compiles such programs, too.
    turns = support.Turns(12)

    def passes(self, *flags, model=MODEL):
        how = [] if "--interpret" in flags else self.turns.flags()
        done = support.run(support.CLEAVE, "check", "--json", "--steps", 3, model, *flags, *how)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["pass"])
        self.assertEqual(report["max_replica_difference"], 0)
        names = {tensor["name"] for tensor in report["tensors"] if tensor["kind"] == "gradient"}
        self.assertLessEqual({"router", "experts.gate", "experts.up", "experts.bias",
                              "experts.down"}, names)

    def test_samples_and_width(self):
        for sizes in [dict(), dict(data=2), dict(data=3), dict(tensor=2), dict(tensor=3),
                      dict(data=2, tensor=2), dict(pipeline=2)]:
            with self.subTest(**sizes):
                flags = [f"--set=mesh.{axis}={size}" for axis, size in sizes.items()]
                if "pipeline" in sizes:
                    flags.append("--set=train.microbatches=2")
                self.passes(*flags)

    def test_zero(self):
        self.passes("--set=mesh.data=2", "--set=parallel.data.zero=3")

    def test_experts_by_hand(self):
        """Experts on an axis of their own, and on that of the samples."""
        for axes, flags in [({"data": 2, "x": 2}, []), ({"data": 3}, []),
                            ({"data": 2}, ["--set=parallel.data.zero=2"])]:
            axis = list(axes)[-1]
            config = self.folder / f"{axis}.toml"
            config.write_text(
                "[mesh]\naxes = " + json.dumps(list(axes)) + "\n" +
                "".join(f"{name} = {size}\n" for name, size in axes.items()) +
                f"""[[shard]]
match = "experts.(gate|up|down)"
dims = [["{axis}"], [], []]
[[shard]]
match = "experts.bias"
dims = [["{axis}"], []]
""")
            with self.subTest(axes=axes, flags=flags):
                self.passes("--config", config, *flags)

    def spread(self, sizes, *flags):
        """Samples and experts over axes of these sizes."""
        with self.subTest(sizes=sizes, flags=flags):
            self.passes(*flags, *[f"--set=mesh.{axis}={size}" for axis, size in sizes.items()])

    def test_expert_parallelism_on_the_data_axis(self):
        on_data = "--set=parallel.expert.axis=data"
        for zero in range(4):
            self.spread(dict(data=2), on_data, f"--set=parallel.data.zero={zero}")
        self.spread(dict(data=3), on_data)
        self.spread(dict(data=4), on_data, "--set=parallel.data.zero=3")
        self.spread(dict(data=2, tensor=2), on_data)
        self.spread(dict(pipeline=2, data=2), on_data, "--set=train.microbatches=2")

    def test_expert_parallelism_on_an_axis_of_its_own(self):
        self.spread(dict(expert=2))
        self.spread(dict(expert=4))
        self.spread(dict(expert=2, tensor=2))
        self.spread(dict(data=2, expert=2))
        self.spread(dict(data=2, expert=2), "--set=parallel.data.zero=3")
        self.spread(dict(pipeline=2, expert=2), "--set=train.microbatches=2",
                    "--set=parallel.pipeline.schedule=zb-h1")

    def test_by_way_of_nodes(self):
        """Rows go between nodes, then within one, in as many rounds of each as there can be."""
        twice = "--set=parallel.expert.exchange=hierarchical"
        for ranks, node, *flags in [
                (4, 2), (4, 2, "max_load=1"), (4, 2, "max_load=1.4"), (4, 2, "capacity=1"),
                (4, 2, "tensor")]:
            sizes = dict(expert=ranks, **(dict(tensor=2) if flags == ["tensor"] else {}))
            node *= sizes.get("tensor", 1)
            self.spread(sizes, twice, f"--set=mesh.ranks_per_node={node}",
                        *[f"--set=parallel.expert.{flag}" for flag in flags if "=" in flag])
        self.spread(dict(data=4), twice, "--set=mesh.ranks_per_node=2", "--set=parallel.data.zero=3",
                    "--set=parallel.expert.axis=data", "--set=parallel.expert.max_load=1")
        self.spread(dict(pipeline=2, expert=4), twice, "--set=mesh.ranks_per_node=2",
                    "--set=parallel.expert.max_load=1", "--set=train.microbatches=2",
                    "--set=parallel.pipeline.schedule=zb-h1")

    def test_by_way_of_nodes_on_eight_ranks(self):
        eleven = self.folder / "eleven.mlir" # experts, and 9 samples
        eleven.write_text(re.sub("(?<=[<x])5x", "11x", MODEL.read_text()).replace("4x7", "9x7"))
        for node in (2, 4):
            for load in support.some((1, 2), 1):
                for flags in support.some(([], ["--interpret"]), 1):
                    with self.subTest(node=node, load=load, flags=flags):
                        self.passes("--set=mesh.expert=8", f"--set=mesh.ranks_per_node={node}",
                                    "--set=parallel.expert.exchange=hierarchical",
                                    f"--set=parallel.expert.max_load={load}", *flags, model=eleven)

    def test_which_way_is_said(self):
        """Many small messages between nodes are slower than few and one step more."""
        def said(*keys):
            return support.succeed(support.CLEAVE, "explain", MODEL, "--remarks",
                                   *[f"--set={key}" for key in keys])
        remark = "between 2 nodes first, then among 2 ranks of a node, over axis 'expert'"
        both = ("mesh.expert=4", "mesh.ranks_per_node=2")
        self.assertIn(remark, said(*both, "parallel.expert.exchange=hierarchical"))
        self.assertNotIn(remark, said(*both, "parallel.expert.exchange=direct"))
        for latency, message, pays in ((1, 1000, True), (1000, 1, False)):
            cluster = self.folder / f"cluster{latency}.toml"
            cluster.write_text(f"[links.inter]\nlatency_us = {latency}\nmessage_us = {message}\n"
                               f"[links.intra]\nlatency_us = {latency}\nmessage_us = 0\n")
            found = said(*both, f"target.cluster={cluster}")
            (self.assertIn if pays else self.assertNotIn)(remark, found)

    def test_width(self):
        """The inner width of experts over an axis of its own, or that of other weights."""
        config = self.folder / "width.toml"
        config.write_text('[mesh]\naxes = ["expert", "width", "tensor"]\nwidth = 2\n'
                          '[parallel]\nexpert = { tensor_axis = "width" }\n')
        self.spread(dict(), "--config", config)
        self.spread(dict(expert=2), "--config", config)
        self.spread(dict(expert=2, tensor=2), "--config", config)
        self.spread(dict(expert=2, tensor=3), "--set=parallel.expert.tensor_axis=tensor")
        self.spread(dict(expert=2, tensor=2), "--set=parallel.expert.tensor_axis=tensor",
                    "--set=parallel.tensor=false")

    def test_rounds(self):
        """With room for a balanced share alone, rows overflow."""
        for max_load in (1, 1.4):
            self.spread(dict(expert=2), f"--set=parallel.expert.max_load={max_load}")
        self.spread(dict(expert=4), "--set=parallel.expert.max_load=1")
        self.spread(dict(expert=2, tensor=2), "--set=parallel.expert.max_load=1")
        self.spread(dict(data=2), "--set=parallel.expert.axis=data", "--set=parallel.data.zero=3",
                    "--set=parallel.expert.max_load=1")
        self.spread(dict(pipeline=2, expert=2), "--set=parallel.expert.max_load=1",
                    "--set=train.microbatches=2", "--set=parallel.pipeline.schedule=zb-h1")

    def test_what_is_refused(self):
        for flags, message in [
                (["mesh.expert=6"], "has 5 experts, fewer than the 6 ranks of axis 'expert'"),
                (["mesh.data=6", "parallel.expert.axis=data"],
                 "has 5 experts, fewer than the 6 ranks of axis 'data'"),
                (["mesh.expert=2", "parallel.expert.max_load=0.5"], "at least 1"),
                (["mesh.tensor=2", "parallel.expert.axis=tensor"],
                 "but experts go with samples"),
                (["mesh.pipeline=2", "train.microbatches=2", "parallel.expert.axis=pipeline"],
                 "but experts go with samples"),
                (["mesh.expert=2", "parallel.expert.exchange=hierarchical"],
                 "the 2 ranks of axis 'expert' are not placed so"),
                (["mesh.data=2", "parallel.expert.exchange=hierarchical"],
                 "experts are split over no axis (mesh axis 'expert' has 1 rank)"),
                (["mesh.expert=2", "parallel.expert.exchange=both"], "expected one of"),
                (["mesh.expert=2", "parallel.expert.tensor_axis=expert"],
                 "parallel.expert.axis and parallel.expert.tensor_axis both name"),
                (["mesh.data=2", "parallel.expert.tensor_axis=data"],
                 "parallel.data.axis and parallel.expert.tensor_axis both name"),
                (["mesh.expert=2", "parallel.expert.tensor_axis=width"],
                 "names the axis 'width', but the mesh has"),
                (["mesh.data=2", "parallel.expert.axis=expart"], "names the axis 'expart'")]:
            with self.subTest(flags=flags):
                done = support.run(support.CLEAVE, "check", MODEL,
                                   *[f"--set={flag}" for flag in flags])
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(message, done.stderr)

    RING = 'parallel.sequence=[{kind="ring",axis="sequence"}]'
    ULYSSES = 'parallel.sequence=[{kind="ulysses",axis="sequence"}]'

    def test_imported_models(self):
        """Mixtral's, Switch's (biases, one expert a token) and DeepSeek's (shared experts)
        layers, as their exporters write them."""
        for name, sizes, *flags in [
                ("mixtral", dict(expert=2, sequence=2), self.RING),
                ("mixtral", dict(sequence=2), self.RING, "parallel.expert.capacity=1"),
                ("deepseek", dict(expert=2, sequence=2), self.ULYSSES),
                ("mixtral", dict(expert=2)), ("mixtral", dict(expert=4)),
                ("mixtral", dict(expert=2, tensor=2)),
                ("mixtral", dict(expert=4), "parallel.expert.max_load=1"),
                ("mixtral", dict(expert=2), "parallel.expert.capacity=1"),
                ("mixtral", dict(data=2), "parallel.expert.axis=data", "parallel.data.zero=3"),
                ("mixtral", dict(pipeline=2, expert=2), "train.microbatches=2"),
                ("switch", dict(expert=2)), ("switch", dict(expert=4), "parallel.expert.max_load=1"),
                ("switch", dict(data=2), "parallel.expert.axis=data", "parallel.data.zero=2"),
                ("deepseek", dict(expert=2)), ("deepseek", dict(expert=4)),
                ("deepseek", dict(data=2, expert=2), "parallel.data.zero=1")]:
            with self.subTest(name=name, sizes=sizes, flags=flags):
                self.model_passes(name, sizes, *flags)

    def model_passes(self, name, sizes, *keys, flags=()):
        model = support.MODELS / f"{name}.onnx"
        keys = [*keys, *(f"mesh.{axis}={size}" for axis, size in sizes.items())]
        how = [] if "--interpret" in flags else self.turns.flags()
        done = support.run(support.CLEAVE, "check", "--steps", 2, model, "--config",
                           model.with_suffix(".toml"), *flags, *how,
                           *[f"--set={key}" for key in keys])
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)

    def test_five_axes(self):
        """32 ranks, interpreted; compiled, too, for tools/check --all."""
        axes = dict.fromkeys(("pipeline", "data", "expert", "sequence", "tensor"), 2)
        for flags in ([], ["--interpret"]) if support.ALL else (["--interpret"],):
            self.model_passes("mixtral", axes, self.RING, "dims.batch=16", "train.microbatches=2",
                              flags=flags)

    def test_capacity(self):
        """What a sequence drops depends on no mesh."""
        for sizes in [dict(data=2), dict(expert=2), dict(expert=4), dict(tensor=2)]:
            self.spread(sizes, "--set=parallel.expert.capacity=1")
        done = support.run(support.CLEAVE, "explain", MODEL, "--remarks",
                           "--set=parallel.expert.capacity=1")
        self.assertIn("an expert takes 3 of the 14 slots of a sequence", done.stdout + done.stderr)
        self.assertIn("; an expert takes 3 of 14 slots, of which 8 are dropped at most", done.stdout)
        done = support.run(support.CLEAVE, "explain", MODEL, "--remarks",
                           "--set=parallel.expert.capacity=1e30")
        self.assertNotIn("an expert takes", done.stdout + done.stderr)


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Bytes(unittest.TestCase):
    """Under balanced routing: what explain says, what the closed forms say, and what a
    run counts. And what it counts of rows that have no room at once."""
    MODEL = support.ROOT / "test" / "Inputs" / "experts_fixed.mlir"
    CASES = [(dict(expert=2), 2), (dict(expert=4), 2), (dict(expert=4), 1), (dict(expert=8), 4),
             (dict(data=2, expert=2), 2)]
    # By way of nodes of so many ranks.
    NODES = [(4, 2, 2), (4, 2, 1), (8, 4, 2), (8, 2, 1.5)]

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        np.save(cls.folder / "tokens.npy",
                np.random.default_rng(0).integers(0, 17, 4000).astype(np.int64))

    @staticmethod
    def flags(sizes, max_load):
        return [f"--set=parallel.expert.max_load={max_load}",
                *[f"--set=mesh.{axis}={size}" for axis, size in sizes.items()]]

    @staticmethod
    def sums(entries):
        found = {"expert": 0, "overflow": 0}
        for entry in entries:
            if entry["purpose"] in found:
                found[entry["purpose"]] += entry["sent_bytes"]
        return found

    def counted(self, name, model, *flags):
        out = self.folder / name
        support.succeed(support.CLEAVE, "train", model, "--data", self.folder / "tokens.npy",
                        "--out", out, "--steps", 1, "--eval-every", 0,
                        "--cache", self.folder / "cache", *flags)
        ranks = json.loads((out / "counters.json").read_text())["ranks"]
        return [self.sums(rank["traffic"]) for rank in ranks]

    def agree(self, name, model, experts, ranks, *flags):
        """What explain says of each rank, by classes of links, what a run counts, and what
        `experts(rank)`, and the rank's place in its group, tell the formulas."""
        said = json.loads(support.succeed(support.CLEAVE, "explain", model, "--json", *flags))
        counted = self.counted(name, model, *flags) if training.IS_BUILT else [None] * ranks
        self.assertEqual(len(said["per_rank"]), ranks)
        for rank, (entry, found) in enumerate(zip(said["per_rank"], counted)):
            with self.subTest(name=name, rank=rank):
                wanted = formulas_experts.sent_bytes(*experts(rank))
                self.assertEqual(self.sums(entry["collectives"]), wanted)
                if experts(rank)[0].node:
                    links = {link: sum(c["sent_bytes"] for c in entry["collectives"]
                                       if c["purpose"] == "expert" and c["link"] == link)
                             for link in ("inter", "intra")}
                    self.assertEqual(links, formulas_experts.sent_by_link(*experts(rank)))
                if found:
                    self.assertEqual(found, wanted)

    def test_by_way_of_nodes(self):
        for ranks, node, max_load in self.NODES:
            self.agree(f"nodes{ranks}-{node}-{max_load}", self.MODEL,
                       lambda rank: (formulas_experts.Experts(  # pylint: disable=W0640
                           tokens=8 * 12 // ranks, slots=2, hidden=6, ranks=ranks, node=node,
                           max_load=max_load), rank), ranks,
                       *self.flags(dict(expert=ranks), max_load),
                       f"--set=mesh.ranks_per_node={node}",
                       "--set=parallel.expert.exchange=hierarchical")

    def test_padding_is_not_sent(self):
        """7 samples on 2 and on 4 ranks: 4 and 3, or 2, 2, 2 and 1; and where they go by
        way of nodes."""
        model = self.folder / "seven.mlir"
        model.write_text(self.MODEL.read_text().replace("8x12", "7x12"))
        for ranks, node in ((2, 0), (4, 0), (4, 2)):
            tile = -(-7 // ranks)
            shares = [12 * max(0, min(tile, 7 - rank * tile)) for rank in range(ranks)]
            self.agree(f"seven{ranks}-{node}", model,
                       lambda rank: (formulas_experts.Experts(  # pylint: disable=W0640
                           tokens=12 * tile, slots=2, hidden=6, ranks=ranks, node=node,
                           shares=tuple(shares)), rank), ranks,
                       *self.flags(dict(expert=ranks), 2), *([
                           f"--set=mesh.ranks_per_node={node}",
                           "--set=parallel.expert.exchange=hierarchical"] if node else []))

    def test_pipelines_send_no_row_twice(self):
        """What is kept at the experts is found by the backward actions. A layer for each
        of two stages, of which each sends what the formulas say of one."""
        model = self.folder / "two.mlir"
        head, layer, tail = re.split("(?m)^(?=  %position|  %logits)", self.MODEL.read_text())
        again = re.sub(r"%(?!gate|up|down)(\w+)", lambda found: f"%next_{found[1]}", layer)
        model.write_text(head + layer + again.replace("%next_x", "%out") +
                         tail.replace("%out", "%next_out"))
        flags = ["--set=train.microbatches=2", *self.flags(dict(pipeline=2, expert=2), 2)]
        wanted = formulas_experts.sent_bytes(formulas_experts.Experts(
            tokens=8 * 12 // 2, slots=2, hidden=6, ranks=2, microbatches=2))
        for schedule in ("1f1b", "zb-h1"):
            with self.subTest(schedule=schedule):
                own = [*flags, f"--set=parallel.pipeline.schedule={schedule}"]
                said = json.loads(support.succeed(support.CLEAVE, "explain", model, "--json", *own))
                found = [self.sums(rank["collectives"]) for rank in said["per_rank"]]
                self.assertEqual(found, [wanted] * 4)
                if training.IS_BUILT:
                    self.assertEqual(self.counted(f"pipeline-{schedule}", model, *own), found)

    def test_biases_are_read_at_the_experts(self):
        """Switch's layers have a bias after each product: no table of them is gathered."""
        said = json.loads(support.succeed(
            support.CLEAVE, "explain", support.MODELS / "switch.onnx", "--json", "--config",
            support.MODELS / "switch.toml", *self.flags(dict(expert=2), 2)))
        wanted = formulas_experts.sent_bytes(formulas_experts.Experts(
            tokens=4 * 24 // 2, slots=1, hidden=16, ranks=2, layers=2))
        for rank in said["per_rank"]:
            self.assertEqual(self.sums(rank["collectives"]), wanted)
            self.assertNotIn("reduce_scatter", {entry["kind"] for entry in rank["collectives"]})

    def test_explain_and_runs_send_what_the_formulas_say(self):
        for number, (sizes, max_load) in enumerate(self.CASES):
            with self.subTest(sizes=sizes, max_load=max_load):
                ranks = np.prod(list(sizes.values()))
                experts = formulas_experts.Experts(tokens=8 * 12 // ranks, slots=2, hidden=6,
                                                   ranks=sizes["expert"], max_load=max_load)
                wanted = formulas_experts.sent_bytes(experts)
                flags = self.flags(sizes, max_load)
                said = json.loads(support.succeed(support.CLEAVE, "explain", self.MODEL, "--json",
                                                  *flags))
                for rank in said["per_rank"]:
                    self.assertEqual(self.sums(rank["collectives"]), wanted)
                [load] = said["experts"]
                others = sizes["expert"] - 1
                figures = dict(experts=8, ranks=sizes["expert"], experts_per_rank=8 // sizes["expert"],
                               slots_per_rank=experts.rows, places=experts.places,
                               rounds=experts.rounds, rows_sent=experts.rows // sizes["expert"] * others,
                               most_rows_sent=experts.rows, most_rows_received=experts.rows * others,
                               capacity=0, most_dropped=0)
                self.assertEqual({key: load[key] for key in figures}, figures)
                if training.IS_BUILT:
                    for found in self.counted(f"run{number}", self.MODEL, *flags):
                        self.assertEqual(found, wanted)

    @unittest.skipUnless(training.IS_BUILT and shutil.which("mpirun"), "mpirun is not installed")
    def test_processes_send_what_threads_do(self):
        """Bits and bytes, with rounds that some steps need."""
        flags = ["--data", self.folder / "tokens.npy", "--steps", 3, "--eval-every", 0,
                 *self.flags(dict(expert=4), 1)]
        runs = []
        for name, start in (("threads", []), ("processes", [support.ROOT / "test" / "mpirun.sh", 4])):
            done = support.run(*start, support.CLEAVE, "train", MODEL, *flags, "--out",
                               self.folder / name, "--cache", self.folder / f"cache-{name}")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            runs.append([(line["loss"], line["grad_norm"], line["sent_bytes"])
                         for line in support.read_log(self.folder / name)])
        self.assertEqual(*runs)

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_overflow_is_counted(self):
        """Routing that the model learns is not balanced: with room for the balanced
        share alone, some rows need another round. With room for all, none does."""
        def overflow(max_load):
            return sum(rank["overflow"] for rank in self.counted(
                f"overflow{max_load}", MODEL, *self.flags(dict(expert=2), max_load)))

        self.assertGreater(overflow(1), 0)
        self.assertEqual(overflow(2), 0)

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_rounds_of_a_pipeline(self):
        """Rows that overflow are not lost where a condition's flag is read first in the
        forward pass of a stage: one token in a sequence, so that all choose alike."""
        model, data = support.MODELS / "mixtral.onnx", self.folder / "alike.npy"
        np.save(data, np.repeat(np.arange(8) * 29 % 257, 25))
        losses = []
        for name, sizes in [("one", {}), ("many", dict(pipeline=2, expert=2))]:
            out = self.folder / f"alike-{name}"
            support.succeed(support.CLEAVE, "train", model, "--config", model.with_suffix(".toml"),
                            "--data", data, "--out", out, "--steps", 3, "--eval-every", 0,
                            "--set=train.microbatches=2", "--set=parallel.expert.max_load=1",
                            "--set=data.validation=0", "--cache", self.folder / "cache",
                            *[f"--set=mesh.{axis}={size}" for axis, size in sizes.items()])
            lines = support.read_log(out)
            losses.append([line["loss"] for line in lines])
        self.assertGreater(lines[-1]["overflow"], 0)
        np.testing.assert_allclose(*losses, rtol=1e-5)

    @unittest.skipUnless(training.IS_BUILT, "cleave-run is not built")
    def test_shared_experts_are_computed_while_rows_travel(self):
        """DeepSeek's layer: products of the experts that all tokens share stand between
        the start of an exchange and its end. Rows travel twice forward and twice
        backward, and are not sent back for recomputation to wait for them."""
        model = support.MODELS / "deepseek.onnx"
        trace, out = self.folder / "trace.json", self.folder / "shared"
        support.succeed(support.CLEAVE, "train", model, "--config", model.with_suffix(".toml"),
                        "--set=mesh.expert=2", "--data", self.folder / "tokens.npy", "--out", out,
                        "--steps", 1, "--eval-every", 0, "--trace", trace)
        events = json.loads(trace.read_text())["traceEvents"]
        kinds = [(event["cat"], event["name"]) for event in sorted(
            (event for event in events if event["ph"] == "X" and event["pid"] == 0),
            key=lambda event: event["ts"])]
        # Numbers of rows have come before; experts compute with the rows.
        experts = next(i for i, (kind, _) in enumerate(kinds) if kind == "grouped_gemm")
        last = lambda kind, end: max(i for i in range(end) if kinds[i] == (kind, "node_Split_801"))
        end = last("wait", experts)
        between = kinds[last("all_to_all_v", end):end]
        self.assertEqual(sum(kind == "gemm" for kind, _ in between), 2)
        # The ids, the rows, and what comes of them.
        self.assertEqual(sum(kind == "all_to_all_v" for kind, _ in kinds), 5)


if __name__ == "__main__":
    unittest.main()
