"""The protobuf reader and writer: nothing is lost, invalid input is an error."""

import unittest

import numpy as np

import support
import onnxbuild
import onnxwire


class OnnxWire(unittest.TestCase):
    def test_round_trip_is_byte_equal(self):
        for name in support.NAMES:
            data = (support.MODELS / f"{name}.onnx").read_bytes()
            model = onnxwire.parse(data)
            for node in model.graph.nodes:
                self.assertTrue(node.op_type)
                node.attributes
            model.graph.value_infos
            self.assertEqual(model.bytes(), data, name)

    def test_unknown_fields_are_kept(self):
        message = onnxwire.Message().add(77, "later").add(78, 1.5).add(79, 1 << 40)
        node = onnxwire.Node().add(4, "Add").add(99, message)
        again = onnxwire.Node(node.bytes())
        again.name = "n"
        inner = again.messages(99)[0]
        self.assertEqual(inner.text(77), "later")
        self.assertEqual(inner.integer(79), 1 << 40)
        self.assertEqual(again.op_type, "Add")

    def test_negative_integers(self):
        message = onnxwire.Message(onnxwire.Message().add(1, -5).add(7, -1).add(7, 3).bytes())
        self.assertEqual(message.integer(1), -5)
        self.assertEqual(message.integers(7), [-1, 3])

    def test_packed_integers(self):
        packed = onnxwire.Message().add(7, onnxwire.write_varint(300) + onnxwire.write_varint(-2))
        self.assertEqual(onnxwire.Message(packed.bytes()).integers(7), [300, -2])

    def test_arrays(self):
        for dtype in (np.float32, np.int64, np.bool_, np.float16, np.float64):
            array = np.arange(6).reshape(2, 3).astype(dtype)
            tensor = onnxwire.Tensor(onnxbuild.tensor("t", array).bytes())
            np.testing.assert_array_equal(tensor.array(), array)
            self.assertEqual(tensor.name, "t")
        scalar = onnxwire.Tensor(onnxbuild.tensor("s", np.float32(2)).bytes())
        self.assertEqual(scalar.array().shape, ())

    def test_typed_data_fields(self):
        tensor = onnxwire.Tensor().add(1, 2).add(2, 7).add(7, -3).add(7, 4)
        np.testing.assert_array_equal(tensor.array(), [-3, 4])
        tensor = onnxwire.Tensor().add(1, 2).add(2, 1).add(4, 1.5).add(4, -2.0)
        np.testing.assert_array_equal(tensor.array(), np.float32([1.5, -2]))

    def test_truncated_and_foreign_files(self):
        data = (support.MODELS / "gpt2.onnx").read_bytes()
        with self.assertRaises(onnxwire.WireError):
            onnxwire.parse(data[:-100])
        with self.assertRaises(onnxwire.WireError):
            onnxwire.parse(b"not a model at all")
        with self.assertRaises(onnxwire.WireError):
            onnxwire.parse(b"")


if __name__ == "__main__":
    unittest.main()
