"""Files with what PyTorch's exporter notes of tensors and nodes, for make.py."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "lib"))
import onnxbuild  # noqa: E402
import onnxwire  # noqa: E402

F32, I64 = np.float32, np.int64


def ramp(*shape):
    return np.arange(np.prod(shape), dtype=F32).reshape(shape)


def held(b, name, array, kind="", folded=""):
    """An initializer with what PyTorch's exporter notes of it."""
    b.parameter(name, array)
    info = onnxbuild.value_info(name, F32, array.shape)
    key = "pkg.torch.export.graph_signature.InputSpec.kind"
    entries = [(key, kind)] if kind else []
    if folded:
        entries.append(("pkg.onnxscript.optimizer.folded_from", f"['{folded}']"))
    for name_, value in entries:
        info.add(4, onnxwire.Message().add(1, name_).add(2, value))
    b.infos.append(info)
    return name


def scoped(b, scope, reads, *op, **attributes):
    """A node with the module that made it and the tensors that it read."""
    out = b.op(*op, **attributes)
    for key, value in (("name_scopes", f"['', '{scope}', 'op']"),
                       ("fx_node", "%op : call_function[target=op](args = (%x, "
                                   + ", ".join("%p_" + name for name in reads) + "))")):
        b.nodes[-1].add(9, onnxwire.Message().add(1, "pkg.torch.onnx." + key).add(2, value))
    return out


def traced(b, scope, line, *op, notes="name_scopes", **attributes):
    """A node with the module and the line of source that PyTorch notes of it."""
    out = b.op(*op, **attributes)
    trace = f'''File "/home/them/model.py", line {line}, in forward
    return self.layer(x)
  File "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input)'''
    modules = (("pkg.torch.onnx.name_scopes", f"['', '{scope}', 'op']") if notes == "name_scopes"
               else ("namespace", f": Model/{scope}: Linear/op: aten.linear.default"))
    for key, value in (modules, ("pkg.torch.onnx.stack_trace", trace)):
        b.nodes[-1].add(9, onnxwire.Message().add(1, key).add(2, value))
    return out


def modules():
    """Two layers, a head, and what the model itself does, with their sources."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 4])
    for layer in range(2):
        weight = b.parameter(f"blocks.{layer}.fc.weight", np.ones((4, 4), F32))
        x = traced(b, f"blocks.{layer}.fc", 13, "MatMul", x, weight)
        x = traced(b, f"blocks.{layer}", 14, "Relu", x, notes="namespace")
    b.op("Exp", x, out="y")
    b.output("y", F32, ["batch", 4])
    return b.model(18)


def refused():
    """Operators that no version has, in modules and outside of them."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 4])
    for layer in range(3):
        x = traced(b, f"blocks.{layer}.act", 21, "Det", x)
    x = traced(b, "head", 30, "Strange", x)
    b.op("Det", x, out="y")
    b.output("y", F32, ["batch", 4])
    return b.model(18)


def noted(b):
    model = b.model(20)
    for info in b.infos:
        model.graph.add(13, info)
    return model


def single():
    """Tensors of one element as weights, as what adds or scales, and as numbers."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 4])
    x = b.op("Mul", x, b.parameter("raw", np.array([0.5], F32)))
    h = b.op("MatMul", x, b.parameter("w", ramp(4, 3)))
    h = b.op("Mul", h, b.parameter("temperature", np.array([1.5], F32)))
    h = b.op("Div", h, b.parameter("half", np.array(2, F32)))
    h = b.op("Mul", h, b.op("Exp", b.parameter("a.logit_scale", np.array(0.1, F32))))
    square = b.op("Sqrt", b.op("Add", b.op("Mul", h, h), b.parameter("epsilon", np.array([1e-5], F32))))
    h = b.op("Add", b.op("Div", h, square), b.parameter("a.shift", np.array(1, F32)))
    b.op("Gemm", h, b.parameter("v", ramp(3, 1)), b.parameter("bias", np.array([0.5], F32)), out="y")
    b.output("y", F32, ["batch", 1])
    return b.model(18)


def number_nodes():
    """The file has its numbers in nodes: an initializer without dimensions is none."""
    b = onnxbuild.Builder()
    x = b.op("MatMul", b.input("x", F32, ["batch", 4]), b.parameter("w", ramp(4, 3)))
    x = b.op("Mul", x, b.op("Constant", value=np.array(2, F32)))
    b.op("Mul", x, b.parameter("temperature", np.array(1.5, F32)), out="y")
    b.output("y", F32, ["batch", 3])
    return b.model(18)


def noted_buffers():
    """What the file says of its tensors: a buffer, parameters, a number."""
    b = onnxbuild.Builder()
    b.infos = []
    x = b.input("x", F32, ["batch", 4])
    x = b.op("Sub", x, held(b, "mean", ramp(4), "BUFFER"))
    x = b.op("Mul", x, held(b, "gain", ramp(4), "PARAMETER"))
    x = b.op("MatMul", x, held(b, "w", ramp(4, 3), "PARAMETER"))
    x = b.op("Mul", x, held(b, "t", np.array(1.5, F32), "PARAMETER"))
    x = b.op("Mul", x, held(b, "exp", np.array(1.1, F32), folded="logit_scale"))
    b.op("Mul", x, b.parameter("val_3", np.array([2], F32)), out="y")
    b.output("y", F32, ["batch", 3])
    return noted(b)


def noted_merged():
    """A gain that stands for two, and one that the file says is shared."""
    b = onnxbuild.Builder()
    b.infos = []
    x = b.input("x", F32, ["batch", 4])
    held(b, "h.0.n.weight", ramp(4), "PARAMETER")
    held(b, "s.weight", ramp(4), "PARAMETER")
    for layer in ("h.0", "h.1"):
        x = scoped(b, f"{layer}.n", [f"{layer}.n.weight".replace(".", "_")], "Mul", x,
                   "h.0.n.weight")
        x = scoped(b, f"{layer}.s", ["s_weight"], "Add", x, "s.weight")
    b.op("MatMul", x, b.parameter("w", ramp(4, 3)), out="y")
    b.output("y", F32, ["batch", 3])
    return noted(b)


def channels():
    """Gains of channels, a product with a column, and positions."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 3, 4])
    x = b.op("MatMul", x, b.parameter("square", ramp(4, 4)))
    x = b.op("Mul", x, b.parameter("gain", ramp(3, 1)))
    x = b.op("Add", x, b.parameter("bias", ramp(1, 3, 1)))
    x = b.op("Add", x, b.parameter("row", ramp(1, 4)))
    b.op("MatMul", x, b.parameter("column", ramp(4, 1)), out="y")
    b.output("y", F32, ["batch", 3, 1])
    return b.model(18)


def copies():
    """Equal tensors that are no ties: experts, a frozen copy, an identity."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    x = b.op("Gather", b.parameter("table", ramp(6, 4)), ids)
    first = b.op("MatMul", x, b.parameter("e.0", ramp(4, 4) - 3))
    second = b.op("MatMul", x, b.parameter("e.1", ramp(4, 4) - 3))
    x = b.op("Add", b.op("Tanh", first), second)
    for name in ("i.0", "i.1"):
        x = b.op("MatMul", x, b.parameter(name, np.eye(4, dtype=F32)))
    # A table of the same elements, whose lookups no product with its like reads.
    b.op("MatMul", x, b.parameter("head", np.ascontiguousarray(ramp(4, 6))), out="y")
    other = b.op("Gather", b.parameter("copy", ramp(6, 4)), ids)
    b.op("Tanh", other, out="z")
    b.output("y", F32, ["batch", "sequence", 6])
    b.output("z", F32, ["batch", "sequence", 4])
    return b.model(18)


def tables():
    """Two equal tables, and a head that depends on both."""
    b = onnxbuild.Builder()
    ids = b.input("ids", I64, ["batch", "sequence"])
    table = np.sin(ramp(7, 4) ** 2).astype(F32)
    x = b.op("Add", b.op("Gather", b.parameter("policy", table), ids),
             b.op("Tanh", b.op("Gather", b.parameter("reference", table), ids)))
    b.op("MatMul", x, b.parameter("head", np.ascontiguousarray(table.T)), out="y")
    b.output("y", F32, ["batch", "sequence", 7])
    return b.model(18)


def spread():
    """Tensors that follow from positions: waves in a product, differences."""
    b = onnxbuild.Builder()
    x = b.input("x", F32, ["batch", 12])
    at = np.arange(12)
    waves = np.cos(np.outer(at, at) * np.pi / 12).astype(F32)
    bias = np.sin((at[:, None] - at) ** 2).astype(F32)
    x = b.op("MatMul", x, b.parameter("waves", waves))
    x = b.op("MatMul", x, b.parameter("w", np.sin(ramp(12, 12) ** 2).astype(F32)))
    b.op("MatMul", x, b.parameter("differences", bias), out="y")
    b.output("y", F32, ["batch", 12])
    return b.model(18)
