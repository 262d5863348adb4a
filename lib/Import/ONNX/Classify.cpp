// Separates float initializers into parameters and constants: by the ONNX
// file's metadata if it has any, otherwise by the uses of each tensor.

#include "Classify.h"
#include "Node.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::StringRef;

namespace cleave::importer {

bool movesFirstInput(StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases({"Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Cast"},
             true)
      .Cases({"CastLike", "Identity", "Flatten", "Tile", "Slice"}, true)
      .Default(false);
}

static bool isArithmetic(StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases({"Add", "Sub", "Mul", "Div", "Pow"}, true)
      .Default(false);
}

static bool isContraction(StringRef op) {
  return op == "MatMul" || op == "Einsum" || op == "Gemm";
}

bool stopsGradient(const ::onnx::NodeProto &node) {
  if (node.op_type() == "Cast")
    for (const auto &attribute : node.attribute())
      if (attribute.name() == "to")
        return !isFloat(static_cast<Element>(attribute.i()));
  return llvm::StringSwitch<bool>(node.op_type())
      .Cases({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"},
             true)
      .Cases({"IsNaN", "IsInf", "Sign", "Floor", "Ceil", "Round", "ArgMax"},
             true)
      .Cases({"Shape", "Size"}, true)
      .Default(false);
}

bool holdsMask(Model &model, const TensorRef &tensor) {
  if (!isFloat(tensor.type) || tensor.shape.size() < 2 ||
      tensor.numElements() < 4 ||
      tensor.numElements() > HostTensor::kMaxStored / 8)
    return false;
  llvm::Expected<HostTensor> contents = Node::contents(model, tensor);
  if (!contents) { // the import itself says which bytes are missing
    llvm::consumeError(contents.takeError());
    return false;
  }
  bool hasZero = false;
  std::optional<double> other;
  bool isMask = true;
  // The nonzero element of an additive mask is a large negative number. It
  // differs between exporters, but is always lower than any value that training
  // produces.
  forEach(&*contents, contents->shape(), [&](const int64_t *at) {
    double element = contents->floatAt(*at);
    if (element == 0)
      hasZero = true;
    else if (!other)
      other = element;
    else
      isMask &= element == *other;
  });
  return isMask && hasZero && other && (*other <= -1e3 || *other == 1);
}

StringRef spell(ConstantKind kind) {
  switch (kind) {
  case ConstantKind::OneElement:
  case ConstantKind::OpenNumber:
    return "one element";
  case ConstantKind::Positions:
    return "positions";
  case ConstantKind::NoGradient:
    return "no gradient";
  case ConstantKind::Mask:
    return "mask";
  case ConstantKind::PositionTable:
    return "table of positions";
  case ConstantKind::Buffer:
    return "buffer";
  case ConstantKind::Fixed:
    return "constant of the code";
  }
  llvm_unreachable("unknown kind of constant");
}

bool isNamedLikeParameter(StringRef name) {
  return name.contains('.') && !name.contains("::") && !name.contains('/') &&
         !name.starts_with("val_") && !name.starts_with("_");
}

namespace {

/// Facts about a model's tensors, derived from their uses.
class Uses {
public:
  Uses(Model &model, StringRef tokens, const std::set<std::string> &trainable);

  bool isRead(const TensorRef &tensor) {
    return !consumers[tensor.name].empty();
  }
  std::optional<ConstantKind> withoutGradient(const TensorRef &tensor);
  bool mayBeMask(const TensorRef &tensor);
  bool mayBePositionTable(const TensorRef &tensor);

private:
  bool areIn(const std::set<std::string> &values, const ::onnx::NodeProto &node,
             int first) {
    for (int i = first; i < node.input_size(); ++i)
      if (!values.count(node.input(i)))
        return false;
    return true;
  }
  bool readsByPosition(const ::onnx::NodeProto &node, const std::string &table);

  /// `known` has the names of values that depend on shapes only. `positional`
  /// has those of values that depend on shapes and on integer inputs other than
  /// the tokens.
  std::set<std::string> known = {""}, positional = {""};
  std::map<std::string, std::vector<const FlatNode *>> consumers;
  llvm::StringSet<> outputs;
};

Uses::Uses(Model &model, StringRef tokens,
           const std::set<std::string> &trainable) {
  for (const TensorRef &tensor : model.initializers())
    if (!isFloat(tensor.type) ||
        (tensor.numElements() == 1 && !trainable.count(tensor.name))) {
      known.insert(tensor.name);
      positional.insert(tensor.name);
    }
  for (const auto &input : model.graph().input())
    if (!model.findInitializer(input.name()) && input.name() != tokens &&
        isInteger(static_cast<Element>(input.type().tensor_type().elem_type())))
      positional.insert(input.name());
  for (const FlatNode &node : model.nodes()) {
    bool isKnown = true, isPositional = true;
    for (const std::string &input : node.proto->input()) {
      isKnown &= known.count(input) != 0;
      isPositional &= positional.count(input) != 0;
      consumers[input].push_back(&node);
    }
    bool isShape =
        node.proto->op_type() == "Shape" || node.proto->op_type() == "Size";
    for (const std::string &output : node.proto->output()) {
      if (isShape || isKnown)
        known.insert(output);
      if (isShape || isPositional)
        positional.insert(output);
    }
  }
  for (const auto &output : model.graph().output())
    outputs.insert(output.name());
}

std::optional<ConstantKind> Uses::withoutGradient(const TensorRef &tensor) {
  std::vector<std::string> values = {tensor.name};
  llvm::StringSet<> mixed; // follow from other data, too
  ConstantKind kind = ConstantKind::NoGradient;
  for (size_t i = 0; i < values.size(); ++i) {
    if (outputs.contains(values[i]))
      return std::nullopt;
    for (const FlatNode *node : consumers[values[i]]) {
      StringRef op = node->proto->op_type();
      if (stopsGradient(*node->proto))
        continue;
      if (movesFirstInput(op) && node->proto->input(0) == values[i]) {
        if (mixed.contains(values[i]))
          mixed.insert(node->proto->output(0));
        values.push_back(node->proto->output(0));
        continue;
      }
      // A gradient passes through the values of TopK, but not through its
      // indices.
      if (op == "TopK" || op == "ReduceSum" || op == "Where") {
        if (mixed.insert(node->proto->output(0)).second)
          values.push_back(node->proto->output(0));
        continue;
      }
      if (!isArithmetic(op) && !isContraction(op))
        return std::nullopt;
      const auto &harmless = isArithmetic(op) ? positional : known;
      bool isHarmless =
          !mixed.contains(values[i]) &&
          llvm::all_of(node->proto->input(), [&](const std::string &input) {
            return input == values[i] || harmless.count(input);
          });
      if (isHarmless) {
        kind = ConstantKind::Positions;
        continue;
      }
      if (isContraction(op))
        return std::nullopt;
      if (mixed.insert(node->proto->output(0)).second)
        values.push_back(node->proto->output(0));
    }
  }
  if (!isRead(tensor))
    return std::nullopt;
  return kind;
}

/// Returns whether all uses of the tensor add it to, or multiply it with,
/// another tensor.
bool Uses::mayBeMask(const TensorRef &tensor) {
  std::vector<std::string> values = {tensor.name};
  for (size_t i = 0; i < values.size(); ++i) {
    if (outputs.contains(values[i]))
      return false;
    for (const FlatNode *node : consumers[values[i]]) {
      StringRef op = node->proto->op_type();
      if (movesFirstInput(op) && node->proto->input(0) == values[i])
        values.push_back(node->proto->output(0));
      else if (!isArithmetic(op) && !stopsGradient(*node->proto))
        return false;
    }
  }
  return true;
}

bool Uses::readsByPosition(const ::onnx::NodeProto &node,
                           const std::string &table) {
  StringRef op = node.op_type();
  if (op == "Add")
    return true;
  if (op == "RotaryEmbedding") // the sines and cosines
    return node.input(0) != table;
  return (op == "Slice" || op == "Gather" || op == "GatherND" ||
          op == "GatherElements") &&
         node.input(0) == table && areIn(positional, node, 1);
}

/// Returns whether all uses of the tensor either gather from it by positions,
/// or add the whole tensor.
bool Uses::mayBePositionTable(const TensorRef &tensor) {
  if (tensor.shape.size() < 2)
    return false;
  std::vector<std::string> values = {tensor.name};
  bool found = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (outputs.contains(values[i]))
      return false;
    for (const FlatNode *node : consumers[values[i]]) {
      StringRef op = node->proto->op_type();
      if (readsByPosition(*node->proto, values[i]))
        found = true;
      else if (movesFirstInput(op) && node->proto->input(0) == values[i])
        values.push_back(node->proto->output(0));
      else if (!stopsGradient(*node->proto))
        return false;
    }
  }
  return found;
}

} // namespace

/// Returns whether the tensor is trained because the metadata of the ONNX file
/// list it as a parameter of the exported model. A tensor without a gradient is
/// not trained, whatever the file says.
static bool trains(Model &model, const TensorRef &tensor, ConstantKind kind) {
  return kind != ConstantKind::NoGradient &&
         model.metadata().heldAs(tensor.name) == HeldAs::Parameter;
}

/// Classifies a tensor by its uses and elements. It is for tensors for which
/// neither the name nor the metadata says whether they are parameters.
static std::optional<ConstantKind> kindByRules(Model &model, Uses &uses,
                                               const TensorRef &tensor) {
  if (auto kind = uses.withoutGradient(tensor))
    return kind;
  // Elements are read from the ONNX file only if the uses of the tensor do not
  // decide whether it is a parameter or a constant.
  if (uses.mayBeMask(tensor) && holdsMask(model, tensor))
    return ConstantKind::Mask;
  if (uses.mayBePositionTable(tensor) && holdsPositions(model, tensor))
    return ConstantKind::PositionTable;
  return std::nullopt;
}

/// Classifies the tensors of a model by their uses alone. A tensor with one
/// element is assumed to be a literal number of the model's source code, and
/// not a parameter.
static Constants constantsByUse(Model &model, StringRef tokens,
                                const std::set<std::string> &trainable) {
  Uses uses(model, tokens, trainable);
  Constants constants;
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() > 1 &&
        !trainable.count(tensor.name))
      if (auto kind = uses.withoutGradient(tensor);
          kind && !trains(model, tensor, *kind))
        constants[tensor.name] = *kind;
  return constants;
}

std::set<std::string> likelyFixed(Model &model, StringRef tokens,
                                  const ImportOptions &options) {
  Uses uses(model, tokens, options.trainable);
  std::set<std::string> names;
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() > 1 &&
        model.metadata().heldAs(tensor.name) == HeldAs::Parameter)
      if (auto kind = kindByRules(model, uses, tensor);
          kind == ConstantKind::Mask || kind == ConstantKind::PositionTable)
        names.insert(tensor.name);
  return names;
}

Constants findConstants(Model &model, StringRef tokens,
                        const ImportOptions &options) {
  const std::set<std::string> &trainable = options.trainable;
  std::map<std::string, Reading> readings =
      readingsOfOneElement(model, constantsByUse(model, tokens, trainable));
  std::set<std::string> single;
  for (auto [name, reading] : readings) {
    // A frozen tensor that may be a literal number of the model's source code
    // becomes a constant, so that passes can recognize formulas that contain
    // it. If the ONNX file says that the tensor belongs to a module, it remains
    // a parameter, since checkpoints have it.
    bool isFrozenNumber = reading == Reading::Scale &&
                          model.findInitializer(name)->shape.empty() &&
                          model.metadata().heldAs(name) == HeldAs::Unknown &&
                          !isNamedLikeParameter(name) && options.isFrozen &&
                          options.isFrozen(name);
    if (reading != Reading::Open && !isFrozenNumber)
      single.insert(name);
  }
  std::set<std::string> trained = trainable;
  trained.insert(single.begin(), single.end());
  Uses uses(model, tokens, trained);
  Constants constants;
  for (const TensorRef &tensor : model.initializers()) {
    if (!isFloat(tensor.type) || trainable.count(tensor.name))
      continue;
    HeldAs held = model.metadata().heldAs(tensor.name);
    if (tensor.numElements() <= 1 && !single.count(tensor.name))
      constants[tensor.name] =
          readings.count(tensor.name) && readings[tensor.name] == Reading::Open
              ? ConstantKind::OpenNumber
              : ConstantKind::OneElement;
    else if (auto kind = kindByRules(model, uses, tensor);
             kind && !trains(model, tensor, *kind))
      constants[tensor.name] = *kind;
    else if (held == HeldAs::Buffer)
      constants[tensor.name] = ConstantKind::Buffer;
    else if (held == HeldAs::Number)
      constants[tensor.name] = ConstantKind::Fixed;
  }
  return constants;
}

std::set<std::string> channelVectors(const Model &model) {
  std::set<std::string> names;
  for (const auto &[name, uses] : model.uses()) {
    const TensorRef &tensor = *model.findInitializer(name);
    auto isWide = [](int64_t size) { return size != 1; };
    if (isFloat(tensor.type) && tensor.shape.size() >= 2 &&
        tensor.shape.back() == 1 && llvm::count_if(tensor.shape, isWide) == 1 &&
        llvm::all_of(uses, [](const Model::Use &use) {
          return isArithmetic(use.node->proto->op_type());
        }))
      names.insert(name);
  }
  return names;
}

} // namespace cleave::importer
