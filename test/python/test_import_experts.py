"""Layers of experts in files: what they compute, and the tensors that they are stored as."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import support
import training
from support import CLEAVE, MODELS

UNROLLED = [("mixtral.dense", "model.layers.0.mlp.experts.2.w1"),
            ("switch", "model.layers.1.mlp.experts.2.wi.bias")]
SHAPES = ["mixtral." + shape for shape in ("gathered", "dense", "tiled", "slices", "contrib")]


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Experts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def logits(self, model, path=None, *flags):
        reference = np.load(MODELS / "experts.npz")
        tokens, out = self.folder / "tokens.npz", self.folder / "out.npz"
        np.savez(tokens, input_ids=reference["input_ids"])
        support.succeed(CLEAVE, "infer", path or MODELS / f"{model}.onnx", "--config",
                        MODELS / f"{model}.toml", "--inputs", tokens, "--outputs", out, *flags)
        return np.load(out)["logits"][:, ::8], reference

    def test_infer_computes_what_onnxruntime_computes(self):
        for model in ["mixtral", "switch", "deepseek", *SHAPES]:
            with self.subTest(model):
                got, reference = self.logits(model)
                want = reference[model if model in reference else "mixtral.dense"]
                self.assertLess(np.abs(got - want).max(), 2e-5 * np.abs(want).max())

    def test_layer_of_torchscript(self):
        reference = np.load(MODELS / "experts.npz")
        inputs, out = self.folder / "x.npz", self.folder / "y.npz"
        np.savez(inputs, x=reference["x"])
        support.succeed(CLEAVE, "infer", *training.flags("mixtral.ts17"), "--inputs", inputs, "--outputs", out)
        error = np.abs(np.load(out)["y"] - reference["y"]).max()
        self.assertLess(error, 2e-5 * np.abs(reference["y"]).max())

    def test_check(self):
        """Sharded and pipelined like any other model."""
        meshes = [("data=2", {"parallel__data__zero": zero}) for zero in range(4)]
        meshes += [("tensor=2", {}), ("pipeline=2", {"train__microbatches": 2}),
                   ("data=2,tensor=2,pipeline=2", {"train__microbatches": 2, "parallel__data__zero": 3})]
        turns = support.Turns(11)
        for model in ("mixtral", "switch", "deepseek"):
            for mesh, keys in support.some(meshes, 4):
                with self.subTest(model, mesh=mesh, **keys):
                    done = support.run(CLEAVE, "check", "--steps", 2, *turns.flags(),
                                       *training.flags(model, mesh, **keys, dims__sequence=9))
                    self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr)

    def test_checkpoints_hold_the_tensors_of_the_file(self):
        for model, name in UNROLLED:
            with self.subTest(model):
                out = self.folder / model
                support.succeed(*training.command(out, model, "", "--steps", 4, "--save-every", 2))
                tensors = support.initializers(MODELS / f"{model}.onnx")
                saved = support.read_safetensors(out / "checkpoint-000004" / "model.safetensors")
                for key, value in saved.items():
                    self.assertEqual(value.shape, tensors[key].shape, key)
                before = tensors[name]
                self.assertGreater(np.abs(saved[name] - before).max(), 0)
                self.assertLess(np.abs(saved[name] - before).max(), 0.01)
                state = support.read_safetensors(out / "checkpoint-000004" / "optimizer.safetensors")
                self.assertEqual(state[name + ".m"].shape, saved[name].shape)

                # Resumed from the middle: the same bits, and on a mesh that splits stacks the same numbers.
                again = self.folder / (model + ".again")
                support.succeed(*training.command(again, model, "", "--steps", 4, "--resume",
                                                  out / "checkpoint-000002"))
                self.assertEqual((again / "checkpoint-000004" / "model.safetensors").read_bytes(),
                                 (out / "checkpoint-000004" / "model.safetensors").read_bytes())
                split = self.folder / (model + ".split")
                support.succeed(*training.command(split, model, "data=2", "--steps", 4, "--resume",
                                                  out / "checkpoint-000002", parallel__data__zero=3))
                other = support.read_safetensors(split / "checkpoint-000004" / "model.safetensors")
                for key, value in saved.items():
                    self.assertLess(np.abs(other[key] - value).max(), 1e-4, key)

    def test_trained_weights_go_back_into_the_file(self):
        """Each tensor of a checkpoint has the place of one of the file's: written there, the file computes
        what the checkpoint does."""
        for model in ("switch", "deepseek"):
            with self.subTest(model):
                out = self.folder / model
                support.succeed(*training.command(out, model, "", "--steps", 2, "--save-every", 2,
                                                  train__lr=0.05))
                saved = support.read_safetensors(out / "checkpoint-000002" / "model.safetensors")
                before = support.initializers(MODELS / f"{model}.onnx")
                data = (MODELS / f"{model}.onnx").read_bytes()
                for name, value in saved.items():
                    old = before[name].tobytes()
                    self.assertEqual(data.count(old), 1, name)
                    data = data.replace(old, value.astype(before[name].dtype).tobytes())
                path = self.folder / f"{model}.onnx"
                path.write_bytes(data)
                written, _ = self.logits(model, path)
                trained, _ = self.logits(model, None, "--weights", out / "checkpoint-000002")
                np.testing.assert_array_equal(written, trained)
                original, _ = self.logits(model)
                self.assertGreater(np.abs(written - original).max(), 0.01)

    def test_gradients_have_the_names_of_the_file(self):
        """Those of experts that are in a tensor each, too."""
        before = support.initializers(MODELS / "switch.onnx")
        out = self.folder / "g.npz"
        support.succeed(CLEAVE, "check", *support.model_flags("switch"), "--gradients", out)
        found = {key[5:]: value for key, value in np.load(out).items() if key.startswith("grad/")}
        experts = [key for key in found if ".experts." in key]
        self.assertGreater(len(experts), 4)
        for key, value in found.items():
            self.assertEqual(value.shape, before[key].shape, key)
        self.assertEqual(set(experts), {key for key in before if ".experts." in key})

    def test_missing_part_of_a_checkpoint(self):
        """The file says so before anything is compiled, a compiled program when it loads it."""
        out = self.folder / "run"
        model, name = UNROLLED[0]
        support.succeed(*training.command(out, model, "", "--steps", 1, "--save-every", 1, train__schedule="constant"))
        file = out / "checkpoint-000001" / "model.safetensors"
        file.write_bytes(file.read_bytes().replace(name.encode(), name.encode()[:-2] + b"xx"))
        state = file.with_name("state.json")  # as one without digests, which would see it first
        said = json.loads(state.read_text())
        del said["digests"]
        support.write_old_state(state, said)
        done = support.run(*training.command(self.folder / "other", model, "", "--resume",
                                             out / "checkpoint-000001", train__steps=2))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"checkpoint-000001: is no checkpoint of this model: it has a tensor '{name[:-2]}xx' of shape",
                      done.stderr)
        program = self.folder / "program"
        support.succeed(CLEAVE, "compile", *training.flags(model, "", train__schedule="constant"), "-o", program)
        done = support.run(support.BUILD / "bin" / "cleave-run", program, "train", "--data", training.text(), "--resume",
                           out / "checkpoint-000001", "--steps", 2, "--out", self.folder / "another")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"tensor '{name}' is missing", done.stderr)

    def test_freezing_some_experts_is_refused(self):
        done = support.run(*training.command(self.folder / "run", "mixtral.dense", "", "--steps", 1,
                                             train__frozen="[\".*experts.1.w1\"]"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("patterns match 'model.layers.0.mlp.experts.1.w1' and not "
                      "'model.layers.0.mlp.experts.3.w1'", done.stderr)
        support.succeed(*training.command(self.folder / "other", "mixtral.dense", "", "--steps", 1,
                                          "--save-every", 1, train__frozen="[\".*experts.*\"]"))
        saved = support.read_safetensors(
            self.folder / "other" / "checkpoint-000001" / "model.safetensors")
        before = support.initializers(MODELS / "mixtral.dense.onnx")
        for key, value in saved.items():
            same = np.array_equal(value, before[key])
            self.assertEqual(same, "experts" in key, key)

    def test_biases_of_experts_do_not_decay(self):
        """In a file of one tensor each they have one dimension: stacking changes nothing."""
        saved = {}
        for decay in (0.0, 0.5):
            out = self.folder / str(decay)
            support.succeed(*training.command(out, "switch", "", "--steps", 1, "--save-every", 1,
                                              train__weight_decay=decay, train__lr=0.1))
            saved[decay] = support.read_safetensors(out / "checkpoint-000001" / "model.safetensors")
        for key in saved[0.0]:
            same = np.array_equal(saved[0.0][key], saved[0.5][key])
            self.assertEqual(same, saved[0.0][key].ndim < 2, key)


if __name__ == "__main__":
    unittest.main()
