"""Bytes and memory of pipelines: the closed forms, the model of `explain` and a run's counters agree."""

import pathlib
import tempfile
import unittest

import training
import formulas
import formulas_pipeline

SEQUENCE = 16
# Every tensor's size is a multiple of 64 bytes.
SIZES = {"gpt2": {"hidden": 64, "heads": 4, "vocab": 256, "positions": SEQUENCE},
         "llama": {"hidden": 64, "heads": 4, "vocab": 256, "positions": SEQUENCE, "kv_heads": 2,
                   "intermediate": 96}}
# Mesh, schedule, layers of each stage, microbatches, samples of each, keys.
PLANS = [
    ("pipeline=2", "gpipe", [2, 2], 3, 1, {}),
    ("pipeline=2", "1f1b", [1, 3], 4, 2, {}),
    ("pipeline=4", "1f1b", [1, 1, 1, 1], 6, 1, {}),
    ("pipeline=4", "zb-h1", [1, 1, 1, 1], 4, 1, {}),
    ("pipeline=2", "interleaved", [1, 1, 1, 1], 3, 1, {}),
    ("pipeline=2", "looped-bfs", [1, 1, 1, 1], 2, 2, {}),
    ("pipeline=2", "zb-v", [1, 1, 1, 1], 4, 1, {}),
    ("pipeline=2", "dualpipe-v", [1, 1, 1, 1], 4, 1, {}),
    ("pipeline=2,data=2", "1f1b", [2, 2], 2, 4, {}),
    ("pipeline=2,data=2", "1f1b", [2, 2], 2, 2, {"zero": 1}),
    ("pipeline=2,data=2", "zb-v", [1, 1, 1, 1], 3, 2, {"zero": 2}),
    ("pipeline=2,data=2", "1f1b", [2, 2], 3, 2, {"zero": 3}),
    ("pipeline=2,tensor=2", "1f1b", [2, 2], 2, 1, {}),
    ("pipeline=2,data=2,tensor=2", "1f1b", [2, 2], 2, 2, {"zero": 1}),
    ("pipeline=2,data=2,tensor=2", "interleaved", [1, 1, 1, 1], 2, 2,
     {"zero": 3, "reshard": False}),
]
COUNTED = (1, 6, 9, 14)  # the plans that are also run


def model_of(family):
    return training.generated(family=family, layers=4, **SIZES[family])


def cuts(family, layers):
    """parallel.pipeline.stages: one pattern for each stage."""
    head, layer, first, last = {
        "gpt2": (r"transformer\\.", r"h\\.", "wte|wpe", "ln_f"),
        "llama": (r"", r"model\\.layers\\.", r"model\\.embed_tokens", r"model\\.norm|lm_head"),
    }[family]
    patterns, begin = [], 0
    for stage, count in enumerate(layers):
        names = [layer + f"[{begin}-{begin + count - 1}]"]
        names += [first] if stage == 0 else []
        names += [last] if stage == len(layers) - 1 else []
        patterns.append(f'"{head}({"|".join(names)})"')
        begin += count
    return "[" + ",".join(patterns) + "]"


def plan_of(family, mesh, schedule, layers, microbatches, samples, keys):
    plan = formulas.Plan(formulas.parse_mesh(mesh), samples * microbatches, SEQUENCE, microbatches,
                         zero=keys.get("zero", 0), reshard=keys.get("reshard", True))
    pipeline = formulas_pipeline.Pipeline(formulas.read_architecture(model_of(family)), plan,
                                          layers, schedule, "sequence" in keys)
    flags = {"dims__batch": plan.batch, "dims__sequence": SEQUENCE,
             "train__microbatches": microbatches, "parallel__pipeline__schedule": schedule,
             "parallel__pipeline__stages": cuts(family, layers)}
    if plan.zero:
        flags["parallel__data__zero"] = plan.zero
    if not plan.reshard:
        flags["parallel__data__reshard_after_forward"] = "false"
    if "sequence" in keys:
        flags["parallel__sequence"] = '[{kind="megatron",axis="tensor"}]'
    return pipeline, flags


def per_purpose(entries):
    sums = dict.fromkeys(formulas_pipeline.PURPOSES, 0)
    for entry in entries:
        sums[entry["purpose"]] += entry["sent_bytes"]
    return sums


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class PipelineFormulas(unittest.TestCase):
    maxDiff = None

    def explain(self, family, mesh, flags):
        """Values of `explain`, by rank."""
        said = training.explain(model_of(family), mesh, **flags)
        by_rank = {member: entry for entry in said["per_rank"] for member in entry["members"]}
        return [by_rank[rank] for rank in range(said["ranks"])]

    def test_explain_says_what_the_formulas_say(self):
        for family in SIZES:
            for mesh, *plan in PLANS:
                with self.subTest(family=family, mesh=mesh, plan=plan):
                    pipeline, flags = plan_of(family, mesh, *plan)
                    said = self.explain(family, mesh, flags)
                    self.assertEqual([per_purpose(entry["collectives"]) for entry in said],
                                     formulas_pipeline.sent_bytes(pipeline))
                    wanted = formulas_pipeline.memory(pipeline)
                    for rank, entry in enumerate(said):
                        own = pipeline.plan.coordinates(rank)["pipeline"]
                        self.assertEqual({key: entry["memory"][key] for key in wanted[own]},
                                         wanted[own])

    def test_a_run_counts_what_the_formulas_say(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in COUNTED:
                family = ("gpt2", "llama")[number % 2]
                mesh, *plan = PLANS[number]
                with self.subTest(family=family, mesh=mesh, plan=plan):
                    pipeline, flags = plan_of(family, mesh, *plan)
                    _, counters = training.train(pathlib.Path(folder) / str(number),
                                                 model_of(family), mesh, "--steps", 2, **flags)
                    self.assertEqual([per_purpose(rank["traffic"]) for rank in counters["ranks"]],
                                     formulas_pipeline.sent_bytes(pipeline))

    def test_stored_activations(self):
        """Slots of residuals saved from F to B: the schedule's peak times the residuals of one
        microbatch. (test_pipeline_explain checks that a run's arenas equal explain's.)"""
        for family in SIZES:
            for mesh, schedule, layers, m, samples in (
                    ("pipeline=2", "gpipe", [2, 2], 3, 1), ("pipeline=2", "1f1b", [1, 3], 4, 2),
                    ("pipeline=4", "1f1b", [1, 1, 1, 1], 6, 1),
                    ("pipeline=4", "gpipe", [1, 1, 1, 1], 5, 2),
                    ("pipeline=2,data=2", "1f1b", [2, 2], 1, 4)):
                with self.subTest(family=family, mesh=mesh, schedule=schedule):
                    pipeline, flags = plan_of(family, mesh, schedule, layers, m, samples, {})
                    wanted = formulas_pipeline.stored(pipeline)
                    for rank, entry in enumerate(self.explain(family, mesh, flags)):
                        own = pipeline.plan.coordinates(rank)["pipeline"]
                        found = [e["bytes"] for e in entry["at_peak"]
                                 if e["tensor"] == f"slots.{own}.F:B"]
                        self.assertEqual(found, [wanted[own]])

    def test_sequence_parallelism_sends_tiles(self):
        for family in SIZES:
            for schedule, layers in (("1f1b", [2, 2]), ("zb-v", [1, 1, 1, 1])):
                with self.subTest(family=family, schedule=schedule):
                    mesh = "pipeline=2,tensor=2"
                    pipeline, flags = plan_of(family, mesh, schedule, layers, 4, 2,
                                              {"sequence": True})
                    wanted = formulas_pipeline.point_to_point(pipeline)
                    for rank, entry in enumerate(self.explain(family, mesh, flags)):
                        self.assertEqual(per_purpose(entry["collectives"])["pipeline"],
                                         wanted[rank // 2])

    def test_published_forms(self):
        """2 m b s h e on inner ranks, half of it on the outer ones; (p v - 1) boundaries in all."""
        for family in SIZES:
            one, _ = plan_of(family, "pipeline=4", "1f1b", [1] * 4, 6, 2, {})
            message = 2 * SEQUENCE * 64 * 4
            self.assertEqual(formulas_pipeline.point_to_point(one),
                             [6 * message, 12 * message, 12 * message, 6 * message])
            two, _ = plan_of(family, "pipeline=2", "interleaved", [1] * 4, 6, 2, {})
            self.assertEqual(sum(formulas_pipeline.point_to_point(two)), 2 * 6 * 3 * message)
            shaped, _ = plan_of(family, "pipeline=2", "zb-v", [1] * 4, 6, 2, {})
            self.assertEqual(sum(formulas_pipeline.point_to_point(shaped)), 2 * 6 * 2 * message)


if __name__ == "__main__":
    unittest.main()
