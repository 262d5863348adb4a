"""Models as the formulas see them: parameters by role, sizes, heads."""

import dataclasses
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "lib"))
import onnxwire  # noqa: E402


class UserError(Exception):
    pass


def tile(size, ways):
    return -(-size // ways)


# What the parameters are ------------------------------------------------------


@dataclasses.dataclass
class Parameter:
    name: str  # PyTorch's
    shape: list  # as PyTorch has it, Linear layers turned to [in, out]
    transposed: bool = False  # the file has it the other way round


# Role of a parameter by its name. A role says which dimension tensor
# parallelism splits, counted in the [in, out] layout; see `local_shape`.
ROLES = {
    "gpt2": [
        (r"transformer\.wte\.weight", "vocabulary_rows"),
        (r"lm_head\.weight", "vocabulary_rows"),  # tied: the table under its other name
        (r"transformer\.wpe\.weight", "replicated"),
        (r"transformer\.h\.\d+\.ln_[12]\.(weight|bias)", "replicated"),
        (r"transformer\.ln_f\.(weight|bias)", "replicated"),
        (r"transformer\.h\.\d+\.attn\.c_attn\.weight", "qkv_columns"),
        (r"transformer\.h\.\d+\.attn\.c_attn\.bias", "qkv_vector"),
        (r"transformer\.h\.\d+\.attn\.c_proj\.weight", "head_rows"),
        (r"transformer\.h\.\d+\.(attn|mlp)\.c_proj\.bias", "replicated"),
        (r"transformer\.h\.\d+\.mlp\.c_fc\.weight", "columns"),
        (r"transformer\.h\.\d+\.mlp\.c_fc\.bias", "vector"),
        (r"transformer\.h\.\d+\.mlp\.c_proj\.weight", "rows"),
    ],
    "llama": [
        (r"model\.embed_tokens\.weight", "vocabulary_rows"),
        (r"lm_head\.weight", "vocabulary_columns"),
        (r"model\.norm\.weight", "replicated"),
        (r"model\.layers\.\d+\.(input|post_attention)_layernorm\.weight", "replicated"),
        (r"model\.layers\.\d+\.self_attn\.q_proj\.weight", "head_columns"),
        (r"model\.layers\.\d+\.self_attn\.[kv]_proj\.weight", "kv_head_columns"),
        (r"model\.layers\.\d+\.self_attn\.o_proj\.weight", "head_rows"),
        (r"model\.layers\.\d+\.mlp\.(gate|up)_proj\.weight", "columns"),
        (r"model\.layers\.\d+\.mlp\.down_proj\.weight", "rows"),
    ],
}


@dataclasses.dataclass
class Architecture:
    family: str
    parameters: list  # of Parameter, tied ones once
    layers: int
    hidden: int
    heads: int
    kv_heads: int

    def role(self, name):
        for pattern, role in ROLES[self.family]:
            if re.fullmatch(pattern, name):
                return role
        raise UserError(f"parameter '{name}' is none of a {self.family} model")


def read_architecture(path, heads=None, kv_heads=None):
    """Shapes from the file; names and head counts from what is beside it."""
    model = onnxwire.load(path)
    tensors = {t.name: t for t in model.graph.initializers}
    beside = path.with_suffix(".names.json")
    sizes = {}
    parameters = {}
    if beside.exists():
        names = json.loads(beside.read_text())
        sizes = names["sizes"]
        for onnx_name, entry in names["parameters"].items():
            if onnx_name not in tensors:
                raise UserError(f"{beside} names '{onnx_name}', which {path} does not have")
            shape = list(tensors[onnx_name].dims)
            name = entry["parameter"]
            # Names files speak of PyTorch's layout; Linear weights are
            # [out, in] there, while GPT-2's Conv1D is [in, out] already.
            linear = len(shape) == 2 and "_proj.weight" in name and name.startswith("model.")
            linear |= name == "lm_head.weight" and names["family"] == "llama"
            torch_shape = shape[::-1] if entry["transposed"] else shape
            wanted = torch_shape[::-1] if linear else torch_shape
            parameters.setdefault(name, Parameter(name, wanted, transposed=wanted != shape))
    else:
        if "generate.sizes" in model.metadata:
            sizes = json.loads(model.metadata["generate.sizes"])
        every = [p for table in ROLES.values() for p, _ in table]
        for name, tensor in tensors.items():
            if any(re.fullmatch(pattern, name) for pattern in every):
                parameters[name] = Parameter(name, list(tensor.dims))
    family = "gpt2" if any(n.startswith("transformer.") for n in parameters) else "llama"
    if not any(n.startswith("model.layers.") for n in parameters) and family == "llama":
        raise UserError(f"{path}: no parameter has a known name, and {beside.name} is missing")
    heads = heads or sizes.get("heads")
    kv_heads = kv_heads or sizes.get("kv_heads") if family == "llama" else heads
    if not heads or not kv_heads:
        raise UserError("head counts are not recorded beside the model; give --heads, --kv-heads")
    layers = {re.search(r"\.(?:h|layers)\.(\d+)\.", n).group(1)
              for n in parameters if re.search(r"\.(?:h|layers)\.\d+\.", n)}
    norm = "transformer.ln_f.weight" if family == "gpt2" else "model.norm.weight"
    architecture = Architecture(family, list(parameters.values()), len(layers),
                                parameters[norm].shape[0], heads, kv_heads)
    for parameter in architecture.parameters:
        architecture.role(parameter.name)  # refuses unknown ones
    return architecture
