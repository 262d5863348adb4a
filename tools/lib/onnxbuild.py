"""Builds ONNX models from nothing, on top of onnxwire."""

import numpy as np

import onnxwire
from onnxwire import Attribute, Graph, Message, Model, Node, Tensor, ValueInfo


def tensor(name, array):
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    out = Tensor()
    for dim in array.shape:
        out.add(1, dim)
    out.add(2, onnxwire.DTYPE_CODES[array.dtype])
    if name:
        out.add(8, name)
    return out.add(9, array.tobytes())


def value_info(name, dtype, shape, metadata=None):
    dims = Message()
    for dim in shape:
        dims.add(1, Message().add(2, dim) if isinstance(dim, str) else Message().add(1, dim))
    elem = Message().add(1, onnxwire.DTYPE_CODES[np.dtype(dtype)]).add(2, dims)
    out = ValueInfo().add(1, name).add(2, Message().add(1, elem))
    for key, value in (metadata or {}).items():
        out.add(4, Message().add(1, key).add(2, value))
    return out


def attribute(name, value):
    out = Attribute().add(1, name)
    if isinstance(value, float):
        return out.add(2, value).add(20, 1)
    if isinstance(value, str):
        return out.add(4, value).add(20, 3)
    if isinstance(value, np.ndarray):
        return out.add(5, tensor("", value)).add(20, 4)
    if isinstance(value, Builder):  # the branch of an If, the body of a loop
        return out.add(6, value.graph()).add(20, 5)
    if isinstance(value, (list, tuple)):
        # Lists of floats, of strings, and of integers.
        field, kind = next((pair for of, pair in ((float, (7, 6)), (str, (9, 8)))
                            if value and isinstance(value[0], of)), (8, 7))
        for item in value:
            out.add(field, item)
        return out.add(20, kind)
    return out.add(3, int(value)).add(20, 2)


class Builder:
    """Collects nodes and initializers of one graph; every method returns a name."""

    def __init__(self, name="main_graph"):
        self.graph_name = name
        self.nodes, self.initializers = [], []
        self.inputs, self.outputs, self.values = [], [], []
        self.constants, self.count = {}, 0

    def input(self, name, dtype, shape):
        self.inputs.append(value_info(name, dtype, shape))
        return name

    def output(self, name, dtype, shape):
        self.outputs.append(value_info(name, dtype, shape))

    def parameter(self, name, array):
        self.initializers.append(tensor(name, array))
        return name

    def constant(self, value, dtype=np.int64):
        """An initializer for a small constant; equal ones are shared."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.parameter(f"c{len(self.constants)}", array)
        return self.constants[key]

    def op(self, op_type, *inputs, out=None, outputs=1, domain="", **attributes):
        names = [out] if out else [f"v{self.count + i}" for i in range(outputs)]
        self.count += outputs
        node = Node()
        for name in inputs:
            node.add(1, name)
        for name in names:
            node.add(2, name)
        node.add(3, f"n{len(self.nodes)}").add(4, op_type)
        for key, value in attributes.items():
            node.add(5, attribute(key, value))
        if domain:
            node.add(7, domain)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def graph(self):
        graph = Graph()
        for node in self.nodes:
            graph.add(1, node)
        graph.add(2, self.graph_name)
        for item in self.initializers:
            graph.add(5, item)
        for item in self.inputs:
            graph.add(11, item)
        for item in self.outputs:
            graph.add(12, item)
        for item in self.values:
            graph.add(13, item)
        return graph

    def model(self, opset, ir_version=8, metadata=None):
        graph = self.graph()
        model = Model().add(1, ir_version).add(2, "onnxbuild").add(7, graph)
        model.add(8, Message().add(1, "").add(2, opset))
        for key, value in (metadata or {}).items():
            model.add(14, Message().add(1, key).add(2, value))
        return model
