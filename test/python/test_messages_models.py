"""Messages about models, inputs, and what happens while a command runs."""

import pathlib
import random
import signal
import subprocess
import time
import unittest

import numpy as np

import support  # finds the others
import onnxbuild
import onnxwire
from messages import Messages, classifier, refused, CLEAVE


class Given(Messages):
    # Import

    def test_all_problems_at_once(self):
        refused(self.folder / "r.onnx")
        nodes = (r"63 nodes \(Loop9, opset 18\): the operator is not supported; .*: 'n0', 'n1', 'n2', \.\.\.",
                 r"node 'n63' \(Det, opset 18\): the operator is not supported")
        # Dimensions unbound, bound, and as a summary.
        said = self.error(r"r.onnx: cannot be imported \(65 places\):", "import", "r.onnx", lines=5)
        for line in (*nodes, "input 'x' has the unbound dimension 'N'; set dims.batch",
                     "1 node that depends on these was not looked at"):
            self.assertRegex(said, rf"(?m)^  {line}")
        for flags in ([], ["--set", "dims.batch=4"]):
            done = support.run(CLEAVE, "import", "r.onnx", "--summary", *flags, cwd=self.folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("  x  f32[N, 4]", done.stdout)
            for line in nodes:
                self.assertRegex(done.stderr, rf"(?m)^  {line}")
        # What the file tells of types lets others be looked at.
        refused(self.folder / "t.onnx", types=[[4, 4]])
        said = self.error(r"\(65 places\)", "import", "t.onnx", "--set", "dims.batch=4", lines=4)
        self.assertRegex(said, r"node 'n64' \(Pad, opset 18\): mode 'reflect' is not supported")
        # Another version of the operators hides nothing else, and is no reason by itself for each node.
        refused(self.folder / "old.onnx", opset=9)
        said = self.error(r"old.onnx: cannot be imported \(65 places\)", "import", "old.onnx", "--set",
                          "dims.batch=4", lines=4)
        self.assertRegex(said, r"  operator set 9: expected 11 to 25; convert it "
                               r"\(onnx.version_converter.convert_version\(model, 18\)\), or export it")
        self.assertRegex(said, r"63 nodes \(Loop9, opset 9\)")

    def test_tensors_that_cannot_be_used(self):
        """They hide neither each other nor anything else."""
        b = onnxbuild.Builder()
        y = b.input("x", np.float32, [2, 3])
        for i in range(5):
            y = b.op("Add", y, b.parameter(f"w{i}", np.ones(3, np.float32)))
        b.op("Det", y, out="y")
        b.output("y", np.float32, [])
        for tensor in b.initializers:
            tensor.fields = [field for field in tensor.fields if field[0] != 2]
            tensor.add(2, 15)  # complex128
        onnxwire.save(b.model(18), self.folder / "complex.onnx")
        for flags, lines in (([], 4), (["--summary"], 3)):  # the import counts nodes that it did not look at
            said = self.error(r"complex.onnx: cannot be imported \(2 places\):\n  5 tensors \('w0', 'w1', 'w2', \.\.\.\): "
                              r"its element type is .*, which is not supported\n  node 'n5' \(Det, opset 18\): ",
                              "import", "complex.onnx", *flags, lines=lines)

    def test_projections_of_lstm(self):
        """ONNX's LSTM has none, and PyTorch's exporter writes states of two widths."""
        b = onnxbuild.Builder()
        x = b.input("x", np.float32, [5, 2, 3])
        weights = (b.parameter(name, np.ones((1, 16, width), np.float32)) for name, width in (("w", 3), ("r", 4)))
        states = (b.parameter(name, np.ones((1, 2, width), np.float32)) for name, width in (("h", 4), ("c", 8)))
        b.op("LSTM", x, *weights, "", "", *states, out="y", hidden_size=4)
        b.output("y", np.float32, [5, 1, 2, 4])
        onnxwire.save(b.model(18), self.folder / "lstm.onnx")
        self.error(r"the initial state has shape \[1, 2, 8\], expected \[1, 2, 4\]; the LSTM may have a projection "
                   r"\(proj_size\), which ONNX's LSTM has not; ", "import", "lstm.onnx")

    def test_losses_that_are_not_supported(self):
        """What says the same is named."""
        b = onnxbuild.Builder()
        y, label = b.input("y", np.float32, ["batch", 5]), b.input("label", np.int64, ["batch"])
        b.op("SoftmaxCrossEntropyLoss", y, label, out="loss", reduction="mean")
        index = b.op("Unsqueeze", label, b.constant([1]))
        b.op("GatherElements", y, index, axis=1, out="picked")
        b.output("loss", np.float32, [])
        b.output("picked", np.float32, ["batch", 1])
        onnxwire.save(b.model(18), self.folder / "loss.onnx")
        said = self.error(r"cannot be imported \(2 places\):", "import", "loss.onnx", "--set", "dims.batch=4", lines=3)
        self.assertRegex(said, r"SoftmaxCrossEntropyLoss, opset 18\): the operator is not supported; export the model "
                               r"without its loss, and train with train.loss = \"cross_entropy\" and data.labels, or")
        self.assertRegex(said, r"GatherElements, .*; what picks one element of each row is also "
                               r"\(data \* one_hot\(index\)\).sum\(axis\)")

    def test_types_that_an_operator_does_not_take(self):
        b = onnxbuild.Builder()
        b.op("Erf", b.input("x", np.int64, [2, 3]), out="y")
        b.output("y", np.int64, [2, 3])
        onnxwire.save(b.model(13), self.folder / "types.onnx")
        said = self.error(r"types.onnx: node 'n0' \(Erf, opset 13\): .*i64", "import", "types.onnx")
        self.assertNotRegex(said, r"'\w+\.\w+' op|tensor<")

    def test_dimensions_of_size_minus_one(self):
        shape = onnxwire.Message()
        for size in (2**64 - 1, 4):
            shape.add(1, onnxwire.Message().add(1, size))
        b = onnxbuild.Builder()
        b.op("MatMul", "x", b.op("Constant", value=np.ones((4, 3), np.float32)), out="h")
        b.op("Add", "h", b.parameter("b", np.ones(3, np.float32)), out="y")
        b.output("y", np.float32, ["N", 3])
        tensor = onnxwire.Message().add(1, 1).add(2, shape)
        b.inputs = [onnxwire.ValueInfo().add(1, "x").add(2, onnxwire.Message().add(1, tensor))]
        onnxwire.save(b.model(13), self.folder / "minus.onnx")
        self.error("minus.onnx: input 'x' has the unbound dimension 'batch'; set dims.batch",
                   "import", "minus.onnx")
        text = support.succeed(CLEAVE, "import", "minus.onnx", "--set", "dims.batch=5", cwd=self.folder)
        self.assertIn("tensor<5x4xf32>", text)
        self.says(0, *self.infer("minus.onnx", "x.npz"))
        np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"],
                                   np.load(self.folder / "x.npz")["x"].sum(1, keepdims=True)
                                   @ np.ones((1, 3)) + 1, rtol=1e-5, atol=1e-5)

    def test_a_cache_is_no_table_of_positions(self):
        """A mask of past and present positions beside scores of the present alone: no word of
        dims.sequence, which is right."""
        b = onnxbuild.Builder()
        ids = b.input("ids", np.int64, ["B", "S"])
        table = b.parameter("wpe", np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
        h = b.op("Gather", b.parameter("wte", np.ones((9, 4), np.float32)), ids)
        h = b.op("Add", h, b.op("Slice", table, b.constant([0]), b.constant([4]), b.constant([0])))
        b.op("Add", b.op("Concat", b.input("past", np.float32, ["B", 3, 4]), h, axis=1),
             b.op("Slice", table, b.constant([0]), b.constant([4]), b.constant([0])), out="y")
        b.output("y", np.float32, ["B", 7, 4])
        onnxwire.save(b.model(18), self.folder / "cache.onnx")
        said = self.error("cache.onnx: node ", "import", "cache.onnx", *self.keys(dims__batch=2, dims__sequence=4))
        self.assertIn("shapes [2, 7, 4] and [4, 4] do not broadcast\n", said)

    # Inputs

    def infer(self, model, arrays, *flags):
        return ["infer", model, "--inputs", arrays, "--outputs", "out.npz", *flags]

    def test_inputs_that_nothing_reads(self):
        classifier(self.folder / "unread.onnx", extra=None)
        samples = np.load(self.folder / "x.npz")["x"]
        np.savez(self.folder / "extra.npz", x=samples, extra=np.ones((20, 3), np.float32))
        said = "warning: unread.onnx: input 'extra' is read by no node, so that what is given for it " \
               "changes nothing"
        # The second time it comes from the cache.
        for flags in ([], [], ["--set", "data.inputs.extra=extra"]):
            self.assertIn(said, self.says(0, *self.infer("unread.onnx", "extra.npz", *flags)))
            np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"],
                                       samples @ np.arange(12).reshape(4, 3), rtol=1e-5, atol=1e-5)
        # A check takes it, too, in any shape; with random values it is none.
        flags = ["--set", "train.loss=mse", "--against", "interpreter"]
        np.savez(self.folder / "extra.npz", x=samples, extra=np.ones((20, 3), np.float32), labels=samples[:, :3])
        self.assertIn(said, self.says(0, "check", "unread.onnx", "--inputs", "extra.npz", *flags))
        np.savez(self.folder / "wrong.npz", x=samples[:, :3], extra=np.ones((20, 3), np.float32))
        self.error("wrong.npz, array 'x': ", "check", "unread.onnx", "--inputs", "wrong.npz", *flags, lines=2)
        np.savez(self.folder / "other.npz", x=samples, nothing=samples)
        self.error("other.npz: array 'nothing' is no input of the model",
                   *self.infer("unread.onnx", "other.npz"))

    def test_inputs_of_one_fault_are_one_line(self):
        classifier(self.folder / "many.onnx", a=(np.float32, ["s77", "k"]), b=(np.float32, ["s77", "k"]))
        said = self.error(r"many.onnx: cannot be imported \(3 places\):", "import", "many.onnx", lines=3)
        self.assertRegex(said, r"(?m)^  input 'x' has the unbound dimension 's77'")
        self.assertRegex(said, r"(?m)^  each of 2 inputs \('a', 'b'\) has the unbound dimensions 's77', 'k'; set ")
        self.error(r"many.onnx: each of 2 inputs \('a', 'b'\) has the unbound dimension 'k'; set dims.k",
                   "import", "many.onnx", "--set", "dims.batch=4")

    def test_bound_inputs(self):
        classifier(self.folder / "b.onnx", t=(np.float32, []), k=(np.int64, [1]), z=(np.float32, ["s77", 3]))
        samples = np.load(self.folder / "x.npz")["x"]
        for name, array in (("k", np.array([5])), ("kf", np.array([5.0])), ("k2", np.array([5, 6])),
                            ("z", np.ones((20, 3)))):
            np.save(self.folder / f"{name}.npy", array)
        right = samples @ np.arange(12).reshape(4, 3) + 0.5 + 5
        for binds, z in ((["t=0.5", "k=5", "z=2"], 2), (["t=5e-1", "k=k.npy", "z=z.npy"], 1)):
            flags = [word for bind in binds for word in ("--bind", bind)]
            self.says(0, *self.infer("b.onnx", "x.npz", *flags))
            np.testing.assert_allclose(np.load(self.folder / "out.npz")["y"], right + z, rtol=1e-5)
        batch = ["--set", "dims.batch=20", "--set", "data.labels=label"]
        bound = ["--bind", "t=0.5", "--bind", "k=5", "--bind", "z=2"]
        for command in (["import", "b.onnx", "-o", "o"], ["compile", "b.onnx", "-o", "folder"],
                        ["explain", "b.onnx"], ["check", "b.onnx", "--interpret"],
                        self.train("b.onnx", "--data", "label.npz", "--set", "data.validation=0")):
            self.says(0, *command, *bound, *batch)
        self.assertRegex((self.folder / f"run{self.count}" / "config.toml").read_text(),
                         r'bind = \{ k = "5", t = "0.5", z = "2" \}')
        for bind, said in {
            "nope=3": "b.onnx: has no input 'nope' (--bind nope=3); its inputs are 'x', 't', 'k', 'z'",
            "k=5.5": "input 'k' is bound to 5.5 (--bind), but has type i64[1]",
            "k=kf.npy": "input 'k' is bound to kf.npy of f64[1] (--bind), but has type i64[1]",
            "k=k2.npy": "input 'k' is bound to k2.npy of i64[2] (--bind), but has type i64[1]",
            "k=none.npy": "data.bind.k (--bind): none.npy: cannot be read: No such file or directory",
            "k=five": 'data.bind.k = "five": expected FILE.npy or a number',
            "k=": "--bind k=: expected NAME=FILE.npy or NAME=VALUE",
            "x=1": "x.npz: has an array 'x', an input that data.bind (--bind) gives one value",
        }.items():
            with self.subTest(bind=bind):
                others = bound if not bind.startswith("k=") else bound[:2] + bound[4:]
                done = self.says(2, *self.infer("b.onnx", "x.npz", *others, "--bind", bind))
                self.assertIn(said, done)
                self.assertEqual(done.count("\n"), 1, done)
        self.error("--bind k=6: --bind k=5 gives 'k' a value already; leave one out",
                   *self.infer("b.onnx", "x.npz", *bound, "--bind", "k=6"))
        self.error("data.bind.k (--bind) gives the input 'k' one value, but data.inputs.k says that it is read "
                   "from data".replace("(", r"\(").replace(")", r"\)"),
                   *self.infer("b.onnx", "x.npz", *bound, "--set", "data.inputs.k=k"))
        support.succeed(CLEAVE, "import", "c.onnx", "--set", "dims.batch=2", "-o", "c.mlir", cwd=self.folder)
        self.error(r"data.bind.t \(--bind\): binds inputs of ONNX models", "explain", "c.mlir", "--bind", "t=1")

    # While it runs

    def test_processes_are_called_as_the_user_called_them(self):
        out = self.folder / "long"
        words = ["train", *self.model, "--data", "text.txt", "--steps", "1000000", "--out", "long",
                 "--set", "mesh.data=2", "--cache", "cache"]
        process = subprocess.Popen([CLEAVE, *words], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=support.environment())
        try:
            end = time.monotonic() + 300
            while not (out / "log.jsonl").exists() or not (out / "log.jsonl").stat().st_size:
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            own = pathlib.Path("/proc") / str(process.pid)
            self.assertEqual((own / "comm").read_text(), "cleave\n")
            given = (own / "cmdline").read_bytes().decode().split("\0")[:-1]
            self.assertEqual(given, ["cleave", *words])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)
        self.assertEqual(process.returncode, 0)

    def test_times_below_zero(self):
        for mesh in ([], ["mesh.data=2"], ["mesh.data=2", "target.overlap=false"], ["mesh.tensor=2"], ["mesh.pipeline=2", "train.microbatches=2"]):
            text = support.succeed(CLEAVE, "explain", *self.model,
                                   *[word for key in mesh for word in ("--set", key)], cwd=self.folder)
            if mesh == ["mesh.data=2"]:
                self.assertIn(" ms and communicates for ", text)
            self.assertNotRegex(text, r" -\S* ms")

    def test_printed_operations(self):
        self.says(0, "compile", *self.model, "--set", "mesh.tensor=2", "--set", "mesh.data=2", "--emit", "shard",
                  "-o", "sharded.mlir")
        text = (self.folder / "sharded.mlir").read_text()
        self.assertRegex(text, r"dist\.all_reduce sum %\w+ over @mesh \{\"tensor\"\} purpose activation")
        for line in text.splitlines():
            self.assertNotIn("  ", line.strip())




if __name__ == "__main__":
    unittest.main()
