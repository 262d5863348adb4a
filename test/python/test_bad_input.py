"""Bad models, configurations and ranks, given to the real commands."""

import random
import shutil
import socket
import time
import unittest

import numpy as np

import support  # finds the others
from bad_input import BadInput, SEQUENCE, COMMANDS, WITH_BYTES, make_model, model_with_inputs, unsupported, CLEAVE, RUN


class BadModels(BadInput):
    # Models

    def test_model_files(self):
        whole = (self.folder / "m.onnx").read_bytes()
        (self.folder / "cut.onnx").write_bytes(whole[:len(whole) // 2])
        (self.folder / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(5000))
        (self.folder / "text.onnx").write_text("# no model\n")
        (self.folder / "empty.onnx").write_bytes(b"")
        (self.folder / "ir.onnx").write_text("module {}\n")
        (self.folder / "folder.onnx").mkdir()
        for name, pattern in {
            "none": r"none.onnx: cannot be read: No such file or directory",
            "cut": r"cut.onnx: is not an ONNX model, or is truncated \(\d+ bytes\)",
            "noise": r"noise.onnx: is not an ONNX model, or is truncated",
            "text": r"text.onnx: is not an ONNX model, or is truncated \(11 bytes\)",
            "empty": r"empty.onnx: is empty, expected an ONNX model",
            "ir": r"ir.onnx: is not an ONNX model but MLIR text, whose file name must end in .mlir",
            "folder": r"folder.onnx: is a folder, expected",
        }.items():
            for command, flags in COMMANDS.items():
                self.refused(pattern, self.command(command, f"{name}.onnx", "--config",
                                                   "m.toml", *flags))

    def test_truncated_anywhere(self):
        whole = (self.folder / "m.onnx").read_bytes()
        for part in range(1, 40):
            (self.folder / "cut.onnx").write_bytes(whole[:len(whole) * part // 40])
            self.refused("cut.onnx: ", self.command("import", "cut.onnx", "-o", "new.mlir",
                                                    "--config", "m.toml"))

    def test_every_unsupported_node_is_listed(self):
        unsupported(self.folder / "u.onnx")
        np.savez(self.folder / "in.npz", x=np.zeros((2, 3), np.float32))
        for command, flags in COMMANDS.items():
            message = self.refused(r"u.onnx: cannot be imported \(5 places\):\n",
                                   self.command(command, "u.onnx", *flags))
            for line in (r"node 'n\d' \(Det, opset 18\): the operator is not supported",
                         r"node 'n\d' \(com.example.FlashThing, opset 0\): operators of domain",
                         r"node 'n\d' \(Gelu, opset 18\): supported from opset 20 to",
                         r"node 'n\d' \(Pad, opset 18\): mode 'reflect' is not supported, "
                         r"expected constant",
                         r"output 'z': its shape depends on data"):
                self.assertRegex(message, line)

    def test_external_data(self):
        make_model(self.folder / "e.onnx", external=True)
        data = self.folder / "e.onnx.data"
        whole = data.read_bytes()
        model = ["e.onnx", "--config", "e.toml"]
        self.accepted(self.command("train", *model, "--data", "text.txt", "--out", "first",
                                   "--steps", 1))  # a cached program changes nothing below
        for content, pattern in ((None, "No such file or directory"),
                                 (whole[:3000], "has 3000 bytes, expected at least")):
            data.unlink()
            if content is not None:
                data.write_bytes(content)
            for command, flags in COMMANDS.items():
                if command in WITH_BYTES:
                    self.refused(rf"e.onnx: lacks bytes of weights.*\n"
                                 rf"  tensor '.*': its external data 'e.onnx.data' .*{pattern}",
                                 self.command(command, *model, *flags))
                else:
                    said = self.accepted(self.command(command, *model, *flags))
                    self.assertRegex(said, rf"warning: e.onnx: lacks bytes of weights: .*{pattern}")
            if content is None:
                data.write_bytes(b"")
            # A compiled program says it when it runs.
            self.refused("(is too short|cannot be read)", [RUN, "new", "train", "--data",
                                                           "text.txt", "--out", "out"])
            shutil.rmtree(self.folder / "new")
            (self.folder / "new.mlir").unlink()

    def test_external_data_outside_the_folder(self):
        make_model(self.folder / "e.onnx", external=True)
        model = ["e.onnx", "--config", "e.toml"]
        self.accepted(self.command("train", *model, "--data", "text.txt", "--out", "first",
                                   "--steps", 1))
        raw = (self.folder / "e.onnx").read_bytes()
        whole = self.folder / "e.onnx.data"
        outside = self.folder.parent / "outside.dt"
        shutil.move(whole, outside)
        whole.symlink_to(outside)
        for command, flags in COMMANDS.items():
            self.refused("its external data 'e.onnx.data' leads through the symbolic link",
                         self.command(command, *model, *flags))
        # Other paths of the same length, so that the file stays well-formed.
        for path, pattern in ((b"../outsi.dt", r"'\.\./outsi\.dt' is outside the model's folder"),
                              (b"/etc/passwd", r"'/etc/passwd' is outside the model's folder")):
            self.assertEqual(len(path), len(b"e.onnx.data"))
            (self.folder / "e.onnx").write_bytes(raw.replace(b"e.onnx.data", path))
            for command, flags in COMMANDS.items():
                self.refused(pattern, self.command(command, *model, *flags))

    def test_dimensions_and_inputs(self):
        for command, flags in COMMANDS.items():
            if command != "infer":  # which takes them from its arrays
                self.refused("input 'input_ids' has the unbound dimensions 'batch', 'sequence'; "
                             "set dims.batch, dims.sequence",
                             self.command(command, "m.onnx", *flags))
            if command != "import":
                self.refused(r"dims.batch = 4 does not divide by train.microbatches = 3",
                             self.command(command, *self.model, *flags, "--set",
                                          "train.microbatches=3"))
        model_with_inputs(self.folder / "i.onnx")
        self.refused(r"text.txt: holds tokens only, but the model also needs 'scale', 'bias'; "
                     r"assign them in data.inputs",
                     self.command("train", "i.onnx", *COMMANDS["train"]))
        np.savez(self.folder / "in.npz", tokens=np.zeros((9, SEQUENCE), np.int64))
        self.refused(r"in.npz: lacks the arrays 'scale', 'bias'",
                     self.command("train", "i.onnx", "--data", "in.npz", "--out", "new"))
        assigned = ["--set", 'data.inputs.scale="ones"', "--set", "data.inputs.bias=zeros"]
        self.accepted(self.command("train", "i.onnx", *COMMANDS["train"], *assigned,
                                   "--steps", 1))

    # Configuration and ranks

    def test_keys(self):
        (self.folder / "k.toml").write_text("[train]\nsteps = 3\nlerning_rate = 1\n")
        (self.folder / "t.toml").write_text("[train\nsteps = 3\n")
        for command, flags in COMMANDS.items():
            self.refused(r"train.lerning_rate \(k.toml:3\): unknown key; did you mean 'train.",
                         self.command(command, "m.onnx", "--config", "k.toml", *flags))
            self.refused(r"t.toml:1: not valid TOML",
                         self.command(command, "m.onnx", "--config", "t.toml", *flags))
            for setting, pattern in {
                "train.stepps=3": r"train.stepps \(--set\): unknown key; did you mean "
                                  r"'train.steps'",
                "train.steps=many": r"train.steps \(--set\): found .*expected",
                "train.steps": r"--set train.steps: expected KEY=VALUE",
                "mesh.dta=2": r"mesh.dta: .*did you mean 'mesh.data'",
                "parallel.data.zero=4": r"parallel.data.zero .*: found 4; expected one of 0, 1, 2, 3",
                "parallel.data.zero=-1": r"parallel.data.zero .*: found -1; expected one of 0",
                "train.precision=tf32": r"train.precision = .tf32. .*expected fp32 or bf16",
                "target.kind=gpu": r"target.kind .*expected one of cpu, cuda",
                "train.precision=fp16": r"fp16 .*use bf16",
            }.items():
                self.refused(pattern, self.command(command, *self.model, "--set", setting, *flags))

    def test_types_that_are_only_booked(self):
        for key in ("grad_dtype", "reduce_dtype", "master_dtype"):
            flags = ["--set", f"train.{key}=bf16"]
            for command in COMMANDS:
                if command == "explain":
                    self.accepted(self.command(command, *self.model, *flags))
                else:
                    self.refused(rf'train.{key} = "bf16" is not yet supported: gradients are summed, '
                                 "and parameters updated, in fp32; cleave explain books it",
                                 self.command(command, *self.model, *flags, *COMMANDS[command]))

    def test_keys_that_nothing_reads(self):
        """Two keys for one thing, or one for what the model does not have."""
        for settings, pattern in (
            (["train.loss=output:logits", "train.logits=logits"],
             'train.logits = "logits" and train.loss = "output:logits" both name the output'),
            (["data.tokens=input_ids", "data.labels=input_ids"],
             "data.tokens and data.labels both name the input 'input_ids'"),
            (["data.tokens=input_ids", "data.inputs.input_ids=ones"],
             'data.inputs.input_ids = "ones", but data.tokens names this input'),
            (["data.labels=labels", "data.inputs.labels=zeros"],
             'data.inputs.labels = "zeros", but data.labels names this input'),
            (["data.labels=input_ids"],
             "m.onnx: looks up a table of weights by the input 'input_ids', so that it takes "
             "the tokens, but data.labels names it, too"),
            (["data.inputs.attention_mask=mine"], "has no input 'attention_mask'"),
            (["train.loss=output:logits", "data.labels=answers"],
             "data.labels = 'answers' is read by nothing: .* inputs are 'input_ids'"),
        ):
            flags = [word for key in settings for word in ("--set", key)]
            for command in ("train", "check"):
                with self.subTest(settings=settings, command=command):
                    self.refused(pattern, self.command(command, *self.model, *flags,
                                                       *COMMANDS[command]))
        for key in ("trainable", "frozen", "no_decay"):
            for command in ("explain", "train", "check"):
                with self.subTest(key=key, command=command):
                    self.refused(f"m.onnx.*: pattern 'wight' of train.{key} matches none of the "
                                 r"\d+ parameters: '.*; patterns match whole names",
                                 self.command(command, *self.model, "--set",
                                              f'train.{key}=[".*wte.*", "wight"]',
                                              *COMMANDS.get(command, ())))

    def test_entries_of_lists(self):
        """A wrong key or value in [[shard]] and parallel.sequence."""
        for setting, pattern in (
            ('shard=[{match="a", dim=[["data"]]}]',
             r"shard \(--set\): entry 1: unknown key 'dim'; did you mean 'dims'\?"),
            ('shard=[{match="a", dims=[["data"]]}, {match="b", dims=["data"]}]',
             r'shard \(--set\): entry 2: `dims`: found a list of names, \["data"\]; each '
             r'dimension has a list of axes, \[\["data"\]\]; expected a list of tables'),
            ('parallel.sequence=[{kind="megatron", axs="tensor"}]',
             r"parallel.sequence \(--set\): entry 1: unknown key 'axs'; did you mean 'axis'\?"),
            ('parallel.sequence=["megatron"]',
             r'parallel.sequence \(--set\): entry 1: found the string "megatron"'),
            ("mesh.sequence=2", r"mesh.sequence = 2 is used by no strategy; say how .*"
                                r'kind="ulysses", axis="sequence".*kind="ring".*kind megatron'),
        ):
            with self.subTest(setting=setting):
                self.refused(pattern, self.command("explain", *self.model, "--set", setting))

    def test_zero(self):
        """ZeRO without its axis, and policies of another stage."""
        data = ["mesh.data=2"]
        outer = [*data, "mesh.outer=2", 'mesh.axes=["outer", "data"]']
        for settings, pattern in (
            (["parallel.data.zero=1"],
             r"parallel.data.zero = 1 splits over the mesh axis 'data', but the mesh has "),
            (["parallel.data.zero=3", "mesh.tensor=2"],
             r"parallel.data.zero = 3 splits over the mesh axis 'data', but the mesh has tensor=2"),
            ([*data, "parallel.data.replicate=outer"],
             r"parallel.data.replicate names the axis 'outer', but the mesh has data=2"),
            ([*data, "parallel.data.replicate=data"],
             r"parallel.data.axis and parallel.data.replicate both name the mesh axis 'data'"),
            ([*data, "mesh.tensor=2", "parallel.data.replicate=tensor"],
             r"parallel.data.replicate and parallel.tensor.axis both name the mesh axis 'tensor'"),
            (["mesh.tensor=2", "parallel.tensor=false", "parallel.data.replicate=tensor"],
             r"parallel.data.replicate = 'tensor' is the outer axis of hybrid sharding, whose "
             r"inner one is 'data', but the mesh has tensor=2"),
            ([*data, "parallel.data.zero=3", "parallel.data.zero2_reduce=per_microbatch"],
             r"zero2_reduce = 'per_microbatch' is a policy of ZeRO 2, but parallel.data.zero = 3"),
            ([*data, "parallel.data.zero=2", "parallel.data.reshard_after_forward=false"],
             r"reshard_after_forward = false is a policy of ZeRO 3, but parallel.data.zero = 2"),
            ([*data, "parallel.data.zero2_reduce=never"], r"found \"never\"; expected one of"),
        ):
            flags = [word for key in settings for word in ("--set", key)]
            for command in ("train", "check", "explain"):
                with self.subTest(settings=settings, command=command):
                    self.refused(pattern, self.command(command, *self.model, *flags,
                                                       *COMMANDS[command]))
        flags = [word for key in outer for word in ("--set", key)]
        self.accepted(self.command("explain", *self.model, *flags, "--set",
                                   "parallel.data.replicate=outer"))

    def test_later_commands_and_axes(self):
        for command in ("export-onnx", "plan", "view"):
            self.refused(f"cleave {command} is not yet supported", [CLEAVE, command, "x"])
        self.refused("has no experts to split over axis 'expert'",
                     self.command("explain", *self.model, "--set", "mesh.expert=2"))
        # An axis splits one thing.
        for mine, theirs, off in (("data", "tensor", "tensor"), ("tensor", "data", "data"),
                                  ("data", "pipeline", "pipeline")):
            twice = ["--set", f"mesh.{theirs}=2", "--set", f"parallel.{mine}.axis={theirs}"]
            pair = sorted(("data", theirs if mine == "data" else mine))
            for command in ("train", "check"):
                self.refused(rf"parallel.{pair[0]}.axis and parallel.{pair[1]}.axis both name the "
                             rf"mesh axis '{theirs}'; .* --set parallel.{off}=false",
                             self.command(command, *self.model, *twice, *COMMANDS[command]))
            self.accepted(self.command("explain", *self.model, *twice,
                                       "--set", f"parallel.{off}=false"))
        self.refused("--emit elf: expected folder, exe,",
                     self.command("compile", *self.model, "-o", "new", "--emit", "elf"))
        self.refused("did you mean 'train'", [CLEAVE, "trian"])
        self.refused("--colour", self.command("explain", *self.model, "--colour"))

    def test_ranks(self):
        two = [*self.model, "--set", "mesh.data=2"]
        for command in ("compile", "train", "infer", "explain", "check"):
            self.refused(r"the mesh \(data=2\) has 2 ranks, but there are 3",
                         self.command(command, *two, *COMMANDS[command], "--ranks", 3))
        for command in ("train", "infer"):
            self.refused(r"the mesh \(data=2\) has 2 ranks, but there are 4",
                         self.command(command, *two, *COMMANDS[command]), env={"WORLD_SIZE": "4"})
            self.refused("WORLD_SIZE is 2, but the launcher brings no MPI",
                         self.command(command, *two, *COMMANDS[command]), env={"WORLD_SIZE": "2"})
        # A host whose others do not come gives them up soon.
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        alone = {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "1", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port - 1)}
        begin = time.monotonic()
        self.refused("WORLD_SIZE is 2, but the launcher brings no MPI",
                     self.command("train", *two, *COMMANDS["train"]), env=alone)
        self.assertLess(time.monotonic() - begin, 8)
        self.accepted(self.command("compile", *two, "-o", "two"))
        self.refused("--ranks is 3, but .* a mesh of 2 ranks",
                     [RUN, "two", *COMMANDS["train"][:0], "train", "--data", "text.txt",
                      "--out", "new", "--ranks", 3])
        self.refused("WORLD_SIZE is 3, but .* a mesh of 2 ranks",
                     [RUN, "two", "train", "--data", "text.txt", "--out", "new"],
                     env={"WORLD_SIZE": "3"})



if __name__ == "__main__":
    unittest.main()
