"""`cleave infer` through a pipeline's stages gives the outputs of one rank, also for a model
without a loss."""

import pathlib
import tempfile
import unittest

import numpy as np
import support
from support import generate

# Each stage has an output, and for none of them a loss is known.
TWO_OUTPUTS = """
func.func @forward(
    %x: tensor<4x6xf32> {nn.batch_dim = 0 : i64, nn.name = "x", nn.role = #nn.role<input>},
    %w: tensor<6x6xf32> {nn.name = "w", nn.role = #nn.role<parameter>},
    %v: tensor<6x6xf32> {nn.name = "v", nn.role = #nn.role<parameter>})
    -> (tensor<4x6xf32> {nn.batch_dim = 0 : i64, nn.name = "early", nn.role = #nn.role<output>},
        tensor<4x6xf32> {nn.batch_dim = 0 : i64, nn.name = "late", nn.role = #nn.role<output>}) {
  %a = nn.einsum "ij,jk->ik" %x, %w : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
  %b = nn.einsum "ij,jk->ik" %a, %v : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
  return %a, %b : tensor<4x6xf32>, tensor<4x6xf32>
}
"""


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class PipelineInference(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def infer(self, model, inputs, *settings):
        np.savez(self.folder / "in.npz", **inputs)
        flags = [word for setting in settings for word in ("--set", setting)]
        support.succeed(support.CLEAVE, "infer", *model, "--inputs", self.folder / "in.npz",
                        "--outputs", self.folder / "out.npz", "--cache", self.folder / "cache",
                        *flags)
        return dict(np.load(self.folder / "out.npz"))

    def assertSame(self, model, inputs, *settings):
        whole = self.infer(model, inputs)
        outputs = self.infer(model, inputs, *settings)
        self.assertEqual(outputs.keys(), whole.keys())
        for name, value in whole.items():
            self.assertGreater(np.abs(value).max(), 0)
            np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-6, err_msg=name)

    def test_language_model(self):
        model = generate(self.folder / "gpt2.onnx", family="gpt2", layers=4, hidden=16, heads=4,
                         vocab=19, positions=16)[:1]
        inputs = {"input_ids": np.arange(4 * 8).reshape(4, 8) % 19}
        for settings in (("mesh.pipeline=4",),
                         ("mesh.pipeline=2", "mesh.tensor=2", "train.microbatches=4",
                          "parallel.pipeline.schedule=zb-v"),
                         ("mesh.pipeline=4", "train.microbatches=4",
                          "parallel.pipeline.schedule=chimera"),
                         ("mesh.pipeline=2", "train.microbatches=4",
                          "parallel.pipeline.schedule=pipedream-async"),
                         ("mesh.pipeline=2", "mesh.data=2", "parallel.data.zero=3")):
            with self.subTest(settings=settings):
                self.assertSame(model, inputs, *settings)

    def test_model_without_loss(self):
        path = self.folder / "two.mlir"
        path.write_text(TWO_OUTPUTS)
        inputs = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
        self.assertSame([path], inputs, "mesh.pipeline=2")


if __name__ == "__main__":
    unittest.main()
