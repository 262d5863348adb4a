"""What of a file trains: tensors of one element, buffers, ties and copies, merged tensors, and
weights that are stored in bf16 or f16. Random nets against training in NumPy (numpy_training.py),
and models that PyTorch exported against PyTorch (test/data/parameters/make.py)."""

import pathlib
import re
import tempfile
import unittest

import numpy as np

import numpy_training
import support
import onnxbuild
import onnxwire
from numpy_training import Net
from parameters_nets import Case
from support import CLEAVE

DATA = support.ROOT / "test" / "data" / "parameters"
PLAIN = {"data.validation": 0, "train.schedule": "constant", "train.momentum": 0.9, "train.clip_norm": 0.5}
SEEDS = range(500) if support.ALL else range(10)


def flags_of(sets):
    return [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]


def quoted(names):
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def error(found, right, largest=0.0):
    found, right = np.asarray(found, float), np.asarray(right, float)
    assert found.shape == right.shape, (found.shape, right.shape)
    return float(np.abs(found - right).max() / max(np.abs(right).max(), 1e-3 * largest, 1e-12))


class Parameters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def train(self, name, model, data, steps, sets, *more):
        """The losses, the weights after them, and what was said."""
        out = self.folder / name
        done = support.run(CLEAVE, "train", model, "--data", data, "--steps", steps, "--out", out, "--cache",
                           self.folder / "cache", *flags_of(PLAIN | sets), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [line["loss"] for line in support.read_log(out) if "loss" in line]
        return losses, support.read_safetensors(out / f"checkpoint-{steps:06}" / "model.safetensors"), done.stderr

    def test_random_nets(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                self.check(seed)

    def check(self, seed):
        case = Case(seed)
        output, size = case.output
        model, data = self.folder / f"{seed}.onnx", self.folder / f"{seed}.npz"
        output = case.net.save(model, output, [*case.shape, size])
        labels = case.labels()
        np.savez(data, labels=labels, **case.data)
        optimizer = "adamw" if seed % 3 == 1 else "sgd"
        lr = 0.01 if optimizer == "adamw" else 0.1
        sets = {"dims.batch": case.batch, "data.labels": "labels", "train.loss": case.loss, "train.lr": lr,
                "train.optimizer": optimizer, "train.eps": 1e-4}
        if len(case.shape) > 1:
            sets |= {"dims.sequence": 4}
        if case.frozen:
            sets |= {"train.frozen": quoted(case.frozen)}
        if case.untied:
            sets |= {"train.untie": quoted(case.untied)}
        if seed % 5 == 4:
            sets |= {"mesh.data": 2}
        losses, weights, said = self.train(f"run{seed}", model, data, 4, sets)
        right, after = case.net.train(output, labels, case.loss, 4, lr, optimizer, case.frozen)
        # Of numbers that cancel, rounding leaves less: what NumPy has in float32 says how much.
        single, rounded = case.net.train(output, labels, case.loss, 4, lr, optimizer, case.frozen,
                                         dtype=np.float32)
        bound = 1e-6 if optimizer == "sgd" else 5e-6
        self.assertLess(error(losses, right), bound + 4 * error(single, right))
        self.assertEqual(set(weights), set(after))
        for name, want in after.items():
            self.assertLess(error(weights[name], want, 1.0), bound + 4 * error(rounded[name], want, 1.0), name)
        for words, names in case.said.items():
            lines = [line for line in said.splitlines() if words in line]
            self.assertEqual(len(lines), len(names) if words.startswith("are") else bool(names), said)
            for name in names:
                self.assertIn(f"'{name}'", " ".join(lines))

    def exported(self, name, optimizer, right, **sets):
        """A model that PyTorch exported, and what PyTorch made of it."""
        stored = np.load(DATA / f"{right}.npz")
        data = self.folder / f"{right}-data.npz"
        np.savez(data, x=stored["x"], labels=stored["y"])
        want = stored[f"{optimizer}/loss"]
        losses, weights, said = self.train(
            f"{name}-{optimizer}-{len(sets)}", DATA / f"{name}.onnx", data, len(want),
            {"dims.batch": len(stored["x"]), "data.labels": "labels", "train.optimizer": optimizer,
             "train.weight_decay": 0.01 if optimizer == "adamw" else 0} | sets)
        bound = 1e-6 if optimizer == "sgd" else 5e-6
        self.assertLess(error(losses, want), bound, losses)
        for key in stored.files:
            if key.startswith(f"{optimizer}/w/"):
                tensor = key.removeprefix(f"{optimizer}/w/")
                self.assertLess(error(weights[tensor], stored[key], 1.0), bound, tensor)
        return said

    def test_as_pytorch(self):
        """A frozen copy, upcycled experts (also merged by the exporter), a regression head, image buffers."""
        buffers = '["image_mean", "image_std"]'
        for optimizer, lr in (("sgd", lambda x: x), ("adamw", lambda x: 0.01)):
            self.exported("frozen_copy", optimizer, "frozen_copy",
                          **{"train.frozen": '["reference[.].*"]', "train.lr": lr(0.1)})
            self.exported("experts", optimizer, "experts", **{"train.lr": lr(0.1)})
            said = self.exported("experts_merged", optimizer, "experts",
                                 **{"train.untie": '["experts[.]0[.].*"]', "train.lr": lr(0.1)})
            self.assertNotIn("several nodes", said)
            self.exported("regression", optimizer, "regression", **{"train.lr": lr(0.05), "train.loss": "mse"})
            said = self.exported("buffers", optimizer, "buffers",
                                 **{"train.frozen": buffers, "train.lr": lr(0.05)})
            self.assertNotIn("buffer", said)
            said = self.exported("buffers_noted", optimizer, "buffers", **{"train.lr": lr(0.05)})
            self.assertNotIn("buffer", said)

    def test_scalars_as_pytorch(self):
        """A temperature, a head of one output and GELU's numbers, as the exporter writes them in three ways."""
        for name in ("scalars", "scalars_noted", "scalars_merged"):
            for optimizer in ("sgd", "adamw"):
                said = self.exported(name, optimizer, "scalars", **{
                    "train.lr": 0.05 if optimizer == "sgd" else 0.01, "train.loss": "mse"})
                self.assertNotIn("taken for", said)
            ir = support.succeed(CLEAVE, "import", DATA / f"{name}.onnx", "--set", "dims.batch=12")
            self.assertIn("nn.gelu", ir, name)
            names = set(re.findall(r'nn.name = "([^"]*)", nn.role = #nn.role<parameter>', ir))
            stored = np.load(DATA / "scalars.npz").files
            self.assertEqual(names, {n.removeprefix("sgd/w/") for n in stored if n.startswith("sgd/w/")})

    def learned(self, name, **sets):
        """The net whose parameters begin as tables and masks, and what is said of it."""
        said = self.exported(name, "sgd", "learned", **{"train.lr": 0.2} | sets)
        out = next(self.folder.glob(f"{name}-sgd-{len(sets) + 1}/checkpoint-*/model.safetensors"))
        after, stored = support.read_safetensors(out), np.load(DATA / "learned.npz")
        self.assertEqual(set(after), {n.removeprefix("sgd/w/") for n in stored.files if n.startswith("sgd/w/")})
        # Beside -1000 the part that moves is small.
        self.assertLess(error(np.tril(after["mask"]), np.tril(stored["sgd/w/mask"]), 1.0), 1e-6)
        return said

    def test_learned_tables_as_pytorch(self):
        """The file says PARAMETER: sinusoids, lines, frequencies, slopes, masks and identities train."""
        said = self.learned("learned_noted")
        self.assertNotIn("taken for constants", said)
        self.assertRegex(said, "'line', 'mask' and 'sinusoids' are parameters, as the file says.*train.frozen = ")
        self.learned("learned_noted", **{"mesh.data": 2, "mesh.tensor": 2})

    def test_rules_are_said(self):
        """Without metadata, one line names what rules took for constants, and the key that it gives is right."""
        done = support.run(CLEAVE, "import", DATA / "learned.onnx", "--set", "dims.batch=8")
        lines = [line for line in done.stderr.splitlines() if "taken for constants" in line]
        self.assertEqual(len(lines), 1, done.stderr)
        for name, rule in (("slopes", "positions"), ("inv_freq", None), ("sinusoids", None), ("mask", None),
                           ("line", "table of positions"), ("gate", "positions"), ("first.weight", "positions")):
            (self.assertIn if rule else self.assertNotIn)(f"'{name}' ({rule}" if rule else f"'{name}'", lines[0])
        names = re.search(r"train.trainable = \[(.*?)\]", lines[0]).group(1)
        names += ', "inv_freq", "sinusoids", "mask"'
        self.assertNotIn("taken for constants", self.learned("learned", **{"train.trainable": f"[{names}]"}))
        frozen = re.search(r'"[.][*]", (.*?)\]', lines[0]).group(1)
        done = support.run(CLEAVE, "import", DATA / "learned.onnx", "--set", "dims.batch=8", "--set",
                           f"train.frozen=[{frozen}]")
        self.assertNotIn("taken for constants", done.stderr)

    def test_read_by_the_loss_alone(self):
        """A parameter that a penalty reads, and nothing else."""
        rng = np.random.default_rng(3)
        x, w, g = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (4, 3), (5, 2)))
        b = onnxbuild.Builder()
        b.input("x", np.float32, ["batch", 4])
        for name, array in (("w", w), ("g", g)):
            b.parameter(name, array)
            b.values.append(onnxbuild.value_info(name, np.float32, array.shape, {
                "pkg.torch.export.graph_signature.InputSpec.kind": "PARAMETER"}))
        two, axes = b.constant(2, np.float32), b.constant([0, 1])
        y = b.op("ReduceMean", b.op("Pow", b.op("MatMul", "x", "w"), two), axes, keepdims=0)
        b.op("Add", y, b.op("ReduceSum", b.op("Pow", "g", two), axes, keepdims=0), out="loss")
        b.output("loss", np.float32, [])
        model, data = self.folder / "penalty.onnx", self.folder / "penalty.npz"
        model.write_bytes(b.model(18).bytes())
        np.savez(data, x=x)
        losses, weights, _ = self.train("penalty", model, data, 3, {
            "dims.batch": 6, "train.loss": "output:loss", "train.optimizer": "sgd", "train.lr": 0.1,
            "train.momentum": 0, "train.clip_norm": 0, "train.weight_decay": 0})
        w, g, right = w.astype(float), g.astype(float), []
        for _ in range(3):
            y = x @ w
            right.append((y ** 2).mean() + (g ** 2).sum())
            w, g = w - 0.2 * x.T @ y / y.size, g * 0.8
        self.assertLess(error(losses, right), 1e-6)
        self.assertLess(error(weights["w"], w), 1e-6)
        self.assertLess(error(weights["g"], g), 1e-6)

    def imported(self, net, name, *sets):
        """The parameters, and what is said, of a file and keys."""
        model = self.folder / f"{name}.onnx"
        if not model.exists():
            net.save(model, net.list[-1][2], ["batch", net.width])
        flags = [word for text in ("dims.batch=2", *sets) for word in ("--set", text)]
        done = support.run(CLEAVE, "import", model, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return set(re.findall(r'nn.name = "([^"]*)", nn.role = #nn.role<parameter>', done.stdout)), done.stderr

    def test_numbers(self):
        """A Constant node of a shape says nothing of numbers; what is open is said, and advice can be pasted."""
        net = Net()
        net.width = 3
        x = net.op("MatMul", net.input("x", np.ones((2, 4)), ["batch", 4]), net.weight("w", np.ones((4, 3))))
        shape = net.b.op("Constant", value=np.array([-1, 3]))
        x = net.b.op("Reshape", x, shape)
        for name in ("temperature", "s(0)[1]+"):
            x = net.op("Div", x, net.weight(name, np.array(1.3)))
        net.op("Mul", x, net.weight("val_7", np.array(0.3)))
        names, said = self.imported(net, "numbers")
        self.assertEqual(names, {"w"})
        self.assertIn("'temperature' and 's(0)[1]+' have one element and are taken for numbers", said)
        advice = re.search(r"train.trainable = \[.*?\](?=$|;| )", said.splitlines()[0]).group()
        names, said = self.imported(net, "numbers", advice.replace(" = ", "=", 1))
        self.assertEqual(names, {"w", "temperature", "s(0)[1]+"})
        self.assertNotIn("taken for", said)

    def test_numbered_names(self):
        """A tensor of several elements that rules take for a constant is said, whatever it is called."""
        for name in ("q", "val_12", "onnx::Mul_33", "7", "const_fold_opt__3", "/layer/Constant_output_0"):
            with self.subTest(name=name):
                net = Net()
                net.width = 8
                x = net.op("MatMul", net.input("x", np.ones((2, 8)), ["batch", 8]), net.weight("w", np.ones((8, 8))))
                net.op("Add", x, net.op("Mul", net.weight(name, np.arange(8.0)), net.number(0.5)))
                kind = f"numbered-{'q7v'.find(name[0])}-{len(name)}"
                names, said = self.imported(net, kind)
                self.assertEqual(names, {"w"})
                self.assertIn(f"'{name}' (positions) is taken for constants", said)
                advice = re.search(r"train.trainable = \[.*?\](?=$|;| )", said).group()
                names, said = self.imported(net, kind, advice.replace(" = ", "=", 1))
                self.assertEqual(names, {"w", name})
                self.assertNotIn("taken for", said)
        # One element is what exporters number.
        net = Net()
        net.width = 8
        x = net.op("MatMul", net.input("x", np.ones((2, 8)), ["batch", 8]), net.weight("w", np.ones((8, 8))))
        net.op("Add", x, net.op("Mul", net.weight("val_12", np.ones(1)), net.number(0.5)))
        names, said = self.imported(net, "numbered-single")
        self.assertEqual(names, {"w"})
        self.assertNotIn("taken for", said)

    def test_pasted_advice(self):
        """Names with the characters of patterns: merged tensors, and numbers that are frozen."""
        net = Net()
        net.width = 4
        x = net.input("x", np.ones((2, 4)), ["batch", 4])
        x = net.op("MatMul", x, net.weight("w", np.ones((4, 4))))
        for _ in range(2):
            x = net.op("Tanh", net.op("Mul", x, net.weight("g[0](x)", np.ones(4)) if _ == 0 else "g[0](x)"))
        net.op("Add", x, net.weight("b*", np.ones(1)))
        names, said = self.imported(net, "pasted")
        self.assertEqual(names, {"w", "g[0](x)", "b*"})
        untie = re.search(r'train.untie = (\[".*?"\]) gives', said).group(1)
        freeze = re.search(r'train.frozen = (\[".*?"\])$', said, re.M).group(1)
        names, said = self.imported(net, "pasted", f"train.untie={untie}", f"train.frozen={freeze}")
        self.assertIn("g[0](x).use2", names)
        self.assertNotIn("warning", said)

    def test_parts_and_lookups(self):
        """Slices of a tensor stay parts of it; a table that two inputs index is one parameter."""
        net = Net()
        net.width = 3
        x = net.input("x", np.ones((2, 4)), ["batch", 4])
        net.weight("fused", np.arange(24.0).reshape(4, 6))
        parts = [net.b.op("Slice", "fused", net.b.constant([at]), net.b.constant([at + 3]), net.b.constant([1]))
                 for at in (0, 3)]
        h = net.op("Add", *(net.op("MatMul", x, part) for part in parts))
        net.weight("table", np.arange(15.0).reshape(5, 3) ** 2)
        for name in ("encoder", "decoder"):
            h = net.op("Add", h, net.op("Gather", "table", net.input(name, np.ones(2, int), ["batch"])))
        names, said = self.imported(net, "parts", 'train.untie=["fused"]')
        self.assertEqual(names, {"fused", "table"})
        self.assertNotIn("several nodes", said)
        self.assertRegex(said, "warning: [^ ]*parts.onnx: train.untie parts nothing of 'fused': its 2 uses are slices")

    def test_folded_parameters(self):
        """What an exporter computed from a parameter trains apart from it, which is said."""
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, ["batch", 4])
        weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
        h = b.op("MatMul", x, b.parameter("enc.weight", weight))
        for name in ("val_0", "val_1"):
            h = b.op("Tanh", b.op("MatMul", h, b.parameter(name, np.exp(weight).T * (1 + len(b.initializers)))))
        b.op("Identity", h, out="y")
        b.output("y", np.float32, ["batch", 4])
        for sources, words in (
                ({"val_0": "enc.weight"}, "a tensor from parameters ('val_0' of 'enc.weight'), which trains apart"),
                ({"val_0": "gone.weight"}, None), ({"val_0": "val_1"}, None),
                ({"val_0": "gone.weight", "val_1": "gone.weight"},
                 "2 tensors from parameters ('val_0' of 'gone.weight', 'val_1' of 'gone.weight'), which train apart")):
            model = b.model(18)
            for name, source in sources.items():
                model.graph.add(13, onnxbuild.value_info(
                    name, np.float32, (4, 4), {"pkg.onnxscript.optimizer.folded_from": f"['{source}']"}))
            onnxwire.save(model, self.folder / "folded.onnx")
            with self.subTest(sources=sources):
                done = support.run(CLEAVE, "import", self.folder / "folded.onnx", "--set", "dims.batch=2")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(words is not None, "the exporter computed" in done.stderr, done.stderr)
                self.assertIn(words or "", done.stderr)

    def test_padding_idx(self):
        """The row gets no gradient from its lookup, on every mesh; a lookup without it, and a tied head, train the row."""
        rng = np.random.default_rng(3)
        net = Net()
        ids = rng.integers(0, 7, (6, 5))
        ids[:, 0] = 2
        net.input("input_ids", ids, ["batch", "sequence"])
        for name, shape in (("table", (7, 4)), ("other", (7, 4)), ("head", (4, 7))):
            net.weight(name, rng.normal(size=shape))
        x = net.op("Add", net.embedding("table", "input_ids", 2), net.embedding("other", "input_ids", 0))
        x = net.op("Add", net.op("Tanh", x), net.op("Gather", "other", "input_ids"))
        output = net.save(self.folder / "padded.onnx", net.op("MatMul", x, "head"), ["batch", "sequence", 7])
        labels = rng.integers(0, 7, ids.shape)
        np.savez(self.folder / "padded.npz", input_ids=ids, labels=labels)
        losses, weights = net.train(output, labels, "cross_entropy", 4, 0.5, decay=0, momentum=0.9)
        np.testing.assert_array_equal(weights["table"][2], net.weights["table"][2])
        sets = {"dims.batch": 6, "dims.sequence": 5, "data.labels": "labels", "train.optimizer": "sgd", "train.lr": 0.5,
                "train.weight_decay": 0}
        for name, mesh in {"one": {}, "tensor": {"mesh.tensor": 2}, "uneven": {"mesh.tensor": 3, "mesh.data": 2},
                           "rows": {"mesh.axes": '["x"]', "mesh.x": 3, "shard": '[{match="table",dims=[["x"],[]]}]'},
                           "zero": {"mesh.data": 2, "parallel.data.zero": 3},
                           "pipeline": {"mesh.pipeline": 2, "train.microbatches": 3}}.items():
            with self.subTest(mesh=name):
                found = self.train(f"padded-{name}", self.folder / "padded.onnx", self.folder / "padded.npz", 4, sets | mesh)
                self.assertLess(error(found[0], losses), 1e-5)
                np.testing.assert_array_equal(found[1]["table"][2], net.weights["table"][2].astype(np.float32))
                for weight, right in weights.items():
                    self.assertLess(error(found[1][weight], right), 1e-5, weight)

    def test_identity_starts(self):
        """Neither an identity that layers begin as, nor ones, are the copy of a table of the same."""
        net = Net()
        net.width = 4
        net.weight("table", np.eye(4))
        x = net.op("Gather", "table", net.input("ids", np.ones(2, int), ["batch"]))
        for name in ("first", "second"):
            x = net.op("Tanh", net.op("MatMul", x, net.weight(name, np.eye(4))))
        names, said = self.imported(net, "identities")
        self.assertEqual(names, {"table", "first", "second"})
        self.assertNotIn("tied", said)

    def test_said_each_time(self):
        """Also where the program comes from the cache."""
        for name, words in (("buffers", '"image_mean", "image_std"'), ("experts_merged", "train.untie = [")):
            data = self.folder / f"{name}-each.npz"
            stored = np.load(DATA / f"{name}.npz")
            np.savez(data, x=stored["x"], labels=stored["y"])
            for turn in range(2):
                said = self.train(f"each-{name}-{turn}", DATA / f"{name}.onnx", data, 1,
                                  {"dims.batch": 12, "data.labels": "labels"})[2]
                lines = [line for line in said.splitlines() if words in line]
                self.assertEqual(len(lines), 1, said)
                self.assertTrue(lines[0].startswith("cleave: warning: "), said)

    def gpt(self, name, steps, **sets):
        """The losses of a GPT whose file has bf16 weights, and how far it travels."""
        stored = np.load(DATA / "bf16_gpt.npz")
        data = self.folder / "gpt.npz"
        np.savez(data, input_ids=stored["input_ids"], labels=stored["labels"])
        keys = {"dims.batch": 16, "dims.sequence": 19, "data.labels": "labels", "train.lr": 1e-3,
                "train.clip_norm": 0}
        losses, after, _ = self.train(name, DATA / "bf16_gpt.onnx", data, steps, keys | sets)
        before = numpy_training.bf16_initializers(DATA / "bf16_gpt.onnx")
        self.assertLessEqual(set(after), set(before))
        far = np.sqrt(sum(((after[k].astype(float) - before[k]) ** 2).sum() for k in after))
        return losses, far, stored

    def test_bf16_weights_have_f32_masters(self):
        """200 steps within a percent of f32, and at a rate of 1e-5 they travel as far."""
        steps = 200
        single, _, stored = self.gpt("single", steps)
        mixed = self.gpt("mixed", steps, **{"train.precision": "bf16"})[0]
        self.assertLess(error(single[:10], stored["f32/loss"][:10]), 2e-5)
        self.assertLess(abs(np.array(single) / stored["f32/loss"] - 1).max(), 0.01)
        self.assertLess(abs(np.array(mixed) / np.array(single) - 1).max(), 0.01)
        right = float(stored["f32_slow/distance"])
        for precision in support.some(("bf16", "fp32"), 1):
            far = self.gpt(f"slow-{precision}", steps,
                           **{"train.precision": precision, "train.lr": 1e-5})[1]
            self.assertLess(abs(far / right - 1), 0.02, precision)
        # As it would be without masters.
        self.assertLess(float(stored["no_masters_slow/distance"]), 0.2 * right)

    def test_commands_on_half_weights(self):
        """infer, check and explain; the f16 model computes what its numbers are in f32."""
        rng = np.random.default_rng(0)
        a, b, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (5, 3), (4, 6)))
        np.savez(self.folder / "x.npz", x=x)
        for kind in ("f16", "bf16"):
            net, stored = Net(stored=kind), numpy_training.STORED[kind]
            h = net.op("MatMul", net.input("x", x, ["batch", 6]), net.weight("a", a))
            y = net.op("MatMul", net.op("Tanh", h), net.weight("b", b))
            model = self.folder / f"{kind}.onnx"
            net.save(model, y, ["batch", 3])
            support.succeed(CLEAVE, "infer", model, "--inputs", self.folder / "x.npz", "--outputs",
                            self.folder / "y.npz", "--cache", self.folder / "cache")
            self.assertLess(error(np.load(self.folder / "y.npz")["y"], np.tanh(x @ stored(a)) @ stored(b)), 2e-6)
            batch = ["--set", "dims.batch=4", "--set", "train.loss=mse"]
            for precision in support.some(("fp32", "bf16")[::1 if kind == "bf16" else -1], 1):
                flags = [*batch, "--set", f"train.precision={precision}"]
                support.succeed(CLEAVE, "check", model, *flags, "--set", "mesh.tensor=2")
                self.assertIn("memory", support.succeed(CLEAVE, "explain", model, *flags))


if __name__ == "__main__":
    unittest.main()
