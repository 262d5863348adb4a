"""Models with loops against PyTorch: gradients of the mean loss in double precision, and the losses of five steps of SGD.

The exporter reorders and joins PyTorch's weights of a recurrent layer. The gradients are compared in PyTorch's order: a
tensor of the file is found by its elements."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnx.numpy_helper
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLEAVE = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", ROOT / "build")) / "bin" / "cleave"
sys.path.insert(0, str(ROOT / "tools" / "lib"))

import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

BATCH, SEQUENCE, WORDS, HIDDEN, STEPS, LR = 4, 7, 11, 8, 5, 0.5
# PyTorch's order of gates, as blocks of the file's order.
ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}


class LanguageModel(torch.nn.Module):
    """Two layers of LSTM between an embedding and a head."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 6)
        self.layers = torch.nn.LSTM(6, HIDDEN, 2, batch_first=True)
        self.head = torch.nn.Linear(HIDDEN, WORDS)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids))[0])


class Encoder(torch.nn.Module):
    """A bidirectional GRU over sequences of different lengths; the sum of its outputs is classified."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 6)
        self.layers = torch.nn.GRU(6, HIDDEN, 1, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(2 * HIDDEN, 3)

    def forward(self, ids, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True)
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        return self.head(padded.sum(dim=1))


class StateSpace(torch.nn.Module):
    """h[t] = h[t - 1] * exp(-exp(a)) + x[t] B, y[t] = h[t] C + x[t] d."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(HIDDEN))
        self.b = torch.nn.Parameter(torch.randn(6, HIDDEN) / 3)
        self.c = torch.nn.Parameter(torch.randn(HIDDEN, 6) / 3)
        self.d = torch.nn.Parameter(torch.randn(6))

    def forward(self, x):
        h, ys = torch.zeros(x.shape[0], HIDDEN, dtype=x.dtype), []
        for t in range(x.shape[1]):
            h = h * torch.exp(-torch.exp(self.a)) + x[:, t] @ self.b
            ys.append(h @ self.c + x[:, t] * self.d)
        return torch.stack(ys, dim=1)

    def save(self, path):
        """The same model as a Scan over dimension 1."""
        f32 = np.float32
        body = onnxbuild.Builder("step")
        body.input("h", f32, ["batch", HIDDEN])
        body.input("x", f32, ["batch", 6])
        h = body.op("Add", body.op("Mul", "h", "decay", out="kept"), body.op("MatMul", "x", "b", out="new"), out="h_out")
        y = body.op("Add", body.op("MatMul", h, "c", out="read"), body.op("Mul", "x", "d", out="passed"), out="y_out")
        body.output(h, f32, ["batch", HIDDEN])
        body.output(y, f32, ["batch", 6])
        b = onnxbuild.Builder()
        x = b.input("x", f32, ["batch", SEQUENCE, 6])
        for name, value in self.named_parameters():
            b.parameter(name, value.detach().numpy().astype(f32))
        b.op("Exp", b.op("Neg", b.op("Exp", "a")), out="decay")
        size = b.op("Gather", b.op("Shape", x), b.constant([0]), axis=0)
        shape = b.op("Concat", size, b.constant([HIDDEN]), axis=0)
        zeros = b.op("ConstantOfShape", shape)
        _, ys = b.op("Scan", zeros, x, outputs=2, num_scan_inputs=1, body=body, scan_input_axes=[1],
                     scan_output_axes=[1])
        b.output(b.op("Identity", ys, out="y"), f32, ["batch", SEQUENCE, 6])
        onnxwire.save(b.model(18), path)


def file_tensors(model, take):
    """The arrays `take(parameter)` of a model, as the exporter stores them."""
    parameters = dict(model.named_parameters())
    arrays = []
    layer = getattr(model, "layers", None)
    if layer is not None:
        order = ORDER[type(layer).__name__]

        def in_file_order(name):
            blocks = np.split(take(parameters.pop("layers." + name)), len(order))
            return np.concatenate([blocks[block] for block in order])

        for number in range(layer.num_layers):
            ends = [f"_l{number}", f"_l{number}_reverse"][:2 if layer.bidirectional else 1]
            arrays += [np.stack([in_file_order(kind + end) for end in ends]) for kind in ("weight_ih", "weight_hh")]
            arrays.append(np.stack([np.concatenate([in_file_order("bias_ih" + end), in_file_order("bias_hh" + end)])
                                    for end in ends]))
    return arrays + [take(parameter) for parameter in parameters.values()]


def run(*arguments):
    done = subprocess.run([CLEAVE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"cleave {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


class RecurrentModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        torch.manual_seed(0)
        self.rng = np.random.default_rng(0)

    def export(self, model, inputs):
        """Writes the model, with a dynamic batch, and returns the path."""
        path = self.folder / "m.onnx"
        if hasattr(model, "save"):
            model.save(path)
            return path
        names = list(inputs)
        torch.onnx.export(model, tuple(torch.tensor(inputs[name]) for name in names), path, input_names=names,
                          output_names=["y"], opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "batch"} for name in [*names, "y"]})
        return path

    def compare(self, model, inputs, labels, loss, flags=()):
        """`loss(outputs, labels)` is the mean loss that `flags` select."""
        path = self.export(model, inputs)
        data = self.folder / "data.npz"
        np.savez(data, **inputs, labels=labels)
        flags = [*flags, "--set", f"dims.batch={BATCH}", "--set", "data.labels=labels", "--set", "train.optimizer=sgd",
                 "--set", f"train.lr={LR}", "--set", "train.momentum=0", "--set", "train.weight_decay=0",
                 "--set", "train.clip_norm=0", "--set", "train.schedule=constant"]
        self.gradients(model, path, data, inputs, labels, loss, flags)
        want = self.losses(model, inputs, labels, loss)
        for mesh in ([], ["--set", "mesh.data=2"], ["--set", "mesh.data=2", "--set", "parallel.data.zero=3"],
                     ["--set", "mesh.tensor=2"]):
            with self.subTest(mesh=mesh):
                out = self.folder / f"run{len(mesh)}{mesh[-1] if mesh else ''}"
                run("train", path, *flags, *mesh, "--set", "data.validation=0", "--data", data, "--steps", STEPS,
                    "--out", out)
                log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
                found = [line["loss"] for line in log if "loss" in line]
                np.testing.assert_allclose(found, want, rtol=2e-5)

    def gradients(self, model, path, data, inputs, labels, loss, flags):
        out = self.folder / "gradients.npz"
        run("check", path, *flags, "--inputs", data, "--gradients", out)
        found = np.load(out)
        stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
        twin = type(model)().double()
        twin.load_state_dict(model.state_dict())
        loss(twin(*(self.tensor(array) for array in inputs.values())), torch.tensor(labels)).backward()
        values = file_tensors(twin, lambda parameter: parameter.detach().numpy())
        gradients = file_tensors(twin, lambda parameter: parameter.grad.numpy())
        for value, gradient in zip(values, gradients):
            matches = [(name, is_moved) for name, array in stored.items() for is_moved in (False, True)
                       if (array.T if is_moved else array).shape == value.shape
                       and np.allclose(array.T if is_moved else array, value, rtol=1e-6, atol=0)]
            self.assertTrue(matches, value.shape)
            name, is_moved = matches[0]
            have = found["grad/" + name]
            have = have.T if is_moved else have
            scale = np.abs(gradient).max()
            self.assertLess(np.abs(have - gradient).max(), 1e-6 * scale, name)

    @staticmethod
    def tensor(array):
        return torch.tensor(array, dtype=torch.float64) if array.dtype.kind == "f" else torch.tensor(array)

    @staticmethod
    def losses(model, inputs, labels, loss):
        twin = type(model)()
        twin.load_state_dict(model.state_dict())
        optimizer = torch.optim.SGD(twin.parameters(), lr=LR)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            value = loss(twin(*(torch.tensor(array) for array in inputs.values())), torch.tensor(labels))
            value.backward()
            optimizer.step()
            losses.append(value.item())
        return losses

    def test_language_model(self):
        ids = self.rng.integers(0, WORDS, (BATCH, SEQUENCE))
        labels = self.rng.integers(0, WORDS, (BATCH, SEQUENCE))
        self.compare(LanguageModel(), {"ids": ids}, labels,
                     lambda y, t: torch.nn.functional.cross_entropy(y.flatten(0, 1), t.flatten()))

    def test_encoder_with_lengths(self):
        ids = self.rng.integers(0, WORDS, (BATCH, SEQUENCE))
        lengths = np.array([7, 5, 3, 1])  # longest first, as PyTorch packs them
        labels = self.rng.integers(0, 3, BATCH)
        self.compare(Encoder(), {"ids": ids, "lengths": lengths}, labels, torch.nn.functional.cross_entropy)

    def test_state_space(self):
        x = self.rng.normal(size=(BATCH, SEQUENCE, 6)).astype(np.float32)
        labels = self.rng.normal(size=(BATCH, SEQUENCE, 6)).astype(np.float32)
        self.compare(StateSpace(), {"x": x}, labels, lambda y, t: ((y - t) ** 2).mean(),
                     ["--set", "train.loss=mse"])


if __name__ == "__main__":
    unittest.main()
