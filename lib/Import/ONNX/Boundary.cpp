// What enters and leaves a graph: inputs by role, outputs, sizes of dimensions,
// ties.

#include "Build.h"
#include "Dims.h"
#include "Importer.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

static Element elementOf(const ::onnx::ValueInfoProto &value) {
  return static_cast<Element>(value.type().tensor_type().elem_type());
}

std::string Importer::spellInputs() const {
  std::string names;
  for (const ::onnx::ValueInfoProto *input : inputs)
    names += (names.empty() ? "'" : ", '") + input->name() + "'";
  return names;
}

/// Whether the input's numbers are rows of a table of weights, as tokens are.
bool Importer::looksUpATable(const std::string &input) const {
  llvm::StringSet<> same; // the input in other shapes and types
  same.insert(input);
  for (const FlatNode &node : model.nodes()) {
    StringRef op = node.proto->op_type();
    if (op == "Gather" && node.proto->input_size() > 1 &&
        same.contains(node.proto->input(1)) &&
        model.findInitializer(node.proto->input(0)))
      return true;
    bool keeps = op == "Cast" || op == "Reshape" || op == "Identity" ||
                 op == "Flatten" || op == "Squeeze" || op == "Unsqueeze";
    if (keeps && node.proto->input_size() > 0 &&
        same.contains(node.proto->input(0)))
      same.insert(node.proto->output(0));
  }
  return false;
}

LogicalResult Importer::findInputs() {
  for (const ::onnx::ValueInfoProto &input : model.graph().input())
    if (!model.findInitializer(input.name()))
      inputs.push_back(&input);
  std::vector<std::string> candidates;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    Element type = elementOf(*input);
    if (!options.tokens.empty()
            ? input->name() == options.tokens
            : (type == Element::I64 || type == Element::I32) &&
                  input->type().tensor_type().shape().dim_size() == 2 &&
                  !options.inputs.count(input->name()) &&
                  input->name() != options.labels)
      candidates.push_back(input->name());
  }
  for (const auto &[name, binding] : options.inputs) {
    // These two are bound by default, whether the model has them or not.
    bool isDefault =
        (name == "attention_mask" && binding == InputBinding::Ones) ||
        (name == "position_ids" && binding == InputBinding::Arange);
    if (!isDefault && llvm::none_of(inputs, [&](auto *input) {
          return input->name() == name;
        }))
      return error() << "has no input '" << name << "' (data.inputs." << name
                     << "); its inputs are " << spellInputs();
  }
  if (candidates.size() == 1)
    tokens = candidates[0];
  else if (!options.tokens.empty()) {
    return error() << "has no input '" << options.tokens
                   << "' (data.tokens); its inputs are " << spellInputs();
  } else if (candidates.empty() && !options.labels.empty() &&
             looksUpATable(options.labels)) {
    return error() << "looks up a table of weights by the input '"
                   << options.labels
                   << "', so that it takes the tokens, but data.labels names "
                      "it, too, and no other input takes them; leave "
                      "data.labels at \"next\", or name the input or array of "
                      "the labels";
  }
  return success();
}

LogicalResult Importer::findOutputs() {
  std::vector<std::string> all;
  for (const auto &output : model.graph().output())
    all.push_back(output.name());
  outputs = options.outputs.empty() ? all : options.outputs;
  for (const std::string &name : outputs)
    if (!llvm::is_contained(all, name))
      return error() << "has no output '" << name << "'; its outputs are '"
                     << llvm::join(all, "', '") << "'";
  if (outputs.empty())
    return error() << "has no outputs";
  return success();
}

void Importer::markNeeded() {
  needed.insert(outputs.begin(), outputs.end());
  for (const FlatNode &node : llvm::reverse(model.nodes())) {
    bool used =
        llvm::any_of(node.proto->output(), [&](const std::string &name) {
          return !name.empty() && needed.count(name);
        });
    if (used)
      needed.insert(node.proto->input().begin(), node.proto->input().end());
  }
}

LogicalResult Importer::bindDims() {
  dims = options.dims;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    if (input->name() != tokens)
      continue;
    // The tokens input's dimensions have a second name each.
    const auto &shape = input->type().tensor_type().shape();
    for (int index : {0, 1}) {
      const char *key = index == 0 ? "batch" : "sequence";
      auto it = options.dims.find(key);
      if (index >= shape.dim_size() || it == options.dims.end())
        continue;
      const auto &dim = shape.dim(index);
      if (dim.has_dim_value() && dim.dim_value() != it->second)
        return error()
               << "fixes dimension " << index << " of input '" << tokens
               << "' to " << dim.dim_value() << ", but dims." << key << " is "
               << it->second
               << " in one microbatch; export the model with a symbolic "
                  "dimension or change dims."
               << key;
      if (dim.has_dim_param() && !dim.dim_param().empty())
        dims.try_emplace(dim.dim_param(), it->second);
    }
  }
  // The symbols that the inputs' shapes read.
  Bindings symbols;
  for (const ::onnx::ValueInfoProto *input : inputs)
    for (const auto &dim : input->type().tensor_type().shape().dim()) {
      std::string symbol;
      while (dim.has_dim_param() &&
             !evaluateDim(dim.dim_param(), symbols, symbol) &&
             !symbol.empty() && symbols.try_emplace(symbol, 1).second)
        symbol.clear();
    }
  for (const auto &[name, size] : options.dims)
    if (name != "batch" && name != "sequence" && !symbols.count(name)) {
      std::string known;
      for (const auto &[symbol, one] : symbols)
        known += (known.empty() ? "'" : ", '") + symbol + "'";
      return error() << "has no dimension '" << name << "' (dims." << name
                     << "); its dimensions are "
                     << (known.empty() ? "all fixed" : known);
    }
  for (const auto &[name, size] : dims)
    if (size < 1)
      return error() << "dims." << name << " is " << size
                     << ", expected at least 1";
  return success();
}

Expected<Shape> Importer::shapeOf(const ::onnx::ValueInfoProto &input) {
  if (!input.type().tensor_type().has_shape())
    return reason("has no shape in the file");
  Shape shape;
  std::vector<std::string> unboundDims, unboundKeys;
  for (const auto &dim : input.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value()) {
      if (dim.dim_value() < 0)
        return reason("has the size " + Twine(dim.dim_value()));
      shape.push_back(dim.dim_value());
      continue;
    }
    size_t index = shape.size();
    // A nameless dimension of the tokens goes by its contract name.
    if (!dim.has_dim_param() || dim.dim_param().empty()) {
      auto it = input.name() == tokens && index < 2
                    ? dims.find(index == 0 ? "batch" : "sequence")
                    : dims.end();
      if (it == dims.end())
        return reason("has a dimension " + Twine(index) +
                      " without name or size; export the model with a named "
                      "dimension");
      shape.push_back(it->second);
      continue;
    }
    std::string unbound;
    std::optional<int64_t> size = evaluateDim(dim.dim_param(), dims, unbound);
    if (size && *size < 0)
      return reason("has the dimension '" + dim.dim_param() + "' of size " +
                    Twine(*size));
    if (!size) {
      unboundDims.push_back("'" + dim.dim_param() + "'");
      unboundKeys.push_back("dims." + unbound);
    }
    shape.push_back(size.value_or(0));
  }
  if (!unboundDims.empty())
    return reason("has the unbound dimension" +
                  Twine(unboundDims.size() == 1 ? " " : "s ") +
                  llvm::join(unboundDims, ", ") + "; set " +
                  llvm::join(unboundKeys, ", "));
  return shape;
}

static bool isSymbol(const ::onnx::TensorShapeProto::Dimension &dim) {
  return dim.has_dim_param() && !dim.dim_param().empty();
}

std::string Importer::batchSymbol() const {
  std::string first;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    bool isTokens = input->name() == tokens;
    const auto &shape = input->type().tensor_type().shape();
    for (int index = 0; index < shape.dim_size(); ++index) {
      const auto &dim = shape.dim(index);
      if (!isSymbol(dim))
        continue;
      if (isTokens && index == 0)
        return dim.dim_param();
      if (tokens.empty() && dim.dim_param() == "batch")
        return "batch";
      if (tokens.empty() && index == 0 && first.empty())
        first = dim.dim_param();
    }
  }
  return first;
}

/// Whether the declared dimension has the size that the symbol is bound to:
/// outputs are declared loosely.
bool Importer::hasBatchAt(Value value, int64_t dim) const {
  auto type = cast<RankedTensorType>(value.getType());
  for (const Argument &argument : arguments)
    if (argument.batchDim)
      return dim < type.getRank() &&
             type.getDimSize(dim) ==
                 cast<RankedTensorType>(argument.value.getType())
                     .getDimSize(*argument.batchDim);
  return false;
}

std::optional<int64_t>
Importer::batchDimOf(const ::onnx::ValueInfoProto &value) const {
  std::optional<int64_t> found;
  std::string symbol = batchSymbol();
  const auto &shape = value.type().tensor_type().shape();
  for (int index = 0; index < shape.dim_size(); ++index) {
    const auto &dim = shape.dim(index);
    if (!isSymbol(dim) || dim.dim_param() != symbol)
      continue;
    if (found)
      return std::nullopt;
    found = index;
  }
  return found;
}

LogicalResult Importer::bindInputs() {
  std::string complaints;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const std::string &name = input->name();
    Element type = elementOf(*input);
    Type element = toType(type, &context);
    auto complain = [&](const Twine &why) {
      complaints += ("\n  input '" + Twine(name) + "' " + why).str();
    };
    if (!input->type().has_tensor_type()) {
      complain("is no tensor");
      continue;
    }
    if (type == Element::F16) {
      complain("has type f16, which is not supported; export the model in "
               "float32 or bfloat16");
      continue;
    }
    auto bound = options.inputs.find(name);
    bool isData =
        bound == options.inputs.end() || bound->second == InputBinding::Data;
    if (!element && (isData || !isInteger(type))) {
      complain("has type " + Twine(nameOf(type)) + ", which is not supported");
      continue;
    }
    Expected<Shape> shape = shapeOf(*input);
    if (!shape) {
      complain(llvm::toString(shape.takeError()));
      continue;
    }
    if (!isData) {
      if (bound->second == InputBinding::Arange) {
        HostTensor range(type, {shape->empty() ? 1 : shape->back()});
        for (int64_t i = 0; i < range.size(); ++i)
          range.setInt(i, i);
        if (shape->empty())
          range = range.reshaped({});
        values[name] = Operand(range.broadcastTo(*shape));
      } else {
        values[name] = Operand(HostTensor::splat(
            type, *shape, bound->second == InputBinding::Ones));
      }
      continue;
    }
    std::string role = name == tokens           ? "tokens"
                       : name == options.labels ? "labels"
                                                : "input";
    if (role == "input" && !needed.count(name))
      continue;
    values[name] = Operand(addArgument(RankedTensorType::get(*shape, element),
                                       name, role, nullptr));
    arguments.back().batchDim = batchDimOf(*input);
  }
  if (!complaints.empty())
    return error() << "has inputs that cannot be used:" << complaints;
  return success();
}

LogicalResult Importer::bindTies() {
  for (const Tie &tie : options.ties) {
    const TensorRef *primary = model.findInitializer(tie.primary);
    const TensorRef *copy = model.findInitializer(tie.copy);
    if (!primary || !copy)
      return error() << "has no initializer '"
                     << (primary ? tie.copy : tie.primary) << "' to tie";
    Shape want = copy->shape;
    if (tie.transposed)
      std::reverse(want.begin(), want.end());
    if (primary->shape != want || primary->type != copy->type ||
        primary == copy)
      return error() << "cannot tie '" << tie.copy << "' of shape "
                     << spell(copy->shape) << " to '" << tie.primary
                     << "' of shape " << spell(primary->shape);
    tieOfCopy[tie.copy] = &tie;
    tiesOf[tie.primary].push_back(&tie);
  }
  return success();
}

} // namespace cleave::importer
