"""Asynchronous PipeDream: a run computes weight stashing as defined here, compared with a
simulation in NumPy; unsupported settings are rejected.

On rank d of p, with n = min(m, p - d), microbatch k of a step uses, forward and backward, the
weights of the rank's stage after max(0, k - n + 1) updates. Its gradient, that of its own mean
loss, is update k + 1.
"""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import support
from support import generate

LAYERS, WIDTH, MICROBATCHES = 4, 6, 5
SAMPLES = 2  # per microbatch


def perceptron():
    """LAYERS matrices with biases; the last layer has no nonlinearity."""
    matrix, vector = f"tensor<{WIDTH}x{WIDTH}xf32>", f"tensor<{WIDTH}xf32>"
    batch = f"tensor<{SAMPLES}x{WIDTH}xf32>"
    args, body = [], [f"%zero = arith.constant dense<0.0> : {batch}"]
    at = "%x"
    for i in range(LAYERS):
        for name, kind, size in (("w", matrix, 0.6), ("b", vector, 0.3)):
            args.append(f'%{name}{i}: {kind} {{nn.name = "{name}{i}", nn.role = #nn.role<parameter>, nn.init = '
                        f'#nn.init<normal, a = 0.0 : f64, b = {size} : f64>}}')
        body += [f'%p{i} = nn.einsum "bi,ih->bh" {at}, %w{i} : {batch}, {matrix} -> {batch}',
                 f"%c{i} = nn.broadcast %b{i} dims = [1] : {vector} -> {batch}",
                 f"%s{i} = arith.addf %p{i}, %c{i} : {batch}"]
        at = f"%s{i}"
        if i + 1 < LAYERS:
            body.append(f"%h{i} = math.tanh %s{i} : {batch}")
            at = f"%h{i}"
    args.append(f'%x: {batch} {{nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>}}')
    return (f"func.func @forward({', '.join(args)})\n"
            f'    -> ({batch} {{nn.batch_dim = 0 : i64, nn.name = "logits", nn.role = #nn.role<output>}}) {{\n  '
            + "\n  ".join(body) + f"\n  return {at} : {batch}\n}}\n")


def gradients(weights, x, labels):
    """The mean loss of the samples, and its gradient by parameter."""
    inputs, at = [], x
    for i in range(LAYERS):
        inputs.append(at)
        at = at @ weights[f"w{i}"] + weights[f"b{i}"]
        if i + 1 < LAYERS:
            at = np.tanh(at)
    at = at - at.max(1, keepdims=True)
    log = at - np.log(np.exp(at).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    d = np.exp(log)
    d[rows, labels] -= 1
    d /= len(labels)
    found = {}
    for i in reversed(range(LAYERS)):
        found[f"w{i}"], found[f"b{i}"] = inputs[i].T @ d, d.sum(0)
        d = (d @ weights[f"w{i}"].T) * (1 - inputs[i] ** 2)
    return -log[rows, labels].mean(), found


class Optimizer:
    RATES = {"sgd": 0.1, "adamw": 0.05}
    DECAY = 0.02

    def __init__(self, name):
        self.name, self.lr, self.state = name, self.RATES[name], {}

    def update(self, name, weight, gradient, count):
        decay = self.DECAY if weight.ndim > 1 else 0
        first, second = self.state.get(name, (0, 0))
        if self.name == "sgd":
            first = 0.9 * first + gradient + decay * weight
            self.state[name] = first, 0
            return weight - self.lr * first
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient ** 2
        self.state[name] = first, second
        scaled = (first / (1 - 0.9 ** count)) / (np.sqrt(second / (1 - 0.999 ** count)) + 1e-8)
        return weight - self.lr * (scaled + decay * weight)


def order(samples, seed, epoch):
    """The order of an epoch's samples, as documented for data.seed: a Feistel network."""
    mask64 = (1 << 64) - 1

    def mix(x):
        x = (x + 0x9E3779B97F4A7C15) & mask64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask64
        return x ^ (x >> 31)

    key, bits = mix(mix(seed) ^ epoch), 1
    while bits < 31 and 1 << (2 * bits) < samples:
        bits += 1
    mask, found = (1 << bits) - 1, []
    for index in range(samples):
        while True:
            left, right = index >> bits, index & mask
            for turn in range(4):
                left, right = right, left ^ (mix(key ^ mix(right + (turn << 32))) & mask)
            index = left << bits | right
            if index < samples:
                break
        found.append(index)
    return found


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class AsynchronousPipeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = cls.folder / "perceptron.mlir"
        cls.model.write_text(perceptron())
        random = np.random.default_rng(3)
        cls.x = random.standard_normal((MICROBATCHES * SAMPLES, WIDTH)).astype(np.float32)
        cls.labels = (cls.x + random.standard_normal(cls.x.shape)).argmax(1).astype(np.int32)
        np.savez(cls.folder / "data.npz", x=cls.x, labels=cls.labels)

    def flags(self, *settings):
        settings = [f"train.microbatches={MICROBATCHES}", "train.clip_norm=0", *settings]
        return [word for setting in settings for word in ("--set", setting)]

    def train(self, name, steps, *settings, flags=()):
        out = self.folder / name
        done = support.run(
            support.CLEAVE, "train", self.model, "--data", self.folder / "data.npz", "--out",
            out, "--steps", steps, "--cache", self.folder / "cache", *flags,
            *self.flags("data.labels=labels", "data.validation=0", "train.schedule=constant",
                        f"train.weight_decay={Optimizer.DECAY}", "train.warmup_steps=0", *settings))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        log = [line["loss"] for line in support.read_log(out)]
        weights = support.read_safetensors(out / f"checkpoint-{steps:06d}/model.safetensors")
        return log, weights, done.stderr

    def stages(self, *settings):
        """The parameters on each rank of the pipeline."""
        said = json.loads(support.succeed(support.CLEAVE, "explain", self.model, "--json",
                                          *self.flags(*settings)))
        ranks = {}
        for entry in said["per_rank"]:
            ranks[tuple(entry["stages"])] = [
                item["tensor"] for item in entry["at_peak"]
                if item["kind"] == "parameter" and not item["tensor"].startswith("versions.")]
        return [ranks[stages] for stages in sorted(ranks)]

    def simulate(self, weights, stages, optimizer, steps, stash=True):
        """Losses and weights after `steps`. Without `stash`, all passes use the newest weights."""
        optimizer = Optimizer(optimizer)
        weights = {name: value.astype(np.float64) for name, value in weights.items()}
        losses = []
        for step in range(steps):
            samples = order(len(self.x), 0, step)
            versions = [[{name: weights[name] for name in stage}] for stage in stages]
            total = 0
            for k in range(MICROBATCHES):
                own = samples[k * SAMPLES:(k + 1) * SAMPLES]
                mixed = {}
                for d, stage in enumerate(versions):
                    kept = min(MICROBATCHES, len(stages) - d) if stash else 1
                    mixed |= stage[max(0, k - kept + 1)]
                loss, found = gradients(mixed, self.x[own].astype(np.float64), self.labels[own])
                total += loss
                for stage in versions:
                    stage.append({name: optimizer.update(name, value, found[name],
                                                         step * MICROBATCHES + k + 1)
                                  for name, value in stage[-1].items()})
            losses.append(total / MICROBATCHES)
            for stage in versions:
                weights |= stage[-1]
        return losses, weights

    def test_numbers(self):
        _, initial, _ = self.train("initial", 1, "train.optimizer=sgd", "train.lr=0")
        for number, (optimizer, settings) in enumerate((
                ("sgd", ["mesh.pipeline=2"]), ("adamw", ["mesh.pipeline=4"]),
                ("adamw", ["mesh.pipeline=2", "mesh.data=2", "parallel.data.zero=1"]),
                ("sgd", ["mesh.pipeline=2", "mesh.data=2", "parallel.data.zero=3"]))):
            with self.subTest(settings=settings):
                settings = [*settings, "parallel.pipeline.schedule=pipedream-async"]
                stages = self.stages(*settings)
                self.assertEqual(sorted(sum(stages, [])), sorted(initial))
                log, weights, _ = self.train(
                    f"run{number}", 3, *settings, f"train.optimizer={optimizer}",
                    f"train.lr={Optimizer.RATES[optimizer]}")
                losses, expected = self.simulate(initial, stages, optimizer, 3)
                np.testing.assert_allclose(log, losses, rtol=1e-4)
                for name, value in expected.items():
                    np.testing.assert_allclose(weights[name], value, rtol=1e-3, atol=2e-5,
                                               err_msg=name)
                # Stale weights make a difference; otherwise this test could not detect new ones.
                plain, _ = self.simulate(initial, stages, optimizer, 3, stash=False)
                self.assertGreater(np.abs(np.subtract(plain, losses)).max(), 1e-3)

    def test_language_model(self):
        """Data and tensor ranks do not change the results, as the stages are the same."""
        model = generate(self.folder / "llama.onnx", family="llama", layers=2, hidden=16, heads=4,
                         vocab=256, positions=16, kv_heads=2, intermediate=24)
        text = self.folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
        losses = []
        for axes in ([], ["mesh.data=2", "mesh.tensor=2", "parallel.data.zero=2"]):
            out = self.folder / f"llama{len(axes)}"
            support.succeed(support.CLEAVE, "train", *model, "--data", text, "--out", out,
                            "--steps", 3, *self.flags(
                                "dims.batch=10", "dims.sequence=16", "train.schedule=constant",
                                "train.lr=0.003", "mesh.pipeline=2",
                                "parallel.pipeline.schedule=pipedream-async", *axes))
            losses.append([line["loss"] for line in support.read_log(out)])
        np.testing.assert_allclose(*losses, rtol=1e-5)

    def test_resumes(self):
        settings = ("mesh.pipeline=2", "parallel.pipeline.schedule=pipedream-async",
                    "train.lr=0.05")
        _, whole, said = self.train("whole", 4, *settings)
        self.assertIn("changes the mathematics", said)
        self.assertIn("up to 1 updates old", said)
        self.train("half", 2, *settings)
        _, resumed, said = self.train("rest", 4, *settings, flags=(
            "--resume", self.folder / "half" / "checkpoint-000002"))
        self.assertIn("changes the mathematics", said)  # also for a cached program
        for name, value in whole.items():
            np.testing.assert_array_equal(resumed[name], value, err_msg=name)

    def test_resumed_by_another_schedule(self):
        """After a resume the optimizer continues with its counts of updates."""
        settings = ("mesh.pipeline=2", "train.optimizer=adamw", "train.schedule=constant")
        stashing = (*settings, "parallel.pipeline.schedule=pipedream-async")
        self.train("stashed", 1, *stashing)
        saved = self.folder / "stashed" / "checkpoint-000001"

        def counts(checkpoint):
            state = support.read_safetensors(checkpoint / "optimizer.safetensors")
            return {int(value) for name, value in state.items() if name.endswith(".step")}

        self.assertEqual(counts(saved), {MICROBATCHES})
        self.train("plain", 2, *settings, "parallel.pipeline.schedule=1f1b", flags=("--resume", saved))
        self.assertEqual(counts(self.folder / "plain" / "checkpoint-000002"), {MICROBATCHES + 1})
        more = self.folder / "more.toml"
        more.write_text('[parallel]\npipeline = { schedule = "1f1b" }\n')
        with self.assertRaisesRegex(AssertionError, "would not go on as the same run: "
                                    'parallel.pipeline.schedule = "1f1b"'):
            self.train("refused", 2, flags=("--resume", saved, "--config", more))

    def test_a_stop_for_nan_says_that_the_state_is_lost(self):
        x = self.x.copy()
        x[3, 1] = np.nan
        data = self.folder / "nan.npz"
        np.savez(data, x=x, labels=np.load(self.folder / "data.npz")["labels"])
        done = support.run(
            support.CLEAVE, "train", self.model, "--data", data, "--out", self.folder / "nan", "--steps", 2,
            "--cache", self.folder / "cache",
            *self.flags("data.labels=labels", "data.validation=0", "train.schedule=constant", "mesh.pipeline=2",
                        "parallel.pipeline.schedule=pipedream-async"))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("step 1: the loss is not finite", done.stderr)
        self.assertIn("the schedule updates after each microbatch, so that the state before this step is lost; "
                      "no checkpoint was saved", done.stderr)
        self.assertEqual([p.name for p in (self.folder / "nan").glob("checkpoint*")], [])

    def test_memory(self):
        """Rank d stores min(m, p - d) versions, one of them the parameters themselves."""
        plain = self.explain("1f1b")
        stashed = self.explain("pipedream-async")
        for d, (one, other) in enumerate(zip(plain, stashed)):
            with self.subTest(rank=d):
                versions = min(MICROBATCHES, 4 - d)
                more = [entry["bytes"] for entry in other["at_peak"]
                        if entry["tensor"].startswith("versions.")]
                # Parameters are aligned to 64 bytes.
                aligned = sum((entry["bytes"] + 63) // 64 * 64 for entry in one["at_peak"]
                              if entry["kind"] == "parameter")
                self.assertEqual(sum(more), (versions - 1) * aligned)
                self.assertEqual(other["memory"]["parameters"],
                                 one["memory"]["parameters"] + sum(more))
                self.assertEqual(sum(entry["bytes"] for entry in other["at_peak"]),
                                 other["memory"]["peak"])

    def explain(self, schedule):
        return json.loads(support.succeed(
            support.CLEAVE, "explain", self.model, "--json", *self.flags(
                "mesh.pipeline=4", f"parallel.pipeline.schedule={schedule}")))["per_rank"]

    def test_refusals(self):
        model = generate(self.folder / "gpt2.onnx", family="gpt2", layers=2, hidden=16, heads=4,
                         vocab=19, positions=16)
        tied = [*model, "--set", "dims.batch=2", "--set", "dims.sequence=8"]
        for words, command, settings in (
                ("one rank is no reference", ["check", self.model], []),
                ("set train.clip_norm = 0", ["explain", self.model], ["train.clip_norm=1.0"]),
                ("train.on_nan", ["explain", self.model], ["train.on_nan=skip"]),
                ("'transformer.wte.weight' is shared by stages", ["explain", *tied],
                 ["train.microbatches=2"])):
            with self.subTest(words=words):
                done = support.run(support.CLEAVE, *command, *self.flags(
                    "mesh.pipeline=2", "parallel.pipeline.schedule=pipedream-async", *settings))
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("error:"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
