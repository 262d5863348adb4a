"""Bytes sent: the oracle of closed forms, what explain says, what a run counts."""

import concurrent.futures
import pathlib
import tempfile
import unittest

import support
import training
import formulas

BATCH, SEQUENCE = 8, 96  # of the models' .toml

# (mesh, ZeRO, microbatches). Three ranks divide neither the batch nor the
# vocabulary, six heads or 344 columns; four do not divide two kv heads.
PLANS = [("data=2", 0, 1), ("data=3", 0, 1), ("data=3", 1, 1), ("data=4", 1, 1),
         ("tensor=2", 0, 1), ("tensor=3", 0, 1), ("tensor=4", 0, 1), ("data=2,tensor=2", 0, 1),
         ("data=2,tensor=2", 1, 2), ("data=3,tensor=2", 1, 1)]
COUNTED = {"gpt2": [("data=2,tensor=2", 1, 2), ("data=3", 0, 1), ("data=4", 1, 1),
                    ("tensor=2", 0, 1)],
           "llama": [("data=3,tensor=2", 1, 1), ("tensor=4", 0, 1), ("data=2", 0, 1),
                     ("tensor=3", 0, 1)]}


def keys_of(zero, microbatches):
    keys = {"train__microbatches": microbatches}
    if zero:
        keys["parallel__data__zero"] = zero
    return keys


def expected(model, mesh, zero, microbatches):
    architecture = formulas.read_architecture(support.MODELS / f"{model}.onnx")
    plan = formulas.Plan(formulas.parse_mesh(mesh), BATCH, SEQUENCE, microbatches, zero)
    return [row["sent_bytes"] for row in formulas.sent_bytes(architecture, plan)["per_rank"]]


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
            model, (mesh, *rest) = case
            ranks = training.explain(model, mesh, **keys_of(*rest))["per_rank"]
            return [per_purpose(rank["collectives"]) for rank in ranks]

        cases = [(model, plan) for model in COUNTED for plan in PLANS]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (model, plan), said in zip(cases, pool.map(explained, cases)):
                with self.subTest(model=model, plan=plan):
                    self.assertEqual(said, expected(model, *plan))

    def test_a_run_counts_what_explain_says(self):
        with tempfile.TemporaryDirectory() as folder:
            for model, plans in COUNTED.items():
                for number, (mesh, *rest) in enumerate(plans):
                    with self.subTest(model=model, mesh=mesh):
                        out = pathlib.Path(folder) / f"{model}-{number}"
                        keys = keys_of(*rest)
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
