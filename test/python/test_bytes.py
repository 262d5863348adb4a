"""Bytes sent: the closed forms, the model of `explain`, and a run's counters agree."""

import concurrent.futures
import json
import pathlib
import tempfile
import unittest

import support
import training
import formulas

BATCH, SEQUENCE = 8, 96  # as in the models' .toml

# (mesh, ZeRO, microbatches). Three ranks divide neither the batch nor the
# vocabulary, six heads or 344 columns; four do not divide two KV heads.
PLANS = [("data=2", 0, 1), ("data=3", 0, 1), ("data=3", 1, 1), ("data=4", 1, 1),
         ("tensor=2", 0, 1), ("tensor=3", 0, 1), ("tensor=4", 0, 1), ("data=2,tensor=2", 0, 1),
         ("data=2,tensor=2", 1, 2), ("data=3,tensor=2", 1, 1),
         ("data=3", 2, 1), ("data=2", 2, 2), ("data=2,tensor=2", 2, 2, "per_microbatch"),
         ("data=3", 3, 1), ("data=2,tensor=2", 3, 2), ("data=3,tensor=2", 3, 1),
         ("data=2", 3, 2, "keep"), ("replica=2,data=2", 0, 1, "hybrid"),
         ("replica=2,data=3", 1, 1, "hybrid"), ("replica=2,data=2", 2, 2, "hybrid"),
         ("replica=2,data=2,tensor=2", 3, 2, "hybrid")]
COUNTED = {"gpt2": [("data=2,tensor=2", 1, 2), ("data=3", 0, 1), ("data=4", 1, 1),
                    ("tensor=2", 0, 1), ("data=2,tensor=2", 3, 2),
                    ("replica=2,data=2", 2, 2, "hybrid")],
           "llama": [("data=3,tensor=2", 1, 1), ("tensor=4", 0, 1), ("data=2", 0, 1),
                     ("tensor=3", 0, 1), ("data=3", 3, 1), ("replica=2,data=2", 3, 1, "hybrid")]}


def keys_of(mesh, zero, microbatches, policy=""):
    keys = {"train__microbatches": microbatches}
    if zero:
        keys["parallel__data__zero"] = zero
    if policy == "hybrid":
        keys["parallel__data__replicate"] = "replica"
        keys["mesh__axes"] = json.dumps([axis for axis, _ in formulas.parse_mesh(mesh)])
    elif policy == "keep":
        keys["parallel__data__reshard_after_forward"] = "false"
    elif policy:
        keys["parallel__data__zero2_reduce"] = policy
    return keys


def closed_forms(model, mesh, zero, microbatches, policy=""):
    architecture = formulas.read_architecture(support.MODELS / f"{model}.onnx")
    return formulas.sent_bytes(architecture, formulas.Plan(
        formulas.parse_mesh(mesh), BATCH, SEQUENCE, microbatches, zero,
        zero2_reduce="per_microbatch" if policy == "per_microbatch" else "per_step",
        reshard=policy != "keep", replicate="replica" if policy == "hybrid" else ""))


def expected(*plan):
    return [row["sent_bytes"] for row in closed_forms(*plan)["per_rank"]]


def per_purpose(entries):
    sums = dict.fromkeys(formulas.PURPOSES, 0)
    for entry in entries:
        sums[entry["purpose"]] += entry["sent_bytes"]
    return sums


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Bytes(unittest.TestCase):
    maxDiff = None

    def test_explain_says_what_the_formulas_say(self):
        def explained(case):
            model, plan = case
            ranks = training.explain(model, plan[0], **keys_of(*plan))["per_rank"]
            return ([per_purpose(rank["collectives"]) for rank in ranks],
                    [rank["memory"] for rank in ranks])

        cases = support.some([(model, plan) for model in COUNTED for plan in PLANS], 12)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (model, plan), (said, memory) in zip(cases, pool.map(explained, cases)):
                with self.subTest(model=model, plan=plan):
                    self.assertEqual(said, expected(model, *plan))
                    # Persistent memory: parameters, gradients, moments of each rank.
                    for rank in memory:
                        wanted = closed_forms(model, *plan)["memory"]
                        self.assertEqual({key: rank[key] for key in wanted}, wanted)

    def test_a_run_counts_what_explain_says(self):
        with tempfile.TemporaryDirectory() as folder:
            for model, plans in COUNTED.items():
                for number, plan in enumerate(support.some(plans, 2)):
                    mesh = plan[0]
                    with self.subTest(model=model, plan=plan):
                        out = pathlib.Path(folder) / f"{model}-{number}"
                        keys = keys_of(*plan)
                        log, counters = training.train(out, model, mesh, "--steps", 2, **keys)
                        said = training.explain(model, mesh, **keys)["per_rank"]
                        sent = []
                        for rank, counted in zip(said, counters["ranks"], strict=True):
                            sums = per_purpose(rank["collectives"])
                            self.assertEqual(per_purpose(counted["traffic"]), sums)
                            for what, key in (("received_bytes", "received_bytes"),
                                              ("count", "calls")):
                                self.assertEqual(sum(c[what] for c in rank["collectives"]),
                                                 sum(t[key] for t in counted["traffic"]))
                            sent.append(sum(sums.values()))
                        self.assertEqual([line["sent_bytes"] for line in log], [max(sent)] * 2)


if __name__ == "__main__":
    unittest.main()
