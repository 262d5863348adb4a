"""Which tensors of a file are trained: tensors of one element, buffers, ties and copies, merged
tensors, and weights stored in bf16 or f16. Random nets against training in NumPy
(numpy_training.py), and models exported by PyTorch against PyTorch (test/data/parameters/make.py)."""

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


class Case:
    """A net drawn from a seed, and the expected warnings."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.net = Net(stored=("f32", "bf16", "f32", "f16")[seed % 4])
        self.frozen, self.untied, self.count = [], [], 0
        # Parts of warnings that must appear, or must not.
        self.said = {"to keep": [], "are tied, one parameter": [], "by several nodes": []}
        self.batch = 2 * int(self.rng.integers(3, 6))
        h, self.width = self.tokens() if seed % 2 else self.dense()
        for kind in self.rng.permutation(["experts", "copy", "single", "identity", "merged"])[:3]:
            h = getattr(self, kind)(h)
        self.output = self.head(h, seed)

    def draw(self, *shape):
        return (self.rng.standard_normal(shape) * 0.5).astype(np.float32)

    def weight(self, *shape, name="w"):
        self.count += 1
        return self.net.weight(f"{name}.{self.count}", self.draw(*shape))

    def dense(self):
        """Normalises by buffers that may be frozen, or by shift and scale parameters."""
        n, k = self.rng.integers(3, 7, 2)
        self.data = {"x": self.draw(self.batch, n)}
        x = self.net.input("x", self.data["x"], ["batch", int(n)])
        if self.rng.random() < 0.7:
            mean = self.net.weight("mean", self.draw(n))
            std = self.net.weight("std", np.abs(self.draw(1, n)) + 1)
            x = self.net.op("Div", self.net.op("Sub", x, mean), std)
            if self.rng.random() < 0.5:
                self.frozen += ["mean", "std"]
            else:
                self.said["to keep"] = ["mean", "std"]
        self.shape = ["batch"]
        return self.net.op("Tanh", self.net.op("Gemm", x, self.weight(n, k),
                                               self.weight(k))), int(k)

    def tokens(self):
        """An embedding table with a head, tied or not; possibly next to a frozen copy of both."""
        vocabulary, k = self.rng.integers(5, 9), self.rng.integers(3, 6)
        self.table = self.draw(vocabulary, k)
        self.data = {"ids": self.rng.integers(0, vocabulary, (self.batch, 4))}
        self.ids = self.net.input("ids", self.data["ids"], ["batch", "sequence"])
        self.net.weight("table", self.table)
        self.shape = ["batch", "sequence"]
        return self.net.op("Gather", "table", self.ids), int(k)

    def experts(self, h):
        """Copies of one layer, weighted by a router."""
        start = self.draw(self.width, self.width)
        self.count += 1
        total = h
        for i in range(int(self.rng.integers(2, 4))):
            layer = self.net.weight(f"experts.{self.count}.{i}", start)
            gate = self.net.op("Tanh", self.net.op("MatMul", h, self.weight(self.width, 1)))
            total = self.net.op("Add", total, self.net.op("Mul", gate, self.net.op("MatMul", h, layer)))
        return total

    def copy(self, h):
        start = self.draw(self.width, self.width)
        policy = self.net.op("MatMul", h, self.net.weight("policy", start))
        reference = self.net.op("MatMul", h, self.net.weight("reference", start))
        self.frozen.append("reference")
        return self.net.op("Sub", policy, self.net.op("Mul", reference, self.net.number(0.3)))

    def single(self, h):
        """A temperature and a shift parameter; and a constant."""
        scale = self.net.weight("temperature", np.full((1,) * int(self.rng.integers(1, 3)), 1.3))
        h = self.net.op(self.rng.choice(["Mul", "Div"]), h, scale)
        h = self.net.op("Mul", h, self.net.number(0.9))
        return self.net.op(self.rng.choice(["Add", "Sub"]), h, self.net.weight("a.shift", np.array([0.2])))

    def identity(self, h):
        for i in range(2):
            h = self.net.op("Tanh", self.net.op("MatMul", h, self.net.weight(f"i.{i}", np.eye(self.width))))
        return h

    def merged(self, h):
        """One tensor for two gains, which are trained separately if untied."""
        gain = self.net.weight("gain", np.ones(self.width))
        apart = self.rng.random() < 0.5
        if apart:
            self.untied.append("gain")
            self.net.weights["gain.use2"] = self.net.weights["gain"].copy()
        else:
            self.said["by several nodes"] = ["gain"]
        h = self.net.op("Mul", h, gain)
        h = self.net.op("Tanh", self.net.op("MatMul", h, self.weight(self.width, self.width)))
        return self.net.op("Mul", h, gain, reads=(h, "gain.use2") if apart else None)

    def head(self, h, seed):
        if self.net.values.get("ids") is None:
            self.loss = "mse" if seed % 3 else "cross_entropy"
            size = 1 if self.loss == "mse" else 3
            return self.net.op("Gemm", h, self.weight(self.width, size), self.weight(size, name="bias")), size
        self.loss, size = "cross_entropy", len(self.table)
        if self.rng.random() < 0.3:  # a separate parameter, though equal at the start
            self.untied.append("head")
            self.net.weight("head", np.ascontiguousarray(self.net.weights["table"].T))
        else:
            self.net.tie("head", "table")
            self.said["are tied, one parameter"].append("head")
        y = self.net.op("MatMul", h, "head")
        if self.rng.random() < 0.5:
            self.net.weight("ref.table", self.table)
            self.net.tie("ref.head", "ref.table")
            self.said["are tied, one parameter"].append("ref.head")
            self.frozen += ["ref.table", "ref.head"]
            far = self.net.op("MatMul", self.net.op("Tanh", self.net.op("Gather", "ref.table", self.ids)),
                              "ref.head")
            y = self.net.op("Sub", y, self.net.op("Mul", far, self.net.number(0.3)))
        return y, size

    def labels(self):
        rows = (self.batch,) if self.loss == "mse" else self.data.get("ids", np.zeros(self.batch)).shape
        if self.loss == "mse":
            return self.draw(self.batch, 1)
        return self.rng.integers(0, self.output[1], rows)


class Parameters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def train(self, name, model, data, steps, sets, *more):
        """The losses, the weights after training, and the messages."""
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
        # Cancellation amplifies rounding errors: NumPy in float32 shows by how much.
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
        """Trains a model that PyTorch exported, and compares with PyTorch's results."""
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
        """A temperature, a head with one output and GELU's constants, exported in three ways."""
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
        """Trains the net whose parameters start as tables and masks; returns the messages."""
        said = self.exported(name, "sgd", "learned", **{"train.lr": 0.2} | sets)
        out = next(self.folder.glob(f"{name}-sgd-{len(sets) + 1}/checkpoint-*/model.safetensors"))
        after, stored = support.read_safetensors(out), np.load(DATA / "learned.npz")
        self.assertEqual(set(after), {n.removeprefix("sgd/w/") for n in stored.files if n.startswith("sgd/w/")})
        # The entries of -1000 are excluded: next to them the changes are small.
        self.assertLess(error(np.tril(after["mask"]), np.tril(stored["sgd/w/mask"]), 1.0), 1e-6)
        return said

    def test_learned_tables_as_pytorch(self):
        """Metadata marks them as PARAMETER, so sinusoids, ranges, frequencies, slopes, masks and identities train."""
        said = self.learned("learned_noted")
        self.assertNotIn("taken for constants", said)
        self.assertRegex(said, "'line', 'mask' and 'sinusoids' are parameters, as the file says.*train.frozen = ")
        self.learned("learned_noted", **{"mesh.data": 2, "mesh.tensor": 2})

    def test_rules_are_said(self):
        """Without metadata, one line lists tensors that rules treat as constants; the key it suggests works."""
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
        """A parameter that only a penalty in the loss reads."""
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
        """The parameters, and the messages, for a file and keys."""
        model = self.folder / f"{name}.onnx"
        if not model.exists():
            net.save(model, net.list[-1][2], ["batch", net.width])
        flags = [word for text in ("dims.batch=2", *sets) for word in ("--set", text)]
        done = support.run(CLEAVE, "import", model, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return set(re.findall(r'nn.name = "([^"]*)", nn.role = #nn.role<parameter>', done.stdout)), done.stderr

    def test_numbers(self):
        """A Constant node with a shape does not classify numbers; doubtful ones are listed, with usable advice."""
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
        """A tensor of several elements that rules treat as a constant is listed, whatever its name."""
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
        # Names that exporters number are not listed if they have one element.
        net = Net()
        net.width = 8
        x = net.op("MatMul", net.input("x", np.ones((2, 8)), ["batch", 8]), net.weight("w", np.ones((8, 8))))
        net.op("Add", x, net.op("Mul", net.weight("val_12", np.ones(1)), net.number(0.5)))
        names, said = self.imported(net, "numbered-single")
        self.assertEqual(names, {"w"})
        self.assertNotIn("taken for", said)

    def test_pasted_advice(self):
        """Names with pattern characters: merged tensors, and frozen constants."""
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
        """Slices of a tensor stay views of it; a table that two inputs index is one parameter."""
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
        """A tensor that the exporter computed from a parameter trains separately, and a warning says so."""
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

    def test_identity_starts(self):
        """Layers initialized as an identity, or as ones, are not taken for copies of an equal table."""
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
        """Warnings also appear if the program comes from the cache."""
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
        """The losses of a GPT whose file has bf16 weights, and the distance that its weights travel."""
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
        """200 steps are within one percent of f32, and with a rate of 1e-5 the weights travel as far."""
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
        # Without master weights they would travel much less.
        self.assertLess(float(stored["no_masters_slow/distance"]), 0.2 * right)

    def test_commands_on_half_weights(self):
        """infer, check and explain; the f16 model computes with its weights converted to f32."""
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
