"""The router bias, updated from the loads of each step: against NumPy, and equal on every mesh."""

import json
import unittest
import unittest.mock

import numpy as np

import support
import test_balance
import test_router_losses as routers
import training
from support import CLEAVE
from test_balance import EXPERTS, STILL, choices, counts

RATE = 0.02
CORRECTION = "model.layers.1.mlp.gate.e_score_correction_bias"  # of deepseek.onnx
BIAS = {"parallel__expert__bias_update": RATE}


def moved(bias, loads):
    return (bias + np.float32(RATE) * np.sign(loads.sum() - len(loads) * loads).astype(np.float32)).astype(np.float32)


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class RouterBias(test_balance.Trained):
    def checkpoint(self, out, step):
        return out / f"checkpoint-{step:06d}"

    def bias(self, out, step):
        return support.read_safetensors(self.checkpoint(out, step) / "model.safetensors")["bias"]

    def test_steps_against_numpy(self):
        """Weights stay fixed, so that only the bias changes the choices."""
        steps = 12
        out = self.train(self.model(True), "", "--steps", steps, "--save-every", 1, train__keep=0,
                         **STILL, **BIAS)
        bias, log = routers.weights()["bias"], support.read_log(out)
        for step in range(1, steps + 1):
            loads = counts(choices(self.ids, True, bias.astype(np.float64)))
            self.assertAlmostEqual(log[step - 1]["experts"][0]["load"], loads.max() / loads.mean())
            bias = moved(bias, loads)
            np.testing.assert_array_equal(self.bias(out, step), bias)

    def test_meshes_and_resumed_runs(self):
        """Weights are trained as well; each step uses the loads that it logs."""
        steps = 4
        keys = {"train__lr": 1e-3, "data__validation": 0.0, "train__keep": 0, **BIAS}
        runs = [("", {})]
        runs += [("data=2", {"parallel__data__zero": zero}) for zero in (1, 2, 3)]
        runs += [("data=2", {"train__microbatches": 2}), ("expert=2", {}), ("data=2,expert=2", {}), ("tensor=2", {}),
                 ("data=2", {"parallel__expert__axis": "data", "parallel__data__zero": 3}),
                 ("pipeline=2", {"train__microbatches": 2}),
                 ("pipeline=2", {"train__microbatches": 4, "parallel__pipeline__schedule": "chimera"}),
                 ("pipeline=2,data=2", {"train__microbatches": 2, "train__on_nan": "skip"})]
        want = None
        for mesh, more in support.some(runs, 5):
            with self.subTest(mesh=mesh, **more):
                whole = self.train(self.model(True), mesh, "--steps", steps, "--save-every", 1, **keys, **more)
                if want is None:
                    want = [self.bias(whole, step) for step in range(1, steps + 1)]
                    self.assertFalse(np.array_equal(want[0], want[-1]))
                for step in range(1, steps + 1):
                    np.testing.assert_array_equal(self.bias(whole, step), want[step - 1])
                last = self.train(self.model(True), mesh, "--steps", steps, "--resume", self.checkpoint(whole, steps - 1),
                                  **keys, **more)
                np.testing.assert_array_equal(self.bias(last, steps), want[-1])
                [entry] = self.experts(last)
                np.testing.assert_array_equal(moved(self.bias(whole, steps - 1), np.array(entry["chosen"])), want[-1])

    def test_loads_become_even(self):
        """Two experts of a skewed router take all tokens, until the bias compensates."""
        skewed = {**routers.weights(), "bias": np.linspace(-1, 1, EXPERTS, dtype=np.float32)}
        with unittest.mock.patch.object(routers, "weights", return_value=skewed):
            log = support.read_log(self.train(self.model(True), "", "--steps", 80, **STILL, **BIAS))
        loads = [line["experts"][0]["load"] for line in log]
        self.assertGreater(loads[0], 2)
        self.assertLess(np.mean(loads[-20:]), 1.3)

    def test_is_a_buffer(self):
        """The bias is neither decayed nor clipped, and has no optimizer state; it is saved with the weights."""
        model = self.model(True)
        plain = self.train(model, "", "--steps", 1, "--save-every", 1, **STILL)
        self.assertNotIn("bias", support.read_safetensors(self.checkpoint(plain, 1) / "model.safetensors"))
        out = self.train(model, "", "--steps", 1, "--save-every", 1, **STILL, **BIAS)
        self.assertFalse(np.array_equal(self.bias(out, 1), routers.weights()["bias"]))
        self.assertEqual(support.read_log(plain)[0]["grad_norm"], support.read_log(out)[0]["grad_norm"])
        self.assertEqual(support.read_log(plain)[0]["loss"], support.read_log(out)[0]["loss"])
        state = support.read_safetensors(self.checkpoint(out, 1) / "optimizer.safetensors")
        self.assertFalse([name for name in state if name.startswith("bias")])

    def test_check(self):
        for mesh, more in support.some((("data=2", {"parallel__data__zero": 3}),
                                        ("expert=2,tensor=2", {}),
                                        ("pipeline=2", {"train__microbatches": 2})), 1):
            with self.subTest(mesh=mesh, **more):
                done = support.run(CLEAVE, "check", "--json", "--steps", 2, *training.flags("deepseek", mesh, **BIAS, **more))
                self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr)
                kinds = {tensor["kind"] for tensor in json.loads(done.stdout)["tensors"]}
                self.assertIn("buffer", kinds)

    def test_refused(self):
        for model, keys, why in [
                ("switch", {}, "has no bias that enters nothing but the choice of routers '"),
                ("gpt2", {}, "has no experts that a router chooses, but parallel.expert.bias_update is not 0"),
                ("deepseek", {"train__trainable": f'[".*", "{CORRECTION}"]', "train__frozen": f'["{CORRECTION}"]'},
                 "which is frozen (train.trainable, train.frozen)"),
                ("deepseek", {"parallel__pipeline__schedule": "pipedream-async", "mesh__pipeline": 2, "train__clip_norm": 0.0,
                              "train__microbatches": 2},
                 "parallel.expert.bias_update moves biases by the loads of a whole step"),
                ("deepseek", {"parallel__expert__bias_update": -0.1}, "parallel.expert.bias_update")]:
            with self.subTest(model, **keys):
                done = support.run(CLEAVE, "explain", *training.flags(model, **{**BIAS, **keys}))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
