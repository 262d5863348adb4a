"""Scan, Loop and If: values against NumPy, sharding, and what is refused."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import onnxbuild
import onnxwire
import support
from support import CLEAVE

T, B, H = 5, 4, 6


def builder(prefix, **inputs):
    """A graph whose inputs are f32 tensors of these shapes. Names begin with `prefix`."""
    b = onnxbuild.Builder(prefix)
    b.prefix = prefix
    for name, shape in inputs.items():
        b.input(name, np.float32, shape)
    return b


def state_space(scan_attributes=None, reverse=False):
    """h[t] = tanh(h[t - 1] * a + x[t] @ w), y[t] = h[t] @ c, over dimension 0 of x. The body reads a, w and c from
    outside."""
    body = builder("step", h=["n", H], x=["n", H])
    scaled = body.op("Mul", "h", "a", out="scaled")
    moved = body.op("MatMul", "x", "w", out="moved")
    h = body.op("Tanh", body.op("Add", scaled, moved, out="sum"), out="h_next")
    y = body.op("MatMul", h, "c", out="y")
    for name in (h, y):
        body.output(name, np.float32, [B, H])
    b = onnxbuild.Builder()
    rng = np.random.default_rng(0)
    given = {"a": rng.uniform(0.2, 0.9, H), "w": rng.normal(size=(H, H)) / 2, "c": rng.normal(size=(H, H)) / 2}
    for name, array in given.items():
        b.parameter(name, array.astype(np.float32))
    return b, body, given


def run_state_space(x, given, h):
    ys = []
    for step in x:
        h = np.tanh(h * given["a"] + step @ given["w"])
        ys.append(h @ given["c"])
    return h, np.stack(ys)


@unittest.skipUnless(CLEAVE.exists(), "cleave is not built")
class ControlFlow(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def save(self, b, opset=22):
        path = self.folder / "m.onnx"
        onnxwire.save(b.model(opset), path)
        return path

    def infer(self, b, *names, opset=22, **given):
        path = self.save(b, opset)
        np.savez(self.folder / "in.npz", **given)
        support.succeed(CLEAVE, "infer", path, "--inputs", self.folder / "in.npz", "--outputs", self.folder / "out.npz",
                        "--cache", self.folder / "cache")
        with np.load(self.folder / "out.npz") as found:
            return [found[name] for name in names]

    def refused(self, b, *texts, code=2):
        path = self.save(b)
        result = support.run(CLEAVE, "import", path)
        self.assertEqual(result.returncode, code, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def state_space_model(self, **attributes):
        b, body, given = state_space()
        x = b.input("x", np.float32, [T, B, H])
        h0 = b.input("h0", np.float32, [B, H])
        last, ys = b.op("Scan", h0, x, outputs=2, num_scan_inputs=1, body=body, **attributes)
        b.output(b.op("Identity", last, out="last"), np.float32, [B, H])
        b.output(b.op("Identity", ys, out="ys"), np.float32, [T, B, H])
        return b, given

    def test_scan(self):
        rng = np.random.default_rng(1)
        x, h0 = (rng.normal(size=shape).astype(np.float32) for shape in ((T, B, H), (B, H)))
        for into in (0, 1):
            for out in (0, 1):
                with self.subTest(into=into, out=out):
                    b, given = self.state_space_model(scan_input_directions=[into], scan_output_directions=[out])
                    last, ys = self.infer(b, "last", "ys", x=x, h0=h0)
                    want_last, want = run_state_space(x[::-1] if into else x, given, h0)
                    np.testing.assert_allclose(last, want_last, rtol=1e-5, atol=1e-6)
                    np.testing.assert_allclose(ys, want[::-1] if out else want, rtol=1e-5, atol=1e-6)

    def test_scan_axes(self):
        b, body, given = state_space()
        x = b.input("x", np.float32, [B, T, H])
        h0 = b.parameter("h0", np.zeros((B, H), np.float32))
        last, ys = b.op("Scan", h0, x, outputs=2, num_scan_inputs=1, body=body, scan_input_axes=[1],
                        scan_output_axes=[-1])
        b.output(b.op("Identity", ys, out="ys"), np.float32, [B, H, T])
        x = np.random.default_rng(2).normal(size=(B, T, H)).astype(np.float32)
        want = run_state_space(x.transpose(1, 0, 2), given, np.zeros((B, H)))[1]
        np.testing.assert_allclose(self.infer(b, "ys", x=x)[0], want.transpose(1, 2, 0), rtol=1e-5, atol=1e-6)

    def test_sharded(self):
        """Samples are split, or features; the recurrent state is split with them."""
        b, body, _ = state_space()
        x = b.input("x", np.float32, ["batch", T, H])
        h0 = b.parameter("h0", np.zeros(H, np.float32))
        size = b.op("Gather", b.op("Shape", x, out="shape"), b.constant([0]), out="size", axis=0)
        start = b.op("Expand", h0, b.op("Concat", size, b.constant([H]), out="state_shape", axis=0), out="start")
        _, ys = b.op("Scan", start, x, outputs=2, num_scan_inputs=1, body=body, scan_input_axes=[1],
                     scan_output_axes=[1])
        b.output(b.op("Identity", ys, out="ys"), np.float32, ["batch", T, H])
        path = self.save(b)
        for mesh in (["mesh.data=2"], ["mesh.data=3", "parallel.data.zero=3"], ["mesh.tensor=2"]):
            with self.subTest(mesh=mesh):
                support.succeed(CLEAVE, "check", path, *(f"--set={key}" for key in mesh), "--set=dims.batch=5",
                                "--set=train.loss=mse", "--set=data.labels=t")
        said = json.loads(support.succeed(CLEAVE, "explain", path, "--json", "--set=dims.batch=5",
                                          "--set=train.loss=mse", "--set=data.labels=t"))
        calls = [kernel["calls"] for kernel in said["kernels"]]
        self.assertIn(T, calls)  # what an iteration runs
        self.assertGreater(min(calls), 0)

    def test_gradients_of_slices(self):
        """Layers whose weights are slices, and a product with a factor that all iterations share, against NumPy."""
        layers, batch = 3, 4
        rng = np.random.default_rng(5)
        w, a = (rng.normal(size=shape).astype(np.float32) / 2 for shape in ((layers, H, H), (H,)))
        x, t = (rng.normal(size=(batch, H)).astype(np.float32) for _ in range(2))
        body = builder("layer")
        body.input("h", np.float32, ["batch", H])
        body.input("each", np.float32, [H, H])
        factor = body.op("Exp", "a", out="factor")
        h = body.op("Mul", body.op("Tanh", body.op("MatMul", "h", "each", out="sum"), out="active"), factor, out="h_out")
        body.output(h, np.float32, ["batch", H])
        b = onnxbuild.Builder()
        b.input("x", np.float32, ["batch", H])
        b.parameter("w", w)
        b.parameter("a", a)
        last = b.op("Scan", "x", "w", out="last", num_scan_inputs=1, body=body)
        b.output(b.op("Identity", last, out="y"), np.float32, ["batch", H])
        path = self.save(b)
        np.savez(self.folder / "data.npz", x=x, labels=t)
        support.succeed(CLEAVE, "check", path, "--inputs", self.folder / "data.npz", "--gradients",
                        self.folder / "gradients.npz", f"--set=dims.batch={batch}", "--set=train.loss=mse",
                        "--set=data.labels=labels", "--set=mesh.data=2")
        states, active = [x.astype(np.float64)], []
        for each in w.astype(np.float64):
            active.append(np.tanh(states[-1] @ each))
            states.append(active[-1] * np.exp(a.astype(np.float64)))
        g, dw, da = 2 * (states[-1] - t) / t.size, [], 0
        for each, before, tanh in zip(w[::-1].astype(np.float64), states[-2::-1], active[::-1]):
            da += (g * tanh).sum(0) * np.exp(a.astype(np.float64))
            g = g * np.exp(a.astype(np.float64)) * (1 - tanh * tanh)
            dw.insert(0, before.T @ g)
            g = g @ each.T
        with np.load(self.folder / "gradients.npz") as found:
            np.testing.assert_allclose(found["grad/w"], np.stack(dw), rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(found["grad/a"], da, rtol=1e-6, atol=1e-9)

    def test_loop(self):
        """f = f + table[i] * (i + 1), and the sums are stacked."""
        body = builder("turn")
        body.input("i", np.int64, [])
        body.input("go", np.bool_, [])
        body.input("f", np.float32, [H])
        row = body.op("Gather", "table", "i", out="row", axis=0)
        one = body.op("Add", "i", body.constant(1), out="next")
        f = body.op("Add", "f", body.op("Mul", row, body.op("Cast", one, out="float", to=1), out="scaled"), out="f_out")
        body.output(body.op("Identity", "go", out="go_on"), np.bool_, [])
        body.output(f, np.float32, [H])
        body.output(body.op("Identity", f, out="stack"), np.float32, [H])
        b = onnxbuild.Builder()
        b.input("table", np.float32, [T, H])
        start = b.input("start", np.float32, [H])
        last, every = b.op("Loop", b.constant(T), b.constant(True, np.bool_), start, outputs=2, body=body)
        b.output(b.op("Identity", last, out="last"), np.float32, [H])
        b.output(b.op("Identity", every, out="every"), np.float32, [T, H])
        rng = np.random.default_rng(3)
        table, start = (rng.normal(size=shape).astype(np.float32) for shape in ((T, H), (H,)))
        want = start + np.cumsum(table * np.arange(1, T + 1)[:, None], axis=0)
        last, every = self.infer(b, "last", "every", table=table, start=start)
        np.testing.assert_allclose(every, want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(last, want[-1], rtol=1e-5, atol=1e-5)

    def nested(self, taken):
        """A Scan whose body has an If (known from the shape of x) and a Loop, which has its own initializers."""
        inner = builder("inner")
        inner.input("j", np.int64, [])
        inner.input("go", np.bool_, [])
        inner.input("z", np.float32, [B])
        inner.parameter("half", np.float32(0.5))
        inner.output(inner.op("Identity", "go", out="on"), np.bool_, [])
        inner.output(inner.op("Add", inner.op("Mul", "z", "half", out="p"), "x", out="z_out"), np.float32, [B])
        then, other = builder("then"), builder("other")
        then.output(then.op("Mul", "state", "x", out="product"), np.float32, [B])
        other.output(other.op("Sub", "state", "x", out="difference"), np.float32, [B])
        body = builder("body", state=[B], x=[B])
        chosen = body.op("If", "is_long", out="chosen", then_branch=then, else_branch=other)
        count, go = body.constant(3), body.constant(True, np.bool_)
        z = body.op("Loop", count, go, chosen, out="z_last", body=inner)
        body.output(z, np.float32, [B])
        body.output(body.op("Identity", "state", out="before"), np.float32, [B])
        b = onnxbuild.Builder()
        x = b.input("xs", np.float32, [T, B])
        length = b.op("Gather", b.op("Shape", x, out="shape"), b.constant(0), out="length")
        b.op("Greater", length, b.constant(T - 1 if taken else T), out="is_long")
        state = b.input("start", np.float32, [B])
        last, before = b.op("Scan", state, x, outputs=2, num_scan_inputs=1, body=body)
        b.output(b.op("Identity", last, out="last"), np.float32, [B])
        b.output(b.op("Identity", before, out="states"), np.float32, [T, B])
        return b

    def test_nested(self):
        rng = np.random.default_rng(4)
        x, start = (rng.normal(size=shape).astype(np.float32) for shape in ((T, B), (B,)))
        for taken in (True, False):
            with self.subTest(taken=taken):
                last, states = self.infer(self.nested(taken), "last", "states", xs=x, start=start)
                state, want = start, []
                for step in x:
                    want.append(state)
                    state = state * step if taken else state - step
                    for _ in range(3):
                        state = state * 0.5 + step
                np.testing.assert_allclose(states, np.stack(want), rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(last, state, rtol=1e-5, atol=1e-6)

    def loop(self, trips, go=True, condition="go", grows=False):
        body = builder("turn")
        body.input("i", np.int64, [])
        body.input("go", np.bool_, [])
        body.input("f", np.float32, [H])
        total = body.op("ReduceSum", "f", out="total", keepdims=0)
        body.op("Greater", total, body.constant(0, np.float32), out="computed")
        body.output(body.op("Identity", condition, out="on"), np.bool_, [])
        f = body.op("Concat", "f", "f", out="twice", axis=0) if grows else body.op("Neg", "f", out="minus")
        body.output(f, np.float32, [2 * H if grows else H])
        b = onnxbuild.Builder()
        f = b.input("f0", np.float32, [H])
        count = b.input("n", np.int64, []) if trips is None else b.constant(trips)
        b.output(b.op("Loop", count, b.constant(go, np.bool_), f, out="y", body=body), np.float32, [H])
        return b

    def test_refusals(self):
        self.refused(self.loop(0), "node 'n0' (Loop, opset 22)", "its trip count is 0, expected at least 1")
        self.refused(self.loop(-3), "its trip count is -3, expected at least 1")
        self.refused(self.loop(2**62), "its trip count is 4611686018427387904, expected at most 16777216")
        self.refused(self.loop(None), "its trip count is computed when the model runs")
        self.refused(self.loop(4, go=False), "its condition is computed when the model runs or is false")
        self.refused(self.loop(4, condition="computed"), "its body computes whether to go on when the model runs")
        self.refused(self.loop(4, grows=True),
                     "its carried value 0 has shape [6] before an iteration and [12] after it")
        branch = builder("branch")
        branch.output(branch.op("Neg", "x", out="minus"), np.float32, [H])
        b = onnxbuild.Builder()
        b.input("x", np.float32, [H])
        b.input("c", np.bool_, [])
        b.output(b.op("If", "c", out="y", then_branch=branch, else_branch=branch), np.float32, [H])
        self.refused(b, "(If, opset 22)", "its condition is computed when the model runs")

    def test_indices(self):
        """Indices in a body count from the end if they are negative, and are checked."""
        body = builder("step")
        body.input("i", np.int64, [])
        body.output(body.op("Gather", "table", "i", out="row", axis=0), np.float32, [H])
        body.op("Gather", "table", "more", out="rows", axis=0)
        body.output(body.op("Identity", "rows", out="several"), np.float32, [2, H])
        b = onnxbuild.Builder()
        b.input("table", np.float32, [4, H])
        ids = b.input("ids", np.int64, [T])
        b.input("more", np.int64, [2])
        rows, several = b.op("Scan", ids, outputs=2, num_scan_inputs=1, body=body)
        b.output(b.op("Identity", rows, out="rows"), np.float32, [T, H])
        b.output(b.op("Identity", several, out="all"), np.float32, [T, 2, H])
        table = np.random.default_rng(5).normal(size=(4, H)).astype(np.float32)
        ids, more = np.array([0, -1, -4, 3, 2]), np.array([1, -2])
        rows, several = self.infer(b, "rows", "all", table=table, ids=ids, more=more)
        np.testing.assert_array_equal(rows, table[ids])
        np.testing.assert_array_equal(several, np.stack([table[more]] * T))
        for wrong in ({"ids": np.array([0, 1, 4, 0, 0])}, {"ids": np.array([0, 1, -5, 0, 0])},
                      {"more": np.array([0, 10**12])}):
            np.savez(self.folder / "in.npz", **{"table": table, "ids": ids, "more": more, **wrong})
            result = support.run(CLEAVE, "infer", self.folder / "m.onnx", "--inputs", self.folder / "in.npz",
                                 "--outputs", self.folder / "none.npz", "--cache", self.folder / "cache")
            self.assertIn(result.returncode, (2, 3), result.stderr)
            self.assertIn("beyond the 4 rows of its table", result.stderr)
            self.assertFalse((self.folder / "none.npz").exists())

    def test_batch_in_a_body(self):
        """A body that divides by the number of samples computes something else for a microbatch, so microbatches are
        refused."""
        body = builder("step", x=["n", H])
        size = body.op("Cast", body.op("Gather", body.op("Shape", "x", out="shape"), body.constant(0), out="count"),
                       out="size", to=1)
        body.output(body.op("Div", body.op("MatMul", "x", "w", out="y"), size, out="z"), np.float32, ["n", H])
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, ["batch", T, H])
        b.parameter("w", np.random.default_rng(6).normal(size=(H, H)).astype(np.float32))
        z = b.op("Scan", x, num_scan_inputs=1, body=body, scan_input_axes=[1], scan_output_axes=[1])
        b.output(b.op("ReduceSum", z, out="loss", keepdims=0), np.float32, [])
        path = self.save(b)
        flags = ["--set=dims.batch=4", "--set=train.loss=output:loss"]
        support.succeed(CLEAVE, "check", path, *flags, "--gradients", self.folder / "g.npz")
        result = support.run(CLEAVE, "check", path, *flags, "--set=train.microbatches=2", "--gradients",
                             self.folder / "g2.npz")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("not known to add up over train.microbatches = 2: 'nn.scan'", result.stderr)
        self.assertFalse((self.folder / "g2.npz").exists())

    def test_weights_inside(self):
        """Weights among the initializers of a body would not be trained."""
        body = builder("step", x=[B, H])
        body.parameter("w", np.ones((H, H), np.float32))
        body.output(body.op("MatMul", "x", "w", out="y"), np.float32, [B, H])
        b = onnxbuild.Builder()
        x = b.input("xs", np.float32, [T, B, H])
        b.output(b.op("Scan", x, out="ys", num_scan_inputs=1, body=body), np.float32, [T, B, H])
        self.refused(b, "its graph 'step' holds tensor 'w' of 36 floats, which could not be trained")

    def test_branch_that_is_not_taken(self):
        then, other = builder("then"), builder("other")
        then.output(then.op("Neg", "x", out="minus"), np.float32, [H])
        other.output(other.op("Det", "x", out="det"), np.float32, [H])
        b = onnxbuild.Builder()
        b.input("x", np.float32, [H])
        yes = b.constant(True, np.bool_)
        b.output(b.op("If", yes, out="y", then_branch=then, else_branch=other), np.float32, [H])
        x = np.arange(H, dtype=np.float32)
        np.testing.assert_array_equal(self.infer(b, "y", x=x)[0], -x)

    def test_refusal_inside(self):
        """An operator that is not supported is named also if it is in a body."""
        body = builder("step", h=[H], x=[H])
        body.output(body.op("Det", "x", out="h_next"), np.float32, [H])
        b = onnxbuild.Builder()
        x = b.input("x0", np.float32, [T, H])
        h = b.input("h0", np.float32, [H])
        b.output(b.op("Scan", h, x, out="last", num_scan_inputs=1, body=body), np.float32, [H])
        self.refused(b, "Det", "the operator is not supported")


if __name__ == "__main__":
    unittest.main()
