"""Paths and helpers that the Python tests share."""

import hashlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "test" / "models"
NAMES = ["gpt2", "gpt2.ts17", "gpt2.dynamo18", "gpt2.dynamo23",
         "llama", "llama.ts17", "llama.dynamo18", "llama.dynamo23"]

for folder in (ROOT / "tools" / "lib", MODELS, ROOT / "test"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def meaning(model):
    """A hash per graph output that depends on operators, attributes, weights
    and their connections, and on no name and no order of nodes."""
    graph = model.graph
    values = {"": ""}
    for i, value in enumerate(graph.inputs):
        values[value.name] = digest("input", i, value.shape)
    for tensor in graph.initializers:
        content = [bytes(v) for v in tensor.all(9)] or sorted(tensor.external.items())
        values[tensor.name] = digest("weight", tensor.dims, tensor.data_type, content)

    def attributes(node):
        # Subgraphs quote names and do not occur in these models.
        assert not node.subgraphs
        return sorted(a.bytes() for a in node.attributes)

    for node in graph.nodes:
        inputs = [values[name] for name in node.inputs]  # a KeyError: not topological
        for i, name in enumerate(node.outputs):
            values[name] = digest(node.op_type, node.domain, attributes(node), inputs, i)
    return [values[value.name] for value in graph.outputs]
