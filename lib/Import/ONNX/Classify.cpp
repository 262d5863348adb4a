// Parameters and constants among float initializers. Names carry no meaning, so
// uses decide.

#include "Classify.h"
#include "Node.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::StringRef;

namespace cleave::importer {

/// The result holds the same elements, or some of them, under another shape.
static bool movesFirstInput(StringRef op) {
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

/// Changes nothing where its input changes a little.
static bool stopsGradient(const ::onnx::NodeProto &node) {
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
      tensor.numElements() > HostTensor::kMaxElements / 8)
    return false;
  llvm::Expected<HostTensor> contents = Node::contents(model, tensor);
  if (!contents) { // the import itself says which bytes are missing
    llvm::consumeError(contents.takeError());
    return false;
  }
  bool hasZero = false;
  std::optional<double> other;
  bool isMask = true;
  // By numbers below any that training keeps, whatever the exporter chose.
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

std::set<std::string> findConstants(Model &model, StringRef tokens) {
  // What is known from shapes alone, and what follows from shapes and from
  // integer inputs other than tokens.
  std::set<std::string> known, positional;
  known.insert("");
  positional.insert("");
  for (const TensorRef &tensor : model.initializers())
    if (!isFloat(tensor.type) || tensor.numElements() == 1) {
      known.insert(tensor.name);
      positional.insert(tensor.name);
    }
  for (const auto &input : model.graph().input())
    if (!model.findInitializer(input.name()) && input.name() != tokens &&
        isInteger(static_cast<Element>(input.type().tensor_type().elem_type())))
      positional.insert(input.name());
  std::map<std::string, std::vector<const FlatNode *>> consumers;
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

  llvm::StringSet<> outputs;
  for (const auto &output : model.graph().output())
    outputs.insert(output.name());
  auto isConstant = [&](const TensorRef &tensor) {
    std::vector<std::string> values = {tensor.name};
    for (size_t i = 0; i < values.size(); ++i) {
      if (outputs.contains(values[i]))
        return false;
      for (const FlatNode *node : consumers[values[i]]) {
        StringRef op = node->proto->op_type();
        if (stopsGradient(*node->proto))
          continue;
        if (movesFirstInput(op) && node->proto->input(0) == values[i]) {
          values.push_back(node->proto->output(0));
          continue;
        }
        if (!isArithmetic(op) && !isContraction(op))
          return false;
        const auto &harmless = isArithmetic(op) ? positional : known;
        for (const std::string &input : node->proto->input())
          if (input != values[i] && !harmless.count(input))
            return false;
      }
    }
    return values.size() > 1 || !consumers[tensor.name].empty();
  };
  // Reads elements only where a mask could be: added or multiplied.
  auto isMask = [&](const TensorRef &tensor) {
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
    return holdsMask(model, tensor);
  };
  std::set<std::string> constants;
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) &&
        (tensor.numElements() <= 1 || isConstant(tensor) || isMask(tensor)))
      constants.insert(tensor.name);
  return constants;
}

} // namespace cleave::importer
